//! A checked span of JSON text, parsed on access. Type mismatches return the texts of P 1.14.
//!
//! It allocates nothing, and looking up a member scans the object again: meant for small objects and rare requests.

use super::cursor::{Cursor, Number, Text};
use bytes::Bytes;
use tensor::{Error, Name, Result};

/// A JSON value. Invariant: the span is valid JSON without white space around it.
#[derive(Clone, Copy, Debug)]
pub struct Value<'a>(&'a [u8]);

fn mismatch(wanted: &'static str) -> Error {
    Error::malformed(format!("attempt to access JSON non-{wanted} as {wanted}"))
}

impl<'a> Value<'a> {
    /// Checks a whole document.
    ///
    /// # Errors
    /// INTERNAL `failed to parse the request JSON buffer: …`.
    pub fn parse(text: &'a [u8]) -> Result<Self> {
        let mut c = Cursor::document(text)?;
        let span = c.value()?;
        c.end()?;
        Ok(Self(c.slice(span)))
    }

    /// Wraps a span that `Cursor::value` has checked.
    pub(crate) fn checked(span: &'a [u8]) -> Self {
        Self(span)
    }

    /// The text of the value.
    pub fn text(self) -> &'a [u8] {
        self.0
    }

    fn first(self) -> u8 {
        self.0.first().copied().unwrap_or(0)
    }

    /// True for an object.
    pub fn is_object(self) -> bool {
        self.first() == b'{'
    }

    /// True for an array.
    pub fn is_array(self) -> bool {
        self.first() == b'['
    }

    /// True for a string.
    pub fn is_string(self) -> bool {
        self.first() == b'"'
    }

    /// True for `null`.
    pub fn is_null(self) -> bool {
        self.first() == b'n'
    }

    /// The string, still escaped.
    ///
    /// # Errors
    /// `attempt to access JSON non-string as string`.
    pub fn as_text(self) -> Result<Text<'a>> {
        if !self.is_string() {
            return Err(mismatch("string"));
        }
        Ok(Cursor::new(self.0).string()?)
    }

    /// The string as owned UTF-8, with U+FFFD for invalid sequences.
    ///
    /// # Errors
    /// `attempt to access JSON non-string as string`.
    pub fn as_string(self) -> Result<String> {
        Ok(String::from_utf8_lossy(&self.as_text()?.decode()).into_owned())
    }

    /// The string as a name: a slice of `body`, which must contain the value, unless something is escaped.
    ///
    /// # Errors
    /// `attempt to access JSON non-string as string`.
    pub fn as_name(self, body: &Bytes) -> Result<Name> {
        let text = self.as_text()?;
        Ok(name_of(text, body))
    }

    /// The boolean.
    ///
    /// # Errors
    /// `attempt to access JSON non-boolean as boolean`.
    pub fn as_bool(self) -> Result<bool> {
        match self.0 {
            b"true" => Ok(true),
            b"false" => Ok(false),
            _ => Err(mismatch("boolean")),
        }
    }

    /// The number; `None` for other values.
    pub fn number(self) -> Option<Number> {
        matches!(self.first(), b'-' | b'0'..=b'9' | b'N' | b'I').then(|| Cursor::new(self.0).number().ok()).flatten()
    }

    /// The non-negative integer.
    ///
    /// # Errors
    /// `attempt to access JSON non-unsigned-integer as unsigned-integer`.
    pub fn as_u64(self) -> Result<u64> {
        self.number().and_then(Number::as_u64).ok_or_else(|| mismatch("unsigned-integer"))
    }

    /// The integer.
    ///
    /// # Errors
    /// `attempt to access JSON non-signed-integer as signed-integer`.
    pub fn as_i64(self) -> Result<i64> {
        self.number().and_then(Number::as_i64).ok_or_else(|| mismatch("signed-integer"))
    }

    /// The number as a double.
    ///
    /// # Errors
    /// `attempt to access JSON non-number as double`.
    pub fn as_f64(self) -> Result<f64> {
        self.number().map(Number::as_f64).ok_or_else(|| Error::malformed("attempt to access JSON non-number as double"))
    }

    /// The members of an object in document order, with duplicates.
    ///
    /// # Errors
    /// `attempt to get members for non-object`.
    pub fn members(self) -> Result<Members<'a>> {
        if !self.is_object() {
            return Err(Error::malformed("attempt to get members for non-object"));
        }
        let mut cursor = Cursor::new(self.0);
        let more = cursor.open(true);
        Ok(Members { cursor, more })
    }

    /// The value itself, if it is an object.
    ///
    /// # Errors
    /// `attempt to access JSON non-object as object`.
    pub fn as_object(self) -> Result<Self> {
        if self.is_object() { Ok(self) } else { Err(mismatch("object")) }
    }

    /// The elements of an array.
    ///
    /// # Errors
    /// `attempt to access JSON non-array as array`.
    pub fn elements(self) -> Result<Elements<'a>> {
        if !self.is_array() {
            return Err(mismatch("array"));
        }
        let mut cursor = Cursor::new(self.0);
        let more = cursor.open(false);
        Ok(Elements { cursor, more })
    }

    /// The first member called `key`; `None` if there is none or this is not an object.
    pub fn get(self, key: &str) -> Option<Value<'a>> {
        let mut members = self.members().ok()?;
        members.find(|(k, _)| &*k.decode() == key.as_bytes()).map(|(_, v)| v)
    }

    /// The first member called `key`.
    ///
    /// # Errors
    /// `attempt to access non-existing object member '<key>'`.
    pub fn member(self, key: &str) -> Result<Value<'a>> {
        self.get(key).ok_or_else(|| Error::malformed(format!("attempt to access non-existing object member '{key}'")))
    }
}

