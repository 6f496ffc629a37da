//! The device that a session runs on.

use super::base::{RawMemoryInfo, non_null};
use ort::sys;
use std::ptr::null_mut;
use tensor::{Error, Result};

pub(super) struct DeviceBinding {
    pub(super) device: u32,
    pub(super) memory: RawMemoryInfo,
}

impl DeviceBinding {
    pub(super) fn new(api: &'static sys::OrtApi, device: u32) -> Result<Self> {
        use sys::{OrtAllocatorType, OrtMemType};
        let mut memory = null_mut();
        let ordinal = i32::try_from(device).map_err(|_| Error::invalid(format!("there is no device {device}")))?;
        // SAFETY: a NUL-terminated name that is copied, and a valid out pointer.
        unsafe {
            call!(api.CreateMemoryInfo(
                c"Cuda".as_ptr(),
                OrtAllocatorType::OrtDeviceAllocator,
                ordinal,
                OrtMemType::OrtMemTypeDefault,
                &raw mut memory,
            ))?;
        }
        Ok(Self { device, memory: RawMemoryInfo(non_null(memory)?, api) })
    }
}

// SAFETY: an immutable description of memory; any thread may read and release it.
unsafe impl Send for DeviceBinding {}
// SAFETY: as above.
unsafe impl Sync for DeviceBinding {}
