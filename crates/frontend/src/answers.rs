//! Queues of responses, from the threads that produce them to the thread that sends them.
//!
//! An [`Inbox`] has one reader: a gRPC stream, a body of server-sent events, or an iteration of the in-process API.
//! Each request that was started for it adds its responses under its own key, and the reader takes them in the order in
//! which they were added. The reader is woken through the mailbox of its reactor, and only while it waits: in a burst
//! the first response wakes it, and each of the others costs one lock.
//!
//! A model never waits for a reader. After the first responses, small ones are [packed](crate::packed). The queue is
//! bounded in bytes, number and age ([`limits`](crate::limits)), and its bytes are charged to the reader's account. A
//! request that exceeds a bound is cancelled: its last response, after those queued before, is RESOURCE_EXHAUSTED.
//!
//! Invariants: the reader gets exactly one final response for each request that was started, and none of that request
//! after it. Dropping the inbox cancels all requests that have no final response. No lock of this file is held while a
//! ticket is cancelled or a response is dropped.

use crate::inference::{self, Started};
use crate::limits::{
    ANSWER_OVERHEAD_BYTES, ANSWERS_AGE_MAX, ANSWERS_BYTES_MAX, ANSWERS_UNPACKED_MAX, ANSWERS_WAITING_MAX,
    CHARGE_BYTES_MIN, UNCHARGED_ANSWER_BYTES_MAX,
};
use crate::packed::{Outlines, Packed};
use crate::verbose;
use backend::now_ns;
use engine::{EngineResponse, Mailbox, ModelVersion, Sink, Ticket};
use memory::{Account, Charge, Kind};
use parking_lot::Mutex;
use protocol::{InferRequest, InferResponse};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use tensor::{Error, Fault, Name, Result};

/// The reader's end of the queue.
pub struct Inbox(Starter);

/// Starts requests whose responses go to one inbox. May be used from any thread.
#[derive(Clone)]
pub struct Starter(Arc<InboxShared>);

struct InboxShared {
    state: Mutex<InboxState>,
    /// Mailbox of the reader's reactor. Without one, the thread that adds a response wakes the reader itself.
    mailbox: Option<Arc<Mailbox>>,
}

struct InboxState {
    /// All responses, in order. One without content that is not final is the next of `packed`.
    answers: VecDeque<EngineResponse>,
    packed: Packed,
    /// Bytes of all queued responses.
    bytes: usize,
    /// Covers at least `bytes`. `None` while `bytes` is small.
    charge: Option<Charge>,
    account: Account,
    reader: InboxReader,
    /// The waker of a reader that waits.
    waker: Option<Waker>,
    /// The reader is gone.
    closed: bool,
    /// Requests by key. `None` for a key that is free, or whose request was not started yet.
    requests: Vec<Option<Arc<InboxSink>>>,
    /// Keys that can be used again.
    free: Vec<u32>,
}

/// A request, as the sink of its responses.
pub(crate) struct InboxSink {
    shared: Arc<InboxShared>,
    key: u32,
    /// The request's id, for verbose log lines about its responses. `None` while verbose logging is off.
    id: Option<Box<Name>>,
    /// The final response was added.
    ended: AtomicBool,
    /// A response exceeded a bound: further responses are dropped, except for the final one.
    overran: AtomicBool,
    cancel: Mutex<Cancel>,
    /// Parts that packed responses have in common.
    outlines: Outlines,
}

/// How to cancel a request. Its responses may arrive before its ticket is known.
#[derive(Default)]
enum Cancel {
    #[default]
    NotYet,
    /// The request is to be cancelled with this reason as soon as its ticket is known.
    Due(Error),
    By(Ticket),
    /// The request has ended, or was cancelled.
    Done,
}

/// Who takes the responses out of an inbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum InboxReader {
    /// The client, which may read slowly.
    Client,
    /// The server, which makes one reply of them.
    Server,
}

impl InboxReader {
    fn overrun(self, why: &str) -> Error {
        let (cause, fault) = match self {
            Self::Client => ("its client reads responses too slowly", Fault::Client),
            Self::Server => ("the model responds faster than the server joins its responses", Fault::Server),
        };
        Error::exhausted(format!("the request was cancelled because {cause}: {why}")).by(fault).retry(false)
    }
}

