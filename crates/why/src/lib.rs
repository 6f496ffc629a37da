//! Explains why a model is slow and what would make it faster. Pure: no clock, thread or I/O; the caller passes what
//! happened and what it measured of the machine.
//!
//! | file | holds |
//! |---|---|
//! | [`ring`] | requests and executions of the last minutes, in bounded memory |
//! | [`history`] | the same, read: requests with their times, and the longest stretch of steady work |
//! | [`load`] | whether clients wait for their responses, how many there are, and how long they pause |
//! | [`service`] | how long executions take, as a distribution by size |
//! | [`replay`] | the arrivals again, through the real scheduler, with a change |
//! | [`machine`] | how the cores were shared meanwhile |
//! | [`advice`] | the changes worth trying, and their simulated gain |

pub mod advice;
pub mod history;
pub mod load;
pub mod machine;
pub mod replay;
pub mod ring;
pub mod service;
mod worth;

pub use advice::{Advice, Change, Findings, Setup, report};
pub use history::History;
pub use load::Traffic;
pub use machine::{Cores, Usage};
pub use ring::{Arrived, Budget, MODEL_BYTES_MAX, Ring, SERVER_BYTES_MAX, Snapshot, WINDOW_NS};

/// Rate and latency of a load.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Speed {
    /// Responses per second.
    pub rate: f64,
    /// Median latency, in µs.
    pub p50_us: f64,
    /// Latency that one request of a hundred exceeds, in µs.
    pub p99_us: f64,
}

/// The value at this share of sorted values; 0 if there are none.
pub(crate) fn quantile<T: Copy + Default>(sorted: &[T], share: f64) -> T {
    let at = (sorted.len() as f64 * share).ceil() as usize;
    sorted.get(at.saturating_sub(1).min(sorted.len().saturating_sub(1))).copied().unwrap_or_default()
}
