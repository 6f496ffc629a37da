//! Metrics that models make for themselves (B-PY-20): families, and series of them.
//!
//! Families of the same name, description and kind are one; so are series with the same labels in one family. A family is gone when all that made it deleted it.
//! A series stays until its family is gone, as in Triton.

/// All of them. Empty for most servers.
#[derive(Default)]
pub struct CustomMetrics {}
