//! Pictures to tensors, and tensors to boxes and labels. Pure: bytes in, numbers out; no threads, files or clocks.

pub mod boxes;
pub mod fuzz;
pub mod labels;
pub mod parameters;
pub mod picture;
mod placement;

pub use placement::Placement;
