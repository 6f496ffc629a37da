//! Request body to [`InferRequest`].
//!
//! [`plain`] reads most heads in one pass. For others the whole JSON head is scanned first, so that a syntax error
//! anywhere wins; then id, parameters, inputs, remaining bytes and outputs are checked in the order of P 1.12.2. Binary
//! inputs and strings without escapes are slices of the body.

use super::input::{CONTENT_ENCODING, ContentsSource, InputScan, decode, json_data, region_of, shape_of, unable};
use super::{CORRELATION_ID_BYTES_MAX, Limits, RESERVED, plain, raw};
use crate::check::{NameSet, duplicate_input, duplicate_output};
use crate::infer::{CorrelationId, InferRequest, InputTensor, OutputForm, Parameter, Regions, RequestedOutput};
use crate::json::{Cursor, Value};
use crate::signature::Signature;
use bytes::Bytes;
use smallvec::SmallVec;
use tensor::part::part;
use tensor::{Data, DataType, Error, Name, RegionRef, Result};

/// Parses an inference body. `header_length` is the checked `Inference-Header-Content-Length`, if the request has it.
///
/// # Errors
/// INVALID_ARG or INTERNAL, with the texts of P 1.12.1 to 1.12.5, 1.12.9 and 1.14.
pub fn parse_infer(
    body: &Bytes,
    header_length: Option<usize>,
    signature: &Signature,
    regions: &dyn Regions,
    limits: &Limits,
) -> Result<InferRequest> {
    let head_length = header_length.unwrap_or(body.len());
    if head_length == 0 {
        return raw::parse(body.clone(), signature, limits);
    }
    limits.check_json(head_length)?;
    match plain::read(body, head_length, limits) {
        Some(request) => Ok(request),
        None => read_any(body, head_length, signature, regions, limits),
    }
}

/// Like [`parse_infer`], for a body whose binary part was collected in memory of the model's process.
///
/// # Errors
/// INVALID_ARG or INTERNAL, with the texts of P 1.12.1 to 1.12.5, 1.12.9 and 1.14.
pub fn parse_infer_apart(
    head: &Bytes,
    tail: RegionRef,
    signature: &Signature,
    regions: &dyn Regions,
    limits: &Limits,
) -> Result<InferRequest> {
    limits.check_json(head.len())?;
    read(head, BinaryPart { data: Data::Region(tail), at: 0 }, &ParseContext { body: head, signature, regions, limits })
}

/// Reads any head, or returns its error.
pub(super) fn read_any(
    body: &Bytes,
    head_length: usize,
    signature: &Signature,
    regions: &dyn Regions,
    limits: &Limits,
) -> Result<InferRequest> {
    let Some(head) = body.get(..head_length) else {
        let missing = head_length - body.len();
        return Err(Error::invalid(format!("unexpected size for request JSON, expecting {missing} more bytes")));
    };
    let tail = BinaryPart { data: Data::Bytes(body.clone()), at: head_length };
    read(head, tail, &ParseContext { body, signature, regions, limits })
}

/// The bytes of a body behind its JSON head, from `at` on.
struct BinaryPart {
    data: Data,
    at: usize,
}

impl BinaryPart {
    fn len(&self) -> usize {
        self.data.len() - self.at
    }

    /// Takes the next `size` bytes, which are there.
    fn take(&mut self, size: usize) -> Result<Data> {
        let start = self.at;
        self.at += size;
        Ok(match &self.data {
            _ if size == 0 => Data::empty(),
            Data::Bytes(bytes) => Data::Bytes(bytes.slice(start..self.at)),
            Data::Region(region) => Data::Region(part(region, start, size)?),
        })
    }
}

fn read(head: &[u8], mut tail: BinaryPart, context: &ParseContext<'_>) -> Result<InferRequest> {
    let body = context.body;
    let mut scan = Scan::document(head, context.limits)?;
    let mut request = InferRequest::default();
    if let Some(id) = scan.id {
        request.id = request_id(id, body)?;
    }
    if let Some(parameters) = scan.parameters {
        read_parameters(parameters, &mut request, context)?;
    }
    let inputs = scan
        .inputs
        .take()
        .ok_or_else(|| unable("inputs")(Error::malformed("attempt to access non-existing object member 'inputs'")))?;
    read_inputs(inputs, &mut tail, &mut request, context)?;
    if tail.len() > 0 {
        return Err(Error::invalid(format!(
            "unexpected additional input data for model '{}'",
            context.signature.model
        )));
    }
    if let Some(outputs) = scan.outputs {
        read_outputs(outputs, &mut request, context)?;
    }
    Ok(request)
}

/// Inputs of every step, which none changes.
struct ParseContext<'a> {
    body: &'a Bytes,
    signature: &'a Signature,
    regions: &'a dyn Regions,
    limits: &'a Limits,
}

