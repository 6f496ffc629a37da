//! Table of known models and versions with their states. Read on every request without a lock, copied on every change.

use crate::version::ModelVersion;
use protocol::text::TokenIds;
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use tensor::{Error, Result};

/// State of a version as the repository index prints it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum VersionState {
    Unknown,
    Ready,
    /// The version failed to load.
    Unavailable,
    /// Taken out of service on purpose. The index prints it as UNAVAILABLE with the reason "unloaded".
    Unloaded,
    Loading,
    Unloading,
}

impl VersionState {
    /// Names in `src/native/names.ts`.
    const NAMES: [(Self, &str); 6] = [
        (Self::Unknown, "UNKNOWN"),
        (Self::Ready, "READY"),
        (Self::Unavailable, "UNAVAILABLE"),
        (Self::Unloaded, "UNLOADED"),
        (Self::Loading, "LOADING"),
        (Self::Unloading, "UNLOADING"),
    ];

    /// Parses a name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::NAMES.iter().find(|(_, known)| *known == name).map(|(state, _)| *state)
    }

    /// The name of the state.
    pub fn name(self) -> &'static str {
        Self::NAMES.iter().find(|(state, _)| *state == self).map_or("UNKNOWN", |(_, name)| name)
    }
}

/// Table key of a model, number of a version, its state and the reason: of a READY version, why it cannot be used now.
pub type VersionRow = (String, i64, VersionState, String);

/// State of the server, as reported by health checks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum ServerState {
    /// Loading its first models.
    Initializing = 0,
    /// Serving.
    Ready = 1,
    /// Finishing requests in flight; new ones are rejected.
    Exiting = 2,
    /// The start failed, but the server was told to stay: it responds, but has no models.
    Failed = 3,
    /// Like `Initializing`, with open ports: the server is live, and not ready.
    Loading = 4,
    /// The server is about to end: it is not ready, and answers requests, as load balancers send for a moment longer.
    Leaving = 5,
}

#[derive(Clone, Default)]
pub(crate) struct Table {
    /// By name, or by `<repository>/<name>`, which is no valid name, if repositories are namespaces.
    pub(crate) models: HashMap<String, ModelEntry>,
    /// For each name in a namespace, its keys in `models`.
    in_namespaces: HashMap<String, BTreeSet<String>>,
    /// Number of versions that are neither ready nor unloaded, and of models without any version. Updated on changes,
    /// so that strict readiness costs the same with any number of models.
    unready: usize,
    /// Serving versions that may not be ready, because their models respond later or are on devices.
    may_be_unready: Vec<Arc<ModelVersion>>,
    /// Aliases of serving text models: the model and the tokenizer of token ids. Updated on changes.
    pub(crate) aliases: BTreeMap<String, (String, TokenIds)>,
    /// Number of changes. Tables of one engine with the same number are the same.
    pub(crate) epoch: u64,
}

#[derive(Clone, Default)]
pub(crate) struct ModelEntry {
    pub(crate) versions: BTreeMap<i64, VersionEntry>,
    /// Highest READY version, so that most requests do not search.
    latest: Option<Arc<ModelVersion>>,
    /// The share of this model in `Table::unready`.
    counted: usize,
}

#[derive(Clone)]
pub(crate) struct VersionEntry {
    pub(crate) state: VersionState,
    pub(crate) reason: String,
    pub(crate) serving: Option<Arc<ModelVersion>>,
    /// The load that is UNLOADING, so that the end of an earlier one does not end its state.
    pub(crate) leaving: Option<u64>,
}

impl VersionEntry {
    /// A version in a state in which it does not serve.
    pub(crate) fn not_serving(state: VersionState, reason: &str) -> Self {
        Self { state, reason: reason.to_owned(), serving: None, leaving: None }
    }
}

impl ModelEntry {
    /// True if all of its versions were or are being unloaded.
    fn is_gone(&self) -> bool {
        let is_gone = |v: &VersionEntry| matches!(v.state, VersionState::Unloading | VersionState::Unloaded);
        !self.versions.is_empty() && self.versions.values().all(is_gone)
    }

