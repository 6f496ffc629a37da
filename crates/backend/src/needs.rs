//! Estimates the memory that a model needs before it is loaded.

use std::path::Path;

/// Maximum number of directory entries that are read for one version.
const FILES_MAX: usize = 100_000;

/// Bytes of the regular files below a directory, links not followed: an estimate of the memory for the weights.
pub fn file_bytes(directory: &Path) -> u64 {
    let (mut bytes, mut seen, mut left) = (0u64, 0, vec![directory.to_owned()]);
    while let Some(directory) = left.pop() {
        let Ok(entries) = std::fs::read_dir(directory) else { continue };
        for entry in entries.flatten() {
            seen += 1;
            if seen > FILES_MAX {
                return bytes;
            }
            match entry.metadata() {
                Ok(meta) if meta.is_dir() => left.push(entry.path()),
                Ok(meta) if meta.is_file() => bytes = bytes.saturating_add(meta.len()),
                _ => {}
            }
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_below_a_directory_are_counted_and_links_are_not_followed() {
        let root = std::env::temp_dir().join(format!("nereid-needs-{}", std::process::id()));
        std::fs::create_dir_all(root.join("data")).expect("writable");
        std::fs::write(root.join("model.onnx"), [0; 100]).expect("writable");
        std::fs::write(root.join("data/weights"), [0; 1000]).expect("writable");
        std::os::unix::fs::symlink(&root, root.join("data/ring")).expect("writable");
        let counted = (file_bytes(&root), file_bytes(&root.join("nothing")));
        std::fs::remove_dir_all(&root).expect("writable");
        assert_eq!(counted, (1100, 0));
    }
}
