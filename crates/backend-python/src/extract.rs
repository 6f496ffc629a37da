//! Unpacks the archive of a Python environment (B-SEC-06). The archive is untrusted: it may have come over the network.
//!
//! No file is written through a link: the directories of a file are created and checked one by one, links are created
//! last, and each is then followed to check that it stays inside. Any invalid entry fails the whole archive. The target
//! is a new directory that only this user can enter, so no other process changes it meanwhile.
//!
//! One kind of link may lead outside: the interpreter of a venv is a link to the system's, and venv-pack keeps it. It
//! is accepted as `bin/python`, `bin/python3` or `bin/python3.N` with an absolute target that is a program. It is only
//! used to start a process, and processes of the archive could start any program anyway.

use flate2::read::MultiGzDecoder;
use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt, symlink};
use std::path::{Component, Path, PathBuf};
use tar::{Archive, Entry, EntryType};

#[derive(Debug, Clone, Copy)]
pub struct ArchiveLimits {
    /// Files, directories and links.
    pub entries: u64,
    /// Unpacked bytes of all files together.
    pub bytes: u64,
}

/// A large environment (PyTorch with CUDA) has some 60,000 entries and 8 GB.
pub const LIMITS: ArchiveLimits = ArchiveLimits { entries: 1_000_000, bytes: 64 << 30 };

/// Bytes of an entry's path and of a link's target.
const PATH_BYTES_MAX: usize = 4096;
/// Bytes of the extension before an entry: its long name or its extended attributes.
const EXTENSION_BYTES_MAX: u64 = 64 << 10;
/// Depth of directories.
const DEPTH_MAX: usize = 64;

/// Why an archive is rejected; the texts contain no paths of this server.
#[derive(Debug)]
pub enum ArchiveError {
    /// The file is no tar file, plain or gzipped, or is truncated.
    Unreadable,
    /// An archive of another format.
    Format(Format),
    /// An invalid entry, or too many of them; the text says which and why.
    InvalidEntry(String),
    /// The disk failed.
    Io(io::Error),
}

/// Recognised formats that are not read: each decoder would be one more that processes untrusted data.
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

    /// Name of the format, and the command that converts `archive` into a readable one.
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

/// The tar stream in an archive, by its first bytes.
fn tar_of<'a>(mut archive: impl Read + 'a) -> Result<Box<dyn Read + 'a>, ArchiveError> {
    let mut head = Vec::new();
    archive.by_ref().take(8).read_to_end(&mut head).map_err(|_| ArchiveError::Unreadable)?;
    if let Some((_, format)) = Format::ALL.iter().find(|(magic, _)| head.starts_with(magic)) {
        return Err(ArchiveError::Format(*format));
    }
    let is_gzip = head.starts_with(b"\x1f\x8b");
    let whole = io::Cursor::new(head).chain(archive);
    Ok(if is_gzip { Box::new(MultiGzDecoder::new(whole)) } else { Box::new(whole) })
}

