//! What a runner's life has come to.

/// From its start to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lifecycle {
    /// It loads the model's code.
    Starting {
        /// It answered its first question: its code runs, whatever the model's does.
        is_there: bool,
    },
    /// It said that it could not start, and is to end.
    Failed,
    /// It takes batches.
    Ready {
        /// Its model wants to be asked whether it is ready.
        asks_ready: bool,
    },
    /// It was told to end.
    Stopping,
    /// It is killed, and what it says is not listened to any more. It keeps its requests until it is over: what comes after them is to find it gone.
    Killed(Before),
    /// It is over.
    Ended,
}

/// What a runner that is killed was before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Before {
    Starting,
    Ready {
        asks_ready: bool,
    },
    /// Ready, but it worked for requests that nobody waits for: it is not started again.
    Abandoned,
    Stopping,
}

impl Lifecycle {
    /// Ready, or killed while it was and not over yet.
    pub(crate) fn is_in_service(self) -> bool {
        matches!(self, Self::Ready { .. } | Self::Killed(Before::Ready { .. } | Before::Abandoned))
    }

    /// It was told to end, whether or not it was killed since.
    pub(crate) fn is_stopping(self) -> bool {
        matches!(self, Self::Stopping | Self::Killed(Before::Stopping))
    }

    pub(crate) fn is_killed(self) -> bool {
        matches!(self, Self::Killed(_))
    }

    /// This one, killed. `None`: it is already, or is over.
    pub(crate) fn killed(self) -> Option<Self> {
        Some(Self::Killed(match self {
            Self::Starting { .. } | Self::Failed => Before::Starting,
            Self::Ready { asks_ready } => Before::Ready { asks_ready },
            Self::Stopping => Before::Stopping,
            Self::Killed(_) | Self::Ended => return None,
        }))
    }
}
