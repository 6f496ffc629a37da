//! The used functions of `libnvidia-ml.so.1`, each optional: current usage of devices, and all devices of the machine,
//! including those that `CUDA_VISIBLE_DEVICES` hides from the CUDA driver.
//!
//! Calls may take long, or never return on a hanging device: commands and threads without waiters (`usage`) make them.

#![allow(unsafe_code)] // calls a C library, whose prototypes are those of nvml.h

use crate::devices::PciAddress;
use crate::library::Unavailable;
use crate::library::{ReturnCode, candidates, functions, open_first};
use std::ffi::{CStr, CString, OsString, c_char, c_uint, c_void};
use std::sync::LazyLock;

const SUCCESS: ReturnCode = 0;
const NOT_SUPPORTED: ReturnCode = 3;
/// Maximum bytes of a uuid, a name or a version, with a margin.
const TEXT_BYTES: usize = 256;
/// Maximum number of instances of a device; devices have up to seven.
const INSTANCES_MAX: u32 = 64;
const PLACES: [&str; 2] = ["libnvidia-ml.so.1", "/usr/lib/wsl/lib/libnvidia-ml.so.1"];

pub(crate) type Raw = *mut c_void;

#[derive(Default)]
#[repr(C)]
pub(crate) struct Utilization {
    gpu: c_uint,
    memory: c_uint,
}

#[derive(Default)]
#[repr(C)]
pub(crate) struct MemoryV1 {
    total: u64,
    free: u64,
    used: u64,
}

/// Counts the driver's own reserved memory separately.
#[derive(Default)]
#[repr(C)]
pub(crate) struct MemoryV2 {
    version: c_uint,
    total: u64,
    reserved: u64,
    free: u64,
    used: u64,
}

#[repr(C)]
pub(crate) struct Pci {
    bus_id_legacy: [c_char; 16],
    domain: c_uint,
    bus: c_uint,
    device: c_uint,
    pci_device_id: c_uint,
    pci_subsystem_id: c_uint,
    bus_id: [c_char; 32],
}

functions! {
    init as b"nvmlInit_v2\0": fn();
    driver_version as b"nvmlSystemGetDriverVersion\0": fn(*mut c_char, c_uint);
    count as b"nvmlDeviceGetCount_v2\0": fn(*mut c_uint);
    by_index as b"nvmlDeviceGetHandleByIndex_v2\0": fn(c_uint, *mut Raw);
    by_pci as b"nvmlDeviceGetHandleByPciBusId_v2\0": fn(*const c_char, *mut Raw);
    by_uuid as b"nvmlDeviceGetHandleByUUID\0": fn(*const c_char, *mut Raw);
    uuid as b"nvmlDeviceGetUUID\0": fn(Raw, *mut c_char, c_uint);
    name as b"nvmlDeviceGetName\0": fn(Raw, *mut c_char, c_uint);
    pci as b"nvmlDeviceGetPciInfo_v3\0": fn(Raw, *mut Pci);
    mig_mode as b"nvmlDeviceGetMigMode\0": fn(Raw, *mut c_uint, *mut c_uint);
    instances_max as b"nvmlDeviceGetMaxMigDeviceCount\0": fn(Raw, *mut c_uint);
    instance as b"nvmlDeviceGetMigDeviceHandleByIndex\0": fn(Raw, c_uint, *mut Raw);
    utilization as b"nvmlDeviceGetUtilizationRates\0": fn(Raw, *mut Utilization);
    memory_v2 as b"nvmlDeviceGetMemoryInfo_v2\0": fn(Raw, *mut MemoryV2);
    memory_v1 as b"nvmlDeviceGetMemoryInfo\0": fn(Raw, *mut MemoryV1);
    power as b"nvmlDeviceGetPowerUsage\0": fn(Raw, *mut c_uint);
    power_limit as b"nvmlDeviceGetEnforcedPowerLimit\0": fn(Raw, *mut c_uint);
    energy as b"nvmlDeviceGetTotalEnergyConsumption\0": fn(Raw, *mut u64);
}

/// The initialised library. Never unloaded.
pub struct Nvml {
    functions: Functions,
    error_text: Option<unsafe extern "C" fn(ReturnCode) -> *const c_char>,
}

/// A device or an instance of one.
#[derive(Clone, Copy)]
pub struct NvmlDevice(Raw);

// SAFETY: the library may be called from any thread, and the pointer is only passed back to it.
unsafe impl Send for NvmlDevice {}
// SAFETY: as above.
unsafe impl Sync for NvmlDevice {}

/// An error of the library.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NvmlError {
    /// The driver will never support this query for this device.
    pub is_final: bool,
    /// Text for the log.
    pub text: String,
}

/// The result of a query. The error names the function, and its code with the text of the library.
type NvmlResult<T> = Result<T, NvmlError>;

/// The library of this process, searched once.
///
/// # Errors
/// The reason why there is none.
pub fn nvml() -> Result<&'static Nvml, &'static Unavailable> {
    static NVML: LazyLock<Result<Nvml, Unavailable>> =
        LazyLock::new(|| Nvml::open(&candidates("NEREID_LIBNVML", &PLACES)));
    NVML.as_ref()
}