/// Unpacks into `target`, an empty directory. On failure the caller removes what was written.
///
/// # Errors
/// [`ArchiveError`] for an archive that cannot be read or breaks a rule.
pub fn extract(archive: impl Read, target: &Path, limits: ArchiveLimits) -> Result<(), ArchiveError> {
    let mut archive = Archive::new(tar_of(archive)?);
    // Raw: the library would read names of any length into memory.
    let entries = archive.entries().map_err(|_| ArchiveError::Unreadable)?.raw(true);
    let mut symlinks: Vec<(PathBuf, PathBuf)> = Vec::new();
    let mut hard_links: Vec<(PathBuf, PathBuf)> = Vec::new();
    let (mut count, mut bytes) = (0u64, 0u64);
    let mut long = Extensions::default();
    for entry in entries {
        let mut entry = entry.map_err(|_| ArchiveError::Unreadable)?;
        count += 1;
        if count > limits.entries {
            return Err(ArchiveError::InvalidEntry(format!("it has more than {} entries", limits.entries)));
        }
        bytes = bytes.saturating_add(entry.size());
        if bytes > limits.bytes {
            return Err(ArchiveError::InvalidEntry(format!("it has more than {} bytes", limits.bytes)));
        }
        let kind = entry.header().entry_type();
        if kind.is_pax_global_extensions() || long.read_extension(&mut entry)? {
            continue;
        }
        let Extensions { name, link, size } = std::mem::take(&mut long);
        let name = name.unwrap_or_else(|| entry.path_bytes().into_owned());
        if size.is_some_and(|size| size != entry.size()) {
            return Err(invalid_entry(&name, "is larger than its header declares"));
        }
        let Some(path) = inside(&name) else {
            return Err(invalid_entry(&name, "leads outside of the archive"));
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
                    return Err(invalid_entry(&name, "links outside of the archive"));
                }
                symlinks.push((path, to));
            }
            EntryType::Link => {
                let to = link_target(&entry, link, &name)?;
                let Some(to) = inside(to.as_os_str().as_encoded_bytes()) else {
                    return Err(invalid_entry(&name, "links outside of the archive"));
                };
                hard_links.push((path, to));
            }
            _ => return Err(invalid_entry(&name, "is neither a file nor a directory nor a link")),
        }
    }
    if count == 0 {
        return Err(ArchiveError::Unreadable);
    }
    for (path, to) in &hard_links {
        make_directories(target, path.parent().unwrap_or(Path::new("")))?;
        let to = target.join(to);
        // There are no links yet, so neither path contains one.
        if !fs::symlink_metadata(&to).is_ok_and(|m| m.is_file()) {
            return Err(invalid_entry(path.as_os_str().as_encoded_bytes(), "links to a missing file"));
        }
        fs::hard_link(&to, target.join(path)).map_err(ArchiveError::Io)?;
    }
    for (path, to) in &symlinks {
        // An entry under a link was unpacked as a path below its name: those directories are real, or conflict with it.
        make_directories(target, path.parent().unwrap_or(Path::new("")))?;
        let link = target.join(path);
        if symlink(to, &link).is_err() && !fs::read_link(&link).is_ok_and(|there| there == *to) {
            return Err(invalid_entry(path.as_os_str().as_encoded_bytes(), "occurs twice"));
        }
    }
    let root = fs::canonicalize(target).map_err(ArchiveError::Io)?;
    for (path, to) in &symlinks {
        // Chains of links may lead further than each link alone. A dangling link is safe: its target cannot be created
        // outside without another link, which is checked too.
        let name = path.as_os_str().as_encoded_bytes();
        match fs::canonicalize(target.join(path)) {
            Ok(real) if real.starts_with(&root) => {}
            // `bin/python3` of the system, or `bin/python` as a link to it.
            Ok(real) if is_interpreter(path) && is_program(&real) => {}
            Ok(_) => return Err(invalid_entry(name, "links outside of the archive")),
            Err(_) if to.is_absolute() => {
                let to = to.display().to_string();
                let to: String = to.chars().take(200).collect();
                return Err(invalid_entry(name, &format!("links to '{to}', which is not on this machine")));
            }
            Err(_) => {}
        }
    }
    Ok(())
}

/// True if an entry has the name of the interpreter.
fn is_interpreter(path: &Path) -> bool {
    let version = path.strip_prefix("bin").ok().and_then(Path::to_str).and_then(|name| name.strip_prefix("python"));
    version.is_some_and(|version| version.len() <= 8 && version.bytes().all(|b| b.is_ascii_digit() || b == b'.'))
}

fn is_program(real: &Path) -> bool {
    fs::metadata(real).is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0)
}

fn invalid_entry(name: &[u8], why: &str) -> ArchiveError {
    let name = String::from_utf8_lossy(name);
    let name: String = name.chars().take(200).collect();
    ArchiveError::InvalidEntry(format!("its entry '{name}' {why}"))
}

/// The path of an entry, without `.`; `None` if it is absolute, empty other than the root, too long, or contains `..`.
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

/// Extensions before an entry, for fields that its header has no room for.
#[derive(Default)]
struct Extensions {
    name: Option<Vec<u8>>,
    link: Option<Vec<u8>>,
    size: Option<u64>,
}

