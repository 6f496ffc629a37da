//! Values that libraries pass and get.

use std::ffi::CString;
use tensor::{Error, Result};

/// A text for a library. It ends at its first NUL.
pub(crate) fn c_text(text: &str) -> CString {
    let end = text.find('\0').unwrap_or(text.len());
    CString::new(text.get(..end).unwrap_or_default()).unwrap_or_default()
}

/// Rejects a version of the JSON of configurations that there is not.
pub(crate) fn check_config_version(version: u32) -> Result<()> {
    if version == 1 {
        return Ok(());
    }
    Err(Error::invalid(format!("model configuration version {version} not supported, supported versions are: 1")))
}

/// An item by its index; `owner` and `what` say in the error what has how many.
pub(crate) fn at<'a, T>(items: &'a [T], index: u32, owner: &str, what: &str) -> Result<&'a T> {
    items
        .get(index as usize)
        .ok_or_else(|| Error::invalid(format!("out of bounds index {index}: {owner} {} {what}", items.len())))
}
