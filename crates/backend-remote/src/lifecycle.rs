//! The states of a runner, from its start to its end.

/// State of a runner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lifecycle {
    /// The runner loads the model's code.
    Starting {
        /// The runner answered its first ping: its own code runs, even if the model's code hangs.
        has_answered: bool,
    },
    /// The runner reported that it cannot start. It is expected to end.
    Failed,
    /// The runner accepts batches.
    Ready {
        /// The model has its own readiness check.
        asks_ready: bool,
    },
    /// UNLOAD was sent.
    Stopping,
    /// The runner is being killed and its frames are ignored. Its requests fail only once the process has ended, so
    /// that a retry does not reach it.
    Killed(Before),
    /// The process has ended.
    Ended,
}

/// State in which a runner was killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Before {
    Starting,
    Ready {
        asks_ready: bool,
    },
    /// Ready, while every request it worked for was cancelled. The runner is not restarted.
    Abandoned,
    Stopping,
}

impl Lifecycle {
    /// Ready, or killed while ready and not ended yet.
    pub(crate) fn is_in_service(self) -> bool {
        matches!(self, Self::Ready { .. } | Self::Killed(Before::Ready { .. } | Before::Abandoned))
    }

    /// UNLOAD was sent, whether or not the runner was killed afterwards.
    pub(crate) fn is_stopping(self) -> bool {
        matches!(self, Self::Stopping | Self::Killed(Before::Stopping))
    }

    pub(crate) fn is_killed(self) -> bool {
        matches!(self, Self::Killed(_))
    }

    /// The state after a kill; `None` if the runner is already killed or has ended.
    pub(crate) fn killed(self) -> Option<Self> {
        Some(Self::Killed(match self {
            Self::Starting { .. } | Self::Failed => Before::Starting,
            Self::Ready { asks_ready } => Before::Ready { asks_ready },
            Self::Stopping => Before::Stopping,
            Self::Killed(_) | Self::Ended => return None,
        }))
    }
}
