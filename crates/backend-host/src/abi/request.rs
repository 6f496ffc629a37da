//! `TRITONBACKEND_Request` and `TRITONBACKEND_Input`.
//!
//! A request belongs to the library from the moment that `TRITONBACKEND_ModelInstanceExecute` returns success until it
//! is released. What is needed to answer it, `Ticket`, lives on in its responses and factories.

#![allow(unsafe_code)] // pointers of a C API

use super::attributes::BufferAttributes;
use super::instance::Instance;
use super::memory::CPU;
use super::parameter::Parameter;
use super::response::Answer;
use super::response::Output;
use super::state::State;
use super::{Err, c_text, guard, object, put, text};
use crate::bytes::AlignedBytes;
use crate::link::{Link, Way};
use crate::segments::View;
use frames::generated::{Frame, Report, ReportKind, RespondHead};
use frames::{Contents, InstanceId, RequestRef, write};
use parking_lot::Mutex;
use std::cell::{Cell, RefCell};
use std::ffi::{CStr, CString, c_char, c_void};
use std::ptr::{null, null_mut};
use std::sync::Arc;
use std::thread::ThreadId;
use tensor::{Error, Result};

/// `TRITONSERVER_REQUEST_RELEASE_ALL` and `…_RESCHEDULE`.
const RELEASE_ALL: u32 = 1;
const RELEASE_RESCHEDULE: u32 = 2;

/// A slot that no request has.
const NO_SLOT: u32 = u32::MAX;

/// Frames of statistics that go out with the result of the batch.
type Reports = Option<Vec<u8>>;

thread_local! {
    /// What the batch of this thread has reported; `None` while it executes none.
    static REPORTS: RefCell<Reports> = const { RefCell::new(None) };
    /// The request that this thread works for, if its batch has only one.
    static ONLY: Cell<(u32, u32)> = const { Cell::new((NO_SLOT, 0)) };
}

/// Slot and generation of the request that a call from this thread is made for.
pub(crate) fn parent_of_this_thread() -> (u32, u32) {
    ONLY.get()
}

/// Notes the requests that this thread executes from now on.
pub(crate) fn work_for(requests: &[Arc<Ticket>]) {
    ONLY.set(match requests {
        [only] => (only.slot, only.generation),
        _ => (NO_SLOT, 0),
    });
    REPORTS.set(Some(Vec::new()));
}

/// The thread executes nothing any more. Returns the frames to send before the result.
pub(crate) fn work_is_done() -> Vec<u8> {
    ONLY.set((NO_SLOT, 0));
    REPORTS.take().unwrap_or_default()
}

/// Sends statistics: with the result if this thread executes a batch, otherwise at once.
pub(crate) fn report(link: &Link, kind: ReportKind, of: Report) {
    let mut frame = Vec::new();
    let writing = write::begin(&mut frame, InstanceId::ONLY, Frame::Report);
    Report { kind: kind as u8, ..of }.write(&mut frame);
    let _ = writing.end(&mut frame);
    let is_kept =
        REPORTS.with_borrow_mut(|reports| reports.as_mut().map(|reports| reports.extend_from_slice(&frame)).is_some());
    if !is_kept {
        link.send(Way::Side, &frame);
    }
}

/// What it takes to answer a request.
pub(crate) struct Ticket {
    pub(crate) instance: Arc<Instance>,
    slot: u32,
    generation: u32,
    /// The client's id, or what stands for it in errors.
    id: String,
    progress: Mutex<Progress>,
    /// New values of states. Boxed: libraries hold their addresses.
    states: Mutex<Vec<Box<State>>>,
}

#[derive(Default)]
struct Progress {
    /// The thread that executes the batch. A response that it completes is sent with the batch's result.
    executing: Option<ThreadId>,
    /// The complete response, until the batch's result is sent.
    answer: Option<Answer>,
    /// The response of a model that is not decoupled, until the request is ended.
    held: Option<Answer>,
    /// A response was sent on its own: all others must be, too.
    has_responded: bool,
    is_final: bool,
    /// The request is to run again.
    is_rescheduled: bool,
    /// Responses whose times were reported.
    reported: u32,
}