impl Extensions {
    fn read_extension<R: Read>(&mut self, entry: &mut Entry<'_, R>) -> Result<bool, ArchiveError> {
        let kind = entry.header().entry_type();
        if !(kind.is_gnu_longname() || kind.is_gnu_longlink() || kind.is_pax_local_extensions()) {
            return Ok(false);
        }
        if entry.size() > EXTENSION_BYTES_MAX {
            return Err(ArchiveError::InvalidEntry(format!(
                "an entry's name and attributes have {} bytes",
                entry.size()
            )));
        }
        if kind.is_pax_local_extensions() {
            let all = entry.pax_extensions().map_err(|_| ArchiveError::Unreadable)?;
            for one in all.into_iter().flatten() {
                let one = one.map_err(|_| ArchiveError::Unreadable)?;
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
        entry.read_to_end(&mut text).map_err(|_| ArchiveError::Unreadable)?;
        text.pop_if(|last| *last == 0);
        *(if kind.is_gnu_longname() { &mut self.name } else { &mut self.link }) = Some(text);
        Ok(true)
    }
}

fn link_target<R: Read>(entry: &Entry<'_, R>, long: Option<Vec<u8>>, name: &[u8]) -> Result<PathBuf, ArchiveError> {
    use std::os::unix::ffi::OsStrExt;
    let to = match long {
        Some(to) => to,
        None => entry.link_name_bytes().ok_or_else(|| invalid_entry(name, "is a link to a missing file"))?.into_owned(),
    };
    if to.is_empty() || to.len() > PATH_BYTES_MAX || to.contains(&0) {
        return Err(invalid_entry(name, "is a link to a missing file"));
    }
    Ok(PathBuf::from(std::ffi::OsStr::from_bytes(&to)))
}

/// True if a link at `path` to `to` stays inside, judged by names only.
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

/// Creates `path` below `target`, each part as a real directory.
fn make_directories(target: &Path, path: &Path) -> Result<(), ArchiveError> {
    let mut at = target.to_path_buf();
    for part in path.components() {
        at.push(part);
        match DirBuilder::new().mode(0o755).create(&at) {
            Ok(()) => {}
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
                if !fs::symlink_metadata(&at).map_err(ArchiveError::Io)?.is_dir() {
                    return Err(invalid_entry(path.as_os_str().as_encoded_bytes(), "is a file and a directory"));
                }
            }
            Err(e) => return Err(ArchiveError::Io(e)),
        }
    }
    Ok(())
}

fn write_file<R: Read>(entry: &mut Entry<'_, R>, path: &Path, name: &[u8]) -> Result<(), ArchiveError> {
    // Neither set-user-id nor writable by others, and always readable by us.
    let mode = entry.header().mode().unwrap_or(0o644) & 0o755 | 0o600;
    let mut file = match OpenOptions::new().write(true).create_new(true).mode(mode).open(path) {
        Ok(file) => file,
        // venv-pack writes some files twice.
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists && is_same(entry, path)? => return Ok(()),
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => return Err(invalid_entry(name, "occurs twice")),
        Err(e) => return Err(ArchiveError::Io(e)),
    };
    let size = entry.size();
    let written = io::copy(entry, &mut file).map_err(|e| match e.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => ArchiveError::Io(e),
        _ => ArchiveError::Unreadable,
    })?;
    if written < size { Err(ArchiveError::Unreadable) } else { Ok(()) }
}

/// True if an unpacked file equals the entry.
fn is_same<R: Read>(entry: &mut Entry<'_, R>, path: &Path) -> Result<bool, ArchiveError> {
    // There are no links yet; a directory has another length or cannot be read.
    let there = fs::symlink_metadata(path).map_err(ArchiveError::Io)?;
    if !there.is_file() || there.len() != entry.size() {
        return Ok(false);
    }
    let mut there = io::BufReader::new(fs::File::open(path).map_err(ArchiveError::Io)?);
    let (mut new, mut old) = ([0; 8192], [0; 8192]);
    loop {
        let read = entry.read(&mut new).map_err(|_| ArchiveError::Unreadable)?;
        let (Some(new), Some(old)) = (new.get(..read), old.get_mut(..read)) else { return Ok(false) };
        if read == 0 {
            return Ok(true);
        }
        if there.read_exact(old).is_err() || new != old {
            return Ok(false);
        }
    }
}
