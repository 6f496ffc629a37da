//! Providers that are plug-ins of ONNX Runtime: libraries with their own interface, supported since 1.23.
//!
//! The bindings expose these functions only if built for that release or later. The loaded library may be older, so its
//! release is checked first and the functions are read from their positions in the table, which is never reordered.

use super::Runtime;
use super::base::{RawOptions, c_string, check};
use ort::AsPointer;
use ort::sys;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::ffi::{CStr, c_char, c_int};
use std::path::{Path, PathBuf};
use std::ptr::{NonNull, null};
use tensor::{Error, Result};

/// First release with these functions: `1.<minor>`.
const MINOR_MIN: u32 = 23;

/// Positions in `OrtApi`.
const MEMORY_INFO_GET_ID: usize = 72;
const REGISTER_LIBRARY: usize = 301;
const GET_EP_DEVICES: usize = 303;
const APPEND_PROVIDER_V2: usize = 304;
const EP_DEVICE_EP_NAME: usize = 312;
const MEMORY_INFO_GET_VENDOR_ID: usize = 322;
const EP_DEVICE_MEMORY_INFO: usize = 374;

/// Vendor id of CUDA memory.
const NVIDIA: u32 = 0x10de;

/// Opaque: a provider and a device that it supports.
enum EpDevice {}

type Register = unsafe extern "system" fn(*mut sys::OrtEnv, *const c_char, *const c_char) -> sys::OrtStatusPtr;
type GetDevices =
    unsafe extern "system" fn(*const sys::OrtEnv, *mut *const *const EpDevice, *mut usize) -> sys::OrtStatusPtr;
type Append = unsafe extern "system" fn(
    *mut sys::OrtSessionOptions,
    *mut sys::OrtEnv,
    *const *const EpDevice,
    usize,
    *const *const c_char,
    *const *const c_char,
    usize,
) -> sys::OrtStatusPtr;
type NameOf = unsafe extern "system" fn(*const EpDevice) -> *const c_char;
type MemoryOf = unsafe extern "system" fn(*const EpDevice, c_int) -> *const sys::OrtMemoryInfo;
type GetId = unsafe extern "system" fn(*const sys::OrtMemoryInfo, *mut c_int) -> sys::OrtStatusPtr;
type GetVendor = unsafe extern "system" fn(*const sys::OrtMemoryInfo) -> u32;

struct Functions {
    register: Register,
    devices: GetDevices,
    append: Append,
    name: NameOf,
    memory: MemoryOf,
    id: GetId,
    vendor: GetVendor,
}

/// A plug-in's device, which lives as long as the environment, which is never released.
#[derive(Clone, Copy)]
struct Offered(NonNull<EpDevice>);

// SAFETY: read only, and passed back to the library, which allows any thread.
unsafe impl Send for Offered {}

impl Functions {
    fn of(runtime: &Runtime) -> Result<Self> {
        if runtime.minor < MINOR_MIN {
            return Err(Error::environment(format!(
                "ONNX Runtime 1.{} opens no plug-ins: at least 1.{MINOR_MIN} is needed",
                runtime.minor
            )));
        }
        let table: *const *const () = std::ptr::from_ref(runtime.api).cast();
        // SAFETY: the table of this release has at least that many functions, in these positions and of these types.
        unsafe {
            Ok(Self {
                register: std::mem::transmute::<*const (), Register>(*table.add(REGISTER_LIBRARY)),
                devices: std::mem::transmute::<*const (), GetDevices>(*table.add(GET_EP_DEVICES)),
                append: std::mem::transmute::<*const (), Append>(*table.add(APPEND_PROVIDER_V2)),
                name: std::mem::transmute::<*const (), NameOf>(*table.add(EP_DEVICE_EP_NAME)),
                memory: std::mem::transmute::<*const (), MemoryOf>(*table.add(EP_DEVICE_MEMORY_INFO)),
                id: std::mem::transmute::<*const (), GetId>(*table.add(MEMORY_INFO_GET_ID)),
                vendor: std::mem::transmute::<*const (), GetVendor>(*table.add(MEMORY_INFO_GET_VENDOR_ID)),
            })
        }
    }

