//! Inference by other models: from the CALL to the library's last callback.
//!
//! A response is taken on the thread that reads the connection and handed to the library on a thread of a pool, in
//! order for each call. A callback may wait for that of another call, so the pool grows whenever no thread is idle.

use crate::link::{CallReceiver, Link};
use crate::segments::View;
use frames::generated::Answer;
use frames::{AnswerRef, Contents};
use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;
use std::ffi::CString;
use std::sync::{Arc, Weak};
use std::time::Duration;
use tensor::{Error, Result};

use crate::abi::c_text;
use crate::abi::parameter::Parameter;

/// Time after which an idle thread of the pool ends.
const IDLE_TIME: Duration = Duration::from_secs(10);

/// A response of another model.
pub(crate) struct CallResponse {
    pub(crate) error: Option<Error>,
    pub(crate) parameters: Box<[Parameter]>,
    pub(crate) outputs: Vec<CallOutput>,
}

/// An output that is not yet in a buffer of the library.
pub(crate) struct CallOutput {
    pub(crate) name: CString,
    pub(crate) datatype: u32,
    pub(crate) shape: Vec<i64>,
    contents: OutputBytes,
}

enum OutputBytes {
    Copied(Vec<u8>),
    /// Still in the segment, which the server does not use again before the view is dropped.
    Lies(View),
}

impl CallOutput {
    pub(crate) fn bytes(&self) -> &[u8] {
        match &self.contents {
            OutputBytes::Copied(bytes) => bytes,
            OutputBytes::Lies(view) => view.bytes(),
        }
    }
}

impl CallResponse {
    fn failed(error: Error) -> Self {
        Self { error: Some(error), parameters: Box::default(), outputs: Vec::new() }
    }

    fn take(link: &Link, answer: &AnswerRef<'_>) -> Result<Self> {
        if answer.kind == Answer::Error {
            return Ok(Self::failed(Error::new(answer.code, answer.error.to_owned())));
        }
        let output = |tensor: &frames::TensorRef<'_>| {
            let contents = match &tensor.contents {
                Contents::Inline(bytes) => OutputBytes::Copied(bytes.to_vec()),
                Contents::Block(block) => OutputBytes::Lies(link.segments.read(block)?),
                Contents::Device(_) => return Err(Error::internal("an output of a call is on a device")),
            };
            let (datatype, shape) = (tensor.datatype as u32, tensor.shape.to_vec());
            Ok(CallOutput { name: c_text(tensor.name), datatype, shape, contents })
        };
        let outputs = answer.outputs.iter().map(output).collect::<Result<_>>()?;
        Ok(Self { error: None, parameters: Parameter::list(answer.parameters)?, outputs })
    }
}

/// Hands responses to a library.
pub(crate) trait Callbacks: Send {
    /// A response, or none if the end comes alone. After the final one nothing more is handed over.
    fn hand(&mut self, response: Option<CallResponse>, is_final: bool);
}

/// A call that was sent.
pub(crate) struct OpenCall {
    me: Weak<Self>,
    link: Weak<Link>,
    progress: Mutex<CallProgress>,
    acknowledged: Condvar,
}

#[derive(Default)]
struct CallProgress {
    /// Whether the server runs it, once that is known.
    is_accepted: Option<Result<()>>,
    waiting: VecDeque<(Option<CallResponse>, bool)>,
    /// Absent while a thread of the pool uses them, and after the end.
    callbacks: Option<Box<dyn Callbacks>>,
}

impl OpenCall {
    pub(crate) fn new(link: &Arc<Link>, callbacks: Box<dyn Callbacks>) -> Arc<Self> {
        Arc::new_cyclic(|me| Self {
            me: me.clone(),
            link: Arc::downgrade(link),
            progress: Mutex::new(CallProgress { callbacks: Some(callbacks), ..CallProgress::default() }),
            acknowledged: Condvar::new(),
        })
    }