impl InboxState {
    /// Adds a response. Returns the waker of a waiting reader and, if the response was packed, the original to drop.
    fn push(
        &mut self,
        mut answer: EngineResponse,
        outlines: &Outlines,
    ) -> (Option<Waker>, Option<Result<Box<InferResponse>>>) {
        self.bytes += answer.bytes;
        let packed = match &answer.response {
            Some(Ok(response)) if self.answers.len() >= ANSWERS_UNPACKED_MAX && !answer.is_final => {
                self.packed.push(response, outlines)
            }
            _ => false,
        };
        let original = if packed { answer.response.take() } else { None };
        self.answers.push_back(answer);
        (self.waker.take(), original)
    }

    /// Checks that a response fits within the bounds, and charges it.
    fn admit(&mut self, EngineResponse { bytes, came_ns, .. }: &EngineResponse) -> Result<()> {
        let total = self.bytes + bytes;
        let reader = self.reader;
        // In an empty queue a response may have any size, as long as there is memory for it.
        if let Some(oldest) = self.answers.front() {
            if total > ANSWERS_BYTES_MAX {
                return Err(reader.overrun(&format!("{total} bytes would wait, the maximum is {ANSWERS_BYTES_MAX}")));
            }
            if self.answers.len() >= ANSWERS_WAITING_MAX {
                return Err(reader.overrun(&format!("{ANSWERS_WAITING_MAX} responses wait, which is the maximum")));
            }
            if Duration::from_nanos(came_ns.saturating_sub(oldest.came_ns)) > ANSWERS_AGE_MAX {
                let seconds = ANSWERS_AGE_MAX.as_secs();
                return Err(reader.overrun(&format!("one has waited for {seconds} s, which is the maximum")));
            }
        }
        if total <= CHARGE_BYTES_MIN {
            return Ok(());
        }
        // A small total may be charged to the reserve for small requests.
        let account = &self.account;
        let charge = self.charge.get_or_insert_with(|| account.empty(Kind::Answer, true));
        let more = total.saturating_sub(charge.bytes());
        if more == 0 {
            return Ok(());
        }
        // The charge grows in steps, so that not every small response changes it.
        let step = more.next_multiple_of(CHARGE_BYTES_MIN);
        charge.grow(step).or_else(|_| charge.grow(more)).map_err(|short| {
            account.count_refusal();
            match reader {
                InboxReader::Client => reader.overrun(&short.to_string()),
                InboxReader::Server => short.into(),
            }
        })
    }

    fn take(&mut self) -> Option<EngineResponse> {
        let mut answer = self.answers.pop_front()?;
        if answer.response.is_none() && !answer.is_final {
            // The request, and its outlines, are kept until its last response was taken.
            let request = self.requests.get(answer.key as usize).and_then(Option::as_deref);
            answer.response = self.packed.take(request.map(|request| &request.outlines));
        }
        let bytes = answer.bytes;
        self.bytes -= bytes;
        if self.answers.is_empty() {
            self.charge = None;
            // A reader that has caught up holds no more than one that was never behind.
            self.answers.shrink_to(2 * ANSWERS_UNPACKED_MAX);
        } else if bytes > UNCHARGED_ANSWER_BYTES_MAX
            && let Some(charge) = &mut self.charge
        {
            // The response is charged again when it is sent, and the budget must have room for that.
            charge.shrink(self.bytes);
        }
        Some(answer)
    }
}

impl Inbox {
    /// Creates an inbox that the calling thread reads. Its responses are charged to `account`.
    pub fn new(account: &Account) -> Self {
        let state = InboxState {
            answers: VecDeque::new(),
            packed: Packed::default(),
            bytes: 0,
            charge: None,
            account: account.clone(),
            reader: InboxReader::Client,
            waker: None,
            closed: false,
            requests: Vec::new(),
            free: Vec::new(),
        };
        Self(Starter(Arc::new(InboxShared { state: Mutex::new(state), mailbox: Mailbox::mine() })))
    }

    /// Has errors say that the server, not the client, takes the responses.
    pub fn read_by_server(&self) {
        self.state().reader = InboxReader::Server;
    }

