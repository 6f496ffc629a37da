//! Writes a CALL. Inputs that a frame cannot have are found here, since a runner that sends them is killed.

#![allow(unsafe_code)] // buffers of a library

use crate::abi::memory::DEVICE;
use crate::abi::parameter::{self, Parameter};
use crate::calls::{CallResponse, Callbacks, OpenCall};
use crate::library::Address;
use crate::link::{Link, Way, short_frame};
use crate::segments::Allocated;
use crate::ticket::parent_of_this_thread;
use frames::generated::{
    CALL_FLAG_ACKNOWLEDGED, CALL_FLAG_CHECKED, CALL_FLAG_DECOUPLED, CALL_FLAG_TRACED, CallHead, CallId, Frame,
    INLINE_BYTES_MAX, RANK_MAX, TENSORS_MAX,
};
use frames::write::{self, Put, RequestHeadOf};
use frames::{InstanceId, write::TooLong};
use std::collections::BTreeSet;
use std::ffi::{CStr, CString};
use std::fmt::Display;
use std::sync::{Arc, Weak};
use tensor::{DataType, Error, Result, element_count};

/// Longest input in bytes that is replaced by zeros so that the server says what else is wrong with the request.
const CHECKED_BYTES_MAX: usize = 64 << 20;

/// A buffer of a library that an input is made of.
pub(crate) struct InputBuffer {
    pub(crate) base: Address<u8>,
    pub(crate) bytes: usize,
    pub(crate) memory_type: u32,
    /// Only for instances with this host policy.
    pub(crate) policy: Option<String>,
}

/// An input of a request to another model.
pub(crate) struct CallInput {
    pub(crate) name: String,
    datatype: u32,
    shape: Vec<i64>,
    buffers: Vec<InputBuffer>,
}

impl CallInput {
    pub(crate) fn new(name: String, datatype: u32, shape: Vec<i64>) -> Self {
        Self { name, datatype, shape, buffers: Vec::new() }
    }

    pub(crate) fn append(&mut self, buffer: InputBuffer) {
        if buffer.bytes > 0 {
            self.buffers.push(buffer);
        }
    }

    pub(crate) fn clear(&mut self) {
        self.buffers.clear();
    }

    /// The buffers that are sent: those for all instances, or else those for the first host policy.
    fn parts(&self) -> impl Iterator<Item = &InputBuffer> {
        let policy = match self.buffers.iter().find(|buffer| buffer.policy.is_none()) {
            Some(_) => None,
            None => self.buffers.first().and_then(|buffer| buffer.policy.as_ref()),
        };
        self.buffers.iter().filter(move |buffer| buffer.policy.as_ref() == policy)
    }

    fn bytes(&self) -> usize {
        self.parts().map(|part| part.bytes).sum()
    }

    fn slices(&self) -> impl Iterator<Item = &[u8]> {
        // SAFETY: the library keeps its buffers until the request is released, and none of these lies on a device.
        self.parts().map(|part| unsafe { std::slice::from_raw_parts(part.base.0, part.bytes) })
    }

    /// Number of bytes that the shape says; `None` for strings.
    fn expected(&self, datatype: DataType) -> Option<usize> {
        let elements = usize::try_from(element_count(&self.shape)?).ok()?;
        elements.checked_mul(datatype.byte_size()?)
    }

    /// Why a frame cannot have this input, in the words of Triton.
    fn problem(&self, model: &str) -> Option<String> {
        let name = &self.name;
        if self.parts().any(|part| part.memory_type == DEVICE) {
            return Some(format!("input '{name}' for model '{model}' is on a device"));
        }
        let datatype = DataType::from_number(self.datatype.cast_signed())?;
        let Some(elements) = element_count(&self.shape) else {
            let shape = &self.shape;
            return Some(format!("input '{name}' for model '{model}' has a shape without a size: {shape:?}"));
        };
        if self.shape.len() as u64 > RANK_MAX {
            return Some(format!("input '{name}' for model '{model}' has more than {RANK_MAX} dims"));
        }
        if datatype == DataType::Bytes {
            return strings_problem(name, model, elements, self.slices());
        }
        let (expected, got) = (self.expected(datatype), self.bytes());
        (expected != Some(got)).then(|| {
            let expected = expected.map_or_else(|| "more than there can be".to_owned(), |bytes| bytes.to_string());
            format!("input byte size mismatch for input '{name}' for model '{model}'. Expected {expected}, got {got}")
        })
    }
}

