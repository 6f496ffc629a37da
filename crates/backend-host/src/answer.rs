//! Responses on their way to the server: their outputs, and the frames that they become.

use crate::abi::attributes::BufferAttributes;
use crate::abi::c_text;
use crate::abi::exports::{Lent, Out};
use crate::abi::instance::Instance;
use crate::bytes::AlignedBytes;
use crate::segments::{Allocated, Segments};
use frames::generated::{
    ANSWER_FLAG_FAILED, ANSWER_FLAG_FINAL, Answer as Kind, AnswerHead, FRAME_BYTES_MAX, INLINE_BYTES_MAX, RANK_MAX,
};
use frames::write::{self, Put};
use std::ffi::{CStr, CString};
use std::sync::Arc;
use tensor::{Code, DataType, Error, Result};

/// Bytes of a frame that answers leave free, for the errors of others that have no room.
const ERRORS_BYTES: u64 = 16 << 20;

/// An output of a response, or a state.
pub(crate) struct Output {
    instance: Arc<Instance>,
    name: CString,
    datatype: u32,
    shape: Vec<i64>,
    buffer: Option<Buffer>,
    attributes: BufferAttributes,
}

enum Buffer {
    Small(AlignedBytes),
    Block(Allocated),
}

impl Buffer {
    fn len(&self) -> u64 {
        match self {
            Self::Small(bytes) => bytes.len() as u64,
            Self::Block(block) => block.block().bytes,
        }
    }

    fn to_vec(&self) -> Vec<u8> {
        match self {
            Self::Small(bytes) => bytes.to_vec(),
            Self::Block(block) => block.bytes().to_vec(),
        }
    }
}

impl Output {
    pub(crate) fn new(instance: &Arc<Instance>, name: &str, datatype: u32, shape: Vec<i64>) -> Self {
        let attributes = BufferAttributes::cpu(0);
        let instance = Arc::clone(instance);
        Self { instance, name: c_text(name), datatype, shape, buffer: None, attributes }
    }

    pub(crate) fn c_name(&self) -> &CStr {
        &self.name
    }

    /// Gives datatype and shape to a library.
    pub(crate) fn put_type(&self, datatype: &Out<u32>, shape: &Out<Lent<i64>>, dim_count: &Out<u64>) {
        datatype.put(self.datatype);
        shape.put(self.shape.as_ptr());
        dim_count.put(self.shape.len() as u64);
    }

    pub(crate) fn name(&self) -> &str {
        self.name.to_str().unwrap_or_default()
    }

    /// Allocates the buffer, which begins with these contents, as many as it has room for. Returns its address.
    pub(crate) fn allocate(&mut self, bytes: u64, contents: &[u8]) -> Result<*mut u8> {
        let size = usize::try_from(bytes).map_err(|_| Error::unavailable("an output is too large"))?;
        let mut buffer = if bytes <= INLINE_BYTES_MAX {
            Buffer::Small(AlignedBytes::zeros(size))
        } else {
            Buffer::Block(self.instance.link.segments.allocate(size)?)
        };
        let pointer = match &mut buffer {
            Buffer::Small(bytes) => {
                bytes.fill(contents);
                bytes.pointer_mut()
            }
            Buffer::Block(block) => {
                let bytes = block.bytes_mut();
                let count = contents.len().min(bytes.len());
                bytes[..count].copy_from_slice(&contents[..count]);
                block.pointer()
            }
        };
        self.buffer = Some(buffer);
        self.attributes = BufferAttributes::cpu(size);
        Ok(pointer)
    }

    pub(crate) fn attributes(&self) -> *const BufferAttributes {
        &raw const self.attributes
    }

    /// A copy with the same contents; `None` without a buffer, or without memory.
    pub(crate) fn copy(&self) -> Option<Self> {
        let bytes = self.buffer.as_ref()?.to_vec();
        let mut copy = Self::new(&self.instance, self.name(), self.datatype, self.shape.clone());
        copy.allocate(bytes.len() as u64, &bytes).ok()?;
        Some(copy)
    }