impl Ticket {
    /// For a request of a batch that this thread executes.
    pub(crate) fn new(instance: &Arc<Instance>, from: &RequestRef<'_>) -> Arc<Self> {
        let progress = Progress { executing: Some(std::thread::current().id()), ..Progress::default() };
        Arc::new(Self {
            instance: Arc::clone(instance),
            slot: from.head.slot,
            generation: from.head.generation,
            id: if from.id.is_empty() { "<id_unknown>" } else { from.id }.to_owned(),
            progress: Mutex::new(progress),
            states: Mutex::default(),
        })
    }

    pub(crate) fn is_cancelled(&self) -> bool {
        self.instance.link.flags.is_cancelled(self.slot, self.generation)
    }

    /// A report about the request, without its times.
    pub(crate) fn report(&self) -> Report {
        Report { slot: self.slot, generation: self.generation, ..Report::default() }
    }

    /// Index of the next response whose times are reported.
    pub(crate) fn next_reported(&self) -> u32 {
        let mut progress = self.progress.lock();
        progress.reported += 1;
        progress.reported - 1
    }

    /// An error about the request, as Triton prints it.
    pub(crate) fn error(&self, text: impl std::fmt::Display) -> Error {
        Error::invalid(format!("[request id: {}] {text}", self.id))
    }

    /// The new value of a state, made by `new` the first time.
    pub(crate) fn state(self: &Arc<Self>, name: &str, new: impl FnOnce(&Arc<Self>) -> State) -> *mut State {
        let mut states = self.states.lock();
        let at = states.iter().position(|state| state.output.name() == name).unwrap_or(states.len());
        if at == states.len() {
            states.push(Box::new(new(self)));
        }
        states.get_mut(at).map_or(null_mut(), |state| &raw mut **state)
    }

    /// The states that the request sets, to be sent with its last response.
    fn updated(&self) -> Vec<Output> {
        let states = std::mem::take(&mut *self.states.lock());
        states
            .into_iter()
            .filter(|state| state.is_updated && state.output.has_buffer())
            .map(|state| state.output)
            .collect()
    }

    /// Sends a response, or keeps it for the batch's result. After the last one, others are dropped.
    pub(crate) fn answer(&self, mut answer: Answer) {
        let mut progress = self.progress.lock();
        if progress.is_final {
            return;
        }
        progress.is_final = answer.is_final();
        if !self.instance.model.signature().is_decoupled {
            // The engine takes one response: it waits for the flag that ends the request.
            let held = progress.held.take();
            match (answer.is_final(), answer.is_none(), held) {
                (true, true, Some(held)) => answer = held.ended(),
                (false, false, None) => {
                    progress.held = Some(answer);
                    return;
                }
                (_, false, Some(_)) => {
                    let text = "expected a single response, got 2";
                    progress.is_final = true;
                    answer = Answer::error(&Error::internal(text)).ended();
                }
                _ => {}
            }
        }
        let is_executing = progress.executing == Some(std::thread::current().id());
        if answer.is_final() && !answer.is_none() && is_executing && !progress.has_responded {
            progress.answer = Some(answer);
            return;
        }
        progress.has_responded = true;
        drop(progress);
        if answer.is_final() {
            answer.add(self.updated());
        }
        let mut frame = Vec::new();
        let writing = write::begin(&mut frame, InstanceId::ONLY, Frame::Respond);
        RespondHead { slot: self.slot, generation: self.generation }.write(&mut frame);
        let mut room = frames::generated::INLINE_BYTES_MAX as usize;
        let blocks = answer.write(&mut frame, &mut room, &self.instance.link.segments);
        if writing.end(&mut frame).is_ok() {
            self.instance.link.send(Way::Side, &frame);
            blocks.into_iter().for_each(crate::segments::Allocated::sent);
        }
    }