    /// Number of its versions that keep a strict server from being ready.
    fn unready(&self) -> usize {
        let is_fine = |v: &VersionEntry| matches!(v.state, VersionState::Ready | VersionState::Unloaded);
        usize::from(self.versions.is_empty()) + self.versions.values().filter(|v| !is_fine(v)).count()
    }

    pub(crate) fn ready(&self) -> impl DoubleEndedIterator<Item = &Arc<ModelVersion>> {
        self.versions.values().filter(|v| v.state == VersionState::Ready).filter_map(|v| v.serving.as_ref())
    }
}

impl Table {
    /// Finds the version of a request (protocol.md 2.9 rows 1–4).
    pub(crate) fn find(&self, name: &str, version: Option<i64>) -> Result<&Arc<ModelVersion>> {
        self.find_from("", name, version)
    }

    /// Like `find`, but first searches the model in this namespace; "" = none.
    pub(crate) fn find_from(&self, namespace: &str, name: &str, version: Option<i64>) -> Result<&Arc<ModelVersion>> {
        let known = self.models.get(name).filter(|_| namespace.is_empty());
        let entry = match known {
            Some(entry) => entry,
            None => self
                .models
                .get(&*self.key(namespace, name)?)
                .ok_or_else(|| Error::not_found(format!("Request for unknown model: '{name}' is not found")))?,
        };
        let Some(version) = version else {
            return entry.latest.as_ref().ok_or_else(|| {
                Error::not_found(format!("Request for unknown model: '{name}' has no available versions"))
            });
        };
        match entry.versions.get(&version) {
            Some(VersionEntry { state: VersionState::Ready, serving: Some(v), .. }) => Ok(v),
            Some(_) => Err(Error::unavailable(format!(
                "Request for unknown model: '{name}' version {version} is not at ready state"
            ))),
            None => {
                Err(Error::not_found(format!("Request for unknown model: '{name}' version {version} is not found")))
            }
        }
    }

    /// Why a version does not serve; without a number, that of the highest version which has a reason.
    pub(crate) fn reason(&self, name: &str, version: Option<i64>) -> Option<&str> {
        let mut versions = self.models.get(&*self.key("", name).ok()?)?.versions.iter().rev();
        let is_asked = |n, v: &VersionEntry| version.map_or(v.state != VersionState::Unloaded, |asked| n == asked);
        let entry = versions.find(|(n, v)| !v.reason.is_empty() && is_asked(**n, v))?;
        Some(&entry.1.reason)
    }

    /// The key of a name: itself without namespaces, else of that model in `namespace`, or the only one.
    ///
    /// # Errors
    /// INVALID_ARG, with Triton's texts: there are several, or none.
    pub(crate) fn key<'n>(&'n self, namespace: &str, name: &'n str) -> Result<Cow<'n, str>> {
        if self.in_namespaces.is_empty() {
            return Ok(Cow::Borrowed(name));
        }
        if !namespace.is_empty() {
            let own = format!("{namespace}/{name}");
            if let Some(entry) = self.models.get(&own) {
                let moved = if entry.is_gone() { self.only_left(name) } else { None };
                return Ok(moved.map_or(Cow::Owned(own), Cow::Borrowed));
            }
            if let Some(left) = self.only_left(name) {
                return Ok(Cow::Borrowed(left));
            }
        }
        if self.models.contains_key(name) {
            return Ok(Cow::Borrowed(name));
        }
        let keys = self.in_namespaces.get(name);
        match keys.map_or(0, BTreeSet::len) {
            0 => Err(Error::invalid(format!("Request for unknown model: '{name}' is not found"))),
            1 => Ok(keys.and_then(BTreeSet::first).map_or(Cow::Borrowed(name), |key| Cow::Borrowed(key.as_str()))),
            n => Err(Error::invalid(format!(
                "There are {n} identifiers of model '{name}' in global map, model namespace must be provided to \
                 resolve ambiguity."
            ))),
        }
    }