    fn state(&self) -> parking_lot::MutexGuard<'_, InboxState> {
        self.0.0.state.lock()
    }

    /// Reserves a key for a request, until its final response was taken or until [`release`](Self::release).
    pub fn reserve(&self) -> u32 {
        let mut state = self.state();
        state.free.pop().unwrap_or_else(|| {
            state.requests.push(None);
            // The number of requests of a stream is bounded far below this.
            u32::try_from(state.requests.len() - 1).unwrap_or(u32::MAX)
        })
    }

    /// Frees the key of a request that was rejected.
    pub fn release(&self, key: u32) {
        self.state().forget(key);
    }

    /// Cancels a request whose responses cannot be sent. `why` becomes its last response.
    pub fn overrun(&self, key: u32, why: Error) {
        let slot = self.state().requests.get(key as usize).cloned().flatten();
        if let Some(slot) = slot {
            slot.overrun(why);
        }
    }

    /// Cancels a request whose further responses nobody wants, because those that came are all that was asked for.
    pub fn enough(&self, key: u32) {
        let slot = self.state().requests.get(key as usize).cloned().flatten();
        if let Some(slot) = slot
            && let Cancel::By(ticket) = slot.done()
        {
            ticket.enough();
        }
    }

    /// Starts requests for this inbox.
    pub fn starter(&self) -> &Starter {
        &self.0
    }

    /// Cancels all requests without a final response and drops all queued responses. No request may be started later.
    pub fn close(&self) {
        let mut state = self.state();
        state.closed = true;
        (state.bytes, state.charge, state.waker) = (0, None, None);
        let (answers, requests) = (std::mem::take(&mut state.answers), std::mem::take(&mut state.requests));
        let packed = std::mem::take(&mut state.packed);
        state.free.clear();
        drop(state);
        packed.discard();
        drop(answers);
        for request in requests.into_iter().flatten() {
            if let Cancel::By(ticket) = request.done() {
                ticket.cancel();
            }
        }
    }

    /// Takes the next response. The final response of a request frees its key.
    ///
    /// The waker of `cx` is kept only if there is no response, so a reader that is still reading is not woken.
    pub fn poll_next(&self, cx: &Context<'_>) -> Poll<EngineResponse> {
        let mut state = self.state();
        let Some(answer) = state.take() else {
            match &mut state.waker {
                Some(known) => known.clone_from(cx.waker()),
                None => state.waker = Some(cx.waker().clone()),
            }
            return Poll::Pending;
        };
        let request = match answer.is_final {
            true => state.forget(answer.key),
            false => state.requests.get(answer.key as usize).filter(|_| verbose::is_on()).cloned().flatten(),
        };
        drop(state);
        if let Some(id) = request.as_ref().and_then(|r| r.id.as_deref())
            && let Some(response) = &answer.response
        {
            verbose::answered(id, response);
        }
        Poll::Ready(answer)
    }
}

impl InboxState {
    /// Frees a key. Returns its request.
    fn forget(&mut self, key: u32) -> Option<Arc<InboxSink>> {
        let request = self.requests.get_mut(key as usize)?;
        let request = request.take();
        self.free.push(key);
        request
    }
}

impl Drop for Inbox {
    fn drop(&mut self) {
        self.close();
    }
}

impl Starter {
    /// Starts a request of any size under its reserved key. If it is rejected, the caller has to release the key.
    pub fn start(&self, key: u32, version: &Arc<ModelVersion>, request: Box<InferRequest>) -> Started<()> {
        if !inference::is_long_to_check(&request) {
            return Started::Done(self.start_here(key, version, request));
        }
        let (starter, version) = (self.clone(), version.clone());
        Started::offload(request, move |request| starter.start_here(key, &version, request))
    }

    /// Like [`start`](Self::start), on this thread, which must not be a reactor unless the request is small.
    ///
    /// # Errors
    /// The reason why the request was rejected.
    pub fn start_here(&self, key: u32, version: &Arc<ModelVersion>, request: Box<InferRequest>) -> Result<()> {
        inference::logged(version, request, |request, id| {
            let slot = self.slot(key, id);
            let started = version.call(request, || slot.clone(), None)?;
            match started {
                engine::Started::Answered(result) => slot.put(EngineResponse::only(result)),
                engine::Started::Queued(ticket) => slot.hold(ticket),
            }
            Ok(())
        })
    }

