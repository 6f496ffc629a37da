//! The generate extension (P 1.13): converts a flat JSON object to a request, and a response to such an object.
//!
//! The front end does framing (one object, or server-sent events), counts responses and adds the load report.

use crate::check::{NameSet, duplicate_input};
use crate::http::{Limits, classified, push_parameter, reject_half, request_id, write_parameter};
use crate::infer::{InferRequest, InferResponse, InputTensor};
use crate::json::{Value, name_of, read_bytes_tensor, read_tensor, write_string, write_tensor};
use crate::signature::{InputSpec, Signature};
use bytes::Bytes;
use smallvec::SmallVec;
use std::ops::Range;
use tensor::{Data, DataType, Error, Name, Result, Shape, allowance};

/// Member that contains parameters one level deeper.
const NESTED: &str = "parameters";

/// Input of models that generate text for settings that are no parameters: an object as JSON text.
const SETTINGS: &str = "sampling_parameters";

/// Body of a generate response when the model did not return exactly one response (P-112; status 200).
pub const WRONG_RESPONSE_COUNT: &str = "generate expects model to produce exactly 1 response, use generate stream for \
model that generates various number of responses";

/// Parses a generate body: members with the name of an input are tensors, the others are parameters.
///
/// # Errors
/// P 1.13 and 1.14.
pub fn parse_generate(body: &Bytes, signature: &Signature, limits: &Limits) -> Result<InferRequest> {
    limits.check_json(body.len())?;
    let document = Value::parse(body)?;
    let mut request = InferRequest::default();
    if let Some(id) = document.get("id") {
        request.id = request_id(id, body)?;
    }
    let mut mapping = Mapping { request, ..Mapping::new(body, signature, limits) };
    mapping.members(document, true)?;
    Ok(mapping.request)
}

/// Members of a flat object, or fields of a form, on their way to a request.
pub(crate) struct Mapping<'a> {
    body: &'a Bytes,
    signature: &'a Signature,
    limits: &'a Limits,
    /// Tensor bytes so far.
    used: usize,
    /// Keys of the parameters so far.
    keys: NameSet<Bytes>,
    pub request: InferRequest,
}

impl<'a> Mapping<'a> {
    pub fn new(body: &'a Bytes, signature: &'a Signature, limits: &'a Limits) -> Self {
        Self { body, signature, limits, used: 0, keys: NameSet::new(), request: InferRequest::default() }
    }
}