impl Nvml {
    /// Opens the first existing library of `candidates`.
    ///
    /// # Errors
    /// The reason why it cannot be used.
    pub fn open(candidates: &[OsString]) -> Result<Self, Unavailable> {
        let library = open_first(candidates)?;
        // SAFETY: the prototype is that of nvml.h.
        let error_text = unsafe { library.get(b"nvmlErrorString\0").ok().map(|found| *found) };
        let nvml = Self { functions: Functions::of(&library), error_text };
        std::mem::forget(library);
        // SAFETY: no arguments.
        let started = nvml.functions.init.map(|f| unsafe { f() });
        nvml.check("nvmlInit", started).map_err(|e| Unavailable(e.text))?;
        Ok(nvml)
    }

    /// Version of the driver, for example `580.65.06`.
    pub fn driver_version(&self) -> NvmlResult<String> {
        self.text("nvmlSystemGetDriverVersion", |to, len| {
            // SAFETY: writes at most `len` existing bytes.
            self.functions.driver_version.map(|f| unsafe { f(to, len) })
        })
    }

    /// All accessible devices of the machine, in the order of their addresses.
    ///
    /// # Errors
    /// `NvmlError` if they cannot be counted.
    pub fn devices(&self) -> NvmlResult<Vec<NvmlDevice>> {
        let mut count = 0;
        // SAFETY: writes one integer.
        self.check("nvmlDeviceGetCount", self.functions.count.map(|f| unsafe { f(&raw mut count) }))?;
        let at = |index| {
            // SAFETY: writes one pointer.
            self.handle("nvmlDeviceGetHandleByIndex", |to| self.functions.by_index.map(|f| unsafe { f(index, to) }))
        };
        Ok((0..count).filter_map(|index| at(index).ok()).collect())
    }

    /// The device at an address; for an instance, the device that it is part of.
    pub fn by_pci(&self, address: PciAddress) -> NvmlResult<NvmlDevice> {
        self.by_text("nvmlDeviceGetHandleByPciBusId", address.to_string(), self.functions.by_pci)
    }

    /// The device or instance with a uuid, such as `GPU-…` or `MIG-…`.
    pub fn by_uuid(&self, uuid: String) -> NvmlResult<NvmlDevice> {
        self.by_text("nvmlDeviceGetHandleByUUID", uuid, self.functions.by_uuid)
    }

    fn by_text(
        &self,
        function: &str,
        text: String,
        find: Option<unsafe extern "C" fn(*const c_char, *mut Raw) -> ReturnCode>,
    ) -> NvmlResult<NvmlDevice> {
        let text = CString::new(text).map_err(|e| NvmlError { is_final: true, text: e.to_string() })?;
        // SAFETY: reads a NUL-terminated text, writes one pointer.
        self.handle(function, |to| find.map(|f| unsafe { f(text.as_ptr(), to) }))
    }

    fn handle(&self, function: &str, find: impl FnOnce(*mut Raw) -> Option<ReturnCode>) -> NvmlResult<NvmlDevice> {
        let mut raw = std::ptr::null_mut();
        self.check(function, find(&raw mut raw))?;
        Ok(NvmlDevice(raw))
    }

    /// For example `GPU-…`, or `MIG-…` for an instance.
    pub fn uuid(&self, device: NvmlDevice) -> NvmlResult<String> {
        self.text("nvmlDeviceGetUUID", |to, len| {
            // SAFETY: a device of the library; writes at most `len` existing bytes.
            self.functions.uuid.map(|f| unsafe { f(device.0, to, len) })
        })
    }

    /// For example `NVIDIA H200`.
    pub fn name(&self, device: NvmlDevice) -> NvmlResult<String> {
        self.text("nvmlDeviceGetName", |to, len| {
            // SAFETY: as in `uuid`.
            self.functions.name.map(|f| unsafe { f(device.0, to, len) })
        })
    }

    /// PCI address of a device.
    pub fn pci(&self, device: NvmlDevice) -> NvmlResult<PciAddress> {
        // SAFETY: consists of integers and bytes, for which zero is valid.
        let mut pci: Pci = unsafe { std::mem::zeroed() };
        // SAFETY: a device of the library; writes one structure.
        self.check("nvmlDeviceGetPciInfo", self.functions.pci.map(|f| unsafe { f(device.0, &raw mut pci) }))?;
        let byte = |number| u8::try_from(number).unwrap_or(u8::MAX);
        Ok(PciAddress { domain: pci.domain, bus: byte(pci.bus), slot: byte(pci.device) })
    }

