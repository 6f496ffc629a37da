//! Cancellation of one request, wherever it is: queued, about to run, running, answered; and of the calls made for it.
//!
//! The flag is set before the slot is looked at, and a dispatcher looks at the flag after it filled the slot, each under the
//! ticket's lock; so whichever comes second sees the other, and a running batch loses each wanted request at most once.
//!
//! Tickets form a tree: a call made for another request registers with its ticket, and leaves it when it is settled. A child
//! registers under the lock under which its parent hands out its children to be cancelled, so none is missed and none is told
//! twice. No lock is held while another ticket is told.

use crate::version::ModelVersion;
use backend::sync::{AtomicBool, Mutex, Ordering};
use backend::{RequestId, RunControl};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Weak};
use tensor::{Error, Result};

/// Handle to an accepted request, or to a group of calls. Dropping it does nothing.
#[derive(Clone)]
pub struct Ticket {
    pub(crate) state: Arc<TicketState>,
}

/// The state behind a ticket. Public for the model test only.
#[doc(hidden)]
#[derive(Default)]
pub struct TicketState {
    cancelled: AtomicBool,
    place: Mutex<Place>,
    /// Whose queue has to be swept when it is cancelled there.
    version: Weak<ModelVersion>,
    /// Whom it was called for.
    parent: Option<Arc<TicketState>>,
    /// Nanoseconds of input, infer and output that calls made for it took.
    spent: [AtomicU64; 3],
}

/// Where the request is, and what hangs on it.
#[derive(Default)]
struct Place {
    slot: Slot,
    /// What it is to be answered because it was given up, if not CANCELLED.
    reason: Option<Box<Error>>,
    /// Its number with its parent, until it leaves it.
    number: Option<usize>,
    /// Made with the first child.
    children: Option<Box<Children>>,
}

#[derive(Default)]
enum Slot {
    /// Waiting, or running where stopping it is not worth the trouble.
    #[default]
    Queued,
    Running(Arc<RunControl>),
    /// Its batch was told, or it was answered.
    Settled,
}

/// Calls that are not settled. Numbers of those that left are used again, so it grows with the calls alive at once.
#[derive(Default)]
struct Children {
    all: Vec<Weak<TicketState>>,
    free: Vec<usize>,
    /// To be called when the request is given up.
    hooks: Vec<Box<dyn FnOnce() + Send>>,
}

/// How far a request is that is not over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stage {
    /// It waits.
    Queued,
    /// It is in a batch.
    Running,
}

/// Where a request was when its client gave it up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Was {
    /// In a queue, or in a batch that is not told: the queue has to be swept.
    Queued,
    /// In a batch, which was told.
    Running,
}

/// Tells a backend that its request was given up. It may panic; others have to hear of it all the same.
fn call(hook: Box<dyn FnOnce() + Send>) {
    if catch_unwind(AssertUnwindSafe(hook)).is_err() {
        log::error!("a backend panicked when a request was given up");
    }
}

impl TicketState {
    /// The ticket of a request to `version`, made for the request of `parent`.
    ///
    /// # Errors
    /// CANCELLED: the parent was given up.
    #[doc(hidden)]
    pub fn new(version: Weak<ModelVersion>, parent: Option<&Arc<Self>>) -> Result<Arc<Self>> {
        let parent = parent.cloned();
        let child = Arc::new(Self { version, parent, ..Self::default() });
        if let Some(parent) = &child.parent {
            let number = parent.adopt(&child)?;
            // Not settled yet, since no other thread has it; perhaps given up already.
            child.place.lock().number = Some(number);
        }
        Ok(child)
    }

    /// Registers a call made for this request.
    fn adopt(&self, child: &Arc<Self>) -> Result<usize> {
        let child = Arc::downgrade(child);
        let mut place = self.place.lock();
        if self.is_cancelled() {
            return Err(Error::cancelled(""));
        }
        let Children { all, free, .. } = &mut **place.children.get_or_insert_default();
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
        // None are left once they were told to stop.
        if let Some(children) = &mut self.place.lock().children
            && let Some(entry) = children.all.get_mut(number)
        {
            *entry = Weak::new();
            children.free.push(number);
        }
    }

