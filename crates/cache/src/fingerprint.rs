//! Fingerprints of versions for shared caches: a hash of the configuration and of the names and bytes of all files. For
//! an ensemble, which has no files, the models of its steps are hashed.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// Most files of a version.
pub const FINGERPRINT_FILES_MAX: usize = 16_384;
/// Deepest nesting of directories.
const DEPTH_MAX: usize = 32;
/// Bytes per read.
const STEP: usize = 256 << 10;

/// A hash of everything that determines the responses of a version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fingerprint([u8; 32]);

impl Fingerprint {
    /// Hashes texts in this order.
    pub fn of_texts(texts: &[&[u8]]) -> Self {
        let mut hash = blake3::Hasher::new();
        texts.iter().for_each(|t| text(&mut hash, t));
        Self(hash.finalize().into())
    }

    /// Hashes `texts`, and paths and contents of the regular files in a directory, which need not exist. Blocks while
    /// it reads all of them, at some 1 GB/s.
    ///
    /// # Errors
    /// I/O errors, and more than `FINGERPRINT_FILES_MAX` files.
    pub fn of_files(directory: &Path, texts: &[&[u8]]) -> io::Result<Self> {
        let mut files = Vec::new();
        collect(directory, Path::new(""), 0, &mut files)?;
        files.sort_unstable();
        let mut hash = blake3::Hasher::new();
        hash.update(&(texts.len() as u64).to_le_bytes());
        texts.iter().for_each(|t| text(&mut hash, t));
        let mut buffer = vec![0; STEP];
        for path in files {
            text(&mut hash, path.as_os_str().as_encoded_bytes());
            let mut file = File::open(directory.join(&path))?;
            let mut bytes = blake3::Hasher::new();
            loop {
                match file.read(&mut buffer)? {
                    0 => break,
                    n => _ = bytes.update(buffer.get(..n).unwrap_or_default()),
                }
            }
            hash.update(bytes.finalize().as_bytes());
        }
        Ok(Self(hash.finalize().into()))
    }

    /// The bytes of the hash.
    pub fn bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

/// Hashes a length and the bytes, so that a sequence of texts is unique.
pub(crate) fn text(hash: &mut blake3::Hasher, bytes: &[u8]) {
    hash.update(&(bytes.len() as u64).to_le_bytes());
    hash.update(bytes);
}

fn collect(root: &Path, inside: &Path, depth: usize, files: &mut Vec<PathBuf>) -> io::Result<()> {
    let entries = match fs::read_dir(root.join(inside)) {
        Err(e) if e.kind() == io::ErrorKind::NotFound && depth == 0 => return Ok(()),
        entries => entries?,
    };
    for entry in entries {
        let path = inside.join(entry?.file_name());
        // Follows links, as loading does.
        let kind = fs::metadata(root.join(&path))?;
        if kind.is_dir() && depth < DEPTH_MAX {
            collect(root, &path, depth + 1, files)?;
        } else if kind.is_file() {
            files.push(path);
        }
        if files.len() > FINGERPRINT_FILES_MAX {
            return Err(io::Error::other(format!("more than {FINGERPRINT_FILES_MAX} files")));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s39_a_changed_moved_or_added_file_changes_the_fingerprint() {
        let directory = std::env::temp_dir().join(format!("nereid-fingerprint-{}", std::process::id()));
        fs::create_dir_all(directory.join("data")).expect("a directory");
        let of = || Fingerprint::of_files(&directory, &[b"config"]).expect("files");
        let write = |path: &str, text: &str| fs::write(directory.join(path), text).expect("written");
        let mut seen = vec![of()];
        let mut check = |step: &str| {
            let now = of();
            assert!(!seen.contains(&now), "{step}");
            assert_eq!(now, of(), "{step}, again");
            seen.push(now);
        };
        write("model.onnx", "one");
        check("a file");
        write("model.onnx", "two");
        check("other bytes");
        write("data/weights", "");
        check("a file below");
        fs::rename(directory.join("data/weights"), directory.join("weights")).expect("renamed");
        check("elsewhere");
        assert_ne!(of(), Fingerprint::of_files(&directory, &[b"other"]).expect("files"));
        fs::remove_dir_all(&directory).expect("removed");
        assert_eq!(of(), seen[0], "nothing there is as no files");
    }
}
