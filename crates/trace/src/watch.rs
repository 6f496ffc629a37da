//! What the requests of a model ask before anything is noted of them.

use crate::context::Context;
use crate::handle::Trace;
use crate::sampler::Sampler;
use crate::setting::Mode;
use arc_swap::ArcSwapOption;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// What a model's requests look at: whether they may be traced, and by which setting. Shared by all versions of the model.
#[derive(Default)]
pub struct Watch {
    is_on: AtomicBool,
    sampler: ArcSwapOption<Sampler>,
}

impl Watch {
    /// Whether requests to the model may be traced now.
    #[inline]
    pub fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Relaxed)
    }

    /// Samples a request of a client. `context` is asked for the caller's, where that matters.
    pub fn begin(&self, context: impl FnOnce() -> Option<Context>) -> Option<Trace> {
        if !self.is_on() {
            return None;
        }
        // Cloned only for a request that is traced: one counter for all threads is dear.
        let sampler = self.sampler.load();
        let sampler = sampler.as_ref()?;
        let context = if sampler.setting.mode == Mode::OpenTelemetry { context() } else { None };
        sampler.takes(context.is_some()).then(|| Trace::begin(sampler.clone(), context))
    }

    pub(crate) fn set(&self, sampler: Option<&Arc<Sampler>>) {
        let sampler = sampler.filter(|s| s.setting.is_on()).cloned();
        self.is_on.store(sampler.is_some(), Ordering::Relaxed);
        self.sampler.store(sampler);
    }
}
