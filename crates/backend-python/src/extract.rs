//! Unpacks the archive of a Python environment (B-SEC-06). The archive is untrusted: it may have come over the network.
//!
//! Nothing is ever written through a link: a file's directories are made one by one and looked at, links are made when all else is there, and
//! then each is followed to see that it stays inside. What cannot be right fails the whole archive. The target is a new directory that only
//! this user can enter, so no other process changes it meanwhile.
//!
//! One kind of link may lead out: the interpreter of an environment of venv is a link to that of the system, and venv-pack keeps it. It is taken as
//! `bin/python`, `bin/python3` or `bin/python3.N`, with an absolute target that is a program outside. Nothing but the start of a process goes
//! through it, and a process of what the archive brings could start any program as well.

use flate2::read::MultiGzDecoder;
use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt, symlink};
use std::path::{Component, Path, PathBuf};
use tar::{Archive, Entry, EntryType};

/// What an archive may hold.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Files, directories and links.
    pub entries: u64,
    /// Bytes of all files together, unpacked.
    pub bytes: u64,
}

/// A large environment (PyTorch with CUDA) has some 60,000 entries and 8 GB.
pub const LIMITS: Limits = Limits { entries: 1_000_000, bytes: 64 << 30 };

/// Of the path of an entry, and of what a link points to.
const PATH_BYTES_MAX: usize = 4096;
/// Of what stands in front of an entry: its long name, or its extended attributes.
const EXTENSION_BYTES_MAX: u64 = 64 << 10;
/// Directories in one another.
const DEPTH_MAX: usize = 64;

/// Why an archive is refused; a text without places of this server.
#[derive(Debug)]
pub enum Refused {
    /// It is no tar, plain or gzipped, or it is cut.
    Unreadable,
    /// It is of another format.
    Format(Format),
    /// An entry is not allowed, or there are too many; which, and why.
    Hostile(String),
    /// The disk failed.
    Io(io::Error),
}

/// Formats that are known and not read: each decoder is one more that gets what strangers made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Format {
    Bzip2,
    Xz,
    Zstd,
    Zip,
    Squashfs,
}

impl Format {
    const ALL: [(&'static [u8], Self); 5] = [
        (b"BZh", Self::Bzip2),
        (b"\xfd7zXZ\0", Self::Xz),
        (b"\x28\xb5\x2f\xfd", Self::Zstd),
        (b"PK\x03\x04", Self::Zip),
        (b"hsqs", Self::Squashfs),
    ];

    /// Its name, and the command that makes of `archive` one that is read.
    pub fn advice(self, archive: &str) -> (&'static str, String) {
        let again = |name, program: &str| (name, format!("`{program} -dc {archive} | gzip > env.tar.gz`"));
        let pack = |name| (name, "`conda-pack --format tar.gz`".to_owned());
        match self {
            Self::Bzip2 => again("bzip2", "bzip2"),
            Self::Xz => again("xz", "xz"),
            Self::Zstd => again("zstd", "zstd"),
            Self::Zip => pack("zip"),
            Self::Squashfs => pack("squashfs"),
        }
    }
}

/// The tar in an archive, by its first bytes.
fn tar_of<'a>(mut archive: impl Read + 'a) -> Result<Box<dyn Read + 'a>, Refused> {
    let mut head = Vec::new();
    archive.by_ref().take(8).read_to_end(&mut head).map_err(|_| Refused::Unreadable)?;
    if let Some((_, format)) = Format::ALL.iter().find(|(magic, _)| head.starts_with(magic)) {
        return Err(Refused::Format(*format));
    }
    let is_gzip = head.starts_with(b"\x1f\x8b");
    let whole = io::Cursor::new(head).chain(archive);
    Ok(if is_gzip { Box::new(MultiGzDecoder::new(whole)) } else { Box::new(whole) })
}

