//! One connection to the server.

use parking_lot::{Condvar, Mutex};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::cell::RefCell;
use std::collections::HashMap;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{
    AtomicBool, AtomicU64,
    Ordering::{Relaxed, SeqCst},
};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Weak};
use std::time::Duration;
use tensor::{Error, Result};

use crate::json::{self, JsonError};
use crate::receive;
use crate::segments::{Flags, Segments};
use frames::generated::Frame;
use frames::{AnswerRef, InstanceId, write};

/// The two channels of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    Work,
    Side,
}

/// Receives the responses of a call to another model, on the thread that reads the connection: it must not block.
pub(crate) trait CallReceiver: Send + Sync {
    /// One response. `link` has the segments that its outputs may lie in.
    fn response(&self, link: &Arc<Link>, answer: &AnswerRef<'_>);
    /// The connection ended before the last response.
    fn lost(&self);
}

/// A connection: an instance of a model, or a model's own.
pub(crate) struct Link {
    work: Mutex<UnixStream>,
    side: Mutex<UnixStream>,
    /// Memory for tensors.
    pub(crate) segments: Arc<Segments>,
    /// Which requests are cancelled.
    pub(crate) flags: Flags,
    next: AtomicU64,
    /// Questions to the server that it has not answered.
    asked: Mutex<HashMap<u64, Sender<String>>>,
    calls: Mutex<HashMap<u64, Arc<dyn CallReceiver>>>,
    /// Calls whose callbacks have not all returned.
    pub(crate) callers: Arc<Callers>,
    is_closed: AtomicBool,
    closed: (Mutex<bool>, Condvar),
}

/// Counts calls until their last callback has returned.
#[derive(Default)]
pub(crate) struct Callers {
    count: Mutex<usize>,
    ended: Condvar,
}

/// A call that is counted until this is dropped.
pub(crate) struct Caller(Arc<Callers>);

impl Callers {
    pub(crate) fn enter(self: &Arc<Self>) -> Caller {
        *self.count.lock() += 1;
        Caller(Arc::clone(self))
    }

    /// Waits until there is none, at most `longest`.
    pub(crate) fn await_none(&self, longest: Duration) {
        self.ended.wait_while_for(&mut self.count.lock(), |count| *count > 0, longest);
    }
}

impl Drop for Caller {
    fn drop(&mut self) {
        *self.0.count.lock() -= 1;
        self.0.ended.notify_all();
    }
}

/// A frame whose length the protocol fixes, or a limit bounds.
pub(crate) fn short_frame(kind: Frame, body: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut frame = Vec::new();
    let writing = write::begin(&mut frame, InstanceId::ONLY, kind);
    body(&mut frame);
    let _ = writing.end(&mut frame);
    frame
}

#[derive(Serialize)]
struct Control<'a> {
    id: u64,
    operation: &'a str,
    #[serde(flatten)]
    members: Value,
}

#[derive(Deserialize)]
struct ControlResult {
    id: u64,
    error: Option<JsonError>,
}

static LINKS: Mutex<Vec<Weak<Link>>> = Mutex::new(Vec::new());

thread_local! {
    /// The connection whose code runs on this thread.
    static CURRENT: RefCell<Option<Arc<Link>>> = const { RefCell::new(None) };
}

impl Link {
    pub(crate) fn new(work: UnixStream, side: UnixStream, segments: Arc<Segments>, flags: Flags) -> Arc<Self> {
        let link = Arc::new(Self {
            work: Mutex::new(work),
            side: Mutex::new(side),
            segments,
            flags,
            next: AtomicU64::new(1),
            asked: Mutex::default(),
            calls: Mutex::default(),
            callers: Arc::default(),
            is_closed: AtomicBool::new(false),
            closed: (Mutex::new(false), Condvar::new()),
        });
        let of = Arc::downgrade(&link);
        link.segments.send_with(move |frame| {
            if let Some(link) = of.upgrade() {
                link.send(Way::Side, frame);
            }
        });
        let mut links = LINKS.lock();
        links.retain(|link| link.strong_count() > 0);
        links.push(Arc::downgrade(&link));
        link
    }

    /// Runs code of a library for this connection.
    pub(crate) fn run<T>(self: &Arc<Self>, code: impl FnOnce() -> T) -> T {
        let before = CURRENT.replace(Some(Arc::clone(self)));
        let result = code();
        CURRENT.set(before);
        result
    }

