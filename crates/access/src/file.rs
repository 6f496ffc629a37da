//! Reads the JSON of a keys file into types without invalid values. An error has the line and the field.

use crate::bucket::Rate;
use crate::limits::{
    BYTES_MAX, CONCURRENCY_MAX, FILE_BYTES_MAX, HASHES_MAX, KEYS_MAX, MODELS_MAX, NAME_CHARS_MAX, REQUESTS_MAX,
    SCOPES_MAX,
};
use crate::meter::Quota;
use crate::scope::{Pattern, Scope, Scopes, Verbs};
use crate::time;
use crate::token::Hash;
use serde::Deserialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use std::collections::HashSet;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

/// Most characters of the field and of the reason in an error.
const TEXT_CHARS_MAX: usize = 400;

/// Name of the caller without a key.
pub(crate) const ANONYMOUS: &str = "anonymous";

/// An error in a keys file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileError {
    /// Line, from 1; 0 for the file as a whole.
    pub line: usize,
    /// Column, from 1.
    pub column: usize,
    /// Path of the field, such as `keys[2].quota.burst`; empty for the file as a whole.
    pub field: String,
    /// Reason of the error, and the expected value.
    pub reason: String,
}

impl fmt::Display for FileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { line, column, field, reason } = self;
        if *line > 0 {
            write!(f, "line {line}, column {column}: ")?;
        }
        if !field.is_empty() {
            write!(f, "{field}: ")?;
        }
        f.write_str(reason)
    }
}

impl std::error::Error for FileError {}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct File {
    #[serde(default)]
    pub anonymous: Option<Object<Anonymous>>,
    #[serde(default)]
    pub keys: Entries<KeyEntry>,
    #[serde(default)]
    pub oidc: Option<Object<Oidc>>,
}

/// The caller without a key.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Anonymous {
    pub scopes: Scopes,
    #[serde(default)]
    pub quota: Quota,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct KeyEntry {
    pub name: Name,
    pub sha256: Hashes,
    pub scopes: Scopes,
    #[serde(default)]
    pub quota: Quota,
    #[serde(default)]
    pub expires: Option<Expires>,
    #[serde(default = "yes")]
    pub enabled: bool,
}

/// Permissions of the tokens of an issuer.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Oidc {
    pub rules: Entries<Rule>,
}

/// Permissions of the tokens with a certain claim; the first matching rule applies.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Rule {
    pub name: Name,
    /// Name of the claim; `None` = that of `--oidc-scopes`.
    #[serde(default)]
    pub claim: Option<Text>,
    pub value: Text,
    pub scopes: Scopes,
    #[serde(default)]
    pub quota: Quota,
}

fn yes() -> bool {
    true
}

impl File {
    pub fn parse(text: &[u8]) -> Result<Self, FileError> {
        let whole = |reason: String| FileError { line: 0, column: 0, field: String::new(), reason };
        if text.len() > FILE_BYTES_MAX {
            return Err(whole(format!("a keys file has at most {FILE_BYTES_MAX} bytes")));
        }
        // Some editors begin a file with a byte order mark.
        let text = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text);
        let mut reader = serde_json::Deserializer::from_slice(text);
        let Object(file): Object<Self> = serde_path_to_error::deserialize(&mut reader).map_err(|error| {
            let field = match error.path().to_string() {
                // The file as a whole, or a value that ended before its name.
                path if path == "." || path == "?" => String::new(),
                path => path,
            };
            FileError::new(field, error.inner())
        })?;
        reader.end().map_err(|error| FileError::new(String::new(), &error))?;
        file.check().map_err(whole)?;
        Ok(file)
    }

    /// Checks that keys and rules have different names.
    fn check(&self) -> Result<(), String> {
        let rules = self.oidc.iter().flat_map(|oidc| &oidc.0.rules.0);
        let mut names: HashSet<_> = self.keys.0.iter().map(|key| &*key.name.0).collect();
        match rules.map(|rule| &*rule.name.0).find(|name| !names.insert(name)) {
            Some(name) => Err(format!("oidc.rules: the name '{name}' occurs twice")),
            None => Ok(()),
        }
    }
}

