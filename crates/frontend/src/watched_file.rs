//! Files with keys and certificates, which are read again when they change.

use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::SystemTime;
use tensor::{Error, Result};

/// Modification time, length and inode of a file: a new file may have the time of the old one. `None` without a file.
pub(crate) type Stamp = Option<(SystemTime, u64, u64)>;

/// Follows links: Kubernetes replaces files by changing a link.
pub(crate) fn stamp(path: &Path) -> Stamp {
    let found = fs::metadata(path).ok()?;
    Some((found.modified().ok()?, found.len(), found.ino()))
}

/// Reads a regular file of at most `bytes_max`. A pipe is rejected, because reading it could block the start.
///
/// # Errors
/// INVALID_ARG with the path.
pub(crate) fn read(path: &Path, bytes_max: u64) -> Result<Vec<u8>> {
    let failed = |e: std::io::Error| Error::invalid(format!("{} can not be read: {e}", path.display()));
    let found = fs::metadata(path).map_err(failed)?;
    if !found.is_file() || found.len() > bytes_max {
        return Err(Error::invalid(format!("{} is not a file of at most {bytes_max} bytes", path.display())));
    }
    let mut text = Vec::new();
    // The file may grow meanwhile.
    File::open(path).and_then(|file| file.take(bytes_max + 1).read_to_end(&mut text)).map_err(failed)?;
    Ok(text)
}