    /// The instances of a device in MIG mode; none for other devices.
    ///
    /// # Errors
    /// `NvmlError`; a device without MIG mode is not an error.
    pub fn instances(&self, device: NvmlDevice) -> NvmlResult<Vec<NvmlDevice>> {
        let (mut now, mut later, mut most) = (0, 0, 0);
        // SAFETY: a device of the library; writes two integers.
        let asked = self.functions.mig_mode.map(|f| unsafe { f(device.0, &raw mut now, &raw mut later) });
        match self.check("nvmlDeviceGetMigMode", asked) {
            Err(e) if !e.is_final => return Err(e),
            Ok(()) if now != 0 => {}
            _ => return Ok(Vec::new()),
        }
        // SAFETY: a device of the library; writes one integer.
        let counted = self.functions.instances_max.map(|f| unsafe { f(device.0, &raw mut most) });
        self.check("nvmlDeviceGetMaxMigDeviceCount", counted)?;
        let at = |index| {
            self.handle("nvmlDeviceGetMigDeviceHandleByIndex", |to| {
                // SAFETY: a device of the library; writes one pointer.
                self.functions.instance.map(|f| unsafe { f(device.0, index, to) })
            })
        };
        // Positions without an instance are skipped.
        Ok((0..most.min(INSTANCES_MAX)).filter_map(|index| at(index).ok()).collect())
    }

    /// Share of time during which kernels ran, in per cent.
    pub fn utilization(&self, device: NvmlDevice) -> NvmlResult<u32> {
        let mut rates = Utilization::default();
        // SAFETY: a device of the library; writes one structure.
        let asked = self.functions.utilization.map(|f| unsafe { f(device.0, &raw mut rates) });
        self.check("nvmlDeviceGetUtilizationRates", asked)?;
        Ok(rates.gpu)
    }

    /// Bytes of its memory: total, and in use.
    pub fn memory(&self, device: NvmlDevice) -> NvmlResult<(u64, u64)> {
        // The version has the size in its low bits and the version of the structure above them.
        let mut memory = MemoryV2 { version: size_of::<MemoryV2>() as c_uint | 2 << 24, ..MemoryV2::default() };
        // SAFETY: a device of the library; writes one structure of this version.
        let asked = self.functions.memory_v2.map(|f| unsafe { f(device.0, &raw mut memory) });
        if asked == Some(SUCCESS) {
            return Ok((memory.total, memory.used));
        }
        let mut memory = MemoryV1::default();
        // SAFETY: a device of the library; writes one structure.
        let asked = self.functions.memory_v1.map(|f| unsafe { f(device.0, &raw mut memory) });
        self.check("nvmlDeviceGetMemoryInfo", asked)?;
        Ok((memory.total, memory.used))
    }

    /// Current power, in mW.
    pub fn power(&self, device: NvmlDevice) -> NvmlResult<u32> {
        self.number("nvmlDeviceGetPowerUsage", self.functions.power, device)
    }

    /// Power limit, in mW.
    pub fn power_limit(&self, device: NvmlDevice) -> NvmlResult<u32> {
        self.number("nvmlDeviceGetEnforcedPowerLimit", self.functions.power_limit, device)
    }

    /// Energy since the driver was loaded, in mJ.
    pub fn energy(&self, device: NvmlDevice) -> NvmlResult<u64> {
        self.number("nvmlDeviceGetTotalEnergyConsumption", self.functions.energy, device)
    }

    fn number<T: Default>(
        &self,
        function: &str,
        ask: Option<unsafe extern "C" fn(Raw, *mut T) -> ReturnCode>,
        device: NvmlDevice,
    ) -> NvmlResult<T> {
        let mut value = T::default();
        // SAFETY: a device of the library; writes one number.
        self.check(function, ask.map(|f| unsafe { f(device.0, &raw mut value) }))?;
        Ok(value)
    }

    fn text(
        &self,
        function: &str,
        write: impl FnOnce(*mut c_char, c_uint) -> Option<ReturnCode>,
    ) -> NvmlResult<String> {
        let mut text = [0_u8; TEXT_BYTES];
        self.check(function, write(text.as_mut_ptr().cast(), TEXT_BYTES as c_uint))?;
        let end = text.iter().position(|&byte| byte == 0).unwrap_or(TEXT_BYTES);
        Ok(String::from_utf8_lossy(text.get(..end).unwrap_or(&text)).into_owned())
    }

    /// `done` is `None` if the library lacks the function.
    fn check(&self, function: &str, done: Option<ReturnCode>) -> NvmlResult<()> {
        match done {
            Some(SUCCESS) => Ok(()),
            Some(code) => {
                let is_final = code == NOT_SUPPORTED;
                Err(NvmlError { is_final, text: format!("{function} failed with {}", self.words(code)) })
            }
            None => Err(NvmlError { is_final: true, text: format!("the NVML library has no {function}") }),
        }
    }

    /// For example `error 15: GPU is lost`.
    fn words(&self, code: ReturnCode) -> String {
        // SAFETY: returns a constant text, or null.
        let text = self.error_text.map_or(std::ptr::null(), |f| unsafe { f(code) });
        if text.is_null() {
            return format!("error {code}");
        }
        // SAFETY: constant and NUL-terminated, as documented.
        format!("error {code}: {}", unsafe { CStr::from_ptr(text) }.to_string_lossy())
    }
}
