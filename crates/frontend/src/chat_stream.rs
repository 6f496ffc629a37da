//! The responses of a model to one reply or a stream.

use crate::answers::Inbox;
use crate::hold;
use crate::http::events::{Event, EventSource, Events};
use crate::http::reply::Reply;
use crate::limits::{ANSWERS_PER_LOOK, CHARGE_BYTES_MIN, PRINT_BYTES_ON_REACTOR_MAX};
use crate::offload::{self, Offloaded};
use crate::record::EventNotes;
use crate::text_calls::TextResult;
use crate::text_errors;
use bytes::Bytes;
use chat::speech::{Continuation, DONE, Speech};
use engine::{ChatModel, EngineResponse, ModelVersion};
use memory::{Account, Charge, Kind};
use parking_lot::Mutex;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use tensor::{Error, Result, allowance};

/// Bytes of chunks that are made before they are written.
const BURST_BYTES_MAX: usize = 16 << 10;

/// Tokens of each text; empty if they cannot be counted.
pub fn count(model: &ChatModel, texts: &[String], has_special: bool) -> Vec<u64> {
    let Some(tokenizer) = model.tokenizer() else { return Vec::new() };
    let all = texts.iter().map(|text| tokenizer.count(text, has_special).map(|tokens| tokens as u64));
    all.collect::<Result<_>>().unwrap_or_default()
}

/// A model that says its choices.
pub struct Saying {
    inbox: Inbox,
    version: Arc<ModelVersion>,
    /// Locked by another thread only during `adding`.
    speech: Arc<Mutex<Speech>>,
    adding: Option<Adding>,
    account: Account,
    /// For the text that is kept.
    charge: Charge,
    /// For the inputs of all choices.
    _inputs: Charge,
    taken: u32,
}

/// A large response, which another thread adds to the text.
struct Adding {
    key: u32,
    is_final: bool,
    work: Offloaded<(Result<Added>, Charge)>,
}

/// Chunks of a large response, and whether its choice goes on.
type Added = (Vec<u8>, Continuation);

/// Copies of a text that its chunk is made of, and bytes for each byte of log probabilities.
const COPIES: usize = 4;
const LOGPROB_COPIES: usize = 12;

impl Saying {
    /// The responses in `inbox` to the choices of a reply. `inputs` is for the inputs of all choices.
    pub fn new(inbox: Inbox, version: &Arc<ModelVersion>, speech: Speech, account: &Account, inputs: Charge) -> Self {
        Self {
            inbox,
            version: version.clone(),
            speech: Arc::new(Mutex::new(speech)),
            adding: None,
            account: account.clone(),
            charge: account.empty(Kind::Answer, true),
            _inputs: inputs,
            taken: 0,
        }
    }

    fn is_over(&self) -> bool {
        self.adding.is_none() && self.speech.lock().is_over()
    }

    /// Hears a response of the model, whose chunks are appended to `out`; those of a large response are returned.
    fn poll_hear(&mut self, cx: &mut Context<'_>, out: &mut Vec<u8>) -> Poll<Result<Option<Bytes>>> {
        if self.adding.is_none() {
            let answer = ready!(self.inbox.poll_next(cx));
            self.adding = self.add(answer, out)?;
        }
        let Some(adding) = &mut self.adding else { return Poll::Ready(Ok(None)) };
        let done = ready!(Pin::new(&mut adding.work).poll(cx));
        let (key, is_final) = (adding.key, adding.is_final);
        self.adding = None;
        let (made, mut charge) = done?;
        let (chunks, continuation) = made?;
        charge.grow_to(chunks.len())?;
        self.added(key, is_final, continuation)?;
        Poll::Ready(Ok(Some(offload::made(chunks.into(), charge))))
    }

