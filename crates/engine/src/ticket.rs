//! Cancellation of a request in any state (queued, about to run, running, answered), and of the calls made for it.
//!
//! The flag is set before the stage is read, and a dispatcher reads the flag after it set the stage, both under the
//! lock of the ticket. So the later one sees the other, and a running batch counts each cancelled request at most once.
//!
//! Tickets form a tree: a call made for another request registers with its ticket, and is removed when it is settled. A
//! child registers under the lock under which its parent returns its children for cancellation, so each is cancelled
//! exactly once. No lock is held while another ticket is cancelled.

use crate::answer::{EngineResponse, Sink};
use backend::sync::{AtomicBool, Mutex, Ordering};
use backend::{RequestId, RunControl};
use scheduler::sequence::Origin;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Weak};
use tensor::{Error, Result};
use trace::Trace;

/// The version that accepted a request, as the request sees it.
pub trait Acceptor: Send + Sync {
    /// Unique id of its load.
    fn load(&self) -> u64;
    /// Called when a request was cancelled.
    fn cancelled(&self, stage: CancelledStage);
    /// Called when the handling of a request panicked. Releases what the request held, which are its count as waiting
    /// if it `waits`, and its row; returns the error to respond with.
    fn dropped(&self, waits: bool, row: Option<Origin>) -> Error;
    /// Delivers a response.
    fn deliver(&self, sink: Arc<dyn Sink>, answer: EngineResponse);
}

/// Handle of an accepted request, or of a group of calls. Dropping it does nothing.
#[derive(Clone)]
pub struct Ticket {
    pub(crate) state: Arc<TicketState>,
    pub(crate) measured: Option<Trace>,
}

impl Ticket {
    pub(crate) fn new(state: Arc<TicketState>) -> Self {
        Self { state, measured: None }
    }

    /// Measurements of the request, if it came without a trace: only requests that wait are measured then.
    pub fn measured(&self) -> Option<&Trace> {
        self.measured.as_ref()
    }
}

/// The state of a ticket. Public only for the model test.
#[doc(hidden)]
#[derive(Default)]
pub struct TicketState {
    cancelled: AtomicBool,
    /// The reader has all it wants, so the cancelled request is a success.
    enough: AtomicBool,
    progress: Mutex<RequestProgress>,
    /// The version that accepted the request; `None` for a group, and for a request whose owner handles cancellations.
    version: Option<Weak<dyn Acceptor>>,
    /// The request that this one was called for.
    parent: Option<Arc<TicketState>>,
    /// Nanoseconds of input, inference and output of calls made for it.
    spent: [AtomicU64; 3],
    /// The batching library of the version was not asked yet whether the request joins the batch before it.
    pub(crate) undecided: AtomicBool,
    /// By the batching library, the request begins another batch.
    pub(crate) begins: AtomicBool,
}

/// Stage of the request, and its children.
#[derive(Default)]
struct RequestProgress {
    stage: TicketStage,
    /// Error to respond with, if it was ended with another one than CANCELLED.
    reason: Option<Box<Error>>,
    /// Number among the children of the parent, until it is removed there.
    number: Option<usize>,
    /// Created with the first child.
    children: Option<Box<Children>>,
}

#[derive(Default)]
enum TicketStage {
    /// Waiting, or running in a batch that cannot be stopped.
    #[default]
    Queued,
    Running(Arc<RunControl>),
    /// Answered, or counted as cancelled by its batch.
    Settled,
}

/// Unsettled calls. Numbers are reused, so the size follows the calls alive at once.
#[derive(Default)]
struct Children {
    all: Vec<Weak<TicketState>>,
    free: Vec<usize>,
    /// Called when the request is cancelled.
    hooks: Vec<Box<dyn FnOnce() + Send>>,
}

/// Stage of an unfinished request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stage {
    Queued,
    Running,
}

/// Stage of a request when it was cancelled.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CancelledStage {
    /// In a queue, or in a batch that was not notified: the queue has to be swept.
    Queued,
    /// In a batch, which was notified.
    Running,
}

/// Notifies a backend of a cancellation. If it panics, others are still notified.
fn call(hook: Box<dyn FnOnce() + Send>) {
    if catch_unwind(AssertUnwindSafe(hook)).is_err() {
        log::error!("a backend panicked on a cancellation");
    }
}

impl TicketState {
    /// Creates the ticket of a request to `version`, made for the request of `parent`.
    ///
    /// # Errors
    /// CANCELLED if the parent was cancelled.
    #[doc(hidden)]
    pub fn new(version: Option<Weak<dyn Acceptor>>, parent: Option<&Arc<Self>>) -> Result<Arc<Self>> {
        let parent = parent.cloned();
        let child = Arc::new(Self { version, parent, ..Self::default() });
        if let Some(parent) = &child.parent {
            let number = parent.adopt(&child)?;
            // Not settled yet, because no other thread has it, but perhaps cancelled.
            child.progress.lock().number = Some(number);
        }
        Ok(child)
    }