    /// The response that goes with the batch's result. `failed` is the error of the whole batch.
    pub(crate) fn result(&self, failed: Option<&Error>) -> Answer {
        let mut progress = self.progress.lock();
        progress.executing = None;
        if let Some(mut answer) = progress.answer.take() {
            answer.add(self.updated());
            return answer;
        }
        if let Some(error) = failed.filter(|_| !progress.is_final && !progress.has_responded) {
            progress.is_final = true;
            return Answer::failed(error);
        }
        if std::mem::take(&mut progress.is_rescheduled) && !progress.is_final {
            progress.is_final = true;
            let mut answer = Answer::rescheduled();
            answer.add(self.updated());
            return answer;
        }
        drop(progress);
        if let Some(error) = failed {
            self.answer(Answer::failed(error));
        }
        Answer::none()
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        // Neither the library nor any of its objects can answer any more: Triton's client would wait for ever.
        if let Some(held) = self.progress.get_mut().held.take() {
            self.answer(held.ended());
        }
        if !self.progress.get_mut().is_final {
            let what = "the backend released the request and everything of it without a final response";
            self.answer(Answer::failed(&Error::internal(what)));
        }
    }
}

/// A request, as a library holds it.
pub(crate) struct Request {
    pub(crate) ticket: Arc<Ticket>,
    id: CString,
    correlation: u64,
    /// Null if it is a number.
    correlation_text: Option<CString>,
    timeout_us: u64,
    flags: u32,
    parameters: Box<[Parameter]>,
    inputs: Vec<Input>,
    outputs: Vec<CString>,
}

/// An input of a request.
pub(crate) struct Input {
    name: CString,
    datatype: u32,
    shape: Vec<i64>,
    data: Bytes,
    attributes: BufferAttributes,
}

/// The bytes of an input.
enum Bytes {
    Inline(AlignedBytes),
    Block(View),
}

impl Bytes {
    fn pointer(&self) -> *const u8 {
        match self {
            Self::Inline(bytes) => bytes.pointer(),
            Self::Block(view) => view.pointer(),
        }
    }

    fn len(&self) -> u64 {
        match self {
            Self::Inline(bytes) => bytes.len() as u64,
            Self::Block(view) => view.bytes(),
        }
    }
}

impl Request {
    /// # Errors
    /// If the server sent what it must not.
    pub(crate) fn new(ticket: &Arc<Ticket>, from: &RequestRef<'_>) -> Result<Self> {
        let (head, instance) = (&from.head, &ticket.instance);
        let input = |tensor: &frames::TensorRef<'_>| {
            let data = match tensor.contents {
                Contents::Inline(bytes) => Bytes::Inline(AlignedBytes::of(bytes)),
                Contents::Block(block) => Bytes::Block(instance.link.segments.read(&block)?),
                Contents::Device(_) => return Err(Error::unsupported("an input lies on a device")),
            };
            Ok(Input {
                name: c_text(tensor.name),
                datatype: tensor.datatype as u32,
                shape: tensor.shape.to_vec(),
                attributes: BufferAttributes::cpu(data.len() as usize),
                data,
            })
        };
        let outputs = match &from.outputs {
            Some(names) => names.iter().map(|name| c_text(name)).collect(),
            None => instance.model.signature().outputs.clone(),
        };
        Ok(Self {
            ticket: Arc::clone(ticket),
            id: c_text(from.id),
            correlation: head.correlation,
            correlation_text: (head.correlation_bytes > 0).then(|| c_text(from.correlation)),
            timeout_us: head.timeout_us,
            flags: head.flags,
            parameters: Parameter::list(from.parameters)?,
            inputs: from.inputs.iter().map(input).collect::<Result<_>>()?,
            outputs,
        })
    }

    fn input(&self, name: &str) -> Result<&Input> {
        let found = self.inputs.iter().find(|input| input.name.to_bytes() == name.as_bytes());
        found.ok_or_else(|| self.ticket.error(format_args!("unknown request input name {name}")))
    }

    /// The bytes of an input.
    pub(crate) fn bytes_of(&self, name: &str) -> Option<Vec<u8>> {
        let input = self.inputs.iter().find(|input| input.name.to_bytes() == name.as_bytes())?;
        Some(match &input.data {
            Bytes::Inline(bytes) => {
                let mut copy = Vec::with_capacity(bytes.len());
                bytes.write(&mut copy);
                copy
            }
            Bytes::Block(view) => view.to_vec(),
        })
    }

    fn output(&self, name: &CStr) -> bool {
        self.outputs.iter().any(|output| **output == *name)
    }

    fn at<'a, T>(&self, list: &'a [T], index: u32, what: &str) -> Result<&'a T> {
        list.get(index as usize).ok_or_else(|| {
            let count = list.len();
            self.ticket.error(format_args!("out of bounds index {index}: request has {count} {what}"))
        })
    }
}

