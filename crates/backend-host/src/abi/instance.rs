//! `TRITONBACKEND_ModelInstance`.

use super::exports::{Cleared, Lent, Out, exports, objects};
use super::message::Message;
use super::model::Model;
use super::{at, c_text};
use crate::link::Link;
use crate::load::InstanceContent;
use parking_lot::RwLock;
use std::ffi::{CString, c_char, c_void};
use std::ptr::null_mut;
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, Ordering::SeqCst};

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
    pub(crate) fn new(model: Arc<Model>, link: Arc<Link>, load: InstanceContent) -> Self {
        Self {
            model,
            link,
            name: c_text(&load.name),
            kind: match &*load.kind {
                "GPU" => 2,
                "MODEL" => 3,
                _ => 1,
            },
            device: load.device,
            is_passive: load.is_passive,
            policy: Message::new(load.host_policy),
            profiles: load.profiles.iter().map(|profile| c_text(profile)).collect(),
            secondary: load.secondary.iter().map(|device| (c_text(&device.kind), device.id)).collect(),
            state: AtomicPtr::new(null_mut()),
            finalized: RwLock::new(false),
        }
    }
}

/// Begins errors about indexes.
const OWNER: &str = "instance is configured with";

objects! {
    Instance: "instance";
}

exports! {
    "instance" get TRITONBACKEND_ModelInstanceName(instance: &Instance) -> Lent<c_char> = instance.name.as_ptr();
    "instance" get TRITONBACKEND_ModelInstanceKind(instance: &Instance) -> u32 = instance.kind;
    /// 0 without a device.
    "instance" get TRITONBACKEND_ModelInstanceDeviceId(instance: &Instance) -> i32 = instance.device;
    "instance" get TRITONBACKEND_ModelInstanceHostPolicy(instance: &Instance) -> Lent<Message> = &instance.policy;
    "instance" get TRITONBACKEND_ModelInstanceIsPassive(instance: &Instance) -> bool = instance.is_passive;
    "instance" get TRITONBACKEND_ModelInstanceModel(instance: &Instance) -> Lent<Model> = Arc::as_ptr(&instance.model);
    "instance" get TRITONBACKEND_ModelInstanceProfileCount(instance: &Instance) -> u32 = instance.profiles.len() as u32;

    "instance" fn TRITONBACKEND_ModelInstanceProfileName(
        instance: &Instance,
        index: u32,
        profile_name: Cleared<Lent<c_char>>,
    ) => profile_name.put(at(&instance.profiles, index, OWNER, "profiles")?.as_ptr());

    "instance" get TRITONBACKEND_ModelInstanceSecondaryDeviceCount(instance: &Instance) -> u32 =
        instance.secondary.len() as u32;

    "instance" fn TRITONBACKEND_ModelInstanceSecondaryDeviceProperties(
        instance: &Instance,
        index: u32,
        kind: Out<Lent<c_char>>,
        id: Out<i64>,
    ) {
        let device = at(&instance.secondary, index, OWNER, "secondary devices")?;
        kind.put(device.0.as_ptr());
        id.put(device.1);
    }

    "instance" get TRITONBACKEND_ModelInstanceState(instance: &Instance) -> *mut c_void = instance.state.load(SeqCst);
    "instance" fn TRITONBACKEND_ModelInstanceSetState(instance: &Instance, state: *mut c_void) =>
        instance.state.store(state, SeqCst);
}
