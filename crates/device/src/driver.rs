//! The used functions of `libcuda.so.1`, each optional, behind safe calls.

#![allow(unsafe_code)] // calls a C library, whose prototypes are those of cuda.h

use crate::failure;
use crate::library::{ReturnCode, Unavailable, candidates, functions, open_first};
use parking_lot::Mutex;
use std::cell::Cell;
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use tensor::{Error, Fault, Result};

/// Bytes of a handle for shared device memory.
pub const HANDLE_BYTES: usize = 64;

/// Opaque handle that lets another process open device memory.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(C)]
pub struct Handle(pub [u8; HANDLE_BYTES]);

pub(crate) type Address = u64;
/// Opaque pointer to a stream, an event or a context.
pub(crate) type Thing = *mut c_void;

/// Opening shared memory enables peer access when it is first needed.
const LAZY_ENABLE_PEER_ACCESS: c_uint = 1;

functions! {
    init as b"cuInit\0": fn(c_uint);
    driver_version as b"cuDriverGetVersion\0": fn(*mut c_int);
    error_name as b"cuGetErrorName\0": fn(ReturnCode, *mut *const c_char);
    error_text as b"cuGetErrorString\0": fn(ReturnCode, *mut *const c_char);
    device_count as b"cuDeviceGetCount\0": fn(*mut c_int);
    device as b"cuDeviceGet\0": fn(*mut c_int, c_int);
    device_name as b"cuDeviceGetName\0": fn(*mut c_char, c_int, c_int);
    device_uuid as b"cuDeviceGetUuid_v2\0": fn(*mut [u8; 16], c_int);
    device_uuid_old as b"cuDeviceGetUuid\0": fn(*mut [u8; 16], c_int);
    device_pci as b"cuDeviceGetPCIBusId\0": fn(*mut c_char, c_int, c_int);
    device_memory as b"cuDeviceTotalMem_v2\0": fn(*mut usize, c_int);
    device_attribute as b"cuDeviceGetAttribute\0": fn(*mut c_int, c_int, c_int);
    can_access_peer as b"cuDeviceCanAccessPeer\0": fn(*mut c_int, c_int, c_int);
    retain_context as b"cuDevicePrimaryCtxRetain\0": fn(*mut *mut c_void, c_int);
    set_context as b"cuCtxSetCurrent\0": fn(*mut c_void);
    capture_mode as b"cuThreadExchangeStreamCaptureMode\0": fn(*mut c_int);
    synchronize as b"cuCtxSynchronize\0": fn();
    open_handle as b"cuIpcOpenMemHandle_v2\0": fn(*mut Address, Handle, c_uint);
    close_handle as b"cuIpcCloseMemHandle\0": fn(Address);
    get_handle as b"cuIpcGetMemHandle\0": fn(*mut Handle, Address);
    address_range as b"cuMemGetAddressRange_v2\0": fn(*mut Address, *mut usize, Address);
    copy_to_host as b"cuMemcpyDtoH_v2\0": fn(*mut c_void, Address, usize);
    copy_from_host as b"cuMemcpyHtoD_v2\0": fn(Address, *const c_void, usize);
    enable_peer as b"cuCtxEnablePeerAccess\0": fn(Thing, c_uint);
    memory_info as b"cuMemGetInfo_v2\0": fn(*mut usize, *mut usize);
    allocate as b"cuMemAlloc_v2\0": fn(*mut Address, usize);
    free as b"cuMemFree_v2\0": fn(Address);
    allocate_host as b"cuMemHostAlloc\0": fn(*mut *mut c_void, usize, c_uint);
    free_host as b"cuMemFreeHost\0": fn(*mut c_void);
    lock_host as b"cuMemHostRegister_v2\0": fn(*mut c_void, usize, c_uint);
    unlock_host as b"cuMemHostUnregister\0": fn(*mut c_void);
    make_stream as b"cuStreamCreateWithPriority\0": fn(*mut Thing, c_uint, c_int);
    end_stream as b"cuStreamDestroy_v2\0": fn(Thing);
    wait_for_stream as b"cuStreamSynchronize\0": fn(Thing);
    start_in as b"cuMemcpyHtoDAsync_v2\0": fn(Address, *const c_void, usize, Thing);
    start_out as b"cuMemcpyDtoHAsync_v2\0": fn(*mut c_void, Address, usize, Thing);
    start_within as b"cuMemcpyDtoDAsync_v2\0": fn(Address, Address, usize, Thing);
    start_between as b"cuMemcpyPeerAsync\0": fn(Address, Thing, Address, Thing, usize, Thing);
}

