//! Scopes of a key: verbs, each for some models or for all.

use crate::limits::{MODEL_BYTES_MAX, PATTERN_CHARS_MAX};
use std::fmt;

/// Kind of an operation. The names are those of Triton's restricted APIs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Verb {
    Health,
    Metadata,
    Inference,
    SharedMemory,
    ModelConfig,
    ModelRepository,
    Statistics,
    Trace,
    Logging,
}

impl Verb {
    /// Every verb, in the order of its number.
    pub const ALL: [Self; 9] = [
        Self::Health,
        Self::Metadata,
        Self::Inference,
        Self::SharedMemory,
        Self::ModelConfig,
        Self::ModelRepository,
        Self::Statistics,
        Self::Trace,
        Self::Logging,
    ];

    /// The verb of this name.
    pub fn of_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|verb| verb.name() == name)
    }

    /// Name in a keys file.
    pub fn name(self) -> &'static str {
        match self {
            Self::Health => "health",
            Self::Metadata => "metadata",
            Self::Inference => "inference",
            Self::SharedMemory => "shared-memory",
            Self::ModelConfig => "model-config",
            Self::ModelRepository => "model-repository",
            Self::Statistics => "statistics",
            Self::Trace => "trace",
            Self::Logging => "logging",
        }
    }

    /// True for the management of the server, which the control address serves.
    pub fn is_of_control(self) -> bool {
        matches!(self, Self::ModelRepository | Self::SharedMemory | Self::Trace | Self::Logging)
    }

    /// True if the verb never applies to one model.
    fn is_of_server(self) -> bool {
        matches!(self, Self::SharedMemory | Self::Logging)
    }
}

/// Effect of a request on the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Act {
    /// No change; inference and the status of shared memory are reads.
    Read,
    /// Loads, unloads, registers or sets something.
    Write,
}

/// Object of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Of<'a> {
    /// The server, or all models.
    Server,
    /// This model.
    Model(&'a str),
    /// A model in a message that is not read yet: allowed if any model is. A check of [`Of::Model`] follows.
    Message,
}

/// A set of verbs with their acts: two bits per verb.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Verbs(u32);

impl Verbs {
    fn bit(verb: Verb, act: Act) -> u32 {
        1 << (verb as u32 * 2 + u32::from(act == Act::Write))
    }

    /// Parses `inference`, `trace:read`, `all` or `all:read`.
    pub fn parse(text: &str) -> Option<Self> {
        let (name, reads_only) = match text.strip_suffix(":read") {
            Some(name) => (name, true),
            None => (text, false),
        };
        let wanted = |verb: &&Verb| name == "all" || verb.name() == name;
        let verbs = Verb::ALL.iter().filter(wanted).fold(0, |bits, &verb| {
            bits | Self::bit(verb, Act::Read) | if reads_only { 0 } else { Self::bit(verb, Act::Write) }
        });
        (verbs != 0).then_some(Self(verbs))
    }

    pub fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    fn has(self, verb: Verb, act: Act) -> bool {
        self.0 & Self::bit(verb, act) != 0
    }

    /// The first verb of this set that never applies to a model; `None` for the set of all verbs.
    pub fn of_server(self) -> Option<Verb> {
        let all = Verb::ALL.iter().all(|&verb| self.has(verb, Act::Read));
        Verb::ALL.into_iter().find(|&verb| !all && verb.is_of_server() && self.has(verb, Act::Read))
    }
}

/// A pattern for names of models: `*` matches any characters, `?` matches one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Pattern(Box<str>);

impl Pattern {
    pub fn parse(text: &str) -> Result<Self, String> {
        if text.is_empty() || text.chars().count() > PATTERN_CHARS_MAX {
            return Err(format!("a model's name or pattern has 1 to {PATTERN_CHARS_MAX} characters"));
        }
        if text.chars().any(char::is_control) {
            return Err("a model's name or pattern has no control characters".into());
        }
        Ok(Self(text.into()))
    }

    /// True if the pattern matches all of `name`. Takes at most the product of both lengths in steps.
    fn fits(&self, name: &str) -> bool {
        let (pattern, name) = (self.0.as_bytes(), name.as_bytes());
        let (mut p, mut n) = (0, 0);
        // Position of the last star, and the end of its current match.
        let mut star: Option<(usize, usize)> = None;
        loop {
            match (pattern.get(p), name.get(n)) {
                (None, None) => return true,
                (Some(b'*'), _) => {
                    p += 1;
                    star = Some((p, n));
                    continue;
                }
                // Matches a whole character, even of several bytes.
                (Some(b'?'), Some(_)) => {
                    p += 1;
                    n += 1;
                    while name.get(n).is_some_and(|b| b & 0xc0 == 0x80) {
                        n += 1;
                    }
                    continue;
                }
                (Some(a), Some(b)) if a == b => {
                    p += 1;
                    n += 1;
                    continue;
                }
                _ => {}
            }
            match &mut star {
                Some((at, taken)) if *taken < name.len() => {
                    *taken += 1;
                    (p, n) = (*at, *taken);
                }
                _ => return false,
            }
        }
    }
}

/// Verbs for some models, or for all and for the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Scope {
    pub verbs: Verbs,
    /// Patterns for models; `None` = all models and the server itself.
    pub models: Option<Box<[Pattern]>>,
}

