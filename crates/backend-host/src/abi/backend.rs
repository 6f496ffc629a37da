//! `TRITONBACKEND_Backend` and `TRITONBACKEND_BackendAttribute`.

#![allow(unsafe_code)] // pointers of a C API

use super::c_text;
use super::exports::{Cleared, Out, exports, objects};
use super::message::Message;
use crate::abi::memory::{MANAGER, MemoryManager};
use crate::library::Library;
use crate::load::{member, optional};
use parking_lot::Mutex;
use protocol::json::Value;
use std::ffi::{CString, c_char, c_void};
use std::fmt::Write;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering::SeqCst};
use tensor::Result;

/// Version of the API that backends see.
const API_VERSION: (u32, u32) = (1, 19);
/// `TRITONBACKEND_ARTIFACT_FILESYSTEM`
pub(crate) const FILESYSTEM: u32 = 0;

/// A backend: a library under a name.
pub(crate) struct Backend {
    pub(crate) library: Library,
    name: CString,
    directory: CString,
    config: Message,
    policy: AtomicU32,
    state: AtomicPtr<c_void>,
    groups: Mutex<Vec<Group>>,
}

/// A group of instances that a backend prefers.
struct Group {
    kind: u32,
    count: u64,
    devices: Vec<u64>,
}

/// Attributes that a backend sets during `TRITONBACKEND_GetBackendAttribute`.
#[derive(Default)]
pub(crate) struct BackendAttribute {
    groups: Vec<Group>,
    /// Instances of a model are made one after another, also if the backend could do otherwise.
    is_parallel: bool,
}

impl Backend {
    pub(crate) fn new(name: String, library: Library, load: Value<'_>) -> Result<Self> {
        Ok(Self {
            library,
            name: c_text(&name),
            directory: c_text(&member(load, "backend_directory")?),
            config: Message::new(optional(load, "backend_config")?),
            policy: AtomicU32::new(0),
            state: AtomicPtr::new(null_mut()),
            groups: Mutex::default(),
        })
    }

    /// Asks the library for its preferred instances. As in Triton, an error of the library is ignored.
    pub(crate) fn ask_attributes(&self) {
        let Some(ask) = self.library.attributes else { return };
        let mut attribute = BackendAttribute::default();
        // SAFETY: both objects live for the time of the call.
        drop(unsafe { super::error::ServerError::take(ask((&raw const *self).cast(), (&raw mut attribute).cast())) });
        *self.groups.lock() = attribute.groups;
    }

    /// Preferred groups of instances as a JSON array.
    pub(crate) fn groups(&self) -> String {
        let mut json = String::from("[");
        for (i, Group { kind, count, devices }) in self.groups.lock().iter().enumerate() {
            let comma = if i > 0 { "," } else { "" };
            let kind = match kind {
                0 => "AUTO",
                2 => "GPU",
                3 => "MODEL",
                _ => "CPU",
            };
            let _ = write!(json, r#"{comma}{{"kind":"{kind}","count":{count},"gpus":{devices:?}}}"#);
        }
        json.push(']');
        json
    }
}

objects! {
    Backend: "backend";
    BackendAttribute: "attributes";
}

exports! {
    /// Version of the backend API.
    fn TRITONBACKEND_ApiVersion(major: Out<u32>, minor: Out<u32>) {
        major.put(API_VERSION.0);
        minor.put(API_VERSION.1);
    }

    /// Name of a backend; owned by it.
    fn TRITONBACKEND_BackendName(backend: &Backend, name: Out<*const c_char>) {
        name.put(backend.name.as_ptr());
    }

    /// Options of a backend; the message is owned by the backend.
    fn TRITONBACKEND_BackendConfig(backend: &Backend, config: Out<*const Message>) {
        config.put(&raw const backend.config);
    }

    /// Whether executions of a device block each other. Stored, without effect: there are no devices here.
    fn TRITONBACKEND_BackendExecutionPolicy(backend: &Backend, policy: Out<u32>) {
        policy.put(backend.policy.load(SeqCst));
    }

    /// Sets the execution policy, at any time, as in Triton.
    fn TRITONBACKEND_BackendSetExecutionPolicy(backend: &Backend, policy: u32) {
        backend.policy.store(policy, SeqCst);
    }

    /// The directory of the library.
    fn TRITONBACKEND_BackendArtifacts(backend: &Backend, artifact_type: Cleared<u32>, location: Out<*const c_char>) {
        artifact_type.put(FILESYSTEM);
        location.put(backend.directory.as_ptr());
    }

    /// The memory manager of the process.
    fn TRITONBACKEND_BackendMemoryManager(_backend: *const Backend, manager: Out<*const MemoryManager>) {
        manager.put(&raw const MANAGER);
    }

    /// The pointer that the backend stored.
    fn TRITONBACKEND_BackendState(backend: &Backend, state: Out<*mut c_void>) {
        state.put(backend.state.load(SeqCst));
    }

    /// Stores a pointer for the backend.
    fn TRITONBACKEND_BackendSetState(backend: &Backend, state: *mut c_void) {
        backend.state.store(state, SeqCst);
    }

    /// Adds a group of instances that models without groups get.
    fn TRITONBACKEND_BackendAttributeAddPreferredInstanceGroup(
        attributes: &mut BackendAttribute,
        kind: u32,
        count: u64,
        device_ids: *const u64,
        id_count: u64,
    ) {
        let devices = if device_ids.is_null() {
            Vec::new()
        } else {
            // SAFETY: so many numbers.
            unsafe { std::slice::from_raw_parts(device_ids, id_count as usize) }.to_vec()
        };
        attributes.groups.push(Group { kind, count, devices });
    }

    /// Whether instances may be made at the same time. They are made one after another.
    fn TRITONBACKEND_BackendAttributeSetParallelModelInstanceLoading(
        attributes: Option<&mut BackendAttribute>,
        enabled: bool,
    ) {
        if let Some(attributes) = attributes {
            attributes.is_parallel = enabled;
        }
    }
}