    /// Has `hook` called when the request is given up: at once if it was, never once it is settled.
    pub(crate) fn on_cancel(&self, hook: Box<dyn FnOnce() + Send>) {
        let mut place = self.place.lock();
        if !self.is_cancelled() {
            if !matches!(place.slot, Slot::Settled) {
                place.children.get_or_insert_default().hooks.push(hook);
            }
            return;
        }
        drop(place);
        call(hook);
    }

    /// Calls made for this request that are not settled.
    #[doc(hidden)]
    pub fn children(&self) -> usize {
        self.place.lock().children.as_ref().map_or(0, |c| c.all.len() - c.free.len())
    }

    /// Gives the request up, and every call made for it. `None` when there is nothing left to give up.
    #[doc(hidden)]
    pub fn cancel(&self) -> Option<Was> {
        self.give_up(None)
    }

    pub(crate) fn give_up(&self, reason: Option<Box<Error>>) -> Option<Was> {
        let mut children = Vec::new();
        let was = self.stop(reason, &mut children);
        // A list instead of recursion: calls for calls may go deep.
        while let Some(child) = children.pop() {
            if let Some(child) = child.upgrade() {
                child.stop(None, &mut children);
            }
        }
        was
    }

    /// Gives this one up, and hands out its children.
    fn stop(&self, reason: Option<Box<Error>>, children: &mut Vec<Weak<Self>>) -> Option<Was> {
        if self.is_cancelled() {
            return None;
        }
        let mut place = self.place.lock();
        if self.cancelled.swap(true, Ordering::AcqRel) {
            return None;
        }
        let was = match &place.slot {
            Slot::Queued => Was::Queued,
            Slot::Running(run) => {
                run.cancel_one();
                place.slot = Slot::Settled;
                Was::Running
            }
            Slot::Settled => {
                // Calls that were made for it may go on when it is answered; they are not wanted either.
                children.extend(place.children.take().map(|c| c.all).unwrap_or_default());
                return None;
            }
        };
        place.reason = reason;
        let Children { all, hooks, .. } = place.children.take().map(|c| *c).unwrap_or_default();
        children.extend(all);
        drop(place);
        hooks.into_iter().for_each(call);
        if let Some(version) = self.version.upgrade() {
            version.running.count_cancelled();
            if was == Was::Queued {
                version.sweep_cancelled();
            }
        }
        Some(was)
    }

    #[doc(hidden)]
    pub fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Acquire)
    }

    /// The request joins a batch that `run` can stop.
    #[doc(hidden)]
    pub fn running(&self, run: &Arc<RunControl>) {
        let mut place = self.place.lock();
        if self.is_cancelled() {
            place.slot = Slot::Settled;
            run.cancel_one();
        } else {
            place.slot = Slot::Running(run.clone());
        }
    }

    /// The request ran, and waits to run again; hooks were of that run. False when it was given up meanwhile.
    pub(crate) fn waits_again(&self) -> bool {
        let mut place = self.place.lock();
        let hooks = place.children.as_mut().map(|c| std::mem::take(&mut c.hooks));
        let is_wanted = !self.is_cancelled();
        place.slot = if is_wanted { Slot::Queued } else { Slot::Settled };
        drop(place);
        drop(hooks);
        is_wanted
    }

    /// The request is answered; cancelling it does nothing any more. Returns what it is to be answered instead, if it was given up
    /// with a reason.
    #[doc(hidden)]
    pub fn settle(&self) -> Option<Error> {
        let mut place = self.place.lock();
        place.slot = Slot::Settled;
        let (reason, number) = (place.reason.take(), place.number.take());
        drop(place);
        if let (Some(parent), Some(number)) = (&self.parent, number) {
            parent.release(number);
        }
        reason.map(|reason| *reason)
    }

    /// The version it was accepted by; `None` when that is gone.
    pub(crate) fn version(&self) -> Option<Arc<ModelVersion>> {
        self.version.upgrade()
    }

    /// What calls made for this request took: input, infer and output, in nanoseconds.
    pub(crate) fn spent(&self) -> [u64; 3] {
        std::array::from_fn(|phase| self.spent.get(phase).map_or(0, |ns| ns.load(Ordering::Relaxed)))
    }

    /// Adds what a call made for this request took.
    pub(crate) fn add_spent(&self, phases: [u64; 3]) {
        for (sum, ns) in self.spent.iter().zip(phases) {
            sum.fetch_add(ns, Ordering::Relaxed);
        }
    }

    /// Tells whom it was called for what it took, before the answer does.
    pub(crate) fn tell_spent(&self, phases: [u64; 3]) {
        if let Some(parent) = &self.parent {
            parent.add_spent(phases);
        }
    }

    /// How far it is; `None` when it is over, or given up.
    pub(crate) fn stage(&self) -> Option<Stage> {
        match self.place.lock().slot {
            Slot::Queued if !self.is_cancelled() => Some(Stage::Queued),
            Slot::Running(_) => Some(Stage::Running),
            Slot::Queued | Slot::Settled => None,
        }
    }

    /// Tells it from all others that are not dropped.
    pub(crate) fn id(self: &Arc<Self>) -> RequestId {
        RequestId(Arc::as_ptr(self) as usize)
    }

    /// Requests that were called for it and are not over, and those that were called for them.
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
        let place = self.place.lock();
        place.children.iter().flat_map(|children| &children.all).filter_map(Weak::upgrade).collect()
    }

    fn is_settled(&self) -> bool {
        matches!(self.place.lock().slot, Slot::Settled)
    }
}

