//! One input of a JSON head: the source of its data, and its conversion (P 1.12.1, 1.12.3).

use super::Limits;
use crate::infer::Regions;
use crate::json::{Cursor, SyntaxError, Value, fill, read_bytes_tensor, read_tensor, skip_array};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use tensor::strings::{self, Strings};
use tensor::{Data, DataType, Error, RegionRef, Result, Shape, ShapeDisplay, allowance, element_count};

/// Members of one element of `inputs` after the scan of the document.
#[derive(Default)]
pub(super) struct InputScan<'a> {
    pub name: Option<Value<'a>>,
    pub datatype: Option<Value<'a>>,
    pub shape: Option<Value<'a>>,
    pub parameters: Option<Value<'a>>,
    pub data: Option<Value<'a>>,
    /// `data`, if it could be converted during the scan.
    pub filled: Option<Bytes>,
}

impl<'a> InputScan<'a> {
    /// Takes one element of `inputs`; a value other than an object has no members.
    pub fn scan(cursor: &mut Cursor<'a>, limits: &Limits) -> Result<Self, SyntaxError> {
        let mut input = Self::default();
        if cursor.peek() != b'{' {
            cursor.value()?;
            return Ok(input);
        }
        let mut skipped = None;
        let scanned = input.members(cursor, limits, &mut skipped);
        // If the conversion fails, the first syntax error in the document is reported.
        if let Some(mut data) = skipped
            && !input.fill_late(data, limits)
        {
            data.value()?;
        }
        scanned.map(|()| input)
    }

    /// Takes the members. `skipped` is the start of `data` that was skipped and is not checked yet.
    fn members(
        &mut self,
        cursor: &mut Cursor<'a>,
        limits: &Limits,
        skipped: &mut Option<Cursor<'a>>,
    ) -> Result<(), SyntaxError> {
        let input = self;
        let mut more = cursor.open(true);
        while more {
            let key = cursor.key()?.decode();
            let start = cursor.offset();
            if &*key == b"data" && input.data.is_none() {
                input.filled = input.expected(limits).and_then(|(datatype, count)| fill(cursor, datatype, count));
                let before = *cursor;
                // Numbers whose datatype comes later are read once, when it is known.
                let is_early = input.datatype.is_none() || input.shape.is_none();
                if input.filled.is_none() && is_early && skip_array(cursor) {
                    *skipped = Some(before);
                } else if input.filled.is_none() {
                    cursor.value()?;
                }
            } else {
                cursor.value()?;
            }
            let value = Value::checked(cursor.slice(start..cursor.offset()));
            let slot = match &*key {
                b"name" => Some(&mut input.name),
                b"datatype" => Some(&mut input.datatype),
                b"shape" => Some(&mut input.shape),
                b"parameters" => Some(&mut input.parameters),
                b"data" => Some(&mut input.data),
                _ => None,
            };
            if let Some(slot) = slot {
                slot.get_or_insert(value);
            }
            more = cursor.another(true)?;
        }
        Ok(())
    }

    /// Converts `data` that was skipped; false if it does not match the other members.
    fn fill_late(&mut self, mut data: Cursor<'a>, limits: &Limits) -> bool {
        let end = data.offset() + self.data.map_or(0, |data| data.text().len());
        let filled = self.expected(limits).and_then(|(datatype, count)| fill(&mut data, datatype, count));
        self.filled = filled.filter(|_| data.offset() == end);
        self.filled.is_some()
    }

    /// Datatype and number of elements of `data`; `None` if they are unknown, not allowed or need the careful path.
    fn expected(&self, limits: &Limits) -> Option<(DataType, usize)> {
        let datatype = DataType::from_name(std::str::from_utf8(self.datatype?.as_text().ok()?.raw).ok()?)?;
        let count = usize::try_from(element_count(&shape_of(self.shape?, limits).ok()?)?).ok()?;
        let bytes = datatype.byte_size().unwrap_or(0).checked_mul(count)?;
        (count > 0 && bytes <= limits.input_bytes_max).then_some((datatype, count))
    }

    pub fn parameter(&self, key: &str) -> Option<Value<'a>> {
        self.parameters?.get(key)
    }

    /// The source of the data: the request must name exactly one of the three.
    pub fn source(&self) -> Result<ContentsSource<'a>> {
        let binary = self.parameter("binary_data_size");
        let region = self.parameter("shared_memory_region");
        match (self.data, binary, region) {
            (Some(data), None, None) => Ok(ContentsSource::Json(data)),
            (None, Some(size), None) => Ok(ContentsSource::Binary(size)),
            (None, None, Some(region)) => Ok(ContentsSource::Region(region)),
            (data, binary, region) => {
                let named = [
                    (data.is_some(), " 'data'"),
                    (binary.is_some(), " 'binary_data_size'"),
                    (region.is_some(), " 'shared_memory_region'"),
                ];
                let set: String = named.iter().filter(|(is, _)| *is).map(|(_, text)| *text).collect();
                let set = if set.is_empty() { " no field is set".to_owned() } else { format!(" set{set}") };
                Err(Error::invalid(format!(
                    "Input must set only one of the following fields: 'data', 'binary_data_size' in 'parameters', \
                     'shared_memory_region' in 'parameters'. But{set}"
                )))
            }
        }
    }
}

