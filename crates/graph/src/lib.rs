//! Ensembles as data. A [`Plan`] is what an ensemble's configuration says, compiled and checked once at load; an [`Execution`] is
//! one request on its way through it; an [`Inflight`] counts the calls of all requests together, where the ensemble limits them, and [`Turns`] keep
//! the requests of one sequence in order.
//!
//! Pure: no clock, no threads, no I/O, no locks. An execution is told what its steps answered and says what to do next, so
//! whoever drives it waits for nothing, and every order of answers can be replayed in a test. Tensors go from step to step as
//! counted views; no byte is copied.
//!
//! Not here: which models exist and in which order they load, statistics, the response cache, writing an output into a client's
//! region. Static rules, those that need no composing model, are checked where configurations are read (`validate_ensemble.ts`).
//!
//! # Words
//!
//! A *run* is one call of a step's model. A decoupled step answers a run any number of times, and each of its answers is an
//! *iteration*: what comes after it runs once per iteration. A *scope* is the steps and tensors between one decoupled step and the
//! next, so a tensor has one value per iteration of its scope; scope 0 begins at the request and has one iteration. Steps never mix
//! scopes, which the plan checks.
//!
//! | file | holds |
//! |---|---|
//! | `plan` | the compiled form of an ensemble |
//! | `check` | what the composing models say about it, with Triton's texts |
//! | `execution` | the state machine of one request |
//! | `request` | what the client of the request asked for |
//! | `frame` | the tensors of one iteration |
//! | `order` | which iteration of a scope is next where order matters |
//! | `batch` | shapes between models that batch and models that do not |
//! | `sequence` | the sequence a request belongs to, which a response may change for what follows |
//! | `inflight` | `max_inflight_requests` |
//! | `turns` | which request of a sequence may call a step next |
//! | `limits` | every number that bounds an ensemble |

mod batch;
mod check;
mod execution;
mod frame;
mod inflight;
mod limits;
mod order;
mod plan;
mod request;
mod sequence;
mod turns;

pub use execution::{Action, Execution, Pressure, RunId};
pub use inflight::Inflight;
pub use limits::{CALLS_MAX, DEPTH_MAX, Limits, MAPPINGS_MAX, STEPS_MAX};
pub use plan::{Composing, Plan, Step};
pub use turns::Turns;
