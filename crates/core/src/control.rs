//! Control operations, which the owner of the server executes.

use backend::ControlAnswer;
use frontend::{Argument, Control, ControlOperation, ControlReply};
use std::sync::Arc;
use tensor::Error;
use tokio::sync::oneshot;

/// Executes control operations: loads, settings, pages.
pub trait Controller: Send + Sync {
    /// Starts an operation. `answer` is called once, on any thread, with the JSON of the reply.
    fn start(&self, operation: ControlOperation, argument: Argument, answer: ControlAnswer);
}

/// A controller as the front ends see it.
pub(crate) struct FrontControl(pub Arc<dyn Controller>);

impl Control for FrontControl {
    fn call(&self, operation: ControlOperation, argument: Argument) -> ControlReply {
        let (send, receive) = oneshot::channel();
        // The operation continues if the client has disconnected.
        self.0.start(operation, argument, Box::new(|result| drop(send.send(result))));
        Box::pin(async move { receive.await.unwrap_or_else(|_| Err(Error::unavailable("Server exiting"))) })
    }
}