thread_local! {
    /// Device of this thread's calls, to which their errors are attributed.
    static ENTERED: Cell<Option<u32>> = const { Cell::new(None) };
    /// Whether this thread ignores captures of other threads.
    static IS_APART: Cell<bool> = const { Cell::new(false) };
}

/// `CU_STREAM_CAPTURE_MODE_THREAD_LOCAL`.
const CAPTURES_OF_THIS_THREAD: c_int = 1;

/// Makes this thread ignore captures of others; for threads that use a device without [`Driver::enter`].
pub fn stand_apart() {
    if let Ok(driver) = driver() {
        driver.stand_apart();
    }
}

/// A working driver with at least one device. Never unloaded.
pub struct Driver {
    pub(crate) functions: Functions,
    devices: u32,
    version: c_int,
    /// Primary context of each device that was used. Kept until the process ends.
    contexts: Mutex<Vec<Option<Context>>>,
}

#[derive(Clone, Copy)]
pub(crate) struct Context(pub(crate) Thing);

// SAFETY: a context may be current on any number of threads; the pointer is only passed back to the library.
unsafe impl Send for Context {}

/// The name is not libcuda.so: a toolkit installs a stub by that name, which finds no device and returns a misleading
/// error.
const PLACES: [&str; 2] = ["libcuda.so.1", "/usr/lib/wsl/lib/libcuda.so.1"];

/// Facts about the driver that need no search for it.
struct Flags {
    /// A driver was searched and found.
    found: AtomicBool,
    /// Devices may access each other's memory (`--enable-peer-access`).
    peers: AtomicBool,
}

static FLAGS: Flags = Flags { found: AtomicBool::new(false), peers: AtomicBool::new(true) };

/// Whether a device is known. Never searches a driver, so it is cheap on any path.
pub fn has_devices() -> bool {
    FLAGS.found.load(Relaxed)
}

/// Sets whether devices that are used from now on may access each other's memory. Allowed by default.
pub fn allow_peers(allowed: bool) {
    FLAGS.peers.store(allowed, Relaxed);
}

/// The driver of this process, searched once.
///
/// # Errors
/// The reason why there is none.
pub fn driver() -> Result<&'static Driver, &'static Unavailable> {
    static DRIVER: LazyLock<Result<Driver, Unavailable>> = LazyLock::new(|| {
        let found = Driver::open(&candidates("NEREID_LIBCUDA", &PLACES));
        FLAGS.found.store(found.is_ok(), Relaxed);
        found
    });
    DRIVER.as_ref()
}

/// Asks the driver about a device, for a library that reported an error which may mean its loss. If the device failed,
/// all callers get the same error, and the failure is recorded with `why` before the driver's text. Waits for pending
/// work on the device. Returns whether it failed.
///
/// A text alone is no proof: it may quote a model's author.
pub fn suspect(device: u32, why: &str) -> bool {
    if failure::failed(device).is_some() {
        return true;
    }
    let Ok(driver) = driver() else { return false };
    match driver.lost(device) {
        Ok(Some(words)) => failure::report(device, &format!("{why} ({words})")),
        Ok(None) => {}
        Err(e) => log::warn!("GPU {device} was checked after '{why}': {}", e.message()),
    }
    failure::failed(device).is_some()
}

impl Driver {
    /// Opens the first existing library of `candidates`.
    ///
    /// # Errors
    /// The reason why there is no device.
    pub fn open(candidates: &[std::ffi::OsString]) -> Result<Self, Unavailable> {
        let library = open_first(candidates)?;
        let functions = Functions::of(&library);
        // Threads of the driver run its code until the process ends.
        std::mem::forget(library);
        let mut driver = Self { functions, devices: 0, version: 0, contexts: Mutex::new(Vec::new()) };
        let started = driver.start().map_err(|e| e.message().to_owned());
        let found = started.and_then(|()| match driver.devices {
            0 => Err("the CUDA driver finds no device".to_owned()),
            _ => Ok(()),
        });
        // The usual reason if there was a device before.
        found.map_err(|why| match std::env::var("CUDA_VISIBLE_DEVICES") {
            Ok(list) => Unavailable(format!("{why}; CUDA_VISIBLE_DEVICES is '{list}'")),
            Err(_) => Unavailable(why),
        })?;
        Ok(driver)
    }

