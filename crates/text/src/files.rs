//! Reading of the small files of a folder, with limits.

use serde::de::DeserializeOwned;
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::Path;
use tensor::{Error, Result};

/// Longest `tokenizer.json` in bytes. The largest that hubs have (260,000 tokens with their merges) take 35 MB.
pub const TOKENIZER_BYTES_MAX: u64 = 64 << 20;

/// Longest other file of JSON in bytes.
pub const CONFIG_BYTES_MAX: u64 = 4 << 20;

/// Bytes of a file below a folder; `None` if there is no such file.
pub(crate) fn read(folder: &Path, name: &str, bytes_max: u64) -> Result<Option<Vec<u8>>> {
    let path = folder.join(name);
    let failed = |error: std::io::Error| Error::environment(format!("cannot read {}: {error}", path.display()));
    // To open a pipe waits for its writer.
    if std::fs::metadata(&path).is_ok_and(|about| !about.is_file()) {
        return Err(Error::invalid(format!("{} is not a file", path.display())));
    }
    let file = match File::open(&path) {
        Ok(file) => file,
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => return Ok(None),
        Err(error) => return Err(failed(error)),
    };
    let about = file.metadata().map_err(failed)?;
    if !about.is_file() {
        return Err(Error::invalid(format!("{} is not a file", path.display())));
    }
    if about.len() > bytes_max {
        let (path, bytes) = (path.display(), about.len());
        return Err(Error::invalid(format!("{path} has {bytes} bytes, the limit for this file is {bytes_max}")));
    }
    let mut bytes = Vec::with_capacity(about.len() as usize);
    file.take(bytes_max).read_to_end(&mut bytes).map_err(failed)?;
    Ok(Some(bytes))
}

/// A file of JSON below a folder; `None` if there is no such file.
pub(crate) fn json<T: DeserializeOwned>(folder: &Path, name: &str) -> Result<Option<T>> {
    let Some(bytes) = read(folder, name, CONFIG_BYTES_MAX)? else { return Ok(None) };
    let parsed = serde_json::from_slice(&bytes);
    parsed.map(Some).map_err(|error| invalid(folder, name, error))
}

/// The error of a file that is none of its kind.
pub(crate) fn invalid(folder: &Path, name: &str, why: impl std::fmt::Display) -> Error {
    Error::invalid(format!("{}: {why}", folder.join(name).display()))
}
