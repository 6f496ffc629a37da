//! ONNX Runtime's providers for devices: what of them is on this machine, what is missing, what installs it.
//!
//! `places` says where to look, `report` what is there, `elf` reads what a library needs, `known` keeps what was found while nothing changes. `nereid gpu` prints the report, and a load that
//! wants a GPU opens the libraries in its order (`ffi::devices`).

mod appended;
mod elf;
mod known;
mod places;
mod report;

pub(crate) use appended::{Appended, Plugin};
pub(crate) use known::Known;
pub use places::Places;
pub use report::{Kind, Needed, Provider, Report, report};