    pub(crate) fn has_buffer(&self) -> bool {
        self.buffer.is_some()
    }

    /// Why the output cannot be sent: Triton passes such outputs on to a front end, which refuses them or ends.
    pub(crate) fn check(&self) -> Result<DataType> {
        let name = self.name();
        let datatype = u8::try_from(self.datatype).ok().and_then(|number| DataType::from_number(number.into()));
        let datatype = datatype.ok_or_else(|| Error::internal(format!("output '{name}' has no valid datatype")))?;
        let buffer = self.buffer.as_ref().ok_or_else(|| Error::internal("response output count mismatch"))?;
        let mismatch = || {
            Error::internal(format!(
                "Failed to write 'data' field: output tensor shape does not match size of output for '{name}'"
            ))
        };
        let elements = tensor::element_count(&self.shape).filter(|_| self.shape.len() as u64 <= RANK_MAX);
        let elements = elements.ok_or_else(mismatch)?;
        if datatype == DataType::Bytes {
            frames::check_strings(&buffer.to_vec(), elements).map_err(|_| mismatch())?;
        } else if datatype.byte_size().and_then(|size| (elements as u64).checked_mul(size as u64)) != Some(buffer.len())
        {
            return Err(mismatch());
        }
        Ok(datatype)
    }
}

/// A response, an error, or the end of a request.
pub(crate) struct Answer {
    kind: Kind,
    is_final: bool,
    is_failed: bool,
    code: Code,
    error: String,
    parameters: String,
    outputs: Vec<(DataType, Box<Output>)>,
}

impl Answer {
    fn of(kind: Kind) -> Self {
        Self {
            kind,
            is_final: false,
            is_failed: false,
            code: Code::Unknown,
            error: String::new(),
            parameters: String::new(),
            outputs: Vec::new(),
        }
    }

    /// A response with these parameters, a JSON object or "", and outputs.
    pub(crate) fn response(parameters: String, outputs: Vec<(DataType, Box<Output>)>) -> Self {
        Self { parameters, outputs, ..Self::of(Kind::Response) }
    }

    /// The request was answered or will be.
    pub(crate) fn none() -> Self {
        Self::of(Kind::None)
    }

    pub(crate) fn rescheduled() -> Self {
        Self::of(Kind::Reschedule)
    }

    /// No response, and none follows.
    pub(crate) fn end() -> Self {
        Self { is_final: true, ..Self::of(Kind::None) }
    }

    /// An error that the library chose as its response.
    pub(crate) fn error(error: &Error) -> Self {
        Self { code: error.code(), error: error.message().to_owned(), ..Self::of(Kind::Error) }
    }

    /// The end of a request that could not be run.
    pub(crate) fn failed(error: &Error) -> Self {
        Self { is_final: true, is_failed: true, ..Self::error(error) }
    }

    /// The same, as the last one of its request.
    pub(crate) fn ended(self) -> Self {
        Self { is_final: true, ..self }
    }

    /// True without a response.
    pub(crate) fn is_none(&self) -> bool {
        self.kind == Kind::None
    }

    pub(crate) fn is_final(&self) -> bool {
        self.is_final
    }

    /// Adds outputs, such as states. One that cannot be sent makes the response an error.
    pub(crate) fn add(&mut self, outputs: Vec<Output>) {
        for output in outputs {
            match output.check() {
                Ok(datatype) if matches!(self.kind, Kind::Response | Kind::Reschedule) => {
                    self.outputs.push((datatype, Box::new(output)));
                }
                Ok(_) => {}
                Err(error) => *self = Self { is_final: self.is_final, ..Self::error(&error) },
            }
        }
    }

