//! Tensors: datatype, shape, contents, and the closed set of errors.
//! No I/O, no threads; unsafe only to copy from and to shared memory and to name parts of it (`region`, `part`).

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
pub use datatype::{DataType, f32_of_half};
pub use error::{Code, Error, Fault, Result};
pub use name::Name;
pub use region::{Base, DeviceMemory, Exported, Extent, RegionMemory, RegionRef};
pub use shape::{Shape, ShapeDisplay, element_count};