    /// Creates the sink for the responses of a request.
    fn slot(&self, key: u32, id: Option<Box<Name>>) -> Arc<InboxSink> {
        let slot = Arc::new(InboxSink {
            shared: self.0.clone(),
            key,
            id,
            ended: AtomicBool::new(false),
            overran: AtomicBool::new(false),
            cancel: Mutex::default(),
            outlines: Outlines::default(),
        });
        // A closed inbox has no such key. `hold` checks for that and cancels the request.
        if let Some(place) = self.0.state.lock().requests.get_mut(key as usize) {
            *place = Some(slot.clone());
        }
        slot
    }
}

impl InboxSink {
    /// Keeps the ticket of an accepted request, and cancels the request if that is due. It may have ended before.
    fn hold(&self, ticket: Ticket) {
        let mut cancel = self.cancel.lock();
        if self.ended.load(Ordering::Acquire) {
            return;
        }
        match std::mem::replace(&mut *cancel, Cancel::By(ticket.clone())) {
            Cancel::Due(why) => {
                *cancel = Cancel::Done;
                drop(cancel);
                return ticket.overrun(why);
            }
            _ => drop(cancel),
        }
        // If the inbox was closed before, the ticket was not known then.
        if self.shared.state.lock().closed
            && let Cancel::By(ticket) = self.done()
        {
            ticket.cancel();
        }
    }

    /// Notes that the request ended or is being cancelled. Returns how to cancel it.
    fn done(&self) -> Cancel {
        std::mem::replace(&mut *self.cancel.lock(), Cancel::Done)
    }

    fn overrun(&self, why: Error) {
        self.overran.store(true, Ordering::Release);
        let mut cancel = self.cancel.lock();
        match std::mem::replace(&mut *cancel, Cancel::Done) {
            Cancel::NotYet => *cancel = Cancel::Due(why),
            Cancel::By(ticket) => {
                drop(cancel);
                ticket.overrun(why);
            }
            Cancel::Due(_) | Cancel::Done => {}
        }
    }
}