    /// Writes it into a frame, in which `room` bytes of tensors have room. Returns the blocks that the frame names, for
    /// the caller to mark as sent. One that a frame cannot have becomes an error.
    pub(crate) fn write(self, to: &mut Vec<u8>, room: &mut usize, segments: &Arc<Segments>) -> Vec<Allocated> {
        let (start, is_final, count) = (to.len(), self.is_final, self.outputs.len());
        let Ok(outputs) = u16::try_from(count) else {
            return Self::unsendable(is_final, format_args!("{count} outputs")).write(to, room, segments);
        };
        let blocks = self.write_all(outputs, to, room, segments);
        if to.len() as u64 > FRAME_BYTES_MAX - ERRORS_BYTES {
            let bytes = to.len() - start;
            to.truncate(start);
            return Self::unsendable(is_final, format_args!("{bytes} bytes of texts and names"))
                .write(to, room, segments);
        }
        blocks
    }

    fn unsendable(is_final: bool, has: std::fmt::Arguments<'_>) -> Self {
        Self { is_final, ..Self::error(&Error::internal(format!("the response cannot be sent: it has {has}"))) }
    }

    fn write_all(self, count: u16, to: &mut Vec<u8>, room: &mut usize, segments: &Arc<Segments>) -> Vec<Allocated> {
        let start = to.len();
        let mut blocks = Vec::new();
        let head = AnswerHead {
            kind: self.kind as u8,
            flags: if self.is_final { ANSWER_FLAG_FINAL } else { 0 }
                | if self.is_failed { ANSWER_FLAG_FAILED } else { 0 },
            outputs: count,
            code: self.code as u32,
            ..AnswerHead::default()
        };
        write::answer(to, head, &self.parameters, &self.error);
        for (datatype, output) in self.outputs {
            let Output { name, shape, buffer, .. } = *output;
            let name = name.to_str().unwrap_or_default();
            let mut inline = Vec::new();
            let block = match buffer {
                Some(Buffer::Block(block)) => Some(block),
                Some(Buffer::Small(bytes)) => {
                    inline = bytes.to_vec();
                    if inline.len() <= *room {
                        *room -= inline.len();
                        None
                    } else {
                        match segments.allocate(inline.len()) {
                            Ok(mut block) => {
                                block.bytes_mut().copy_from_slice(&inline);
                                Some(block)
                            }
                            Err(error) => {
                                to.truncate(start);
                                return Self { is_final: self.is_final, ..Self::error(&error) }
                                    .write(to, room, segments);
                            }
                        }
                    }
                }
                None => None,
            };
            match block {
                Some(block) => {
                    write::tensor(to, name, datatype, &shape, Put::Block(block.block()));
                    blocks.push(block);
                }
                None => write::tensor(to, name, datatype, &shape, Put::Inline(&inline)),
            }
        }
        blocks
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use frames::generated::{Frame, RespondHead};
    use frames::{FromRunner, InstanceId};

    #[test]
    fn an_answer_that_no_frame_can_have_becomes_an_error() {
        let (link, _server) = crate::testing::connection();
        let sent = |answer: Answer| {
            let mut frame = Vec::new();
            let writing = write::begin(&mut frame, InstanceId::ONLY, Frame::Respond);
            RespondHead { slot: 0, generation: 1 }.write(&mut frame);
            answer.write(&mut frame, &mut 0, &link.segments);
            writing.end(&mut frame).expect("short enough");
            let (header, body, _) = frames::split(&frame).expect("valid").expect("whole");
            let FromRunner::Respond { answer, .. } = frames::read(&header, body).expect("a frame") else { panic!() };
            (answer.is_final, answer.error.to_owned())
        };
        assert_eq!(sent(Answer::response("{}".into(), Vec::new()).ended()), (true, String::new()));
        let (is_final, error) = sent(Answer::response("x".repeat(FRAME_BYTES_MAX as usize), Vec::new()).ended());
        assert!(is_final && error.starts_with("the response cannot be sent: it has 268435"), "{error}");
    }
}