    /// Registers a call made for this request.
    fn adopt(&self, child: &Arc<Self>) -> Result<usize> {
        let child = Arc::downgrade(child);
        let mut progress = self.progress.lock();
        if self.is_cancelled() {
            return Err(Error::cancelled(""));
        }
        let Children { all, free, .. } = &mut **progress.children.get_or_insert_default();
        Ok(match free.pop().and_then(|number| Some((number, all.get_mut(number)?))) {
            Some((number, entry)) => {
                *entry = child;
                number
            }
            None => {
                all.push(child);
                all.len() - 1
            }
        })
    }

    fn release(&self, number: usize) {
        // There are none after they were cancelled.
        if let Some(children) = &mut self.progress.lock().children
            && let Some(entry) = children.all.get_mut(number)
        {
            *entry = Weak::new();
            children.free.push(number);
        }
    }

    /// Registers `hook` for a cancellation: called at once if that was before, never after the request is settled.
    pub(crate) fn on_cancel(&self, hook: Box<dyn FnOnce() + Send>) {
        let mut progress = self.progress.lock();
        if !self.is_cancelled() {
            if !matches!(progress.stage, TicketStage::Settled) {
                progress.children.get_or_insert_default().hooks.push(hook);
            }
            return;
        }
        drop(progress);
        call(hook);
    }

    /// Number of unsettled calls made for this request.
    #[doc(hidden)]
    pub fn children(&self) -> usize {
        self.progress.lock().children.as_ref().map_or(0, |c| c.all.len() - c.free.len())
    }

    /// Cancels the request and every call made for it. `None` if it is over.
    #[doc(hidden)]
    pub fn cancel(&self) -> Option<CancelledStage> {
        self.give_up(None)
    }

    pub(crate) fn give_up(&self, reason: Option<Box<Error>>) -> Option<CancelledStage> {
        let mut children = Vec::new();
        let was = self.stop(reason, &mut children);
        // A list instead of recursion, because calls may be deeply nested.
        while let Some(child) = children.pop() {
            if let Some(child) = child.upgrade() {
                child.stop(None, &mut children);
            }
        }
        was
    }

    /// Cancels this request, and returns its children.
    fn stop(&self, reason: Option<Box<Error>>, children: &mut Vec<Weak<Self>>) -> Option<CancelledStage> {
        if self.is_cancelled() {
            return None;
        }
        let mut progress = self.progress.lock();
        if self.cancelled.swap(true, Ordering::AcqRel) {
            return None;
        }
        let was = match &progress.stage {
            TicketStage::Queued => CancelledStage::Queued,
            TicketStage::Running(run) => {
                run.cancel_one();
                progress.stage = TicketStage::Settled;
                CancelledStage::Running
            }
            TicketStage::Settled => {
                // Calls made for it may continue after its response, and are not wanted either.
                children.extend(progress.children.take().map(|c| c.all).unwrap_or_default());
                return None;
            }
        };
        progress.reason = reason;
        let Children { all, hooks, .. } = progress.children.take().map(|c| *c).unwrap_or_default();
        children.extend(all);
        drop(progress);
        hooks.into_iter().for_each(call);
        if let Some(version) = self.version()
            && (was == CancelledStage::Queued || !self.is_enough())
        {
            version.cancelled(was);
        }
        Some(was)
    }

    /// Whether a cancelled request is a success.
    pub(crate) fn is_enough(&self) -> bool {
        self.enough.load(Ordering::Acquire)
    }

    #[doc(hidden)]
    pub fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Acquire)
    }

    /// Registers the batch `run`, which can be stopped.
    #[doc(hidden)]
    pub fn running(&self, run: &Arc<RunControl>) {
        let mut progress = self.progress.lock();
        if self.is_cancelled() {
            progress.stage = TicketStage::Settled;
            run.cancel_one();
        } else {
            progress.stage = TicketStage::Running(run.clone());
        }
    }

    /// Records that the request waits to run again, without the last run's hooks. False if it was cancelled meanwhile.
    pub(crate) fn waits_again(&self) -> bool {
        let mut progress = self.progress.lock();
        let hooks = progress.children.as_mut().map(|c| std::mem::take(&mut c.hooks));
        let is_wanted = !self.is_cancelled();
        progress.stage = if is_wanted { TicketStage::Queued } else { TicketStage::Settled };
        drop(progress);
        drop(hooks);
        is_wanted
    }

    /// Ends cancellation, because the request is answered. Returns the error to send instead, if it has one.
    #[doc(hidden)]
    pub fn settle(&self) -> Option<Error> {
        let mut progress = self.progress.lock();
        progress.stage = TicketStage::Settled;
        let (reason, number) = (progress.reason.take(), progress.number.take());
        drop(progress);
        if let (Some(parent), Some(number)) = (&self.parent, number) {
            parent.release(number);
        }
        reason.map(|reason| *reason)
    }

    /// The version that accepted it; `None` if that ended.
    pub(crate) fn version(&self) -> Option<Arc<dyn Acceptor>> {
        self.version.as_ref()?.upgrade()
    }

    /// Nanoseconds of input, inference and output of calls made for this request.
    pub(crate) fn spent(&self) -> [u64; 3] {
        std::array::from_fn(|phase| self.spent.get(phase).map_or(0, |ns| ns.load(Ordering::Relaxed)))
    }

    /// Adds the time of a call made for this request.
    pub(crate) fn add_spent(&self, phases: [u64; 3]) {
        for (sum, ns) in self.spent.iter().zip(phases) {
            sum.fetch_add(ns, Ordering::Relaxed);
        }
    }

    /// Adds its time to the request that it was called for, before it responds.
    pub(crate) fn add_to_parent(&self, phases: [u64; 3]) {
        if let Some(parent) = &self.parent {
            parent.add_spent(phases);
        }
    }

    /// Stage of the request; `None` if it is over or cancelled.
    pub(crate) fn stage(&self) -> Option<Stage> {
        match self.progress.lock().stage {
            TicketStage::Queued if !self.is_cancelled() => Some(Stage::Queued),
            TicketStage::Running(_) => Some(Stage::Running),
            TicketStage::Queued | TicketStage::Settled => None,
        }
    }

    /// Unique id among tickets that are not dropped.
    pub(crate) fn id(self: &Arc<Self>) -> RequestId {
        RequestId(Arc::as_ptr(self) as usize)
    }

    /// Unfinished requests called for it, directly or indirectly.
    pub(crate) fn called(&self) -> Vec<Arc<Self>> {
        let mut found = self.children_alive();
        let mut at = 0;
        while let Some(next) = found.get(at).cloned() {
            found.extend(next.children_alive());
            at += 1;
        }
        found
    }

    fn children_alive(&self) -> Vec<Arc<Self>> {
        let progress = self.progress.lock();
        progress.children.iter().flat_map(|children| &children.all).filter_map(Weak::upgrade).collect()
    }

    fn is_settled(&self) -> bool {
        matches!(self.progress.lock().stage, TicketStage::Settled)
    }
}

