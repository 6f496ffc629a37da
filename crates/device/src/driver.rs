//! The functions of `libcuda.so.1` that are used, each optional, behind calls that cannot be made wrongly.

#![allow(unsafe_code)] // calls a C library, whose prototypes are those of cuda.h

use crate::failure;
use crate::library::{Code, Unavailable, candidates, functions, open_first};
use parking_lot::Mutex;
use std::cell::Cell;
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use tensor::{Error, Result};

/// Bytes of what a process gives another to share memory of a device.
pub const HANDLE_BYTES: usize = 64;

/// What a process gives another to share memory of a device; opaque.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(C)]
pub struct Handle(pub [u8; HANDLE_BYTES]);

pub(crate) type Address = u64;
/// What the library hands out for a stream, an event or a context.
pub(crate) type Thing = *mut c_void;

/// Opening shared memory makes peers of devices accessible when it is first needed there.
const LAZY_ENABLE_PEER_ACCESS: c_uint = 1;

functions! {
    init as b"cuInit\0": fn(c_uint);
    driver_version as b"cuDriverGetVersion\0": fn(*mut c_int);
    error_name as b"cuGetErrorName\0": fn(Code, *mut *const c_char);
    error_text as b"cuGetErrorString\0": fn(Code, *mut *const c_char);
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
    copy_within as b"cuMemcpyDtoD_v2\0": fn(Address, Address, usize);
    copy_between as b"cuMemcpyPeer\0": fn(Address, Thing, Address, Thing, usize);
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
    let_stream_wait as b"cuStreamWaitEvent\0": fn(Thing, Thing, c_uint);
    make_event as b"cuEventCreate\0": fn(*mut Thing, c_uint);
    end_event as b"cuEventDestroy_v2\0": fn(Thing);
    record_event as b"cuEventRecord\0": fn(Thing, Thing);
    ask_event as b"cuEventQuery\0": fn(Thing);
    wait_for_event as b"cuEventSynchronize\0": fn(Thing);
    start_in as b"cuMemcpyHtoDAsync_v2\0": fn(Address, *const c_void, usize, Thing);
    start_out as b"cuMemcpyDtoHAsync_v2\0": fn(*mut c_void, Address, usize, Thing);
    start_within as b"cuMemcpyDtoDAsync_v2\0": fn(Address, Address, usize, Thing);
    start_between as b"cuMemcpyPeerAsync\0": fn(Address, Thing, Address, Thing, usize, Thing);
}

thread_local! {
    /// The device that this thread's calls are about: an error of one of them may be the end of it.
    static ENTERED: Cell<Option<u32>> = const { Cell::new(None) };
    /// Whether this thread said that captures of others are none of its own.
    static IS_APART: Cell<bool> = const { Cell::new(false) };
}

/// `CU_STREAM_CAPTURE_MODE_THREAD_LOCAL`.
const CAPTURES_OF_THIS_THREAD: c_int = 1;

/// Has captures of other threads be none of this one's, which runs something on a device and does not [`Driver::enter`] it.
pub fn stand_apart() {
    if let Ok(driver) = driver() {
        driver.stand_apart();
    }
}

/// A driver that works and has at least one device. Never unloaded.
pub struct Driver {
    pub(crate) functions: Functions,
    devices: u32,
    version: c_int,
    /// The primary context of each device, once something of it was used. Kept until the process ends.
    contexts: Mutex<Vec<Option<Context>>>,
}

#[derive(Clone, Copy)]
pub(crate) struct Context(pub(crate) Thing);

// SAFETY: a context may be current on any number of threads; the pointer is only handed back to the library.
unsafe impl Send for Context {}

/// Not libcuda.so: with a toolkit installed that is a stub, which finds no device and says so with a misleading number.
const PLACES: [&str; 2] = ["libcuda.so.1", "/usr/lib/wsl/lib/libcuda.so.1"];

/// Whether a driver was looked for and found.
static FOUND: AtomicBool = AtomicBool::new(false);

/// Whether there is a device, as far as is known: nothing is looked for, so this may be asked on any path.
pub fn has_devices() -> bool {
    FOUND.load(Relaxed)
}