    fn add(&mut self, answer: EngineResponse, out: &mut Vec<u8>) -> Result<Option<Adding>> {
        let (at, is_final) = (answer.key as usize, answer.is_final);
        let mut speech = self.speech.lock();
        let response = match answer.response {
            Some(Ok(response)) => response,
            // The request was cancelled at a stop.
            Some(Err(_)) if speech.is_choice_over(at) => return Ok(None),
            Some(Err(error)) => return Err(error),
            None if is_final => return speech.ended(at, out).map(|()| None),
            None => return Ok(None),
        };
        let Some(model) = self.version.chat() else { return Ok(None) };
        let said = model.places.said(&response)?;
        let logprobs = said.logprobs.as_ref().map_or(0, Bytes::len);
        let bytes = said.text.len() + logprobs;
        if bytes > PRINT_BYTES_ON_REACTOR_MAX {
            drop(speech);
            let (speech, memory) = (self.speech.clone(), said.text.len() * COPIES + logprobs * LOGPROB_COPIES);
            let work = offload::start_charged(&self.account, Kind::Answer, bytes, move |_| {
                allowance::ask(memory)?;
                let mut chunks = Vec::new();
                let continuation = speech.lock().said(at, &said, is_final, &mut chunks)?;
                Ok((chunks, continuation))
            })?;
            return Ok(Some(Adding { key: answer.key, is_final, work }));
        }
        let continuation = speech.said(at, &said, is_final, out)?;
        drop(speech);
        self.added(answer.key, is_final, continuation)?;
        Ok(None)
    }

    fn added(&mut self, key: u32, is_final: bool, continuation: Continuation) -> Result<()> {
        if continuation == Continuation::Over && !is_final {
            self.inbox.enough(key);
        }
        let kept = self.speech.lock().kept_bytes();
        if kept > self.charge.bytes() + CHARGE_BYTES_MIN {
            self.charge.grow_to(kept)?;
        }
        Ok(())
    }

    /// The reply that is streamed. The first words of the model decide its status.
    pub async fn stream(mut self, notes: Option<Arc<EventNotes>>) -> TextResult {
        let mut out = Vec::new();
        let large = poll_fn(|cx| self.poll_hear(cx, &mut out)).await?;
        let stream = ChatStream { said: self, phase: Phase::Says, begun: Some((out, large)) };
        let mut events = Events::of(Box::new(stream));
        let first = poll_fn(|cx| events.poll_next(cx)).await;
        if let Some(Event { error: Some(error), .. }) = first {
            // Nothing was said before it.
            return Err(error.into());
        }
        let is_over = poll_fn(|cx| Poll::Ready(events.poll_over(cx))).await;
        events.note_in(notes);
        let first = first.unwrap_or_else(|| Event::text(Bytes::from_static(DONE)));
        Ok(Reply::events(first, (!is_over).then(|| Box::new(events))))
    }

    /// The reply that is not streamed.
    pub async fn whole(mut self) -> TextResult {
        while !self.is_over() {
            poll_fn(|cx| self.poll_hear(cx, &mut Vec::new())).await?;
            self.taken = self.taken.wrapping_add(1);
            if self.taken.is_multiple_of(ANSWERS_PER_LOOK) {
                hold::pause().await;
            }
        }
        if let Some(work) = self.counting() {
            let texts = work?.await?;
            self.speech.lock().count(&[], &texts);
        }
        let bytes = self.speech.lock().kept_bytes();
        if bytes <= PRINT_BYTES_ON_REACTOR_MAX {
            return Ok(Reply::json(self.speech.lock().whole()?));
        }
        let speech = self.speech;
        let print = move |_: &offload::CancelFlag<'_>| speech.lock().whole();
        let (text, charge) = offload::run_charged(&self.account, Kind::Answer, bytes, print).await?;
        Ok(Reply::json(offload::made(text?.into(), charge)))
    }

    /// Counts the tokens of all texts, if the model did not.
    fn counting(&self) -> Option<Result<Offloaded<Vec<u64>>>> {
        let speech = self.speech.lock();
        if !speech.uncounted() || self.version.chat().is_none_or(|model| model.tokenizer().is_none()) {
            return None;
        }
        let (texts, version) = (speech.texts(), self.version.clone());
        let bytes = texts.iter().map(String::len).sum();
        Some(offload::start(bytes, move |_| {
            version.chat().map(|model| count(model, &texts, false)).unwrap_or_default()
        }))
    }
}

