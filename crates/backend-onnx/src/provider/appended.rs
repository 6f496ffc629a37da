//! What a session on a device is told of its providers.

use super::Kind;
use std::path::PathBuf;

/// A provider to append to a session, in the order of their priority.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Appended {
    pub(crate) kind: Kind,
    /// As the library wants them.
    pub(crate) options: Vec<(String, String)>,
    /// What takes the place of the library's own provider.
    pub(crate) plugin: Option<Plugin>,
}

/// A provider that is a library by itself, and the device it is to run on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Plugin {
    pub(crate) library: PathBuf,
    pub(crate) device: u32,
}

impl Appended {
    pub(crate) fn new(kind: Kind, options: Vec<(String, String)>) -> Self {
        Self { kind, options, plugin: None }
    }
}
