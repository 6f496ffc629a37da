//! `InferTensorContents`: tensor elements as typed lists, converted to the binary form (P 2.3).
//!
//! The first pass finds which lists have elements, the second converts the only list that may have some. Nothing is
//! stored per element, so an unpacked list of millions of numbers needs no more memory than its tensor.

use bytes::Bytes;
use tensor::{Data, DataType, Error, Result, allowance, strings};

use super::wire::{FieldReader, Span, WireValue, malformed};

/// A list as it is on the wire.
#[derive(Clone, Copy, Default)]
struct List {
    /// Pieces with at least one element.
    pieces: u32,
    /// The first piece, if it was packed.
    packed: Option<Span>,
}

/// Converts `contents` (all occurrences of the field, which protobuf merges) of the input `name` to the binary form.
pub(super) fn raw(
    message: &Bytes,
    contents: &[Span],
    name: &str,
    model: &str,
    datatype: Option<DataType>,
) -> Result<Data> {
    let lists = survey(message, contents)?;
    let mut found = None;
    for (number, list) in (1u32..).zip(lists).filter(|(_, list)| list.pieces > 0) {
        if found.is_some() {
            return Err(Error::invalid(format!(
                "unexpected explicit tensor data for input tensor '{name}' for model '{model}', binary data was \
                 already supplied."
            )));
        }
        let got = list_type(number, datatype);
        if Some(got) != datatype {
            return Err(Error::invalid(format!(
                "unexpected explicit tensor data for input tensor '{name}' for model '{model}' of type '{}', expected \
                 datatype '{}'",
                got.name(),
                datatype.map_or("<invalid>", DataType::name)
            )));
        }
        found = Some((number, list, got));
    }
    match found {
        None => Ok(Data::empty()),
        Some((number, list, datatype)) => convert(message, contents, number, list, datatype),
    }
}

/// The datatype of a list; lists of 32-bit integers also carry the smaller types.
fn list_type(number: u32, wanted: Option<DataType>) -> DataType {
    match (number, wanted) {
        (1, _) => DataType::Bool,
        (2, Some(small @ (DataType::Int8 | DataType::Int16))) => small,
        (2, _) => DataType::Int32,
        (3, _) => DataType::Int64,
        (4, Some(small @ (DataType::Uint8 | DataType::Uint16))) => small,
        (4, _) => DataType::Uint32,
        (5, _) => DataType::Uint64,
        (6, _) => DataType::Fp32,
        (7, _) => DataType::Fp64,
        _ => DataType::Bytes,
    }
}

fn survey(message: &[u8], contents: &[Span]) -> Result<[List; 8]> {
    let mut lists = [List::default(); 8];
    for &span in contents {
        let mut fields = FieldReader::within(message, span);
        while let Some((number, value)) = fields.field()? {
            let packed = match (number, value) {
                (8, WireValue::Length(_)) => None,
                (1..=7, WireValue::Length(elements)) if elements.len() > 0 => Some(elements),
                (1..=5, WireValue::Varint(_)) | (6, WireValue::Fixed32(_)) | (7, WireValue::Fixed64(_)) => None,
                _ => continue,
            };
            if let Some(list) = lists.get_mut(number as usize - 1) {
                if list.pieces == 0 {
                    list.packed = packed;
                }
                list.pieces = list.pieces.saturating_add(1);
            }
        }
    }
    Ok(lists)
}

fn convert(message: &Bytes, contents: &[Span], number: u32, list: List, datatype: DataType) -> Result<Data> {
    // Packed floats, and booleans of one byte each, are in the binary form already.
    if let List { pieces: 1, packed: Some(elements) } = list {
        let as_it_is = match datatype {
            DataType::Fp32 | DataType::Fp64 => elements.len().is_multiple_of(datatype.byte_size().unwrap_or(1)),
            DataType::Bool => elements.of(message).iter().all(|&b| b < 2),
            _ => false,
        };
        if as_it_is {
            return Ok(Data::Bytes(elements.slice(message)));
        }
    }
    let mut out = Vec::new();
    for &span in contents {
        let mut fields = FieldReader::within(message, span);
        while let Some((n, value)) = fields.field()? {
            if n != number {
                continue;
            }
            match value {
                WireValue::Length(element) if number == 8 => {
                    allowance::reserve(&mut out, 4 + element.len())?;
                    strings::push(&mut out, element.of(message));
                }
                WireValue::Length(elements) => unpack(message, elements, datatype, &mut out)?,
                WireValue::Varint(v) if number <= 5 => {
                    allowance::reserve(&mut out, 8)?;
                    push(&mut out, v, datatype);
                }
                WireValue::Fixed32(v) if number == 6 => out.extend_from_slice(&v),
                WireValue::Fixed64(v) if number == 7 => out.extend_from_slice(&v),
                _ => {}
            }
        }
    }
    Ok(Data::Bytes(out.into()))
}

fn unpack(message: &[u8], span: Span, datatype: DataType, out: &mut Vec<u8>) -> Result<()> {
    let bytes = span.of(message);
    let element_bytes = datatype.byte_size().unwrap_or(1);
    if let DataType::Fp32 | DataType::Fp64 = datatype {
        if !bytes.len().is_multiple_of(element_bytes) {
            return Err(malformed("a packed list ends inside a number", message.len()));
        }
        allowance::reserve(out, bytes.len())?;
        out.extend_from_slice(bytes);
        return Ok(());
    }
    // The last byte of a varint is its only byte below 0x80.
    let elements = bytes.iter().filter(|&&b| b < 0x80).count();
    allowance::reserve(out, elements * element_bytes)?;
    let mut values = FieldReader::within(message, span);
    while !values.is_done() {
        push(out, values.varint()?, datatype);
    }
    Ok(())
}

/// Appends the low bytes of an integer without a range check, as Triton does.
#[inline]
fn push(out: &mut Vec<u8>, value: u64, datatype: DataType) {
    match datatype {
        DataType::Bool => out.push(u8::from(value != 0)),
        DataType::Int8 | DataType::Uint8 => out.push(value as u8),
        DataType::Int16 | DataType::Uint16 => out.extend_from_slice(&(value as u16).to_le_bytes()),
        DataType::Int32 | DataType::Uint32 => out.extend_from_slice(&(value as u32).to_le_bytes()),
        _ => out.extend_from_slice(&value.to_le_bytes()),
    }
}