/// The client's id; owned by the request.
///
/// # Safety
/// `request` is live, `id` valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONBACKEND_RequestId(request: *const Request, id: *mut *const c_char) -> Err {
    // SAFETY: the caller's promise.
    guard(|| unsafe {
        put(id, object(request, "request")?.id.as_ptr());
        Ok(())
    })
}

/// Whether the client has cancelled the request.
///
/// # Safety
/// `request` is live, `is_cancelled` valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONBACKEND_RequestIsCancelled(request: *const Request, is_cancelled: *mut bool) -> Err {
    // SAFETY: the caller's promise.
    guard(|| unsafe {
        put(is_cancelled, object(request, "request")?.ticket.is_cancelled());
        Ok(())
    })
}

/// The correlation id, if it is a number.
///
/// # Safety
/// `request` is live, `id` valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONBACKEND_RequestCorrelationId(request: *const Request, id: *mut u64) -> Err {
    // SAFETY: the caller's promise.
    guard(|| unsafe {
        let request = object(request, "request")?;
        if request.correlation_text.is_some() {
            return Err(request.ticket.error("correlation ID in request is not an unsigned int"));
        }
        put(id, request.correlation);
        Ok(())
    })
}

/// The correlation id, if it is a text; owned by the request.
///
/// # Safety
/// `request` is live, `id` valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONBACKEND_RequestCorrelationIdString(
    request: *const Request,
    id: *mut *const c_char,
) -> Err {
    // SAFETY: the caller's promise.
    guard(|| unsafe {
        let request = object(request, "request")?;
        let text = request.correlation_text.as_ref();
        put(id, text.ok_or_else(|| request.ticket.error("correlation ID in request is not a string"))?.as_ptr());
        Ok(())
    })
}

/// The request's timeout; 0 for none.
///
/// # Safety
/// `request` is live, `timeout` valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONBACKEND_InferenceRequestTimeoutMicroseconds(
    request: *const Request,
    timeout: *mut u64,
) -> Err {
    // SAFETY: the caller's promise.
    guard(|| unsafe {
        put(timeout, object(request, "request")?.timeout_us);
        Ok(())
    })
}

/// The sequence flags: 1 starts, 2 ends one.
///
/// # Safety
/// `request` is live, `flags` valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONBACKEND_RequestFlags(request: *const Request, flags: *mut u32) -> Err {
    // SAFETY: the caller's promise.
    guard(|| unsafe {
        put(flags, object(request, "request")?.flags);
        Ok(())
    })
}

/// Number of parameters.
///
/// # Safety
/// `request` is live, `count` valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONBACKEND_RequestParameterCount(request: *const Request, count: *mut u32) -> Err {
    // SAFETY: the caller's promise.
    guard(|| unsafe {
        put(count, object(request, "request")?.parameters.len() as u32);
        Ok(())
    })
}

/// A parameter; owned by the request.
///
/// # Safety
/// `request` is live, the others valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONBACKEND_RequestParameter(
    request: *const Request,
    index: u32,
    key: *mut *const c_char,
    kind: *mut u32,
    vvalue: *mut *const c_void,
) -> Err {
    guard(|| {
        // SAFETY: the caller's promise.
        let parameters = unsafe { &object(request, "request")?.parameters };
        let parameter = parameters.get(index as usize).ok_or_else(|| {
            let count = parameters.len();
            Error::invalid(format!("out of bounds index {index}: request has {count} parameters"))
        })?;
        // SAFETY: the caller's promise.
        unsafe {
            put(key, parameter.name.as_ptr());
            put(kind, parameter.value.kind());
            put(vvalue, parameter.value.pointer());
        }
        Ok(())
    })
}

