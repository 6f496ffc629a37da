//! Device providers of the loaded library: chooses the library that finds them, opens the CUDA libraries that they
//! need, and adds them to the options of a session.
//!
//! The runtime searches a provider beside itself, and the loader searches its dependencies on paths that are usually
//! not set. Therefore the runtime is opened through a directory with links to both, and CUDA libraries are opened
//! first, by absolute path: the loader then resolves later references by name to the open library.

use super::Runtime;
use super::base::{RawOptions, c_string, check};
use crate::provider::{Appended, Known, Places, Provider, ProviderKind, Report, report};
use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::c_char;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::ptr::null_mut;
use tensor::{Error, Result};

/// The device providers and the library that finds them. Called before the runtime is opened and for each session on a
/// device; without a device and without a setting, nothing is searched.
#[expect(clippy::disallowed_methods, reason = "compared with the time of change of files")]
pub(crate) fn choose(
    library: Option<&Path>,
    settings: &[(String, String)],
) -> Result<(Option<PathBuf>, Option<Report>)> {
    let has = |key: &str| settings.iter().any(|(k, _)| k == key);
    if !["library", "provider-directory", "provider-library"].into_iter().any(has) && device::driver().is_err() {
        return Ok((library.map(Path::to_path_buf), None));
    }
    let places = Places::of(library.map(Path::to_path_buf), settings, |name| std::env::var_os(name));
    if let Some(named) = places.provider_directory.as_deref().filter(|d| !d.is_dir()) {
        return Err(Error::invalid(format!(
            "--backend-config=onnxruntime,provider-directory={}: there is no such directory",
            named.display()
        )));
    }
    static KNOWN: Mutex<Known> = Mutex::new(Known::new());
    let found = KNOWN.lock().of(places, std::time::SystemTime::now(), report);
    let linked = match (&found.library, &found.directory) {
        (Some(library), Some(directory)) if library.parent() != Some(directory) => Some(linked(library, directory)?),
        (library, _) => library.clone(),
    };
    Ok((linked, Some(found)))
}

/// Name prefix of link directories; the process id follows.
const LINKS: &str = "nereid_providers_";
/// Maximum number of attempts at a name, and of entries read to find directories of dead processes.
const TRIES_MAX: u32 = 64;
const SWEPT_MAX: usize = 4096;

/// A path of the library with the providers beside it: a directory of links, created once for each pair.
fn linked(library: &Path, providers: &Path) -> Result<PathBuf> {
    static MADE: Mutex<BTreeMap<(PathBuf, PathBuf), PathBuf>> = Mutex::new(BTreeMap::new());
    let mut made = MADE.lock();
    let pair = (library.to_path_buf(), providers.to_path_buf());
    if let Some(known) = made.get(&pair) {
        return Ok(known.clone());
    }
    let failed = |e: std::io::Error| {
        Error::environment(format!("links to the providers in '{}' cannot be made: {e}", providers.display()))
    };
    let to = std::env::temp_dir();
    sweep(&to);
    let directory = fresh(&to).map_err(failed)?;
    let name = library.file_name().unwrap_or("libonnxruntime.so".as_ref());
    let absolute = |path: &Path| path.canonicalize().map_err(failed);
    symlink(absolute(library)?, directory.join(name)).map_err(failed)?;
    for file in ["shared", "cuda", "tensorrt"].map(|n| format!("libonnxruntime_providers_{n}.so")) {
        let target = providers.join(&file);
        if target.is_file() {
            symlink(absolute(&target)?, directory.join(file)).map_err(failed)?;
        }
    }
    let path = directory.join(name);
    made.insert(pair, path.clone());
    Ok(path)
}

/// A directory with a generated model and the file that it refers to; removed on drop.
pub(crate) struct Wrapped(PathBuf);

