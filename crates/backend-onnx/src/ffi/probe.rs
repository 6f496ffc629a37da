//! Opens the shared library before `ort` does, to report why it cannot be used.
//!
//! `ort` remembers a failed attempt as a success and panics on the next one, and it drops the loader's message. So it
//! is given only libraries that were usable here.

use ort::sys;
use std::ffi::CStr;
use std::path::Path;

/// Oldest release that has all functions we call: `1.<minor>`.
const MINOR_MIN: u32 = ort::MINOR_VERSION;

/// Returns the minor version of its release: `1.<minor>`.
///
/// # Errors
/// The loader's message, or what the library lacks.
pub(super) fn probe(path: &Path) -> Result<u32, String> {
    // SAFETY: opening runs the library's constructors, as `ort` does right afterwards. The operator chose the file.
    let library = unsafe { libloading::Library::new(path) }
        .map_err(|e| std::error::Error::source(&e).map_or_else(|| e.to_string(), ToString::to_string))?;
    let usable = check(&library);
    if usable.is_ok() {
        // Stays open, because `ort` opens it again; closing it in between would repeat all of the work.
        std::mem::forget(library);
    }
    usable
}

fn check(library: &libloading::Library) -> Result<u32, String> {
    // SAFETY: the function's name and type are ONNX Runtime's contract. The result is checked before use, lives as long
    // as the library, which is borrowed here, and its functions are called as the contract requires.
    unsafe {
        let base = library
            .get::<unsafe extern "C" fn() -> *const sys::OrtApiBase>(b"OrtGetApiBase")
            .map_err(|_| "it is not ONNX Runtime: it has no function 'OrtGetApiBase'".to_owned())?;
        let base = base();
        if base.is_null() {
            return Err("it offers no functions: 'OrtGetApiBase' returned nothing".to_owned());
        }
        let version = CStr::from_ptr(((*base).GetVersionString)()).to_string_lossy();
        let minor = version.split('.').nth(1).and_then(|n| n.parse::<u32>().ok()).unwrap_or(0);
        if minor < MINOR_MIN || ((*base).GetApi)(sys::ORT_API_VERSION).is_null() {
            return Err(format!("it is version {version}: at least 1.{MINOR_MIN} is needed"));
        }
        Ok(minor)
    }
}
