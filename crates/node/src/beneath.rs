//! Files of a model, opened without following links out of its directory (`memory::beneath`).

use crate::failure::{Result, thrown};
use napi_derive::napi;
use std::io::{self, ErrorKind};
use std::os::fd::IntoRawFd;
use std::path::Path;
use tensor::Error;

/// Opens a regular file of a model. The caller closes the descriptor.
#[napi]
pub fn open_in_model(directory: String, path: String) -> Result<i32> {
    let file = memory::beneath::open(Path::new(&directory), Path::new(&path));
    file.map(IntoRawFd::into_raw_fd).map_err(unopened)
}

/// Throws if the path does not exist, or leads out of the directory of a model.
#[napi]
pub fn expect_in_model(directory: String, path: String) -> Result<()> {
    memory::beneath::contains(Path::new(&directory), Path::new(&path)).map_err(unopened)
}

fn unopened(e: io::Error) -> napi::Error<&'static str> {
    if e.kind() == ErrorKind::CrossesDevices {
        return thrown(&Error::invalid("it is outside the model's directory"));
    }
    let text = e.to_string();
    // Triton's texts have no numbers.
    thrown(&Error::internal(text.split(" (os error").next().unwrap_or_default().to_owned()))
}
