//! Members of the objects of a body, each as JSON: their digits and the order of keys stay.

use protocol::text::FormError;
use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::fmt;
use tensor::Result;

/// Most values of a body, whose lists and objects take a hundred bytes for each when they are read.
pub const VALUES_MAX: usize = 65_536;

/// Number of values of JSON, at most one too many: its commas, braces and brackets outside of texts.
pub fn values_in(json: &[u8]) -> usize {
    let (mut count, mut rest) = (1, json);
    loop {
        let text = memchr::memchr(b'"', rest).unwrap_or(rest.len());
        let (outside, more) = rest.split_at(text);
        count += outside.iter().filter(|byte| matches!(byte, b',' | b'{' | b'[')).count();
        let Some(mut inside) = more.get(1..) else { return count };
        // The text ends at a quotation mark that no backslash hides.
        loop {
            match memchr::memchr2(b'"', b'\\', inside) {
                Some(at) if inside.get(at) == Some(&b'"') => {
                    rest = inside.get(at + 1..).unwrap_or_default();
                    break;
                }
                Some(at) => inside = inside.get(at + 2..).unwrap_or_default(),
                None => return count,
            }
        }
    }
}

/// Checks the number of values.
///
/// # Errors
/// INVALID_ARG, as a [`FormError`], above [`VALUES_MAX`].
pub fn check_values(count: usize) -> Result<(), FormError> {
    if count <= VALUES_MAX {
        return Ok(());
    }
    let text = format!("the body has {count} values: at most {VALUES_MAX} are supported");
    Err(FormError { field: None, text: text.into(), is_empty: false })
}

/// Members of an object, each as JSON.
#[derive(Default)]
pub(crate) struct BodyMembers<'b>(pub(crate) Vec<(Cow<'b, str>, &'b RawValue)>);

impl<'de: 'b, 'b> Deserialize<'de> for BodyMembers<'b> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Read;
        impl<'de> Visitor<'de> for Read {
            type Value = BodyMembers<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a JSON object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut all = Vec::new();
                while let Some(MemberName(name)) = map.next_key()? {
                    all.push((name, map.next_value()?));
                }
                Ok(BodyMembers(all))
            }
        }
        deserializer.deserialize_map(Read)
    }
}

#[derive(Deserialize)]
struct MemberName<'k>(#[serde(borrow)] Cow<'k, str>);

impl<'b> BodyMembers<'b> {
    pub(crate) fn get(&self, name: &str) -> Option<&'b RawValue> {
        self.given(name).filter(|value| value.get() != "null")
    }

    pub(crate) fn given(&self, name: &str) -> Option<&'b RawValue> {
        self.0.iter().rev().find(|(other, _)| other == name).map(|(_, value)| *value)
    }

    pub(crate) fn read<T: Deserialize<'b>>(&self, name: &'static str) -> Result<Option<T>, FormError> {
        let Some(value) = self.get(name) else { return Ok(None) };
        serde_json::from_str(value.get()).map(Some).map_err(|error| FormError::of(name, shown(&error)))
    }

    pub(crate) fn flag(&self, name: &str) -> Option<bool> {
        self.get(name).map(|value| value.get() == "true")
    }

    pub(crate) fn integer(&self, name: &str) -> Option<i64> {
        integer(self.get(name)?.get())
    }
}

/// The text of an error without its place, which is that in a part of the body.
pub(crate) fn shown(error: &serde_json::Error) -> String {
    let text = error.to_string();
    text.rsplit_once(" at line ").map_or(text.clone(), |(text, _)| text.to_owned())
}

/// An integer, which may be written as `5.0`.
pub fn integer(text: &str) -> Option<i64> {
    let whole = text.split_once('.').filter(|(_, rest)| !rest.is_empty() && rest.bytes().all(|b| b == b'0'));
    whole.map_or(text, |(whole, _)| whole).parse().ok()
}

/// The beginning of a value, for an error.
pub(crate) fn cut(value: &str) -> Cow<'_, str> {
    match value.char_indices().nth(40) {
        Some((end, _)) => format!("{}…", value.get(..end).unwrap_or_default()).into(),
        None => value.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_counted_outside_of_texts() {
        let check = |json: &str, expected| assert_eq!(values_in(json.as_bytes()), expected, "{json}");
        check("1", 1);
        check("[1,2,3]", 4);
        check(r#"{"a,[{": "b,\\", "c": [], "d\"e,": {}}"#, 6);
        check(r#"["unclosed, "#, 2);
        check("", 1);
    }
}
