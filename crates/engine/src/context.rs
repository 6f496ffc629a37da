//! State shared by all versions of an engine.

use crate::continuing::Continuing;
use crate::options::EngineOptions;
use crate::pool::Pool;
use crate::rate_limit::Resources;
use crate::timer::Timer;
use crate::work::Work;
use cache::{Cache, Secret};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use trace::Tracer;

/// Options, threads and caches of one engine.
pub(crate) struct EngineContext {
    pub(crate) options: EngineOptions,
    pub(crate) pool: Arc<Pool<Work>>,
    pub(crate) timer: Arc<Timer>,
    pub(crate) exiting: AtomicBool,
    /// Accepted requests without a final response, over all versions.
    pub(crate) inflight: AtomicU64,
    /// Instances whose batches run in other processes, over all versions.
    pub(crate) occupied: AtomicU64,
    /// The response cache, and the secret of its keys.
    pub(crate) cache: Option<(Arc<dyn Cache>, Secret)>,
    /// Present with `--rate-limit=execution_count`.
    pub(crate) resources: Option<Arc<Resources>>,
    /// Replaced versions whose sequences go on.
    pub(crate) continuing: Continuing,
    /// Number of loads so far.
    loads: AtomicU64,
    pub(crate) tracer: Tracer,
    /// Call it after the readiness of a version changed.
    pub(crate) on_readiness: Box<dyn Fn() + Send + Sync>,
}

impl EngineContext {
    pub(crate) fn new(
        options: EngineOptions,
        pool: Arc<Pool<Work>>,
        cache: Option<Arc<dyn Cache>>,
        on_readiness: Box<dyn Fn() + Send + Sync>,
    ) -> Arc<Self> {
        Arc::new(Self {
            pool,
            timer: Timer::new(),
            exiting: AtomicBool::new(false),
            inflight: AtomicU64::new(0),
            occupied: AtomicU64::new(0),
            cache: cache.map(|cache| (cache, Secret::random())),
            resources: options.rate_limit.clone().map(Resources::new),
            continuing: Continuing::default(),
            loads: AtomicU64::new(0),
            tracer: Tracer::default(),
            on_readiness,
            options,
        })
    }

    /// The unique number of a load in this engine.
    pub(crate) fn next_load(&self) -> u64 {
        self.loads.fetch_add(1, Ordering::Relaxed)
    }
}
