//! One inference from a front end's view: started, then either answered at once or awaited; cancelled when nobody awaits it.
//! Callers look at a [`Flight`] before they await, so that no future has to hold a whole response.

use engine::{ModelVersion, Started, Ticket};
use protocol::{InferRequest, InferResponse};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tensor::{Error, Result};
use tokio::sync::oneshot;

/// An inference that was started.
// The large variant is the usual one, and is looked at where it is returned.
#[allow(clippy::large_enum_variant)]
pub enum Flight {
    /// It ran while it was started: nothing was woken, nothing has to be awaited.
    Landed(Result<InferResponse>),
    /// It waits or runs elsewhere.
    Airborne(Airborne),
}

/// An accepted inference without its answer. Resolves once; dropped before that, it is cancelled.
pub struct Airborne {
    reply: oneshot::Receiver<Result<InferResponse>>,
    /// Taken when the answer is here: it cannot be cancelled any more.
    ticket: Option<Ticket>,
}

/// Starts an inference; a cheap one is over when this returns.
///
/// # Errors
/// The refusal: nothing was queued.
pub fn start(version: &Arc<ModelVersion>, request: InferRequest) -> Result<Flight> {
    let mut receiver = None;
    let started = version.start(request, || {
        let (sender, reply) = oneshot::channel();
        receiver = Some(reply);
        // A receiver that is gone means that the client is: nobody is left to tell.
        Box::new(move |result| drop(sender.send(result)))
    })?;
    Ok(match (started, receiver) {
        (Started::Answered(result), _) => Flight::Landed(result),
        (Started::Queued(ticket), Some(reply)) => Flight::Airborne(Airborne { reply, ticket: Some(ticket) }),
        (Started::Queued(_), None) => Flight::Landed(lost()),
    })
}

fn lost() -> Result<InferResponse> {
    Err(Error::internal("a request was dropped without an answer; this is a defect of the server, please report it"))
}

impl Future for Airborne {
    type Output = Result<InferResponse>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Poll::Ready(result) = Pin::new(&mut self.reply).poll(cx) else { return Poll::Pending };
        self.ticket = None;
        Poll::Ready(result.unwrap_or_else(|_| lost()))
    }
}

impl Drop for Airborne {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket.take() {
            ticket.cancel();
        }
    }
}
