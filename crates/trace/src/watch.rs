//! The check that each request of a model makes before it is traced.

use crate::context::Context;
use crate::handle::Trace;
use crate::sampler::Sampler;
use arc_swap::ArcSwapOption;
use options::TraceMode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The current sampler of a model, shared by all of its versions.
#[derive(Default)]
pub struct Watch {
    is_on: AtomicBool,
    sampler: ArcSwapOption<Sampler>,
}

impl Watch {
    /// True if requests to the model may be traced now.
    #[inline]
    pub fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Relaxed)
    }

    /// Samples a request of a client. `context` reads the caller's context; it is only called in mode OpenTelemetry.
    pub fn begin(&self, context: impl FnOnce() -> Option<Context>) -> Option<Trace> {
        if !self.is_on() {
            return None;
        }
        // Cloned only for a traced request, because all threads contend for the reference count.
        let sampler = self.sampler.load();
        let sampler = sampler.as_ref()?;
        let context = if sampler.setting.mode == TraceMode::OpenTelemetry { context() } else { None };
        sampler.takes(context.is_some()).then(|| Trace::begin(sampler.clone(), context))
    }

    pub(crate) fn set(&self, sampler: Option<&Arc<Sampler>>) {
        let sampler = sampler.filter(|s| s.setting.is_on()).cloned();
        self.is_on.store(sampler.is_some(), Ordering::Relaxed);
        self.sampler.store(sampler);
    }
}
