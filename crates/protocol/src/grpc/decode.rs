//! From message to request.

use bytes::Bytes;
use smallvec::SmallVec;
use tensor::{Data, Error, Name, Result, Shape};

use super::contents;
use super::parameters::{self, TensorParameters};
use super::wire::{Reader, Span, WireValue};
use crate::check::{duplicate_input, duplicate_output};
use crate::http::DIMS_MAX;
use crate::{InferRequest, InputTensor, OutputForm, Regions, RequestedOutput, Signature};

/// Most inputs, outputs and parameters of one request. An empty tensor is two bytes on the wire and some hundred in
/// memory, so the size of the message alone is no limit; and indices into a signature are 16 bits wide.
pub const TENSORS_MAX: usize = u16::MAX as usize;

/// Where the fields of a `ModelInferRequest` are, and which model it is for.
#[derive(Debug)]
pub struct InferHead {
    /// Model asked for.
    pub model_name: Name,
    /// Version asked for; empty = the server chooses.
    pub model_version: Name,
    /// The client's id, empty when it gave none.
    pub id: Name,
    message: Bytes,
    parameters: SmallVec<[Span; 4]>,
    inputs: SmallVec<[Span; 4]>,
    outputs: SmallVec<[Span; 4]>,
    raw: SmallVec<[Span; 4]>,
}

/// Walks a `ModelInferRequest` once. Nothing is copied: the head keeps `message`.
///
/// # Errors
/// INTERNAL when the bytes are not protobuf, with what is wrong and where.
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
    let mut fields = Reader::new(message)?;
    while let Some((number, value)) = fields.field()? {
        let WireValue::Length(place) = value else { continue };
        match number {
            1 => head.model_name = place.name(message)?,
            2 => head.model_version = place.name(message)?,
            3 => head.id = place.name(message)?,
            4 => push(&mut head.parameters, place, "parameters")?,
            5 => push(&mut head.inputs, place, "inputs")?,
            6 => push(&mut head.outputs, place, "outputs")?,
            // There are never more inputs than that, and what is left over is ignored.
            7 if head.raw.len() < TENSORS_MAX => head.raw.push(place),
            _ => {}
        }
    }
    Ok(head)
}

fn push(list: &mut SmallVec<[Span; 4]>, place: Span, what: &str) -> Result<()> {
    if list.len() >= TENSORS_MAX {
        return Err(Error::invalid(format!("request has more than {TENSORS_MAX} {what}")));
    }
    list.push(place);
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
    /// Makes the request for the model `signature` describes. Data are slices of the message, or windows of regions;
    /// lists in `contents` are converted to raw bytes. Whether it fits the signature is not checked here.
    ///
    /// # Errors
    /// The texts of protocol.md 2.3 and 2.4 and of memory.md 1.7, in the order in which Triton looks: parameters of the
    /// request, tensors named twice, inputs in order, outputs in order. INTERNAL when a part is not protobuf.
    // `into` although it borrows: the request is the head, further along; but errors still need the head's id.
    #[allow(clippy::wrong_self_convention)]
    pub fn into_request(&self, signature: &Signature, regions: &dyn Regions) -> Result<Box<InferRequest>> {
        let mut request = Box::new(InferRequest { id: self.id.clone(), ..InferRequest::default() });
        if !self.parameters.is_empty() {
            let entries = parameters::entries(&self.message, &self.parameters)?;
            parameters::apply(&self.message, &entries, &mut request)?;
        }
        match self.tensors(&mut request, signature, regions) {
            Ok(()) => Ok(request),
            // Triton names all tensors before it looks at the data of any. Only a request that fails anyway pays for it.
            Err(error) => Err(self.named_twice().unwrap_or(error)),
        }
    }

    /// Whether a stream owes this request a message of its own for a final flag that comes alone (P 2.5). False also when
    /// the parameter is broken: `into_request` reports that.
    pub fn wants_empty_final_response(&self) -> bool {
        !self.parameters.is_empty()
            && parameters::entries(&self.message, &self.parameters)
                .is_ok_and(|entries| parameters::wants_empty_final_response(&entries))
    }

    fn tensors(&self, request: &mut InferRequest, signature: &Signature, regions: &dyn Regions) -> Result<()> {
        let mut raw = self.raw.iter();
        for &place in &self.inputs {
            request.inputs.push(self.input(place, &mut raw, &signature.model, regions)?);
        }
        for &place in &self.outputs {
            request.outputs.push(self.output(place, regions)?);
        }
        Ok(())
    }

    fn input(
        &self,
        place: Span,
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
        let mut fields = Reader::within(message, place);
        while let Some(field) = fields.field()? {
            match field {
                (1, WireValue::Length(text)) => name = text.name(message)?,
                (2, WireValue::Length(text)) => datatype = text.datatype(message)?,
                (3, WireValue::Varint(dim)) => push_dim(&mut shape, dim)?,
                (3, WireValue::Length(packed)) => {
                    let mut dims = Reader::within(message, packed);
                    while !dims.is_done() {
                        push_dim(&mut shape, dims.varint()?)?;
                    }
                }
                (4, WireValue::Length(entry)) => parameters.read(message, entry)?,
                (5, WireValue::Length(place)) => contents.push(place),
                _ => {}
            }
        }

        let data = if let Some(window) = parameters.window(&name)? {
            if !contents.is_empty() {
                return Err(Error::invalid(format!(
                    "unexpected 'content' provided when using shared memory for input tensor '{name}' for model '{model}'"
                )));
            }
            Data::Region(window.resolve(message, regions)?)
        } else if !contents.is_empty() {
            if !self.raw.is_empty() {
                return Err(Error::invalid(format!(
                    "contents field must not be specified when using raw_input_contents for '{name}' for model '{model}'"
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

    fn output(&self, place: Span, regions: &dyn Regions) -> Result<RequestedOutput> {
        let message = &self.message;
        let mut name = Name::new();
        let mut parameters = TensorParameters::default();
        let mut fields = Reader::within(message, place);
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

    /// The error of the first tensor that is named twice (P 2.9 row 10).
    #[cold]
    fn named_twice(&self) -> Option<Error> {
        type Refusal = fn(&str, &str) -> Error;
        let kinds = [(&self.inputs, duplicate_input as Refusal), (&self.outputs, duplicate_output)];
        for (places, already_named) in kinds {
            let mut seen = std::collections::BTreeSet::new();
            for &place in places {
                let name = self.tensor_name(place).ok()?;
                if !seen.insert(name) {
                    return Some(already_named(&self.id, name));
                }
            }
        }
        None
    }

    fn tensor_name(&self, place: Span) -> Result<&str> {
        let mut name = "";
        let mut fields = Reader::within(&self.message, place);
        while let Some(field) = fields.field()? {
            if let (1, WireValue::Length(text)) = field {
                name = text.text(&self.message)?;
            }
        }
        Ok(name)
    }
}
