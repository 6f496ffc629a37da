//! The texts of a request, read from JSON straight into the binary form of a BYTES tensor.

use super::TEXTS_MAX;
use bytes::Bytes;
use serde::de::{Deserialize, DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use std::borrow::Cow;
use std::fmt;
use tensor::allowance;

/// Texts, or token ids in place of them: a string, a list of strings, a list of ids, or a list of lists of ids. A
/// member may also be an object with a `text`, as documents are written.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Texts {
    /// Elements as a BYTES tensor has them: a length of four bytes, and the text or the ids as little-endian `u32`.
    raw: Vec<u8>,
    /// Where each element ends in `raw`.
    ends: Vec<usize>,
    /// The elements are token ids.
    pub has_ids: bool,
    /// There was one text, or one list of ids, and no list around it.
    pub is_single: bool,
}

/// Kind of a list, known from its first member.
#[derive(Clone, Copy, PartialEq)]
enum Members {
    Texts,
    /// The list itself is one text.
    Ids,
    ListsOfIds,
}

impl Texts {
    /// Number of texts.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Bytes of the tensor.
    pub fn bytes(&self) -> usize {
        self.raw.len()
    }

    /// The elements as they are in the tensor, with their lengths.
    fn elements(&self) -> impl Iterator<Item = &[u8]> {
        let begins = std::iter::once(0).chain(self.ends.iter().copied());
        begins.zip(&self.ends).map(|(begin, &end)| self.raw.get(begin..end).unwrap_or_default())
    }

    /// The texts. Without ids only.
    pub fn iter(&self) -> impl Iterator<Item = Cow<'_, str>> {
        self.elements().map(|element| String::from_utf8_lossy(element.get(4..).unwrap_or_default()))
    }

    /// Whether a text is empty, or a list of ids.
    pub fn has_empty(&self) -> bool {
        self.elements().any(|element| element.len() == 4)
    }

    /// Appends all texts of another request part.
    ///
    /// # Errors
    /// RESOURCE_EXHAUSTED.
    pub fn extend(&mut self, other: &Self) -> tensor::Result<()> {
        allowance::reserve(&mut self.raw, other.raw.len())?;
        let before = self.raw.len();
        self.raw.extend_from_slice(&other.raw);
        self.ends.extend(other.ends.iter().map(|end| before + end));
        Ok(())
    }

    /// Number of pairs of `left` and `right` texts by their places. One text is paired with each of the other side.
    ///
    /// # Errors
    /// INVALID_ARG for other numbers.
    pub fn pair_count(left: usize, right: usize) -> tensor::Result<usize> {
        if left == right || left.min(right) == 1 {
            return Ok(left.max(right));
        }
        let text =
            format!("{left} and {right} texts cannot be paired: expected the same number of both, or one of either");
        Err(tensor::Error::invalid(text))
    }

    /// Pairs of texts, each of two elements; see [`pair_count`](Self::pair_count). `bytes_max`: bytes of all pairs.
    ///
    /// # Errors
    /// INVALID_ARG for other numbers of texts, and above `bytes_max`.
    pub fn pairs(&self, second: &Self, bytes_max: usize) -> tensor::Result<Self> {
        let count = Self::pair_count(self.len(), second.len())?;
        let times = |texts: &Self| texts.bytes().saturating_mul(if texts.len() == 1 { count } else { 1 });
        let bytes = times(self).saturating_add(times(second));
        if bytes > bytes_max {
            return Err(tensor::Error::invalid(format!(
                "{count} pairs of texts have {bytes} bytes, which exceeds the maximum allowed input size of \
                 {bytes_max}. Use --http-max-input-size to increase the limit."
            )));
        }
        let mut pairs = Self { ends: Vec::with_capacity(count), ..Self::default() };
        allowance::grow_by(&mut pairs.raw, bytes)?;
        let element = |texts: &Self, at: usize| {
            let at = if texts.len() == 1 { 0 } else { at };
            at.checked_sub(1).and_then(|before| texts.ends.get(before)).copied().unwrap_or(0)
                ..texts.ends.get(at).copied().unwrap_or(0)
        };
        for at in 0..count {
            pairs.raw.extend_from_slice(self.raw.get(element(self, at)).unwrap_or_default());
            pairs.raw.extend_from_slice(second.raw.get(element(second, at)).unwrap_or_default());
            pairs.ends.push(pairs.raw.len());
        }
        Ok(pairs)
    }

    /// The tensor, and where each text (or pair) ends in it.
    pub fn into_tensor(self) -> (Bytes, Vec<usize>) {
        (self.raw.into(), self.ends)
    }

    fn push<E: Error>(&mut self, text: &[u8]) -> Result<(), E> {
        let at = self.begin()?;
        allowance::reserve(&mut self.raw, text.len()).map_err(E::custom)?;
        self.raw.extend_from_slice(text);
        self.end(at)
    }

    /// Begins an element; returns the place behind its length.
    fn begin<E: Error>(&mut self) -> Result<usize, E> {
        if self.len() >= TEXTS_MAX {
            return Err(E::custom(format_args!("more than {TEXTS_MAX} texts, which is the limit of a request")));
        }
        self.raw.extend_from_slice(&[0; 4]);
        Ok(self.raw.len())
    }

    fn end<E: Error>(&mut self, begin: usize) -> Result<(), E> {
        let length = u32::try_from(self.raw.len() - begin).map_err(|_| E::custom("a text of more than 4 GiB"))?;
        if let Some(place) = begin.checked_sub(4).and_then(|from| self.raw.get_mut(from..begin)) {
            place.copy_from_slice(&length.to_le_bytes());
        }
        self.ends.push(self.raw.len());
        Ok(())
    }

    fn push_id<E: Error>(&mut self, id: u64) -> Result<(), E> {
        let id = u32::try_from(id)
            .map_err(|_| E::custom(format_args!("{id} is not a token id: the largest is {}", u32::MAX)))?;
        allowance::reserve(&mut self.raw, 4).map_err(E::custom)?;
        self.raw.extend_from_slice(&id.to_le_bytes());
        Ok(())
    }
}