    fn start(&mut self) -> Result<()> {
        let functions = &self.functions;
        // SAFETY: no pointer arguments.
        self.check("cuInit", functions.init.map(|f| unsafe { f(0) }))?;
        let (mut version, mut count) = (0, 0);
        // SAFETY: writes one integer.
        self.check("cuDriverGetVersion", functions.driver_version.map(|f| unsafe { f(&raw mut version) }))?;
        // SAFETY: as above.
        self.check("cuDeviceGetCount", functions.device_count.map(|f| unsafe { f(&raw mut count) }))?;
        self.version = version;
        self.devices = u32::try_from(count).unwrap_or(0);
        self.contexts = Mutex::new(vec![None; self.devices as usize]);
        Ok(())
    }

    /// Number of devices, in the order of `CUDA_VISIBLE_DEVICES`.
    pub fn devices(&self) -> u32 {
        self.devices
    }

    /// CUDA version of the driver, for example `13.0`.
    pub fn version(&self) -> String {
        format!("{}.{}", self.version / 1000, self.version % 1000 / 10)
    }

    /// Opens memory that another process shares: returns its address and size. Each success needs a `close_handle`.
    pub(crate) fn open_handle(&self, device: u32, handle: Handle) -> Result<(Address, usize)> {
        self.enter(device)?;
        let (mut address, mut base, mut size) = (0, 0, 0);
        // SAFETY: writes one address; the driver rejects invalid handles.
        let opened =
            self.functions.open_handle.map(|f| unsafe { f(&raw mut address, handle, LAZY_ENABLE_PEER_ACCESS) });
        self.check("cuIpcOpenMemHandle", opened)?;
        // SAFETY: writes an address and a size.
        let range = self.functions.address_range.map(|f| unsafe { f(&raw mut base, &raw mut size, address) });
        if let Err(e) = self.check("cuMemGetAddressRange", range) {
            let _ = self.close_handle(device, address);
            return Err(e);
        }
        // A handle refers to a whole allocation, whose first address it opens.
        Ok((address, size.saturating_sub(address.saturating_sub(base) as usize)))
    }

    /// A handle with which another process opens memory from `allocate`.
    pub(crate) fn handle_of(&self, device: u32, address: Address) -> Result<Handle> {
        self.enter(device)?;
        let mut handle = Handle([0; HANDLE_BYTES]);
        // SAFETY: writes one handle; the driver rejects addresses that it did not allocate.
        self.check("cuIpcGetMemHandle", self.functions.get_handle.map(|f| unsafe { f(&raw mut handle, address) }))?;
        Ok(handle)
    }

    /// Closes memory that `open_handle` opened.
    pub(crate) fn close_handle(&self, device: u32, address: Address) -> Result<()> {
        self.enter(device)?;
        // SAFETY: the driver rejects addresses that it did not open.
        self.check("cuIpcCloseMemHandle", self.functions.close_handle.map(|f| unsafe { f(address) }))
    }

    /// Copies device memory into `to`, and waits for the copy.
    ///
    /// # Safety
    /// `to.len()` bytes from `from` on are in open memory of `device`.
    pub(crate) unsafe fn read(&self, device: u32, from: Address, to: &mut [u8]) -> Result<()> {
        self.enter(device)?;
        let to_address = to.as_mut_ptr().cast();
        // SAFETY: by contract, and `to` is borrowed. The call waits for the copy.
        self.check("cuMemcpyDtoH", self.functions.copy_to_host.map(|f| unsafe { f(to_address, from, to.len()) }))
    }

    /// Copies `from` into device memory, and waits until the device can read it.
    ///
    /// # Safety
    /// As `read`.
    pub(crate) unsafe fn write(&self, device: u32, to: Address, from: &[u8]) -> Result<()> {
        self.enter(device)?;
        let from_address = from.as_ptr().cast();
        // SAFETY: by contract, and `from` is borrowed; the call returns after reading it.
        self.check("cuMemcpyHtoD", self.functions.copy_from_host.map(|f| unsafe { f(to, from_address, from.len()) }))?;
        // The last part of pageable memory may still be in transfer.
        // SAFETY: no arguments.
        self.check("cuCtxSynchronize", self.functions.synchronize.map(|f| unsafe { f() }))
    }