pub(super) enum ContentsSource<'a> {
    Json(Value<'a>),
    Binary(Value<'a>),
    Region(Value<'a>),
}

/// Prefixes a type error with `Unable to parse '<key>': `.
pub(crate) fn unable(key: &'static str) -> impl Fn(Error) -> Error {
    move |e| e.prefixed(format_args!("Unable to parse '{key}': "))
}

/// Reads a shape: unsigned in the text, signed in memory, so that a dimension over i64 becomes negative and is
/// rejected. Stops at the limit of dimensions, so that a body full of them is not read to its end.
pub(super) fn shape_of(value: Value<'_>, limits: &Limits) -> Result<Shape> {
    let mut shape = Shape::new();
    for dim in value.elements()? {
        if shape.len() == limits.dims_max {
            return Err(Error::invalid(format!("an input has more than {} dimensions", limits.dims_max)));
        }
        shape.push(dim.as_u64()? as i64);
    }
    Ok(shape)
}

/// The range of shared memory in the `parameters` of a tensor; sizes default to 0 over HTTP (memory.md 1.7).
pub(super) fn region_of(region: Value<'_>, parameters: Option<Value<'_>>, regions: &dyn Regions) -> Result<RegionRef> {
    let name = region.as_string().map_err(unable("shared_memory_region"))?;
    let number =
        |key: &'static str| parameters.and_then(|p| p.get(key)).map_or(Ok(0), |v| v.as_u64().map_err(unable(key)));
    let offset = number("shared_memory_offset")?;
    let byte_size = number("shared_memory_byte_size")?;
    regions.resolve(&name, offset, byte_size)
}

/// Converts `data` with every check of P 1.12.3, in the reference's order.
pub(super) fn json_data(
    name: &str,
    datatype: Option<DataType>,
    shape: &[i64],
    data: Value<'_>,
    filled: Option<Bytes>,
    limits: &Limits,
) -> Result<Data> {
    let max = limits.input_bytes_max;
    let check_size = |bytes: usize| {
        if bytes <= max {
            return Ok(());
        }
        Err(Error::invalid(format!(
            "JSON input '{name}' has a byte_size ({bytes} bytes) that exceeds the maximum allowed value of {max} \
             bytes. Use --http-max-input-size to increase the limit."
        )))
    };
    data.elements().map_err(unable("data"))?;
    let datatype = datatype.ok_or_else(|| Error::invalid(format!("invalid datatype for input {name}")))?;
    reject_half(datatype, name)?;
    if shape.is_empty() {
        // No model has an input of rank 0, so the check of the request rejects this one with any data.
        return Ok(Data::empty());
    }
    let count = count_of(name, shape)?;
    if count == 0 {
        return Ok(Data::empty());
    }
    let Some(size) = datatype.byte_size() else {
        let raw = filled.map_or_else(|| read_bytes_tensor(data).map(Bytes::from), Ok)?;
        if raw.is_empty() {
            return Err(Error::malformed("Failed to parse 'data' field: output buffer unavailable"));
        }
        check_size(raw.len())?;
        return Ok(raw.into());
    };
    let bytes = count.checked_mul(size as i64).and_then(|n| usize::try_from(n).ok()).ok_or_else(|| {
        Error::invalid(format!(
            "byte size overflow for input '{name}': element count ({count}) * data type size ({size}) exceeds maximum \
             allowed size \
             ({})",
            i64::MAX
        ))
    })?;
    check_size(bytes)?;
    let raw = filled.map_or_else(|| read_tensor(data, datatype, bytes / size).map(Bytes::from), Ok)?;
    Ok(raw.into())
}

/// Parameter of an input whose elements in JSON are encoded, with the name of JSON Schema's keyword. Not in Triton,
/// which ignores it.
pub(super) const CONTENT_ENCODING: &str = "content_encoding";

/// Decodes the elements of a BYTES input that came as base64 in JSON.
pub(super) fn decode(name: &str, datatype: Option<DataType>, encoding: Value<'_>, data: &Data) -> Result<Data> {
    let text = encoding.as_string().map_err(unable(CONTENT_ENCODING))?;
    if text != "base64" || datatype != Some(DataType::Bytes) {
        return Err(Error::invalid(format!(
            "'{CONTENT_ENCODING}' of input '{name}' must be 'base64', for datatype BYTES; got '{text}' for {}",
            datatype.map_or("<invalid>", DataType::name)
        )));
    }
    let raw = data.to_bytes()?;
    let mut out = Vec::new();
    allowance::grow_by(&mut out, raw.len())?;
    for (i, element) in Strings::new(&raw).map_while(|element| element.ok()).enumerate() {
        let decoded = STANDARD.decode(element).map_err(|why| {
            Error::invalid(format!(
                "element {i} of input '{name}' is not base64, which '{CONTENT_ENCODING}' requires: {why}"
            ))
        })?;
        strings::push(&mut out, &decoded);
    }
    Ok(Data::Bytes(out.into()))
}

/// Rejects FP16 and BF16, which have no JSON form.
pub(crate) fn reject_half(datatype: DataType, name: &str) -> Result<()> {
    if !matches!(datatype, DataType::Fp16 | DataType::Bf16) {
        return Ok(());
    }
    Err(Error::invalid(format!(
        "receiving {} data via JSON is not supported. Please use the binary data format for input {name}",
        datatype.name()
    )))
}

/// Number of elements of a client's shape (P-072).
fn count_of(name: &str, shape: &[i64]) -> Result<i64> {
    element_count(shape).ok_or_else(|| {
        let what = if shape.iter().any(|&d| d < 0) {
            "contains one or more invalid dimensions".to_owned()
        } else {
            format!("causes total element count to exceed maximum size of {}", i64::MAX)
        };
        Error::invalid(format!("invalid shape for input '{name}': shape {} {what}", ShapeDisplay(shape)))
    })
}