    /// Devices of all providers, plug-ins and built-in.
    fn offered(&self, runtime: &Runtime) -> Result<Vec<Offered>> {
        let (mut found, mut count) = (null(), 0);
        // SAFETY: a live environment and valid out pointers; the array and its elements belong to the environment.
        unsafe {
            check(runtime.api, (self.devices)(runtime.env.ptr(), &raw mut found, &raw mut count))?;
            Ok((0..count).filter_map(|n| NonNull::new((*found.add(n)).cast_mut())).map(Offered).collect())
        }
    }

    /// The ordinal of a CUDA device.
    fn ordinal(&self, runtime: &Runtime, offered: Offered) -> Option<u32> {
        // SAFETY: a live device; its memory info lives as long. 0 is the device's own memory.
        unsafe {
            let memory = (self.memory)(offered.0.as_ptr(), 0);
            if memory.is_null() || (self.vendor)(memory) != NVIDIA {
                return None;
            }
            let mut id = -1;
            check(runtime.api, (self.id)(memory, &raw mut id)).ok()?;
            u32::try_from(id).ok()
        }
    }
}

impl Runtime {
    /// Appends a plug-in's provider for `device` to the options of a session, and opens the plug-in if necessary.
    pub(super) fn append_plugin(
        &self,
        options: &RawOptions,
        library: &Path,
        device: u32,
        (keys, values): (&[*const c_char], &[*const c_char]),
    ) -> Result<()> {
        let functions = Functions::of(self)?;
        let name = self.plugin(&functions, library)?;
        let found = self.plugin_devices(&functions, &name)?.into_iter().find(|(ordinal, _)| *ordinal == device);
        let Some((_, offered)) = found else {
            return Err(Error::environment(format!("'{}' offers no device {device} of CUDA", library.display())));
        };
        let devices: [*const EpDevice; 1] = [offered.0.as_ptr()];
        // SAFETY: live handles; as many keys as values, NUL-terminated and copied.
        unsafe {
            let env: *mut sys::OrtEnv = self.env.ptr().cast_mut();
            let append = (functions.append)(
                options.0.as_ptr(),
                env,
                devices.as_ptr(),
                devices.len(),
                keys.as_ptr(),
                values.as_ptr(),
                keys.len(),
            );
            check(self.api, append)
        }
    }

    /// Provider names of a plug-in, which is opened once and stays open.
    fn plugin(&self, functions: &Functions, library: &Path) -> Result<Vec<String>> {
        static OPEN: Mutex<BTreeMap<PathBuf, Vec<String>>> = Mutex::new(BTreeMap::new());
        let mut open = OPEN.lock();
        if let Some(names) = open.get(library) {
            return Ok(names.clone());
        }
        let before = functions.offered(self)?.len();
        let (path, name) = (c_string(&library.to_string_lossy())?, c_string(&format!("nereid {}", library.display()))?);
        // SAFETY: a live environment and NUL-terminated, copied texts. The operator chose the library whose code runs.
        unsafe {
            let env: *mut sys::OrtEnv = self.env.ptr().cast_mut();
            check(self.api, (functions.register)(env, name.as_ptr(), path.as_ptr()))?;
        }
        let new = functions.offered(self)?.split_off(before);
        // SAFETY: the name of a live device is NUL-terminated.
        let name_of = |o: &Offered| unsafe { CStr::from_ptr((functions.name)(o.0.as_ptr())) };
        let mut names: Vec<String> = new.iter().map(|o| name_of(o).to_string_lossy().into_owned()).collect();
        names.dedup();
        open.insert(library.to_path_buf(), names.clone());
        Ok(names)
    }

    fn plugin_devices(&self, functions: &Functions, names: &[String]) -> Result<Vec<(u32, Offered)>> {
        // SAFETY: the name of a live device is NUL-terminated.
        let name_of = |o: &Offered| unsafe { CStr::from_ptr((functions.name)(o.0.as_ptr())) };
        let all = functions.offered(self)?;
        let of_plugin = all.into_iter().filter(|o| names.iter().any(|n| name_of(o).to_bytes() == n.as_bytes()));
        Ok(of_plugin.filter_map(|o| Some((functions.ordinal(self, o)?, o))).collect())
    }
}
