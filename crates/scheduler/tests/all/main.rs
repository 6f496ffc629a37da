//! Every test of the scheduler, in one binary, which is linked once.

#[path = "../common/mod.rs"]
mod common;
#[path = "../naive/mod.rs"]
mod naive;

mod batching;
mod cores;
mod invariants;
mod padding;
mod policies;
mod profile;
mod rate;
mod sequence;
mod sequence_invariants;
mod waiting;
