//! What a tensor is: datatype, shape, bytes, and the closed set of ways handling one can fail.
//! No I/O, no threads; no unsafe beyond copying out of and into shared memory, and naming parts of it (`region`, `part`).

pub mod allowance;
mod buffer;
mod datatype;
mod error;
mod name;
pub mod part;
mod region;
pub mod reshape;
mod shape;
pub mod strings;

pub use buffer::{Data, Location};
pub use datatype::DataType;
pub use error::{Code, Error, Result};
pub use name::Name;
pub use region::{Base, DeviceMemory, Exported, Extent, RegionMemory, RegionRef};
pub use shape::{Shape, ShapeDisplay, element_count};
