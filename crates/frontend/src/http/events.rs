//! Responses of one request as server-sent events, sent as soon as they are ready after the head of a streamed reply.

use crate::access_log::entry::EventNotes;
use crate::answers::Inbox;
use crate::failure::Failure;
use crate::inference::is_long_to_print;
use crate::offload::{self, Offloaded};
use crate::traced;
use bytes::Bytes;
use engine::ModelVersion;
use memory::{Account, Charge, Kind};
use protocol::generate::encode_generate;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use tensor::Result;
use trace::Trace;

/// Prefix of the JSON of an event.
pub const BEFORE: &[u8] = b"data: ";
/// Suffix of the JSON of an event.
pub const BEHIND: &[u8] = b"\n\n";

/// The JSON of an event: a response or an error.
pub fn json(printed: Result<Bytes>) -> Bytes {
    printed.unwrap_or_else(|error| protocol::json::error_json(error.message()))
}

/// The events of one request. Dropped before the last, it cancels the request.
pub struct Events {
    inbox: Inbox,
    version: Arc<ModelVersion>,
    account: Account,
    /// A response that another thread prints.
    printing: Option<Offloaded<(Result<Bytes>, Charge)>>,
    /// An event that [`poll_over`](Self::poll_over) found.
    ahead: Option<Result<Bytes>>,
    is_begun: bool,
    is_last: bool,
    trace: Option<Trace>,
    /// Counts the events after the first, for the access log.
    notes: Option<Arc<EventNotes>>,
    /// Whether the last event that was returned may not be written yet.
    is_sending: bool,
}

impl fmt::Debug for Events {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Events").field("is_last", &self.is_last).finish_non_exhaustive()
    }
}

impl Events {
    /// The events of the one request of `inbox`, to a model of `version`. What is printed is charged to `account`.
    pub fn new(inbox: Inbox, version: Arc<ModelVersion>, account: &Account, trace: Option<Trace>) -> Self {
        let account = account.clone();
        Self {
            inbox,
            version,
            account,
            printing: None,
            ahead: None,
            is_begun: false,
            is_last: false,
            trace,
            notes: None,
            is_sending: false,
        }
    }

    /// Counts events for a line of a log from now on.
    pub fn note_in(&mut self, notes: Option<Arc<EventNotes>>) {
        self.notes = notes;
    }

    /// The next response, printed; `None` after the last.
    pub fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes>>> {
        if self.trace.is_some() {
            self.sent();
        }
        let next = ready!(self.poll_made(cx));
        if self.trace.is_some() && next.is_some() {
            traced::http_sending(self.trace.as_ref());
            self.is_sending = true;
        }
        if let (Some(notes), Some(event)) = (&self.notes, &next) {
            notes.note(event);
        }
        // The failure of the first event is that of the reply.
        if let (true, Some(Err(error))) = (std::mem::replace(&mut self.is_begun, true), &next) {
            Failure::from(error).count();
        }
        Poll::Ready(next)
    }

    /// Records that the last event was sent, or is sent in one write with the next.
    fn sent(&mut self) {
        if std::mem::take(&mut self.is_sending) {
            traced::http_sent(self.trace.as_ref());
        }
    }

    fn poll_made(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes>>> {
        if let Some(ahead) = self.ahead.take() {
            return Poll::Ready(Some(ahead));
        }
        loop {
            if let Some(work) = &mut self.printing {
                let printed = ready!(Pin::new(work).poll(cx));
                self.printing = None;
                let printed = printed.and_then(|(printed, charge)| Ok(offload::made(printed?, charge)));
                return Poll::Ready(Some(printed));
            }
            if self.is_last {
                return Poll::Ready(None);
            }
            let (_, answer) = ready!(self.inbox.poll_next(cx));
            self.is_last = answer.is_final;
            if self.trace.is_some() {
                (0..traced::completions(&answer)).for_each(|_| traced::completed(self.trace.as_ref()));
            }
            let response = match answer.response {
                Some(Ok(response)) => response,
                Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                None => continue,
            };
            if !is_long_to_print(&response) {
                return Poll::Ready(Some(encode_generate(&response, &self.version.signature)));
            }
            let bytes = response.answered_bytes();
            let version = self.version.clone();
            let print = move |_: &offload::CancelFlag<'_>| encode_generate(&response, &version.signature);
            match offload::start_charged(&self.account, Kind::Answer, bytes, print) {
                Ok(work) => self.printing = Some(work),
                Err(error) => return Poll::Ready(Some(Err(error))),
            }
        }
    }

    /// Whether nothing follows, as far as is known now.
    pub fn poll_over(&mut self, cx: &mut Context<'_>) -> bool {
        match self.poll_made(cx) {
            Poll::Ready(None) => true,
            Poll::Ready(some) => {
                self.ahead = some;
                false
            }
            Poll::Pending => false,
        }
    }
}

impl Drop for Events {
    fn drop(&mut self) {
        self.sent();
    }
}
