//! Reads tensor data named by a configuration: warmup samples and initial states.
//!
//! A configuration may come over the network, and so may the client that receives the error text. So only regular files
//! inside the model's own directory are read, and no more of them than the tensor needs.

use memory::beneath;
use std::io::{ErrorKind, Read};
use std::path::{Component, Path, PathBuf};
use tensor::{Error, Result};

/// Number of bytes to read.
#[derive(Clone, Copy)]
pub(crate) enum Want {
    /// The first bytes of the file. A shorter file is returned whole, and the caller reports the difference.
    AtMost(usize),
    /// The whole file, if it is not larger.
    All { bytes_max: u64 },
}

pub(crate) fn path(model_directory: &Path, directory: &str, name: &str) -> PathBuf {
    model_directory.join(directory).join(name)
}

/// Reads the file `name` in `directory` (such as `warmup`) of the model.
///
/// Follows links inside the model's directory, and links to that directory: in Kubernetes both are usual.
///
/// # Errors
/// INVALID_ARG if it is not a regular file of the model or too long, INTERNAL if it cannot be read.
pub(crate) fn read(model_directory: &Path, directory: &str, name: &str, want: Want) -> Result<Vec<u8>> {
    if name.is_empty() || Path::new(name).components().any(|c| !matches!(c, Component::Normal(_) | Component::CurDir)) {
        return Err(Error::invalid(format!(
            "data file '{name}' must stay inside the directory '{directory}' of the model: name it without '..' and \
             without a leading slash"
        )));
    }
    let path = path(model_directory, directory, name);
    let unreadable = |e: &std::io::Error| {
        Error::internal(format!("failed to open text file for read {}: {}", path.display(), Plain(e)))
    };
    let file = beneath::open(model_directory, &path).map_err(|e| match e.kind() {
        ErrorKind::CrossesDevices => Error::invalid(format!(
            "data file '{}' is a link to a place outside the model's directory '{}'",
            path.display(),
            model_directory.display()
        )),
        ErrorKind::IsADirectory | ErrorKind::InvalidInput => {
            Error::invalid(format!("data file '{}' is not a regular file", path.display()))
        }
        _ => unreadable(&e),
    })?;
    let found = file.metadata().map_err(|e| unreadable(&e))?;
    let bytes = match want {
        Want::AtMost(bytes) => found.len().min(bytes as u64),
        Want::All { bytes_max } if found.len() > bytes_max => {
            return Err(Error::invalid(format!(
                "data file '{}' has {} bytes: at most {bytes_max} are supported",
                path.display(),
                found.len()
            )));
        }
        Want::All { .. } => found.len(),
    };
    let mut data = Vec::new();
    reserve(&mut data, bytes as usize, || format!("data file '{}'", path.display()))?;
    // If the file grows meanwhile, only the measured length is read.
    file.take(bytes).read_to_end(&mut data).map_err(|e| unreadable(&e))?;
    Ok(data)
}

/// Reserves exactly `bytes` bytes for `what`.
///
/// # Errors
/// UNAVAILABLE if the system has no memory.
pub(crate) fn reserve(data: &mut Vec<u8>, bytes: usize, what: impl FnOnce() -> String) -> Result<()> {
    data.try_reserve_exact(bytes)
        .map_err(|_| Error::environment(format!("not enough memory for {bytes} bytes of {}", what())))
}

/// An error of the system without the number that Rust appends, because Triton's text has none.
struct Plain<'a>(&'a std::io::Error);

impl std::fmt::Display for Plain<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let text = self.0.to_string();
        f.write_str(text.split(" (os error").next().unwrap_or(&text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::os::unix::fs::symlink;
    use tensor::Code;

    /// `<root>/repo/m/warmup/ok` has 8 bytes; `<root>/secret` is outside the model.
    struct Root(PathBuf);

    impl Root {
        fn new(name: &str) -> Self {
            let root = std::env::temp_dir().join(format!("nereid_data_file_{}_{name}", std::process::id()));
            std::fs::create_dir_all(root.join("repo/m/warmup/deep")).unwrap();
            std::fs::write(root.join("repo/m/warmup/ok"), [7; 8]).unwrap();
            std::fs::write(root.join("secret"), "secret").unwrap();
            Self(root)
        }
        fn model(&self) -> PathBuf {
            self.0.join("repo/m")
        }
        fn read(&self, name: &str) -> Result<Vec<u8>> {
            read(&self.model(), "warmup", name, Want::AtMost(1000))
        }
        fn refused(&self, name: &str, code: Code, text: &str) {
            let error = self.read(name).expect_err(name);
            assert!(error.code() == code && error.message().contains(text), "{name}: {error:?}");
        }
    }

    impl Drop for Root {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn only_files_of_the_model_are_read() {
        let root = Root::new("escape");
        assert_eq!(root.read("ok"), Ok(vec![7; 8]));
        assert_eq!(root.read("./deep/../ok").unwrap_err().code(), Code::InvalidArg, "even if it would stay inside");
        root.refused("../../../etc/passwd", Code::InvalidArg, "must stay inside");
        root.refused("/etc/passwd", Code::InvalidArg, "must stay inside");
        root.refused("", Code::InvalidArg, "must stay inside");
        root.refused("none", Code::Internal, "warmup/none: No such file or directory");
        root.refused("deep", Code::InvalidArg, "is not a regular file");
        symlink(root.0.join("secret"), root.model().join("warmup/link")).unwrap();
        root.refused("link", Code::InvalidArg, "is a link to a place outside the model's directory");
        symlink("/dev/zero", root.model().join("warmup/zero")).unwrap();
        root.refused("zero", Code::InvalidArg, "outside");
        symlink(&root.0, root.model().join("warmup/up")).unwrap();
        root.refused("up/secret", Code::InvalidArg, "outside");
    }

    #[test]
    fn links_inside_the_model_and_to_the_model_are_followed() {
        let root = Root::new("links");
        // As Kubernetes mounts a volume: file -> ..data/file, ..data -> ..2026.
        let warmup = root.model().join("warmup");
        std::fs::create_dir(warmup.join("..2026")).unwrap();
        std::fs::write(warmup.join("..2026/sample"), [1, 2]).unwrap();
        symlink("..2026", warmup.join("..data")).unwrap();
        symlink("..data/sample", warmup.join("sample")).unwrap();
        assert_eq!(root.read("sample"), Ok(vec![1, 2]));
        // The model itself may be a link out of the repository.
        symlink(root.model(), root.0.join("alias")).unwrap();
        assert_eq!(read(&root.0.join("alias"), "warmup", "sample", Want::AtMost(1)), Ok(vec![1]));
    }

    #[test]
    fn a_fifo_is_rejected_and_a_file_is_measured_before_it_is_read() {
        let root = Root::new("fifo");
        let fifo = root.model().join("warmup/fifo");
        assert!(std::process::Command::new("mkfifo").arg(&fifo).status().unwrap().success());
        root.refused("fifo", Code::InvalidArg, "is not a regular file");

        // A sparse file of a terabyte: at most the requested bytes are read.
        let large = File::create(root.model().join("warmup/large")).unwrap();
        large.set_len(1 << 40).unwrap();
        assert_eq!(root.read("large").map(|d| d.len()), Ok(1000));
        let error = read(&root.model(), "warmup", "large", Want::All { bytes_max: 64 }).unwrap_err();
        assert!(error.message().ends_with("has 1099511627776 bytes: at most 64 are supported"), "{error:?}");
    }
}