/// Number of inputs.
///
/// # Safety
/// `request` is live, `count` valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONBACKEND_RequestInputCount(request: *const Request, count: *mut u32) -> Err {
    // SAFETY: the caller's promise.
    guard(|| unsafe {
        put(count, object(request, "request")?.inputs.len() as u32);
        Ok(())
    })
}

/// Name of an input; owned by the request.
///
/// # Safety
/// `request` is live, `input_name` valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONBACKEND_RequestInputName(
    request: *const Request,
    index: u32,
    input_name: *mut *const c_char,
) -> Err {
    // SAFETY: the caller's promise.
    guard(|| unsafe {
        put(input_name, null());
        let request = object(request, "request")?;
        put(input_name, request.at(&request.inputs, index, "inputs")?.name.as_ptr());
        Ok(())
    })
}

/// An input by its name; owned by the request.
///
/// # Safety
/// `request` is live, `name` NUL-terminated, `input` valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONBACKEND_RequestInput(
    request: *const Request,
    name: *const c_char,
    input: *mut *const Input,
) -> Err {
    // SAFETY: the caller's promise.
    guard(|| unsafe {
        put(input, null());
        put(input, &raw const *object(request, "request")?.input(&text(name))?);
        Ok(())
    })
}

/// An input by its index; owned by the request.
///
/// # Safety
/// `request` is live, `input` valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONBACKEND_RequestInputByIndex(
    request: *const Request,
    index: u32,
    input: *mut *const Input,
) -> Err {
    // SAFETY: the caller's promise.
    guard(|| unsafe {
        put(input, null());
        let request = object(request, "request")?;
        put(input, &raw const *request.at(&request.inputs, index, "inputs")?);
        Ok(())
    })
}

/// Number of requested outputs.
///
/// # Safety
/// `request` is live, `count` valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONBACKEND_RequestOutputCount(request: *const Request, count: *mut u32) -> Err {
    // SAFETY: the caller's promise.
    guard(|| unsafe {
        put(count, object(request, "request")?.outputs.len() as u32);
        Ok(())
    })
}

/// Name of a requested output; owned by the request.
///
/// # Safety
/// `request` is live, `output_name` valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONBACKEND_RequestOutputName(
    request: *const Request,
    index: u32,
    output_name: *mut *const c_char,
) -> Err {
    // SAFETY: the caller's promise.
    guard(|| unsafe {
        put(output_name, null());
        let request = object(request, "request")?;
        put(output_name, request.at(&request.outputs, index, "requested outputs")?.as_ptr());
        Ok(())
    })
}

/// Where the client wants an output: in memory of the host.
///
/// # Safety
/// `request` is live, `name` NUL-terminated, the others null or valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONBACKEND_RequestOutputBufferProperties(
    request: *const Request,
    name: *const c_char,
    _byte_size: *mut usize,
    memory_type: *mut u32,
    memory_type_id: *mut i64,
) -> Err {
    // SAFETY: the caller's promise.
    guard(|| unsafe {
        let _ = (!name.is_null()).then(|| object(request, "request").map(|r| r.output(CStr::from_ptr(name))));
        put(memory_type, CPU);
        put(memory_type_id, 0);
        Ok(())
    })
}

/// Takes a request back. On an error it stays the library's.
///
/// # Safety
/// `request` is the library's, which does not use it after success.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONBACKEND_RequestRelease(request: *mut Request, release_flags: u32) -> Err {
    guard(|| {
        // SAFETY: the caller's promise.
        let ticket = unsafe { &object(request, "request")?.ticket };
        if release_flags & RELEASE_RESCHEDULE != 0 {
            if !ticket.instance.model.signature().is_iterative {
                return Err(Error::invalid(
                    "Request is released with TRITONSERVER_REQUEST_RELEASE_RESCHEDULE, while the model is not configured \
                     to handle such a flag.",
                ));
            }
            ticket.progress.lock().is_rescheduled = true;
        } else if release_flags & RELEASE_ALL == 0 {
            return Err(Error::invalid(format!("{release_flags} is no set of release flags")));
        }
        // SAFETY: made by `Box::into_raw`, and the caller gives it up.
        drop(unsafe { Box::from_raw(request) });
        Ok(())
    })
}