impl Mapping<'_> {
    fn members(&mut self, object: Value<'_>, top: bool) -> Result<()> {
        for (i, (key, value)) in object.members()?.enumerate() {
            self.limits.check_entries(i + 1, "parameters")?;
            let key = name_of(key, self.body);
            let input = self.signature.inputs.iter().find(|i| i.name == key);
            match input {
                Some(_) if top && key == NESTED => {
                    return Err(Error::invalid(format!(
                        "Keyword '{NESTED}' for nested schema also given as input tensor name"
                    )));
                }
                Some(spec) => self.tensor(spec, value)?,
                None if top && key == NESTED => {
                    let object = value
                        .as_object()
                        .map_err(|e| e.prefixed(format_args!("Expected JSON object for keyword: '{NESTED}': ")))?;
                    self.members(object, false)
                        .map_err(|e| e.prefixed(format_args!("Converting keyword: '{NESTED}': ")))?;
                }
                // The first of duplicates counts.
                None if !self.keys.insert(key.bytes().clone()) => {}
                None => {
                    let pushed = push_parameter(&mut self.request.parameters, key.clone(), value, self.body);
                    pushed.map_err(|error| self.explained(error, &key, value))?;
                }
            }
        }
        Ok(())
    }

    /// Adds an input with the values of a JSON array, or with one value.
    ///
    /// # Errors
    /// P 1.13: too many bytes, values of another type, no shape for their number, an input given twice.
    pub fn tensor(&mut self, spec: &InputSpec, value: Value<'_>) -> Result<()> {
        let name = &spec.name;
        // Only the outer array counts: nested arrays do not match the shape made from it.
        let count = if value.is_array() { value.elements()?.count() } else { 1 };
        let strings = (spec.datatype == DataType::Bytes).then(|| read_bytes_tensor(value)).transpose();
        let strings = strings.map_err(|error| self.explained(error, name, value))?;
        let bytes = match (&strings, spec.datatype.byte_size()) {
            (Some(raw), _) => raw.len(),
            (None, size) => count.saturating_mul(size.unwrap_or(0)),
        };
        let max = self.limits.input_bytes_max;
        if self.used.saturating_add(bytes) > max {
            return Err(Error::invalid(format!(
                "request size of {} bytes with input '{name}' of size {bytes} bytes exceeds the maximum allowed input \
                 size of {max}. Use --http-max-input-size to increase the limit.",
                self.used
            )));
        }
        self.used += bytes;
        // No contents to infer a shape from; the check of the request rejects it with its own text.
        let shape = if bytes == 0 { Shape::new() } else { self.shape(spec, count)? };
        if self.request.inputs.iter().any(|i| i.name == *name) {
            return Err(duplicate_input(&self.request.id, name));
        }
        let data = match strings {
            Some(raw) => raw,
            None if bytes == 0 => Vec::new(),
            None => {
                reject_half(spec.datatype, name)?;
                read_tensor(value, spec.datatype, count)?
            }
        };
        self.push(spec, shape, Data::Bytes(data.into()));
        Ok(())
    }

    /// Adds an input that the request does not have.
    pub fn push(&mut self, spec: &InputSpec, shape: Shape, data: Data) {
        let (name, datatype) = (spec.name.clone(), Some(spec.datatype));
        self.request.inputs.push(InputTensor { name, datatype, shape, data });
    }

    /// Adds to the error of a value what to write for a model that takes settings as text.
    fn explained(&self, error: Error, key: &str, value: Value<'_>) -> Error {
        let has_settings = self.signature.inputs.iter().any(|input| input.name.as_str() == SETTINGS);
        if !has_settings || !(key == SETTINGS || value.is_array() || value.as_object().is_ok()) {
            return error;
        }
        let text = error.message().strip_suffix('.').unwrap_or(error.message());
        Error::invalid(format!(
            "{text} ('{key}'). Settings that are lists or objects go into the input '{SETTINGS}' of model '{}', as one \
             text with JSON: {{\"{SETTINGS}\": \"{{\\\"stop\\\": [\\\"END\\\"]}}\"}}",
            self.signature.model
        ))
    }

    /// The shape for `count` elements: the innermost variable dimension is `count` over the fixed ones, the others 1
    /// (P-109).
    fn shape(&self, spec: &InputSpec, count: usize) -> Result<Shape> {
        let unfit =
            || Error::invalid(format!("The schema can not convert input '{}' to tensor with proper shape", spec.name));
        let mut shape = self.signature.full_shape(&spec.dims);
        let mut left = i64::try_from(count).map_err(|_| unfit())?;
        for &d in shape.iter().filter(|&&d| d != -1) {
            if left.checked_rem(d).is_none_or(|r| r != 0) {
                return Err(unfit());
            }
            left /= d;
        }
        for d in shape.iter_mut().rev().filter(|d| **d == -1) {
            *d = std::mem::replace(&mut left, 1);
        }
        if left == 1 { Ok(shape) } else { Err(unfit()) }
    }
}

/// Writes a response as one flat object with sorted keys. A single element has no brackets, more are a flat array
/// (P-111).
///
/// # Errors
/// INVALID_ARG for FP16 and BF16; INTERNAL for contents that do not match their shape.
// Uses two buffers: the values in the order of the response, and the text in the order of the names.
pub fn encode_generate(response: &InferResponse, signature: &Signature) -> Result<Bytes> {
    let (id, model_name, model_version) =
        (Name::from_static("id"), Name::from_static("model_name"), Name::from_static("model_version"));
    // Values in the order of the response, so that its first error is returned; preallocated for streams of thousands.
    let mut values = Vec::with_capacity(128);
    let mut members: SmallVec<[(&Name, Range<usize>); 8]> = SmallVec::new();
    let mut begin = 0;
    let mut end = |key, values: &[u8]| {
        members.push((key, begin..values.len()));
        begin = values.len();
    };
    if !response.id.is_empty() {
        write_string(&mut values, response.id.as_bytes());
        end(&id, &values);
    }
    write_string(&mut values, response.model_name.as_bytes());
    end(&model_name, &values);
    write_string(&mut values, response.model_version.as_bytes());
    end(&model_version, &values);
    for (key, value) in &response.parameters {
        write_parameter(&mut values, value);
        end(key, &values);
    }
    for output in &response.outputs {
        let classes = classified(output, signature)?;
        let tensor = classes.as_ref().unwrap_or(output);
        write_tensor(&mut values, tensor.datatype, &tensor.shape, &tensor.data.to_bytes()?, true)?;
        end(&output.name, &values);
    }
    // The sort is stable, so the first of equal names is kept.
    members.sort_by_key(|(key, _)| *key);
    members.dedup_by_key(|(key, _)| *key);
    let mut out = Vec::new();
    allowance::grow_by(&mut out, members.iter().map(|(k, v)| k.len() + v.len() + 4).sum::<usize>() + 2)?;
    out.push(b'{');
    for (i, (key, value)) in members.into_iter().enumerate() {
        if i > 0 {
            out.push(b',');
        }
        write_string(&mut out, key.as_bytes());
        out.push(b':');
        out.extend_from_slice(values.get(value).unwrap_or_default());
    }
    out.push(b'}');
    Ok(out.into())
}
