//! `map<string, InferParameter>` of a request (P 2.4), and of a tensor, where only shared memory and classification
//! have a meaning (P 2.3, M 1.7).

use std::collections::BTreeMap;

use bytes::Bytes;
use smallvec::SmallVec;
use tensor::{Error, Name, RegionRef, Result};

use super::wire::{FieldReader, Span, WireValue};
use crate::{CorrelationId, InferRequest, Parameter, Regions};

/// Bytes of the longest correlation id that is a string.
const SEQUENCE_ID_BYTES_MAX: usize = 128;
/// Largest number of entries that are searched linearly.
const SCAN_MAX: usize = 16;
const EMPTY_FINAL_RESPONSE: &str = "triton_enable_empty_final_response";

/// Value of an `InferParameter`; strings are ranges of the message.
#[derive(Clone, Copy, Debug)]
pub(super) enum Choice {
    Unset,
    Bool(bool),
    Int(i64),
    String(Span),
    Double(f64),
    Uint(u64),
}

#[derive(Clone, Copy, Debug)]
pub(super) struct ParameterEntry<'a> {
    key: &'a str,
    choice: Choice,
}

pub(super) type Entries<'a> = SmallVec<[ParameterEntry<'a>; 4]>;

/// Reads one entry. A missing key is "", a missing value is `Unset`.
pub(super) fn entry(message: &[u8], span: Span) -> Result<ParameterEntry<'_>> {
    let mut entry = ParameterEntry { key: "", choice: Choice::Unset };
    let mut fields = FieldReader::within(message, span);
    while let Some(field) = fields.field()? {
        match field {
            (1, WireValue::Length(key)) => entry.key = key.text(message)?,
            // A repeated value is merged; of a oneof the later member wins.
            (2, WireValue::Length(value)) => {
                if let Some(choice) = choice(message, value)? {
                    entry.choice = choice;
                }
            }
            _ => {}
        }
    }
    Ok(entry)
}

fn choice(message: &[u8], span: Span) -> Result<Option<Choice>> {
    let mut choice = None;
    let mut fields = FieldReader::within(message, span);
    while let Some(field) = fields.field()? {
        choice = Some(match field {
            (1, WireValue::Varint(v)) => Choice::Bool(v != 0),
            (2, WireValue::Varint(v)) => Choice::Int(v as i64),
            (3, WireValue::Length(text)) => {
                text.text(message)?;
                Choice::String(text)
            }
            (4, WireValue::Fixed64(v)) => Choice::Double(f64::from_le_bytes(v)),
            (5, WireValue::Varint(v)) => Choice::Uint(v),
            _ => continue,
        });
    }
    Ok(choice)
}

/// Reads the entries of a request's map: one per key, with the last value, in the order of the keys' first occurrence.
pub(super) fn entries<'a>(message: &'a [u8], spans: &[Span]) -> Result<Entries<'a>> {
    let mut entries = Entries::new();
    // Only used for so many keys that a linear search would cost more than the request itself.
    let mut index: BTreeMap<&str, usize> = BTreeMap::new();
    for &span in spans {
        let new = entry(message, span)?;
        let known = match spans.len() {
            0..=SCAN_MAX => entries.iter().position(|e| e.key == new.key),
            _ => index.get(new.key).copied(),
        };
        match known.and_then(|i| entries.get_mut(i)) {
            Some(old) => *old = new,
            None => {
                if spans.len() > SCAN_MAX {
                    index.insert(new.key, entries.len());
                }
                entries.push(new);
            }
        }
    }
    Ok(entries)
}