impl FileError {
    fn new(field: String, error: &serde_json::Error) -> Self {
        let (line, column) = (error.line(), error.column());
        let text = error.to_string();
        let at = format!(" at line {line} column {column}");
        let reason = text.strip_suffix(&at).unwrap_or(&text);
        let ended = reason.strip_prefix("EOF while parsing ").map(|what| format!("the file ends while {what} is read"));
        let reason = ended.as_deref().unwrap_or(reason);
        // Both repeat names in the file, which may have any length.
        let short = |text: &str| text.chars().take(TEXT_CHARS_MAX).collect();
        Self { line, column, field: short(&field), reason: short(reason) }
    }
}

/// A value that must be an object. Without it serde would also accept a list of the fields, in order.
pub(crate) struct Object<T>(pub T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Fields<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for Fields<T> {
            type Value = Object<T>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }
            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Object<T>, A::Error> {
                T::deserialize(MapAccessDeserializer::new(map)).map(Object)
            }
        }
        deserializer.deserialize_map(Fields(PhantomData))
    }
}

/// A list of items with different names.
pub(crate) struct Entries<T>(pub Vec<T>);

impl<T> Default for Entries<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

/// An item with a unique name and perhaps unique hashes.
trait NamedItem {
    fn name(&self) -> &str;
    fn hashes(&self) -> &[Hash] {
        &[]
    }
}

impl NamedItem for KeyEntry {
    fn name(&self) -> &str {
        &self.name.0
    }
    fn hashes(&self) -> &[Hash] {
        &self.sha256.0
    }
}

impl NamedItem for Rule {
    fn name(&self) -> &str {
        &self.name.0
    }
}

impl<'de, T: NamedItem + Deserialize<'de>> Deserialize<'de> for Entries<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct List<T>(PhantomData<T>);
        impl<'de, T: NamedItem + Deserialize<'de>> Visitor<'de> for List<T> {
            type Value = Entries<T>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of entries")
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Entries<T>, A::Error> {
                let (mut entries, mut names, mut places) = (Vec::<T>::new(), HashSet::new(), HashSet::new());
                // Checked here instead of after the list, so that the error has the line of the item.
                while let Some(Object(entry)) = list.next_element::<Object<T>>()? {
                    if entries.len() == KEYS_MAX {
                        return Err(A::Error::custom(format!("there are more than {KEYS_MAX}")));
                    }
                    if !names.insert(entry.name().to_owned()) {
                        return Err(A::Error::custom(format!("the name '{}' occurs twice", entry.name())));
                    }
                    if entry.hashes().iter().any(|hash| !places.insert(hash.place())) {
                        return Err(A::Error::custom(format!("the hash of '{}' occurs twice", entry.name())));
                    }
                    entries.push(entry);
                }
                Ok(Entries(entries))
            }
        }
        deserializer.deserialize_seq(List(PhantomData))
    }
}

/// Name of a key, for logs, metrics and errors.
#[derive(Deserialize)]
#[serde(try_from = "String")]
pub(crate) struct Name(pub Arc<str>);

impl TryFrom<String> for Name {
    type Error = String;
    fn try_from(text: String) -> Result<Self, String> {
        let is_plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-');
        if text.is_empty() || text.len() > NAME_CHARS_MAX || !text.bytes().all(is_plain) {
            return Err(format!("a name has 1 to {NAME_CHARS_MAX} letters, digits, dots, dashes and underscores"));
        }
        if text == ANONYMOUS {
            return Err(format!("'{ANONYMOUS}' is the name for callers without a key"));
        }
        Ok(Self(text.into()))
    }
}

#[derive(Deserialize, Clone, PartialEq, Eq)]
#[serde(try_from = "String")]
pub(crate) struct Text(pub Box<str>);

impl TryFrom<String> for Text {
    type Error = String;
    fn try_from(text: String) -> Result<Self, String> {
        if text.is_empty() || text.len() > 256 {
            return Err("has 1 to 256 characters".into());
        }
        Ok(Self(text.into()))
    }
}

