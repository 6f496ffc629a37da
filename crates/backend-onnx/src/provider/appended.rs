//! Providers of a session on a device, as its options list them.

use super::ProviderKind;
use std::path::PathBuf;

/// A provider to append to a session, in order of priority.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Appended {
    pub(crate) kind: ProviderKind,
    /// Keys and values in the spelling of the library.
    pub(crate) options: Vec<(String, String)>,
    /// The plug-in that replaces the library's own provider.
    pub(crate) plugin: Option<Plugin>,
}

/// A plug-in provider and the device that it runs on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Plugin {
    pub(crate) library: PathBuf,
    pub(crate) device: u32,
}

impl Appended {
    pub(crate) fn new(kind: ProviderKind, options: Vec<(String, String)>) -> Self {
        Self { kind, options, plugin: None }
    }
}