impl Ticket {
    /// Creates a ticket without a request, which cancels all calls made under it. End it with [`end`](Self::end).
    ///
    /// # Errors
    /// CANCELLED if the parent was cancelled.
    pub fn group(parent: Option<&Ticket>) -> Result<Self> {
        Ok(Self::new(TicketState::new(None, parent.map(|p| &p.state))?))
    }

    /// Ends a group, which cannot be cancelled afterwards.
    pub fn end(&self) {
        self.state.settle();
    }

    /// True if the request is answered, or about to be by the thread that settled it.
    pub fn is_settled(&self) -> bool {
        self.state.is_settled()
    }

    /// True if the request was cancelled.
    pub fn is_cancelled(&self) -> bool {
        self.state.is_cancelled()
    }

    /// Cancels the request. A queued one leaves its queue at once and gets CANCELLED; a batch that only has cancelled
    /// requests is stopped; calls made for the request are cancelled, too. No effect after the response.
    pub fn cancel(&self) {
        self.state.cancel();
    }

    /// Like [`cancel`](Self::cancel), because its responses so far are all that the reader wants: a running request of
    /// a decoupled model counts as a success.
    pub fn enough(&self) {
        self.state.enough.store(true, Ordering::Release);
        self.state.cancel();
    }

    /// Like [`cancel`](Self::cancel), because the sink's reader is too slow: the next and last response is `error`.
    pub fn overrun(&self, error: Error) {
        self.state.give_up(Some(Box::new(error)));
    }

    /// Ends the request with `error` if it still waits.
    pub(crate) fn expire(&self, error: Error) {
        let waits = match &self.state.progress.lock().stage {
            TicketStage::Queued => true,
            // A request that begins to run now has waited as long.
            TicketStage::Running(run) => run.is_prefetched(),
            TicketStage::Settled => false,
        };
        if waits {
            self.overrun(error);
        }
    }
}

#[cfg(all(test, not(feature = "loom")))]
mod tests {
    use super::*;

    #[test]
    fn a_ticket_only_keeps_unfinished_calls() {
        let parent = Ticket::group(None).expect("new");
        let table = || parent.state.progress.lock().children.as_ref().map_or(0, |c| c.all.len());
        for round in 0..1000 {
            let calls: Vec<_> = (0..3).map(|_| Ticket::group(Some(&parent)).expect("wanted")).collect();
            assert_eq!((parent.state.children(), table()), (3, 3), "round {round}");
            calls.iter().rev().for_each(Ticket::end);
            // A second call has no effect.
            calls.iter().for_each(Ticket::end);
            assert_eq!((parent.state.children(), table()), (0, 3), "round {round}");
        }
    }

    #[test]
    fn cancellation_reaches_nested_calls_of_any_depth() {
        let root = Ticket::group(None).expect("new");
        let mut line = vec![root.clone()];
        for _ in 0..10_000 {
            line.push(Ticket::group(line.last()).expect("wanted"));
        }
        let over = Ticket::group(Some(&root)).expect("wanted");
        let below = Ticket::group(Some(&over)).expect("wanted");
        over.end();
        // Calls that continue after its end are cancelled with it.
        over.cancel();
        assert!(below.is_cancelled());
        root.cancel();
        assert!(line.iter().all(Ticket::is_cancelled));
        // From the leaves, like requests end.
        while let Some(ticket) = line.pop() {
            ticket.end();
        }
    }
}
