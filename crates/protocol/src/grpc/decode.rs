//! Decodes a message into a request.

use bytes::Bytes;
use smallvec::SmallVec;
use tensor::{Data, Error, Name, Result, Shape};

use super::contents;
use super::parameters::{self, TensorParameters};
use super::wire::{FieldReader, Span, WireValue};
use crate::check::{duplicate_input, duplicate_output};
use crate::http::DIMS_MAX;
use crate::{InferRequest, InputTensor, OutputForm, Regions, RequestedOutput, Signature};

/// Most inputs, outputs and parameters of one request. An empty tensor takes two bytes on the wire and some hundred in
/// memory, so the size of the message is not limit enough; and indices into a signature are 16 bits wide.
pub const TENSORS_MAX: usize = u16::MAX as usize;

/// The ranges of the fields of a `ModelInferRequest`, and the model that it names.
#[derive(Debug)]
pub struct InferHead {
    /// Requested model.
    pub model_name: Name,
    /// Requested version; empty = the server chooses.
    pub model_version: Name,
    /// Request id of the client, or empty.
    pub id: Name,
    message: Bytes,
    parameters: SmallVec<[Span; 4]>,
    inputs: SmallVec<[Span; 4]>,
    outputs: SmallVec<[Span; 4]>,
    raw: SmallVec<[Span; 4]>,
}

/// Reads the fields of a `ModelInferRequest` once. Nothing is copied: the head keeps `message`.
///
/// # Errors
/// INTERNAL when the bytes are not protobuf, with the reason and the offset.
pub fn peek(message: &Bytes) -> Result<InferHead> {
    let mut head = InferHead {
        model_name: Name::new(),
        model_version: Name::new(),
        id: Name::new(),
        message: message.clone(),
        parameters: SmallVec::new(),
        inputs: SmallVec::new(),
        outputs: SmallVec::new(),
        raw: SmallVec::new(),
    };
    let mut fields = FieldReader::new(message)?;
    while let Some((number, value)) = fields.field()? {
        let WireValue::Length(span) = value else { continue };
        match number {
            1 => head.model_name = span.name(message)?,
            2 => head.model_version = span.name(message)?,
            3 => head.id = span.name(message)?,
            4 => push(&mut head.parameters, span, "parameters")?,
            5 => push(&mut head.inputs, span, "inputs")?,
            6 => push(&mut head.outputs, span, "outputs")?,
            // There are never more inputs, and the rest is ignored.
            7 if head.raw.len() < TENSORS_MAX => head.raw.push(span),
            _ => {}
        }
    }
    Ok(head)
}

fn push(list: &mut SmallVec<[Span; 4]>, span: Span, what: &str) -> Result<()> {
    if list.len() >= TENSORS_MAX {
        return Err(Error::invalid(format!("request has more than {TENSORS_MAX} {what}")));
    }
    list.push(span);
    Ok(())
}

fn push_dim(shape: &mut Shape, dim: u64) -> Result<()> {
    if shape.len() >= DIMS_MAX {
        return Err(Error::invalid(format!("an input has more than {DIMS_MAX} dimensions")));
    }
    shape.push(dim as i64);
    Ok(())
}

impl InferHead {
    /// Makes the request for the model of `signature`. Contents are slices of the message or ranges of regions; lists
    /// in `contents` are converted to the binary form. Does not check the request against the signature.
    ///
    /// # Errors
    /// The texts of protocol.md 2.3 and 2.4 and of memory.md 1.7, in Triton's order: parameters of the request, tensors
    /// named twice, inputs in order, outputs in order. INTERNAL when a part is not protobuf.
    // Named `into` although it borrows: the head becomes the request, but errors still need the head's id.
    #[allow(clippy::wrong_self_convention)]
    pub fn into_request(&self, signature: &Signature, regions: &dyn Regions) -> Result<Box<InferRequest>> {
        let mut request = Box::new(InferRequest { id: self.id.clone(), ..InferRequest::default() });
        if !self.parameters.is_empty() {
            let entries = parameters::entries(&self.message, &self.parameters)?;
            parameters::apply(&self.message, &entries, &mut request)?;
        }
        match self.tensors(&mut request, signature, regions) {
            Ok(()) => Ok(request),
            // Triton checks all names before the data of any tensor. Only a request that fails pays for this order.
            Err(error) => Err(self.named_twice().unwrap_or(error)),
        }
    }