/// One hash, or several during a rotation of the key.
#[derive(Deserialize)]
#[serde(try_from = "OneOrMore")]
pub(crate) struct Hashes(pub Vec<Hash>);

#[derive(Deserialize)]
#[serde(untagged, expecting = "expected a string, or a list of strings")]
enum OneOrMore {
    One(String),
    More(Vec<String>),
}

impl TryFrom<OneOrMore> for Hashes {
    type Error = String;
    fn try_from(texts: OneOrMore) -> Result<Self, String> {
        let texts = match texts {
            OneOrMore::One(text) => vec![text],
            OneOrMore::More(texts) => texts,
        };
        if texts.is_empty() || texts.len() > HASHES_MAX {
            return Err(format!("a key has 1 to {HASHES_MAX} hashes"));
        }
        // The error does not repeat the text, which may be a key in place of its hash.
        let read = |text: &String| {
            Hash::from_hex(text).ok_or("a hash is 64 hexadecimal digits, as sha256sum and nereid key print them")
        };
        Ok(Self(texts.iter().map(read).collect::<Result<_, _>>()?))
    }
}

/// Seconds since 1970.
#[derive(Deserialize)]
#[serde(try_from = "String")]
pub(crate) struct Expires(pub u64);

impl TryFrom<String> for Expires {
    type Error = &'static str;
    fn try_from(text: String) -> Result<Self, &'static str> {
        time::parse(&text).map(Self).ok_or("a time is written as 2027-01-31 or 2027-01-31T12:00:00Z, in UTC")
    }
}

impl<'de> Deserialize<'de> for Scopes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let scopes: Vec<Scope> = Deserialize::deserialize(deserializer)?;
        if scopes.len() > SCOPES_MAX {
            return Err(D::Error::custom(format!("there are more than {SCOPES_MAX} scopes")));
        }
        Ok(Self(scopes.into()))
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawScope {
    verbs: Vec<OneVerb>,
    #[serde(default)]
    models: Option<Vec<Pattern>>,
}

#[derive(Deserialize)]
#[serde(try_from = "String")]
struct OneVerb(Verbs);

impl TryFrom<String> for OneVerb {
    type Error = String;
    fn try_from(text: String) -> Result<Self, String> {
        let names = crate::scope::Verb::ALL.map(crate::scope::Verb::name).join(", ");
        Verbs::parse(&text)
            .map(Self)
            .ok_or_else(|| format!("a verb is one of all, {names}, or one of these followed by ':read'"))
    }
}

impl TryFrom<String> for Pattern {
    type Error = String;
    fn try_from(text: String) -> Result<Self, String> {
        Self::parse(&text)
    }
}

impl<'de> Deserialize<'de> for Pattern {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::parse(&String::deserialize(deserializer)?).map_err(D::Error::custom)
    }
}

