//! Shared libraries: what they are called and what they need, without opening them.

use crate::library::read;
use std::io::Cursor;

/// Takes a file.
///
/// # Panics
/// It is read otherwise the second time, or says something that does not stand in it.
pub fn elf(data: &[u8]) -> bool {
    let found = read(Cursor::new(data));
    assert_eq!(found, read(Cursor::new(data)), "the same file");
    let Ok(library) = found else { return false };
    for text in library.needs.iter().chain(&library.name).chain(&library.release) {
        let stands = text.is_empty() || data.windows(text.len()).any(|w| w == text.as_bytes());
        assert!(stands, "{text:?} does not stand in the file");
    }
    !library.needs.is_empty()
}
