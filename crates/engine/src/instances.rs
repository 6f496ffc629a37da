//! Instances that are gone: for a while, for example because their process ended, or for good (device failures).
//!
//! A gone instance is not idle and requests no resources; a busy one leaves when its batch is over, like a removed one
//! (`resize`). Requests of sequences that ran on it are rejected; if no instance is left, all requests are.

use crate::version::ModelVersion;
use backend::{InstanceEvents, Reported, ReportedTimes, now_ns};
use std::sync::{Arc, Weak};
use tensor::Error;

/// Passes instance events of a model to its version.
pub(crate) struct InstanceListener(Weak<ModelVersion>);

impl InstanceListener {
    pub(crate) fn of(version: &Arc<ModelVersion>) -> Self {
        Self(Arc::downgrade(version))
    }
}

impl InstanceEvents for InstanceListener {
    fn down(&self, instance: u32, why: Error) {
        if let Some(version) = self.0.upgrade() {
            version.instance_is_gone(instance, why, false);
        }
    }

    fn pause(&self, instance: u32, why: Error) {
        if let Some(version) = self.0.upgrade() {
            version.instance_is_gone(instance, why, true);
        }
    }

    fn up(&self, instance: u32) {
        if let Some(version) = self.0.upgrade() {
            version.instance_is_back(instance);
        }
    }

    fn reported(&self, instance: u32, report: Reported, times: ReportedTimes) {
        if let Some(version) = self.0.upgrade() {
            version.statistics.reported(instance, report, times);
        }
    }
}

impl ModelVersion {
    /// `is_paused`: it is expected back at once, and requests wait for it.
    fn instance_is_gone(&self, instance: u32, why: Error, is_paused: bool) {
        let mut removed = Vec::new();
        let now = now_ns();
        let mut dispatch = self.serving.dispatch.lock();
        if dispatch.draining.contains(&instance) {
            // It is being removed: its sequences are over.
            dispatch.schedule.down(now, instance, false, &why, &mut removed);
            self.pump(dispatch, now);
            return self.unlocked(removed);
        }
        if !dispatch.members.contains(&instance) {
            return;
        }
        let was_paused = dispatch.end_pause(instance);
        if is_paused {
            dispatch.paused.push(instance);
        }
        if let Some((_, known)) = dispatch.gone.iter_mut().find(|(gone, _)| *gone == instance) {
            *known = why.clone();
            if was_paused && !is_paused && dispatch.refusal().is_some() {
                // It does not come back: requests that waited for it are rejected.
                dispatch.schedule.down(now, instance, true, &why, &mut removed);
                self.pump(dispatch, now);
                self.unlocked(removed);
            }
            return;
        }
        dispatch.gone.push((instance, why.clone()));
        self.serving.count_gone(&dispatch);
        if let Some(at) = dispatch.idle.iter().position(|idle| *idle == instance) {
            dispatch.idle.remove(at);
        } else if let Some(at) = dispatch.asking.iter().position(|asking| *asking == instance) {
            // If that fails, it is about to be granted, and returns the grant then.
            if self.scheduling.limited.as_ref().is_none_or(|limited| limited.withdraw(instance)) {
                dispatch.asking.remove(at);
            }
        } else {
            dispatch.leaving.push(instance);
        }
        let none_is_left = dispatch.refusal().is_some();
        dispatch.schedule.down(now, instance, none_is_left, &why, &mut removed);
        self.pump(dispatch, now);
        self.unlocked(removed);
        self.readiness_changed();
    }

    fn instance_is_back(&self, instance: u32) {
        if self.statistics.device_of(instance).is_some_and(|device| device::failure::failed(device).is_some()) {
            // Its process may be a new one, but requests on that device would fail.
            return;
        }
        let now = now_ns();
        let mut dispatch = self.serving.dispatch.lock();
        let Some(at) = dispatch.gone.iter().position(|(gone, _)| *gone == instance) else { return };
        dispatch.gone.remove(at);
        dispatch.end_pause(instance);
        self.serving.count_gone(&dispatch);
        if let Some(at) = dispatch.leaving.iter().position(|leaving| *leaving == instance) {
            // Still busy with its former batch.
            dispatch.leaving.remove(at);
        } else if !dispatch.asking.contains(&instance) {
            dispatch.idle.insert(0, instance);
        }
        if let Some(sequences) = dispatch.schedule.sequences_mut() {
            sequences.up(now, instance);
        }
        self.pump(dispatch, now);
        self.readiness_changed();
    }

    /// Marks the instances of a device that failed for good as gone.
    pub(crate) fn device_failed(&self, failed: u32, why: &Error) {
        for instance in self.statistics.instances_on(failed) {
            self.instance_is_gone(instance, why.clone(), false);
        }
    }

    /// Checks the devices of its instances, which may have failed before it was loaded.
    pub(crate) fn look_at_devices(&self) {
        for device in self.statistics.devices() {
            if let Err(why) = device::failure::check(device) {
                self.device_failed(device, &why);
            }
        }
    }

    /// True if it may serve without being ready.
    pub(crate) fn may_be_unready(&self) -> bool {
        self.serving.remote.is_some() || self.scheduling.on_device
    }

    pub(crate) fn readiness_changed(&self) {
        (self.shared.on_readiness)();
    }
}
