//! Encodes frames. A frame is appended to a buffer; its length is written when it is complete.

use super::id::InstanceId;
use super::tensor::{Block, Lent};
use crate::generated::{
    ALL_OUTPUTS, AnswerHead, CallId, CloseHandle, DEVICE_SEGMENT, DeviceTensor, FRAME_BYTES_MAX, Frame, HANDLE_BYTES,
    Header, Place, Question, RequestHead, Segment, TensorHead, VERSION,
};
use protocol::Parameter;
use protocol::json::{write_f64, write_string};
use tensor::{DataType, Name};

/// A frame that is being written.
#[must_use]
pub struct Writing {
    start: usize,
}

/// The frame is longer than the protocol allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TooLong;

/// Begins a frame at the end of `to`.
pub fn begin(to: &mut Vec<u8>, about: InstanceId, frame: Frame) -> Writing {
    let start = to.len();
    header(to, about, frame, 0, 0);
    Writing { start }
}

pub(super) fn header(to: &mut Vec<u8>, about: InstanceId, frame: Frame, length: usize, count: u16) {
    let says_version = matches!(frame, Frame::Load | Frame::Ready | Frame::Failed);
    let flags = if says_version { VERSION as u8 } else { 0 };
    let InstanceId { model, instance } = about;
    Header { length: length as u32, frame: frame as u8, flags, count, model, instance }.write(to);
}

/// Offset of `count` in a header.
const COUNT_AT: usize = 6;

impl Writing {
    /// Sets the number of elements of the frame.
    pub fn count(&self, to: &mut [u8], count: u16) {
        if let Some(place) = to.get_mut(self.start + COUNT_AT..).and_then(|rest| rest.first_chunk_mut()) {
            *place = count.to_le_bytes();
        }
    }

    /// Ends the frame and writes its length.
    ///
    /// # Errors
    /// If the frame is too long: it is removed from `to`.
    pub fn end(self, to: &mut Vec<u8>) -> Result<(), TooLong> {
        let length = to.len().saturating_sub(self.start + Header::BYTES);
        if length as u64 > FRAME_BYTES_MAX {
            to.truncate(self.start);
            return Err(TooLong);
        }
        if let Some(place) = to.get_mut(self.start..).and_then(|frame| frame.first_chunk_mut()) {
            *place = (length as u32).to_le_bytes();
        }
        Ok(())
    }
}

/// A frame without content.
pub fn empty(to: &mut Vec<u8>, about: InstanceId, frame: Frame) {
    header(to, about, frame, 0, 0);
}

/// A frame with a JSON text: LOAD, READY, FAILED, CONTROL, CONTROL_RESULT.
///
/// # Errors
/// If the frame is too long.
pub fn json(to: &mut Vec<u8>, about: InstanceId, frame: Frame, text: &str) -> Result<(), TooLong> {
    let writing = begin(to, about, frame);
    to.extend_from_slice(text.as_bytes());
    writing.end(to)
}

/// PING, PONG, IS_READY.
pub fn question(to: &mut Vec<u8>, about: InstanceId, frame: Frame, question: u64) {
    header(to, about, frame, Question::BYTES, 0);
    Question { question }.write(to);
}

/// SEGMENT.
pub fn segment(to: &mut Vec<u8>, segment: Segment) {
    header(to, InstanceId::PROCESS, Frame::Segment, Segment::BYTES, 0);
    segment.write(to);
}

/// RELEASE with as many ids as fit into one frame; the others stay in `ids`.
pub fn release(to: &mut Vec<u8>, ids: &mut Vec<u64>) {
    let count = ids.len().min(usize::from(u16::MAX));
    header(to, InstanceId::PROCESS, Frame::Release, count * 8, count as u16);
    to.extend(ids.drain(..count).flat_map(u64::to_le_bytes));
}

/// CLOSE_HANDLE.
pub fn close_handle(to: &mut Vec<u8>, device: u32, handle: &[u8; HANDLE_BYTES as usize]) {
    header(to, InstanceId::PROCESS, Frame::CloseHandle, CloseHandle::BYTES + handle.len(), 0);
    CloseHandle { device, reserved: 0 }.write(to);
    to.extend_from_slice(handle);
}

