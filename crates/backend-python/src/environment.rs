//! Python environments named by a model (`EXECUTION_ENV_PATH`, B-PYR-06), and those of backends written in Python.
//!
//! A directory is used in place. An archive (`conda-pack`, `venv-pack`) is unpacked once per canonical path and
//! modification time into a directory that only this user can enter, and stays until the server ends because processes
//! use it. Variables are set as its `activate` would set them; that script is not run.

use crate::child::wait_at_most;
use crate::extract::{self, ArchiveError, LIMITS};
use crate::search::{Variables, value};
use memory::beneath;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::ffi::OsString;
use std::fs::{self, DirBuilder, File};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant, SystemTime};
use tensor::{Error, Result};

/// Placeholder for the model's directory in the path of an environment.
const MODEL_DIRECTORY: &str = "$$TRITON_MODEL_DIRECTORY";
/// Unpacked archives; each is a copy on disk.
const UNPACKED_MAX: usize = 64;
/// Time limit of `conda-unpack`, which rewrites some thousand files.
const CONDA_UNPACK_TIMEOUT: Duration = Duration::from_secs(300);

/// A Python environment on disk: `bin/python`, `bin/activate`, `lib`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Environment {
    root: PathBuf,
}

/// Allowed locations of an environment.
pub struct Allowed<'a> {
    /// The model's own directory.
    pub model_directory: &'a Path,
    /// Repositories and further roots; `None` = anywhere, as no models are loaded over the network.
    pub roots: Option<Vec<&'a Path>>,
}

/// An archive, locked while it is unpacked.
type Unpacked = Arc<Mutex<Option<Environment>>>;

/// Unpacked archives.
pub struct Environments {
    /// Prefix of this process's directories, followed by a number.
    prefix: PathBuf,
    count: AtomicU32,
    unpacked: Mutex<HashMap<(PathBuf, SystemTime), Unpacked>>,
}

impl Environments {
    /// Unpacks into directories `<prefix><number>`.
    pub fn new(prefix: PathBuf) -> Self {
        Self { prefix, count: AtomicU32::new(0), unpacked: Mutex::default() }
    }

    /// Returns the environment at a path; `None` for an empty path. Blocks while an archive is unpacked, once for all.
    ///
    /// # Errors
    /// INTERNAL with Triton's texts, or INVALID_ARG for a location that is not allowed.
    pub fn open(&self, path: &str, allowed: &Allowed<'_>) -> Result<Option<Environment>> {
        if path.is_empty() {
            return Ok(None);
        }
        let path = path.replace(MODEL_DIRECTORY, &allowed.model_directory.to_string_lossy());
        let real = beneath::usable(Path::new(&path))
            .map_err(|_| Error::internal(format!("Failed to get the canonical path for {path}.")))?;
        allowed.check(&path)?;
        let environment = if real.is_dir() { Environment { root: real } } else { self.unpack(&real)? };
        let activate = environment.root.join("bin/activate");
        if !activate.is_file() {
            return Err(Error::internal(format!(
                "Path {} does not exist. The Python environment should contain an 'activate' script.",
                activate.display()
            )));
        }
        Ok(Some(environment))
    }

    fn unpack(&self, archive: &Path) -> Result<Environment> {
        // Triton's text for a file that is not an archive.
        let unreadable = || Error::internal("archive_read_open_filename() failed.");
        let changed = fs::metadata(archive).and_then(|m| m.modified()).map_err(|_| unreadable())?;
        let one = {
            let mut unpacked = self.unpacked.lock();
            let key = (archive.to_path_buf(), changed);
            if unpacked.len() >= UNPACKED_MAX && !unpacked.contains_key(&key) {
                return Err(Error::new(
                    tensor::Code::ResourceExhausted,
                    format!("{UNPACKED_MAX} archives of Python environments are unpacked already"),
                ));
            }
            unpacked.entry(key).or_default().clone()
        };
        let mut unpacked = one.lock();
        if let Some(environment) = &*unpacked {
            return Ok(environment.clone());
        }
        let environment = self.unpack_to_new(archive, unreadable);
        if environment.is_err() {
            drop(unpacked);
            self.unpacked.lock().retain(|_, known| !Arc::ptr_eq(known, &one) || Arc::strong_count(known) > 2);
            return environment;
        }
        unpacked.clone_from(&environment.as_ref().ok().cloned());
        environment
    }