/// Checks strings as Triton does, which wants each length in one buffer.
fn strings_problem<'b>(
    name: &str,
    model: &str,
    elements: i64,
    buffers: impl Iterator<Item = &'b [u8]>,
) -> Option<String> {
    const LENGTH_BYTES: usize = size_of::<u32>();
    let (mut seen, mut missing) = (0i64, 0usize);
    for mut rest in buffers {
        while !rest.is_empty() {
            if missing == 0 {
                let Some((length, after)) = rest.split_first_chunk::<LENGTH_BYTES>() else {
                    return Some(format!(
                        "incomplete string length indicator for inference input '{name}' for model '{model}', \
                         expecting {LENGTH_BYTES} bytes but only {} bytes available. Please make sure the string \
                         length indicator is in one buffer.",
                        rest.len()
                    ));
                };
                (missing, rest) = (u32::from_le_bytes(*length) as usize, after);
                seen += 1;
                if seen > elements {
                    return Some(format!(
                        "unexpected number of string elements {seen} for inference input '{name}' for model \
                         '{model}', expecting {elements}"
                    ));
                }
            }
            let taken = missing.min(rest.len());
            missing -= taken;
            rest = rest.get(taken..).unwrap_or_default();
        }
    }
    // Triton does not notice that the last string is cut.
    let whole = seen - i64::from(missing > 0);
    (whole != elements).then(|| {
        format!("expected {elements} string elements for inference input '{name}' for model '{model}', got {whole}")
    })
}

/// A call that was sent, to be cancelled.
pub(crate) struct SentCall {
    pub(crate) link: Weak<Link>,
    pub(crate) call: u64,
}

impl SentCall {
    pub(crate) fn cancel(&self) {
        let Some(link) = self.link.upgrade() else { return };
        link.send(Way::Side, &short_frame(Frame::CallCancel, |to| CallId { call: self.call }.write(to)));
    }
}

/// A request to another model, as a library has made it.
#[derive(Default)]
pub(crate) struct CallRequest {
    pub(crate) model: String,
    /// Version that the library asked for, -1 for the version policy.
    pub(crate) version: i64,
    pub(crate) id: CString,
    pub(crate) correlation: u64,
    /// The correlation id if it is a text.
    pub(crate) correlation_text: Option<CString>,
    pub(crate) flags: u32,
    pub(crate) priority: u64,
    pub(crate) timeout_us: u64,
    pub(crate) inputs: Vec<CallInput>,
    pub(crate) outputs: BTreeSet<String>,
    pub(crate) parameters: Vec<Parameter>,
}

/// Waits for the end of a check.
struct NoCallbacks;

impl Callbacks for NoCallbacks {
    fn hand(&mut self, _: Option<CallResponse>, _: bool) {}
}

impl CallRequest {
    /// An error about the request, as Triton prints it.
    pub(crate) fn error(&self, text: impl Display) -> Error {
        let id = self.id.to_string_lossy();
        Error::invalid(format!("[request id: {}] {text}", if id.is_empty() { "<id_unknown>" } else { &id }))
    }

    /// Checks that a frame can have the inputs.
    ///
    /// # Errors
    /// The error that the server finds in the request, since Triton checks sizes last; else that of the input.
    pub(crate) fn check(&self, link: &Arc<Link>, is_traced: bool) -> Result<()> {
        let unknown = self.inputs.iter().find(|input| DataType::from_number(input.datatype.cast_signed()).is_none());
        if let Some(input) = unknown {
            let (name, datatype) = (&input.name, input.datatype);
            return Err(self.error(format_args!("inference input '{name}' has datatype number {datatype}")));
        }
        if self.inputs.len().max(self.outputs.len()) as u64 > TENSORS_MAX {
            return Err(self.error(format_args!("more than {TENSORS_MAX} inputs or outputs")));
        }
        let Some(problem) = self.inputs.iter().find_map(|input| input.problem(&self.model)) else { return Ok(()) };
        self.ask(link, is_traced)?;
        Err(self.error(problem))
    }

    /// Asks what the server says of the request, with zeros for inputs.
    fn ask(&self, link: &Arc<Link>, is_traced: bool) -> Result<()> {
        let is_sized = |input: &CallInput| {
            let datatype = DataType::from_number(input.datatype.cast_signed());
            let expected = datatype.and_then(|datatype| input.zeros(datatype));
            expected.is_some_and(|bytes| bytes <= CHECKED_BYTES_MAX) && input.shape.len() as u64 <= RANK_MAX
        };
        if !self.inputs.iter().all(is_sized) {
            return Ok(());
        }
        let call = OpenCall::new(link, Box::new(NoCallbacks));
        let number = link.open_call(call.clone());
        self.write(link, number, is_traced, true)?;
        call.wait()
    }

    /// Sends the call; the server acknowledges it.
    ///
    /// # Errors
    /// There is no memory for its inputs, or it is longer than a frame may be.
    pub(crate) fn send(&self, link: &Arc<Link>, call: u64, is_traced: bool) -> Result<()> {
        self.write(link, call, is_traced, false)
    }

    fn write(&self, link: &Arc<Link>, call: u64, is_traced: bool, is_check: bool) -> Result<()> {
        let (frame, blocks) = self.frame(link, call, is_traced, is_check).inspect_err(|_| link.close_call(call))?;
        link.send(Way::Side, &frame);
        blocks.into_iter().for_each(Allocated::sent);
        Ok(())
    }

