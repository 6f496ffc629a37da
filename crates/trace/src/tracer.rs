//! The trace settings of a server, and its queue of records.

use crate::limits::TRACE_SETTINGS_MAX;
use crate::queue::{Outlet, Taken};
use crate::sampler::Sampler;
use crate::watch::Watch;
use options::TraceSetting;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use tensor::{Error, Fault, Result};

/// Number of tracers in this process with a setting that samples, plus front ends that measure requests.
static ON: AtomicUsize = AtomicUsize::new(0);

/// Keeps the measuring of all requests, traced or not, enabled while it lives.
#[derive(Debug)]
pub struct Measuring(());

impl Measuring {
    /// Enables measuring.
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

/// True if any request of this process may be traced or measured: times before the model is known are only taken then.
#[inline]
pub fn is_any_on() -> bool {
    ON.load(Ordering::Relaxed) > 0
}

/// The tracer of one server.
#[derive(Default)]
pub struct Tracer {
    settings: Mutex<Settings>,
    outlet: Arc<Outlet>,
    is_on: AtomicBool,
}

#[derive(Default)]
struct Settings {
    global: Option<Arc<Sampler>>,
    /// Samplers of models with their own setting.
    models: HashMap<String, Arc<Sampler>>,
    /// Watches of models that have versions.
    watches: HashMap<String, Weak<Watch>>,
    /// Number of settings that may sample.
    on: usize,
}

impl Settings {
    fn of(&self, model: &str) -> Option<&Arc<Sampler>> {
        self.models.get(model).or(self.global.as_ref())
    }
}

impl Tracer {
    /// The watch that all versions of a model share.
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

    /// Replaces the setting of a model, or for "" the global one; `None` makes a model use the global setting. Requests
    /// in flight finish under the setting that sampled them.
    ///
    /// # Errors
    /// RESOURCE_EXHAUSTED for too many models with their own setting.
    pub fn set(&self, model: &str, setting: Option<TraceSetting>) -> Result<()> {
        let is_on = setting.is_some_and(|setting| setting.is_on());
        let sampler = setting.map(|setting| Sampler::new(setting, self.outlet.clone()));
        let mut settings = self.settings.lock();
        // Dropped below without the lock, because its drop locks the queue.
        let before = if model.is_empty() {
            std::mem::replace(&mut settings.global, sampler)
        } else if let Some(sampler) = sampler {
            if settings.models.len() >= TRACE_SETTINGS_MAX && !settings.models.contains_key(model) {
                drop(settings);
                let text = format!("at most {TRACE_SETTINGS_MAX} models may have trace settings of their own");
                return Err(Error::exhausted(text).by(Fault::Server).retry(false));
            }
            settings.models.insert(model.to_owned(), sampler)
        } else {
            settings.models.remove(model)
        };
        let was_on = before.as_ref().is_some_and(|sampler| sampler.setting.is_on());
        settings.on = (settings.on + usize::from(is_on)).saturating_sub(usize::from(was_on));
        // Before the watches, so that a request whose watch is on has the times from before its model was known.
        self.count_on(settings.on > 0);
        if model.is_empty() {
            for (name, watch) in &settings.watches {
                if let Some(watch) = watch.upgrade() {
                    watch.set(settings.of(name));
                }
            }
        } else if let Some(watch) = settings.watches.get(model).and_then(Weak::upgrade) {
            // Only this watch: updating all for each of many models would take quadratic time.
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

    /// Requests that the setting of a model ("" = global) may still sample; -1 = no limit, or no setting.
    pub fn left(&self, model: &str) -> i32 {
        self.settings.lock().of(model).map_or(-1, |sampler| sampler.left())
    }

    /// Ends all settings: no further request is sampled, and each setting ends with its last record.
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

    /// Sets the function that is called when there are records to take: from any thread, and not again until `take`
    /// finds the queue empty. It must not block. Only the first call of `wake_with` has an effect.
    pub fn wake_with(&self, wake: impl Fn() + Send + Sync + 'static) {
        self.outlet.wake_with(Box::new(wake));
    }

    /// Takes complete records: at most `max`, fewer if they are large.
    pub fn take(&self, max: usize) -> Taken {
        self.outlet.take(max)
    }

    /// Number of records that were dropped because the queue was full.
    pub fn lost(&self) -> u64 {
        self.outlet.lost()
    }

    /// Queued records, and their bytes.
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
