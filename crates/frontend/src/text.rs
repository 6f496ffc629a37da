//! Small texts: JSON for arguments of control operations and short replies; shortened errors.

use crate::limits::ERROR_TEXT_BYTES_MAX;
use base64::Engine as _;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use bytes::Bytes;
use protocol::json::write_string;
use std::borrow::Cow;
use tensor::{Error, Result};

/// A JSON object or array that is being written.
pub struct Text(Vec<u8>);

impl Text {
    pub fn begin(open: u8) -> Self {
        let mut text = Vec::with_capacity(64);
        text.push(open);
        Self(text)
    }

    /// Writes a comma, except at the beginning and after an opening bracket or a colon.
    fn separate(&mut self) {
        if !matches!(self.0.last(), None | Some(b'{' | b'[' | b':')) {
            self.0.push(b',');
        }
    }

    /// Writes `"key":`, to be followed by a value.
    pub fn key(&mut self, key: &str) -> &mut Self {
        self.separate();
        write_string(&mut self.0, key.as_bytes());
        self.0.push(b':');
        self
    }

    pub fn string(&mut self, value: &str) -> &mut Self {
        self.separate();
        write_string(&mut self.0, value.as_bytes());
        self
    }

    /// Writes JSON text unchanged.
    pub fn raw(&mut self, json: &[u8]) -> &mut Self {
        self.separate();
        self.0.extend_from_slice(json);
        self
    }

    pub fn boolean(&mut self, value: bool) -> &mut Self {
        self.raw(if value { b"true" } else { b"false" })
    }

    pub fn integer(&mut self, value: impl itoa::Integer) -> &mut Self {
        let mut digits = itoa::Buffer::new();
        let digits = digits.format(value).to_owned();
        self.raw(digits.as_bytes())
    }

    pub fn open(&mut self, open: u8) -> &mut Self {
        self.separate();
        self.0.push(open);
        self
    }

    pub fn close(&mut self, close: u8) -> &mut Self {
        self.0.push(close);
        self
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// # Errors
    /// INVALID_ARG if it contains bytes of a client that are not UTF-8: replacing them would change its names.
    pub fn into_string(self) -> Result<String> {
        String::from_utf8(self.0).map_err(|_| Error::invalid("the request holds text that is not UTF-8"))
    }

    pub fn into_bytes(self) -> Bytes {
        self.0.into()
    }
}

/// Shortens an error text to [`ERROR_TEXT_BYTES_MAX`]: names that a client sent may be long.
pub fn cut(text: &str) -> Cow<'_, str> {
    if text.len() <= ERROR_TEXT_BYTES_MAX {
        return Cow::Borrowed(text);
    }
    let end = (0..=ERROR_TEXT_BYTES_MAX).rev().find(|&at| text.is_char_boundary(at)).unwrap_or(0);
    let (start, rest) = text.split_at(end);
    Cow::Owned(format!("{start}… ({} bytes more)", rest.len()))
}

/// Decodes base64 of either alphabet, padded or not.
pub fn decode_base64(text: &[u8]) -> Option<Vec<u8>> {
    const LENIENT: GeneralPurposeConfig =
        GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent);
    let alphabets = [base64::alphabet::STANDARD, base64::alphabet::URL_SAFE];
    alphabets.iter().find_map(|alphabet| GeneralPurpose::new(alphabet, LENIENT).decode(text).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commas_go_between_and_nowhere_else() {
        let mut t = Text::begin(b'{');
        t.key("a").string("x\"").key("b").open(b'[').integer(1).integer(2).open(b'{').close(b'}').close(b']');
        t.key("c").boolean(true).key("d").open(b'{').close(b'}').close(b'}');
        assert_eq!(t.into_string().unwrap(), r#"{"a":"x\"","b":[1,2,{}],"c":true,"d":{}}"#);
    }
}
