//! Operations that arrive here and are decided elsewhere: model control and settings. Rare, so they travel as JSON text.

use std::future::Future;
use std::pin::Pin;
use tensor::Result;

/// A control operation; argument and reply are the JSON of the table at `ControlCall` in the native contract.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Operation {
    RepositoryIndex,
    RepositoryLoad,
    RepositoryUnload,
    TraceGet,
    TraceUpdate,
    LogGet,
    LogUpdate,
}

impl Operation {
    /// Name in the native contract.
    pub fn name(self) -> &'static str {
        match self {
            Self::RepositoryIndex => "repository_index",
            Self::RepositoryLoad => "repository_load",
            Self::RepositoryUnload => "repository_unload",
            Self::TraceGet => "trace_get",
            Self::TraceUpdate => "trace_update",
            Self::LogGet => "log_get",
            Self::LogUpdate => "log_update",
        }
    }
}

/// The answer to come.
pub type ControlReply = Pin<Box<dyn Future<Output = Result<String>> + Send>>;

/// Whoever decides.
pub trait Control: Send + Sync {
    /// Starts the operation. It goes on when the future is dropped: a load does not stop because its client left.
    fn call(&self, operation: Operation, argument: String) -> ControlReply;
}
