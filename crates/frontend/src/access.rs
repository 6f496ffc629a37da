//! Operations as the gate sees them, and restricted APIs (P 1.15, P 2.6): a category may require a header with a
//! secret. Compiled once; a request costs one array access.

use options::Restriction;
use std::sync::Arc;
use tensor::{Error, Result};

pub use ::access::Act;
/// Category of operations that may be restricted: the verbs of keys.
pub use ::access::Verb as Category;

/// Finds a header of a request, by its name in lower case and its index among the headers of that name, from 0.
pub type Headers<'h, 'a> = &'h dyn Fn(&str, usize) -> Option<&'a [u8]>;

/// The operation that a request asks for.
#[derive(Debug, Clone, Copy)]
pub struct Ask<'a> {
    pub category: Category,
    pub act: Act,
    /// The named model; `None` if only the body names it.
    pub model: Option<&'a str>,
    /// The body of the HTTP request names it. `Grant::admit_model` follows.
    pub is_in_body: bool,
    /// True for what shows the whole server. Callers from the network need a secret for it.
    pub is_near: bool,
}

impl<'a> Ask<'a> {
    /// Asks for an operation that is not for this machine alone.
    pub fn new(category: Category, act: Act, model: Option<&'a str>) -> Self {
        Self { category, act, model, is_in_body: false, is_near: false }
    }
}

#[derive(Debug, Clone)]
pub struct RequiredHeader {
    /// Header name as it was configured.
    pub header: Arc<str>,
    /// The same in lower case, as metadata is on the wire.
    pub name: String,
    value: Vec<u8>,
}

impl RequiredHeader {
    /// True if `value`, the first header of that name, is the secret. Takes the same time wherever the values differ.
    pub fn admits(&self, value: Option<&[u8]>) -> bool {
        let Some(value) = value else { return false };
        value.len() == self.value.len() && value.iter().zip(&self.value).fold(0, |d, (a, b)| d | (a ^ b)) == 0
    }
}

/// The rules of one front end.
#[derive(Debug, Default)]
pub struct Restrictions([Option<RequiredHeader>; Category::ALL.len()]);

impl Restrictions {
    /// Compiles the groups of a front end, which calls a category an `api` (HTTP) or a `protocol` (gRPC).
    ///
    /// # Errors
    /// INVALID_ARG for a category that does not exist or is in two groups.
    pub fn new(noun: &str, groups: &[Restriction]) -> Result<Self> {
        let mut rules = Self::default();
        for group in groups {
            for api in &group.apis {
                let slot = Category::of_name(api).and_then(|c| rules.0.get_mut(c as usize));
                let Some(slot) = slot else {
                    return Err(Error::invalid(format!("unknown restricted {noun} '{api}' ")));
                };
                if slot.is_some() {
                    return Err(Error::invalid(format!(
                        "restricted {noun} '{api}' can not be specified in multiple config groups"
                    )));
                }
                *slot = Some(RequiredHeader {
                    header: group.key.as_str().into(),
                    name: group.key.to_ascii_lowercase(),
                    value: group.value.clone().into_bytes(),
                });
            }
        }
        Ok(rules)
    }

    /// Whether nothing is restricted.
    pub fn is_empty(&self) -> bool {
        self.0.iter().all(Option::is_none)
    }

    pub fn rule(&self, category: Category) -> Option<&RequiredHeader> {
        self.0.get(category as usize)?.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(apis: &[&str], key: &str, value: &str) -> Restriction {
        Restriction { apis: apis.iter().map(|a| (*a).to_owned()).collect(), key: key.into(), value: value.into() }
    }

    #[test]
    fn a_category_requires_exactly_its_value() {
        let r = Restrictions::new("protocol", &[group(&["trace", "model-config"], "secret", "sesame")]).unwrap();
        let rule = r.rule(Category::Trace).unwrap();
        assert_eq!((&*rule.header, &*rule.name), ("secret", "secret"));
        assert!(rule.admits(Some(b"sesame")));
        for wrong in [None, Some(&b""[..]), Some(b"sesamE"), Some(b"sesame ")] {
            assert!(!rule.admits(wrong), "{wrong:?}");
        }
        assert!(r.rule(Category::Health).is_none());
    }

    #[test]
    fn a_category_must_exist_and_be_in_one_group() {
        let refused = |groups: &[Restriction]| Restrictions::new("protocol", groups).unwrap_err().message().to_owned();
        assert_eq!(
            refused(&[group(&["trace"], "a", "b"), group(&["trace"], "c", "d")]),
            "restricted protocol 'trace' can not be specified in multiple config groups"
        );
        assert_eq!(refused(&[group(&["nope"], "a", "b")]), "unknown restricted protocol 'nope' ");
    }
}
