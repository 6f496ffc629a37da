//! Responses of one request of the in-process API, pulled by JavaScript.
//!
//! Each pull is settled once: directly, or by the thread that delivers the next response. So the JavaScript thread is
//! sent no response that it did not ask for; others wait in the request's inbox, bounded and charged like those of any
//! other reader (`frontend::answers`).

use crate::infer;
use crate::objects::NextResponses;
use crate::settle::{Settled, Settler};
use engine::{EngineResponse, ModelVersion};
use frontend::answers::Inbox;
use memory::Budget;
use parking_lot::Mutex;
use protocol::{InferRequest, Signature};
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use tensor::{Error, Result};

/// Responses per pull.
const RESPONSES_PER_CALL_MAX: usize = 64;
/// No further response is added beyond this size: they are copied on the JavaScript thread.
const BYTES_PER_CALL: usize = 1024 * 1024;

/// A request whose responses are pulled. Cancelled when dropped or by [`cancel`](Self::cancel).
pub struct Pull {
    settler: Settler,
    signature: Arc<Signature>,
    state: Mutex<StreamState>,
}

struct StreamState {
    inbox: Inbox,
    /// The pull that waits for responses.
    call: Option<u32>,
    /// An error for the next pull, because responses came before it.
    ahead: Option<Error>,
    /// The request has ended.
    over: bool,
}

type PulledResponses = Result<NextResponses>;

impl Pull {
    /// Starts a request.
    ///
    /// # Errors
    /// Rejections, as over the network.
    pub fn start(settler: Settler, version: &Arc<ModelVersion>, request: InferRequest) -> Result<Arc<Self>> {
        let inbox = Inbox::new(&Budget::global().account());
        let key = inbox.reserve();
        inbox.starter().start_here(key, version, Box::new(request))?;
        let state = Mutex::new(StreamState { inbox, call: None, ahead: None, over: false });
        Ok(Arc::new(Self { settler, signature: version.signature.clone(), state }))
    }

    /// Settles `call` with the next responses as soon as there is one. One call at a time.
    pub fn next(self: &Arc<Self>, call: u32) {
        if self.state.lock().call.replace(call).is_some() {
            return self
                .settler
                .settle(call, Err(Error::internal("the responses of a request were requested twice at once")));
        }
        self.deliver();
    }

    /// Cancels the request. A waiting call is settled with CANCELLED.
    pub fn cancel(&self) {
        let mut state = self.state.lock();
        state.over = true;
        state.ahead = None;
        state.inbox.close();
        let call = state.call.take();
        drop(state);
        if let Some(call) = call {
            self.settler.settle(call, Err(Error::cancelled("")));
        }
    }

    fn deliver(self: &Arc<Self>) {
        let waker = Waker::from(self.clone());
        let mut state = self.state.lock();
        let Some(call) = state.call else { return };
        let Some(pulled) = state.gather(&self.signature, &Context::from_waker(&waker)) else { return };
        state.call = None;
        drop(state);
        self.settler.settle(call, pulled.map(Settled::Responses));
    }
}

impl StreamState {
    /// The next result; `None` if there is none yet, then the waker of `cx` is registered.
    fn gather(&mut self, signature: &Signature, cx: &Context<'_>) -> Option<PulledResponses> {
        if let Some(error) = self.ahead.take() {
            self.over = true;
            return Some(Err(error));
        }
        let (mut responses, mut bytes) = (Vec::new(), 0);
        while !self.over && responses.len() < RESPONSES_PER_CALL_MAX && bytes < BYTES_PER_CALL {
            let Poll::Ready(EngineResponse { response, is_final, .. }) = self.inbox.poll_next(cx) else { break };
            self.over = is_final;
            let Some(response) = response else { continue };
            let converted = response.and_then(|response| {
                bytes += response.outputs.iter().map(|o| o.data.len()).sum::<usize>();
                infer::response(*response, signature)
            });
            match converted {
                Ok(response) => responses.push(response),
                Err(error) => {
                    // The reader stops at an error, so later responses are not needed.
                    self.inbox.close();
                    self.over = true;
                    if responses.is_empty() {
                        return Some(Err(error));
                    }
                    self.ahead = Some(error);
                }
            }
        }
        if responses.is_empty() && !self.over {
            return None;
        }
        Some(Ok(NextResponses { responses, done: self.over && self.ahead.is_none() }))
    }
}

impl Wake for Pull {
    fn wake(self: Arc<Self>) {
        self.deliver();
    }
}
