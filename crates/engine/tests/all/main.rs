//! Tests in one binary, which is linked once. Tests that look at a whole process have a process of their own.

#[path = "../support/mod.rs"]
mod support;

mod cached;
mod cached_differential;
mod cancel_many;
mod causes;
mod continuing;
mod cores;
mod ensemble_regions;
mod ensembles;
mod gone;
mod in_turn;
mod instances;
mod later;
mod later_instances;
mod later_sequences;
mod looked_up;
mod many_answers;
mod model_calls;
mod panics;
mod rate_limit;
mod sequence_steps;
mod sequences;
mod texts;