impl Scope {
    fn covers(&self, verb: Verb, act: Act, of: Of<'_>) -> bool {
        if !self.verbs.has(verb, act) {
            return false;
        }
        let Some(models) = &self.models else { return true };
        match of {
            Of::Message => !verb.is_of_server(),
            Of::Model(name) => name.len() <= MODEL_BYTES_MAX && models.iter().any(|pattern| pattern.fits(name)),
            // Whether the server is up, and what it is, says nothing of other models. The rest does.
            Of::Server => act == Act::Read && matches!(verb, Verb::Health | Verb::Metadata),
        }
    }
}

/// All scopes of a caller.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Scopes(pub(crate) Box<[Scope]>);

impl Scopes {
    /// True if one of the scopes covers the operation.
    pub fn cover(&self, verb: Verb, act: Act, of: Of<'_>) -> bool {
        self.0.iter().any(|scope| scope.covers(verb, act, of))
    }

    /// `health` of everything: what a keyless caller may do, unless the file says otherwise.
    pub(crate) fn health() -> Self {
        Self(Box::new([Scope { verbs: Verbs::parse("health").unwrap_or_default(), models: None }]))
    }
}

impl fmt::Display for Verb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn scope(verbs: &[&str], models: Option<&[&str]>) -> Scopes {
        let verbs = verbs.iter().fold(Verbs::default(), |all, text| all.and(Verbs::parse(text).unwrap()));
        let models = models.map(|list| list.iter().map(|text| Pattern::parse(text).unwrap()).collect());
        Scopes(Box::new([Scope { verbs, models }]))
    }

    #[test]
    fn verbs_have_the_names_of_restricted_apis_and_a_read_form() {
        for (number, verb) in Verb::ALL.into_iter().enumerate() {
            assert_eq!((Verb::of_name(verb.name()), verb as usize), (Some(verb), number));
            let scopes = scope(&[verb.name()], None);
            assert!(scopes.cover(verb, Act::Write, Of::Server));
            let reads = scope(&[&format!("{verb}:read")], None);
            assert!(reads.cover(verb, Act::Read, Of::Server) && !reads.cover(verb, Act::Write, Of::Server));
            assert!(scope(&["all"], None).cover(verb, Act::Write, Of::Model("m")));
            assert!(!scope(&["all:read"], None).cover(verb, Act::Write, Of::Model("m")));
        }
        for wrong in ["", "infer", "ALL", "trace:write", ":read", "health "] {
            assert_eq!(Verbs::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_scope_with_models_covers_these_and_health_and_metadata_of_the_server() {
        let scopes = scope(&["all"], Some(&["resnet*", "bert"]));
        let read = |verb, of| scopes.cover(verb, Act::Read, of);
        assert!(read(Verb::Inference, Of::Model("resnet50")) && read(Verb::Inference, Of::Model("bert")));
        assert!(!read(Verb::Inference, Of::Model("bertha")) && !read(Verb::Inference, Of::Model("")));
        assert!(read(Verb::Inference, Of::Message) && !read(Verb::Inference, Of::Server));
        assert!(read(Verb::Health, Of::Server) && read(Verb::Metadata, Of::Server));
        // These tell of every model, or belong to none.
        for verb in [Verb::Statistics, Verb::ModelRepository, Verb::Trace, Verb::Logging, Verb::SharedMemory] {
            assert!(!read(verb, Of::Server), "{verb}");
        }
        assert!(!read(Verb::Logging, Of::Message));
        assert!(scopes.cover(Verb::ModelRepository, Act::Write, Of::Model("bert")));
        let long = "resnet".repeat(MODEL_BYTES_MAX);
        assert!(!read(Verb::Inference, Of::Model(&long)));
        assert!(scope(&["inference"], None).cover(Verb::Inference, Act::Read, Of::Model(&long)));
    }

    #[test]
    fn patterns_match_whole_names() {
        for (pattern, name, fits) in [
            ("*", "", true),
            ("a*", "abc", true),
            ("*c", "abcc", true),
            ("a*b*c", "aXbYbZc", true),
            ("a*b*c", "aXbYbZ", false),
            ("a?c", "abc", true),
            ("a?c", "aéc", true),
            ("a?c", "ac", false),
            ("A", "a", false),
            ("ns/*", "ns/m", true),
            ("a.c", "abc", false),
        ] {
            assert_eq!(Pattern::parse(pattern).unwrap().fits(name), fits, "{pattern} {name}");
        }
        assert!(Pattern::parse("").is_err() && Pattern::parse("a\0").is_err());
    }

    /// The naive definition, which takes unbounded time.
    fn fits_plainly(pattern: &[char], name: &[char]) -> bool {
        match (pattern.split_first(), name.split_first()) {
            (None, _) => name.is_empty(),
            (Some(('*', rest)), _) => (0..=name.len()).any(|n| fits_plainly(rest, &name[n..])),
            (Some(_), None) => false,
            (Some((p, rest)), Some((n, name))) => (*p == '?' || p == n) && fits_plainly(rest, name),
        }
    }

    proptest! {
        #[test]
        fn patterns_mean_what_is_written(pattern in "[ab*?é]{1,8}", name in "[abé]{0,8}") {
            let plain = fits_plainly(&pattern.chars().collect::<Vec<_>>(), &name.chars().collect::<Vec<_>>());
            prop_assert_eq!(Pattern::parse(&pattern).unwrap().fits(&name), plain);
        }
    }
}