    /// The only model of this name, in any namespace, that was not unloaded: used for calls from another namespace.
    fn only_left(&self, name: &str) -> Option<&str> {
        let is_left = |key: &&String| self.models.get(*key).is_some_and(|entry| !entry.is_gone());
        let mut left = self.in_namespaces.get(name)?.iter().filter(is_left);
        let first = left.next()?;
        left.next().is_none().then_some(first.as_str())
    }

    /// True if every version of every model is ready or unloaded.
    pub(crate) fn all_ready(&self) -> bool {
        self.unready == 0 && self.may_be_unready.iter().all(|version| !version.serving.is_short())
    }

    /// Serving versions that may not be ready.
    pub(crate) fn may_be_unready(&self) -> &[Arc<ModelVersion>] {
        &self.may_be_unready
    }

    /// Changes a model, and adds it if necessary; `f` returns false to remove it.
    pub(crate) fn change(&mut self, name: &str, f: impl FnOnce(&mut ModelEntry) -> bool) {
        let (name, mut entry) =
            self.models.remove_entry(name).unwrap_or_else(|| (name.to_owned(), ModelEntry::default()));
        self.unready -= entry.counted;
        for version in entry.ready().filter(|v| v.may_be_unready()) {
            self.may_be_unready.retain(|v| !Arc::ptr_eq(v, version));
        }
        let keeps = f(&mut entry);
        if let Some((_, bare)) = split_key(&name) {
            let keys = self.in_namespaces.entry(bare.to_owned()).or_default();
            if keeps {
                keys.insert(name.clone());
            } else {
                keys.remove(&name);
                if keys.is_empty() {
                    self.in_namespaces.remove(bare);
                }
            }
        }
        if keeps {
            entry.latest = entry.ready().last().cloned();
            entry.counted = entry.unready();
            self.unready += entry.counted;
            self.may_be_unready.extend(entry.ready().filter(|v| v.may_be_unready()).cloned());
            self.models.insert(name, entry);
        }
    }

    /// Like `change`, for a known model.
    pub(crate) fn change_known(&mut self, name: &str, f: impl FnOnce(&mut ModelEntry)) {
        if self.models.contains_key(name) {
            self.change(name, |entry| {
                f(entry);
                true
            });
        }
    }
}

/// Namespace and name of a key in a namespace; `None` for any other key.
pub(crate) fn split_key(key: &str) -> Option<(&str, &str)> {
    key.rsplit_once('/')
}