/// Whether devices reach each other's memory, where they can (`--enable-peer-access`).
static PEERS: AtomicBool = AtomicBool::new(true);

/// Says whether devices that are used from now on reach each other's memory, where they can. They do unless this said otherwise.
pub fn allow_peers(allowed: bool) {
    PEERS.store(allowed, Relaxed);
}

/// The driver of this process, looked for once.
///
/// # Errors
/// Why there is none.
pub fn driver() -> Result<&'static Driver, &'static Unavailable> {
    static DRIVER: LazyLock<Result<Driver, Unavailable>> = LazyLock::new(|| {
        let found = Driver::open(&candidates("NEREID_LIBCUDA", &PLACES));
        FOUND.store(found.is_ok(), Relaxed);
        found
    });
    DRIVER.as_ref()
}

/// For a library that calls the driver by itself and told of an error that may be the end of a device: asks the driver, which says the same error
/// to everybody then, and notes the failure with `why` before its words. Waits for what is under way on the device. Whether it failed.
///
/// A text alone is not believed: it may quote what a model's author wrote.
pub fn suspect(device: u32, why: &str) -> bool {
    if failure::failed(device).is_some() {
        return true;
    }
    let Ok(driver) = driver() else { return false };
    match driver.lost(device) {
        Ok(Some(words)) => failure::report(device, &format!("{why} ({words})")),
        Ok(None) => {}
        Err(e) => log::warn!("GPU {device} was asked whether it still works, after '{why}': {}", e.message()),
    }
    failure::failed(device).is_some()
}

