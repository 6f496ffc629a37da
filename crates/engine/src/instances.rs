//! Instances that are gone: for a while, since their processes died, say; or for good, since their device failed.
//!
//! One that is gone is neither idle nor asks for resources; a busy one leaves when its batch is over, as one of too many does (`resize`).
//! What waits for it in particular, sequences that ran on it, is refused; where no instance is left everything is, and what comes too.

use crate::version::ModelVersion;
use backend::{Instances, now_ns};
use std::sync::{Arc, Weak};
use tensor::Error;

/// What a model tells of its instances goes to its version.
pub(crate) struct Told(Weak<ModelVersion>);

impl Told {
    pub(crate) fn of(version: &Arc<ModelVersion>) -> Self {
        Self(Arc::downgrade(version))
    }
}

impl Instances for Told {
    fn down(&self, instance: u32, why: Error) {
        if let Some(version) = self.0.upgrade() {
            version.instance_is_gone(instance, why);
        }
    }

    fn up(&self, instance: u32) {
        if let Some(version) = self.0.upgrade() {
            version.instance_is_back(instance);
        }
    }
}

impl ModelVersion {
    fn instance_is_gone(&self, instance: u32, why: Error) {
        let mut removed = Vec::new();
        let now = now_ns();
        let mut run = self.running.run.lock();
        if run.draining.contains(&instance) {
            // It leaves: its sequences are over.
            run.schedule.down(now, instance, false, &why, &mut removed);
            self.pump(run, now);
            return self.unlocked(removed);
        }
        if !run.members.contains(&instance) {
            return;
        }
        if let Some((_, known)) = run.gone.iter_mut().find(|(gone, _)| *gone == instance) {
            *known = why;
            return;
        }
        run.gone.push((instance, why.clone()));
        self.running.count_gone(&run);
        if let Some(at) = run.idle.iter().position(|idle| *idle == instance) {
            run.idle.remove(at);
        } else if let Some(at) = run.asking.iter().position(|asking| *asking == instance) {
            // Where that fails it is about to be told, and forgoes it then.
            if self.scheduling.limited.as_ref().is_none_or(|limited| limited.withdraw(instance)) {
                run.asking.remove(at);
            }
        } else {
            run.leaving.push(instance);
        }
        let none_is_left = run.refusal().is_some();
        run.schedule.down(now, instance, none_is_left, &why, &mut removed);
        self.pump(run, now);
        self.unlocked(removed);
        self.readiness_changed();
    }

    fn instance_is_back(&self, instance: u32) {
        if self.statistics.device_of(instance).is_some_and(|device| device::failure::failed(device).is_some()) {
            // Its process may be another one: what it is told of that device is refused.
            return;
        }
        let now = now_ns();
        let mut run = self.running.run.lock();
        let Some(at) = run.gone.iter().position(|(gone, _)| *gone == instance) else { return };
        run.gone.remove(at);
        self.running.count_gone(&run);
        if let Some(at) = run.leaving.iter().position(|leaving| *leaving == instance) {
            // Still busy with what it had before.
            run.leaving.remove(at);
        } else if !run.asking.contains(&instance) {
            run.idle.insert(0, instance);
        }
        if let Some(sequences) = run.schedule.sequences_mut() {
            sequences.up(now, instance);
        }
        self.pump(run, now);
        self.readiness_changed();
    }

    /// A device failed for good: its instances are gone.
    pub(crate) fn device_failed(&self, failed: u32, why: &Error) {
        for instance in self.statistics.instances_on(failed) {
            self.instance_is_gone(instance, why.clone());
        }
    }

    /// Devices of its instances that failed, also before it was loaded.
    pub(crate) fn look_at_devices(&self) {
        for device in self.statistics.devices() {
            if let Err(why) = device::failure::check(device) {
                self.device_failed(device, &why);
            }
        }
    }

    /// Whether it may serve and not be ready.
    pub(crate) fn may_be_unready(&self) -> bool {
        self.running.later.is_some() || self.scheduling.on_device
    }

    pub(crate) fn readiness_changed(&self) {
        if let Some(directory) = self.shared.directory.upgrade() {
            directory.changed();
        }
    }
}
