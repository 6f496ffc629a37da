//! Takes a checked request to a result: model table, versions, instances, lifecycle, statistics.
//!
//! Front ends and the in-process API both come in through [`ModelVersion::call`]; nothing else runs a model. The engine knows no
//! transport, no file format and no clock but [`backend::now_ns`]; what to load and when is decided above it.
//!
//! Invariants:
//! - An accepted request gets exactly one final answer, whatever happens to its model, its batch or its client.
//! - Counters change before the answer is sent, so a client that has its answer finds it counted.
//! - A version holds no thread while it is idle: instances are permits, threads belong to one elastic pool.

#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests wait for other threads, and look at clocks"))]

mod admission;
mod answer;
mod batch_key;
mod cached;
mod cached_calls;
mod call;
mod compile;
mod context;
mod continuing;
mod cycles;
mod data_file;
mod deadlines;
mod delivery;
mod directory;
mod dispatch;
mod ensemble;
mod execution;
mod executions;
mod flow;
mod hand_on;
mod handover;
mod identity;
mod inline;
mod instance_config;
mod instances;
mod later;
mod limited;
pub mod limits;
mod load;
mod lookup;
mod mail;
mod model_call;
mod on_devices;
mod options;
mod order;
mod padding;
mod pending;
mod places;
mod pool;
mod publish;
mod ran;
mod rate_limit;
mod readiness;
mod ready;
mod registry;
mod resize;
mod rest;
mod running;
mod schedule;
mod scheduling;
mod sequence;
mod sketch;
mod statistics;
mod streaming;
mod table;
mod ticket;
mod timer;
mod traced;
mod turn;
mod version;
mod warmup;
mod wire;
mod work;

pub use answer::{Answer, Sink};
pub use backend::KeyValueCache;
pub use cache::Counters as CacheCounters;
pub use call::Started;
pub use executions::{Duration, Executions};
pub use handover::HandOver;
pub use identity::Identity;
pub use limits::{MODEL_CALLS_DEPTH_MAX, MODEL_CYCLE_WAIT_NS_MAX};
pub use load::{LOAD_AGE, Load, LoadMeter};
#[cfg(feature = "loom")]
pub use mail::together;
pub use mail::{Mailbox, begin_mail};
pub use options::{EngineOptions, MetricsOptions, ServerMetadata};
#[cfg(feature = "loom")]
pub use pool::{Pool, Task};
pub use publish::PublishSpec;
pub use rate_limit::Available;
pub use ready::{Asking, Ready};
pub use registry::{Engine, Opened};
pub use statistics::{FailureReason, ResourceUse, ResponseStatistics, Snapshot, Summary, VersionStatistics};
pub use table::{ServerState, VersionState};
pub use ticket::Ticket;
#[doc(hidden)]
pub use ticket::{TicketState, Was};
pub use turn::{begin_turns, end_turn};
pub use version::ModelVersion;
pub use wire::statistics_json;
