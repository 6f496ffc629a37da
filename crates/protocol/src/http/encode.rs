//! [`InferResponse`] to body parts (P 1.12.6): a JSON head and, behind it, the contents of every binary output.

use super::metadata::{head, list};
use crate::classify::top_k;
use crate::infer::{InferResponse, OutputTensor, Parameter};
use crate::json::{Printer, write_f64, write_string};
use crate::signature::Signature;
use bytes::Bytes;
use smallvec::SmallVec;
use std::borrow::Cow;
use tensor::{Data, Error, Name, Result};

/// Parts of a response body, in wire order.
#[derive(Debug)]
pub struct HttpInferBody {
    /// The JSON head, and small binary outputs behind it.
    pub json: Bytes,
    /// Other binary outputs: views of the batch output, or regions ([`InferRequest::sends_regions`]).
    ///
    /// [`InferRequest::sends_regions`]: crate::InferRequest::sends_regions
    pub binary: SmallVec<[Data; 2]>,
    /// Value of the `Inference-Header-Content-Length` header of an `application/octet-stream` response; `None` means
    /// `application/json` without the header.
    pub inference_header_length: Option<usize>,
}

/// Largest binary output that is copied behind the head, if none before it is larger: copying two hundred bytes takes
/// less time than making and dropping a view.
pub(super) const INLINE_BYTES_MAX: usize = 1024;

/// Writes a response. Outputs in shared memory get neither `data` nor `parameters` (P-095).
///
/// # Errors
/// FP16 or BF16 as JSON, an impossible classification, contents that do not match their shape.
pub fn encode_infer(response: &InferResponse, signature: &Signature) -> Result<HttpInferBody> {
    let parameters: usize = response.parameters.iter().map(|(key, value)| key.len() + parameter_bytes(value)).sum();
    let outputs: usize = response.outputs.iter().map(text_bytes).sum();
    let apart = 96 + response.id.len() + parameters;
    // Room for the longest numbers, so that a short text is allocated once.
    let mut text = Printer::new(apart + outputs, apart)?;
    let out = &mut text.tail;
    put_front(out, &response.id);
    out.extend_from_slice(b"\"model_name\":");
    write_string(out, response.model_name.as_bytes());
    out.extend_from_slice(b",\"model_version\":");
    write_string(out, response.model_version.as_bytes());
    if !response.parameters.is_empty() {
        out.extend_from_slice(b",\"parameters\":{");
        list(out, &response.parameters, |out, (key, value): &(Name, Parameter)| {
            write_string(out, key.as_bytes());
            out.push(b':');
            write_parameter(out, value);
        });
        out.push(b'}');
    }
    out.extend_from_slice(b",\"outputs\":[");
    let mut binary: SmallVec<[Cow<'_, Data>; 2]> = SmallVec::new();
    for (i, output) in response.outputs.iter().enumerate() {
        let out = &mut text.tail;
        if i > 0 {
            out.push(b',');
        }
        let classes = classified(output, signature)?;
        let given = output;
        let output = classes.as_ref().unwrap_or(given);
        head(out, &output.name, output.datatype, &output.shape);
        match &output.data {
            Data::Region(region) if !region.is_lent() => {}
            data if output.form.binary => {
                out.extend_from_slice(b",\"parameters\":{\"binary_data_size\":");
                out.extend_from_slice(itoa::Buffer::new().format(data.len()).as_bytes());
                out.push(b'}');
                if !data.is_empty() {
                    binary.push(if classes.is_none() { Cow::Borrowed(&given.data) } else { Cow::Owned(data.clone()) });
                }
            }
            Data::Bytes(data) => {
                out.extend_from_slice(b",\"data\":");
                text.tensor(output.datatype, &output.shape, data)?;
            }
            Data::Region(_) => return Err(Error::internal("an output that is printed is in a region")),
        }
        text.tail.push(b'}');
    }
    text.tail.extend_from_slice(b"]}");
    let inference_header_length = (!binary.is_empty()).then_some(text.len());
    let mut binary = binary.into_iter().peekable();
    let is_short = |data: &Cow<'_, Data>| data.host().is_some_and(|data| data.len() <= INLINE_BYTES_MAX);
    while let Some(data) = binary.next_if(is_short) {
        text.tail.extend_from_slice(data.host().map_or(&[], |data| data));
    }
    let mut rest = SmallVec::new();
    for data in binary {
        rest.push(data.into_owned());
    }
    Ok(HttpInferBody { json: text.into_bytes()?, binary: rest, inference_header_length })
}

/// Appends the head up to the name of the model: the part that differs from request to request.
pub(super) fn put_front(out: &mut Vec<u8>, id: &Name) {
    out.push(b'{');
    if !id.is_empty() {
        out.extend_from_slice(b"\"id\":");
        write_string(out, id.as_bytes());
        out.push(b',');
    }
}

/// Classes of an output, if they were requested.
pub(crate) fn classified(output: &OutputTensor, signature: &Signature) -> Result<Option<OutputTensor>> {
    if output.form.classification == 0 { Ok(None) } else { top_k(output, signature).map(Some) }
}

/// Approximate bytes that a parameter adds to the head.
fn parameter_bytes(value: &Parameter) -> usize {
    24 + if let Parameter::String(text) = value { text.len() } else { 0 }
}

/// Approximate bytes that an output adds to the head, so that the buffer is allocated once.
fn text_bytes(output: &OutputTensor) -> usize {
    let elements = match (&output.data, output.datatype.byte_size()) {
        (Data::Bytes(d), None) if !output.form.binary => return 96 + d.len(),
        (Data::Bytes(d), Some(size)) if !output.form.binary => d.len() / size,
        (Data::Bytes(d), _) if d.len() <= INLINE_BYTES_MAX => return 128 + d.len(),
        _ => 0,
    };
    96 + elements * if matches!(output.datatype.byte_size(), Some(1 | 2)) { 6 } else { 22 }
}

pub(crate) fn write_parameter(out: &mut Vec<u8>, value: &Parameter) {
    match value {
        Parameter::Bool(v) => out.extend_from_slice(if *v { b"true" } else { b"false" }),
        Parameter::Int(v) => out.extend_from_slice(itoa::Buffer::new().format(*v).as_bytes()),
        Parameter::String(v) => write_string(out, v.as_bytes()),
        Parameter::Double(v) => write_f64(out, *v),
    }
}
