//! A request whose answer is being looked for: its cache asks another process, or its key is made on a thread of the pool.
//!
//! No thread waits. The request is in the hands of the cache, which gives back what it found; then it is answered, or runs, as a call
//! of its own under its ticket. Where order is kept it has its place in the line from the beginning.
//!
//! While it waits its ticket reaches it, too: one that is given up is answered at once, and what is found later is dropped.
//!
//! Invariant: it is answered once. One that is dropped, whatever the reason, runs as if nothing had been found.

use crate::answer::{Answer, Delivery, Sink};
use crate::cached::{Keyed, LookupKey, Miss, asked};
use crate::call::{Caller, Started};
use crate::statistics::FailureReason;
use crate::ticket::{Ticket, TicketState};
use crate::traced;
use crate::version::ModelVersion;
use backend::now_ns;
use cache::{Entry, Found, Lookup, OutputSet};
use parking_lot::Mutex;
use protocol::{Checked, InferRequest};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Weak};
use tensor::{Error, Result};

/// The request. Accepted, and counted as in flight.
pub(crate) struct PendingLookup {
    version: Arc<ModelVersion>,
    /// Of this request; the call that it becomes is a child. No queue is to be swept for it.
    ticket: Ticket,
    accepted: u64,
    /// As its caller's.
    depth: u32,
    /// In the line of a model that keeps order.
    place: Option<u64>,
    key: Option<(LookupKey, OutputSet)>,
    /// `None` once it goes on.
    parts: Option<Parts>,
}

/// One that waits, until it goes on or is given up. Its ticket knows it by a weak count: dropped, it is dropped.
pub(crate) struct WaitingLookup(Arc<Mutex<Option<PendingLookup>>>);

struct Parts {
    request: Box<InferRequest>,
    checked: Checked,
    sink: Arc<dyn Sink>,
}

impl PendingLookup {
    /// # Errors
    /// CANCELLED: the request it is made for was given up. UNAVAILABLE: the version is gone.
    pub(crate) fn new(
        version: &ModelVersion,
        request: Box<InferRequest>,
        checked: Checked,
        accepted: u64,
        sink: impl FnOnce() -> Arc<dyn Sink>,
        caller: Caller<'_>,
    ) -> Result<Self> {
        let Some(version) = version.me.upgrade() else { return Err(Error::unavailable("Server exiting")) };
        let ticket = Ticket { state: TicketState::new(Weak::new(), caller.parent.map(|p| &p.state))? };
        let sink = sink();
        version.joined(1);
        let place = version.place_in_line();
        let parts = Some(Parts { request, checked, sink });
        Ok(Self { version, ticket, accepted, depth: caller.depth, place, key: None, parts })
    }

    pub(crate) fn ticket(&self) -> Ticket {
        self.ticket.clone()
    }

    /// What it is looked for by.
    pub(crate) fn set_key(&mut self, key: LookupKey, asked: OutputSet) {
        self.key = Some((key, asked));
    }

    /// Lets it wait.
    pub(crate) fn waiting(self) -> WaitingLookup {
        let ticket = self.ticket();
        let held = WaitingLookup(Arc::new(Mutex::new(Some(self))));
        let known = Arc::downgrade(&held.0);
        ticket.state.on_cancel(Box::new(move || {
            if let Some(mut given_up) = known.upgrade().and_then(|held| WaitingLookup(held).take()) {
                given_up.resume(None);
            }
        }));
        held
    }

    /// For a cache that answers later.
    pub(crate) fn receiver(self) -> Found {
        let held = self.waiting();
        Box::new(move |entry| {
            if let Some(mut me) = held.take() {
                me.resume(entry);
            }
        })
    }

    /// Makes the key, and looks. On a thread that may take its time.
    fn run(mut self) {
        let version = self.version.clone();
        let (Some(cached), Some(parts)) = (&version.cached, &self.parts) else { return };
        let Keyed::By(key) = version.key(cached, &parts.request, &parts.checked, usize::MAX) else { return };
        let asked = asked(&parts.checked);
        self.set_key(key, asked.clone());
        let mut me = Some(self);
        let found = cached.cache.lookup(&key.digest, &asked, &mut || match me.take() {
            Some(me) => me.receiver(),
            None => Box::new(|_| ()),
        });
        // Otherwise it is dropped, if it was not taken.
        if let (Lookup::Hit(entry), Some(mut me)) = (found, me) {
            me.resume(Some(entry));
        }
    }

    /// Goes on with what was found.
    fn resume(&mut self, entry: Option<Arc<Entry>>) {
        let Some(Parts { mut request, checked, sink }) = self.parts.take() else { return };
        let version = self.version.clone();
        if self.ticket.is_cancelled() {
            version.running.count_cancelled();
            let now = now_ns();
            version.statistics.failed(self.accepted, now, FailureReason::Cancelled);
            let answer = Err(Error::cancelled(""));
            if let Some(trace) = request.trace.take() {
                traced::answered(&trace, &answer, now);
            }
            return self.answer(&sink, answer);
        }
        let now = now_ns();
        if let Some(entry) = entry.filter(|e| version.is_own(e)) {
            let answer = version.hit(&entry, &mut request, &checked, (self.accepted, now));
            return self.answer(&sink, answer);
        }
        let passing = || Arc::new(ForwardSink { sink: sink.clone(), ticket: self.ticket.clone() }) as Arc<dyn Sink>;
        // Nothing runs on this thread: it is the cache's.
        let caller = Caller { parent: Some(&self.ticket), inline_until: 0, depth: self.depth };
        let started = catch_unwind(AssertUnwindSafe(|| match self.key.take() {
            Some((key, asked)) => {
                let miss = Miss { key, asked, lookup_ns: now.saturating_sub(self.accepted) };
                version.admit_missed(miss, request, checked, (now, self.place), passing, caller)
            }
            None => version.admit(request, checked, now, self.place, passing, caller),
        }));
        match started.unwrap_or_else(|_| Err(version.defect())) {
            // It counts for itself, and answers in the place.
            Ok(Started::Queued(_)) => version.left(1),
            Ok(Started::Answered(result)) => self.answer(&sink, result),
            Err(refusal) => self.answer(&sink, Err(refusal)),
        }
    }

    fn answer(&self, sink: &Arc<dyn Sink>, result: Result<Box<protocol::InferResponse>>) {
        let answer = ForwardSink::last(&self.ticket, Answer::only(result));
        self.version.deliver(self.place.unwrap_or(0), Delivery { sink: sink.clone(), answer });
    }
}

impl WaitingLookup {
    fn take(&self) -> Option<PendingLookup> {
        self.0.lock().take()
    }

    /// Looks for its answer, unless it was given up.
    pub(crate) fn run(self) {
        if let Some(looking) = self.take() {
            looking.run();
        }
    }
}

impl Drop for PendingLookup {
    fn drop(&mut self) {
        self.resume(None);
    }
}

/// Takes the answers of the call that a request became.
struct ForwardSink {
    sink: Arc<dyn Sink>,
    ticket: Ticket,
}

impl ForwardSink {
    /// The last answer of a request; what it is to be answered instead, if it was given up with a reason.
    fn last(ticket: &Ticket, answer: Answer) -> Answer {
        ticket.state.tell_spent(ticket.state.spent());
        match ticket.state.settle() {
            Some(reason) => Answer::only(Err(reason)),
            None => answer,
        }
    }
}

impl Sink for ForwardSink {
    fn put(&self, answer: Answer) {
        let answer = if answer.is_final { Self::last(&self.ticket, answer) } else { answer };
        self.sink.put(answer);
    }
}
