//! Runs checked requests: model table, versions, instances, lifecycle, statistics.
//!
//! Front ends and the in-process API both use [`ModelVersion::call`]; there is no other way to run a model. The engine
//! has no transport or file format, and [`backend::now_ns`] is its only clock; its owner decides what to load and when.
//!
//! Invariants:
//! - An accepted request gets exactly one final response, even if its model, its batch or its client fails.
//! - Counters change before the response is sent, so a client that has its response finds it counted.
//! - An idle version has no thread: instances are permits, and threads belong to one elastic pool.

#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests wait for other threads, and look at clocks"))]

mod admission;
mod answer;
mod batch_key;
mod batch_questions;
mod batching_library;
mod cached;
mod cached_calls;
mod call;
mod chat_model;
mod compile;
mod continuing;
mod cycles;
mod data_file;
mod deadlines;
mod delivery;
mod delivery_scope;
mod directory;
mod dispatch;
mod ensemble;
mod execution;
mod execution_cost;
mod executions;
mod flow;
mod hand_on;
mod handover;
mod hangs;
mod held_instance;
mod histograms;
mod identity;
mod inline;
mod instance_config;
mod instances;
mod limited;
pub mod limits;
mod live;
mod load;
mod lookup;
mod mail;
mod model_call;
mod on_devices;
mod order;
mod pending;
mod places;
mod pool;
mod publish;
mod rate_limit;
mod readiness_query;
mod registry;
mod remote_state;
mod resize;
mod response_statistics;
mod schedule;
mod scheduling;
mod sequence;
mod serving_state;
mod sketch;
mod statistics;
mod streaming;
mod table;
mod text_identity;
mod text_names;
mod texts;
mod ticket;
mod timer;
mod times;
mod traced;
mod turn_queue;
mod usage;
mod usage_watch;
mod version;
mod version_readiness;
mod warmup;
mod why_model;
mod wire;

pub use ::options::{Available, EngineOptions, MetricsOptions, Quantile, ServerMetadata, TextAliasOption};
pub use answer::{EngineResponse, Sink};
pub use backend::KeyValueCache;
pub use cache::Counters as CacheCounters;
pub use call::Started;
pub use chat_model::{ChatModel, Templates};
pub use executions::{Duration, Executions};
pub use handover::HandOver;
pub use histograms::{Exemplar, VersionHistogram};
pub use identity::Identity;
pub use inline::ran_long;
pub use limits::{MODEL_CALLS_DEPTH_MAX, MODEL_CYCLE_WAIT_NS_MAX, TEXTS_AHEAD_MAX};
pub use live::LiveRow;
pub use load::{LOAD_AGE, Load, LoadMeter};
#[cfg(feature = "loom")]
pub use mail::together;
pub use mail::{Mailbox, begin_mail};
#[cfg(feature = "loom")]
pub use pool::{Pool, Task};
pub use publish::PublishSpec;
pub use readiness_query::{ReadinessState, ReadinessWait};
pub use registry::{Engine, OpenedVersion};
pub use response_statistics::ResponseStatistics;
pub use statistics::{FailureReason, ResourceUse, Snapshot, Summary, VersionStatistics};
pub use table::{ServerState, VersionRow, VersionState};
pub use text_names::{TextAlias, TextName};
pub use ticket::Ticket;
#[doc(hidden)]
pub use ticket::{CancelledStage, TicketState};
pub use turn_queue::{begin_turns, end_turn};
pub use version::ModelVersion;
pub use why::Change;
pub use wire::statistics_json;
