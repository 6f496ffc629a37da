//! Files of a model, opened without following links out of its directory (`memory::beneath`).

use crate::failure::{Result, thrown};
use napi_derive::napi;
use std::io::ErrorKind;
use std::os::fd::IntoRawFd;
use std::path::Path;
use tensor::Error;

/// Opens a regular file of a model. The caller closes the descriptor.
#[napi]
pub fn open_in_model(directory: String, path: String) -> Result<i32> {
    let file = memory::beneath::open(Path::new(&directory), Path::new(&path));
    file.map(IntoRawFd::into_raw_fd).map_err(|e| {
        // Triton's texts have no numbers.
        let text = e.to_string().split(" (os error").next().unwrap_or_default().to_owned();
        thrown(&match e.kind() {
            ErrorKind::CrossesDevices => Error::invalid("it is outside the model's directory"),
            _ => Error::internal(text),
        })
    })
}