impl<'de> Deserialize<'de> for Scope {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Object(raw) = Object::<RawScope>::deserialize(deserializer)?;
        let verbs = raw.verbs.iter().fold(Verbs::default(), |all, verb| all.and(verb.0));
        if raw.models.as_ref().is_some_and(|models| models.is_empty() || models.len() > MODELS_MAX) {
            return Err(D::Error::custom(format!(
                "a scope has 1 to {MODELS_MAX} models; without the field it is for all"
            )));
        }
        if let (Some(_), Some(verb)) = (&raw.models, verbs.of_server()) {
            return Err(D::Error::custom(format!(
                "{verb} is not for single models: give it in a scope without models"
            )));
        }
        Ok(Self { verbs, models: raw.models.map(Vec::into_boxed_slice) })
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawQuota {
    #[serde(default)]
    concurrency: Option<u32>,
    #[serde(default)]
    bytes_per_second: Option<u64>,
    #[serde(default)]
    requests_per_second: Option<f64>,
    #[serde(default)]
    burst: Option<f64>,
}

impl<'de> Deserialize<'de> for Quota {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Object(raw) = Object::<RawQuota>::deserialize(deserializer)?;
        let RawQuota { concurrency, bytes_per_second, requests_per_second, burst } = raw;
        let outside =
            |field: &str, least: &str, most: String| D::Error::custom(format!("{field} is {least} to {most}"));
        if concurrency.is_some_and(|n| n == 0 || n > CONCURRENCY_MAX) {
            return Err(outside("concurrency", "1", CONCURRENCY_MAX.to_string()));
        }
        if bytes_per_second.is_some_and(|n| n == 0 || n > BYTES_MAX) {
            return Err(outside("bytes_per_second", "1", BYTES_MAX.to_string()));
        }
        if requests_per_second.is_some_and(|n| !(0.001..=REQUESTS_MAX).contains(&n)) {
            return Err(outside("requests_per_second", "0.001", REQUESTS_MAX.to_string()));
        }
        if burst.is_some_and(|n| !(1.0..=REQUESTS_MAX).contains(&n)) {
            return Err(outside("burst", "1", REQUESTS_MAX.to_string()));
        }
        if burst.is_some() && requests_per_second.is_none() {
            return Err(D::Error::custom("burst needs requests_per_second"));
        }
        Ok(Self {
            concurrency,
            // The burst is the amount of one second.
            bytes: bytes_per_second.map(|rate| Rate::new(rate as f64, rate as f64)),
            requests: requests_per_second.map(|rate| Rate::new(rate, burst.unwrap_or(rate.max(1.0)))),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HASH: &str = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

    /// The error without its column, which tells where the reader was, a character more or less.
    fn refused(text: &str) -> String {
        let error =
            File::parse(text.replace("HASH", HASH).as_bytes()).err().unwrap_or_else(|| panic!("{text} is taken"));
        error.to_string().replace(&format!(", column {}", error.column), "")
    }

    #[test]
    fn an_error_has_the_line_the_field_and_the_expected_value() {
        for (text, error) in [
            ("", "line 1: the file ends while a value is read"),
            ("[]", "line 1: invalid type: sequence, expected an object"),
            ("{}\n{}", "line 2: trailing characters"),
            ("{\n \"kes\": []\n}", "line 2: kes: unknown field `kes`, expected one of `anonymous`, `keys`, `oidc`"),
            (
                "{\"keys\": [\n{\"name\": \"a b\"}]}",
                "line 2: keys[0].name: a name has 1 to 64 letters, digits, dots, dashes and underscores",
            ),
            (
                "{\"keys\": [{\"name\": \"anonymous\"}]}",
                "line 1: keys[0].name: 'anonymous' is the name for callers without a key",
            ),
            (
                "{\"keys\": [{\"name\": \"a\",\n\"sha256\": \"secret\"}]}",
                "line 2: keys[0].sha256: a hash is 64 hexadecimal digits, as sha256sum and nereid key print them",
            ),
            ("{\"keys\": [{\"name\": \"a\",\n\"sha256\": []}]}", "line 2: keys[0].sha256: a key has 1 to 4 hashes"),
            ("{\"keys\": [{\"name\": \"a\",\n\"sha256\": \"HASH\"}]}", "line 2: keys[0]: missing field `scopes`"),
            (
                "{\"anonymous\": {\"scopes\": [{\"verbs\": [\"infer\"]}]}}",
                "line 1: anonymous.scopes[0].verbs[0]: a verb is one of all, health, metadata, inference, \
                 shared-memory, model-config, model-repository, statistics, trace, logging, or one of these followed \
                 by ':read'",
            ),
            (
                "{\"anonymous\": {\"scopes\": [{\"verbs\": [\"logging\"], \"models\": [\"a\"]}]}}",
                "line 1: anonymous.scopes[0]: logging is not for single models: give it in a scope without models",
            ),
            (
                "{\"anonymous\": {\"scopes\": [{\"verbs\": [\"all\"], \"models\": []}]}}",
                "line 1: anonymous.scopes[0]: a scope has 1 to 64 models; without the field it is for all",
            ),
            (
                "{\"anonymous\": {\"scopes\": [], \"quota\": {\"concurrency\": \"8\"}}}",
                "line 1: anonymous.quota.concurrency: invalid type: string \"8\", expected u32",
            ),
            (
                "{\"anonymous\": {\"scopes\": [], \"quota\": {\"concurrency\": 0}}}",
                "line 1: anonymous.quota: concurrency is 1 to 1000000",
            ),
            (
                "{\"anonymous\": {\"scopes\": [], \"quota\": {\"burst\": 3}}}",
                "line 1: anonymous.quota: burst needs requests_per_second",
            ),
            (
                "{\"keys\": [\n{\"name\": \"a\", \"sha256\": \"HASH\", \"scopes\": []},\n\
                 {\"name\": \"b\", \"sha256\": \"HASH\", \"scopes\": []}]}",
                "line 3: keys: the hash of 'b' occurs twice",
            ),
            (
                "{\"keys\": [{\"name\": \"a\", \"sha256\": \"HASH\", \"scopes\": [], \"expires\": \"tomorrow\"}]}",
                "line 1: keys[0].expires: a time is written as 2027-01-31 or 2027-01-31T12:00:00Z, in UTC",
            ),
        ] {
            assert_eq!(refused(text), error, "{text}");
        }
    }

    #[test]
    fn a_byte_order_mark_is_skipped() {
        assert!(File::parse("\u{feff}{\"keys\": []}".as_bytes()).is_ok());
        assert_eq!(refused("\u{feff}\u{feff}{}"), "line 1: expected value");
    }

    #[test]
    fn names_of_keys_and_rules_are_unique() {
        let twice = "{\"keys\": [{\"name\": \"a\", \"sha256\": \"HASH\", \"scopes\": []}, \
                      {\"name\": \"a\", \"sha256\": \"HASH\", \"scopes\": []}]}";
        assert!(refused(twice).ends_with("the name 'a' occurs twice"), "{}", refused(twice));
        let rule = "{\"keys\": [{\"name\": \"a\", \"sha256\": \"HASH\", \"scopes\": []}], \
                     \"oidc\": {\"rules\": [{\"name\": \"a\", \"value\": \"v\", \"scopes\": []}]}}";
        assert_eq!(refused(rule), "oidc.rules: the name 'a' occurs twice");
    }

    #[test]
    fn the_contents_of_a_file_are_limited() {
        let keys = |count: usize| {
            let list: Vec<_> = (0..count)
                .map(|i| format!("{{\"name\": \"k{i}\", \"sha256\": \"{i:064x}\", \"scopes\": []}}"))
                .collect();
            format!("{{\"keys\": [{}]}}", list.join(","))
        };
        // Places are the first bytes.
        assert!(refused(&keys(2)).contains("occurs twice"));
        let keys = |count: usize| {
            let list: Vec<_> = (0..count)
                .map(|i| format!("{{\"name\": \"k{i}\", \"sha256\": \"{i:016x}{0:048x}\", \"scopes\": []}}", 0))
                .collect();
            format!("{{\"keys\": [{}]}}", list.join(","))
        };
        assert!(File::parse(keys(KEYS_MAX).as_bytes()).is_ok());
        assert!(refused(&keys(KEYS_MAX + 1)).ends_with("there are more than 4096"));
        let scopes = vec!["{\"verbs\": []}"; SCOPES_MAX + 1].join(",");
        assert!(
            refused(&format!("{{\"anonymous\": {{\"scopes\": [{scopes}]}}}}"))
                .ends_with("there are more than 64 scopes")
        );
        let long = " ".repeat(FILE_BYTES_MAX + 1);
        assert_eq!(refused(&long), "a keys file has at most 4194304 bytes");
        let deep = format!("{}1", "[".repeat(100_000));
        assert!(refused(&format!("{{\"keys\": {deep}")).contains("expected an object"));
        assert!(
            refused(&format!(
                "{{\"anonymous\": {{\"scopes\": [{{\"verbs\": [], \"models\": [\"{}\"]}}]}}}}",
                "a".repeat(257)
            ))
            .contains("1 to 256")
        );
    }
}