impl From<&str> for Texts {
    fn from(text: &str) -> Self {
        let mut texts = Self { is_single: true, ..Self::default() };
        // One text of less than 4 GiB.
        let _ = texts.push::<serde::de::value::Error>(text.as_bytes());
        texts
    }
}

impl<'de> Deserialize<'de> for Texts {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(TextsVisitor)
    }
}

struct TextsVisitor;

impl<'de> Visitor<'de> for TextsVisitor {
    type Value = Texts;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a valid string, a list of strings, or token ids")
    }

    fn visit_unit<E: Error>(self) -> Result<Texts, E> {
        Err(E::custom(super::NO_STRING))
    }

    fn visit_u64<E: Error>(self, _: u64) -> Result<Texts, E> {
        self.visit_unit()
    }

    fn visit_f64<E: Error>(self, _: f64) -> Result<Texts, E> {
        self.visit_unit()
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Texts, E> {
        let mut texts = Texts { is_single: true, ..Texts::default() };
        texts.push(text.as_bytes())?;
        Ok(texts)
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Texts, A::Error> {
        let mut texts = Texts { is_single: true, ..Texts::default() };
        document(&mut texts, map)?;
        Ok(texts)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Texts, A::Error> {
        let (mut texts, mut members) = (Texts::default(), None);
        while list.next_element_seed(Member { texts: &mut texts, members: &mut members })?.is_some() {}
        texts.has_ids = matches!(members, Some(Members::Ids | Members::ListsOfIds));
        if members == Some(Members::Ids) {
            texts.is_single = true;
            texts.end(4)?;
        }
        Ok(texts)
    }
}

/// Reads one member of a list.
struct Member<'t> {
    texts: &'t mut Texts,
    members: &'t mut Option<Members>,
}

impl Member<'_> {
    /// Notes what the member is. Returns whether it is the first.
    fn is<E: Error>(&mut self, kind: Members) -> Result<bool, E> {
        match *self.members {
            None => {
                *self.members = Some(kind);
                Ok(true)
            }
            Some(known) if known == kind => Ok(false),
            Some(_) => Err(E::custom("texts and token ids, or lists and single ids, in one list")),
        }
    }
}

impl<'de> DeserializeSeed<'de> for Member<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Member<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string, a token id, or a list of token ids")
    }

    fn visit_str<E: Error>(mut self, text: &str) -> Result<(), E> {
        self.is(Members::Texts)?;
        self.texts.push(text.as_bytes())
    }

    fn visit_map<A: MapAccess<'de>>(mut self, map: A) -> Result<(), A::Error> {
        self.is(Members::Texts)?;
        document(self.texts, map)
    }

    fn visit_u64<E: Error>(mut self, id: u64) -> Result<(), E> {
        if self.is(Members::Ids)? {
            self.texts.begin()?;
        }
        self.texts.push_id(id)
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut list: A) -> Result<(), A::Error> {
        self.is(Members::ListsOfIds)?;
        let begin = self.texts.begin()?;
        while let Some(id) = list.next_element::<u64>()? {
            self.texts.push_id(id)?;
        }
        self.texts.end(begin)
    }
}