    fn unpack_to_new(&self, archive: &Path, unreadable: impl Fn() -> Error) -> Result<Environment> {
        let file = File::open(archive).map_err(|_| unreadable())?;
        let root = self.new_directory()?;
        let begin = Instant::now();
        extract::extract(std::io::BufReader::new(file), &root, LIMITS).map_err(|refused| {
            let _ = fs::remove_dir_all(&root);
            match refused {
                ArchiveError::Unreadable => unreadable(),
                ArchiveError::Format(format) => {
                    let (name, command) = format.advice(&archive.display().to_string());
                    Error::invalid(format!(
                        "the Python environment {} is rejected: it is {name}, and only tar.gz and tar are read; \
                         {command} makes one",
                        archive.display()
                    ))
                }
                ArchiveError::InvalidEntry(why) => {
                    Error::invalid(format!("the Python environment {} is rejected: {why}", archive.display()))
                }
                ArchiveError::Io(e) => {
                    Error::internal(format!("the Python environment {} cannot be unpacked: {e}", archive.display()))
                }
            }
        })?;
        log::info!("unpacked the Python environment {} in {:.1} s", archive.display(), begin.elapsed().as_secs_f64());
        let environment = Environment { root };
        environment.conda_unpack();
        Ok(environment)
    }

    fn new_directory(&self) -> Result<PathBuf> {
        loop {
            let mut name = self.prefix.clone().into_os_string();
            name.push(self.count.fetch_add(1, Ordering::Relaxed).to_string());
            let root = PathBuf::from(name);
            match DirBuilder::new().mode(0o700).create(&root) {
                Ok(()) => return Ok(root),
                // Any user may create names there; only a new directory is used.
                Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => {}
                Err(e) => {
                    return Err(Error::internal(format!(
                        "Failed to create environment directory for '{}': {e}",
                        root.display()
                    )));
                }
            }
        }
    }
}

impl Drop for Environments {
    fn drop(&mut self) {
        for one in self.unpacked.lock().values() {
            if let Some(environment) = &*one.lock() {
                let _ = fs::remove_dir_all(&environment.root);
            }
        }
    }
}

impl Allowed<'_> {
    fn check(&self, path: &str) -> Result<()> {
        let Some(roots) = &self.roots else { return Ok(()) };
        let within = |root: &Path| beneath::contains(root, Path::new(path)).is_ok();
        if within(self.model_directory) || roots.iter().any(|root| within(root)) {
            return Ok(());
        }
        Err(Error::invalid(format!(
            "EXECUTION_ENV_PATH {path} is neither in the model repository nor below a root that \
             --backend-config=python,environment-root=PATH names, and models of this server can be loaded over the \
             network"
        )))
    }
}

impl Environment {
    /// Path of the interpreter.
    pub fn python(&self) -> PathBuf {
        let python = self.root.join("bin/python");
        if python.exists() { python } else { self.root.join("bin/python3") }
    }

    /// The environment variables of a process that runs in it, derived from the server's.
    pub(crate) fn variables(&self, server: &Variables) -> Variables {
        let in_front = |name: &str, directory: &str| {
            let mut paths = self.root.join(directory).into_os_string();
            if let Some(rest) = value(server, name) {
                paths.push(":");
                paths.push(rest);
            }
            (OsString::from(name), paths)
        };
        let replaced = ["PATH", "LD_LIBRARY_PATH", "VIRTUAL_ENV", "PYTHONHOME"];
        let mut variables: Variables =
            server.iter().filter(|(name, _)| !replaced.iter().any(|r| name == r)).cloned().collect();
        variables.push(("VIRTUAL_ENV".into(), self.root.clone().into_os_string()));
        variables.push(in_front("PATH", "bin"));
        variables.push(in_front("LD_LIBRARY_PATH", "lib"));
        variables
    }

    /// Runs conda-pack's own program, which corrects paths in scripts. Failures are logged: most packages still work.
    fn conda_unpack(&self) {
        let program = self.root.join("bin/conda-unpack");
        if !program.is_file() {
            return;
        }
        let server: Variables = std::env::vars_os().collect();
        let child = Command::new(self.python())
            .arg(&program)
            .env_clear()
            .envs(self.variables(&server))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        let failed = |why: &dyn std::fmt::Display| log::warn!("conda-unpack of {} failed: {why}", self.root.display());
        let mut child = match child {
            Ok(child) => child,
            Err(e) => return failed(&e),
        };
        match wait_at_most(&mut child, CONDA_UNPACK_TIMEOUT) {
            Ok(Some(status)) if status.success() => {}
            Ok(Some(status)) => failed(&status),
            Ok(None) => failed(&format_args!("no end after {} s", CONDA_UNPACK_TIMEOUT.as_secs())),
            Err(e) => failed(&e),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn b_pyr_06_variables_are_set_as_activate_would() {
        let environment = Environment { root: "/e".into() };
        let server = [("PATH", "/bin"), ("PYTHONHOME", "/p"), ("VIRTUAL_ENV", "/v"), ("HOME", "/h")];
        let server: Variables = server.iter().map(|(n, v)| ((*n).into(), (*v).into())).collect();
        let mut made = environment.variables(&server);
        made.sort();
        let expected = [("HOME", "/h"), ("LD_LIBRARY_PATH", "/e/lib"), ("PATH", "/e/bin:/bin"), ("VIRTUAL_ENV", "/e")];
        let expected: Variables = expected.iter().map(|(n, v)| ((*n).into(), (*v).into())).collect();
        assert_eq!(made, expected);
    }
}
