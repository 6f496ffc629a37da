//! Models that run outside the server: the server's state for each of their *runners*, over any transport.
//!
//! A runner is the other side of the protocol in `shm/`: a process, a thread of another language, or a test. This crate
//! keeps its batches and the slots of their requests, the calls that its code makes, its lifecycle, and when it is
//! restarted. A [`Transport`] carries the frames and starts the runner: nothing here knows sockets, processes or files.
//!
//! The thread that submits a batch writes it to the runner; the transport calls back for each frame that arrives.

#![warn(clippy::too_many_lines)]

mod asks;
mod batch;
mod blocks;
mod complete;
mod failure;
mod lease;
mod lent_inputs;
mod lifecycle;
mod memory;
mod model;
mod parameters;
mod peer;
mod restart;
mod runner;
mod selection;
mod slots;
mod spec;
mod transport;
mod trim;
mod window;

pub use frames::{self, generated};

pub use complete::{Completed, RunnerGuard, ask, ask_and_keep};
pub use failure::{Failure, Source};
pub use model::start;
pub use spec::{Further, InstanceSpec, Limits, Prefetch, RunnerKind, Spec};
pub use transport::{
    Connection, End, Executor, Job, Next, PANICKED, Reading, Receiver, Segments, Start, Transport, Way,
};