/// Members of the document: the first of each name.
#[derive(Default)]
struct Scan<'a> {
    id: Option<Value<'a>>,
    parameters: Option<Value<'a>>,
    inputs: Option<Inputs<'a>>,
    outputs: Option<Value<'a>>,
}

// Lives once, on the stack of `parse_infer`.
#[allow(clippy::large_enum_variant)]
enum Inputs<'a> {
    NotAnArray,
    /// At most `Limits::entries_max` inputs, and the number of all.
    List(SmallVec<[InputScan<'a>; 2]>, usize),
}

impl<'a> Scan<'a> {
    fn document(text: &'a [u8], limits: &Limits) -> Result<Self> {
        let mut cursor = Cursor::document(text)?;
        let mut scan = Self::default();
        if cursor.peek() != b'{' {
            // Any other document has no members.
            cursor.value()?;
            cursor.end()?;
            return Ok(scan);
        }
        let mut more = cursor.open(true);
        while more {
            let key = cursor.key()?.decode();
            if &*key == b"inputs" && scan.inputs.is_none() && cursor.peek() == b'[' {
                scan.inputs = Some(Self::inputs(&mut cursor, limits)?);
            } else {
                let span = cursor.value()?;
                let value = Value::checked(cursor.slice(span));
                match &*key {
                    b"id" => drop(scan.id.get_or_insert(value)),
                    b"parameters" => drop(scan.parameters.get_or_insert(value)),
                    b"outputs" => drop(scan.outputs.get_or_insert(value)),
                    b"inputs" => drop(scan.inputs.get_or_insert(Inputs::NotAnArray)),
                    _ => {}
                }
            }
            more = cursor.another(true)?;
        }
        cursor.end()?;
        Ok(scan)
    }

    fn inputs(cursor: &mut Cursor<'a>, limits: &Limits) -> Result<Inputs<'a>> {
        let mut list = SmallVec::new();
        let mut count = 0;
        let mut more = cursor.open(false);
        while more {
            count += 1;
            if count <= limits.entries_max {
                list.push(InputScan::scan(cursor, limits)?);
            } else {
                cursor.value()?;
            }
            more = cursor.another(false)?;
        }
        Ok(Inputs::List(list, count))
    }
}

/// Reads the request's id (P-080).
pub(crate) fn request_id(id: Value<'_>, body: &Bytes) -> Result<Name> {
    id.as_name(body).map_err(unable("id"))
}

/// Reads parameters (P 1.12.5) in document order.
fn read_parameters(parameters: Value<'_>, request: &mut InferRequest, context: &ParseContext<'_>) -> Result<()> {
    let body = context.body;
    let mut seen = NameSet::new();
    let members = parameters.members().map_err(|e| e.prefixed("failed to get request params.: "))?;
    for (i, (key, value)) in members.enumerate() {
        context.limits.check_entries(i + 1, "parameters")?;
        let key = crate::json::name_of(key, body);
        // The first of duplicates counts.
        if !seen.insert(key.bytes().clone()) {
            continue;
        }
        read_parameter(key, value, request, body)?;
    }
    Ok(())
}

/// Sets a parameter of a request: one that the protocol names, or a custom one (P 1.12.5).
pub(crate) fn read_parameter(key: Name, value: Value<'_>, request: &mut InferRequest, body: &Bytes) -> Result<()> {
    match &*key {
        "sequence_id" => request.sequence.id = correlation_id(value, body)?,
        "sequence_start" => request.sequence.start = value.as_bool().map_err(unable("sequence_start"))?,
        "sequence_end" => request.sequence.end = value.as_bool().map_err(unable("sequence_end"))?,
        "priority" => request.priority = value.as_u64().map_err(unable("priority"))?,
        "timeout" => request.timeout_us = value.as_u64().map_err(unable("timeout"))?,
        "binary_data_output" => {
            request.default_form.binary = value.as_bool().map_err(unable("binary_data_output"))?;
        }
        _ if key.starts_with(RESERVED) => {
            return Err(Error::invalid(
                "parameter keys starting with 'triton_' are reserved for Triton usage and should not be specified.",
            ));
        }
        _ => push_parameter(&mut request.parameters, key, value, body)?,
    }
    Ok(())
}

/// Appends a custom parameter (P-083).
pub(crate) fn push_parameter(
    parameters: &mut Vec<(Name, Parameter)>,
    key: Name,
    value: Value<'_>,
    body: &Bytes,
) -> Result<()> {
    let parameter = if value.is_string() {
        Parameter::String(value.as_name(body)?)
    } else if let Ok(v) = value.as_i64() {
        Parameter::Int(v)
    } else if let Ok(v) = value.as_bool() {
        Parameter::Bool(v)
    } else if let Ok(v) = value.as_f64() {
        Parameter::Double(v)
    } else {
        return Err(Error::invalid(format!(
            "parameter '{key}' has invalid type. It should be either 'int', 'bool', or 'string'."
        )));
    };
    parameters.push((key, parameter));
    Ok(())
}

fn correlation_id(value: Value<'_>, body: &Bytes) -> Result<CorrelationId> {
    if let Ok(id) = value.as_u64() {
        return Ok(CorrelationId::Number(id));
    }
    let id = value.as_name(body).map_err(unable("sequence_id"))?;
    if id.len() > CORRELATION_ID_BYTES_MAX {
        return Err(Error::unsupported(format!(
            "string correlation ID cannot be longer than {CORRELATION_ID_BYTES_MAX} characters"
        )));
    }
    Ok(CorrelationId::String(id))
}

fn missing(key: &'static str) -> Error {
    unable(key)(Error::malformed(format!("attempt to access non-existing object member '{key}'")))
}

fn read_inputs(
    inputs: Inputs<'_>,
    tail: &mut BinaryPart,
    request: &mut InferRequest,
    context: &ParseContext<'_>,
) -> Result<()> {
    let Inputs::List(inputs, count) = inputs else {
        return Err(unable("inputs")(Error::malformed("attempt to access JSON non-array as array")));
    };
    context.limits.check_entries(count, "inputs")?;
    let mut parsed: SmallVec<[InputTensor; 2]> = SmallVec::with_capacity(inputs.len());
    let mut seen = NameSet::new();
    for mut input in inputs {
        let source = input.source()?;
        let name = input.name.ok_or_else(|| missing("name"))?.as_name(context.body).map_err(unable("name"))?;
        let datatype = input.datatype.ok_or_else(|| missing("datatype"))?.as_text().map_err(unable("datatype"))?;
        let datatype = std::str::from_utf8(&datatype.decode()).ok().and_then(DataType::from_name);
        let shape = shape_of(input.shape.ok_or_else(|| missing("shape"))?, context.limits).map_err(unable("shape"))?;
        if !seen.insert(name.bytes().clone()) {
            return Err(duplicate_input(&request.id, &name));
        }
        let data = match source {
            ContentsSource::Json(data) => {
                let data = json_data(&name, datatype, &shape, data, input.filled.take(), context.limits)?;
                match input.parameter(CONTENT_ENCODING) {
                    None => data,
                    Some(encoding) => decode(&name, datatype, encoding, &data)?,
                }
            }
            ContentsSource::Binary(size) => {
                let size = size.as_u64().map_err(unable("binary_data_size"))?;
                take(tail, size, &name, context.signature)?
            }
            ContentsSource::Region(region) => Data::Region(region_of(region, input.parameters, context.regions)?),
        };
        parsed.push(InputTensor { name, datatype, shape, data });
    }
    request.inputs = parsed;
    Ok(())
}

/// Takes the next `size` bytes of the binary part.
fn take(tail: &mut BinaryPart, size: u64, name: &str, signature: &Signature) -> Result<Data> {
    match usize::try_from(size) {
        Ok(size) if size <= tail.len() => tail.take(size),
        _ => Err(Error::invalid(format!(
            "unexpected size for input '{name}', expecting {} additional bytes for model '{}'",
            size - tail.len() as u64,
            signature.model
        ))),
    }
}

fn read_outputs(outputs: Value<'_>, request: &mut InferRequest, context: &ParseContext<'_>) -> Result<()> {
    let mut parsed: SmallVec<[RequestedOutput; 2]> = SmallVec::new();
    let mut seen = NameSet::new();
    for (i, output) in outputs.elements().map_err(unable("outputs"))?.enumerate() {
        context.limits.check_entries(i + 1, "outputs")?;
        let parameters = output.get("parameters");
        let parameter = |key: &str| parameters.and_then(|p| p.get(key));
        let region = parameter("shared_memory_region");
        if region.is_some() {
            let conflict =
                |with: &str| Err(Error::invalid(format!("Output can't set both 'shared_memory_region' and '{with}'")));
            if parameter("classification").is_some() {
                return conflict("classification");
            }
            if let Some(binary) = parameter("binary_data")
                && binary.as_bool().map_err(unable("binary_data"))?
            {
                return conflict("binary_data");
            }
        }
        let name = output.member("name").and_then(|n| n.as_name(context.body)).map_err(unable("name"))?;
        if !seen.insert(name.bytes().clone()) {
            return Err(duplicate_output(&request.id, &name));
        }
        let set = |key: &'static str| move |e: Error| e.prefixed(format_args!("Unable to set '{key}': "));
        let mut form = OutputForm::default();
        if let Some(k) = parameter("classification") {
            form.classification = u32::try_from(k.as_u64().map_err(set("classification"))?).unwrap_or(u32::MAX);
        }
        let region = region.map(|r| region_of(r, parameters, context.regions)).transpose()?;
        if region.is_none()
            && let Some(binary) = parameter("binary_data")
        {
            form.binary = binary.as_bool().map_err(unable("binary_data"))?;
        }
        parsed.push(RequestedOutput { name, form, region });
    }
    request.outputs = parsed;
    Ok(())
}
