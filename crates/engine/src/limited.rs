//! Starts batches of versions whose instances need grants of the rate limiter (`rate_limit`).

use crate::pending::Requests;
use crate::rate_limit::{Granted, Registered};
use crate::running::{Run, take_idle};
use crate::schedule::{Removed, Schedule};
use crate::version::ModelVersion;
use backend::now_ns;
use smallvec::SmallVec;

impl ModelVersion {
    /// Like `start_batches`, for instances that need grants.
    pub(crate) fn start_limited(
        &self,
        limited: &Registered,
        run: &mut Run,
        now: u64,
        mine: Option<u32>,
    ) -> (Option<Requests>, Removed) {
        let started = match self.scheduling.sequencing {
            Some(_) => self.start_limited_sequences(limited, run, now, mine),
            None => self.start_limited_requests(limited, run, now, mine),
        };
        // Instances that requested again have done this already.
        limited.release(&mut run.finished);
        started
    }

    fn start_limited_requests(
        &self,
        limited: &Registered,
        run: &mut Run,
        now: u64,
        mine: Option<u32>,
    ) -> (Option<Requests>, Removed) {
        let (mut kept, mut removed) = (None, Vec::new());
        loop {
            self.ask(limited, run);
            let Some((requests, which)) = self.step(run, now, &mut removed) else { break };
            match take_idle(&mut run.granted, which) {
                Some(instance) if Some(instance) == mine && kept.is_none() => kept = Some(requests),
                instance => {
                    run.begins(instance.unwrap_or(0), now, requests.len());
                    self.submit(instance.unwrap_or(0), requests);
                }
            }
        }
        // There is no batch now: return the resources, so that other versions do not wait for this one.
        if !run.granted.is_empty() {
            let (idle, asking) = (&mut run.idle, &mut run.asking);
            asking.retain(|instance| {
                let withdrawn = limited.withdraw(*instance);
                if withdrawn {
                    idle.push(*instance);
                }
                !withdrawn
            });
            for instance in run.granted.drain(..) {
                limited.forgo(instance);
                idle.push(instance);
            }
        }
        (kept, removed)
    }

    /// The same for sequences, which are bound to an instance: it only requests if requests of its own sequences wait.
    fn start_limited_sequences(
        &self,
        limited: &Registered,
        run: &mut Run,
        now: u64,
        mine: Option<u32>,
    ) -> (Option<Requests>, Removed) {
        let (mut kept, mut removed) = (None, Vec::new());
        let mut granted = std::mem::take(&mut run.granted);
        // Forgets idle sequences and removes cancelled requests, which needs no instance.
        let none = self.step(run, now, &mut removed);
        debug_assert!(none.is_none(), "a batch without an instance");
        let Run { asking, idle, schedule, .. } = run;
        asking.retain(|instance| {
            let stays = has_work(schedule, *instance) || !limited.withdraw(*instance);
            if !stays {
                idle.push(*instance);
            }
            stays
        });
        // Instances whose waiting requests cannot run now.
        let mut waiting: SmallVec<[u32; 8]> = SmallVec::new();
        loop {
            let instance = match granted.pop() {
                Some(instance) => instance,
                None => {
                    let ready = |i: &u32| has_work(&run.schedule, *i) && !waiting.contains(i);
                    let ready: SmallVec<[u32; 8]> = run.idle.iter().copied().filter(ready).collect();
                    let Some(instance) = limited.first(&ready) else { break };
                    run.idle.retain(|idle| *idle != instance);
                    if !limited.ask(instance, &mut run.finished) {
                        run.asking.push(instance);
                        continue;
                    }
                    instance
                }
            };
            run.granted.push(instance);
            match self.step(run, now, &mut removed) {
                Some((requests, _)) => {
                    run.granted.clear();
                    if Some(instance) == mine && kept.is_none() {
                        kept = Some(requests);
                    } else {
                        run.begins(instance, now, requests.len());
                        self.submit(instance, requests);
                    }
                }
                None => {
                    run.granted.clear();
                    limited.forgo(instance);
                    run.idle.push(instance);
                    waiting.push(instance);
                }
            }
        }
        (kept, removed)
    }

    /// Requests grants for idle instances until one is granted or as many wait as there are requests.
    fn ask(&self, limited: &Registered, run: &mut Run) {
        while run.granted.is_empty() && run.asking.len() < run.schedule.len() {
            let Some(instance) = limited.first(&run.idle) else { return };
            run.idle.retain(|idle| *idle != instance);
            if limited.ask(instance, &mut run.finished) {
                run.granted.push(instance);
            } else {
                run.asking.push(instance);
            }
        }
    }
}

impl Granted for ModelVersion {
    fn granted(&self, instance: u32) {
        let mut run = self.running.run.lock();
        run.asking.retain(|asking| *asking != instance);
        match &self.scheduling.limited {
            // The instance was removed before it was granted.
            Some(limited) if run.is_gone(instance) => limited.forgo(instance),
            _ => run.granted.push(instance),
        }
        self.pump(run, now_ns());
    }
}

/// True if requests wait that this instance could run.
fn has_work(schedule: &Schedule, instance: u32) -> bool {
    schedule.sequences().is_some_and(|sequences| sequences.has_work(instance))
}
