//! Ensembles as data. A [`Plan`] is an ensemble's configuration, compiled and checked once at load; a
//! [`GraphExecution`] is the state of one request; an [`Inflight`] limits the calls of all requests together, and
//! [`Turns`] keep the requests of one sequence in order.
//!
//! Pure: no clock, no threads, no I/O, no locks. An execution receives the responses of its steps and returns the next
//! actions, so its caller never waits, and a test can replay any order of responses. Tensors are passed from step to
//! step as views without a copy.
//!
//! Not here: existence and load order of models, statistics, the response cache, copies to a client's region. Rules
//! that need no composing model are checked when configurations are read (`validate_ensemble.ts`).
//!
//! # Words
//!
//! A *run* is one call of a step's model. A decoupled step has any number of responses to a run, and each is an
//! *iteration*: the steps behind it run once per iteration. A *scope* is the steps and tensors between one decoupled
//! step and the next, so a tensor has one value per iteration of its scope; scope 0 begins at the request and has one
//! iteration. Steps never mix scopes, which the plan checks.
//!
//! | file | holds |
//! |---|---|
//! | `plan` | the compiled form of an ensemble |
//! | `check` | checks against the composing models, with Triton's texts |
//! | `execution` | the state machine of one request |
//! | `request` | the client's request and the steps that it needs |
//! | `iteration` | the tensors of one iteration |
//! | `order` | the next iteration of a scope where order matters |
//! | `batch` | shapes between models that batch and models that do not |
//! | `sequence` | the sequence of a request, which a response may change for later steps |
//! | `inflight` | `max_inflight_requests` |
//! | `turns` | the order in which requests of a sequence call a step |
//! | `limits` | limits of ensembles |

mod batch;
mod check;
mod execution;
mod inflight;
mod iteration;
mod limits;
mod order;
mod plan;
mod request;
mod sequence;
mod turns;

pub use execution::{Action, GraphExecution, Pressure, RunId};
pub use inflight::Inflight;
pub use limits::{CALLS_MAX, DEPTH_MAX, Limits, MAPPINGS_MAX, STEPS_MAX};
pub use plan::{Composing, Plan, Step};
pub use turns::Turns;