impl Sink for InboxSink {
    fn put(&self, mut answer: EngineResponse) {
        let is_final = answer.is_final;
        if !is_final && (answer.response.is_none() || self.overran.load(Ordering::Acquire)) {
            return;
        }
        if is_final {
            self.ended.store(true, Ordering::Release);
            self.done();
        }
        let bytes = |answer: &EngineResponse| ANSWER_OVERHEAD_BYTES + answer.content_bytes();
        (answer.key, answer.came_ns, answer.bytes) = (self.key, now_ns(), bytes(&answer));
        let mut refused = None;
        let mut state = self.shared.state.lock();
        if state.closed {
            // The lock is released first: no response is dropped while it is held.
            drop(state);
            return drop(answer);
        }
        // The end without a response is always taken: there is one per request.
        if answer.response.is_some()
            && let Err(why) = state.admit(&answer)
        {
            if !is_final {
                drop(state);
                drop(answer);
                return self.overrun(why);
            }
            // The end of a request is always delivered. Here the error replaces its response.
            refused = answer.response.replace(Err(why));
            answer.bytes = bytes(&answer);
        }
        let (waker, packed) = state.push(answer, &self.outlines);
        drop(state);
        drop((refused, packed));
        match (waker, &self.shared.mailbox) {
            (Some(waker), Some(mailbox)) => mailbox.post(waker),
            (Some(waker), None) => waker.wake(),
            (None, _) => {}
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use memory::Budget;
    use protocol::{OutputForm, OutputTensor};
    use smallvec::smallvec;
    use std::sync::atomic::AtomicUsize;
    use std::task::Wake;
    use tensor::DataType;

    #[derive(Default)]
    struct Wakes(AtomicUsize);

    impl Wake for Wakes {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    pub(crate) fn response(bytes: usize) -> EngineResponse {
        let output = OutputTensor {
            name: "OUT".into(),
            index: 0,
            datatype: DataType::Uint8,
            shape: smallvec![bytes as i64],
            data: bytes::Bytes::from(vec![0; bytes]).into(),
            form: OutputForm::default(),
        };
        let response = InferResponse { outputs: smallvec![output], ..InferResponse::default() };
        EngineResponse::more(Ok(Box::new(response)))
    }

    pub(crate) fn end() -> EngineResponse {
        EngineResponse::last(None)
    }

    /// An inbox on a budget of this size, of which it may use a quarter, and the requests that it was given.
    pub(crate) fn inbox(limit: usize, requests: usize) -> (Inbox, Vec<Arc<InboxSink>>, Account) {
        let account = Budget::new(limit).account();
        let inbox = Inbox::new(&account);
        let slots = (0..requests).map(|_| inbox.starter().slot(inbox.reserve(), None)).collect();
        (inbox, slots, account)
    }

    /// The next response as text: key and bytes, `error`, or `end`; `later` if there is none.
    fn next(inbox: &Inbox) -> String {
        match inbox.poll_next(&Context::from_waker(Waker::noop())) {
            Poll::Pending => "later".into(),
            Poll::Ready(EngineResponse { response, is_final, key, .. }) => {
                let what = match response {
                    None => "end".into(),
                    Some(Ok(response)) => response.outputs[0].data.len().to_string(),
                    Some(Err(error)) => format!("{:?}", error.code()),
                };
                format!("{key}: {what}{}", if is_final { ", final" } else { "" })
            }
        }
    }

    #[test]
    fn responses_are_taken_in_order_and_a_key_is_used_again_after_the_final_one() {
        let (inbox, slots, account) = inbox(1 << 30, 2);
        slots[0].put(response(1));
        slots[1].put(response(2));
        slots[0].put(response(3));
        slots[0].put(EngineResponse { is_final: false, ..end() });
        slots[0].put(end());
        assert_eq!(inbox.reserve(), 2, "both keys are taken until the end was read");
        let all: Vec<_> = (0..5).map(|_| next(&inbox)).collect();
        assert_eq!(all, ["0: 1", "1: 2", "0: 3", "0: end, final", "later"]);
        assert_eq!(inbox.reserve(), 0);
        assert_eq!(account.used(), 0);
    }

    #[test]
    fn small_responses_to_a_slow_reader_are_packed_and_stay_in_order() {
        let (inbox, slots, account) = inbox(1 << 30, 2);
        let sizes: Vec<usize> = (0..1000).map(|i| if i % 100 == 50 { 20_000 } else { i }).collect();
        let expected: Vec<String> = (0..).zip(&sizes).map(|(i, bytes)| format!("{}: {bytes}", i % 2)).collect();
        for (i, &bytes) in sizes.iter().enumerate() {
            slots[i % 2].put(response(bytes));
        }
        let unpacked = inbox.state().answers.iter().filter(|answer| answer.response.is_some()).count();
        assert_eq!(unpacked, ANSWERS_UNPACKED_MAX + 9);
        slots.iter().for_each(|slot| slot.put(end()));
        let came: Vec<String> = sizes.iter().map(|_| next(&inbox)).collect();
        assert_eq!(came, expected);
        assert_eq!([next(&inbox), next(&inbox), next(&inbox)], ["0: end, final", "1: end, final", "later"]);
        assert_eq!((account.used(), inbox.reserve()), (0, 1));
    }

    #[test]
    fn only_a_reader_that_waits_is_woken() {
        let (inbox, slots, _) = inbox(1 << 30, 1);
        let wakes = Arc::new(Wakes::default());
        let waker = Waker::from(wakes.clone());
        slots[0].put(response(1));
        assert!(inbox.poll_next(&Context::from_waker(&waker)).is_ready());
        slots[0].put(response(1));
        assert_eq!(wakes.0.load(Ordering::SeqCst), 0, "it does not wait");
        assert!(inbox.poll_next(&Context::from_waker(&waker)).is_ready());
        assert!(inbox.poll_next(&Context::from_waker(&waker)).is_pending());
        for _ in 0..9 {
            slots[0].put(response(1));
        }
        assert_eq!(wakes.0.load(Ordering::SeqCst), 1, "once for all of a burst");
    }

    /// Adds responses of `bytes` until one exceeds a bound. Returns how many fitted.
    fn fill(slot: &InboxSink, bytes: usize) -> usize {
        (0..)
            .take_while(|_| {
                slot.put(response(bytes));
                !slot.overran.load(Ordering::SeqCst)
            })
            .count()
    }

    #[test]
    fn a_slow_reader_is_limited_and_gets_all_queued_responses_before_the_error() {
        for (bytes, budget, why) in [
            (1 << 20, 1 << 30, "bytes would wait"),
            (0, 1 << 30, "responses wait"),
            (1 << 20, 16 << 20, "--memory-limit"),
        ] {
            let (inbox, slots, account) = inbox(budget, 2);
            let count = fill(&slots[0], bytes);
            assert!((3..=ANSWERS_WAITING_MAX).contains(&count), "{count} answers: {why}");
            assert!(
                account.used() <= (ANSWERS_BYTES_MAX + CHARGE_BYTES_MIN).min(budget / 4),
                "{}: {why}",
                account.used()
            );
            assert!(account.used() >= count * bytes, "{} for {count}: {why}", account.used());
            let Cancel::Due(error) = slots[0].done() else { panic!("not cancelled: {why}") };
            assert!(error.message().contains(why), "{}: {why}", error.message());
            // The engine's responses to a cancelled request.
            slots[0].put(response(bytes));
            slots[0].put(EngineResponse::only(Err(error)));
            for _ in 0..count {
                assert_eq!(next(&inbox), format!("0: {bytes}"));
            }
            assert_eq!([next(&inbox), next(&inbox)], ["0: ResourceExhausted, final", "later"]);
            assert_eq!(account.used(), 0, "{why}");
            slots[1].put(response(1));
            assert_eq!(next(&inbox), "1: 1", "others go on: {why}");
        }
    }

    #[test]
    fn taking_a_large_response_frees_the_budget_for_sending_it() {
        let (inbox, slots, account) = inbox(16 << 20, 1);
        let count = fill(&slots[0], 1 << 20);
        let full = account.used();
        for taken in 1..count {
            next(&inbox);
            assert!(account.used() <= full - (taken << 20), "{} of {full} after {taken}", account.used());
            assert!(account.charge(Kind::Answer, false, 1 << 20).is_ok(), "after {taken}");
        }
    }

    #[test]
    fn a_single_response_may_be_larger_than_the_limit() {
        let (inbox, slots, account) = inbox(1 << 30, 1);
        slots[0].put(response(2 * ANSWERS_BYTES_MAX));
        assert!(account.used() > 2 * ANSWERS_BYTES_MAX);
        assert_eq!(next(&inbox), format!("0: {}", 2 * ANSWERS_BYTES_MAX));
    }

    #[test]
    fn a_response_behind_one_that_has_waited_too_long_is_rejected() {
        let (inbox, slots, _) = inbox(1 << 30, 1);
        slots[0].put(response(1));
        let now = now_ns();
        let after = |time: Duration| EngineResponse { came_ns: now + time.as_nanos() as u64, ..end() };
        let mut state = inbox.state();
        assert!(state.admit(&after(ANSWERS_AGE_MAX - Duration::from_secs(1))).is_ok());
        let why = state.admit(&after(ANSWERS_AGE_MAX + Duration::from_secs(1))).unwrap_err();
        assert!(why.message().contains("one has waited for 60 s"), "{}", why.message());
    }

    #[test]
    fn a_final_response_that_does_not_fit_becomes_an_error() {
        let (inbox, slots, _) = inbox(1 << 30, 2);
        let count = fill(&slots[0], 1 << 20);
        slots[1].put(EngineResponse { is_final: true, ..response(1 << 20) });
        for _ in 0..count {
            next(&inbox);
        }
        assert_eq!(next(&inbox), "1: ResourceExhausted, final");
    }

    #[test]
    fn responses_for_a_dropped_inbox_are_dropped() {
        let (inbox, slots, account) = inbox(1 << 30, 1);
        slots[0].put(response(1 << 20));
        drop(inbox);
        assert_eq!(account.used(), 0);
        slots[0].put(response(1 << 20));
        slots[0].put(end());
        assert_eq!(account.used(), 0);
    }
}
