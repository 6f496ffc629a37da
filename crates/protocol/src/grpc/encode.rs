//! Encodes a response as a message. A message is a rope: small parts share one buffer, large tensors are not copied.

use bytes::Bytes;
use smallvec::SmallVec;
use tensor::{Data, Error, Name, Result};

use super::wire::{field_len, put_bytes, put_length, put_varint, varint_len};
use crate::{InferResponse, OutputTensor, Parameter, Signature, classify};

/// Largest message gRPC can carry.
pub const RESPONSE_BYTES_MAX: usize = i32::MAX as usize;

/// Tensors below this size are copied into the buffer of the head, which is cheaper than one more piece to write.
const INLINE_BYTES_MAX: usize = 4096;

/// Header of every gRPC message: a compression flag and the length.
const FRAME_BYTES: usize = 5;

const FINAL_RESPONSE: &str = "triton_final_response";

/// An encoded message, in pieces that are sent in order.
#[derive(Debug, Default)]
pub struct Encoded {
    /// The first piece begins with the frame header.
    pieces: SmallVec<[Bytes; 3]>,
    len: usize,
}

impl Encoded {
    /// Length of the message, without its frame header.
    pub fn len(&self) -> usize {
        self.len
    }

    /// True if the message has no fields; it is sent all the same.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The message behind the header of an uncompressed gRPC frame.
    pub fn into_frame(self) -> SmallVec<[Bytes; 3]> {
        self.pieces
    }

    /// The message without a header, for compression.
    pub fn into_message(self) -> SmallVec<[Bytes; 3]> {
        let mut pieces = self.pieces;
        if let Some(first) = pieces.first_mut() {
            drop(first.split_to(FRAME_BYTES.min(first.len())));
        }
        pieces
    }
}

/// Encodes a `ModelInferResponse`. Outputs in shared memory get an empty entry, so that entries and outputs line up.
///
/// # Errors
/// INVALID_ARG when a tensor whose classes are requested cannot have any (P 1.12.7), or when the message is over
/// [`RESPONSE_BYTES_MAX`].
pub fn encode(response: &InferResponse, signature: &Signature) -> Result<Encoded> {
    let message = Message::new(response, outputs(response, signature)?, None);
    let len = limited(message.len)?;
    let mut rope = Rope::new(len, len.min(message.head_len));
    message.write(&mut rope);
    Ok(rope.finish(len))
}

/// Encodes a `ModelStreamInferResponse` that carries `response`. `is_final` is its `triton_final_response`.
/// A final flag without a response is sent as a response without outputs, with the names of the request.
///
/// # Errors
/// INVALID_ARG when a tensor whose classes are requested cannot have any (P 1.12.7), or when the message is over
/// [`RESPONSE_BYTES_MAX`].
pub fn encode_stream_response(response: &InferResponse, signature: &Signature, is_final: bool) -> Result<Encoded> {
    let message = Message::new(response, outputs(response, signature)?, Some(is_final));
    let len = limited(field_len(message.len))?;
    // The exact size: `Bytes` of a buffer with spare room allocates its reference count separately.
    let mut rope = Rope::new(len, message.head_len + field_len(message.len) - message.len);
    put_length(&mut rope.buffer, 2, message.len);
    message.write(&mut rope);
    Ok(rope.finish(len))
}

/// The point at which a request on a stream failed; it decides which fields its message has (P 2.5).
#[derive(Clone, Copy, Debug)]
pub enum StreamFailure<'a> {
    /// Before it was queued: the message has only the id.
    BeforeEnqueue,
    /// In the scheduler or the model.
    AfterEnqueue {
        /// Name as requested.
        model_name: &'a Name,
        /// Version as requested, possibly empty.
        model_version: &'a Name,
        /// True if this is the last message of the request.
        is_final: bool,
    },
}

