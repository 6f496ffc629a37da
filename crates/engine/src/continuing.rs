//! Versions that were replaced while sequences of theirs were in progress: these go on where they began, with what the old
//! version knows of them, until their END or until they were idle for too long. Sequences that start go to the new version.
//!
//! A version is kept here for no other reason, and leaves when its last sequence is over.
//!
//! Ids are those of a version: what continues a sequence goes to former loads of the same version number. Those of a number of which
//! nothing serves any more are continued by the others of the model.
//!
//! Locks: that of a version, then the one in here. Never the other way round.

use crate::limits::{CONTINUING_VERSIONS_MAX, EXIT_ABANDONED_MAX, EXIT_SEQUENCE_IDLE_US_MAX};
use crate::version::ModelVersion;
use backend::now_ns;
use parking_lot::Mutex;
use protocol::InferRequest;
use scheduler::sequence::conflict_warning;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Replaced versions of all models.
#[derive(Default)]
pub(crate) struct Continuing {
    /// By what the model is known by, the one that was replaced last behind the others.
    all: Mutex<HashMap<String, Vec<Arc<ModelVersion>>>>,
    /// So many.
    count: AtomicUsize,
}

impl Continuing {
    /// Keeps a version, unless it is kept already. Returns the one that has to go for it.
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

    /// As `keep`, of one that left, or had to: only if there is room.
    fn keep_again(&self, version: Arc<ModelVersion>) {
        let mut all = self.all.lock();
        let of_model = all.entry(version.table_key()).or_default();
        if of_model.len() < CONTINUING_VERSIONS_MAX && !of_model.iter().any(|v| Arc::ptr_eq(v, &version)) {
            of_model.push(version);
        }
        self.recount(&all);
    }

    /// No version of this number serves any more.
    pub(crate) fn retire(&self, model: &str, number: i64) {
        let all = self.all.lock();
        let of_number = all.get(model).into_iter().flatten().filter(|v| v.identity.number == number);
        of_number.for_each(|version| version.running.retired.store(true, Ordering::Release));
    }

    /// The sequences of a version are over. Its caller holds it, so it is not dropped here.
    fn leave(&self, version: &ModelVersion) {
        let mut all = self.all.lock();
        if let Some(of_model) = all.get_mut(&version.table_key()) {
            of_model.retain(|v| !std::ptr::eq(&**v, version));
        }
        all.retain(|_, of_model| !of_model.is_empty());
        self.recount(&all);
    }

    /// Forgets the versions of a model, or of all.
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

    /// Those that may have sequences of a version: former loads of its number, the latest first, then those of numbers that do not
    /// serve any more.
    fn of(&self, version: &ModelVersion) -> Vec<Arc<ModelVersion>> {
        let all = self.all.lock();
        let of_model = all.get(&version.table_key()).into_iter().flatten().rev();
        let others =
            of_model.filter(|v| !std::ptr::eq(&***v, version) && v.signature.decoupled == version.signature.decoupled);
        let (mut own, of_numbers): (Vec<_>, Vec<_>) =
            others.cloned().partition(|v| v.identity.number == version.identity.number);
        own.extend(of_numbers.into_iter().filter(|v| v.running.retired.load(Ordering::Acquire)));
        own
    }

    /// All of them.
    pub(crate) fn all(&self) -> Vec<Arc<ModelVersion>> {
        self.all.lock().values().flatten().cloned().collect()
    }
}

impl ModelVersion {
    /// Sequences in progress, those that wait for a slot included.
    pub(crate) fn sequences(&self) -> u64 {
        if self.scheduling.sequencing.is_none() {
            return 0;
        }
        self.running.run.lock().schedule.sequences().map_or(0, |sequences| sequences.alive() as u64)
    }

    /// The replaced version that has the sequence a request continues.
    pub(crate) fn former_of(&self, request: &InferRequest) -> Option<Arc<ModelVersion>> {
        let continuing = &self.shared.continuing;
        if request.sequence.start || continuing.is_empty() {
            return None;
        }
        let (now, id) = (now_ns(), crate::sequence::head(request).id);
        let knows = |version: &Self| {
            version.running.run.lock().schedule.sequences_mut().is_some_and(|sequences| sequences.knows(now, &id))
        };
        if knows(self) {
            return None;
        }
        let mut formers = continuing.of(self).into_iter();
        formers.find(|former| knows(former))
    }

    /// A sequence begins here: one of the same id that is in progress on a replaced version ends, as it would on one version.
    pub(crate) fn begins(&self, request: &InferRequest) {
        let continuing = &self.shared.continuing;
        if continuing.is_empty() {
            return;
        }
        let (now, id) = (now_ns(), crate::sequence::head(request).id);
        for former in continuing.of(self) {
            let mut run = former.running.run.lock();
            if run.schedule.sequences_mut().is_some_and(|sequences| sequences.end(now, &id)) {
                former.pump(run, now);
                log::warn!("{}", conflict_warning(&id, &self.signature.model));
            }
        }
    }

    /// Another version serves in its place from now on.
    pub(crate) fn is_replaced_now(&self) {
        self.running.replaced.store(true, Ordering::Release);
        self.pump(self.running.run.lock(), now_ns());
    }

    /// After a step of its schedule that left so many sequences: a replaced version is kept as long as there are any.
    pub(crate) fn continues_with(&self, sequences: usize) {
        if !self.running.replaced.load(Ordering::Acquire) {
            return;
        }
        match self.me.upgrade().filter(|_| sequences > 0) {
            // A request that found it before it was replaced may have started one.
            Some(me) => self.shared.continuing.keep_again(me),
            None => {
                self.shared.continuing.leave(self);
                self.notify_remote(|remote| remote.leave_service(std::time::Duration::MAX));
            }
        }
    }

    /// Nothing new comes to it, but to its sequences: without any its model need not work any longer for requests that nobody waits for.
    pub(crate) fn leaves_service(&self) {
        if !self.running.replaced.load(Ordering::Acquire) || self.sequences() == 0 {
            self.notify_remote(|remote| remote.leave_service(std::time::Duration::MAX));
        }
    }

    /// The server exits: what would keep it for nobody is over soon.
    pub(crate) fn server_exits(&self) {
        self.notify_remote(|remote| remote.leave_service(EXIT_ABANDONED_MAX));
        let mut run = self.running.run.lock();
        if let Some(sequences) = run.schedule.sequences_mut() {
            let now = now_ns();
            sequences.limit_idle(now, EXIT_SEQUENCE_IDLE_US_MAX);
            self.pump(run, now);
        }
    }

    /// Ends its sequences: requests that wait are refused, and what comes later has to START on another version.
    pub(crate) fn end_sequences(&self) {
        let mut removed = Vec::new();
        self.running.run.lock().schedule.end_sequences(&mut removed);
        self.unlocked(removed);
    }
}
