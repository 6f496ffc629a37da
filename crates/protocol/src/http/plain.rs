//! Reads a plain inference head in one pass: known members, each once, of the usual types, without escapes and regions.
//!
//! [`parse_infer`](super::parse_infer) reads all other heads, also every malformed one: `None` only means that this
//! reader does not support the head. So errors, and the first of several, are decided in one place. An unsupported head
//! costs one more pass at most; two small binary inputs take 6,900 instead of 24,400 instructions.
//!
//! Invariant: `Some` equals the result of `parse_infer` for the same body.

use super::Limits;
use super::{CORRELATION_ID_BYTES_MAX, RESERVED};
use crate::infer::{CorrelationId, InferRequest, InputTensor, OutputForm, Parameter, RequestedOutput};
use crate::json::{Cursor, Text, fill, name_of, special};
use bytes::Bytes;
use smallvec::SmallVec;
use tensor::{Data, DataType, Name, Shape, element_count};

/// Longest supported head: for longer ones a pass in vain would be noticeable.
const HEAD_BYTES_MAX: usize = 16 << 10;
/// Most inputs, outputs and parameters of a plain head, each: their names are compared pairwise.
const ENTRIES_MAX: usize = 16;
/// Number of digits that always fit 64 bits, with and without a sign.
const DIGITS_MAX: usize = 18;

/// Reads the request in `body`, whose first `head_length` bytes are JSON.
pub(super) fn read(body: &Bytes, head_length: usize, limits: &Limits) -> Option<InferRequest> {
    if head_length > HEAD_BYTES_MAX {
        return None;
    }
    let mut reader = BodyReader { rest: body.get(..head_length)?, body, limits, at: head_length };
    reader.white();
    let request = reader.request()?;
    reader.white();
    (reader.rest.is_empty() && reader.at == body.len()).then_some(request)
}

struct BodyReader<'a> {
    rest: &'a [u8],
    body: &'a Bytes,
    limits: &'a Limits,
    /// Start of the binary data of the next input.
    at: usize,
}

/// Sets a member; `None` if it is set already.
fn once<T>(slot: &mut Option<T>, value: Option<T>) -> Option<()> {
    slot.replace(value?).is_none().then_some(())
}

impl<'a> BodyReader<'a> {
    #[inline]
    fn white(&mut self) {
        while let [b' ' | b'\n' | b'\r' | b'\t', rest @ ..] = self.rest {
            self.rest = rest;
        }
    }

    #[inline]
    fn eat(&mut self, byte: u8) -> bool {
        match self.rest {
            [first, rest @ ..] if *first == byte => {
                self.rest = rest;
                true
            }
            _ => false,
        }
    }

    /// Takes the elements between two brackets, at most `max`.
    #[inline]
    fn each(
        &mut self,
        [open, close]: [u8; 2],
        max: usize,
        mut element: impl FnMut(&mut Self) -> Option<()>,
    ) -> Option<()> {
        if !self.eat(open) {
            return None;
        }
        self.white();
        if self.eat(close) {
            return Some(());
        }
        for _ in 0..max {
            element(self)?;
            self.white();
            if self.eat(close) {
                return Some(());
            }
            if !self.eat(b',') {
                return None;
            }
            self.white();
        }
        None
    }

    fn members(&mut self, mut member: impl FnMut(&mut Self, &'a [u8]) -> Option<()>) -> Option<()> {
        self.each(*b"{}", ENTRIES_MAX, |reader| {
            let key = reader.text()?;
            reader.white();
            if !reader.eat(b':') {
                return None;
            }
            reader.white();
            member(reader, key)
        })
    }

    /// Takes a string without escapes.
    #[inline]
    fn text(&mut self) -> Option<&'a [u8]> {
        let text = self.rest.strip_prefix(b"\"")?;
        let (text, rest) = text.split_at_checked(special(text))?;
        self.rest = rest.strip_prefix(b"\"")?;
        Some(text)
    }

    fn name(&mut self) -> Option<Name> {
        let raw = self.text()?;
        Some(name_of(Text { raw, escaped: false }, self.body))
    }

