//! What a tensor is: datatype, shape, bytes, and the closed set of ways handling one can fail.
//! No I/O, no threads; no unsafe beyond reading a shared memory view.

mod buffer;
mod datatype;
mod error;
mod name;
mod shape;
pub mod strings;

pub use buffer::{Data, RegionRef, RegionSlice};
pub use datatype::DataType;
pub use error::{Code, Error, Result};
pub use name::Name;
pub use shape::{Shape, ShapeDisplay, element_count};
