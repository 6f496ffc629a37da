//! Bodies and names of requests other than inference.

use crate::limits::JSON_BYTES_ON_REACTOR_MAX;
use crate::offload;
use bytes::Bytes;
use protocol::json::Value;
use std::borrow::Cow;
use tensor::Result;

/// Parses a body; on another thread if it is long.
pub async fn read<T: Send + 'static>(
    body: Bytes,
    work: impl FnOnce(&Bytes) -> Result<T> + Send + 'static,
) -> Result<T> {
    let bytes = body.len();
    offload::run_if(bytes > JSON_BYTES_ON_REACTOR_MAX, bytes, move || work(&body)).await?
}

/// A body that may be missing.
pub fn optional(body: &Bytes) -> Result<Option<Value<'_>>> {
    if body.is_empty() { Ok(None) } else { Value::parse(body).map(Some) }
}

/// The first value of this name in a query, percent-decoded; empty if there is none.
pub fn query_value<'q>(query: &'q [u8], name: &str) -> Cow<'q, str> {
    let pairs = query.split(|&b| b == b'&').filter_map(|pair| std::str::from_utf8(pair).ok()?.split_once('='));
    pairs.filter(|(key, _)| *key == name).map(|(_, value)| percent_decode(value)).next().unwrap_or_default()
}

/// Decodes `%XX`. An invalid escape stays as it is, and so does a text that does not decode to UTF-8.
pub fn percent_decode(text: &str) -> Cow<'_, str> {
    if !text.contains('%') {
        return Cow::Borrowed(text);
    }
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, tail)) = rest.split_first() {
        let digits = tail.get(..2).and_then(|d| std::str::from_utf8(d).ok());
        let decoded =
            digits.filter(|d| byte == b'%' && !d.starts_with('+')).and_then(|d| u8::from_str_radix(d, 16).ok());
        out.push(decoded.unwrap_or(byte));
        rest = if decoded.is_some() { tail.get(2..).unwrap_or_default() } else { tail };
    }
    String::from_utf8(out).map_or(Cow::Borrowed(text), Cow::Owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn region_names_are_decoded_once() {
        for (text, expected) in [
            ("a", "a"),
            ("a%20b", "a b"),
            ("100%", "100%"),
            ("%zz", "%zz"),
            ("%2541", "%41"),
            ("%ff", "%ff"),
            ("%+1", "%+1"),
        ] {
            assert_eq!(percent_decode(text), expected);
        }
    }
}
