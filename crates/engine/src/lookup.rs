//! Requests whose response is being looked up, because the cache asks another process or a pool thread makes the key.
//!
//! No thread waits. The cache owns the request and returns it with the result; then it gets the cached response, or
//! runs as a call of its own under its ticket. If order is kept, its position is taken at the beginning.
//!
//! If it is cancelled while it waits, it is answered at once, and a later result is dropped.
//!
//! Invariant: it is answered once. If it is dropped for any reason, it runs as if nothing had been found.

use crate::answer::{EngineResponse, Sink};
use crate::cached::{Keyed, LookupKey, Miss, output_set};
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
use std::sync::Arc;
use tensor::{Error, Result};

/// An accepted request, counted as in flight.
pub(crate) struct PendingLookup {
    version: Arc<ModelVersion>,
    /// Ticket of this request; the call that it becomes is a child. No queue has to be swept for it.
    ticket: Ticket,
    accepted: u64,
    /// Depth of the caller.
    depth: u32,
    /// Position in the response order, if the model keeps it.
    place: Option<u64>,
    key: Option<(LookupKey, OutputSet)>,
    /// `None` once it has continued.
    parts: Option<Parts>,
}

/// A waiting lookup, until it continues or is cancelled. Its ticket has a weak reference to it.
pub(crate) struct WaitingLookup(Arc<Mutex<Option<PendingLookup>>>);

struct Parts {
    request: Box<InferRequest>,
    checked: Checked,
    sink: Arc<dyn Sink>,
}

impl PendingLookup {
    /// # Errors
    /// CANCELLED if the parent was cancelled. UNAVAILABLE if the version ended.
    pub(crate) fn new(
        version: &ModelVersion,
        request: Box<InferRequest>,
        checked: Checked,
        accepted: u64,
        sink: impl FnOnce() -> Arc<dyn Sink>,
        caller: Caller<'_>,
    ) -> Result<Self> {
        let Some(version) = version.me.upgrade() else { return Err(Error::unavailable("Server exiting")) };
        let ticket = Ticket::new(TicketState::new(None, caller.parent.map(|p| &p.state))?);
        let sink = sink();
        version.joined(1);
        let place = version.place_in_line();
        let parts = Some(Parts { request, checked, sink });
        Ok(Self { version, ticket, accepted, depth: caller.depth, place, key: None, parts })
    }

    pub(crate) fn ticket(&self) -> Ticket {
        self.ticket.clone()
    }

    pub(crate) fn set_key(&mut self, key: LookupKey, outputs: OutputSet) {
        self.key = Some((key, outputs));
    }

    /// Makes the ticket's cancellation reach it.
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

    /// Callback for a cache that responds later.
    pub(crate) fn receiver(self) -> Found {
        let held = self.waiting();
        Box::new(move |entry| {
            if let Some(mut me) = held.take() {
                me.resume(entry);
            }
        })
    }

    /// Makes the key and looks it up, on a thread that may take its time.
    fn run(mut self) {
        let version = self.version.clone();
        let (Some(cached), Some(parts)) = (&version.cached, &self.parts) else { return };
        let Keyed::By(key) = version.key(cached, &parts.request, &parts.checked, usize::MAX) else { return };
        let outputs = output_set(&parts.checked);
        self.set_key(key, outputs.clone());
        let mut me = Some(self);
        let found = cached.cache.lookup(&key.digest, &outputs, &mut || match me.take() {
            Some(me) => me.receiver(),
            None => Box::new(|_| ()),
        });
        // Otherwise it is dropped, if the cache did not take it.
        if let (Lookup::Hit(entry), Some(mut me)) = (found, me) {
            me.resume(Some(entry));
        }
    }

    fn resume(&mut self, entry: Option<Arc<Entry>>) {
        let Some(Parts { mut request, checked, sink }) = self.parts.take() else { return };
        let version = self.version.clone();
        if self.ticket.is_cancelled() {
            version.serving.count_cancelled();
            let now = now_ns();
            version.statistics.failed(self.accepted, now, FailureReason::Cancelled);
            let answer = Err(Error::cancelled(""));
            if let Some(trace) = request.trace.take() {
                traced::answered(&trace, &answer, now);
            }
            return self.respond(&sink, answer);
        }
        let now = now_ns();
        if let Some(entry) = entry.filter(|e| version.is_own(e)) {
            let answer = version.hit(&entry, &mut request, &checked, (self.accepted, now));
            return self.respond(&sink, answer);
        }
        let passing = || Arc::new(ForwardSink { sink: sink.clone(), ticket: self.ticket.clone() }) as Arc<dyn Sink>;
        // This thread belongs to the cache, so nothing runs inline.
        let caller = Caller { parent: Some(&self.ticket), inline_until: 0, depth: self.depth, text: None };
        let started = catch_unwind(AssertUnwindSafe(|| match self.key.take() {
            Some((key, outputs)) => {
                let miss = Miss { key, outputs, lookup_ns: now.saturating_sub(self.accepted) };
                version.admit_missed(miss, request, checked, (now, self.place), passing, caller)
            }
            None => version.admit(request, checked, now, self.place, passing, caller),
        }));
        match started.unwrap_or_else(|_| Err(version.defect())) {
            // The call counts for itself, and responds in the same position.
            Ok(Started::Queued(_)) => version.left(1),
            Ok(Started::Answered(result)) => self.respond(&sink, result),
            Err(refusal) => self.respond(&sink, Err(refusal)),
        }
    }

    fn respond(&self, sink: &Arc<dyn Sink>, result: Result<Box<protocol::InferResponse>>) {
        let answer = ForwardSink::last(&self.ticket, EngineResponse::only(result));
        self.version.deliver(sink.clone(), answer.at(self.place.unwrap_or(0)));
    }
}

impl WaitingLookup {
    fn take(&self) -> Option<PendingLookup> {
        self.0.lock().take()
    }

    /// Looks up the response, unless the request was cancelled.
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

/// Receives the responses of the call that a request became.
struct ForwardSink {
    sink: Arc<dyn Sink>,
    ticket: Ticket,
}

impl ForwardSink {
    /// The last response of a request, or its error if it was cancelled with a reason.
    fn last(ticket: &Ticket, answer: EngineResponse) -> EngineResponse {
        ticket.state.add_to_parent(ticket.state.spent());
        match ticket.state.settle() {
            Some(reason) => EngineResponse::only(Err(reason)),
            None => answer,
        }
    }
}

impl Sink for ForwardSink {
    fn put(&self, answer: EngineResponse) {
        let answer = if answer.is_final { Self::last(&self.ticket, answer) } else { answer };
        self.sink.put(answer);
    }
}
