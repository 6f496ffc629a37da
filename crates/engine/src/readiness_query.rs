//! Readiness that may have to wait for the answers of models.
//!
//! Queries that arrive while a model is being asked share its answer. No thread waits.

use backend::now_ns;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

/// Readiness of a version or of several.
pub enum ReadinessState {
    /// Known at once.
    Known(bool),
    /// Models were asked.
    Queried(ReadinessWait),
}

impl ReadinessState {
    /// Combines the readiness of several; does not wait for the others once one is not ready.
    pub(crate) fn all(each: impl Iterator<Item = ReadinessState>) -> Self {
        let mut asked = Vec::new();
        for ready in each {
            match ready {
                Self::Known(true) => {}
                Self::Known(false) => return Self::Known(false),
                Self::Queried(ReadinessWait(more)) => asked.extend(more),
            }
        }
        if asked.is_empty() { Self::Known(true) } else { Self::Queried(ReadinessWait(asked)) }
    }

    /// Waits for the answers of models, seconds at most.
    pub async fn get(self) -> bool {
        match self {
            Self::Known(ready) => ready,
            Self::Queried(asking) => asking.await,
        }
    }
}

impl ReadinessState {
    /// Calls `to` with the readiness: now, or later on the thread that receives the last answer.
    pub fn notify(self, to: impl FnOnce(bool) + Send + 'static) {
        match self {
            Self::Known(ready) => to(ready),
            Self::Queried(asking) => Arc::new(ReadinessCallback(Mutex::new(Some((asking, Box::new(to)))))).wake(),
        }
    }
}

type OnReadiness = Box<dyn FnOnce(bool) + Send>;

/// A callback that waits for the answers.
struct ReadinessCallback(Mutex<Option<(ReadinessWait, OnReadiness)>>);

impl Wake for ReadinessCallback {
    fn wake(self: Arc<Self>) {
        let waker = Waker::from(self.clone());
        let mut waiting = self.0.lock();
        let Some((asking, _)) = &mut *waiting else { return };
        let Poll::Ready(ready) = Pin::new(asking).poll(&mut Context::from_waker(&waker)) else { return };
        let done = waiting.take();
        drop(waiting);
        if let Some((_, to)) = done {
            to(ready);
        }
    }
}

/// Waits for the answers of models; dropping it cancels the wait.
pub struct ReadinessWait(pub(crate) Vec<Waiter>);

impl Future for ReadinessWait {
    /// True if all are ready.
    type Output = bool;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<bool> {
        let mut waiting = false;
        for waiter in &mut self.0 {
            match waiter.poll(context.waker()) {
                Some(true) => {}
                Some(false) => return Poll::Ready(false),
                None => waiting = true,
            }
        }
        if waiting { Poll::Pending } else { Poll::Ready(true) }
    }
}

/// A query to a model.
#[derive(Default)]
pub(crate) struct ReadinessQuery(Mutex<QueryState>);

#[derive(Default)]
struct QueryState {
    answer: Option<bool>,
    /// By number: end of the wait, and its waker.
    waiting: HashMap<u64, (u64, Option<Waker>)>,
    waiters: u64,
}

pub(crate) struct Waiter {
    query: Arc<ReadinessQuery>,
    number: u64,
    until: u64,
}

impl Waiter {
    fn poll(&self, waker: &Waker) -> Option<bool> {
        let mut state = self.query.0.lock();
        if state.answer.is_some() {
            return state.answer;
        }
        if now_ns() >= self.until {
            return Some(false);
        }
        if let Some((_, waiting)) = state.waiting.get_mut(&self.number) {
            *waiting = Some(waker.clone());
        }
        None
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        self.query.0.lock().waiting.remove(&self.number);
    }
}

impl ReadinessQuery {
    pub(crate) fn wait(self: &Arc<Self>, until: u64) -> Waiter {
        let mut state = self.0.lock();
        state.waiters += 1;
        let number = state.waiters;
        state.waiting.insert(number, (until, None));
        Waiter { query: self.clone(), number, until }
    }

    pub(crate) fn complete(&self, ready: bool) {
        let mut state = self.0.lock();
        if state.answer.is_some() {
            return;
        }
        state.answer = Some(ready);
        let wakers: Vec<_> = state.waiting.values_mut().filter_map(|(_, waker)| waker.take()).collect();
        drop(state);
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Wakes queries that have waited long enough.
    pub(crate) fn wake_late(&self) {
        let now = now_ns();
        let mut state = self.0.lock();
        let due = state.waiting.values_mut().filter(|(until, _)| *until <= now);
        let wakers: Vec<_> = due.filter_map(|(_, waker)| waker.take()).collect();
        drop(state);
        wakers.into_iter().for_each(Waker::wake);
    }

    pub(crate) fn is_answered(&self) -> bool {
        self.0.lock().answer.is_some()
    }
}

/// Sender of an answer; dropped without one, the model is not ready.
pub(crate) struct ReadinessReply(pub(crate) Arc<ReadinessQuery>);

impl Drop for ReadinessReply {
    fn drop(&mut self) {
        self.0.complete(false);
    }
}