/// Encodes a `ModelStreamInferResponse` that carries an error.
pub fn encode_stream_error(error: &Error, id: &Name, failure: StreamFailure<'_>) -> Encoded {
    let (response, is_final) = match failure {
        StreamFailure::BeforeEnqueue => (InferResponse { id: id.clone(), ..InferResponse::default() }, None),
        StreamFailure::AfterEnqueue { model_name, model_version, is_final } => {
            let (model_name, model_version) = (model_name.clone(), model_version.clone());
            (InferResponse { id: id.clone(), model_name, model_version, ..InferResponse::default() }, Some(is_final))
        }
    };
    let message = Message::new(&response, SmallVec::new(), is_final);
    let text = error.message().as_bytes();
    let len = field_len_unless_empty(text) + field_len(message.len);
    let mut rope = Rope::new(len, len);
    put_unless_empty(&mut rope.buffer, 1, text);
    put_length(&mut rope.buffer, 2, message.len);
    message.write(&mut rope);
    rope.finish(len)
}

fn limited(len: usize) -> Result<usize> {
    if len > RESPONSE_BYTES_MAX {
        return Err(Error::invalid(format!(
            "Response has byte size {len} which exceeds gRPC's byte size limit {RESPONSE_BYTES_MAX}."
        )));
    }
    Ok(len)
}

/// An output of a response: the tensor itself or its classes.
enum OutputContents<'a> {
    AsItIs(&'a OutputTensor),
    Classes(Box<OutputTensor>),
}

impl OutputContents<'_> {
    fn get(&self) -> &OutputTensor {
        match self {
            Self::AsItIs(tensor) => tensor,
            Self::Classes(tensor) => tensor,
        }
    }
}

/// The outputs of a response, with classes instead of the tensor where the client requested them.
fn outputs<'a>(response: &'a InferResponse, signature: &Signature) -> Result<SmallVec<[OutputContents<'a>; 2]>> {
    let mut tensors = SmallVec::with_capacity(response.outputs.len());
    for output in &response.outputs {
        tensors.push(match output.form.classification {
            0 => OutputContents::AsItIs(output),
            _ => OutputContents::Classes(Box::new(classify::top_k(output, signature)?)),
        });
    }
    Ok(tensors)
}

/// Contents of an output that are part of the message.
fn contents(output: &OutputTensor) -> &Bytes {
    static NOTHING: Bytes = Bytes::new();
    match &output.data {
        Data::Bytes(bytes) => bytes,
        // Already in the region that the client requested.
        Data::Region(_) => &NOTHING,
    }
}

/// A `ModelInferResponse` with its lengths, which protobuf puts before the contents.
struct Message<'a> {
    response: &'a InferResponse,
    outputs: SmallVec<[OutputContents<'a>; 2]>,
    is_final: Option<bool>,
    /// Length of the whole message.
    len: usize,
    /// Length without the tensors that are not copied.
    head_len: usize,
    /// Length of each `InferOutputTensor`.
    output_lens: SmallVec<[usize; 4]>,
}

impl<'a> Message<'a> {
    fn new(response: &'a InferResponse, outputs: SmallVec<[OutputContents<'a>; 2]>, is_final: Option<bool>) -> Self {
        let mut len = field_len_unless_empty(response.model_name.as_bytes())
            + field_len_unless_empty(response.model_version.as_bytes())
            + field_len_unless_empty(response.id.as_bytes());
        for (key, value) in &response.parameters {
            len += field_len(parameter_len(key.as_bytes(), value));
        }
        if let Some(value) = is_final {
            len += field_len(parameter_len(FINAL_RESPONSE.as_bytes(), &Parameter::Bool(value)));
        }
        let mut borrowed = 0;
        let mut output_lens = SmallVec::new();
        for output in &outputs {
            let output = output.get();
            let output_len = output_len(output);
            let data = contents(output).len();
            if data >= INLINE_BYTES_MAX {
                borrowed += data;
            }
            len += field_len(output_len) + field_len(data);
            output_lens.push(output_len);
        }
        Self { response, outputs, is_final, len, head_len: len - borrowed, output_lens }
    }

    fn write(&self, rope: &mut Rope) {
        let out = &mut rope.buffer;
        put_unless_empty(out, 1, self.response.model_name.as_bytes());
        put_unless_empty(out, 2, self.response.model_version.as_bytes());
        put_unless_empty(out, 3, self.response.id.as_bytes());
        for (key, value) in &self.response.parameters {
            put_parameter(out, key.as_bytes(), value);
        }
        if let Some(value) = self.is_final {
            put_parameter(out, FINAL_RESPONSE.as_bytes(), &Parameter::Bool(value));
        }
        for (output, &len) in self.outputs.iter().zip(&self.output_lens) {
            put_length(out, 5, len);
            put_output(out, output.get());
        }
        for output in &self.outputs {
            let data = contents(output.get());
            put_length(&mut rope.buffer, 6, data.len());
            rope.put(data);
        }
    }
}

