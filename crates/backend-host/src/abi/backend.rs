//! `TRITONBACKEND_Backend` and `TRITONBACKEND_BackendAttribute`.

#![allow(unsafe_code)] // pointers of a C API

use super::message::Message;
use super::{Err, c_text, get, guard, object, put};
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

/// Version of the backend API.
///
/// # Safety
/// Both pointers are null or valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONBACKEND_ApiVersion(major: *mut u32, minor: *mut u32) -> Err {
    guard(|| {
        // SAFETY: the caller's promise.
        unsafe {
            put(major, API_VERSION.0);
            put(minor, API_VERSION.1);
        }
        Ok(())
    })
}

/// Name of a backend; owned by it.
///
/// # Safety
/// `backend` is live, `name` valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONBACKEND_BackendName(backend: *const Backend, name: *mut *const c_char) -> Err {
    // SAFETY: the caller's promise.
    unsafe { get(name, || Ok(object(backend, "backend")?.name.as_ptr())) }
}

/// Options of a backend; the message is owned by the backend.
///
/// # Safety
/// `backend` is live, `config` valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONBACKEND_BackendConfig(backend: *const Backend, config: *mut *const Message) -> Err {
    // SAFETY: the caller's promise.
    unsafe { get(config, || Ok(&raw const object(backend, "backend")?.config)) }
}

/// Whether executions of a device block each other. Stored, without effect: there are no devices here.
///
/// # Safety
/// `backend` is live, `policy` valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONBACKEND_BackendExecutionPolicy(backend: *const Backend, policy: *mut u32) -> Err {
    // SAFETY: the caller's promise.
    unsafe { get(policy, || Ok(object(backend, "backend")?.policy.load(SeqCst))) }
}

/// Sets the execution policy, at any time, as in Triton.
///
/// # Safety
/// `backend` is live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONBACKEND_BackendSetExecutionPolicy(backend: *const Backend, policy: u32) -> Err {
    // SAFETY: the caller's promise.
    guard(|| unsafe {
        object(backend, "backend")?.policy.store(policy, SeqCst);
        Ok(())
    })
}

/// The directory of the library.
///
/// # Safety
/// `backend` is live, the others valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONBACKEND_BackendArtifacts(
    backend: *const Backend,
    artifact_type: *mut u32,
    location: *mut *const c_char,
) -> Err {
    // SAFETY: the caller's promise.
    guard(|| unsafe {
        put(artifact_type, FILESYSTEM);
        put(location, object(backend, "backend")?.directory.as_ptr());
        Ok(())
    })
}

/// The memory manager of the process.
///
/// # Safety
/// `manager` is valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONBACKEND_BackendMemoryManager(
    _backend: *const Backend,
    manager: *mut *const MemoryManager,
) -> Err {
    // SAFETY: the caller's promise.
    unsafe { get(manager, || Ok(&raw const MANAGER)) }
}

/// The pointer that the backend stored.
///
/// # Safety
/// `backend` is live, `state` valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONBACKEND_BackendState(backend: *const Backend, state: *mut *mut c_void) -> Err {
    // SAFETY: the caller's promise.
    unsafe { get(state, || Ok(object(backend, "backend")?.state.load(SeqCst))) }
}

/// Stores a pointer for the backend.
///
/// # Safety
/// `backend` is live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONBACKEND_BackendSetState(backend: *const Backend, state: *mut c_void) -> Err {
    // SAFETY: the caller's promise.
    guard(|| unsafe {
        object(backend, "backend")?.state.store(state, SeqCst);
        Ok(())
    })
}

/// Adds a group of instances that models without groups get.
///
/// # Safety
/// `attributes` is what `TRITONBACKEND_GetBackendAttribute` was given; `device_ids` is null or has `id_count` elements.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONBACKEND_BackendAttributeAddPreferredInstanceGroup(
    attributes: *mut BackendAttribute,
    kind: u32,
    count: u64,
    device_ids: *const u64,
    id_count: u64,
) -> Err {
    guard(|| {
        // SAFETY: the caller's promise; only one call at a time has the object.
        let attributes = unsafe { attributes.as_mut() };
        let attributes = attributes.ok_or_else(|| tensor::Error::invalid("attributes was nullptr"))?;
        let devices = if device_ids.is_null() {
            Vec::new()
        } else {
            // SAFETY: the caller's promise.
            unsafe { std::slice::from_raw_parts(device_ids, id_count as usize) }.to_vec()
        };
        attributes.groups.push(Group { kind, count, devices });
        Ok(())
    })
}

/// Whether instances may be made at the same time. They are made one after another.
///
/// # Safety
/// `attributes` is what `TRITONBACKEND_GetBackendAttribute` was given.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONBACKEND_BackendAttributeSetParallelModelInstanceLoading(
    attributes: *mut BackendAttribute,
    enabled: bool,
) -> Err {
    guard(|| {
        // SAFETY: the caller's promise; only one call at a time has the object.
        if let Some(attributes) = unsafe { attributes.as_mut() } {
            attributes.is_parallel = enabled;
        }
        Ok(())
    })
}
