//! The settings of a server, and its queue of records.

use crate::limits::TRACE_SETTINGS_MAX;
use crate::queue::{Outlet, Taken};
use crate::sampler::Sampler;
use crate::setting::Setting;
use crate::watch::Watch;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use tensor::{Error, Result};

/// Tracers of this process with a setting that samples, and front ends that measure requests.
static ON: AtomicUsize = AtomicUsize::new(0);

/// Requests are measured, traced or not, for as long as this lives.
#[derive(Debug)]
pub struct Measuring(());

impl Measuring {
    /// From now on.
    pub fn begin() -> Self {
        ON.fetch_add(1, Ordering::Relaxed);
        Self(())
    }
}

impl Drop for Measuring {
    fn drop(&mut self) {
        ON.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Whether any request of this process may be traced or measured: what is noted before the model of a request is known, is noted only then.
#[inline]
pub fn is_any_on() -> bool {
    ON.load(Ordering::Relaxed) > 0
}

/// Traces of one server.
#[derive(Default)]
pub struct Tracer {
    settings: Mutex<Settings>,
    outlet: Arc<Outlet>,
    is_on: AtomicBool,
}

#[derive(Default)]
struct Settings {
    global: Option<Arc<Sampler>>,
    /// Of models with values of their own.
    models: HashMap<String, Arc<Sampler>>,
    /// Of models that have versions.
    watches: HashMap<String, Weak<Watch>>,
    /// How many of them all may sample anything.
    on: usize,
}

impl Settings {
    fn of(&self, model: &str) -> Option<&Arc<Sampler>> {
        self.models.get(model).or(self.global.as_ref())
    }
}

impl Tracer {
    /// What versions of a model look at.
    pub fn watch(&self, model: &str) -> Arc<Watch> {
        let mut settings = self.settings.lock();
        if let Some(watch) = settings.watches.get(model).and_then(Weak::upgrade) {
            return watch;
        }
        settings.watches.retain(|_, watch| watch.strong_count() > 0);
        let watch = Arc::new(Watch::default());
        watch.set(settings.of(model));
        settings.watches.insert(model.to_owned(), Arc::downgrade(&watch));
        watch
    }

    /// Replaces the setting of a model, or with "" that of all models without one; `None` leaves a model to the latter. What is in
    /// flight finishes under the setting that sampled it.
    ///
    /// # Errors
    /// RESOURCE_EXHAUSTED for too many models with a setting of their own.
    pub fn set(&self, model: &str, setting: Option<Setting>) -> Result<()> {
        let is_on = setting.is_some_and(|setting| setting.is_on());
        let sampler = setting.map(|setting| Sampler::new(setting, self.outlet.clone()));
        let mut settings = self.settings.lock();
        // Dropped below without the lock: it tells that it ended.
        let before = if model.is_empty() {
            std::mem::replace(&mut settings.global, sampler)
        } else if let Some(sampler) = sampler {
            if settings.models.len() >= TRACE_SETTINGS_MAX && !settings.models.contains_key(model) {
                drop(settings);
                let text = format!("at most {TRACE_SETTINGS_MAX} models may have trace settings of their own");
                return Err(Error::exhausted(text));
            }
            settings.models.insert(model.to_owned(), sampler)
        } else {
            settings.models.remove(model)
        };
        let was_on = before.as_ref().is_some_and(|sampler| sampler.setting.is_on());
        settings.on = (settings.on + usize::from(is_on)).saturating_sub(usize::from(was_on));
        // First: what is noted before the model of a request is known should be there when its watch is on.
        self.count_on(settings.on > 0);
        if model.is_empty() {
            for (name, watch) in &settings.watches {
                if let Some(watch) = watch.upgrade() {
                    watch.set(settings.of(name));
                }
            }
        } else if let Some(watch) = settings.watches.get(model).and_then(Weak::upgrade) {
            // Alone: with many models one by one would otherwise take as long as their square.
            watch.set(settings.of(model));
        }
        drop(settings);
        drop(before);
        Ok(())
    }

    fn count_on(&self, is_on: bool) {
        match (self.is_on.swap(is_on, Ordering::Relaxed), is_on) {
            (false, true) => _ = ON.fetch_add(1, Ordering::Relaxed),
            (true, false) => _ = ON.fetch_sub(1, Ordering::Relaxed),
            _ => {}
        }
    }

    /// How many requests the setting of a model ("" = of all without one) may still sample; -1 = any number, also without a setting.
    pub fn left(&self, model: &str) -> i32 {
        self.settings.lock().of(model).map_or(-1, |sampler| sampler.left())
    }

    /// Ends all settings: nothing is sampled any more, and each setting ends with its last record.
    pub fn close(&self) {
        let mut settings = self.settings.lock();
        let (global, models) = (settings.global.take(), std::mem::take(&mut settings.models));
        for watch in settings.watches.values().filter_map(Weak::upgrade) {
            watch.set(None);
        }
        settings.on = 0;
        self.count_on(false);
        drop(settings);
        drop((global, models));
    }

    /// `wake` is called when records are to be taken: from any thread, rarely, and not again before the queue was found empty. It
    /// must not block. Only the first one counts.
    pub fn wake_with(&self, wake: impl Fn() + Send + Sync + 'static) {
        self.outlet.wake_with(Box::new(wake));
    }

    /// Takes records that are complete, at most `max`, and less when they are large.
    pub fn take(&self, max: usize) -> Taken {
        self.outlet.take(max)
    }

    /// Records that were dropped because too many waited.
    pub fn lost(&self) -> u64 {
        self.outlet.lost()
    }

    /// Records that wait, and their bytes.
    pub fn waiting(&self) -> (usize, usize) {
        self.outlet.waiting()
    }

    /// Bytes of tensors in records that are not complete.
    pub fn open_bytes(&self) -> usize {
        self.outlet.open()
    }
}

impl Drop for Tracer {
    fn drop(&mut self) {
        self.count_on(false);
    }
}
