//! Model and instance that a frame belongs to.

use crate::generated::Header;

/// Numbers that the server gave an instance at LOAD. They are valid for one process only.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InstanceId {
    /// Number of the model in the process, from 1.
    pub model: u16,
    /// Number of the instance in the model, from 0.
    pub instance: u16,
}

impl InstanceId {
    /// Id in frames about the process itself: its memory, and pings.
    pub const PROCESS: Self = Self { model: 0, instance: 0 };
    /// Id of the instance in a process with a single instance.
    pub const ONLY: Self = Self { model: 1, instance: 0 };

    /// Id in the header of a frame.
    pub fn of(header: &Header) -> Self {
        Self { model: header.model, instance: header.instance }
    }
}
