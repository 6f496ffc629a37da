//! Directory of the engines and timings that TensorRT caches between starts: outside of all model repositories, by
//! device, release and model, and limited in size. Building an engine takes minutes; reading one takes a second.

use std::ffi::OsString;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;
use tensor::{Error, Result};

/// Maximum bytes of all caches together; the oldest files beyond it are removed.
pub(crate) const CACHE_BYTES_MAX: u64 = 16 << 30;
/// Maximum number of cached files; the oldest beyond it are removed.
pub(crate) const CACHE_FILES_MAX: usize = 10_000;

/// Root of all caches: `--backend-config=onnxruntime,cache-directory=…`, or the service's or user's cache directory.
pub(crate) fn root(settings: &[(String, String)], variable: impl Fn(&str) -> Option<OsString>) -> PathBuf {
    let of = |name: &str| variable(name).filter(|v| !v.is_empty()).map(PathBuf::from).filter(|p| p.is_absolute());
    let named = settings.iter().rev().find(|(k, _)| k == "cache-directory").map(|(_, v)| PathBuf::from(v));
    named
        // Set by systemd for a service.
        .or_else(|| of("CACHE_DIRECTORY"))
        .or_else(|| of("XDG_CACHE_HOME").map(|d| d.join("nereid")))
        .or_else(|| of("HOME").map(|d| d.join(".cache/nereid")))
        .unwrap_or_else(|| std::env::temp_dir().join("nereid-cache"))
        .join("tensorrt")
}

/// Identifies a cache: engines cannot be shared when any of these differ.
pub(crate) struct Of<'a> {
    pub(crate) model: &'a str,
    pub(crate) version: i64,
    /// The model's file; a changed file has a cache of its own.
    pub(crate) file: &'a Path,
    /// Name and compute capability of the device.
    pub(crate) device: String,
    pub(crate) release: &'a str,
}

/// The cache directory of a model on a device, which is created if necessary.
///
/// # Errors
/// The directory is in the model repository, or cannot be created.
pub(crate) fn directory(root: &Path, of: &Of<'_>, model_directory: &Path) -> Result<PathBuf> {
    let repository = model_directory.parent().unwrap_or(model_directory);
    if root.starts_with(repository) {
        return Err(Error::invalid(format!(
            "the cache directory '{}' is in the model repository '{}': its files would look like changes of a model",
            root.display(),
            repository.display()
        )));
    }
    let path = root.join(name(of));
    let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&path);
    made.map_err(|e| Error::environment(format!("the cache directory '{}' cannot be made: {e}", path.display())))?;
    Ok(path)
}

/// A readable prefix and a hash of all parts of `of`.
fn name(of: &Of<'_>) -> String {
    let stamp = std::fs::metadata(of.file).ok().map(|m| (m.len(), m.modified().ok()));
    let mut hasher = DefaultHasher::new();
    (of.model, of.version, of.file, stamp, &of.device, of.release).hash(&mut hasher);
    let plain: String =
        of.model.chars().map(|c| if c.is_ascii_alphanumeric() || c == '-' { c } else { '_' }).take(64).collect();
    format!("{plain}-{}-{:016x}", of.version, hasher.finish())
}

/// Removes the least recently written cache files until the limits are met. Files that cannot be removed stay.
pub(crate) fn prune(root: &Path) {
    let (mut files, mut left) = (Vec::new(), vec![root.to_path_buf()]);
    while let Some(directory) = left.pop() {
        for entry in std::fs::read_dir(&directory).into_iter().flatten().take(CACHE_FILES_MAX * 2).flatten() {
            match entry.metadata() {
                Ok(meta) if meta.is_dir() && directory == root => left.push(entry.path()),
                Ok(meta) if meta.is_file() => {
                    files.push((meta.modified().unwrap_or(SystemTime::UNIX_EPOCH), meta.len(), entry.path()));
                }
                _ => {}
            }
        }
    }
    for file in beyond(files, CACHE_BYTES_MAX, CACHE_FILES_MAX) {
        let _ = std::fs::remove_file(&file);
        if let Some(directory) = file.parent() {
            // Fails unless it is empty now.
            let _ = std::fs::remove_dir(directory);
        }
    }
}

/// The oldest files (last written, bytes, path) that exceed the limits.
fn beyond<T>(mut files: Vec<(SystemTime, u64, T)>, bytes_max: u64, files_max: usize) -> Vec<T> {
    files.sort_unstable_by_key(|file| std::cmp::Reverse(file.0));
    let (mut bytes, mut gone) = (0u64, Vec::new());
    for (at, (_, size, file)) in files.into_iter().enumerate() {
        bytes = bytes.saturating_add(size);
        if bytes > bytes_max || at >= files_max {
            gone.push(file);
        }
    }
    gone
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn device_caches_are_in_the_cache_directory_of_the_user() {
        let check = |settings: &[(&str, &str)], variables: &[(&str, &str)], expected: &str| {
            let settings: Vec<_> = settings.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
            let of = |name: &str| variables.iter().find(|(k, _)| *k == name).map(|(_, v)| OsString::from(*v));
            assert_eq!(root(&settings, of), Path::new(expected), "{settings:?} {variables:?}");
        };
        let all = [("CACHE_DIRECTORY", "/var/cache/nereid"), ("XDG_CACHE_HOME", "/x"), ("HOME", "/home/me")];
        check(&[("cache-directory", "/data")], &all, "/data/tensorrt");
        check(&[], &all, "/var/cache/nereid/tensorrt");
        check(&[], &all[1..], "/x/nereid/tensorrt");
        check(&[], &all[2..], "/home/me/.cache/nereid/tensorrt");
        check(&[], &[("XDG_CACHE_HOME", "relative"), ("HOME", "/h")], "/h/.cache/nereid/tensorrt");
    }

    #[test]
    fn device_caches_differ_by_device_and_release_and_are_never_in_a_repository() {
        let of = |device: &str, release: &'static str| Of {
            model: "a/b",
            version: 3,
            file: Path::new("/nowhere"),
            device: device.into(),
            release,
        };
        let names = [name(&of("H200 9.0", "1.30.0")), name(&of("H100 9.0", "1.30.0")), name(&of("H200 9.0", "1.31.1"))];
        assert!(names[0].starts_with("a_b-3-") && names[0] == name(&of("H200 9.0", "1.30.0")));
        assert!(names[0] != names[1] && names[0] != names[2]);
        let refused = directory(Path::new("/models/cache"), &of("", ""), Path::new("/models/a")).expect_err("inside");
        assert!(refused.message().contains("is in the model repository '/models'"), "{refused}");
    }

    #[test]
    fn device_caches_lose_their_oldest_files_first() {
        let at = |seconds: u64| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
        let files = || vec![(at(3), 40, "c"), (at(1), 40, "a"), (at(4), 40, "d"), (at(2), 40, "b")];
        assert_eq!(beyond(files(), 160, 10), [""; 0]);
        assert_eq!(beyond(files(), 100, 10), ["b", "a"]);
        assert_eq!(beyond(files(), 1000, 3), ["a"]);
    }
}
