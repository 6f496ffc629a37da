//! Restarts of runners that died, and what the engine is told meanwhile.

use super::{InstanceRunner, RunnerModel};
use crate::restart::DELAY_MAX;
use crate::runner::Started;
use backend::now_ns;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use tensor::Error;

impl RunnerModel {
    /// Restarts the runner of an instance.
    fn launch(self: &Arc<Self>, place: &Arc<InstanceRunner>) {
        if place.is_removed.load(SeqCst) {
            return;
        }
        let (me, started) = (Arc::downgrade(self), Arc::clone(place));
        self.restarts.fetch_add(1, Relaxed);
        let started: Started = Box::new(move |result| {
            let Some(model) = me.upgrade().filter(|_| !started.is_removed.load(SeqCst)) else { return };
            match result {
                Ok(_) => model.is_up(&started),
                Err(failure) => {
                    log::error!("{}: {}", started.name(), failure.error);
                    model.crashed(&started);
                }
            }
        });
        self.spawn(place, started);
    }

    fn is_up(&self, place: &InstanceRunner) {
        *place.down.lock() = None;
        log::info!("{}: the runner was started again", place.name());
        if let Some(listener) = self.listener.get() {
            listener.up(place.number);
        }
    }

    pub(super) fn is_down(&self, place: &InstanceRunner, why: Error) {
        *place.down.lock() = Some(why.clone());
        if let Some(listener) = self.listener.get().filter(|_| place.serves.load(SeqCst)) {
            listener.down(place.number, why);
        }
    }

    /// Reports that an instance accepts no batches, while requests wait for its restart.
    fn pause(&self, place: &Arc<InstanceRunner>, why: Error) {
        *place.down.lock() = Some(why.clone());
        if let Some(listener) = self.listener.get().filter(|_| place.serves.load(SeqCst)) {
            listener.pause(place.number, why);
        }
        let pause = place.pauses.fetch_add(1, SeqCst) + 1;
        let place = Arc::clone(place);
        self.later(self.spec.limits.restart_wait, move |model| {
            // A later pause has its own time.
            if place.pauses.load(SeqCst) != pause {
                return;
            }
            let down = place.down.lock();
            if let Some(why) = down.clone().filter(|_| !place.is_removed.load(SeqCst))
                && let Some(listener) = model.listener.get().filter(|_| place.serves.load(SeqCst))
            {
                listener.down(place.number, why);
            }
        });
    }

    pub(super) fn crashed(&self, place: &Arc<InstanceRunner>) {
        let again = self.spec.limits.restart.then(|| place.crashes.lock().crashed(now_ns()));
        let (model, name, noun) = (&self.signature.model, place.name(), place.instance.kind.noun());
        let why = match again {
            Some(again) if again.delay.is_zero() => Error::unavailable(format!(
                "model '{model}' cannot be used at the moment: {noun} '{name}' ended and is being started again"
            ))
            .by_model(),
            Some(again) => Error::unavailable(format!(
                "model '{model}' cannot be used at the moment: {noun} '{name}' ended and is started \
                 again after a pause of {:.1} s",
                again.delay.as_secs_f64()
            ))
            .by_model(),
            None => place.instance.kind.not_healthy(name),
        };
        let wait = self.spec.limits.restart_wait;
        match &again {
            Some(again) if again.delay < wait / 2 => self.pause(place, why),
            _ => self.is_down(place, why),
        }
        if let Some(times) = again.and_then(|again| again.crashes_reported) {
            log::error!(
                "{name}: the {noun} ended {times} times, each within a minute of the time before; it is started again \
                 after growing pauses, of {} s at most, until it runs for a minute or model '{model}' is loaded again",
                DELAY_MAX.as_secs()
            );
        }
        let Some(again) = again else {
            return log::error!("{name}: the runner is not started again until model '{model}' is loaded again");
        };
        let place = Arc::clone(place);
        self.later(again.delay, move |model| {
            let starting = Arc::clone(model);
            model.executor.start(Box::new(move || starting.launch(&place)));
        });
    }
}