    pub(crate) fn device_name(&self, device: u32) -> Result<String> {
        let number = self.number(device)?;
        let name = |text: &mut [u8]| {
            let (to, len) = (text.as_mut_ptr().cast(), text.len() as c_int);
            // SAFETY: writes at most `len` existing bytes.
            self.functions.device_name.map(|f| unsafe { f(to, len, number) })
        };
        self.text("cuDeviceGetName", name)
    }

    /// The uuid of a device or of a MIG instance.
    pub(crate) fn device_uuid(&self, device: u32) -> Result<[u8; 16]> {
        let (number, mut uuid) = (self.number(device)?, [0; 16]);
        // Drivers before 11.4 have only the old function, which does not support instances.
        let function = self.functions.device_uuid.or(self.functions.device_uuid_old);
        // SAFETY: writes 16 bytes.
        self.check("cuDeviceGetUuid", function.map(|f| unsafe { f(&raw mut uuid, number) }))?;
        Ok(uuid)
    }

    /// For example `0000:17:00.0`; for an instance, the address of its device.
    pub(crate) fn device_pci(&self, device: u32) -> Result<String> {
        let number = self.number(device)?;
        let pci = |text: &mut [u8]| {
            let (to, len) = (text.as_mut_ptr().cast(), text.len() as c_int);
            // SAFETY: writes at most `len` existing bytes.
            self.functions.device_pci.map(|f| unsafe { f(to, len, number) })
        };
        self.text("cuDeviceGetPCIBusId", pci)
    }

    /// Size of its memory in bytes.
    pub(crate) fn device_memory(&self, device: u32) -> Result<usize> {
        let (number, mut bytes) = (self.number(device)?, 0);
        // SAFETY: writes one size.
        self.check("cuDeviceTotalMem", self.functions.device_memory.map(|f| unsafe { f(&raw mut bytes, number) }))?;
        Ok(bytes)
    }

    /// The value of a `CUdevice_attribute`.
    pub(crate) fn device_attribute(&self, device: u32, attribute: c_int) -> Result<c_int> {
        let (number, mut value) = (self.number(device)?, 0);
        // SAFETY: writes one integer; the driver rejects unknown attributes.
        let asked = self.functions.device_attribute.map(|f| unsafe { f(&raw mut value, attribute, number) });
        self.check("cuDeviceGetAttribute", asked)?;
        Ok(value)
    }

    /// Whether code on a device can access the memory of another.
    pub(crate) fn can_access_peer(&self, device: u32, peer: u32) -> Result<bool> {
        let (number, other, mut can) = (self.number(device)?, self.number(peer)?, 0);
        // SAFETY: writes one integer.
        let asked = self.functions.can_access_peer.map(|f| unsafe { f(&raw mut can, number, other) });
        self.check("cuDeviceCanAccessPeer", asked)?;
        Ok(can != 0)
    }

    /// A NUL-terminated text that a function writes.
    fn text(&self, function: &str, write: impl FnOnce(&mut [u8]) -> Option<ReturnCode>) -> Result<String> {
        let mut text = [0; 256];
        let done = write(&mut text);
        self.check(function, done)?;
        let end = text.iter().position(|&byte| byte == 0).unwrap_or(text.len());
        Ok(String::from_utf8_lossy(text.get(..end).unwrap_or(&text)).into_owned())
    }

    /// Lets the driver serve this thread while another one captures a graph. Otherwise it rejects allocations, which
    /// would also break the capture. Older drivers do not support this and reject them.
    pub(crate) fn stand_apart(&self) {
        if !IS_APART.replace(true)
            && let Some(exchange) = self.functions.capture_mode
        {
            let mut mode = CAPTURES_OF_THIS_THREAD;
            // SAFETY: exchanges one number of this thread.
            unsafe { exchange(&raw mut mode) };
        }
    }

    /// Makes the primary context of the device current on this thread.
    pub(crate) fn enter(&self, device: u32) -> Result<()> {
        let context = self.context(device)?;
        ENTERED.set(Some(device));
        // SAFETY: a retained context that is never released.
        self.check("cuCtxSetCurrent", self.functions.set_context.map(|f| unsafe { f(context.0) }))?;
        self.stand_apart();
        Ok(())
    }

