//! Unpacking archives of Python environments, including hostile ones (B-SEC-06).

use backend_python::extract::{ArchiveError, ArchiveLimits, Format, LIMITS, extract};
use flate2::Compression;
use flate2::write::GzEncoder;
use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use tar::{Builder, EntryType, Header};

/// A directory that the test removes.
struct Temporary(PathBuf);

impl Temporary {
    fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let n = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("nereid-archives-{}-{n}", std::process::id()));
        // One level down, so that a test notices files beside the target.
        fs::create_dir_all(path.join("target")).unwrap();
        Self(path)
    }

    fn target(&self) -> PathBuf {
        self.0.join("target")
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// One entry: kind, name as written, contents, link target.
type Item<'a> = (EntryType, &'a str, &'a [u8], &'a str);

fn file<'a>(name: &'a str, contents: &'a [u8]) -> Item<'a> {
    (EntryType::Regular, name, contents, "")
}

fn link<'a>(name: &'a str, to: &'a str) -> Item<'a> {
    (EntryType::Symlink, name, b"", to)
}

fn hard<'a>(name: &'a str, to: &'a str) -> Item<'a> {
    (EntryType::Link, name, b"", to)
}

fn archive(items: &[Item<'_>]) -> Vec<u8> {
    let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
    packed.write_all(&plain(items)).unwrap();
    packed.finish().unwrap()
}

/// Names go into the header unchanged: the library that writes archives would reject some.
fn plain(items: &[Item<'_>]) -> Vec<u8> {
    let mut builder = Builder::new(Vec::new());
    for (kind, name, contents, to) in items {
        let mut header = Header::new_gnu();
        let gnu = header.as_gnu_mut().unwrap();
        gnu.name[..name.len()].copy_from_slice(name.as_bytes());
        gnu.linkname[..to.len()].copy_from_slice(to.as_bytes());
        header.set_entry_type(*kind);
        header.set_mode(0o7777);
        header.set_size(contents.len() as u64);
        header.set_cksum();
        builder.append(&header, *contents).unwrap();
    }
    builder.into_inner().unwrap()
}

/// Checks that an archive is rejected, that no file lies beside the target, and returns why.
fn refused(items: &[Item<'_>]) -> String {
    let place = Temporary::new();
    let why = match extract(archive(items).as_slice(), &place.target(), LIMITS) {
        Err(ArchiveError::InvalidEntry(why)) => why,
        other => panic!("{items:?}: {other:?}"),
    };
    let beside: Vec<_> = fs::read_dir(&place.0).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(beside, ["target"], "{items:?}");
    why
}

#[test]
fn b_sec_06_files_directories_and_links_inside_are_unpacked() {
    let place = Temporary::new();
    let items = [
        (EntryType::Directory, "./", &b""[..], ""),
        (EntryType::Directory, "bin/", b"", ""),
        file("bin/python3.11", b"program"),
        link("bin/python", "python3.11"),
        link("lib64", "lib"),
        file("./lib/a/b.txt", b"text"),
        link("lib/a/up", "../../bin"),
        hard("lib/same", "lib/a/b.txt"),
    ];
    extract(archive(&items).as_slice(), &place.target(), LIMITS).unwrap();
    let read = |path: &str| fs::read(place.target().join(path)).unwrap();
    assert_eq!(read("bin/python"), b"program");
    assert_eq!(read("lib64/a/up/python3.11"), b"program");
    assert_eq!(read("lib/same"), b"text");
    let mode = fs::metadata(place.target().join("bin/python3.11")).unwrap().permissions().mode();
    assert_eq!(mode & 0o7777, 0o755, "no set-user-id, and nobody else may write");
}

#[test]
fn b_sec_06_names_longer_than_a_header_are_read_in_both_forms() {
    let place = Temporary::new();
    let long = |name: &str| "directory_of_some_length/".repeat(10) + name;
    let mut builder = Builder::new(GzEncoder::new(Vec::new(), Compression::fast()));
    let mut header = Header::new_gnu();
    header.set_mode(0o644);
    header.set_size(4);
    // GNU's form, which the library writes for names too long for a header.
    builder.append_data(&mut header, long("gnu"), &b"text"[..]).unwrap();
    builder.append_pax_extensions([("path", long("pax").as_bytes()), ("comment", b"mine")]).unwrap();
    header.set_path("short").unwrap();
    header.set_cksum();
    builder.append(&header, &b"more"[..]).unwrap();
    let mut header = Header::new_gnu();
    header.set_entry_type(EntryType::Symlink);
    header.set_size(0);
    builder.append_link(&mut header, "link_gnu", long("gnu")).unwrap();
    builder.append_pax_extensions([("linkpath", long("pax").as_bytes())]).unwrap();
    header.set_path("link_pax").unwrap();
    header.set_cksum();
    builder.append(&header, &b""[..]).unwrap();
    let whole = builder.into_inner().unwrap().finish().unwrap();
    extract(whole.as_slice(), &place.target(), LIMITS).unwrap();
    let read = |path: &str| fs::read(place.target().join(path)).unwrap();
    assert_eq!((read(&long("gnu")), read(&long("pax"))), (b"text".to_vec(), b"more".to_vec()));
    assert_eq!((read("link_gnu"), read("link_pax")), (b"text".to_vec(), b"more".to_vec()));
    assert!(!place.target().join("short").exists());
}

#[test]
fn b_sec_06_names_of_any_length_are_not_read() {
    for kind in [EntryType::GNULongName, EntryType::GNULongLink, EntryType::XHeader] {
        // No data follows: it is rejected for the size it announces.
        let mut header = Header::new_gnu();
        header.set_entry_type(kind);
        header.set_size(1 << 30);
        header.set_cksum();
        let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
        std::io::Write::write_all(&mut packed, header.as_bytes()).unwrap();
        let place = Temporary::new();
        match extract(packed.finish().unwrap().as_slice(), &place.target(), LIMITS) {
            Err(ArchiveError::InvalidEntry(why)) => {
                assert_eq!(why, "an entry's name and attributes have 1073741824 bytes");
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn b_sec_06_names_that_lead_outside_are_rejected() {
    assert_eq!(refused(&[file("../evil", b"x")]), "its entry '../evil' has a path outside of the archive");
    assert_eq!(refused(&[file("/tmp/evil", b"x")]), "its entry '/tmp/evil' has a path outside of the archive");
    assert_eq!(refused(&[file("a/../../evil", b"x")]), "its entry 'a/../../evil' has a path outside of the archive");
    assert_eq!(
        refused(&[(EntryType::Directory, "../evil/", b"", "")]),
        "its entry '../evil/' has a path outside of the archive"
    );
    let deep = "d/".repeat(49) + "f";
    let place = Temporary::new();
    extract(archive(&[file(&deep, b"x")]).as_slice(), &place.target(), LIMITS).unwrap();
}

#[test]
fn b_sec_06_links_that_lead_outside_are_rejected() {
    assert_eq!(refused(&[link("a", "/etc/passwd")]), "its entry 'a' links to a location outside of the archive");
    assert_eq!(refused(&[link("a", "..")]), "its entry 'a' links to a location outside of the archive");
    assert_eq!(refused(&[link("d/a", "../../x")]), "its entry 'd/a' links to a location outside of the archive");
    assert_eq!(refused(&[hard("a", "../../etc/passwd")]), "its entry 'a' links to a location outside of the archive");
    assert_eq!(refused(&[hard("a", "/etc/passwd")]), "its entry 'a' links to a location outside of the archive");
    assert_eq!(refused(&[hard("a", "nothing")]), "its entry 'a' links to a missing file");
    // By name each of them stays inside; followed in turn they do not.
    let stairs = [file("a/b/x", b""), link("a/b/l", "../.."), link("m", "a/b/l/../.."), link("n", "a/b/l/..")];
    assert!(refused(&stairs).ends_with("links to a location outside of the archive"));
}

/// Layout that venv-pack writes.
fn of_venv(interpreter: &str) -> [Item<'_>; 5] {
    [
        file("bin/activate", b""),
        link("bin/python", "python3"),
        link("bin/python3", interpreter),
        link("bin/python3.11", "python3"),
        link("lib64", "lib"),
    ]
}

#[test]
fn b_sec_06_the_interpreter_of_a_venv_may_be_the_systems() {
    let place = Temporary::new();
    let system = place.0.join("interpreter");
    fs::write(&system, "#!/bin/sh\n").unwrap();
    let system = system.to_str().unwrap();
    let unpacked = || {
        let place = Temporary::new();
        let outcome = extract(archive(&of_venv(system)).as_slice(), &place.target(), LIMITS);
        (place, outcome)
    };
    // Not executable, so not a program.
    fs::set_permissions(system, fs::Permissions::from_mode(0o644)).unwrap();
    assert!(matches!(unpacked().1, Err(ArchiveError::InvalidEntry(_))));
    fs::set_permissions(system, fs::Permissions::from_mode(0o755)).unwrap();
    let (place, outcome) = unpacked();
    outcome.unwrap();
    for name in ["python", "python3", "python3.11"] {
        assert_eq!(fs::canonicalize(place.target().join("bin").join(name)).unwrap(), fs::canonicalize(system).unwrap());
    }
}

#[test]
fn b_sec_06_no_other_link_may_lead_outside() {
    for name in ["bin/sh", "bin/python-config", "bin/pythonx", "lib/python3", "x/bin/python", "python"] {
        assert_eq!(
            refused(&[link(name, "/bin/sh")]),
            format!("its entry '{name}' links to a location outside of the archive")
        );
    }
    let out = "its entry 'bin/python' links to a location outside of the archive";
    assert_eq!(refused(&[link("bin/python", "/etc/passwd")]), out, "no program");
    assert_eq!(refused(&[link("bin/python", "/usr/bin")]), out, "a directory");
    assert_eq!(refused(&[link("bin/python", "/dev/null")]), out, "a device");
    assert_eq!(refused(&[link("bin/python", "../../bin/sh")]), out, "not absolute");
    let gone = "its entry 'bin/python' links to '/nowhere/python3', which is not on this machine";
    assert_eq!(refused(&[link("bin/python", "/nowhere/python3")]), gone);
    // Under another name it would be a way out for every user of links.
    let second = [link("bin/python", "/bin/sh"), link("tool", "bin/python")];
    assert_eq!(refused(&second), "its entry 'tool' links to a location outside of the archive");
    // No file is written or found through it.
    assert_eq!(
        refused(&[link("bin/python", "/bin/sh"), file("bin/python", b"x")]),
        "its entry 'bin/python' occurs twice"
    );
    assert_eq!(
        refused(&[link("bin/python", "/usr/bin"), file("bin/python/x", b"x")]),
        "its entry 'bin/python' occurs twice"
    );
    assert_eq!(
        refused(&[link("bin/python", "/bin/sh"), hard("a", "bin/python")]),
        "its entry 'a' links to a missing file"
    );
}

#[test]
fn b_sec_06_equal_duplicates_are_unpacked_once() {
    // venv-pack writes its configuration and some links twice.
    let place = Temporary::new();
    let long = vec![7; 20_000];
    let twice = [
        file("pyvenv.cfg", &long),
        link("lib64", "lib"),
        file("lib/x", b""),
        file("pyvenv.cfg", &long),
        link("lib64", "lib"),
    ];
    extract(archive(&twice).as_slice(), &place.target(), LIMITS).unwrap();
    assert_eq!(fs::read(place.target().join("pyvenv.cfg")).unwrap(), long);
    let mut other = long.clone();
    other[19_999] = 8;
    assert_eq!(refused(&[file("a", &long), file("a", &other)]), "its entry 'a' occurs twice");
    assert_eq!(refused(&[file("a", &long), file("a", &long[1..])]), "its entry 'a' occurs twice");
    assert_eq!(refused(&[link("a", "b"), link("a", "c")]), "its entry 'a' occurs twice");
    assert_eq!(refused(&[file("a/b", b"1"), file("a", b"1")]), "its entry 'a' occurs twice");
}

#[test]
fn b_sec_06_a_plain_tar_is_read_and_other_formats_are_named() {
    let place = Temporary::new();
    extract(plain(&[file("bin/activate", b"x")]).as_slice(), &place.target(), LIMITS).unwrap();
    assert_eq!(fs::read(place.target().join("bin/activate")).unwrap(), b"x");
    let check = |head: &[u8], expected: Format| {
        let place = Temporary::new();
        let outcome = extract([head, &[0; 600]].concat().as_slice(), &place.target(), LIMITS);
        assert!(matches!(outcome, Err(ArchiveError::Format(found)) if found == expected), "{outcome:?}");
    };
    check(b"BZh91AY&SY", Format::Bzip2);
    check(b"\xfd7zXZ\0\0\x04", Format::Xz);
    check(b"\x28\xb5\x2f\xfd\x24", Format::Zstd);
    check(b"PK\x03\x04", Format::Zip);
    check(b"hsqs", Format::Squashfs);
    assert_eq!(Format::Xz.advice("/e.tar.xz"), ("xz", "`xz -dc /e.tar.xz | gzip > env.tar.gz`".to_owned()));
}

#[test]
fn b_sec_06_nothing_is_written_through_a_link() {
    // The link would stay inside; the file under it would not be where its name says.
    for items in [[link("d", "other"), file("d/evil", b"x")], [file("d/evil", b"x"), link("d", "other")]] {
        assert_eq!(refused(&items), "its entry 'd' occurs twice");
    }
    assert_eq!(refused(&[file("a", b"1"), file("a", b"2")]), "its entry 'a' occurs twice");
    assert_eq!(refused(&[file("a", b"1"), file("a/b", b"2")]), "its entry 'a' is a file and a directory");
}

#[test]
fn b_sec_06_devices_and_pipes_are_rejected() {
    for kind in [EntryType::Char, EntryType::Block, EntryType::Fifo, EntryType::new(b'Z')] {
        assert_eq!(refused(&[(kind, "dev", b"", "")]), "its entry 'dev' is neither a file nor a directory nor a link");
    }
}

#[test]
fn b_sec_06_an_archive_has_limits() {
    let check = |items: &[Item<'_>], limits: ArchiveLimits, expected: &str| {
        let place = Temporary::new();
        match extract(archive(items).as_slice(), &place.target(), limits) {
            Err(ArchiveError::InvalidEntry(why)) => assert_eq!(why, expected),
            other => panic!("{other:?}"),
        }
    };
    let few = ArchiveLimits { entries: 2, bytes: 100 };
    check(&[file("a", b""), file("b", b""), file("c", b"")], few, "it has more than 2 entries");
    check(&[file("a", &[0; 60]), file("b", &[0; 60])], few, "it has more than 100 bytes");
    // 64 MiB of zeros are 64 KiB here: the limit applies to unpacked bytes.
    let bomb = vec![0; 64 << 20];
    let packed = archive(&[file("zeros", &bomb)]);
    assert!(packed.len() < 1 << 20);
    let place = Temporary::new();
    let outcome = extract(packed.as_slice(), &place.target(), ArchiveLimits { entries: 10, bytes: 1 << 20 });
    assert!(matches!(outcome, Err(ArchiveError::InvalidEntry(_))), "{outcome:?}");
    assert_eq!(fs::read_dir(place.target()).unwrap().count(), 0, "refused by its announced size, before it is written");
}

#[test]
fn b_sec_06_truncated_files_and_other_formats_are_unreadable() {
    let whole = archive(&[file("a", &[7; 5000])]);
    let check = |bytes: &[u8]| {
        let place = Temporary::new();
        let outcome = extract(bytes, &place.target(), LIMITS);
        assert!(matches!(outcome, Err(ArchiveError::Unreadable)), "{} bytes: {outcome:?}", bytes.len());
    };
    check(b"");
    check(b"not an archive");
    for cut in [1, 12, whole.len() / 2] {
        check(&whole[..cut]);
    }
}
