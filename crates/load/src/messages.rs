//! Messages of gRPC as far as a load generator looks into them: prefixes, and of a `ModelStreamInferResponse` whether
//! it is an error and whether it is the last of its request. Pure.

use crate::plan::AnyError;
use bytes::{BufMut, Bytes, BytesMut};

/// Bytes before each message: a flag for compression, and the length.
pub const PREFIX_BYTES: usize = 5;

/// A message with its prefix, not compressed.
pub fn framed(message: &Bytes) -> Bytes {
    let mut frame = BytesMut::with_capacity(message.len() + PREFIX_BYTES);
    frame.put_u8(0);
    frame.put_u32(message.len() as u32);
    frame.extend_from_slice(message);
    frame.freeze()
}

/// Length of the message whose prefix begins `bytes`; `None` while that is incomplete.
pub fn message_bytes(bytes: &[u8]) -> Result<Option<usize>, AnyError> {
    match bytes.first_chunk::<PREFIX_BYTES>() {
        None => Ok(None),
        Some(&[0, a, b, c, d]) => Ok(Some(u32::from_be_bytes([a, b, c, d]) as usize)),
        Some([flag, ..]) => {
            Err(format!("a message with the compression flag {flag}, but compression was not negotiated").into())
        }
    }
}

/// A `ModelStreamInferResponse`.
#[derive(Debug, PartialEq, Eq, Default)]
pub struct StreamResponse<'a> {
    /// Empty: none.
    pub error: &'a str,
    /// The message has outputs, or is not the last one: an empty last one is no response.
    pub is_response: bool,
    /// `triton_final_response` is true.
    pub is_final: bool,
}

/// Reads such a message.
pub fn stream_response(message: &[u8]) -> Result<StreamResponse<'_>, AnyError> {
    let mut found = StreamResponse::default();
    let mut has_outputs = false;
    fields(message, |field| {
        match field {
            (1, FieldValue::Bytes(text)) => {
                found.error = std::str::from_utf8(text).unwrap_or("an error that is not text")
            }
            // `infer_response`: outputs, their contents, parameters.
            (2, FieldValue::Bytes(response)) => fields(response, |field| {
                match field {
                    (5 | 6, _) => has_outputs = true,
                    (4, FieldValue::Bytes(entry)) => found.is_final |= is_final(entry)?,
                    _ => {}
                }
                Ok(())
            })?,
            _ => {}
        }
        Ok(())
    })?;
    found.is_response = has_outputs || !found.is_final;
    Ok(found)
}

/// Whether an entry of the parameters says that this is the final response.
fn is_final(entry: &[u8]) -> Result<bool, AnyError> {
    let (mut is_named, mut is_true) = (false, false);
    fields(entry, |field| {
        match field {
            (1, FieldValue::Bytes(name)) => is_named = name == b"triton_final_response",
            (2, FieldValue::Bytes(parameter)) => fields(parameter, |field| {
                is_true |= matches!(field, (1, FieldValue::Number(1..)));
                Ok(())
            })?,
            _ => {}
        }
        Ok(())
    })?;
    Ok(is_named && is_true)
}

enum FieldValue<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

/// Calls `each` with the number and the value of every field.
fn fields<'a>(
    mut bytes: &'a [u8],
    mut each: impl FnMut((u64, FieldValue<'a>)) -> Result<(), AnyError>,
) -> Result<(), AnyError> {
    let cut = || AnyError::from("a message that is not protobuf");
    while !bytes.is_empty() {
        let key = varint(&mut bytes).ok_or_else(cut)?;
        let length = match key & 7 {
            0 => {
                each((key >> 3, FieldValue::Number(varint(&mut bytes).ok_or_else(cut)?)))?;
                continue;
            }
            1 => 8,
            2 => usize::try_from(varint(&mut bytes).ok_or_else(cut)?)?,
            5 => 4,
            _ => return Err(cut()),
        };
        let (value, rest) = bytes.split_at_checked(length).ok_or_else(cut)?;
        bytes = rest;
        if key & 7 == 2 {
            each((key >> 3, FieldValue::Bytes(value)))?;
        }
    }
    Ok(())
}

fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (&byte, rest) = bytes.split_first()?;
        *bytes = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

/// `grpc-message` without its percent encoding.
pub fn unescaped(text: &[u8]) -> String {
    let digit = |at: usize| text.get(at).and_then(|&b| char::from(b).to_digit(16));
    let (mut out, mut at) = (Vec::with_capacity(text.len()), 0);
    while let Some(&byte) = text.get(at) {
        match (byte, digit(at + 1), digit(at + 2)) {
            (b'%', Some(high), Some(low)) => {
                out.push((high << 4 | low) as u8);
                at += 3;
            }
            _ => {
                out.push(byte);
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn field(number: u8, value: &[u8]) -> Vec<u8> {
        [&[number << 3 | 2, value.len() as u8], value].concat()
    }

    fn parameter(name: &str, value: u8) -> Vec<u8> {
        field(4, &[field(1, name.as_bytes()), field(2, &[8, value])].concat())
    }

    fn check(message: &[u8], error: &str, is_response: bool, is_final: bool) {
        let found = stream_response(message).expect("a message");
        assert_eq!(found, StreamResponse { error, is_response, is_final });
    }

    #[test]
    fn responses_errors_and_ends_are_told_apart() {
        let outputs = [field(1, b"repeat"), field(5, b""), field(6, &[1, 2, 3, 4])].concat();
        let of = |parts: &[Vec<u8>]| field(2, &parts.concat());
        check(&of(std::slice::from_ref(&outputs)), "", true, false);
        check(&of(&[outputs.clone(), parameter("triton_final_response", 1)]), "", true, true);
        check(&of(&[parameter("triton_final_response", 0), outputs]), "", true, false);
        check(&of(&[parameter("triton_final_response", 1)]), "", false, true);
        check(&of(&[parameter("another", 1)]), "", true, false);
        check(&field(1, b"no model"), "no model", true, false);
    }

    #[test]
    fn what_is_no_message_is_an_error() {
        for bytes in [&[0x12, 5, 1][..], &[0xff; 11], &[0x0b], &[0x12, 2, 0x22, 9]] {
            assert!(stream_response(bytes).is_err(), "{bytes:?}");
        }
        assert!(message_bytes(&[1, 0, 0, 0, 0]).is_err());
        assert_eq!(message_bytes(&framed(&Bytes::from_static(b"four"))).expect("a prefix"), Some(4));
    }

    #[test]
    fn texts_of_failures_are_readable() {
        assert_eq!(unescaped(b"a%20b%0Ac 100%"), "a b\nc 100%");
        assert_eq!(unescaped("100 %2".as_bytes()), "100 %2");
    }
}
