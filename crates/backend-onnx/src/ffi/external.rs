//! Weights in files beside a model whose directory has no canonical path here (`memory::beneath`). ONNX Runtime makes
//! that path canonical before it opens such a file, so it is given the files' contents. It copies them, and the maps
//! are dropped when the session exists.

use super::base::{RawOptions, c_string, check};
use memory::beneath::{self, FileMap};
use ort::sys;
use std::ffi::{CString, c_char};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use tensor::Result;

/// First release with the function (`1.<minor>`), and its position in `OrtApi`.
const MINOR_MIN: u32 = 18;
const ADD_EXTERNAL_FILES: usize = 279;

/// Maximum number of files and directories beside a model.
const ENTRIES_MAX: usize = 10_000;

type AddFiles = unsafe extern "system" fn(
    *mut sys::OrtSessionOptions,
    *const *const c_char,
    *const *mut c_char,
    *const usize,
    usize,
) -> sys::OrtStatusPtr;

/// Files by their path relative to the model, which is how the model names them.
#[derive(Default)]
pub(super) struct ExternalFiles(Vec<(CString, FileMap)>);

impl ExternalFiles {
    /// Maps the files that ONNX Runtime does not find by itself.
    pub(super) fn of(model: &Path) -> Result<Self> {
        let mut files = Self::default();
        let Some(root) = model.parent().filter(|root| !beneath::has_canonical(root)) else { return Ok(files) };
        let mut directories = vec![PathBuf::new()];
        let mut left = ENTRIES_MAX;
        while let Some(directory) = directories.pop() {
            for entry in std::fs::read_dir(root.join(&directory)).into_iter().flatten().flatten().take(left) {
                left -= 1;
                let rest = directory.join(entry.file_name());
                let map = match beneath::open(root, &rest) {
                    Ok(file) if root.join(&rest) != model => FileMap::of(&file).ok().flatten(),
                    Ok(_) => None,
                    Err(e) => {
                        directories.extend((e.kind() == ErrorKind::IsADirectory).then(|| rest.clone()));
                        None
                    }
                };
                if let Some(map) = map {
                    files.0.push((c_string(&rest.to_string_lossy())?, map));
                }
            }
        }
        Ok(files)
    }

    /// Names the files in `options`, for one session that is created while they live.
    pub(super) fn add_to(&self, options: &RawOptions, api: &sys::OrtApi, minor: u32) -> Result<()> {
        if self.0.is_empty() || minor < MINOR_MIN {
            return Ok(());
        }
        let names: Vec<_> = self.0.iter().map(|(name, _)| name.as_ptr()).collect();
        let contents: Vec<_> = self.0.iter().map(|(_, map)| map.parts().0.as_ptr().cast()).collect();
        let sizes: Vec<_> = self.0.iter().map(|(_, map)| map.parts().1).collect();
        let table: *const *const () = std::ptr::from_ref(api).cast();
        // SAFETY: the table of this release has the function in this position, with this type. The lists have one
        // length, and the maps live until the session exists; the library only reads them.
        unsafe {
            let add: AddFiles = std::mem::transmute(*table.add(ADD_EXTERNAL_FILES));
            check(api, add(options.0.as_ptr(), names.as_ptr(), contents.as_ptr(), sizes.as_ptr(), names.len()))
        }
    }
}