/// Unpacks into `target`, which must be an empty directory. What was written stays there when it fails: the caller removes it.
///
/// # Errors
/// As [`Refused`].
pub fn extract(archive: impl Read, target: &Path, limits: Limits) -> Result<(), Refused> {
    let mut archive = Archive::new(tar_of(archive)?);
    // Raw: the library would read names of any length into memory.
    let entries = archive.entries().map_err(|_| Refused::Unreadable)?.raw(true);
    let mut symlinks: Vec<(PathBuf, PathBuf)> = Vec::new();
    let mut hard_links: Vec<(PathBuf, PathBuf)> = Vec::new();
    let (mut count, mut bytes) = (0u64, 0u64);
    let mut long = Long::default();
    for entry in entries {
        let mut entry = entry.map_err(|_| Refused::Unreadable)?;
        count += 1;
        if count > limits.entries {
            return Err(Refused::Hostile(format!("it has more than {} entries", limits.entries)));
        }
        bytes = bytes.saturating_add(entry.size());
        if bytes > limits.bytes {
            return Err(Refused::Hostile(format!("it has more than {} bytes", limits.bytes)));
        }
        let kind = entry.header().entry_type();
        if kind.is_pax_global_extensions() || long.takes(&mut entry)? {
            continue;
        }
        let Long { name, link, size } = std::mem::take(&mut long);
        let name = name.unwrap_or_else(|| entry.path_bytes().into_owned());
        if size.is_some_and(|size| size != entry.size()) {
            return Err(hostile(&name, "is larger than its header says"));
        }
        let Some(path) = inside(&name) else {
            return Err(hostile(&name, "leads out of the archive"));
        };
        match kind {
            EntryType::Directory => make_directories(target, &path)?,
            EntryType::Regular | EntryType::Continuous => {
                make_directories(target, path.parent().unwrap_or(Path::new("")))?;
                write_file(&mut entry, &target.join(&path), &name)?;
            }
            EntryType::Symlink => {
                let to = link_target(&entry, link, &name)?;
                let is_system = to.is_absolute() && is_interpreter(&path);
                if !is_system && !stays_inside(&path, &to) {
                    return Err(hostile(&name, "links out of the archive"));
                }
                symlinks.push((path, to));
            }
            EntryType::Link => {
                let to = link_target(&entry, link, &name)?;
                let Some(to) = inside(to.as_os_str().as_encoded_bytes()) else {
                    return Err(hostile(&name, "links out of the archive"));
                };
                hard_links.push((path, to));
            }
            _ => return Err(hostile(&name, "is neither a file nor a directory nor a link")),
        }
    }
    if count == 0 {
        return Err(Refused::Unreadable);
    }
    for (path, to) in &hard_links {
        make_directories(target, path.parent().unwrap_or(Path::new("")))?;
        let to = target.join(to);
        // No link is there yet, so neither path has one in it.
        if !fs::symlink_metadata(&to).is_ok_and(|m| m.is_file()) {
            return Err(hostile(path.as_os_str().as_encoded_bytes(), "links to no file of the archive"));
        }
        fs::hard_link(&to, target.join(path)).map_err(Refused::Io)?;
    }
    for (path, to) in &symlinks {
        // A link under a link was named as a path below it; its directories were made as real ones, or are in the way.
        make_directories(target, path.parent().unwrap_or(Path::new("")))?;
        let link = target.join(path);
        if symlink(to, &link).is_err() && !fs::read_link(&link).is_ok_and(|there| there == *to) {
            return Err(hostile(path.as_os_str().as_encoded_bytes(), "is there twice"));
        }
    }
    let root = fs::canonicalize(target).map_err(Refused::Io)?;
    for (path, to) in &symlinks {
        // Links of links may lead further than each of them alone. One that leads nowhere leads nowhere bad: what it names cannot come to be outside
        // without going through another that was looked at.
        let name = path.as_os_str().as_encoded_bytes();
        match fs::canonicalize(target.join(path)) {
            Ok(real) if real.starts_with(&root) => {}
            // `bin/python3` of the system, and `bin/python` that is a link to it.
            Ok(real) if is_interpreter(path) && is_program(&real) => {}
            Ok(_) => return Err(hostile(name, "links out of the archive")),
            Err(_) if to.is_absolute() => {
                let to = to.display().to_string();
                let to: String = to.chars().take(200).collect();
                return Err(hostile(name, &format!("links to '{to}', which is not on this machine")));
            }
            Err(_) => {}
        }
    }
    Ok(())
}

/// Whether an entry is the interpreter of an environment by its name.
fn is_interpreter(path: &Path) -> bool {
    let version = path.strip_prefix("bin").ok().and_then(Path::to_str).and_then(|name| name.strip_prefix("python"));
    version.is_some_and(|version| version.len() <= 8 && version.bytes().all(|b| b.is_ascii_digit() || b == b'.'))
}

fn is_program(real: &Path) -> bool {
    fs::metadata(real).is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0)
}

fn hostile(name: &[u8], why: &str) -> Refused {
    let name = String::from_utf8_lossy(name);
    let name: String = name.chars().take(200).collect();
    Refused::Hostile(format!("its entry '{name}' {why}"))
}

/// The path of an entry, without `.`; `None` for one that is absolute, empty of names but for the root itself, too long, or has `..`.
fn inside(name: &[u8]) -> Option<PathBuf> {
    if name.len() > PATH_BYTES_MAX || name.contains(&0) {
        return None;
    }
    use std::os::unix::ffi::OsStrExt;
    let mut path = PathBuf::new();
    for (depth, component) in Path::new(std::ffi::OsStr::from_bytes(name)).components().enumerate() {
        match component {
            Component::Normal(part) if depth < DEPTH_MAX => path.push(part),
            Component::CurDir => {}
            _ => return None,
        }
    }
    Some(path)
}

/// What entries in front of one say of it, since its header has no room for that.
#[derive(Default)]
struct Long {
    name: Option<Vec<u8>>,
    link: Option<Vec<u8>>,
    size: Option<u64>,
}