    /// Waits until the server has accepted or refused it. A call that was refused has no callbacks.
    pub(crate) fn wait(&self) -> Result<()> {
        let mut progress = self.progress.lock();
        loop {
            if let Some(accepted) = &progress.is_accepted {
                return accepted.clone();
            }
            self.acknowledged.wait(&mut progress);
        }
    }

    /// Handles an answer of the server.
    fn answer(&self, taken: Option<Result<CallResponse>>, is_final: bool, refuses: bool) {
        let mut progress = self.progress.lock();
        if progress.is_accepted.is_none() {
            let refusal = taken.as_ref().filter(|_| refuses).map(|taken| match taken {
                Ok(CallResponse { error: Some(error), .. }) | Err(error) => error.clone(),
                Ok(_) => Error::internal("the server rejected a call without an error"),
            });
            let is_refused = refusal.is_some();
            progress.is_accepted = Some(refusal.map_or(Ok(()), Err));
            self.acknowledged.notify_all();
            if is_refused {
                progress.callbacks = None;
                return;
            }
        }
        // An answer NONE that is not the end only accepts.
        if taken.is_none() && !is_final {
            return;
        }
        progress.waiting.push_back((taken.map(|taken| taken.unwrap_or_else(CallResponse::failed)), is_final));
        let Some(callbacks) = progress.callbacks.take() else { return };
        drop(progress);
        if let Some(me) = self.me.upgrade() {
            submit(Box::new(move || me.drain(callbacks)));
        }
    }

    /// Hands over what waits, on a thread of the pool.
    fn drain(&self, mut callbacks: Box<dyn Callbacks>) {
        loop {
            let mut progress = self.progress.lock();
            let Some((response, is_final)) = progress.waiting.pop_front() else {
                progress.callbacks = Some(callbacks);
                return;
            };
            drop(progress);
            let hand = || callbacks.hand(response, is_final);
            match self.link.upgrade() {
                Some(link) => link.run(hand),
                None => hand(),
            }
            if is_final {
                return;
            }
        }
    }
}

impl CallReceiver for OpenCall {
    fn response(&self, link: &Arc<Link>, answer: &AnswerRef<'_>) {
        let taken = (answer.kind != Answer::None).then(|| CallResponse::take(link, answer));
        self.answer(taken, answer.is_final, answer.kind == Answer::Error && answer.is_failed && answer.is_final);
    }

    fn lost(&self) {
        let error = Error::unavailable("the server has ended the connection");
        self.answer(Some(Err(error)), true, true);
    }
}

type CallbackJob = Box<dyn FnOnce() + Send>;

#[derive(Default)]
struct Pool {
    jobs: VecDeque<CallbackJob>,
    idle: usize,
}

static POOL: Mutex<Pool> = Mutex::new(Pool { jobs: VecDeque::new(), idle: 0 });
static SUBMITTED: Condvar = Condvar::new();

/// Runs a job on a thread that is idle, or else on a new one.
fn submit(job: CallbackJob) {
    let mut pool = POOL.lock();
    pool.jobs.push_back(job);
    let is_short = pool.jobs.len() > pool.idle;
    drop(pool);
    SUBMITTED.notify_one();
    if is_short && let Err(error) = std::thread::Builder::new().name("callbacks".into()).spawn(serve) {
        // The threads that there are take it as soon as one is idle.
        crate::abi::log::error(&format!("no thread for callbacks: {error}"));
    }
}

fn serve() {
    let mut pool = POOL.lock();
    loop {
        if let Some(job) = pool.jobs.pop_front() {
            drop(pool);
            // A panic of ours must not end the thread that others' jobs wait for.
            let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(job));
            pool = POOL.lock();
            continue;
        }
        pool.idle += 1;
        let timed_out = SUBMITTED.wait_for(&mut pool, IDLE_TIME).timed_out();
        pool.idle -= 1;
        if timed_out && pool.jobs.is_empty() {
            return;
        }
    }
}