impl Ticket {
    /// A ticket of no request, for a caller that makes several calls for one client: cancelled, it cancels them all. To be ended with
    /// [`end`](Self::end).
    ///
    /// # Errors
    /// CANCELLED: the parent was given up.
    pub fn group(parent: Option<&Ticket>) -> Result<Self> {
        Ok(Self { state: TicketState::new(Weak::new(), parent.map(|p| &p.state))? })
    }

    /// Ends a group: cancelling it does nothing any more.
    pub fn end(&self) {
        self.state.settle();
    }

    /// Whether the request is answered, or about to be by the thread that settled it.
    pub fn is_settled(&self) -> bool {
        self.state.is_settled()
    }

    /// Whether the request was given up.
    pub fn is_cancelled(&self) -> bool {
        self.state.is_cancelled()
    }

    /// The answer is not wanted any more. A queued request leaves its queue at once and is answered CANCELLED; a batch that only
    /// cancelled requests are left in is told to stop; calls made for the request are cancelled, too. Does nothing once the request
    /// is answered.
    pub fn cancel(&self) {
        self.state.cancel();
    }

    /// As [`cancel`](Self::cancel), because the sink's reader fell too far behind: the last answer will be `error`, and nothing
    /// else comes before it.
    pub fn overrun(&self, error: Error) {
        self.state.give_up(Some(Box::new(error)));
    }

    /// It waited for too long: ends it with `error` if it still does.
    pub(crate) fn expire(&self, error: Error) {
        // One that begins to run just now has waited as long.
        if matches!(self.state.place.lock().slot, Slot::Queued) {
            self.overrun(error);
        }
    }
}

#[cfg(all(test, not(feature = "loom")))]
mod tests {
    use super::*;

    #[test]
    fn a_request_that_calls_for_long_remembers_the_calls_alive_only() {
        let parent = Ticket::group(None).expect("new");
        let table = || parent.state.place.lock().children.as_ref().map_or(0, |c| c.all.len());
        for round in 0..1000 {
            let calls: Vec<_> = (0..3).map(|_| Ticket::group(Some(&parent)).expect("wanted")).collect();
            assert_eq!((parent.state.children(), table()), (3, 3), "round {round}");
            calls.iter().rev().for_each(Ticket::end);
            // Twice is once.
            calls.iter().for_each(Ticket::end);
            assert_eq!((parent.state.children(), table()), (0, 3), "round {round}");
        }
    }

    #[test]
    fn giving_up_reaches_calls_of_calls_however_deep_also_of_one_that_is_over() {
        let root = Ticket::group(None).expect("new");
        let mut line = vec![root.clone()];
        for _ in 0..10_000 {
            line.push(Ticket::group(line.last()).expect("wanted"));
        }
        let over = Ticket::group(Some(&root)).expect("wanted");
        let below = Ticket::group(Some(&over)).expect("wanted");
        over.end();
        // What was called for it and goes on is given up with it, also after its end.
        over.cancel();
        assert!(below.is_cancelled());
        root.cancel();
        assert!(line.iter().all(Ticket::is_cancelled));
        // From the leaves, as requests end.
        while let Some(ticket) = line.pop() {
            ticket.end();
        }
    }
}