/// The chunks of a stream.
struct ChatStream {
    said: Saying,
    phase: Phase,
    /// Chunks that were made before.
    begun: Option<Chunks>,
}

/// Chunks, and then those of a large response.
type Chunks = (Vec<u8>, Option<Bytes>);

enum Phase {
    Says,
    Counts(Offloaded<Vec<u64>>),
    /// The model failed after its first words, which decided the status.
    Fails(Error),
    Over,
}

impl ChatStream {
    /// The last event, of an error. Behind the first words of a stream it is an event of its own.
    fn fail(&mut self, is_first: bool, mut out: Vec<u8>, error: Error) -> Event {
        self.said.inbox.close();
        if is_first && !out.is_empty() {
            self.phase = Phase::Fails(error);
            return Event::text(out.into());
        }
        self.phase = Phase::Over;
        if !self.said.speech.lock().fail(&error, &mut out) {
            out.extend_from_slice(b"data: ");
            out.extend_from_slice(text_errors::event(&error).as_bytes());
            out.extend_from_slice(b"\n\n");
            out.extend_from_slice(DONE);
        }
        Event { error: Some(error), ..Event::text(out.into()) }
    }

    /// The events behind the last choice.
    fn finish(&mut self, is_first: bool, mut out: Vec<u8>) -> Event {
        let closed = self.said.speech.lock().close(&mut out);
        if let Err(error) = closed {
            return self.fail(is_first, out, error);
        }
        self.phase = Phase::Over;
        Event::text(out.into())
    }

    /// Adds what the model said so far, up to a large response, whose chunks are returned.
    fn hear(&mut self, out: &mut Vec<u8>, cx: &mut Context<'_>) -> Result<Option<Bytes>> {
        for _ in 0..ANSWERS_PER_LOOK {
            if out.len() >= BURST_BYTES_MAX || self.said.is_over() {
                return Ok(None);
            }
            match self.said.poll_hear(cx, out) {
                Poll::Ready(Ok(None)) => {}
                Poll::Ready(large) => return large,
                Poll::Pending => return Ok(None),
            }
        }
        // There may be more, which waits until others had their turn.
        cx.waker().wake_by_ref();
        Ok(None)
    }
}

impl EventSource for ChatStream {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Event>> {
        let is_first = self.begun.is_some();
        let (mut out, mut large) = self.begun.take().unwrap_or_default();
        loop {
            match &mut self.phase {
                Phase::Says => {
                    if large.is_none() {
                        large = match self.hear(&mut out, cx) {
                            Ok(large) => large,
                            Err(error) => return Poll::Ready(Some(self.fail(is_first, out, error))),
                        };
                    }
                    if let Some(large) = large {
                        let parts = [out.into(), large, Bytes::new()];
                        return Poll::Ready(Some(Event { parts, error: None }));
                    }
                    if !self.said.is_over() {
                        return if out.is_empty() { Poll::Pending } else { Poll::Ready(Some(Event::text(out.into()))) };
                    }
                    self.said.inbox.close();
                    match self.said.counting() {
                        None => return Poll::Ready(Some(self.finish(is_first, out))),
                        Some(Ok(work)) => self.phase = Phase::Counts(work),
                        Some(Err(error)) => return Poll::Ready(Some(self.fail(is_first, out, error))),
                    }
                    if !out.is_empty() {
                        return Poll::Ready(Some(Event::text(out.into())));
                    }
                }
                Phase::Counts(work) => {
                    let texts = ready!(Pin::new(work).poll(cx)).unwrap_or_default();
                    self.said.speech.lock().count(&[], &texts);
                    return Poll::Ready(Some(self.finish(is_first, out)));
                }
                Phase::Fails(error) => {
                    let error = error.clone();
                    return Poll::Ready(Some(self.fail(false, out, error)));
                }
                Phase::Over => return Poll::Ready(None),
            }
        }
    }
}