    /// Takes a non-negative integer.
    #[inline]
    fn number(&mut self) -> Option<u64> {
        let (mut value, mut digits) = (0u64, 0);
        while let [digit @ b'0'..=b'9', rest @ ..] = self.rest {
            // A leading zero is an error, and more digits may not fit 64 bits.
            if digits == DIGITS_MAX || (value == 0 && digits > 0) {
                return None;
            }
            value = value * 10 + u64::from(digit - b'0');
            digits += 1;
            self.rest = rest;
        }
        // A fraction or an exponent makes the caller fail, which expects a comma or a bracket.
        (digits > 0).then_some(value)
    }

    fn boolean(&mut self) -> Option<bool> {
        let (value, rest) = match self.rest {
            [b't', b'r', b'u', b'e', rest @ ..] => (true, rest),
            [b'f', b'a', b'l', b's', b'e', rest @ ..] => (false, rest),
            _ => return None,
        };
        self.rest = rest;
        Some(value)
    }

    fn request(&mut self) -> Option<InferRequest> {
        let mut request = InferRequest::default();
        let (mut id, mut parameters, mut inputs, mut outputs) = (None, None, None, None);
        self.members(|reader, key| match key {
            b"id" => once(&mut id, reader.name()),
            b"parameters" => once(&mut parameters, reader.parameters(&mut request)),
            b"inputs" => once(&mut inputs, reader.each(*b"[]", ENTRIES_MAX, |r| r.input(&mut request.inputs))),
            b"outputs" => once(&mut outputs, reader.each(*b"[]", ENTRIES_MAX, |r| r.output(&mut request.outputs))),
            _ => None,
        })?;
        inputs?;
        request.id = id.unwrap_or_default();
        Some(request)
    }

    fn parameters(&mut self, request: &mut InferRequest) -> Option<()> {
        let (mut sequence_id, mut start, mut end) = (None, None, None);
        let (mut priority, mut timeout, mut binary) = (None, None, None);
        self.members(|reader, key| match key {
            b"sequence_id" => once(&mut sequence_id, reader.correlation_id()),
            b"sequence_start" => once(&mut start, reader.boolean()),
            b"sequence_end" => once(&mut end, reader.boolean()),
            b"priority" => once(&mut priority, reader.number()),
            b"timeout" => once(&mut timeout, reader.number()),
            b"binary_data_output" => once(&mut binary, reader.boolean()),
            _ if key.starts_with(RESERVED.as_bytes()) => None,
            _ => reader.parameter(key, &mut request.parameters),
        })?;
        request.sequence.id = sequence_id.unwrap_or_default();
        request.sequence.start = start.unwrap_or_default();
        request.sequence.end = end.unwrap_or_default();
        request.priority = priority.unwrap_or_default();
        request.timeout_us = timeout.unwrap_or_default();
        request.default_form.binary = binary.unwrap_or_default();
        Some(())
    }

    fn correlation_id(&mut self) -> Option<CorrelationId> {
        if self.rest.first() != Some(&b'"') {
            return self.number().map(CorrelationId::Number);
        }
        let id = self.name()?;
        (id.len() <= CORRELATION_ID_BYTES_MAX).then_some(CorrelationId::String(id))
    }

    fn parameter(&mut self, key: &'a [u8], list: &mut Vec<(Name, Parameter)>) -> Option<()> {
        let key = name_of(Text { raw: key, escaped: false }, self.body);
        if list.iter().any(|(known, _)| *known == key) {
            return None;
        }
        let value = match self.rest.first()? {
            b'"' => Parameter::String(self.name()?),
            b'0'..=b'9' => Parameter::Int(i64::try_from(self.number()?).ok()?),
            _ => Parameter::Bool(self.boolean()?),
        };
        list.push((key, value));
        Some(())
    }