    /// True if the client wants a separate message for a final flag without a response (P 2.5). False also if the
    /// parameter is malformed: `into_request` reports that.
    pub fn wants_empty_final_response(&self) -> bool {
        !self.parameters.is_empty()
            && parameters::entries(&self.message, &self.parameters)
                .is_ok_and(|entries| parameters::wants_empty_final_response(&entries))
    }

    fn tensors(&self, request: &mut InferRequest, signature: &Signature, regions: &dyn Regions) -> Result<()> {
        let mut raw = self.raw.iter();
        for &span in &self.inputs {
            request.inputs.push(self.input(span, &mut raw, &signature.model, regions)?);
        }
        for &span in &self.outputs {
            request.outputs.push(self.output(span, regions)?);
        }
        Ok(())
    }

    fn input(
        &self,
        span: Span,
        raw: &mut std::slice::Iter<'_, Span>,
        model: &str,
        regions: &dyn Regions,
    ) -> Result<InputTensor> {
        let message = &self.message;
        let mut name = Name::new();
        let mut datatype = None;
        let mut shape = Shape::new();
        let mut parameters = TensorParameters::default();
        let mut contents: SmallVec<[Span; 2]> = SmallVec::new();
        let mut fields = FieldReader::within(message, span);
        while let Some(field) = fields.field()? {
            match field {
                (1, WireValue::Length(text)) => name = text.name(message)?,
                (2, WireValue::Length(text)) => datatype = text.datatype(message)?,
                (3, WireValue::Varint(dim)) => push_dim(&mut shape, dim)?,
                (3, WireValue::Length(packed)) => {
                    let mut dims = FieldReader::within(message, packed);
                    while !dims.is_done() {
                        push_dim(&mut shape, dims.varint()?)?;
                    }
                }
                (4, WireValue::Length(entry)) => parameters.read(message, entry)?,
                (5, WireValue::Length(span)) => contents.push(span),
                _ => {}
            }
        }

        let data = if let Some(window) = parameters.window(&name)? {
            if !contents.is_empty() {
                return Err(Error::invalid(format!(
                    "unexpected 'content' provided when using shared memory for input tensor '{name}' for model \
                     '{model}'"
                )));
            }
            Data::Region(window.resolve(message, regions)?)
        } else if !contents.is_empty() {
            if !self.raw.is_empty() {
                return Err(Error::invalid(format!(
                    "contents field must not be specified when using raw_input_contents for '{name}' for model \
                     '{model}'"
                )));
            }
            contents::raw(message, &contents, &name, model, datatype)?
        } else if let Some(entry) = raw.next() {
            Data::Bytes(entry.slice(message))
        } else {
            return Err(Error::invalid(format!(
                "unable to find data for input tensor '{name}' for model '{model}' in request."
            )));
        };
        Ok(InputTensor { name, datatype, shape, data })
    }

    fn output(&self, span: Span, regions: &dyn Regions) -> Result<RequestedOutput> {
        let message = &self.message;
        let mut name = Name::new();
        let mut parameters = TensorParameters::default();
        let mut fields = FieldReader::within(message, span);
        while let Some(field) = fields.field()? {
            match field {
                (1, WireValue::Length(text)) => name = text.name(message)?,
                (2, WireValue::Length(entry)) => parameters.read(message, entry)?,
                _ => {}
            }
        }
        let window = parameters.window(&name)?;
        let classification = parameters.classes()?;
        if window.is_some() && classification > 0 {
            return Err(Error::invalid("output can't set both 'shared_memory_region' and 'classification'"));
        }
        let region = window.map(|w| w.resolve(message, regions)).transpose()?;
        Ok(RequestedOutput { name, form: OutputForm { binary: false, classification, anywhere: false }, region })
    }

    /// The error for the first tensor that is named twice (P 2.9 row 10).
    #[cold]
    fn named_twice(&self) -> Option<Error> {
        type DuplicateError = fn(&str, &str) -> Error;
        let kinds = [(&self.inputs, duplicate_input as DuplicateError), (&self.outputs, duplicate_output)];
        for (spans, already_named) in kinds {
            let mut seen = std::collections::BTreeSet::new();
            for &span in spans {
                let name = self.tensor_name(span).ok()?;
                if !seen.insert(name) {
                    return Some(already_named(&self.id, name));
                }
            }
        }
        None
    }

    fn tensor_name(&self, span: Span) -> Result<&str> {
        let mut name = "";
        let mut fields = FieldReader::within(&self.message, span);
        while let Some(field) = fields.field()? {
            if let (1, WireValue::Length(text)) = field {
                name = text.text(&self.message)?;
            }
        }
        Ok(name)
    }
}