/// Location of a tensor's bytes.
#[derive(Debug, Clone, Copy)]
pub enum Put<'a> {
    /// In the frame.
    Inline(&'a [u8]),
    /// In a segment.
    Block(Block),
    /// On a device.
    Device(Lent<'a>),
}

/// A tensor. Names up to 65,535 bytes and ranks up to 255 suffice: configurations and requests have lower limits.
pub fn tensor(to: &mut Vec<u8>, name: &str, datatype: DataType, shape: &[i64], put: Put<'_>) {
    let (place, segment, offset, bytes) = match put {
        Put::Inline(bytes) => (Place::Inline, 0, 0, bytes.len() as u64),
        Put::Block(b) => (if b.of_requests { Place::Request } else { Place::Response }, b.segment, b.offset, b.bytes),
        Put::Device(l) => {
            let place = if l.by_host { Place::DeviceRequest } else { Place::DeviceResponse };
            (place, DEVICE_SEGMENT as u16, l.lease, l.bytes)
        }
    };
    let name = cut(name);
    let dims = shape.get(..shape.len().min(usize::from(u8::MAX))).unwrap_or_default();
    TensorHead {
        name_bytes: name.len() as u16,
        datatype: datatype as u8,
        rank: dims.len() as u8,
        place: place as u8,
        reserved: 0,
        segment,
        offset,
        bytes,
    }
    .write(to);
    to.extend_from_slice(name.as_bytes());
    to.extend(dims.iter().flat_map(|dim| dim.to_le_bytes()));
    match put {
        Put::Inline(bytes) => to.extend_from_slice(bytes),
        Put::Block(_) => {}
        Put::Device(lent) => {
            DeviceTensor { device: lent.device, reserved: 0, offset: lent.offset }.write(to);
            to.extend_from_slice(lent.handle);
        }
    }
}

/// Fields of a request without its tensors, of which `inputs` follow.
#[derive(Debug, Clone, Copy, Default)]
#[allow(missing_docs)]
pub struct RequestHeadOf<'a> {
    pub slot: u32,
    pub generation: u32,
    pub correlation: u64,
    pub correlation_text: &'a str,
    pub timeout_us: u64,
    pub flags: u32,
    pub id: &'a str,
    /// JSON object, or "".
    pub trace: &'a str,
    pub inputs: u16,
}

/// A request without its tensors. `outputs` are names, or `None` for all.
pub fn request<'n>(
    to: &mut Vec<u8>,
    of: &RequestHeadOf<'_>,
    parameters: &[(Name, Parameter)],
    outputs: Option<impl ExactSizeIterator<Item = &'n str>>,
) {
    let start = to.len();
    let mut head = RequestHead {
        slot: of.slot,
        generation: of.generation,
        correlation: of.correlation,
        timeout_us: of.timeout_us,
        flags: of.flags,
        inputs: of.inputs,
        outputs: outputs.as_ref().map_or(ALL_OUTPUTS as u16, |names| names.len() as u16),
        id_bytes: of.id.len() as u32,
        correlation_bytes: of.correlation_text.len() as u32,
        parameters_bytes: 0,
        trace_bytes: of.trace.len() as u32,
    };
    head.write(to);
    to.extend_from_slice(of.id.as_bytes());
    to.extend_from_slice(of.correlation_text.as_bytes());
    let before = to.len();
    self::parameters(to, parameters);
    head.parameters_bytes = (to.len() - before) as u32;
    if let Some(place) = to.get_mut(start + PARAMETERS_BYTES_AT..).and_then(|rest| rest.first_chunk_mut()) {
        *place = head.parameters_bytes.to_le_bytes();
    }
    to.extend_from_slice(of.trace.as_bytes());
    for name in outputs.into_iter().flatten() {
        let name = cut(name);
        to.extend_from_slice(&(name.len() as u16).to_le_bytes());
        to.extend_from_slice(name.as_bytes());
    }
}

/// Offset of `parameters_bytes` in a `RequestHead`: before `trace_bytes`, the last field.
const PARAMETERS_BYTES_AT: usize = RequestHead::BYTES - 8;

/// Parameters as a JSON object; nothing if there are none.
pub fn parameters(to: &mut Vec<u8>, parameters: &[(Name, Parameter)]) {
    for (i, (name, value)) in parameters.iter().enumerate() {
        to.push(if i == 0 { b'{' } else { b',' });
        write_string(to, name.as_bytes());
        to.push(b':');
        match value {
            Parameter::Bool(true) => to.extend_from_slice(b"true"),
            Parameter::Bool(false) => to.extend_from_slice(b"false"),
            Parameter::Int(number) => to.extend_from_slice(number.to_string().as_bytes()),
            Parameter::Double(number) => double(to, *number),
            Parameter::String(text) => write_string(to, text.as_bytes()),
        }
    }
    if !parameters.is_empty() {
        to.push(b'}');
    }
}

/// A double stays one: `1.0` and not `1`.
fn double(to: &mut Vec<u8>, number: f64) {
    let start = to.len();
    write_f64(to, number);
    let is_integer = to.get(start..).is_some_and(|text| text.iter().all(|c| c.is_ascii_digit() || *c == b'-'));
    if is_integer {
        to.extend_from_slice(b".0");
    }
}

/// CALL_RESPONSE but for its tensors; to be ended by the caller once they are written.
pub fn call_response(
    to: &mut Vec<u8>,
    about: InstanceId,
    call: u64,
    head: AnswerHead,
    parameters: &str,
    error: &str,
) -> Writing {
    let writing = begin(to, about, Frame::CallResponse);
    CallId { call }.write(to);
    answer(to, head, parameters, error);
    writing
}

/// A response without its tensors. Sets the lengths of the texts in `head`.
pub fn answer(to: &mut Vec<u8>, head: AnswerHead, parameters: &str, error: &str) {
    AnswerHead { parameters_bytes: parameters.len() as u32, error_bytes: error.len() as u32, ..head }.write(to);
    to.extend_from_slice(parameters.as_bytes());
    to.extend_from_slice(error.as_bytes());
}

/// The name, cut to a length that fits into a u16.
fn cut(name: &str) -> &str {
    let end = (0..=name.len().min(usize::from(u16::MAX))).rev().find(|&at| name.is_char_boundary(at)).unwrap_or(0);
    name.get(..end).unwrap_or_default()
}