    fn input(&mut self, list: &mut SmallVec<[InputTensor; 2]>) -> Option<()> {
        let (mut name, mut datatype, mut shape, mut size, mut data, mut parameters) =
            (None, None, None, None, None, None);
        self.members(|reader, key| match key {
            b"name" => once(&mut name, reader.name()),
            b"datatype" => once(&mut datatype, reader.text().and_then(DataType::from_bytes)),
            b"shape" => once(&mut shape, reader.shape()),
            b"parameters" => once(
                &mut parameters,
                reader.members(|r, key| match key {
                    b"binary_data_size" => once(&mut size, r.number()),
                    _ => None,
                }),
            ),
            b"data" => once(&mut data, reader.data(datatype?, shape.as_ref()?)),
            _ => None,
        })?;
        let data = match (data, size) {
            (Some(data), None) => data,
            (None, Some(size)) => {
                let end = usize::try_from(size).ok().and_then(|size| self.at.checked_add(size))?;
                if end > self.body.len() {
                    return None;
                }
                let start = std::mem::replace(&mut self.at, end);
                self.body.slice(start..end)
            }
            _ => return None,
        };
        let name = name?;
        if list.iter().any(|known| known.name == name) {
            return None;
        }
        list.push(InputTensor { name, datatype: Some(datatype?), shape: shape?, data: Data::Bytes(data) });
        Some(())
    }

    #[inline]
    fn shape(&mut self) -> Option<Shape> {
        let mut shape = Shape::new();
        let max = self.limits.dims_max.min(ENTRIES_MAX);
        self.each(*b"[]", max, |reader| {
            shape.push(i64::try_from(reader.number()?).ok()?);
            Some(())
        })?;
        Some(shape)
    }

    /// Takes the values of a tensor whose datatype and shape are before them.
    fn data(&mut self, datatype: DataType, shape: &Shape) -> Option<Bytes> {
        let max = self.limits.input_bytes_max;
        let count = usize::try_from(element_count(shape)?).ok()?;
        let bytes = datatype.byte_size().unwrap_or(0).checked_mul(count)?;
        if shape.is_empty() || count == 0 || bytes > max || matches!(datatype, DataType::Fp16 | DataType::Bf16) {
            return None;
        }
        let mut cursor = Cursor::new(self.rest);
        let filled = fill(&mut cursor, datatype, count)?;
        self.rest = cursor.rest();
        (!filled.is_empty() && filled.len() <= max).then_some(filled)
    }