    /// The connection whose code runs on this thread, or else any that is open.
    pub(crate) fn current() -> Option<Arc<Self>> {
        let current = CURRENT.with_borrow(|link| link.clone()).filter(|link| !link.is_closed.load(Relaxed));
        current.or_else(|| {
            let links = LINKS.lock();
            links.iter().filter_map(Weak::upgrade).find(|link| !link.is_closed.load(Relaxed))
        })
    }

    /// Whether the server still has the connection.
    pub(crate) fn is_open(&self) -> bool {
        !self.is_closed.load(Relaxed)
    }

    /// Sends frames. Frames of one call stay together. What cannot be sent is lost: the server is gone.
    pub(crate) fn send(&self, way: Way, frames: &[u8]) {
        let stream = match way {
            Way::Work => &self.work,
            Way::Side => &self.side,
        };
        let _ = receive::send(&stream.lock(), frames);
    }

    /// Asks the server with CONTROL, and waits for its answer: the JSON object of CONTROL_RESULT.
    ///
    /// # Errors
    /// The error that the server returned, or UNAVAILABLE if the connection ends.
    pub(crate) fn ask<T: DeserializeOwned>(&self, operation: &str, members: Value) -> Result<T> {
        let id = self.next.fetch_add(1, Relaxed);
        let mut frame = Vec::new();
        write::json(&mut frame, InstanceId::ONLY, Frame::Control, &json::text(&Control { id, operation, members }))
            .map_err(|_| Error::invalid("a message to the server is too long"))?;
        let (send, answer) = channel();
        self.asked.lock().insert(id, send);
        if self.is_closed.load(SeqCst) {
            self.asked.lock().remove(&id);
        }
        self.send(Way::Side, &frame);
        let text = answer.recv().map_err(|_| Error::unavailable("the server has ended the connection"))?;
        match json::read::<ControlResult>(&text)?.error {
            Some(error) => Err(error.into()),
            None => json::read(&text),
        }
    }

    /// A number for a call, and who receives its responses.
    pub(crate) fn open_call(&self, receiver: Arc<dyn CallReceiver>) -> u64 {
        let call = self.next.fetch_add(1, Relaxed);
        self.calls.lock().insert(call, receiver);
        // The connection may have ended meanwhile: nobody else would tell.
        if self.is_closed.load(SeqCst)
            && let Some(receiver) = self.calls.lock().remove(&call)
        {
            receiver.lost();
        }
        call
    }

    /// Forgets a call that was not sent.
    pub(crate) fn close_call(&self, call: u64) {
        self.calls.lock().remove(&call);
    }

    /// Handles CONTROL_RESULT.
    pub(crate) fn control_result(&self, text: &str) {
        let id = json::read::<ControlResult>(text).map_or(0, |result| result.id);
        let asked = self.asked.lock().remove(&id);
        if let Some(asked) = asked {
            let _ = asked.send(text.to_owned());
        }
    }

    /// Handles CALL_RESPONSE.
    pub(crate) fn call_response(self: &Arc<Self>, call: u64, answer: &AnswerRef<'_>) {
        let mut calls = self.calls.lock();
        let receiver = if answer.is_final { calls.remove(&call) } else { calls.get(&call).cloned() };
        drop(calls);
        if let Some(receiver) = receiver {
            receiver.response(self, answer);
        }
    }

    /// The connection has ended: who waits for an answer gets none.
    pub(crate) fn close(&self) {
        self.is_closed.store(true, SeqCst);
        self.asked.lock().clear();
        self.segments.close();
        let calls = std::mem::take(&mut *self.calls.lock());
        calls.into_values().for_each(|call| call.lost());
        for way in [&self.work, &self.side] {
            let _ = way.lock().shutdown(std::net::Shutdown::Both);
        }
        *self.closed.0.lock() = true;
        self.closed.1.notify_all();
    }

    /// Closes the work socket only.
    pub(crate) fn end_work(&self) {
        let _ = self.work.lock().shutdown(std::net::Shutdown::Both);
    }

    /// Waits until the connection is closed, at most `longest`.
    pub(crate) fn await_close(&self, longest: Duration) {
        self.closed.1.wait_while_for(&mut self.closed.0.lock(), |is_closed| !*is_closed, longest);
    }
}
