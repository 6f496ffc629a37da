//! Archives of Python environments, as somebody packed them who wants files elsewhere.

use flate2::Compression;
use flate2::write::GzEncoder;
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

/// The reader is compiled from where it stands, without the backend it is there for.
#[allow(dead_code, unreachable_pub)]
#[path = "../../crates/backend-python/src/extract.rs"]
mod extract;

const LIMITS: extract::ArchiveLimits = extract::ArchiveLimits { entries: 64, bytes: 64 * 1024 };

/// Unpacks into a directory of its own and checks that nothing is written, or links, outside. The checksum rejects
/// damaged headers, so only bytes behind a first `r` are used as an archive; others describe entries: kind, length and
/// name, length and link, length of contents.
pub fn archive(data: &[u8]) -> bool {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    let place = std::env::temp_dir().join(format!("nereid-fuzz-{}-{number}", std::process::id()));
    let target = place.join("target");
    fs::create_dir_all(&target).expect("a place to unpack in");
    let tar = match data.split_first() {
        Some((b'r', raw)) => raw.to_vec(),
        _ => described(data),
    };
    let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
    std::io::Write::write_all(&mut packed, &tar).expect("memory");
    let packed = packed.finish().expect("memory");
    let accepted = extract::extract(packed.as_slice(), &target, LIMITS).is_ok();
    let beside: Vec<_> = fs::read_dir(&place).expect("the place").flatten().map(|e| e.file_name()).collect();
    assert_eq!(beside, ["target"], "something was written beside the target");
    if accepted {
        let root = fs::canonicalize(&target).expect("the target");
        stays(&root, &root);
    }
    fs::remove_dir_all(&place).expect("to clean up");
    accepted
}

/// Every link below leads inside, or nowhere; `bin/python…` may lead to a program.
fn stays(directory: &Path, root: &Path) {
    for entry in fs::read_dir(directory).expect("a directory that was made").flatten() {
        let kind = entry.file_type().expect("its kind");
        if kind.is_symlink() {
            let leads = fs::canonicalize(entry.path());
            let name = entry.path();
            let name = name.strip_prefix(root).expect("below it").as_os_str().as_encoded_bytes().to_vec();
            let is_interpreter = name.starts_with(b"bin/python") && !leads.as_ref().is_ok_and(|to| to.is_dir());
            assert!(
                is_interpreter || leads.is_ok_and(|to| to.starts_with(root)) || fs::metadata(entry.path()).is_err(),
                "{:?} leads out",
                entry.path()
            );
        } else if kind.is_dir() {
            stays(&entry.path(), root);
        } else {
            assert!(kind.is_file(), "{:?} is no file", entry.path());
        }
    }
}

fn described(mut data: &[u8]) -> Vec<u8> {
    fn part<'a>(data: &mut &'a [u8], max: usize) -> &'a [u8] {
        let Some((&length, rest)) = data.split_first() else { return &[] };
        let (part, rest) = rest.split_at(usize::from(length).min(max).min(rest.len()));
        *data = rest;
        part
    }
    let mut tar = tar::Builder::new(Vec::new());
    while let Some((&kind, rest)) = data.split_first() {
        data = rest;
        let mut header = tar::Header::new_gnu();
        let gnu = header.as_gnu_mut().expect("a header of this kind");
        let name = part(&mut data, 100);
        gnu.name[..name.len()].copy_from_slice(name);
        let link = part(&mut data, 100);
        gnu.linkname[..link.len()].copy_from_slice(link);
        header.set_entry_type(tar::EntryType::new(kind));
        header.set_mode(0o644);
        let contents = part(&mut data, 255);
        header.set_size(contents.len() as u64);
        header.set_cksum();
        if tar.append(&header, contents).is_err() {
            break;
        }
    }
    tar.into_inner().unwrap_or_default()
}