/// What an input is. Texts and shape are owned by it.
///
/// # Safety
/// `input` is live, the others null or valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONBACKEND_InputProperties(
    input: *const Input,
    name: *mut *const c_char,
    datatype: *mut u32,
    shape: *mut *const i64,
    dims_count: *mut u32,
    byte_size: *mut u64,
    buffer_count: *mut u32,
) -> Err {
    // SAFETY: the caller's promise.
    guard(|| unsafe {
        let input = object(input, "input")?;
        put(name, input.name.as_ptr());
        put(datatype, input.datatype);
        put(shape, input.shape.as_ptr());
        put(dims_count, input.shape.len() as u32);
        put(byte_size, input.data.len());
        put(buffer_count, u32::from(input.data.len() > 0));
        Ok(())
    })
}

/// As `TRITONBACKEND_InputProperties`: there is one set of buffers.
///
/// # Safety
/// As there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONBACKEND_InputPropertiesForHostPolicy(
    input: *const Input,
    _host_policy_name: *const c_char,
    name: *mut *const c_char,
    datatype: *mut u32,
    shape: *mut *const i64,
    dims_count: *mut u32,
    byte_size: *mut u64,
    buffer_count: *mut u32,
) -> Err {
    // SAFETY: the caller's promise.
    unsafe { TRITONBACKEND_InputProperties(input, name, datatype, shape, dims_count, byte_size, buffer_count) }
}

/// A buffer of an input. Beyond the last: null and no error, as in Triton.
///
/// # Safety
/// `input` is live, the others null or valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONBACKEND_InputBuffer(
    input: *const Input,
    index: u32,
    buffer: *mut *const c_void,
    buffer_byte_size: *mut u64,
    memory_type: *mut u32,
    memory_type_id: *mut i64,
) -> Err {
    // SAFETY: the caller's promise.
    guard(|| unsafe {
        let input = object(input, "input")?;
        let is_first = index == 0 && input.data.len() > 0;
        put(buffer, if is_first { input.data.pointer().cast() } else { null() });
        put(buffer_byte_size, if is_first { input.data.len() } else { 0 });
        put(memory_type, CPU);
        put(memory_type_id, 0);
        Ok(())
    })
}

/// As `TRITONBACKEND_InputBuffer`: there is one set of buffers.
///
/// # Safety
/// As there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONBACKEND_InputBufferForHostPolicy(
    input: *const Input,
    _host_policy_name: *const c_char,
    index: u32,
    buffer: *mut *const c_void,
    buffer_byte_size: *mut u64,
    memory_type: *mut u32,
    memory_type_id: *mut i64,
) -> Err {
    // SAFETY: the caller's promise.
    unsafe { TRITONBACKEND_InputBuffer(input, index, buffer, buffer_byte_size, memory_type, memory_type_id) }
}

/// A buffer of an input and its attributes, which the input owns. Beyond the last: null and no error.
///
/// # Safety
/// `input` is live, the others null or valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONBACKEND_InputBufferAttributes(
    input: *const Input,
    index: u32,
    buffer: *mut *const c_void,
    buffer_attributes: *mut *const BufferAttributes,
) -> Err {
    // SAFETY: the caller's promise.
    guard(|| unsafe {
        let input = object(input, "input")?;
        let is_first = index == 0 && input.data.len() > 0;
        put(buffer, if is_first { input.data.pointer().cast() } else { null() });
        put(buffer_attributes, if is_first { &raw const input.attributes } else { null_mut::<BufferAttributes>() });
        Ok(())
    })
}
