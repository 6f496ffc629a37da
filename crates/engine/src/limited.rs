//! Starts batches of versions whose instances need grants of the rate limiter (`rate_limit`).

use crate::pending::Requests;
use crate::rate_limit::{Granted, Registered};
use crate::schedule::{Removed, Schedule};
use crate::serving_state::{Dispatch, take_idle};
use crate::version::ModelVersion;
use backend::now_ns;
use smallvec::SmallVec;

impl ModelVersion {
    /// Like `start_batches`, for instances that need grants.
    pub(crate) fn start_limited(
        &self,
        limited: &Registered,
        dispatch: &mut Dispatch,
        now: u64,
        mine: Option<u32>,
    ) -> (Option<Requests>, Removed) {
        let started = match self.scheduling.sequencing {
            Some(_) => self.start_limited_sequences(limited, dispatch, now, mine),
            None => self.start_limited_requests(limited, dispatch, now, mine),
        };
        // Instances that requested again have done this already.
        limited.release(&mut dispatch.finished);
        started
    }

    fn start_limited_requests(
        &self,
        limited: &Registered,
        dispatch: &mut Dispatch,
        now: u64,
        mine: Option<u32>,
    ) -> (Option<Requests>, Removed) {
        let (mut kept, mut removed) = (None, Vec::new());
        loop {
            self.ask(limited, dispatch);
            let Some((requests, which)) = self.step(dispatch, now, &mut removed) else { break };
            match take_idle(&mut dispatch.granted, which) {
                Some(instance) if Some(instance) == mine && kept.is_none() => {
                    dispatch.begins(instance, now, requests.len());
                    kept = Some(requests);
                }
                instance => {
                    dispatch.begins(instance.unwrap_or(0), now, requests.len());
                    self.submit(instance.unwrap_or(0), requests);
                }
            }
        }
        // There is no batch now: return the resources, so that other versions do not wait for this one.
        if !dispatch.granted.is_empty() {
            let (idle, asking) = (&mut dispatch.idle, &mut dispatch.asking);
            asking.retain(|instance| {
                let withdrawn = limited.withdraw(*instance);
                if withdrawn {
                    idle.push(*instance);
                }
                !withdrawn
            });
            for instance in dispatch.granted.drain(..) {
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
        dispatch: &mut Dispatch,
        now: u64,
        mine: Option<u32>,
    ) -> (Option<Requests>, Removed) {
        let (mut kept, mut removed) = (None, Vec::new());
        let mut granted = std::mem::take(&mut dispatch.granted);
        // Forgets idle sequences and removes cancelled requests, which needs no instance.
        let none = self.step(dispatch, now, &mut removed);
        debug_assert!(none.is_none(), "a batch without an instance");
        let Dispatch { asking, idle, schedule, .. } = dispatch;
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
                    let ready = |i: &u32| has_work(&dispatch.schedule, *i) && !waiting.contains(i);
                    let ready: SmallVec<[u32; 8]> = dispatch.idle.iter().copied().filter(ready).collect();
                    let Some(instance) = limited.first(&ready) else { break };
                    dispatch.idle.retain(|idle| *idle != instance);
                    if !limited.ask(instance, &mut dispatch.finished) {
                        dispatch.asking.push(instance);
                        continue;
                    }
                    instance
                }
            };
            dispatch.granted.push(instance);
            match self.step(dispatch, now, &mut removed) {
                Some((requests, _)) => {
                    dispatch.granted.clear();
                    dispatch.begins(instance, now, requests.len());
                    if Some(instance) == mine && kept.is_none() {
                        kept = Some(requests);
                    } else {
                        self.submit(instance, requests);
                    }
                }
                None => {
                    dispatch.granted.clear();
                    limited.forgo(instance);
                    dispatch.idle.push(instance);
                    waiting.push(instance);
                }
            }
        }
        (kept, removed)
    }

    /// Requests grants for idle instances until one is granted or as many wait as there are requests.
    fn ask(&self, limited: &Registered, dispatch: &mut Dispatch) {
        while dispatch.granted.is_empty() && dispatch.asking.len() < dispatch.schedule.len() {
            let Some(instance) = limited.first(&dispatch.idle) else { return };
            dispatch.idle.retain(|idle| *idle != instance);
            if limited.ask(instance, &mut dispatch.finished) {
                dispatch.granted.push(instance);
            } else {
                // The request that this instance would run.
                let waits = dispatch.schedule.forming().nth(dispatch.asking.len());
                if let Some(trace) = waits.and_then(|queued| queued.0.entry.request.trace.as_ref()) {
                    self.trace_wait(trace, (0, 0), Some(instance));
                }
                dispatch.asking.push(instance);
            }
        }
    }
}

impl Granted for ModelVersion {
    fn granted(&self, instance: u32) {
        let mut dispatch = self.serving.dispatch.lock();
        dispatch.asking.retain(|asking| *asking != instance);
        match &self.scheduling.limited {
            // The instance was removed before it was granted.
            Some(limited) if dispatch.is_gone(instance) => limited.forgo(instance),
            _ => dispatch.granted.push(instance),
        }
        self.pump(dispatch, now_ns());
    }
}

/// True if requests wait that this instance could run.
fn has_work(schedule: &Schedule, instance: u32) -> bool {
    schedule.sequences().is_some_and(|sequences| sequences.has_work(instance))
}