impl Driver {
    /// Opens the first library of `candidates` that there is.
    ///
    /// # Errors
    /// Why there is no device.
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
        // The usual reason where there was one yesterday.
        found.map_err(|why| match std::env::var("CUDA_VISIBLE_DEVICES") {
            Ok(list) => Unavailable(format!("{why}; CUDA_VISIBLE_DEVICES is '{list}'")),
            Err(_) => Unavailable(why),
        })?;
        Ok(driver)
    }

    fn start(&mut self) -> Result<()> {
        let functions = &self.functions;
        // SAFETY: no arguments that lead anywhere.
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

    /// Devices, in the order of `CUDA_VISIBLE_DEVICES`.
    pub fn devices(&self) -> u32 {
        self.devices
    }

    /// CUDA version that the driver is made for, such as `13.0`.
    pub fn version(&self) -> String {
        format!("{}.{}", self.version / 1000, self.version % 1000 / 10)
    }

    /// Opens memory that another process shares, on `device`: its address and size. Each success wants its `close`.
    pub(crate) fn open_handle(&self, device: u32, handle: Handle) -> Result<(Address, usize)> {
        self.enter(device)?;
        let (mut address, mut base, mut size) = (0, 0, 0);
        // SAFETY: writes one address; a handle that means nothing is refused by the driver.
        let opened =
            self.functions.open_handle.map(|f| unsafe { f(&raw mut address, handle, LAZY_ENABLE_PEER_ACCESS) });
        self.check("cuIpcOpenMemHandle", opened)?;
        // SAFETY: writes an address and a size.
        let range = self.functions.address_range.map(|f| unsafe { f(&raw mut base, &raw mut size, address) });
        if let Err(e) = self.check("cuMemGetAddressRange", range) {
            let _ = self.close_handle(device, address);
            return Err(e);
        }
        // A handle is of a whole allocation, and its address the first one.
        Ok((address, size.saturating_sub(address.saturating_sub(base) as usize)))
    }

    /// What another process opens to reach memory that `allocate` gave.
    pub(crate) fn handle_of(&self, device: u32, address: Address) -> Result<Handle> {
        self.enter(device)?;
        let mut handle = Handle([0; HANDLE_BYTES]);
        // SAFETY: writes one handle; the driver knows which addresses it gave, and refuses others.
        self.check("cuIpcGetMemHandle", self.functions.get_handle.map(|f| unsafe { f(&raw mut handle, address) }))?;
        Ok(handle)
    }

    /// Gives back what `open_handle` opened.
    pub(crate) fn close_handle(&self, device: u32, address: Address) -> Result<()> {
        self.enter(device)?;
        // SAFETY: the driver knows which addresses it opened, and refuses others.
        self.check("cuIpcCloseMemHandle", self.functions.close_handle.map(|f| unsafe { f(address) }))
    }

    /// Copies memory of a device into `to`; done when it returns.
    ///
    /// # Safety
    /// `to.len()` bytes from `from` on lie in memory of `device` that is open.
    pub(crate) unsafe fn read(&self, device: u32, from: Address, to: &mut [u8]) -> Result<()> {
        self.enter(device)?;
        let to_address = to.as_mut_ptr().cast();
        // SAFETY: by contract, and `to` is ours. The call returns when the bytes are there.
        self.check("cuMemcpyDtoH", self.functions.copy_to_host.map(|f| unsafe { f(to_address, from, to.len()) }))
    }

    /// Copies `from` into memory of a device; readers of the device see it when it returns.
    ///
    /// # Safety
    /// As `read`.
    pub(crate) unsafe fn write(&self, device: u32, to: Address, from: &[u8]) -> Result<()> {
        self.enter(device)?;
        let from_address = from.as_ptr().cast();
        // SAFETY: by contract, and `from` is borrowed; the call returns when it was read.
        self.check("cuMemcpyHtoD", self.functions.copy_from_host.map(|f| unsafe { f(to, from_address, from.len()) }))?;
        // Of pageable memory the last part may still be on its way.
        // SAFETY: no arguments.
        self.check("cuCtxSynchronize", self.functions.synchronize.map(|f| unsafe { f() }))
    }

    pub(crate) fn device_name(&self, device: u32) -> Result<String> {
        let number = self.number(device)?;
        let name = |text: &mut [u8]| {
            let (to, len) = (text.as_mut_ptr().cast(), text.len() as c_int);
            // SAFETY: writes at most `len` bytes, which are there.
            self.functions.device_name.map(|f| unsafe { f(to, len, number) })
        };
        self.text("cuDeviceGetName", name)
    }

    /// Of an instance of a device in MIG mode its own.
    pub(crate) fn device_uuid(&self, device: u32) -> Result<[u8; 16]> {
        let (number, mut uuid) = (self.number(device)?, [0; 16]);
        // Drivers before 11.4 have only the one that knows no instances.
        let function = self.functions.device_uuid.or(self.functions.device_uuid_old);
        // SAFETY: writes 16 bytes.
        self.check("cuDeviceGetUuid", function.map(|f| unsafe { f(&raw mut uuid, number) }))?;
        Ok(uuid)
    }

    /// Such as `0000:17:00.0`; of an instance that of the device it is part of.
    pub(crate) fn device_pci(&self, device: u32) -> Result<String> {
        let number = self.number(device)?;
        let pci = |text: &mut [u8]| {
            let (to, len) = (text.as_mut_ptr().cast(), text.len() as c_int);
            // SAFETY: writes at most `len` bytes, which are there.
            self.functions.device_pci.map(|f| unsafe { f(to, len, number) })
        };
        self.text("cuDeviceGetPCIBusId", pci)
    }

    /// Bytes of its memory.
    pub(crate) fn device_memory(&self, device: u32) -> Result<usize> {
        let (number, mut bytes) = (self.number(device)?, 0);
        // SAFETY: writes one size.
        self.check("cuDeviceTotalMem", self.functions.device_memory.map(|f| unsafe { f(&raw mut bytes, number) }))?;
        Ok(bytes)
    }

    /// A number of `CUdevice_attribute`.
    pub(crate) fn device_attribute(&self, device: u32, attribute: c_int) -> Result<c_int> {
        let (number, mut value) = (self.number(device)?, 0);
        // SAFETY: writes one integer; an attribute that the driver does not know is refused.
        let asked = self.functions.device_attribute.map(|f| unsafe { f(&raw mut value, attribute, number) });
        self.check("cuDeviceGetAttribute", asked)?;
        Ok(value)
    }

    /// Whether code on a device can read memory of another.
    pub(crate) fn can_access_peer(&self, device: u32, peer: u32) -> Result<bool> {
        let (number, other, mut can) = (self.number(device)?, self.number(peer)?, 0);
        // SAFETY: writes one integer.
        let asked = self.functions.can_access_peer.map(|f| unsafe { f(&raw mut can, number, other) });
        self.check("cuDeviceCanAccessPeer", asked)?;
        Ok(can != 0)
    }

    /// A text that a function writes and ends by NUL.
    fn text(&self, function: &str, write: impl FnOnce(&mut [u8]) -> Option<Code>) -> Result<String> {
        let mut text = [0; 256];
        let done = write(&mut text);
        self.check(function, done)?;
        let end = text.iter().position(|&byte| byte == 0).unwrap_or(text.len());
        Ok(String::from_utf8_lossy(text.get(..end).unwrap_or(&text)).into_owned())
    }

    /// Has the driver go on serving this thread while another captures a graph: allocations, which it refuses otherwise, and which
    /// would spoil that capture. Older drivers do not know it; then they refuse.
    pub(crate) fn stand_apart(&self) {
        if !IS_APART.replace(true)
            && let Some(exchange) = self.functions.capture_mode
        {
            let mut mode = CAPTURES_OF_THIS_THREAD;
            // SAFETY: exchanges one number for another, of this thread alone.
            unsafe { exchange(&raw mut mode) };
        }
    }

    /// Makes the device's primary context the current one of this thread.
    pub(crate) fn enter(&self, device: u32) -> Result<()> {
        let context = self.context(device)?;
        ENTERED.set(Some(device));
        // SAFETY: a context that was retained and is never released.
        self.check("cuCtxSetCurrent", self.functions.set_context.map(|f| unsafe { f(context.0) }))?;
        self.stand_apart();
        Ok(())
    }

    /// The device's primary context, retained when it is first asked for. Another context may be the current one afterwards.
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
        if PEERS.load(Relaxed) {
            others.into_iter().for_each(|other| self.make_peers(device, other));
        }
        Ok(context)
    }

    /// Lets two devices reach each other's memory. Without that, copies between them go through the host, and all is well.
    fn make_peers(&self, a: u32, b: u32) {
        for (from, to) in [(a, b), (b, a)] {
            match self.enable_peer(from, to) {
                Ok(true) => log::info!("device {from} reaches the memory of device {to}"),
                Ok(false) => {
                    log::info!("device {from} cannot reach the memory of device {to}: copies go through the host")
                }
                Err(e) => log::warn!("device {from} does not reach the memory of device {to}: {}", e.message()),
            }
        }
    }

    /// What the library calls a device.
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

    /// Asks the device's context whether it still works, and waits for what is under way there: what the driver said if it never will again.
    ///
    /// # Errors
    /// Whatever else it said, and where it has no such function.
    pub(crate) fn lost(&self, device: u32) -> Result<Option<String>> {
        // Without a context of ours so far, it is making one that fails.
        ENTERED.set(Some(device));
        let context = self.context(device)?;
        // SAFETY: a context that was retained and is never released; the second has no arguments.
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

    /// `done` is `None` where the library lacks the function.
    pub(crate) fn check(&self, function: &str, done: Option<Code>) -> Result<()> {
        match done {
            Some(0) => Ok(()),
            Some(code) => {
                let why = format!("{function} failed with {}", self.words(code));
                if failure::is_sticky(code)
                    && let Some(device) = ENTERED.get()
                {
                    failure::report(device, &why);
                }
                Err(Error::internal(why))
            }
            None => Err(Error::internal(format!("the CUDA driver has no {function}"))),
        }
    }

    /// Such as `CUDA_ERROR_INVALID_HANDLE (400): invalid resource handle`.
    fn words(&self, code: Code) -> String {
        let text = |function: Option<unsafe extern "C" fn(Code, *mut *const c_char) -> Code>| {
            let mut found = std::ptr::null();
            // SAFETY: writes one pointer, to a constant text or null.
            let done = function.map(|f| unsafe { f(code, &raw mut found) });
            // SAFETY: constant and ended by NUL, as documented of both functions.
            (done == Some(0) && !found.is_null()).then(|| unsafe { CStr::from_ptr(found) }.to_string_lossy())
        };
        match (text(self.functions.error_name), text(self.functions.error_text)) {
            (Some(name), Some(words)) => format!("{name} ({code}): {words}"),
            _ => format!("error {code}"),
        }
    }
}