/// Collects a message in one buffer, which is split where a large tensor belongs. All parts share one allocation.
struct Rope {
    buffer: Vec<u8>,
    /// Large tensors and their offsets in the buffer.
    large: SmallVec<[(usize, Bytes); 2]>,
}

impl Rope {
    /// A buffer with the frame header of a message of `len` bytes, and room for `capacity` bytes.
    fn new(len: usize, capacity: usize) -> Self {
        let mut buffer = Vec::with_capacity(FRAME_BYTES + capacity);
        buffer.push(0);
        // The limit is below 2^31.
        buffer.extend_from_slice(&(len as u32).to_be_bytes());
        Self { buffer, large: SmallVec::new() }
    }

    fn put(&mut self, data: &Bytes) {
        if data.len() < INLINE_BYTES_MAX {
            self.buffer.extend_from_slice(data);
        } else {
            self.large.push((self.buffer.len(), data.clone()));
        }
    }

    fn finish(self, len: usize) -> Encoded {
        let mut buffer = Bytes::from(self.buffer);
        let mut pieces = SmallVec::new();
        let mut at = 0;
        for (cut, data) in self.large {
            pieces.push(buffer.split_to(cut - at));
            pieces.push(data);
            at = cut;
        }
        if !buffer.is_empty() {
            pieces.push(buffer);
        }
        debug_assert_eq!(
            pieces.iter().map(Bytes::len).sum::<usize>(),
            FRAME_BYTES + len,
            "lengths were computed wrong"
        );
        Encoded { pieces, len }
    }
}

fn output_len(output: &OutputTensor) -> usize {
    let shape = shape_len(output);
    field_len_unless_empty(output.name.as_bytes())
        + field_len(output.datatype.name().len())
        + if shape > 0 { field_len(shape) } else { 0 }
}

fn put_output(out: &mut Vec<u8>, output: &OutputTensor) {
    put_unless_empty(out, 1, output.name.as_bytes());
    put_bytes(out, 2, output.datatype.name().as_bytes());
    let shape = shape_len(output);
    if shape > 0 {
        put_length(out, 3, shape);
        for &dim in &output.shape {
            put_varint(out, dim as u64);
        }
    }
}

fn shape_len(output: &OutputTensor) -> usize {
    output.shape.iter().map(|&dim| varint_len(dim as u64)).sum()
}

/// Length of an `InferParameter`. Oneof members are written even if they are zero, because presence has a meaning.
fn value_len(value: &Parameter) -> usize {
    match value {
        Parameter::Bool(_) => 2,
        Parameter::Int(v) => 1 + varint_len(*v as u64),
        Parameter::String(v) => field_len(v.as_bytes().len()),
        Parameter::Double(_) => 9,
    }
}

fn parameter_len(key: &[u8], value: &Parameter) -> usize {
    field_len(key.len()) + field_len(value_len(value))
}

fn put_parameter(out: &mut Vec<u8>, key: &[u8], value: &Parameter) {
    put_length(out, 4, parameter_len(key, value));
    put_bytes(out, 1, key);
    put_length(out, 2, value_len(value));
    match value {
        Parameter::Bool(v) => out.extend_from_slice(&[1 << 3, u8::from(*v)]),
        Parameter::Int(v) => {
            out.push(2 << 3);
            put_varint(out, *v as u64);
        }
        Parameter::String(v) => put_bytes(out, 3, v.as_bytes()),
        Parameter::Double(v) => {
            out.push(4 << 3 | 1);
            out.extend_from_slice(&v.to_le_bytes());
        }
    }
}

fn field_len_unless_empty(bytes: &[u8]) -> usize {
    if bytes.is_empty() { 0 } else { field_len(bytes.len()) }
}

fn put_unless_empty(out: &mut Vec<u8>, number: u8, bytes: &[u8]) {
    if !bytes.is_empty() {
        put_bytes(out, number, bytes);
    }
}
