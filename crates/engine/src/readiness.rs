//! Whether a version can be used, where only its model knows (`RemoteModel::readiness`): code of a user is asked, which may take its time.
//!
//! Queries that come while the model is being asked share its answer. Each waits for [`READY_NS_MAX`] at most; then the version is not
//! ready. A model that does not answer is not asked again before it does. No thread waits.

use crate::later::Later;
use crate::limits::READY_NS_MAX;
use crate::version::ModelVersion;
use backend::{Readiness, now_ns};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

/// Whether something is ready.
pub enum Ready {
    /// Said at once.
    Known(bool),
    /// Models are asked.
    Asked(Asking),
}

impl Ready {
    /// Whether all of them are; the others are not waited for once one is not.
    pub(crate) fn all(each: impl Iterator<Item = Ready>) -> Self {
        let mut asked = Vec::new();
        for ready in each {
            match ready {
                Self::Known(true) => {}
                Self::Known(false) => return Self::Known(false),
                Self::Asked(Asking(more)) => asked.extend(more),
            }
        }
        if asked.is_empty() { Self::Known(true) } else { Self::Asked(Asking(asked)) }
    }

    /// Whether it is ready. Waits where models are asked, seconds at most.
    pub async fn get(self) -> bool {
        match self {
            Self::Known(ready) => ready,
            Self::Asked(asking) => asking.await,
        }
    }
}

impl Ready {
    /// Has `to` told whether it is ready: now, or by the thread that hears of it.
    pub fn tell(self, to: impl FnOnce(bool) + Send + 'static) {
        match self {
            Self::Known(ready) => to(ready),
            Self::Asked(asking) => Arc::new(Telling(Mutex::new(Some((asking, Box::new(to)))))).wake(),
        }
    }
}

type To = Box<dyn FnOnce(bool) + Send>;

/// Somebody who is to be told.
struct Telling(Mutex<Option<(Asking, To)>>);

impl Wake for Telling {
    fn wake(self: Arc<Self>) {
        let waker = Waker::from(self.clone());
        let mut waiting = self.0.lock();
        let Some((asking, _)) = &mut *waiting else { return };
        let Poll::Ready(ready) = Pin::new(asking).poll(&mut Context::from_waker(&waker)) else { return };
        let told = waiting.take();
        drop(waiting);
        if let Some((_, to)) = told {
            to(ready);
        }
    }
}

/// Waits for what models say. Dropped, it does not.
pub struct Asking(Vec<Waiter>);

impl Future for Asking {
    /// Whether all are ready.
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

/// A model that is asked.
#[derive(Default)]
pub(crate) struct Asked(Mutex<State>);

#[derive(Default)]
struct State {
    answer: Option<bool>,
    /// By number: until when it waits, and whom to wake.
    waiting: HashMap<u64, (u64, Option<Waker>)>,
    waiters: u64,
}

/// One query.
struct Waiter {
    asked: Arc<Asked>,
    number: u64,
    until: u64,
}

impl Waiter {
    fn poll(&self, waker: &Waker) -> Option<bool> {
        let mut state = self.asked.0.lock();
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
        self.asked.0.lock().waiting.remove(&self.number);
    }
}

impl Asked {
    fn wait(self: &Arc<Self>, until: u64) -> Waiter {
        let mut state = self.0.lock();
        state.waiters += 1;
        let number = state.waiters;
        state.waiting.insert(number, (until, None));
        Waiter { asked: self.clone(), number, until }
    }

    fn answer(&self, ready: bool) {
        let mut state = self.0.lock();
        if state.answer.is_some() {
            return;
        }
        state.answer = Some(ready);
        let wakers: Vec<_> = state.waiting.values_mut().filter_map(|(_, waker)| waker.take()).collect();
        drop(state);
        wakers.into_iter().for_each(Waker::wake);
    }

    fn is_answered(&self) -> bool {
        self.0.lock().answer.is_some()
    }
}

/// Owes an answer; dropped without one, the model is not ready.
struct Answer(Arc<Asked>);

impl Drop for Answer {
    fn drop(&mut self) {
        self.0.answer(false);
    }
}

impl Later {
    /// Wakes queries that have waited for long enough.
    pub(crate) fn wake_asking(&self) {
        let Some(asked) = self.asked.lock().clone() else { return };
        let now = now_ns();
        let mut state = asked.0.lock();
        let due = state.waiting.values_mut().filter(|(until, _)| *until <= now);
        let wakers: Vec<_> = due.filter_map(|(_, waker)| waker.take()).collect();
        drop(state);
        wakers.into_iter().for_each(Waker::wake);
    }
}

impl ModelVersion {
    /// Whether it can be used, as far as that is known without asking its model.
    pub(crate) fn is_ready_unasked(&self) -> bool {
        !self.running.is_short()
            && self.served.remote().is_none_or(|remote| !matches!(remote.readiness(), Readiness::NotReady(_)))
    }

    /// Whether it can be used: all instances are there, and its model says so.
    pub(crate) fn readiness(&self) -> Ready {
        if self.running.is_short() {
            return Ready::Known(false);
        }
        let Some((later, remote)) = self.running.later.as_ref().zip(self.served.remote()) else {
            return Ready::Known(true);
        };
        let ask = match remote.readiness() {
            Readiness::Ready => return Ready::Known(true),
            Readiness::NotReady(why) => {
                log::debug!("model '{}' is not ready: {why}", self.signature.model);
                return Ready::Known(false);
            }
            Readiness::Ask(ask) => ask,
        };
        let until = now_ns().saturating_add(READY_NS_MAX);
        let mut current = later.asked.lock();
        let (asked, is_first) = match current.as_ref().filter(|asked| !asked.is_answered()) {
            Some(asked) => (asked.clone(), false),
            None => (current.insert(Arc::default()).clone(), true),
        };
        drop(current);
        let waiter = asked.wait(until);
        let owed = is_first.then(|| Answer(asked));
        // Where no thread would wake it, it does not wait; and neither do others for an answer that nobody was asked for.
        if !self.shared.timer.arm(until, self.me.clone()) {
            return Ready::Known(false);
        }
        if let Some(answer) = owed {
            let model = self.signature.model.clone();
            ask(Box::new(move |said| {
                if let Err(why) = &said {
                    log::debug!("model '{model}' is not ready: {}", why.message());
                }
                answer.0.answer(said.is_ok());
            }));
        }
        Ready::Asked(Asking(vec![waiter]))
    }
}
