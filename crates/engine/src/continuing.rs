//! Versions that were replaced while their sequences were in progress. These sequences go on with the state of
//! the old version until their END, or until they were idle for too long. New sequences go to the new version.
//!
//! A version is kept here only for its sequences, and removed when the last one is over.
//!
//! Requests that continue a sequence go to former loads of the same version number. If no version of a number serves
//! any more, the other versions of the model continue its sequences.
//!
//! Locks: first that of a version, then the one in here.

use crate::limits::{CONTINUING_VERSIONS_MAX, EXIT_ABANDONED_MAX, EXIT_SEQUENCE_IDLE_US_MAX};
use crate::version::{Continuing, ModelVersion};
use backend::now_ns;
use protocol::InferRequest;
use scheduler::sequence::conflict_warning;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

impl Continuing {
    /// Keeps a version, unless it is kept already. Returns the one that has to end for it.
    pub(crate) fn keep(&self, version: Arc<ModelVersion>) -> Option<Arc<ModelVersion>> {
        let mut all = self.all.lock();
        let of_model = all.entry(version.table_key()).or_default();
        if of_model.iter().any(|v| Arc::ptr_eq(v, &version)) {
            return None;
        }
        of_model.push(version);
        let gone = (of_model.len() > CONTINUING_VERSIONS_MAX).then(|| of_model.remove(0));
        self.recount(&all);
        gone
    }

    /// Like `keep`, for a version that was removed: only if there is room.
    fn keep_again(&self, version: Arc<ModelVersion>) {
        let mut all = self.all.lock();
        let of_model = all.entry(version.table_key()).or_default();
        if of_model.len() < CONTINUING_VERSIONS_MAX && !of_model.iter().any(|v| Arc::ptr_eq(v, &version)) {
            of_model.push(version);
        }
        self.recount(&all);
    }

    /// Marks the former loads of a version number as the last that serve it.
    pub(crate) fn retire(&self, model: &str, number: i64) {
        let all = self.all.lock();
        let of_number = all.get(model).into_iter().flatten().filter(|v| v.identity.number == number);
        of_number.for_each(|version| version.serving.retired.store(true, Ordering::Release));
    }

    /// Removes a version whose sequences are over. The caller owns it, so it is not dropped here.
    fn leave(&self, version: &ModelVersion) {
        let mut all = self.all.lock();
        if let Some(of_model) = all.get_mut(&version.table_key()) {
            of_model.retain(|v| !std::ptr::eq(&**v, version));
        }
        all.retain(|_, of_model| !of_model.is_empty());
        self.recount(&all);
    }

    /// Removes the versions of a model, or of all models.
    pub(crate) fn forget(&self, model: Option<&str>) -> Vec<Arc<ModelVersion>> {
        let mut all = self.all.lock();
        let gone = match model {
            Some(model) => all.remove(model).unwrap_or_default(),
            None => std::mem::take(&mut *all).into_values().flatten().collect(),
        };
        self.recount(&all);
        gone
    }

    fn recount(&self, all: &HashMap<String, Vec<Arc<ModelVersion>>>) {
        self.count.store(all.values().map(Vec::len).sum(), Ordering::Release);
    }

    fn is_empty(&self) -> bool {
        self.count.load(Ordering::Acquire) == 0
    }

    /// The versions that may have sequences for `version`: former loads of its number, the latest first, then those of
    /// numbers that do not serve any more.
    fn of(&self, version: &ModelVersion) -> Vec<Arc<ModelVersion>> {
        let all = self.all.lock();
        let of_model = all.get(&version.table_key()).into_iter().flatten().rev();
        let others =
            of_model.filter(|v| !std::ptr::eq(&***v, version) && v.signature.decoupled == version.signature.decoupled);
        let (mut own, of_numbers): (Vec<_>, Vec<_>) =
            others.cloned().partition(|v| v.identity.number == version.identity.number);
        own.extend(of_numbers.into_iter().filter(|v| v.serving.retired.load(Ordering::Acquire)));
        own
    }

    pub(crate) fn all(&self) -> Vec<Arc<ModelVersion>> {
        self.all.lock().values().flatten().cloned().collect()
    }
}

impl ModelVersion {
    /// Number of sequences in progress, including those that wait for a slot.
    pub(crate) fn sequences(&self) -> u64 {
        if self.scheduling.sequencing.is_none() {
            return 0;
        }
        self.serving.dispatch.lock().schedule.sequences().map_or(0, |sequences| sequences.alive() as u64)
    }

    /// The replaced version that has the sequence of a request.
    pub(crate) fn former_of(&self, request: &InferRequest) -> Option<Arc<ModelVersion>> {
        let continuing = &self.shared.continuing;
        if request.sequence.start || continuing.is_empty() {
            return None;
        }
        let (now, id) = (now_ns(), crate::sequence::head(request).id);
        let knows = |version: &Self| {
            version.serving.dispatch.lock().schedule.sequences_mut().is_some_and(|sequences| sequences.knows(now, &id))
        };
        if knows(self) {
            return None;
        }
        let mut formers = continuing.of(self).into_iter();
        formers.find(|former| knows(former))
    }

    /// Ends a sequence of the same id on replaced versions, because a new one begins here.
    pub(crate) fn begins(&self, request: &InferRequest) {
        let continuing = &self.shared.continuing;
        if continuing.is_empty() {
            return;
        }
        let (now, id) = (now_ns(), crate::sequence::head(request).id);
        for former in continuing.of(self) {
            let mut dispatch = former.serving.dispatch.lock();
            if dispatch.schedule.sequences_mut().is_some_and(|sequences| sequences.end(now, &id)) {
                former.pump(dispatch, now);
                log::warn!("{}", conflict_warning(&id, &self.signature.model));
            }
        }
    }

    /// Called when another version serves in its place.
    pub(crate) fn is_replaced_now(&self) {
        self.serving.replaced.store(true, Ordering::Release);
        self.pump(self.serving.dispatch.lock(), now_ns());
    }

    /// Called after a scheduler step with the number of sequences: a replaced version is kept while there are any.
    pub(crate) fn continues_with(&self, sequences: usize) {
        if !self.serving.replaced.load(Ordering::Acquire) {
            return;
        }
        match self.me.upgrade().filter(|_| sequences > 0) {
            // A request that found it before it was replaced may have started a sequence.
            Some(me) => self.shared.continuing.keep_again(me),
            None => {
                self.shared.continuing.leave(self);
                self.notify_remote(|remote| remote.leave_service(std::time::Duration::MAX));
            }
        }
    }

    /// Called when it gets no new requests. Without sequences, its model need not finish requests that were cancelled.
    pub(crate) fn leaves_service(&self) {
        if !self.serving.replaced.load(Ordering::Acquire) || self.sequences() == 0 {
            self.notify_remote(|remote| remote.leave_service(std::time::Duration::MAX));
        }
    }

    /// Called when the server exits: idle sequences and abandoned work end soon.
    pub(crate) fn server_exits(&self) {
        self.notify_remote(|remote| remote.leave_service(EXIT_ABANDONED_MAX));
        let mut dispatch = self.serving.dispatch.lock();
        if let Some(sequences) = dispatch.schedule.sequences_mut() {
            let now = now_ns();
            sequences.limit_idle(now, EXIT_SEQUENCE_IDLE_US_MAX);
            self.pump(dispatch, now);
        }
    }

    /// Ends its sequences: waiting requests are rejected, and later ones have to START on another version.
    pub(crate) fn end_sequences(&self) {
        let mut removed = Vec::new();
        self.serving.dispatch.lock().schedule.end_sequences(&mut removed);
        self.unlocked(removed);
    }
}