impl Wrapped {
    /// Creates `model` and a link to `file` under these names.
    pub(crate) fn new(model: (&str, &[u8]), file: (&str, &Path)) -> Result<Self> {
        let failed = |e: std::io::Error| {
            Error::environment(format!("a directory for '{}' cannot be made: {e}", file.1.display()))
        };
        let parent = std::env::temp_dir();
        sweep(&parent);
        let made = Self(fresh(&parent).map_err(failed)?);
        std::fs::write(made.0.join(model.0), model.1).map_err(failed)?;
        let target = memory::beneath::usable(file.1).map_err(failed)?;
        symlink(target, made.0.join(file.0)).map_err(failed)?;
        Ok(made)
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Wrapped {
    fn drop(&mut self) {
        for name in [crate::plan::WRAPPER, crate::plan::PLAN_LINK] {
            let _ = std::fs::remove_file(self.0.join(name));
        }
        let _ = std::fs::remove_dir(&self.0);
    }
}

/// A new directory with access for this user only, so that no other user controls its contents.
fn fresh(parent: &Path) -> std::io::Result<PathBuf> {
    let mut made = Err(std::io::ErrorKind::AlreadyExists.into());
    for n in 0..TRIES_MAX {
        let path = parent.join(format!("{LINKS}{}_{n}", std::process::id()));
        made = std::fs::DirBuilder::new().mode(0o700).create(&path).map(|()| path);
        if made.as_ref().err().is_none_or(|e| e.kind() != std::io::ErrorKind::AlreadyExists) {
            break;
        }
    }
    made
}

/// Removes directories that dead processes of this user left behind.
fn sweep(parent: &Path) {
    let Ok(entries) = std::fs::read_dir(parent) else { return };
    let own = std::fs::metadata("/proc/self").map(|m| m.uid()).ok();
    for entry in entries.take(SWEPT_MAX).filter_map(std::result::Result::ok) {
        let name = entry.file_name();
        let process = name.to_str().and_then(|n| n.strip_prefix(LINKS)?.split('_').next()?.parse::<u32>().ok());
        let Some(process) = process else { continue };
        let is_own = entry.metadata().ok().filter(std::fs::Metadata::is_dir).map(|m| m.uid()) == own;
        if !is_own || process == std::process::id() || Path::new(&format!("/proc/{process}")).exists() {
            continue;
        }
        // Removes only links, not their targets.
        for link in
            std::fs::read_dir(entry.path()).into_iter().flatten().take(SWEPT_MAX).filter_map(std::result::Result::ok)
        {
            let _ = std::fs::remove_file(link.path());
        }
        let _ = std::fs::remove_dir(entry.path());
    }
}

/// Opens the dependencies of a provider, by path and in order. They stay open until the process ends.
///
/// # Errors
/// UNAVAILABLE, with the missing library or the loader's error.
pub(crate) fn open_libraries(provider: &Provider) -> Result<()> {
    static OPEN: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());
    if let Some(why) = provider.problems.first() {
        return Err(unusable(provider.kind, why));
    }
    // The driver's library is needed as well, and is not always on the loader's path.
    device::driver().map_err(|why| unusable(provider.kind, &format!("no GPU: {why}")))?;
    let mut open = OPEN.lock();
    for library in &provider.libraries {
        let Some(file) = library.file.as_ref().filter(|f| !open.contains(*f)) else { continue };
        // SAFETY: opening runs constructors of the operator's packages, which the loader would do for the provider,
        // too.
        match unsafe { Library::open(Some(file), RTLD_NOW | RTLD_LOCAL) } {
            Ok(opened) => {
                std::mem::forget(opened);
                open.insert(file.clone());
            }
            Err(e) => {
                let why = std::error::Error::source(&e).unwrap_or(&e).to_string();
                if !library.is_optional {
                    return Err(unusable(provider.kind, &why));
                }
                log::warn!("{} is not used: {why}", library.name);
            }
        }
    }
    Ok(())
}

/// The error of loading a model without its provider.
pub(crate) fn unusable(kind: ProviderKind, why: &str) -> Error {
    let name = match kind {
        ProviderKind::Cuda => "CUDA",
        ProviderKind::Tensorrt => "TensorRT",
    };
    Error::environment(format!(
        "ONNX Runtime's {name} provider cannot be used: {why}; 'nereid gpu' shows what this machine has and how to \
            install the rest"
    ))
}

impl Runtime {
    /// Appends a provider to the options of a session, and opens the provider's library.
    pub(super) fn append(&self, options: &RawOptions, provider: &Appended) -> Result<()> {
        let api = self.api;
        let mut texts = Vec::with_capacity(2 * provider.options.len());
        for (key, value) in &provider.options {
            texts.push(c_string(key)?);
            texts.push(c_string(value)?);
        }
        let keys: Vec<*const c_char> = texts.iter().step_by(2).map(|t| t.as_ptr()).collect();
        let values: Vec<*const c_char> = texts.iter().skip(1).step_by(2).map(|t| t.as_ptr()).collect();
        if let Some(plugin) = &provider.plugin {
            let appended = self.append_plugin(options, &plugin.library, plugin.device, (&keys, &values));
            return appended.map_err(|e| unusable(provider.kind, e.message()));
        }
        let raw = options.0.as_ptr();
        // SAFETY: valid out pointers; as many keys as values, NUL-terminated and copied; the provider's options are
        // released once on every path, and the session's options keep a copy.
        let appended = unsafe {
            match provider.kind {
                ProviderKind::Cuda => {
                    let mut made = null_mut();
                    call!(api.CreateCUDAProviderOptions(&raw mut made)).and_then(|()| {
                        let update = (api.UpdateCUDAProviderOptions)(made, keys.as_ptr(), values.as_ptr(), keys.len());
                        let done = check(api, update)
                            .and_then(|()| call!(api.SessionOptionsAppendExecutionProvider_CUDA_V2(raw, made)));
                        (api.ReleaseCUDAProviderOptions)(made);
                        done
                    })
                }
                ProviderKind::Tensorrt => {
                    let mut made = null_mut();
                    call!(api.CreateTensorRTProviderOptions(&raw mut made)).and_then(|()| {
                        let update =
                            (api.UpdateTensorRTProviderOptions)(made, keys.as_ptr(), values.as_ptr(), keys.len());
                        let done = check(api, update)
                            .and_then(|()| call!(api.SessionOptionsAppendExecutionProvider_TensorRT_V2(raw, made)));
                        (api.ReleaseTensorRTProviderOptions)(made);
                        done
                    })
                }
            }
        };
        appended.map_err(|e| unusable(provider.kind, e.message()))
    }
}