/// True if the client wants a separate message for a final flag without a response (P 2.5).
pub(super) fn wants_empty_final_response(entries: &[ParameterEntry<'_>]) -> bool {
    entries.iter().any(|e| e.key == EMPTY_FINAL_RESPONSE && matches!(e.choice, Choice::Bool(true)))
}

/// Applies every entry to the request (P 2.4).
pub(super) fn apply(message: &Bytes, entries: &[ParameterEntry<'_>], request: &mut InferRequest) -> Result<()> {
    for &ParameterEntry { key, choice } in entries {
        match (key, choice) {
            ("sequence_id", Choice::Int(id)) => request.sequence.id = CorrelationId::Number(id as u64),
            ("sequence_id", Choice::String(id)) => {
                if id.len() > SEQUENCE_ID_BYTES_MAX {
                    return Err(Error::unsupported("string correlation ID cannot be longer than 128 characters"));
                }
                request.sequence.id = CorrelationId::String(id.name(message)?);
            }
            ("sequence_id", _) => return Err(wrong_type(key, "int64_param or string_param")),
            ("sequence_start", Choice::Bool(v)) => request.sequence.start = v,
            ("sequence_end", Choice::Bool(v)) => request.sequence.end = v,
            ("sequence_start" | "sequence_end", _) => return Err(wrong_type(key, "bool_param")),
            ("priority", Choice::Int(v)) => {
                let v = u64::try_from(v);
                request.priority =
                    v.map_err(|_| Error::invalid("invalid value for 'priority', expected value >= 0."))?;
            }
            ("priority", Choice::Uint(v)) => request.priority = v,
            ("priority", _) => return Err(wrong_type(key, "int64_param or uint64_param")),
            // A negative value becomes huge, as in Triton, which equals no timeout.
            ("timeout", Choice::Int(v)) => request.timeout_us = v as u64,
            ("timeout", _) => return Err(wrong_type(key, "int64_param")),
            // Read by `wants_empty_final_response`; not passed to the model.
            (EMPTY_FINAL_RESPONSE, Choice::Bool(_)) => {}
            (EMPTY_FINAL_RESPONSE, _) => return Err(wrong_type(key, "bool_param")),
            _ if key.starts_with("triton_") => {
                return Err(Error::invalid(
                    "parameter keys starting with 'triton_' are reserved for Triton usage. Only the following keys \
                     starting with 'triton_' are allowed: triton_enable_empty_final_response",
                ));
            }
            _ => {
                let value = match choice {
                    Choice::Bool(v) => Parameter::Bool(v),
                    Choice::Int(v) => Parameter::Int(v),
                    Choice::String(v) => Parameter::String(v.name(message)?),
                    Choice::Double(v) => Parameter::Double(v),
                    Choice::Uint(_) | Choice::Unset => {
                        return Err(wrong_type(key, "int64_param, bool_param, or string_param"));
                    }
                };
                request.parameters.push((name_of(message, key), value));
            }
        }
    }
    Ok(())
}

/// A shared view of a key that is borrowed from `message`.
fn name_of(message: &Bytes, key: &str) -> Name {
    // `slice_ref` requires a slice of the same memory, which an empty key need not be.
    if key.is_empty() {
        return Name::new();
    }
    Name::from_utf8_lossy(message.slice_ref(key.as_bytes()))
}

#[cold]
fn wrong_type(key: &str, expected: &str) -> Error {
    Error::invalid(format!("invalid value type for '{key}' parameter, expected {expected}."))
}

/// The parameters of a tensor that the server uses; others are ignored.
#[derive(Default, Debug)]
pub(super) struct TensorParameters {
    region: Option<Choice>,
    offset: Option<Choice>,
    byte_size: Option<Choice>,
    classification: Option<Choice>,
}

impl TensorParameters {
    /// Reads one entry; the last of equal keys wins.
    pub fn read(&mut self, message: &[u8], span: Span) -> Result<()> {
        let ParameterEntry { key, choice } = entry(message, span)?;
        match key {
            "shared_memory_region" => self.region = Some(choice),
            "shared_memory_offset" => self.offset = Some(choice),
            "shared_memory_byte_size" => self.byte_size = Some(choice),
            "classification" => self.classification = Some(choice),
            _ => {}
        }
        Ok(())
    }

    /// The tensor's range of shared memory, if it has one. Checks in the order of memory.md 1.7.
    pub fn window(&self, tensor: &str) -> Result<Option<Window>> {
        if self.region.is_none() && self.offset.is_none() && self.byte_size.is_none() {
            return Ok(None);
        }
        let region = match self.region {
            None => None,
            Some(Choice::String(name)) => Some(name),
            Some(_) => return Err(wrong_tensor_type("shared_memory_region", tensor, "string_param")),
        };
        let number = |key: &str, choice: Option<Choice>| match choice {
            None => Ok(None),
            Some(_) if region.is_none() => Err(Error::invalid(format!(
                "'{key}' can not be specified without 'shared_memory_region' parameter for tensor '{tensor}'"
            ))),
            // The cast makes a negative number huge, and so outside of every region.
            Some(Choice::Int(v)) => Ok(Some(v as u64)),
            Some(_) => Err(wrong_tensor_type(key, tensor, "int64_param")),
        };
        let offset = number("shared_memory_offset", self.offset)?.unwrap_or(0);
        let byte_size = number("shared_memory_byte_size", self.byte_size)?;
        match (region, byte_size) {
            (Some(region), Some(byte_size)) => Ok(Some(Window { region, offset, byte_size })),
            (Some(_), None) => Err(Error::invalid(format!(
                "'shared_memory_byte_size' must be specified along with 'shared_memory_region' parameter for tensor \
                 '{tensor}'"
            ))),
            (None, _) => Ok(None),
        }
    }

    /// Number of requested classes; 0 = the tensor itself.
    pub fn classes(&self) -> Result<u32> {
        match self.classification {
            None => Ok(0),
            Some(Choice::Int(v)) if v <= 0 => {
                Err(Error::invalid("invalid value for 'classification' parameter, expected >= 0"))
            }
            // More classes than elements select all elements.
            Some(Choice::Int(v)) => Ok(u32::try_from(v).unwrap_or(u32::MAX)),
            Some(_) => Err(Error::invalid("invalid value type for 'classification' parameter, expected int64_param")),
        }
    }
}

/// A range of a region as the client described it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Window {
    region: Span,
    offset: u64,
    byte_size: u64,
}

impl Window {
    /// Finds the memory and keeps it mapped.
    pub fn resolve(self, message: &[u8], regions: &dyn Regions) -> Result<RegionRef> {
        regions.resolve(self.region.text(message)?, self.offset, self.byte_size)
    }
}

#[cold]
fn wrong_tensor_type(key: &str, tensor: &str, expected: &str) -> Error {
    Error::invalid(format!("invalid value type for '{key}' parameter for tensor '{tensor}', expected {expected}."))
}
