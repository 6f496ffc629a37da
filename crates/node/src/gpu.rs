//! Devices of this process and of the machine, and their utilisation for metrics.

use crate::objects as js;
use device::{Device, NvmlDevice, devices, driver, first_ignored, nvml};
use napi::bindgen_prelude::{FnArgs, Function};
use napi::threadsafe_function::{ThreadsafeFunction, ThreadsafeFunctionCallMode};
use napi_derive::napi;
use nereid_core::DeviceFailed;

/// Failures queued for the JavaScript thread; each device fails at most once.
const FAILURES_MAX: usize = 64;

type OnFailure = ThreadsafeFunction<String, (), FnArgs<(String,)>, napi::Status, false, true, FAILURES_MAX>;

/// A call of `f` with a GPU that fails permanently, and why.
pub fn notify_failures(f: &Function<'_, FnArgs<(String,)>, ()>) -> napi::Result<DeviceFailed> {
    let call: OnFailure = f
        .build_threadsafe_function::<String>()
        .max_queue_size::<FAILURES_MAX>()
        .weak::<true>()
        .build_callback(|ctx| Ok(FnArgs::from((ctx.value,))))?;
    Ok(Box::new(move |device, why| {
        // A full queue holds other failures, and one is enough.
        call.call(format!("GPU {device} failed: {why}"), ThreadsafeFunctionCallMode::NonBlocking);
    }))
}

/// Lists the devices of this process. Opens the driver if necessary, which takes up to a second.
#[napi]
pub fn list_devices() -> js::DeviceList {
    match devices() {
        Err(why) => js::DeviceList { unavailable: Some(why.to_string()), ..Default::default() },
        Ok(list) => js::DeviceList {
            unavailable: None,
            cuda_version: driver().ok().map(device::Driver::version),
            devices: list.iter().map(device).collect(),
        },
    }
}

fn device(d: &Device) -> js::Device {
    js::Device {
        ordinal: d.ordinal,
        name: d.name.clone(),
        uuid: d.uuid.map(|uuid| uuid.to_string()),
        pci_address: d.pci.map(|address| address.to_string()),
        compute_capability: d.compute_capability.map(|(major, minor)| format!("{major}.{minor}")),
        memory_bytes: d.memory_bytes.map(|n| n as f64),
        peers: d.peers.clone(),
    }
}

/// Lists the devices of the machine, and the entry of `visible` that selects none. May wait for a device.
#[napi]
pub fn list_machine_devices(visible: Option<String>) -> js::MachineDevices {
    let none = |why: String| js::MachineDevices { unavailable: Some(why), ..Default::default() };
    let nvml = match nvml() {
        Ok(nvml) => nvml,
        Err(why) => return none(why.to_string()),
    };
    let found = match nvml.devices() {
        Ok(found) => found,
        Err(why) => return none(why.text),
    };
    let uuid = |of: NvmlDevice| nvml.uuid(of).unwrap_or_default();
    let described = found.into_iter().map(|of| js::MachineDevice {
        uuid: uuid(of),
        name: nvml.name(of).unwrap_or_default(),
        pci_address: nvml.pci(of).ok().map(|address| address.to_string()),
        instances: nvml.instances(of).unwrap_or_default().into_iter().map(uuid).collect(),
    });
    let devices: Vec<_> = described.collect();
    let uuids: Vec<_> = devices.iter().flat_map(|d| std::iter::once(&d.uuid).chain(&d.instances)).cloned().collect();
    let ignored = visible.and_then(|list| first_ignored(&list, &uuids));
    js::MachineDevices {
        unavailable: None,
        driver_version: nvml.driver_version().ok(),
        devices,
        ignored: ignored.map(|one| js::IgnoredEntry { entry: one.entry, why: one.why }),
    }
}
