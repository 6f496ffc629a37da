//! `TRITONBACKEND_ModelInstance`.

#![allow(unsafe_code)] // pointers of a C API

use super::message::Message;
use super::model::Model;
use super::{Err, c_text, get, guard, object, put};
use crate::link::Link;
use crate::load::{member, optional};
use parking_lot::RwLock;
use protocol::json::Value;
use std::ffi::{CString, c_char, c_void};
use std::ptr::null_mut;
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, Ordering::SeqCst};
use tensor::{Error, Result};

/// An instance of a model.
pub(crate) struct Instance {
    pub(crate) model: Arc<Model>,
    pub(crate) link: Arc<Link>,
    name: CString,
    kind: u32,
    device: i32,
    is_passive: bool,
    policy: Message,
    profiles: Vec<CString>,
    /// Kind and number.
    secondary: Vec<(CString, i64)>,
    state: AtomicPtr<c_void>,
    /// The library has finalized it. Locked while it does, and while it is asked whether it is ready.
    pub(crate) finalized: RwLock<bool>,
}

impl Instance {
    pub(crate) fn new(model: Arc<Model>, link: Arc<Link>, load: Value<'_>) -> Result<Self> {
        let kind = match &*optional(load, "kind")? {
            "GPU" => 2,
            "MODEL" => 3,
            _ => 1,
        };
        let list = |name| load.get(name).map_or(Ok(Vec::new()), |list| list.elements().map(Iterator::collect));
        let profiles: Vec<Value<'_>> = list("profiles")?;
        let secondary: Vec<Value<'_>> = list("secondary")?;
        Ok(Self {
            model,
            link,
            name: c_text(&member(load, "instance")?),
            kind,
            device: load.get("device").map_or(Ok(0), Value::as_i64)?.try_into().unwrap_or(0),
            is_passive: load.get("passive").map_or(Ok(false), Value::as_bool)?,
            policy: Message::new(optional(load, "host_policy")?),
            profiles: profiles.into_iter().map(|p| p.as_string().map(|p| c_text(&p))).collect::<Result<_>>()?,
            secondary: secondary
                .into_iter()
                .map(|s| Ok((c_text(&member(s, "kind")?), s.member("id")?.as_i64()?)))
                .collect::<Result<_>>()?,
            state: AtomicPtr::new(null_mut()),
            finalized: RwLock::new(false),
        })
    }
}

fn out_of_bounds(index: u32, count: usize, what: &str) -> Error {
    Error::invalid(format!("out of bounds index {index}: instance is configured with {count} {what}"))
}

/// Name of an instance; owned by it.
///
/// # Safety
/// `instance` is live, `name` valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONBACKEND_ModelInstanceName(instance: *const Instance, name: *mut *const c_char) -> Err {
    // SAFETY: the caller's promise.
    unsafe { get(name, || Ok(object(instance, "instance")?.name.as_ptr())) }
}

/// Kind of an instance.
///
/// # Safety
/// `instance` is live, `kind` valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONBACKEND_ModelInstanceKind(instance: *const Instance, kind: *mut u32) -> Err {
    // SAFETY: the caller's promise.
    unsafe { get(kind, || Ok(object(instance, "instance")?.kind)) }
}

/// Ordinal of the device of an instance; 0 without one.
///
/// # Safety
/// `instance` is live, `device_id` valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONBACKEND_ModelInstanceDeviceId(instance: *const Instance, device_id: *mut i32) -> Err {
    // SAFETY: the caller's promise.
    unsafe { get(device_id, || Ok(object(instance, "instance")?.device)) }
}

/// Host policy of an instance; the message is owned by it.
///
/// # Safety
/// `instance` is live, `host_policy` valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONBACKEND_ModelInstanceHostPolicy(
    instance: *const Instance,
    host_policy: *mut *const Message,
) -> Err {
    // SAFETY: the caller's promise.
    unsafe { get(host_policy, || Ok(&raw const object(instance, "instance")?.policy)) }
}

/// Whether an instance gets no requests.
///
/// # Safety
/// `instance` is live, `is_passive` valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONBACKEND_ModelInstanceIsPassive(instance: *const Instance, is_passive: *mut bool) -> Err {
    // SAFETY: the caller's promise.
    unsafe { get(is_passive, || Ok(object(instance, "instance")?.is_passive)) }
}

/// Number of profiles.
///
/// # Safety
/// `instance` is live, `count` valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONBACKEND_ModelInstanceProfileCount(instance: *const Instance, count: *mut u32) -> Err {
    // SAFETY: the caller's promise.
    unsafe { get(count, || Ok(object(instance, "instance")?.profiles.len() as u32)) }
}

/// Name of a profile; owned by the instance.
///
/// # Safety
/// `instance` is live, `profile_name` valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONBACKEND_ModelInstanceProfileName(
    instance: *const Instance,
    index: u32,
    profile_name: *mut *const c_char,
) -> Err {
    guard(|| {
        // SAFETY: the caller's promise.
        let profiles = unsafe {
            put(profile_name, null_mut::<c_char>().cast_const());
            &object(instance, "instance")?.profiles
        };
        let profile = profiles.get(index as usize).ok_or_else(|| out_of_bounds(index, profiles.len(), "profiles"))?;
        // SAFETY: the caller's promise.
        unsafe { put(profile_name, profile.as_ptr()) };
        Ok(())
    })
}

/// Number of secondary devices.
///
/// # Safety
/// `instance` is live, `count` valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONBACKEND_ModelInstanceSecondaryDeviceCount(
    instance: *const Instance,
    count: *mut u32,
) -> Err {
    // SAFETY: the caller's promise.
    unsafe { get(count, || Ok(object(instance, "instance")?.secondary.len() as u32)) }
}

/// Kind and number of a secondary device; the text is owned by the instance.
///
/// # Safety
/// `instance` is live, the others valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONBACKEND_ModelInstanceSecondaryDeviceProperties(
    instance: *const Instance,
    index: u32,
    kind: *mut *const c_char,
    id: *mut i64,
) -> Err {
    guard(|| {
        // SAFETY: the caller's promise.
        let devices = unsafe { &object(instance, "instance")?.secondary };
        let device = devices.get(index as usize);
        let device = device.ok_or_else(|| out_of_bounds(index, devices.len(), "secondary devices"))?;
        // SAFETY: the caller's promise.
        unsafe {
            put(kind, device.0.as_ptr());
            put(id, device.1);
        }
        Ok(())
    })
}

/// The model of an instance.
///
/// # Safety
/// `instance` is live, `model` valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONBACKEND_ModelInstanceModel(instance: *const Instance, model: *mut *const Model) -> Err {
    // SAFETY: the caller's promise.
    unsafe { get(model, || Ok(Arc::as_ptr(&object(instance, "instance")?.model))) }
}

/// The pointer that the backend stored for the instance.
///
/// # Safety
/// `instance` is live, `state` valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONBACKEND_ModelInstanceState(instance: *const Instance, state: *mut *mut c_void) -> Err {
    // SAFETY: the caller's promise.
    unsafe { get(state, || Ok(object(instance, "instance")?.state.load(SeqCst))) }
}

/// Stores a pointer for the instance.
///
/// # Safety
/// `instance` is live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONBACKEND_ModelInstanceSetState(instance: *const Instance, state: *mut c_void) -> Err {
    // SAFETY: the caller's promise.
    guard(|| unsafe {
        object(instance, "instance")?.state.store(state, SeqCst);
        Ok(())
    })
}
