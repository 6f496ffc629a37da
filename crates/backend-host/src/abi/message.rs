//! `TRITONSERVER_Message`: a JSON text. Nothing here parses it.

#![allow(unsafe_code)] // pointers of a C API

use super::exports::{Out, exports, objects};
use std::ffi::c_char;

/// A text for a library, or from one. An object may lend `&Message` for as long as it lives.
pub(crate) struct Message {
    /// The text and a zero byte that is not counted: Triton's texts end with one, and some libraries rely on it.
    bytes: Vec<u8>,
}

impl Message {
    pub(crate) fn new(text: impl Into<Vec<u8>>) -> Self {
        let mut bytes = text.into();
        bytes.push(0);
        Self { bytes }
    }

    /// The text. It is whatever a library wrote, valid JSON or not.
    pub(crate) fn text(&self) -> &[u8] {
        self.bytes.split_last().map_or(&[], |(_, text)| text)
    }
}

objects! {
    Message: "message";
}

exports! {
    /// A message with a copy of a text.
    fn TRITONSERVER_MessageNewFromSerializedJson(message: Out<*mut Message>, base: *const c_char, byte_size: usize) {
        // SAFETY: so many bytes; a null text may have no bytes.
        let text = if base.is_null() { &[] } else { unsafe { std::slice::from_raw_parts(base.cast(), byte_size) } };
        message.give(Message::new(text));
    }

    /// Deletes a message.
    fn TRITONSERVER_MessageDelete(message: Option<Box<Message>>) {
        drop(message);
    }

    /// The text of a message, which owns it.
    fn TRITONSERVER_MessageSerializeToJson(message: &Message, base: Out<*const c_char>, byte_size: Out<usize>) {
        let text = message.text();
        base.put(text.as_ptr().cast());
        byte_size.put(text.len());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ptr::{null, null_mut};

    #[test]
    fn a_message_keeps_its_bytes_and_ends_with_a_zero() {
        for text in [&b"{\"a\":1}"[..], b"{\"a\":", b"", b"{} x", b" { } ", b"\xff"] {
            let (mut message, mut base, mut bytes) = (null_mut(), null(), 99);
            // SAFETY: our own variables, and objects that live.
            unsafe {
                assert!(
                    TRITONSERVER_MessageNewFromSerializedJson(&raw mut message, text.as_ptr().cast(), text.len())
                        .is_null()
                );
                assert!(TRITONSERVER_MessageSerializeToJson(message, &raw mut base, &raw mut bytes).is_null());
                assert_eq!(bytes, text.len());
                assert_eq!(std::slice::from_raw_parts(base.cast::<u8>(), bytes), text);
                assert_eq!(*base.add(bytes), 0);
                assert!(TRITONSERVER_MessageDelete(message).is_null());
            }
        }
    }
}