/// Reads the `text` of a document: Cohere's and Jina's, and a content of type `text`.
fn document<'de, A: MapAccess<'de>>(texts: &mut Texts, mut map: A) -> Result<(), A::Error> {
    let before = texts.len();
    while let Some(key) = map.next_key::<Cow<'de, str>>()? {
        if key == "text" && texts.len() == before {
            texts.push(map.next_value::<Cow<'_, str>>()?.as_bytes())?;
        } else {
            map.next_value::<IgnoredAny>()?;
        }
    }
    if texts.len() == before { Err(A::Error::missing_field("text")) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Number of texts, the elements, whether they are ids, whether it is one.
    fn read(json: &str) -> Result<(Vec<Vec<u8>>, bool, bool), String> {
        let texts: Texts = serde_json::from_str(json).map_err(|error| error.to_string())?;
        let elements = texts.elements().map(|element| {
            let (length, rest) = element.split_first_chunk().unwrap();
            assert_eq!(u32::from_le_bytes(*length) as usize, rest.len());
            rest.to_vec()
        });
        Ok((elements.collect(), texts.has_ids, texts.is_single))
    }

    fn check(json: &str, expected: &[&[u8]], has_ids: bool, is_single: bool) {
        let expected = expected.iter().map(|element| element.to_vec()).collect();
        assert_eq!(read(json), Ok((expected, has_ids, is_single)), "{json}");
    }

    #[test]
    fn texts_and_token_ids_are_read_in_each_form() {
        check(r#""a""#, &[b"a"], false, true);
        check(r#""""#, &[b""], false, true);
        check(r#"["a", "\u00e9\n", ""]"#, &[b"a", "é\n".as_bytes(), b""], false, false);
        check("[]", &[], false, false);
        check("[1, 256]", &[&[1, 0, 0, 0, 0, 1, 0, 0]], true, true);
        check("[[1], [], [4294967295]]", &[&[1, 0, 0, 0], b"", &[255; 4]], true, false);
        check(
            r#"[{"text": "a", "id": {"x": [1]}}, "b", {"type": "text", "text": "\u0063"}]"#,
            &[b"a", b"b", b"c"],
            false,
            false,
        );
    }

    #[test]
    fn other_values_are_rejected() {
        for (json, expected) in [
            ("null", "Input should be a valid string"),
            ("1", "Input should be a valid string"),
            ("1.5", "Input should be a valid string"),
            ("[1, \"a\"]", "in one list"),
            ("[[1], 1]", "in one list"),
            ("[1, [1]]", "in one list"),
            ("[[\"a\"]]", "invalid type"),
            ("[1.0]", "invalid type"),
            ("[-1]", "invalid"),
            ("[4294967296]", "is not a token id"),
            ("[9007199254740993]", "is not a token id"),
            ("[1e300]", "invalid type"),
            ("[[true]]", "invalid type"),
            (r#""\ud800""#, "hex escape"),
            (r#"["\ud800\u0041"]"#, "surrogate"),
            (r#"["\udc00"]"#, "surrogate"),
            (r#"[{"title": "a"}]"#, "missing field `text`"),
            ("[", "EOF"),
        ] {
            let error = read(json).unwrap_err();
            assert!(error.contains(expected), "{json}: {error}");
        }
        assert!(serde_json::from_slice::<Texts>(b"[\"\xff\"]").is_err(), "broken UTF-8");
        let deep = "[".repeat(1 << 20);
        assert!(read(&deep).is_err());
        let many = format!("[{}0]", "0,".repeat(TEXTS_MAX));
        assert_eq!(read(&many).unwrap().0.len(), 1, "ids of one text");
        let many = format!("[{}\"\"]", "\"\",".repeat(TEXTS_MAX));
        assert!(read(&many).unwrap_err().contains("65536 texts"));
    }

    #[test]
    fn pairs_are_made_of_equal_numbers_or_of_one_and_many() {
        let texts = |json: &str| serde_json::from_str::<Texts>(json).unwrap();
        let pairs = |a: &str, b: &str| texts(a).pairs(&texts(b), 40);
        let check = |a: &str, b: &str, expected: &[&[u8]]| {
            let pairs = pairs(a, b).unwrap();
            assert_eq!(pairs.elements().collect::<Vec<_>>(), expected, "{a} {b}");
        };
        check(r#""q""#, r#"["a", "bc"]"#, &[b"\x01\0\0\0q\x01\0\0\0a", b"\x01\0\0\0q\x02\0\0\0bc"]);
        check(r#"["a", "b"]"#, r#""c""#, &[b"\x01\0\0\0a\x01\0\0\0c", b"\x01\0\0\0b\x01\0\0\0c"]);
        check(r#"["a", "b"]"#, r#"["c", "d"]"#, &[b"\x01\0\0\0a\x01\0\0\0c", b"\x01\0\0\0b\x01\0\0\0d"]);
        assert!(pairs(r#"["a", "b"]"#, r#"["c", "d", "e"]"#).unwrap_err().message().contains("2 and 3 texts"));
        assert!(pairs(r#""a""#, "[]").is_err() && pairs("[]", r#""a""#).is_err());
        let long = pairs(r#""0123456789""#, r#"["a", "b", "c"]"#).unwrap_err();
        assert!(long.message().contains("57 bytes") && long.message().contains("--http-max-input-size"), "{long}");
    }
}
