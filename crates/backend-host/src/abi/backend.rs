//! `TRITONBACKEND_Backend` and `TRITONBACKEND_BackendAttribute`.

use super::c_text;
use super::exports::{Cleared, Count, Items, Lent, Out, exports, objects};
use super::message::Message;
use crate::abi::memory::{MANAGER, MemoryManager};
use crate::library::BackendLibrary;
use crate::load::LoadContent;
use parking_lot::Mutex;
use serde_json::{Value, json};
use std::ffi::{CString, c_char, c_void};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering::SeqCst};

/// Version of the API that backends see.
const API_VERSION: (u32, u32) = (1, 19);
/// `TRITONBACKEND_ARTIFACT_FILESYSTEM`
pub(crate) const FILESYSTEM: u32 = 0;

/// A backend: a library under a name.
pub(crate) struct Backend {
    pub(crate) library: BackendLibrary,
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
}

impl Backend {
    pub(crate) fn new(library: BackendLibrary, load: &LoadContent) -> Self {
        Self {
            library,
            name: c_text(&load.backend),
            directory: c_text(&load.backend_directory),
            config: Message::new(load.backend_config.as_str()),
            policy: AtomicU32::new(0),
            state: AtomicPtr::new(null_mut()),
            groups: Mutex::default(),
        }
    }

    /// Asks the library for its preferred instances. As in Triton, an error of the library is ignored.
    pub(crate) fn ask_attributes(&self) {
        let mut attribute = BackendAttribute::default();
        let _ = self.library.attributes(self.into(), (&mut attribute).into());
        *self.groups.lock() = attribute.groups;
    }

    /// Preferred groups of instances, for READY.
    pub(crate) fn groups(&self) -> Value {
        let group = |Group { kind, count, devices }: &Group| {
            let kind = match kind {
                0 => "AUTO",
                2 => "GPU",
                3 => "MODEL",
                _ => "CPU",
            };
            json!({ "kind": kind, "count": count, "gpus": devices })
        };
        self.groups.lock().iter().map(group).collect()
    }
}

objects! {
    Backend: "backend";
    BackendAttribute: "attributes";
}

exports! {
    "attr" fn TRITONBACKEND_ApiVersion(major: Out<u32>, minor: Out<u32>) {
        major.put(API_VERSION.0);
        minor.put(API_VERSION.1);
    }

    "attr" get TRITONBACKEND_BackendName(backend: &Backend) -> Lent<c_char> = backend.name.as_ptr();
    "attr" get TRITONBACKEND_BackendConfig(backend: &Backend) -> Lent<Message> = &raw const backend.config;
    /// Whether executions of a device block each other. Stored, without effect: there are no devices here.
    "attr" get TRITONBACKEND_BackendExecutionPolicy(backend: &Backend) -> u32 = backend.policy.load(SeqCst);
    /// At any time, as in Triton.
    "attr" fn TRITONBACKEND_BackendSetExecutionPolicy(backend: &Backend, policy: u32) =>
        backend.policy.store(policy, SeqCst);

    /// The directory of the library.
    "attr" fn TRITONBACKEND_BackendArtifacts(
        backend: &Backend,
        artifact_type: Cleared<u32>,
        location: Out<Lent<c_char>>,
    ) {
        artifact_type.put(FILESYSTEM);
        location.put(backend.directory.as_ptr());
    }

    "attr" get TRITONBACKEND_BackendMemoryManager(_backend: Lent<Backend>) -> Lent<MemoryManager> = &raw const MANAGER;
    "attr" get TRITONBACKEND_BackendState(backend: &Backend) -> *mut c_void = backend.state.load(SeqCst);
    "attr" fn TRITONBACKEND_BackendSetState(backend: &Backend, state: *mut c_void) =>
        backend.state.store(state, SeqCst);

    /// Adds a group of instances that models without groups get.
    "attr" fn TRITONBACKEND_BackendAttributeAddPreferredInstanceGroup(
        attributes: &mut BackendAttribute,
        kind: u32,
        count: u64,
        device_ids: Items<u64>,
        id_count: Count<u64>,
    ) => attributes.groups.push(Group { kind, count, devices: device_ids.of(id_count).to_vec() });

    /// Whether instances may be made at the same time. They are made one after another.
    "attr" fn TRITONBACKEND_BackendAttributeSetParallelModelInstanceLoading(
        _attributes: Option<&mut BackendAttribute>,
        _enabled: bool,
    ) {}
}
