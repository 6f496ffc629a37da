//! ONNX Runtime's device providers: which are installed on this machine, what they lack, and how to install it.
//!
//! `places` lists directories, `report` searches them, `elf` reads dependencies, `known` caches the result. `nereid
//! gpu` prints the report; a load on a GPU opens the libraries in its order (`ffi::devices`).

mod appended;
mod elf;
mod known;
mod places;
mod report;

pub(crate) use appended::{Appended, Plugin};
pub(crate) use known::Known;
pub use places::Places;
pub use report::{Needed, Provider, ProviderKind, Report, report};