    /// The primary context of the device, retained on first use. Another context may be current afterwards.
    pub(crate) fn context(&self, device: u32) -> Result<Context> {
        let mut contexts = self.contexts.lock();
        let Some(known) = contexts.get_mut(device as usize) else {
            return Err(Error::invalid(format!("there is no device {device}, there are {}", self.devices)));
        };
        if let Some(context) = *known {
            return Ok(context);
        }
        let context = *known.insert(self.retain(device)?);
        let others = contexts.iter().enumerate().filter(|&(n, other)| n != device as usize && other.is_some());
        let others: Vec<u32> = others.map(|(n, _)| n as u32).collect();
        drop(contexts);
        if FLAGS.peers.load(Relaxed) {
            others.into_iter().for_each(|other| self.make_peers(device, other));
        }
        Ok(context)
    }

    /// Enables access between two devices. Without it, copies between them use the host.
    fn make_peers(&self, a: u32, b: u32) {
        for (from, to) in [(a, b), (b, a)] {
            match self.enable_peer(from, to) {
                Ok(true) => log::info!("device {from} can access the memory of device {to}"),
                Ok(false) => {
                    log::info!("device {from} cannot access the memory of device {to}: copies go through the host")
                }
                Err(e) => log::warn!("device {from} cannot access the memory of device {to}: {}", e.message()),
            }
        }
    }

    /// The driver's number of a device.
    pub(crate) fn number(&self, device: u32) -> Result<c_int> {
        let mut number = 0;
        // SAFETY: writes one integer.
        self.check("cuDeviceGet", self.functions.device.map(|f| unsafe { f(&raw mut number, device as c_int) }))?;
        Ok(number)
    }

    fn retain(&self, device: u32) -> Result<Context> {
        let (number, mut context) = (self.number(device)?, std::ptr::null_mut());
        // SAFETY: writes one pointer.
        let retained = self.functions.retain_context.map(|f| unsafe { f(&raw mut context, number) });
        self.check("cuDevicePrimaryCtxRetain", retained)?;
        Ok(Context(context))
    }

    /// Checks the context of a device and waits for its pending work. Returns the error if it is permanently lost.
    ///
    /// # Errors
    /// Any other error, also if the driver lacks the function.
    pub(crate) fn lost(&self, device: u32) -> Result<Option<String>> {
        // Without a context so far, creating one shows the failure.
        ENTERED.set(Some(device));
        let context = self.context(device)?;
        // SAFETY: a retained context that is never released; the second call has no arguments.
        let asked = unsafe {
            [
                ("cuCtxSetCurrent", self.functions.set_context.map(|f| f(context.0))),
                ("cuCtxSynchronize", self.functions.synchronize.map(|f| f())),
            ]
        };
        for (function, said) in asked {
            match said {
                Some(code) if failure::is_sticky(code) => {
                    return Ok(Some(format!("{function} failed with {}", self.words(code))));
                }
                _ => self.check(function, said)?,
            }
        }
        Ok(None)
    }

    /// `done` is `None` if the library lacks the function.
    pub(crate) fn check(&self, function: &str, done: Option<ReturnCode>) -> Result<()> {
        match done {
            Some(0) => Ok(()),
            Some(code) => {
                let why = format!("{function} failed with {}", self.words(code));
                if failure::is_sticky(code)
                    && let Some(device) = ENTERED.get()
                {
                    failure::report(device, &why);
                }
                Err(Error::internal(why).by(Fault::Environment).retry(code == failure::OUT_OF_MEMORY))
            }
            None => Err(Error::internal(format!("the CUDA driver has no {function}"))),
        }
    }

    /// For example `CUDA_ERROR_INVALID_HANDLE (400): invalid resource handle`.
    fn words(&self, code: ReturnCode) -> String {
        let text = |function: Option<unsafe extern "C" fn(ReturnCode, *mut *const c_char) -> ReturnCode>| {
            let mut found = std::ptr::null();
            // SAFETY: writes one pointer, to a constant text or null.
            let done = function.map(|f| unsafe { f(code, &raw mut found) });
            // SAFETY: constant and NUL-terminated, as documented for both functions.
            (done == Some(0) && !found.is_null()).then(|| unsafe { CStr::from_ptr(found) }.to_string_lossy())
        };
        match (text(self.functions.error_name), text(self.functions.error_text)) {
            (Some(name), Some(words)) => format!("{name} ({code}): {words}"),
            _ => format!("error {code}"),
        }
    }
}
