//! The response cache as a version has it: the scope of its keys, and which requests have one. The calls that use it are in `cached_calls`.

use crate::identity::Identity;
use crate::limits::CACHE_FAILURE_LINES_NS_MIN;
use arc_swap::ArcSwapOption;
use backend::now_ns;
use cache::{Cache, Fingerprint, Key, KeySpace, OutputSet, Secret};
use protocol::pb::inference::ModelConfig;
use protocol::{Checked, InferRequest, Signature};
use smallvec::SmallVec;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tensor::Error;

/// The cache, and this load of the version in it.
pub(crate) struct Cached {
    pub(crate) cache: Arc<dyn Cache>,
    secret: Secret,
    fingerprint: Option<Fingerprint>,
    pub(crate) scope: KeySpace,
    /// In the place of that for an ensemble.
    pub(crate) of_models: ArcSwapOption<Scoped>,
    /// When the log may be told again that an answer was not kept.
    failure_line_due: AtomicU64,
}

/// What keys of an ensemble are made under.
pub(crate) struct Scoped {
    pub(crate) scope: KeySpace,
    /// The models that make its answers, and the number of the table in which they were looked up last.
    pub(crate) made_by: Vec<Maker>,
    pub(crate) epoch: u64,
    /// Unique id of the scope.
    pub(crate) load: u64,
}

/// A version that makes answers of an ensemble: its load, and what tells it apart on several servers.
pub(crate) type Maker = (u64, Option<Fingerprint>);

/// Whether a request is looked up.
pub(crate) enum Keyed {
    Never,
    /// By a key that takes long to make.
    Elsewhere,
    By(LookupKey),
}

/// What a request is looked up by.
#[derive(Clone, Copy)]
pub(crate) struct LookupKey {
    pub(crate) digest: Key,
    /// Of an ensemble: the number of the table whose models the key is of; else 0.
    pub(crate) epoch: u64,
}

/// A request whose answer was not there.
pub(crate) struct Miss {
    pub(crate) key: LookupKey,
    pub(crate) asked: OutputSet,
    pub(crate) lookup_ns: u64,
}

impl Cached {
    /// The response cache of a version whose configuration enables it. `None` also if servers share the cache and nothing tells this version
    /// from others.
    pub(crate) fn of(
        cache: Option<&(Arc<dyn Cache>, Secret)>,
        config: &ModelConfig,
        signature: &Signature,
        Identity { number, load, fingerprint, .. }: &Identity,
    ) -> Option<Self> {
        let is_enabled = config.response_cache.as_ref().is_some_and(|c| c.enable) && !signature.decoupled;
        let (cache, secret) = cache.filter(|_| is_enabled)?;
        Self::new(cache.clone(), secret, (&signature.model, *number, *load), *fingerprint)
    }

    fn new(
        cache: Arc<dyn Cache>,
        secret: &Secret,
        (model, number, load): (&str, i64, u64),
        fingerprint: Option<Fingerprint>,
    ) -> Option<Self> {
        let scope = match (cache.is_shared(), &fingerprint) {
            (false, _) => KeySpace::new(secret, model, number, load),
            (true, Some(files)) => KeySpace::shared(model, number, files),
            (true, None) => return None,
        };
        Some(Self {
            cache,
            secret: secret.clone(),
            fingerprint,
            scope,
            of_models: ArcSwapOption::empty(),
            failure_line_due: AtomicU64::new(0),
        })
    }

    /// The scope of an ensemble whose answers these models make.
    pub(crate) fn scope_with(&self, model: &str, (number, load): (i64, u64), made_by: &[Maker]) -> Option<KeySpace> {
        if !self.cache.is_shared() {
            return Some(KeySpace::new(&self.secret, model, number, load));
        }
        let all = std::iter::once(self.fingerprint).chain(made_by.iter().map(|(_, f)| *f));
        let all = all.collect::<Option<Vec<_>>>()?;
        let texts: Vec<&[u8]> = all.iter().map(|f| &f.bytes()[..]).collect();
        Some(KeySpace::shared(model, number, &Fingerprint::of_texts(&texts)))
    }

    /// Logs that an answer was not kept, in Triton's words: an error once in a while, else a line of `--log-verbose=1`.
    pub(crate) fn log_failure(&self, key: &Key, why: &Error, model: &str) {
        let now = now_ns();
        let due = self.failure_line_due.load(Ordering::Relaxed);
        let next = now.saturating_add(CACHE_FAILURE_LINES_NS_MIN);
        let is_due = now >= due
            && self.failure_line_due.compare_exchange(due, next, Ordering::Relaxed, Ordering::Relaxed).is_ok();
        let level = if is_due { log::Level::Error } else { log::Level::Debug };
        log::log!(level, "Failed to insert key [{key}] into response cache: {} (model '{model}')", why.message());
    }

    /// Drops what was kept under a scope.
    pub(crate) fn forget(&self, scope: KeySpace) {
        // On its own thread: the last owner of a version may be a reactor, and this takes as long as the cache is large.
        memory::release::drop_in_background(Forget { cache: self.cache.clone(), scope });
    }
}

impl Drop for Cached {
    fn drop(&mut self) {
        let scoped = self.of_models.load();
        self.forget(scoped.as_ref().map_or(&self.scope, |scoped| &scoped.scope).clone());
    }
}

/// Drops the answers of a load that is over.
struct Forget {
    cache: Arc<dyn Cache>,
    scope: KeySpace,
}

impl Drop for Forget {
    fn drop(&mut self) {
        self.cache.forget(&self.scope);
    }
}

/// What a request is to be answered with.
pub(crate) fn asked(checked: &Checked) -> OutputSet {
    OutputSet::new(checked.outputs.iter().map(|o| o.0))
}

/// The key of a request, if it is to be looked up and its inputs have at most `bytes_max` bytes.
pub(crate) fn key(
    (scope, epoch): (&KeySpace, u64),
    request: &InferRequest,
    checked: &Checked,
    bytes_max: usize,
) -> Keyed {
    if request.outputs.iter().any(|o| o.region.is_some()) {
        return Keyed::Never;
    }
    let mut bytes = 0usize;
    let mut inputs: SmallVec<[cache::Input<'_>; 4]> = SmallVec::new();
    debug_assert_eq!(checked.inputs.len(), request.inputs.len());
    for input in &request.inputs {
        let (Some(data), Some(datatype)) = (input.data.host(), input.datatype) else { return Keyed::Never };
        bytes = bytes.saturating_add(data.len());
        inputs.push(cache::Input { name: input.name.as_bytes(), datatype, shape: &input.shape, data });
    }
    if bytes > bytes_max {
        return Keyed::Elsewhere;
    }
    Keyed::By(LookupKey { digest: scope.key(inputs.into_iter()), epoch })
}