impl Long {
    /// Whether the entry is such a one, which is read.
    fn takes<R: Read>(&mut self, entry: &mut Entry<'_, R>) -> Result<bool, Refused> {
        let kind = entry.header().entry_type();
        if !(kind.is_gnu_longname() || kind.is_gnu_longlink() || kind.is_pax_local_extensions()) {
            return Ok(false);
        }
        if entry.size() > EXTENSION_BYTES_MAX {
            return Err(Refused::Hostile(format!("an entry's name and attributes have {} bytes", entry.size())));
        }
        if kind.is_pax_local_extensions() {
            let all = entry.pax_extensions().map_err(|_| Refused::Unreadable)?;
            for one in all.into_iter().flatten() {
                let one = one.map_err(|_| Refused::Unreadable)?;
                match one.key_bytes() {
                    b"path" => self.name = Some(one.value_bytes().to_vec()),
                    b"linkpath" => self.link = Some(one.value_bytes().to_vec()),
                    b"size" => self.size = one.value().ok().and_then(|size| size.parse().ok()),
                    _ => {}
                }
            }
            return Ok(true);
        }
        let mut text = Vec::new();
        entry.read_to_end(&mut text).map_err(|_| Refused::Unreadable)?;
        text.pop_if(|last| *last == 0);
        *(if kind.is_gnu_longname() { &mut self.name } else { &mut self.link }) = Some(text);
        Ok(true)
    }
}

fn link_target<R: Read>(entry: &Entry<'_, R>, long: Option<Vec<u8>>, name: &[u8]) -> Result<PathBuf, Refused> {
    use std::os::unix::ffi::OsStrExt;
    let to = match long {
        Some(to) => to,
        None => entry.link_name_bytes().ok_or_else(|| hostile(name, "is a link to nothing"))?.into_owned(),
    };
    if to.is_empty() || to.len() > PATH_BYTES_MAX || to.contains(&0) {
        return Err(hostile(name, "is a link to nothing"));
    }
    Ok(PathBuf::from(std::ffi::OsStr::from_bytes(&to)))
}

/// Whether a link at `path` to `to` stays inside as far as names tell.
fn stays_inside(path: &Path, to: &Path) -> bool {
    let mut depth = path.components().count().saturating_sub(1);
    for component in to.components() {
        match component {
            Component::Normal(_) => depth += 1,
            Component::CurDir => {}
            Component::ParentDir if depth > 0 => depth -= 1,
            _ => return false,
        }
    }
    true
}

/// Makes `path` below `target`, each step a real directory.
fn make_directories(target: &Path, path: &Path) -> Result<(), Refused> {
    let mut at = target.to_path_buf();
    for part in path.components() {
        at.push(part);
        match DirBuilder::new().mode(0o755).create(&at) {
            Ok(()) => {}
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
                if !fs::symlink_metadata(&at).map_err(Refused::Io)?.is_dir() {
                    return Err(hostile(path.as_os_str().as_encoded_bytes(), "is a file and a directory"));
                }
            }
            Err(e) => return Err(Refused::Io(e)),
        }
    }
    Ok(())
}

fn write_file<R: Read>(entry: &mut Entry<'_, R>, path: &Path, name: &[u8]) -> Result<(), Refused> {
    // Neither set-user-id nor writable by others, and always readable by us.
    let mode = entry.header().mode().unwrap_or(0o644) & 0o755 | 0o600;
    let mut file = match OpenOptions::new().write(true).create_new(true).mode(mode).open(path) {
        Ok(file) => file,
        // venv-pack writes some twice.
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists && is_same(entry, path)? => return Ok(()),
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => return Err(hostile(name, "is there twice")),
        Err(e) => return Err(Refused::Io(e)),
    };
    let size = entry.size();
    let written = io::copy(entry, &mut file).map_err(|e| match e.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Refused::Io(e),
        _ => Refused::Unreadable,
    })?;
    if written < size { Err(Refused::Unreadable) } else { Ok(()) }
}

/// Whether a file that was unpacked before is the entry over again.
fn is_same<R: Read>(entry: &mut Entry<'_, R>, path: &Path) -> Result<bool, Refused> {
    // No link was made yet; a directory has another length or cannot be read.
    let there = fs::symlink_metadata(path).map_err(Refused::Io)?;
    if !there.is_file() || there.len() != entry.size() {
        return Ok(false);
    }
    let mut there = io::BufReader::new(fs::File::open(path).map_err(Refused::Io)?);
    let (mut new, mut old) = ([0; 8192], [0; 8192]);
    loop {
        let read = entry.read(&mut new).map_err(|_| Refused::Unreadable)?;
        let (Some(new), Some(old)) = (new.get(..read), old.get_mut(..read)) else { return Ok(false) };
        if read == 0 {
            return Ok(true);
        }
        if there.read_exact(old).is_err() || new != old {
            return Ok(false);
        }
    }
}
