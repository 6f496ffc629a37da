//! Reads a shared library's name, its dependencies, and its ONNX Runtime release without opening it: opening would run
//! its code, and fails at the first missing library without naming the others.
//!
//! The file is untrusted. Only tables are read, with limits; only 64-bit little-endian ELF files are accepted.

use std::io::{Read, Seek, SeekFrom};

/// Maximum number of program headers; libraries have about ten.
const SEGMENTS_MAX: u16 = 256;
/// Maximum number of entries of the dynamic section; libraries have about forty.
const DYNAMIC_MAX: u64 = 4096;
/// Maximum bytes of the string table; the CUDA provider has 3 MB.
const NAMES_BYTES_MAX: u64 = 64 << 20;

/// The dynamic section of a library.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Library {
    /// Name of the library itself (SONAME).
    pub(crate) name: Option<String>,
    /// Needed libraries, in order.
    pub(crate) needs: Vec<String>,
    /// Release of ONNX Runtime's own library, from its symbol version, such as `1.30.0`.
    pub(crate) release: Option<String>,
}

const UNREADABLE: &str = "it cannot be read";
const NOT_ELF: &str = "it is not a 64-bit ELF library";
const DAMAGED: &str = "its tables point outside of the file";

const LOAD: u32 = 1;
const DYNAMIC: u32 = 2;
const NEEDED: u64 = 1;
const STRING_TABLE: u64 = 5;
const STRING_BYTES: u64 = 10;
const SONAME: u64 = 14;

/// Reads the name, the dependencies and the release of a library.
///
/// # Errors
/// A text that follows the name of the file.
pub(crate) fn read(mut file: impl Read + Seek) -> Result<Library, &'static str> {
    let head: [u8; 64] = at(&mut file, 0)?;
    if head.get(..6) != Some(b"\x7fELF\x02\x01") {
        return Err(NOT_ELF);
    }
    let (table, size, count) = (word(&head, 32), half(&head, 54), half(&head, 56));
    if size != 56 || count > SEGMENTS_MAX {
        return Err(NOT_ELF);
    }
    let mut loads = Vec::new();
    let mut dynamic = None;
    for i in 0..u64::from(count) {
        let segment: [u8; 56] = at(&mut file, table.checked_add(i * 56).ok_or(DAMAGED)?)?;
        let kind = u32::from_le_bytes([segment[0], segment[1], segment[2], segment[3]]);
        let (offset, address, bytes) = (word(&segment, 8), word(&segment, 16), word(&segment, 32));
        match kind {
            LOAD => loads.push((offset, address, bytes)),
            DYNAMIC => dynamic = Some((offset, bytes)),
            _ => {}
        }
    }
    let (start, bytes) = dynamic.ok_or("it is not a library: it has no dynamic section")?;
    let (mut names, mut names_bytes, mut own, mut needed) = (None, 0, None, Vec::new());
    for i in 0..(bytes / 16).min(DYNAMIC_MAX) {
        let entry: [u8; 16] = at(&mut file, start.checked_add(i * 16).ok_or(DAMAGED)?)?;
        let value = word(&entry, 8);
        match word(&entry, 0) {
            0 => break,
            NEEDED => needed.push(value),
            STRING_TABLE => names = Some(value),
            STRING_BYTES => names_bytes = value,
            SONAME => own = Some(value),
            _ => {}
        }
    }
    let names = names.ok_or(DAMAGED)?;
    let place = |&(offset, address, bytes): &(u64, u64, u64)| {
        let within = names.checked_sub(address)?;
        (within < bytes).then(|| offset.checked_add(within)).flatten()
    };
    let place = loads.iter().find_map(place).ok_or(DAMAGED)?;
    if names_bytes > NAMES_BYTES_MAX {
        return Err("its table of names is too long");
    }
    let mut text = Vec::new();
    file.seek(SeekFrom::Start(place)).map_err(|_| UNREADABLE)?;
    file.take(names_bytes).read_to_end(&mut text).map_err(|_| UNREADABLE)?;
    let name = |at: u64| {
        let rest = text.get(usize::try_from(at).ok()?..)?;
        let end = rest.iter().position(|&b| b == 0)?;
        String::from_utf8(rest.get(..end)?.to_vec()).ok()
    };
    let needs = needed.into_iter().map(|n| name(n).ok_or(DAMAGED)).collect::<Result<_, _>>()?;
    let release = text.split(|&b| b == 0).find_map(|symbol| symbol.strip_prefix(b"VERS_"));
    let release = release.filter(|r| r.len() < 32 && r.iter().all(|b| b.is_ascii_digit() || *b == b'.'));
    let release = release.map(|r| String::from_utf8_lossy(r).into_owned());
    Ok(Library { name: own.and_then(name), needs, release })
}

