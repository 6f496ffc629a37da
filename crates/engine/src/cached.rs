//! The response cache of a version: the scope of its keys, and which requests have a key. `cached_calls` uses it.

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

/// The cache, and the scope of this load in it.
pub(crate) struct Cached {
    pub(crate) cache: Arc<dyn Cache>,
    secret: Secret,
    fingerprint: Option<Fingerprint>,
    pub(crate) scope: KeySpace,
    /// For an ensemble, replaces `scope`.
    pub(crate) of_models: ArcSwapOption<Scoped>,
    /// When the next cache failure may be logged as an error.
    failure_line_due: AtomicU64,
}

/// KeySpace of the keys of an ensemble.
pub(crate) struct Scoped {
    pub(crate) scope: KeySpace,
    /// The versions that make its responses, and the epoch of the table in which they were found.
    pub(crate) made_by: Vec<Maker>,
    /// True if one of them reads the parameters of requests, which steps get unchanged.
    pub(crate) reads_parameters: bool,
    pub(crate) epoch: u64,
    /// Unique id of the scope.
    pub(crate) load: u64,
}

/// A version that makes responses of an ensemble: its load, and its fingerprint on all servers.
pub(crate) type Maker = (u64, Option<Fingerprint>);

/// Result of making a key.
pub(crate) enum Keyed {
    Never,
    /// The inputs are so large that the key has to be made on another thread.
    Offload,
    By(LookupKey),
}

/// Key of a request in the cache.
#[derive(Clone, Copy)]
pub(crate) struct LookupKey {
    pub(crate) digest: Key,
    /// Epoch of the table whose models the key includes, for an ensemble; otherwise 0.
    pub(crate) epoch: u64,
}

/// A request whose response was not in the cache.
pub(crate) struct Miss {
    pub(crate) key: LookupKey,
    pub(crate) outputs: OutputSet,
    pub(crate) lookup_ns: u64,
}

impl Cached {
    /// The response cache of a version that enables it. `None` if servers share it and this version has no fingerprint.
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

    /// The scope of an ensemble whose responses these versions make.
    pub(crate) fn scope_with(&self, model: &str, (number, load): (i64, u64), made_by: &[Maker]) -> Option<KeySpace> {
        if !self.cache.is_shared() {
            return Some(KeySpace::new(&self.secret, model, number, load));
        }
        let all = std::iter::once(self.fingerprint).chain(made_by.iter().map(|(_, f)| *f));
        let all = all.collect::<Option<Vec<_>>>()?;
        let texts: Vec<&[u8]> = all.iter().map(|f| &f.bytes()[..]).collect();
        Some(KeySpace::shared(model, number, &Fingerprint::of_texts(&texts)))
    }

    /// Logs, in Triton's words, that a response was not stored: rarely as an error, otherwise with `--log-verbose=1`.
    pub(crate) fn log_failure(&self, key: &Key, why: &Error, model: &str) {
        let now = now_ns();
        let due = self.failure_line_due.load(Ordering::Relaxed);
        let next = now.saturating_add(CACHE_FAILURE_LINES_NS_MIN);
        let is_due = now >= due
            && self.failure_line_due.compare_exchange(due, next, Ordering::Relaxed, Ordering::Relaxed).is_ok();
        let level = if is_due { log::Level::Error } else { log::Level::Debug };
        log::log!(level, "Failed to insert key [{key}] into response cache: {} (model '{model}')", why.message());
    }

    /// Drops the entries of a scope.
    pub(crate) fn forget(&self, scope: KeySpace) {
        // On its own thread: the last owner may be a reactor, and this takes as long as the cache is large.
        memory::release::drop_in_background(Forget { cache: self.cache.clone(), scope });
    }
}

impl Drop for Cached {
    fn drop(&mut self) {
        let scoped = self.of_models.load();
        self.forget(scoped.as_ref().map_or(&self.scope, |scoped| &scoped.scope).clone());
    }
}

/// Drops the entries of a load that is over.
struct Forget {
    cache: Arc<dyn Cache>,
    scope: KeySpace,
}

impl Drop for Forget {
    fn drop(&mut self) {
        self.cache.forget(&self.scope);
    }
}

/// The outputs that a request asks for.
pub(crate) fn output_set(checked: &Checked) -> OutputSet {
    OutputSet::new(checked.outputs.iter().map(|o| o.0))
}

/// The key of a request, if it may have one and its inputs have at most `bytes_max` bytes.
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
        return Keyed::Offload;
    }
    Keyed::By(LookupKey { digest: scope.key(inputs.into_iter()), epoch })
}
