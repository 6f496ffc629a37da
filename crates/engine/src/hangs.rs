//! Executions that take suspiciously long: the log names them, and a gauge shows the oldest one of each version.
//!
//! Reads what versions and runners know of their executions, every few seconds, so that a request pays only for a note
//! of its start. A stream that sends responses is no hang.

use crate::directory::Directory;
use crate::timer::{Timed, Timer};
use crate::version::ModelVersion;
use backend::{Executing, now_ns};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::{Arc, Weak};

/// Looks within the time after which an execution is reported, and longest interval between two.
const LOOKS: u64 = 4;
const LOOK_NS_MAX: u64 = 15_000_000_000;

/// Periodic search for executions that hang.
pub(crate) struct Hangs {
    directory: Weak<Directory>,
    timer: Arc<Timer>,
    limit_ns: u64,
    /// Reported ones by load and instance: since when they are quiet, and for how long they were at the last report.
    reported: Mutex<HashMap<(u64, u32), (u64, u64)>>,
    me: Weak<Self>,
}

impl Hangs {
    pub(crate) fn new(directory: Weak<Directory>, timer: Arc<Timer>, seconds: u32) -> Arc<Self> {
        let limit_ns = u64::from(seconds) * 1_000_000_000;
        let reported = Mutex::default();
        let hangs = Arc::new_cyclic(|me: &Weak<Self>| Self { directory, timer, limit_ns, reported, me: me.clone() });
        hangs.arm();
        hangs
    }

    fn arm(&self) {
        let next = (self.limit_ns / LOOKS).min(LOOK_NS_MAX);
        self.timer.arm(now_ns().saturating_add(next), self.me.clone());
    }

    fn look(&self, directory: &Directory, now: u64) {
        let mut reported = self.reported.lock();
        let before = std::mem::take(&mut *reported);
        for (load, version) in directory.alive() {
            for Executing { instance, requests, quiet_since } in version.executing() {
                let quiet = now.saturating_sub(quiet_since);
                let last = before.get(&(load, instance)).filter(|(since, _)| *since == quiet_since);
                // Again after twice the time, so that an hour has six lines and not 240.
                let is_due = last.map_or(quiet >= self.limit_ns, |(_, last)| quiet >= last.saturating_mul(2));
                if is_due {
                    version.warn_of_hang(instance, requests, quiet);
                }
                if let Some(at) = if is_due { Some(quiet) } else { last.map(|(_, last)| *last) } {
                    reported.insert((load, instance), (quiet_since, at));
                }
            }
        }
    }
}

impl Timed for Hangs {
    fn wake(&self, _: u64) {
        let Some(directory) = self.directory.upgrade() else { return };
        // First, so that a panic below does not end the search.
        self.arm();
        self.look(&directory, now_ns());
    }
}

impl ModelVersion {
    /// Instances that execute now.
    fn executing(&self) -> Vec<Executing> {
        if let Some(remote) = self.served.remote() {
            return remote.executing();
        }
        let dispatch = self.serving.dispatch.lock();
        let busy = (0..).zip(&dispatch.begun).filter(|(_, (_, requests))| *requests > 0);
        let of = |(instance, &(since, requests)): (u32, &(u64, u32))| Executing {
            instance,
            requests: requests as usize,
            quiet_since: since,
        };
        busy.map(of).collect()
    }

    /// Gauge of the execution that has gone on longest without a response.
    pub(crate) fn oldest_execution(&self) -> (&'static str, &'static str, f64) {
        let oldest = self.executing().into_iter().map(|executing| executing.quiet_since).min();
        let quiet = oldest.map_or(0, |since| now_ns().saturating_sub(since));
        let help = "Time since the oldest execution of the version began or sent its last response, in seconds";
        ("nereid_oldest_execution_seconds", help, quiet as f64 / 1e9)
    }

    fn warn_of_hang(&self, instance: u32, requests: usize, quiet_ns: u64) {
        // A change of the instances may hold the lock for long.
        let instances = self.serving.instances.try_lock();
        let names = instances.as_ref().map(|all| all.iter());
        let name = names.into_iter().flatten().find(|(number, _)| *number == instance);
        let name = name.map_or_else(|| instance.to_string(), |(_, config)| config.name.clone());
        drop(instances);
        let what = format!(
            "model '{}' version {}: instance '{name}' has sent no response for {:.0} s, and may hang \
             (--hang-warning-secs); requests: {requests}",
            self.signature.model,
            self.signature.version,
            quiet_ns as f64 / 1e9
        );
        match self.served.remote() {
            Some(remote) => remote.warn_of_hang(instance, &what),
            None => log::warn!(
                "{what}; it ends when its model returns or all its clients disconnect, and no option ends it; it runs \
                 native code in a thread of the server (nereid-worker), whose stack cannot be read"
            ),
        }
    }
}
