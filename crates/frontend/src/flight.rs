//! One inference from a front end's view: started, then either answered at once or awaited; cancelled when nobody awaits it.

use engine::{ModelVersion, Ticket};
use protocol::{InferRequest, InferResponse};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tensor::{Error, Result};
use tokio::sync::oneshot;

/// An accepted inference. Resolves once; dropped before that, it is cancelled.
pub struct Flight {
    reply: oneshot::Receiver<Result<InferResponse>>,
    /// Taken when the answer is here: it cannot be cancelled any more.
    ticket: Option<Ticket>,
}

/// Starts an inference; a cheap one is over when this returns, and then nothing is ever woken for it.
///
/// # Errors
/// The refusal: nothing was queued.
pub fn start(version: &Arc<ModelVersion>, request: InferRequest) -> Result<Flight> {
    let (sender, reply) = oneshot::channel();
    // A receiver that is gone means that the client is: nobody is left to tell.
    let ticket = version.infer(request, Box::new(move |result| drop(sender.send(result))))?;
    Ok(Flight { reply, ticket: Some(ticket) })
}

/// Awaits the answer; the usual one is here already, and then nothing is registered anywhere.
pub async fn land(mut flight: Flight) -> Result<InferResponse> {
    match flight.ready() {
        Some(result) => result,
        None => flight.await,
    }
}

impl Flight {
    /// The answer, if it is here already.
    pub fn ready(&mut self) -> Option<Result<InferResponse>> {
        match self.reply.try_recv() {
            Ok(result) => {
                self.ticket = None;
                Some(result)
            }
            Err(oneshot::error::TryRecvError::Empty) => None,
            Err(oneshot::error::TryRecvError::Closed) => Some(self.lost()),
        }
    }

    fn lost(&mut self) -> Result<InferResponse> {
        self.ticket = None;
        Err(Error::internal(
            "a request was dropped without an answer; this is a defect of the server, please report it",
        ))
    }
}

impl Future for Flight {
    type Output = Result<InferResponse>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match Pin::new(&mut self.reply).poll(cx) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(Ok(result)) => {
                self.ticket = None;
                Poll::Ready(result)
            }
            Poll::Ready(Err(_)) => Poll::Ready(self.lost()),
        }
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket.take() {
            ticket.cancel();
        }
    }
}