/// A string as a name, a slice of `body` unless something is escaped. Names end at a zero byte, as C strings do.
pub(crate) fn name_of(text: Text<'_>, body: &Bytes) -> Name {
    if text.escaped {
        let mut decoded = text.decode().into_owned();
        if let Some(end) = memchr::memchr(0, &decoded) {
            decoded.truncate(end);
        }
        return Name::from_utf8_lossy(decoded.into());
    }
    // Outside of `body` only if a caller violates the rule above; a copy is then still correct.
    let inside = body.as_ptr_range().contains(&text.raw.as_ptr()) && !text.raw.is_empty();
    Name::from_utf8_lossy(if inside { body.slice_ref(text.raw) } else { Bytes::copy_from_slice(text.raw) })
}

/// Members of an object.
pub struct Members<'a> {
    cursor: Cursor<'a>,
    more: bool,
}

impl<'a> Iterator for Members<'a> {
    type Item = (Text<'a>, Value<'a>);

    fn next(&mut self) -> Option<Self::Item> {
        if !self.more {
            return None;
        }
        // The span is valid, so `ok()?` never ends the iteration early.
        let key = self.cursor.key().ok()?;
        let span = self.cursor.value().ok()?;
        self.more = self.cursor.another(true).ok()?;
        Some((key, Value(self.cursor.slice(span))))
    }
}

/// Elements of an array.
pub struct Elements<'a> {
    cursor: Cursor<'a>,
    more: bool,
}

impl<'a> Iterator for Elements<'a> {
    type Item = Value<'a>;

    fn next(&mut self) -> Option<Self::Item> {
        if !self.more {
            return None;
        }
        let span = self.cursor.value().ok()?;
        self.more = self.cursor.another(false).ok()?;
        Some(Value(self.cursor.slice(span)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn p105_type_mismatches_have_their_texts() {
        let v = |t: &'static str| Value::parse(t.as_bytes()).unwrap();
        let check = |e: Error, text: &str| assert_eq!(e.message(), text);
        check(v("1").as_string().unwrap_err(), "attempt to access JSON non-string as string");
        check(v("1").as_bool().unwrap_err(), "attempt to access JSON non-boolean as boolean");
        check(v("1.0").as_i64().unwrap_err(), "attempt to access JSON non-signed-integer as signed-integer");
        check(v("-1").as_u64().unwrap_err(), "attempt to access JSON non-unsigned-integer as unsigned-integer");
        check(v("\"1\"").as_f64().unwrap_err(), "attempt to access JSON non-number as double");
        check(v("null").elements().err().unwrap(), "attempt to access JSON non-array as array");
        check(v("[]").as_object().unwrap_err(), "attempt to access JSON non-object as object");
        check(v("[]").members().err().unwrap(), "attempt to get members for non-object");
        check(v("true").member("inputs").unwrap_err(), "attempt to access non-existing object member 'inputs'");
    }

    #[test]
    fn the_first_of_duplicate_keys_counts() {
        let v = Value::parse(br#"{ "a" : 1 , "\u0062":[2,{"a":3}], "a":4}"#).unwrap();
        assert_eq!(v.get("a").unwrap().as_u64().unwrap(), 1);
        assert_eq!(v.get("b").unwrap().elements().unwrap().count(), 2);
        assert_eq!(v.members().unwrap().count(), 3);
    }

    #[test]
    fn a_plain_string_is_a_slice_of_the_body() {
        let body = Bytes::from_static(br#"["abc","a\u0062\u0000c"]"#);
        let v = Value::parse(&body).unwrap();
        let names: Vec<Name> = v.elements().unwrap().map(|e| e.as_name(&body).unwrap()).collect();
        assert_eq!(names, [Name::from_static("abc"), Name::from_static("ab")]);
        assert!(body.as_ptr_range().contains(&names[0].as_bytes().as_ptr()));
    }
}
