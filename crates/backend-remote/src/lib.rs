//! Models that run elsewhere: what the server keeps about each of their *runners*, whatever carries its frames.
//!
//! A runner is the other side of the protocol in `shm/`: a process, a thread of another language, or a test. Here are its batches and the slots of their requests, what
//! its code asks, its life from the first frame to the last, and when it is started again. How a frame gets there and what starts a runner is a [`Transport`]'s
//! business: nothing here knows of sockets, processes or files.
//!
//! A batch is written to its runner by the thread that brings it; the transport calls for each frame that comes back.

mod arena;
mod asks;
mod batch;
mod failure;
pub mod frames;
// All of the protocol's numbers, whoever uses them.
#[allow(dead_code)]
pub mod generated;
mod lease;
mod lifecycle;
mod memory;
mod model;
mod parameters;
mod peer;
mod restart;
mod runner;
mod slots;
mod spec;
mod transport;
mod window;

pub use failure::{Failure, Source};
pub use model::{ask, start};
pub use spec::{Further, Instance, Limits, Spec};
pub use transport::{Connection, End, Executor, Job, Next, Reading, Receiver, Segments, Start, Transport, Way};
