//! Responses of one request as server-sent events, sent as soon as they are ready after the head of a streamed reply.
//!
//! What an event looks like is decided by the endpoint, with its [`EventEncoder`].

use crate::answers::Inbox;
use crate::failure::RequestFailure;
use crate::inference::is_long_to_print;
use crate::offload::{self, Offloaded};
use crate::record::{self, EventNotes};
use bytes::Bytes;
use memory::{Account, Charge, Kind};
use protocol::InferResponse;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use tensor::{Error, Result};
use trace::Trace;

/// Encodes the responses of a request as events, with their fields and the empty line.
pub trait EventEncoder: Send + Sync {
    /// The event of a response. Called on another thread if that takes long.
    fn response(&self, response: &InferResponse) -> Result<Bytes>;

    /// The event of an error, which need not be the last.
    fn error(&self, error: &Error) -> Bytes;

    /// Beginning and end of each event of a response or an error, which the functions above leave out: a long text is
    /// not copied to get them.
    fn around(&self) -> [&'static [u8]; 2] {
        [b"", b""]
    }

    /// The event behind those of all responses, such as `data: [DONE]`.
    fn end(&self) -> Option<Bytes> {
        None
    }
}

#[derive(Debug)]
pub struct Event {
    /// Beginning, text and end of the event; some may be empty.
    pub parts: [Bytes; 3],
    /// The error that the event reports.
    pub error: Option<Error>,
}

impl Event {
    /// The event of an encoded response, or of an error.
    pub fn of(response: Result<Bytes>, encoder: &dyn EventEncoder) -> Self {
        let [before, behind] = encoder.around().map(Bytes::from_static);
        let (text, error) = match response {
            Ok(text) => (text, None),
            Err(error) => (encoder.error(&error), Some(error)),
        };
        Self { parts: [before, text, behind], error }
    }

    /// An event that is no response, whole.
    pub fn text(text: Bytes) -> Self {
        Self { parts: [text, Bytes::new(), Bytes::new()], error: None }
    }

    pub fn bytes(&self) -> usize {
        self.parts.iter().map(Bytes::len).sum()
    }
}

/// Makes events that are not responses of a model.
pub trait EventSource: Send {
    /// The next event, or several as one; `None` after the last.
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Event>>;
}

/// Where events come from.
enum Source {
    Responses(Box<ResponseEvents>),
    Other(Box<dyn EventSource>),
}

/// The responses of one request, as events.
struct ResponseEvents {
    inbox: Inbox,
    encoder: Arc<dyn EventEncoder>,
    account: Account,
    /// A response that another thread encodes.
    encoding: Option<Offloaded<(Result<Bytes>, Charge)>>,
    /// The last response was taken.
    is_last: bool,
    /// The event behind the last response.
    end: Option<Bytes>,
}

/// The events of one request. Dropped before the last, it cancels the request.
pub struct Events {
    source: Source,
    /// An event that [`poll_over`](Self::poll_over) found.
    ahead: Option<Event>,
    is_begun: bool,
    trace: Option<Trace>,
    /// Counts the events after the first, for the access log.
    notes: Option<Arc<EventNotes>>,
    /// Whether the last event that was returned may not be written yet.
    is_sending: bool,
}

impl fmt::Debug for Events {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Events").field("is_begun", &self.is_begun).finish_non_exhaustive()
    }
}

impl Events {
    /// The events of the one request of `inbox`. What is encoded is charged to `account`.
    pub fn new(inbox: Inbox, encoder: Arc<dyn EventEncoder>, account: &Account, trace: Option<Trace>) -> Self {
        let (account, end) = (account.clone(), encoder.end());
        let responses = ResponseEvents { inbox, account, encoding: None, is_last: false, end, encoder };
        Self::from(Source::Responses(Box::new(responses)), trace)
    }

    /// Events of another source.
    pub fn of(source: Box<dyn EventSource>) -> Self {
        Self::from(Source::Other(source), None)
    }

    fn from(source: Source, trace: Option<Trace>) -> Self {
        Self { source, ahead: None, is_begun: false, trace, notes: None, is_sending: false }
    }

    /// Counts events for a line of a log from now on.
    pub fn note_in(&mut self, notes: Option<Arc<EventNotes>>) {
        self.notes = notes;
    }

    /// The next event; `None` after the last.
    pub fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Event>> {
        if self.trace.is_some() {
            self.sent();
        }
        let next = ready!(self.poll_made(cx));
        if self.trace.is_some() && next.is_some() {
            record::event_sending(self.trace.as_ref());
            self.is_sending = true;
        }
        if let (Some(notes), Some(event)) = (&self.notes, &next) {
            notes.note(event.bytes(), event.error.as_ref());
        }
        // The failure of the first event is that of the reply.
        if std::mem::replace(&mut self.is_begun, true)
            && let Some(Event { error: Some(error), .. }) = &next
        {
            RequestFailure::from(error).count();
        }
        Poll::Ready(next)
    }

