//! `TRITONBACKEND_ModelInstance`.

use super::c_text;
use super::exports::{Cleared, Out, exports, objects};
use super::message::Message;
use super::model::Model;
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

objects! {
    Instance: "instance";
}

exports! {
    /// Name of an instance; owned by it.
    fn TRITONBACKEND_ModelInstanceName(instance: &Instance, name: Out<*const c_char>) {
        name.put(instance.name.as_ptr());
    }

    /// Kind of an instance.
    fn TRITONBACKEND_ModelInstanceKind(instance: &Instance, kind: Out<u32>) {
        kind.put(instance.kind);
    }

    /// Ordinal of the device of an instance; 0 without one.
    fn TRITONBACKEND_ModelInstanceDeviceId(instance: &Instance, device_id: Out<i32>) {
        device_id.put(instance.device);
    }

    /// Host policy of an instance; the message is owned by it.
    fn TRITONBACKEND_ModelInstanceHostPolicy(instance: &Instance, host_policy: Out<*const Message>) {
        host_policy.put(&raw const instance.policy);
    }

    /// Whether an instance gets no requests.
    fn TRITONBACKEND_ModelInstanceIsPassive(instance: &Instance, is_passive: Out<bool>) {
        is_passive.put(instance.is_passive);
    }

    /// Number of profiles.
    fn TRITONBACKEND_ModelInstanceProfileCount(instance: &Instance, count: Out<u32>) {
        count.put(instance.profiles.len() as u32);
    }

    /// Name of a profile; owned by the instance.
    fn TRITONBACKEND_ModelInstanceProfileName(instance: &Instance, index: u32, profile_name: Cleared<*const c_char>) {
        let profiles = &instance.profiles;
        let profile = profiles.get(index as usize).ok_or_else(|| out_of_bounds(index, profiles.len(), "profiles"))?;
        profile_name.put(profile.as_ptr());
    }

    /// Number of secondary devices.
    fn TRITONBACKEND_ModelInstanceSecondaryDeviceCount(instance: &Instance, count: Out<u32>) {
        count.put(instance.secondary.len() as u32);
    }

    /// Kind and number of a secondary device; the text is owned by the instance.
    fn TRITONBACKEND_ModelInstanceSecondaryDeviceProperties(
        instance: &Instance,
        index: u32,
        kind: Out<*const c_char>,
        id: Out<i64>,
    ) {
        let devices = &instance.secondary;
        let device = devices.get(index as usize);
        let device = device.ok_or_else(|| out_of_bounds(index, devices.len(), "secondary devices"))?;
        kind.put(device.0.as_ptr());
        id.put(device.1);
    }

    /// The model of an instance.
    fn TRITONBACKEND_ModelInstanceModel(instance: &Instance, model: Out<*const Model>) {
        model.put(Arc::as_ptr(&instance.model));
    }

    /// The pointer that the backend stored for the instance.
    fn TRITONBACKEND_ModelInstanceState(instance: &Instance, state: Out<*mut c_void>) {
        state.put(instance.state.load(SeqCst));
    }

    /// Stores a pointer for the instance.
    fn TRITONBACKEND_ModelInstanceSetState(instance: &Instance, state: *mut c_void) {
        instance.state.store(state, SeqCst);
    }
}
