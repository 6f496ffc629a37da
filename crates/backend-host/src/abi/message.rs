//! `TRITONSERVER_Message`: a JSON text. Nothing here parses it.

use super::exports::{Count, Items, Lent, Out, exports, objects};

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
    "attr" fn TRITONSERVER_MessageNewFromSerializedJson(
        message: Out<*mut Message>,
        base: Items<u8>,
        byte_size: Count<usize>,
    ) => message.give(Message::new(base.of(byte_size)));

    "attr" delete TRITONSERVER_MessageDelete(Message);

    "attr" fn TRITONSERVER_MessageSerializeToJson(message: &Message, base: Out<Lent<u8>>, byte_size: Out<usize>) {
        let text = message.text();
        base.put(text.as_ptr());
        byte_size.put(text.len());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::abi::exports::library::{bytes_at, pass, to};
    use std::ptr::{null, null_mut};

    #[test]
    fn a_message_keeps_its_bytes_and_ends_with_a_zero() {
        for text in [&b"{\"a\":1}"[..], b"{\"a\":", b"", b"{} x", b" { } ", b"\xff"] {
            let (mut message, mut base, mut bytes) = (null_mut(), null(), 99);
            let new = TRITONSERVER_MessageNewFromSerializedJson(to(&mut message), pass(text.as_ptr()), text.len());
            assert!(new.is_null());
            assert!(TRITONSERVER_MessageSerializeToJson(pass(message), to(&mut base), to(&mut bytes)).is_null());
            assert_eq!(bytes, text.len());
            assert_eq!(bytes_at(base, bytes + 1), [text, b"\0"].concat());
            assert!(TRITONSERVER_MessageDelete(pass(message)).is_null());
        }
    }
}