    /// Records that the last event was sent, or is sent in one write with the next.
    fn sent(&mut self) {
        if std::mem::take(&mut self.is_sending) {
            record::event_sent(self.trace.as_ref());
        }
    }

    fn poll_made(&mut self, cx: &mut Context<'_>) -> Poll<Option<Event>> {
        if let Some(ahead) = self.ahead.take() {
            return Poll::Ready(Some(ahead));
        }
        match &mut self.source {
            Source::Responses(responses) => responses.poll_made(self.trace.as_ref(), cx),
            Source::Other(source) => source.poll_next(cx),
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

impl ResponseEvents {
    fn poll_made(&mut self, trace: Option<&Trace>, cx: &mut Context<'_>) -> Poll<Option<Event>> {
        let encoded = loop {
            if let Some(work) = &mut self.encoding {
                let encoded = ready!(Pin::new(work).poll(cx));
                self.encoding = None;
                break encoded.and_then(|(encoded, charge)| Ok(offload::made(encoded?, charge)));
            }
            if self.is_last {
                return Poll::Ready(self.end.take().map(Event::text));
            }
            let answer = ready!(self.inbox.poll_next(cx));
            self.is_last = answer.is_final;
            if trace.is_some() {
                record::responded(trace, &answer);
            }
            let response = match answer.response {
                Some(Ok(response)) => response,
                Some(Err(error)) => break Err(error),
                None => continue,
            };
            if !is_long_to_print(&response) {
                break self.encoder.response(&response);
            }
            let (bytes, encoder) = (response.answered_bytes(), self.encoder.clone());
            let encode = move |_: &offload::CancelFlag<'_>| encoder.response(&response);
            match offload::start_charged(&self.account, Kind::Answer, bytes, encode) {
                Ok(work) => self.encoding = Some(work),
                Err(error) => break Err(error),
            }
        };
        Poll::Ready(Some(Event::of(encoded, &*self.encoder)))
    }
}

impl Drop for Events {
    fn drop(&mut self) {
        self.sent();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::answers::tests::{end, inbox, response};
    use engine::{EngineResponse, Sink};
    use std::future::poll_fn;

    /// Events with names and an end of their own.
    struct Sizes;

    impl EventEncoder for Sizes {
        fn response(&self, response: &InferResponse) -> Result<Bytes> {
            match response.outputs[0].data.len() {
                0 => Err(Error::internal("empty")),
                bytes => Ok(format!("event: size\ndata: {bytes}\n\n").into()),
            }
        }

        fn error(&self, error: &Error) -> Bytes {
            format!("event: error\ndata: {}\n\n", error.message()).into()
        }

        fn end(&self) -> Option<Bytes> {
            Some(Bytes::from_static(b"data: [DONE]\n\n"))
        }
    }

    /// Text of the events of these responses.
    fn check(answers: Vec<EngineResponse>, expected: &str) {
        let (inbox, slots, account) = inbox(1 << 30, 1);
        answers.into_iter().for_each(|answer| slots[0].put(answer));
        let mut events = Events::new(inbox, Arc::new(Sizes), &account, None);
        tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
            let (mut text, mut errors) = (String::new(), 0);
            while let Some(event) = poll_fn(|cx| events.poll_next(cx)).await {
                text += str::from_utf8(&event.parts.concat()).unwrap();
                errors += usize::from(event.error.is_some());
                assert_eq!(poll_fn(|cx| Poll::Ready(events.poll_over(cx))).await, text.ends_with("[DONE]\n\n"));
            }
            assert_eq!((text.as_str(), errors), (expected, expected.matches("error").count()));
        });
    }

    #[test]
    fn events_have_the_form_of_their_encoder() {
        let failure = || Err(Error::internal("no"));
        // Another thread encodes the large one.
        check(
            vec![response(1), EngineResponse::more(failure()), response(1 << 20), response(0), response(2), end()],
            "event: size\ndata: 1\n\nevent: error\ndata: no\n\nevent: size\ndata: 1048576\n\n\
             event: error\ndata: empty\n\nevent: size\ndata: 2\n\ndata: [DONE]\n\n",
        );
        check(vec![EngineResponse::only(failure())], "event: error\ndata: no\n\ndata: [DONE]\n\n");
        check(vec![end()], "data: [DONE]\n\n");
    }
}