    fn output(&mut self, list: &mut SmallVec<[RequestedOutput; 2]>) -> Option<()> {
        let (mut name, mut binary, mut classification, mut parameters) = (None, None, None, None);
        self.members(|reader, key| match key {
            b"name" => once(&mut name, reader.name()),
            b"parameters" => once(
                &mut parameters,
                reader.members(|r, key| match key {
                    b"binary_data" => once(&mut binary, r.boolean()),
                    b"classification" => once(&mut classification, r.number()),
                    _ => None,
                }),
            ),
            _ => None,
        })?;
        let name = name?;
        if list.iter().any(|known| known.name == name) {
            return None;
        }
        let classification = u32::try_from(classification.unwrap_or(0)).unwrap_or(u32::MAX);
        let form = OutputForm { binary: binary.unwrap_or_default(), classification, anywhere: false };
        list.push(RequestedOutput { name, form, region: None });
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::parse::read_any;
    use crate::testing::{NoRegions, addsub};

    const HEADS: [&str; 6] = [
        concat!(
            r#"{"id":"request-7","inputs":["#,
            r#"{"name":"INPUT0","shape":[1,16],"datatype":"INT32","parameters":{"binary_data_size":4}},"#,
            r#"{"name":"INPUT1","shape":[1,16],"datatype":"INT32","parameters":{"binary_data_size":4}}],"outputs":["#,
            r#"{"name":"OUTPUT0","parameters":{"binary_data":true}},"#,
            r#"{"name":"OUTPUT1","parameters":{"classification":3}}]}"#
        ),
        concat!(
            r#"{"inputs":[{"name":"INPUT0","shape":[2],"datatype":"FP32","data":[1.5,-2e3]},"#,
            r#"{"name":"I","datatype":"BYTES","shape":[1],"data":["x\u0041"]},"#,
            r#"{"name":"J","shape":[1,2],"datatype":"INT64","data":[[1,2]]}]}"#
        ),
        " {\n \"parameters\" : { \"sequence_id\" : 7 , \"sequence_start\":true,\"sequence_end\":false,\"priority\":1,\
         \"timeout\":20,\"binary_data_output\":true,\"own\":\"x\",\"n\":-3,\"m\":4,\"b\":false } ,\"inputs\":[ ] } ",
        concat!(
            r#"{"parameters":{"sequence_id":"abc"},"inputs":[{"name":"A","shape":[1],"datatype":"INT8","data":[1]},"#,
            r#"{"name":"A","shape":[1],"datatype":"INT8","data":[1]}],"outputs":[]}"#
        ),
        concat!(
            r#"{"id":"","outputs":[{"name":"O"},{"name":"O"}],"#,
            r#""inputs":[{"data":[1],"name":"A","shape":[1],"datatype":"INT8"}]}"#
        ),
        concat!(
            r#"{"inputs":[{"name":"A","shape":[],"datatype":"INT8","data":[]},"#,
            r#"{"name":"B","shape":[0],"datatype":"FP16","data":[]}]}"#
        ),
    ];

    /// Compares both readers for a head with eight bytes behind it; true if this one supports the head.
    fn check(head: &[u8]) -> bool {
        let body = Bytes::from([head, &[1, 2, 3, 4, 5, 6, 7, 8]].concat());
        let limits = Limits::default();
        for body in [body.clone(), body.slice(..head.len())] {
            let Some(plain) = read(&body, head.len(), &limits) else { continue };
            let other = read_any(&body, head.len(), &addsub(8), &NoRegions, &limits);
            let print = |r: &InferRequest| {
                let data: Vec<_> = r.inputs.iter().map(|i| i.data.to_vec()).collect();
                format!("{r:?} {data:?}")
            };
            let other = other.unwrap_or_else(|e| panic!("{}: {e}", String::from_utf8_lossy(head)));
            assert_eq!(print(&plain), print(&other), "{}", String::from_utf8_lossy(head));
            return true;
        }
        false
    }

    #[test]
    fn only_plain_heads_are_supported() {
        let known = HEADS.map(|head| check(head.as_bytes()));
        assert_eq!(known, [true, true, false, false, false, false]);
        let reads = |head: &str| check(head.as_bytes());
        assert!(reads(r#"{"inputs":[{"name":"I","datatype":"FP32","shape":[2],"data":[1.5,-2e3]}]}"#));
        assert!(reads(r#"{"inputs":[],"parameters":{"own":"x","m":4,"b":false,"priority":2}}"#));
        for number in ["01", "1.0", "1e3", "-1", "1234567890123456789012", "\"1\"", "null"] {
            let head = r#"{"inputs":[{"name":"A","shape":[#],"datatype":"INT8","parameters":{"binary_data_size":8}}]}"#;
            assert!(!reads(&head.replace("#", number)), "{number}");
            assert!(reads(&head.replace("#", "8")));
        }
    }

    #[test]
    fn both_readers_agree_on_damaged_heads() {
        let mut known = 0;
        let pieces: [&[u8]; 22] = [
            b"",
            b"0",
            b"1",
            b"\"",
            b"{",
            b"}",
            b"[",
            b"]",
            b",",
            b":",
            b" ",
            b"\\",
            b"\0",
            b"\xff",
            b".5",
            b"true",
            b"null",
            b"\"data\":[1],",
            b"\"name\":\"A\",",
            b"-",
            b"\"id\":\"x\",",
            b"\"shared_memory_region\":\"r\",",
        ];
        for head in HEADS {
            for at in 0..head.len() {
                for piece in pieces {
                    for taken in 0..2 {
                        let (before, rest) = head.as_bytes().split_at(at);
                        known += usize::from(check(&[before, piece, &rest[taken..]].concat()));
                    }
                }
            }
        }
        assert!(known > 1000, "{known}: most damage is none, as in a name");
    }
}
