//! Links to our library, for libraries that need it under another name.

use parking_lot::Mutex;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::path::{Path, PathBuf};

/// Names that are tried for the directory. They are random: a second try is for what a stranger took.
const TRIES: usize = 16;

/// The directory for links of a server, made for the first of them.
///
/// It is the first place where a process of root searches libraries, before it becomes another user. Hence it is never
/// one that was there: anyone may make directories beside it, and keep the right to write to them.
#[derive(Default)]
pub(crate) struct Links(Mutex<Option<(PathBuf, u32)>>);

impl Links {
    /// A directory with a link of this name, and with nothing else.
    pub(crate) fn directory(&self, prefix: &Path, name: &str, to: &Path) -> io::Result<PathBuf> {
        use std::os::unix::fs::{DirBuilderExt, symlink};
        let mut made = self.0.lock();
        // It may be gone: something cleaned the temporary files. Then a stranger may have made one of this name.
        let (root, owner) =
            made.take().filter(|(root, owner)| owner_of(root).is_ok_and(|now| now == *owner)).map_or_else(
                || {
                    let root = new_directory(prefix)?;
                    owner_of(&root).map(|owner| (root, owner))
                },
                Ok,
            )?;
        let directory = root.join(name);
        *made = Some((root, owner));
        // One that is there is ours: nobody else may write to the directory above.
        exists_or(std::fs::DirBuilder::new().mode(0o700).create(&directory))?;
        set_mode(&directory)?;
        exists_or(symlink(to, directory.join(name)))?;
        Ok(directory)
    }
}

fn owner_of(directory: &Path) -> io::Result<u32> {
    use std::os::unix::fs::MetadataExt;
    let found = std::fs::symlink_metadata(directory)?;
    if found.is_dir() { Ok(found.uid()) } else { Err(io::ErrorKind::NotADirectory.into()) }
}

/// Makes a directory that was not there, readable by all users: libraries run as others.
fn new_directory(prefix: &Path) -> io::Result<PathBuf> {
    use std::os::unix::fs::DirBuilderExt;
    let mut result = Err(io::ErrorKind::AlreadyExists.into());
    for _ in 0..TRIES {
        let random = RandomState::new().build_hasher().finish();
        let mut path = prefix.as_os_str().to_owned();
        path.push((1_000_000_000 + random % 1_000_000_000).to_string());
        let path = PathBuf::from(path);
        result = std::fs::DirBuilder::new().mode(0o700).create(&path);
        match &result {
            Ok(()) => return set_mode(&path).map(|()| path),
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
            Err(_) => break,
        }
    }
    result.map(|()| PathBuf::new())
}

/// Lets others read the directory and not write to it, under any mask of the server.
fn set_mode(directory: &Path) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(directory, std::fs::Permissions::from_mode(0o755))
}

fn exists_or(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        result => result,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn links_are_made_in_a_new_directory_that_only_its_owner_may_change() {
        let root = std::env::temp_dir().join(format!("nereid-links-{}", std::process::id()));
        std::fs::create_dir(&root).unwrap();
        let prefix = root.join("server-");
        let (links, other) = (Links::default(), Links::default());
        let get = |links: &Links, name: &str| links.directory(&prefix, name, Path::new("/ours.so")).unwrap();
        let first = get(&links, "a.so");
        assert_eq!(std::fs::read_link(first.join("a.so")).unwrap(), Path::new("/ours.so"));
        assert_eq!(get(&links, "a.so"), first);
        assert_eq!(get(&links, "b.so").parent(), first.parent());
        assert_ne!(get(&other, "a.so"), first);
        for directory in [first.as_path(), first.parent().unwrap()] {
            assert_eq!(std::fs::metadata(directory).unwrap().permissions().mode() & 0o777, 0o755);
        }
        std::fs::remove_dir_all(first.parent().unwrap()).unwrap();
        assert_ne!(get(&links, "a.so"), first, "after it was removed");
        std::fs::remove_dir_all(root).unwrap();
    }
}