    /// The frame, and the blocks that it names.
    fn frame(&self, link: &Arc<Link>, call: u64, is_traced: bool, is_check: bool) -> Result<(Vec<u8>, Vec<Allocated>)> {
        let (mut frame, mut blocks) = (Vec::new(), Vec::new());
        let to = &mut frame;
        let writing = write::begin(to, InstanceId::ONLY, Frame::Call);
        let (parent_slot, parent_generation) = parent_of_this_thread();
        let model_bytes =
            u16::try_from(self.model.len()).map_err(|_| Error::invalid("the model's name is too long"))?;
        let mut flags = CALL_FLAG_ACKNOWLEDGED | CALL_FLAG_DECOUPLED;
        flags |= if is_check { CALL_FLAG_CHECKED } else { 0 };
        flags |= if is_traced { CALL_FLAG_TRACED } else { 0 };
        let priority = u32::try_from(self.priority).unwrap_or(u32::MAX);
        CallHead {
            call,
            version: self.version,
            parent_slot,
            parent_generation,
            model_bytes,
            flags,
            reserved: 0,
            priority,
        }
        .write(to);
        to.extend_from_slice(self.model.as_bytes());
        let head = RequestHeadOf {
            correlation: self.correlation,
            correlation_text: text_of(self.correlation_text.as_deref()),
            timeout_us: self.timeout_us,
            flags: self.flags,
            id: text_of(Some(&self.id)),
            inputs: self.inputs.len() as u16,
            ..RequestHeadOf::default()
        };
        let outputs: Vec<&str> = self.outputs.iter().map(String::as_str).collect();
        let outputs = (!outputs.is_empty()).then(|| outputs.into_iter());
        write::request(to, &head, &parameter::for_frame(&self.parameters), outputs);
        let mut room = INLINE_BYTES_MAX as usize;
        for input in &self.inputs {
            input.write(link, is_check, &mut room, to, &mut blocks)?;
        }
        writing.end(to).map_err(|TooLong| self.error("the request is too long"))?;
        Ok((frame, blocks))
    }
}

fn text_of(text: Option<&CStr>) -> &str {
    text.and_then(|text| text.to_str().ok()).unwrap_or_default()
}

impl CallInput {
    /// Number of zero bytes that are a valid value: for strings, empty ones.
    fn zeros(&self, datatype: DataType) -> Option<usize> {
        if datatype == DataType::Bytes {
            return usize::try_from(element_count(&self.shape)?).ok()?.checked_mul(size_of::<u32>());
        }
        self.expected(datatype)
    }

    fn write(
        &self,
        link: &Arc<Link>,
        is_check: bool,
        room: &mut usize,
        to: &mut Vec<u8>,
        blocks: &mut Vec<Allocated>,
    ) -> Result<()> {
        let datatype = DataType::from_number(self.datatype.cast_signed());
        let datatype = datatype.ok_or_else(|| Error::invalid("an input has no datatype"))?;
        let bytes = if is_check { self.zeros(datatype).unwrap_or(0) } else { self.bytes() };
        let copy = |to: &mut [u8]| {
            let mut rest = to;
            for part in self.slices() {
                let (place, behind) = rest.split_at_mut(part.len());
                place.copy_from_slice(part);
                rest = behind;
            }
        };
        if bytes <= *room {
            *room -= bytes;
            let mut inline = vec![0; bytes];
            if !is_check {
                copy(&mut inline);
            }
            write::tensor(to, &self.name, datatype, &self.shape, Put::Inline(&inline));
            return Ok(());
        }
        let mut block = link.segments.allocate(bytes)?;
        if is_check {
            block.bytes_mut().fill(0);
        } else {
            copy(block.bytes_mut());
        }
        write::tensor(to, &self.name, datatype, &self.shape, Put::Block(block.block()));
        blocks.push(block);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl CallInput {
        pub(crate) fn buffer_bytes(&self) -> Vec<usize> {
            self.buffers.iter().map(|buffer| buffer.bytes).collect()
        }
    }

    fn problem(elements: i64, buffers: &[&[u8]]) -> String {
        strings_problem("S", "m", elements, buffers.iter().copied()).unwrap_or_default()
    }

    #[test]
    fn strings_are_checked_as_triton_does() {
        assert_eq!(problem(1, &[b"\x02\0\0\0ab"]), "");
        assert_eq!(problem(1, &[b"\x02\0\0\0a", b"b"]), "", "a string may be in two buffers");
        assert_eq!(problem(2, &[b"\x02\0\0\0a", b"b\0\0\0\0"]), "");
        assert_eq!(problem(0, &[]), "");
        assert!(problem(1, &[b"\x02\0\0", b"\0ab"]).contains("expecting 4 bytes but only 3 bytes available"));
        assert!(problem(1, &[b"\0\0\0\0\0\0\0\0"]).contains("unexpected number of string elements 2"));
        assert!(problem(2, &[b"\0\0\0\0"]).contains("expected 2 string elements for inference input 'S'"));
        assert!(problem(1, &[b"\x09\0\0\0ab"]).ends_with("got 0"), "a cut string would be a breach of the protocol");
    }
}
