//! Which instance of which model a frame is about.

use crate::generated::Header;

/// Numbers that the host gave an instance when it loaded it. They mean something to one process only.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InstanceId {
    /// From 1.
    pub model: u16,
    /// From 0 in each model.
    pub instance: u16,
}

impl InstanceId {
    /// Of frames about the process itself: its memory, and whether it is there.
    pub const PROCESS: Self = Self { model: 0, instance: 0 };
    /// Of the instance in a process that has one.
    pub const ONLY: Self = Self { model: 1, instance: 0 };

    /// What a frame says.
    pub fn of(header: &Header) -> Self {
        Self { model: header.model, instance: header.instance }
    }
}
