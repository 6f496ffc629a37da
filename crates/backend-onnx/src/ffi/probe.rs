//! Opens the shared library before `ort` does, and says why it cannot be used.
//!
//! `ort` remembers a failed attempt as a success and panics at the next one, and it has not the loader's words. So it is only
//! given libraries that were found usable here.

use ort::sys;
use std::ffi::CStr;
use std::path::Path;

/// Oldest release whose functions we call: `1.<minor>`.
const MINOR_MIN: u32 = ort::MINOR_VERSION;

/// Its release: `1.<minor>`.
///
/// # Errors
/// The loader's words, or what is missing in the library.
pub(super) fn probe(path: &Path) -> Result<u32, String> {
    // SAFETY: opening runs the library's constructors, as it does for `ort` right afterwards. The operator chose the file.
    let library = unsafe { libloading::Library::new(path) }
        .map_err(|e| std::error::Error::source(&e).map_or_else(|| e.to_string(), ToString::to_string))?;
    let usable = check(&library);
    if usable.is_ok() {
        // Stays open: `ort` opens it again, and closing it in between would undo and repeat all of the work.
        std::mem::forget(library);
    }
    usable
}

fn check(library: &libloading::Library) -> Result<u32, String> {
    // SAFETY: the function's name and type are ONNX Runtime's contract. What it returns is checked before it is used, lives as
    // long as the library, which is borrowed here, and its functions are called as the contract says.
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