/// Parses a version of a URL or a gRPC message: "" lets the server choose; leading digits are enough, as for C's
/// `stol`, on which clients rely (protocol.md 1.2).
pub(crate) fn parse_version(text: &str) -> Result<Option<i64>> {
    if text.is_empty() {
        return Ok(None);
    }
    let rest = text.trim_start_matches([' ', '\t', '\n', '\r', '\x0b', '\x0c']);
    let (negative, digits) = match rest.as_bytes().first() {
        Some(b'-') => (true, &rest[1..]),
        Some(b'+') => (false, &rest[1..]),
        _ => (false, rest),
    };
    let digits = &digits[..digits.bytes().take_while(u8::is_ascii_digit).count()];
    let value = digits.parse::<i64>().ok().map(|v| if negative { -v } else { v });
    match value {
        None => Err(Error::invalid(format!(
            "failed to get model version from specified version string '{text}' (details: stol), version should be an \
             integral value > 0"
        ))),
        Some(v) if v < 0 => Err(Error::invalid(format!(
            "invalid model version specified '{text}' , version should be an integral value > 0"
        ))),
        Some(v) => Ok(Some(v)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: Result<Option<i64>, &str>) {
        match (parse_version(text), expected) {
            (Ok(got), Ok(want)) => assert_eq!(got, want, "{text:?}"),
            (Err(got), Err(want)) => assert!(got.message().starts_with(want), "{text:?}: {got}"),
            (got, want) => panic!("{text:?}: got {got:?}, want {want:?}"),
        }
    }

    #[test]
    fn the_count_of_unready_versions_is_exact() {
        use VersionState::*;
        let states =
            [(Ready, ""), (Loading, ""), (Unloading, ""), (Unloaded, ""), (Unavailable, "unloaded"), (Unknown, "")];
        let mut table = Table::default();
        assert!(table.all_ready(), "nothing is known");
        let mut random = 88_172_645_463_325_252usize;
        for _ in 0..10_000 {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            let (name, number) = (format!("m{}", random % 5), (random >> 8) as i64 % 3);
            let (state, reason) = states[(random >> 16) % states.len()];
            match (random >> 24) % 8 {
                0 => table.change(&name, |_| false),
                1 => table.change(&name, |_| true),
                2 => table.change_known(&name, |entry| drop(entry.versions.remove(&number))),
                _ => table.change(&name, |entry| {
                    entry.versions.insert(number, VersionEntry::not_serving(state, reason));
                    true
                }),
            }
            let walked = table.models.values().all(|entry| {
                !entry.versions.is_empty() && entry.versions.values().all(|v| matches!(v.state, Ready | Unloaded))
            });
            assert_eq!(table.all_ready(), walked);
        }
        table.change_known("nobody", |_| unreachable!("it is not known"));
    }

    #[test]
    fn r40_a_name_means_the_only_model_or_that_of_its_namespace() {
        let mut table = Table::default();
        let key = |table: &Table, namespace: &str, name: &str| match table.key(namespace, name) {
            Ok(key) => key.into_owned(),
            Err(e) => format!("{:?} {}", e.code(), e.message()),
        };
        let none = "InvalidArg Request for unknown model: 'm' is not found";
        assert_eq!(key(&table, "", "m"), "m", "without namespaces a name is a name");
        table.change("/a/other", |_| true);
        assert_eq!(key(&table, "", "m"), none);
        table.change("/a/m", |_| true);
        assert_eq!((key(&table, "", "m"), key(&table, "/b", "m")), ("/a/m".into(), "/a/m".into()));
        table.change("/b/m", |_| true);
        let two = "InvalidArg There are 2 identifiers of model 'm' in global map, model namespace must be provided to \
             resolve ambiguity.";
        assert_eq!((key(&table, "", "m"), key(&table, "/c", "m")), (two.into(), two.into()));
        assert_eq!((key(&table, "/b", "m"), key(&table, "", "/a/m")), ("/b/m".into(), "/a/m".into()));
        table.change("/b/m", |_| false);
        assert_eq!(key(&table, "/b", "m"), "/a/m");
        table.change("/a/m", |_| false);
        assert_eq!(key(&table, "", "m"), none);
        table.change("/a/other", |_| false);
        assert_eq!(key(&table, "", "m"), "m");

        // Unloaded models are ignored while there is another one.
        let set = |table: &mut Table, key: &str, state: VersionState| {
            let entry = VersionEntry::not_serving(state, "");
            table.change(key, |model| {
                model.versions.insert(1, entry);
                true
            });
        };
        set(&mut table, "/a/m", VersionState::Unloading);
        set(&mut table, "/b/m", VersionState::Ready);
        assert_eq!((key(&table, "/a", "m"), key(&table, "/c", "m")), ("/b/m".into(), "/b/m".into()));
        assert_eq!(key(&table, "", "m"), two, "a client's name means either");
        set(&mut table, "/b/m", VersionState::Unloaded);
        assert_eq!((key(&table, "/a", "m"), key(&table, "/c", "m")), ("/a/m".into(), two.into()));
    }

    #[test]
    fn versions_read_like_stol_does() {
        check("", Ok(None));
        check("1", Ok(Some(1)));
        check("1abc", Ok(Some(1)));
        check(" +7", Ok(Some(7)));
        check("0", Ok(Some(0)));
        check("abc", Err("failed to get model version from specified version string 'abc' (details: stol)"));
        check("99999999999999999999", Err("failed to get model version"));
        check("-1", Err("invalid model version specified '-1' , version"));
        check("-0", Ok(Some(0)));
    }
}