fn at<const N: usize>(file: &mut (impl Read + Seek), place: u64) -> Result<[u8; N], &'static str> {
    let mut bytes = [0; N];
    file.seek(SeekFrom::Start(place)).map_err(|_| DAMAGED)?;
    file.read_exact(&mut bytes)
        .map_err(|e| if e.kind() == std::io::ErrorKind::UnexpectedEof { DAMAGED } else { UNREADABLE })?;
    Ok(bytes)
}

/// Eight bytes from `from` on; zero beyond the end, which callers do not use.
fn word(bytes: &[u8], from: usize) -> u64 {
    bytes.get(from..from + 8).and_then(|b| b.try_into().ok()).map_or(0, u64::from_le_bytes)
}

fn half(bytes: &[u8], from: usize) -> u16 {
    bytes.get(from..from + 2).and_then(|b| b.try_into().ok()).map_or(0, u16::from_le_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Cursor;

    /// A library that consists of tables only.
    fn library(names: &[u8], dynamic: &[(u64, u64)]) -> Vec<u8> {
        let mut out = vec![0; 64 + 2 * 56];
        out[..6].copy_from_slice(b"\x7fELF\x02\x01");
        out[32..40].copy_from_slice(&64u64.to_le_bytes());
        out[54..56].copy_from_slice(&56u16.to_le_bytes());
        out[56..58].copy_from_slice(&2u16.to_le_bytes());
        let names_at = out.len() as u64;
        let dynamic_at = names_at + names.len() as u64;
        // The load address differs from the offset in the file.
        let address = 0x10000;
        let mut segment = |i: usize, kind: u32, offset: u64, address: u64, bytes: u64| {
            let from = 64 + i * 56;
            out[from..from + 4].copy_from_slice(&kind.to_le_bytes());
            for (at, value) in [(8, offset), (16, address), (32, bytes)] {
                out[from + at..from + at + 8].copy_from_slice(&value.to_le_bytes());
            }
        };
        segment(0, LOAD, names_at, address, names.len() as u64);
        segment(1, DYNAMIC, dynamic_at, 0, dynamic.len() as u64 * 16);
        out.extend_from_slice(names);
        for (tag, value) in dynamic {
            out.extend_from_slice(&tag.to_le_bytes());
            out.extend_from_slice(&value.to_le_bytes());
        }
        out
    }

    const NAMES: &[u8] = b"\0libcublas.so.13\0libme.so.1\0VERS_1.30.0\0";

    fn whole() -> Vec<u8> {
        let tables = [
            (NEEDED, 1),
            (SONAME, 17),
            (STRING_TABLE, 0x10000),
            (STRING_BYTES, NAMES.len() as u64),
            (0, 0),
            (NEEDED, 99),
        ];
        library(NAMES, &tables)
    }

    #[test]
    fn device_libraries_list_what_they_need() {
        let read = read(Cursor::new(whole())).expect("reads");
        assert_eq!(read.needs, ["libcublas.so.13"], "what stands behind the end does not count");
        assert_eq!((read.name.as_deref(), read.release.as_deref()), (Some("libme.so.1"), Some("1.30.0")));
    }

    #[test]
    fn device_files_that_are_no_libraries_are_rejected() {
        let check = |bytes: Vec<u8>, why: &str| assert_eq!(read(Cursor::new(bytes)), Err(why));
        check(vec![], DAMAGED);
        check(vec![b'x'; 100], NOT_ELF);
        for cut in 0..whole().len() - 32 {
            assert!(read(Cursor::new(&whole()[..cut])).is_err(), "{cut}");
        }
        let bytes = NAMES.len() as u64;
        check(library(NAMES, &[(STRING_TABLE, 0x10000), (STRING_BYTES, bytes), (NEEDED, 1000)]), DAMAGED);
        check(library(NAMES, &[(STRING_TABLE, 7), (STRING_BYTES, bytes)]), DAMAGED);
        check(library(NAMES, &[(STRING_TABLE, 0x10000), (STRING_BYTES, u64::MAX)]), "its table of names is too long");
        check(library(NAMES, &[]), DAMAGED);
    }
}
