//! Where a log goes: a file, a FIFO, a device, or standard output. Opened again when its name means another file, as after a rotation.
//!
//! Writes block, which is what the thread of a log is for. Standard output and pipes have other writers, the server's log among them:
//! there whole lines of up to `PIPE_BYTES` are written at a time, which the kernel does not mix with those of others.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::time::{Duration, Instant};

/// How often it is looked whether the name means another file.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// What a pipe takes at once.
const PIPE_BYTES: usize = 4096;
/// A descriptor that someone else made non-blocking takes nothing for a moment: the pause before the next try.
const BUSY_PAUSE: Duration = Duration::from_millis(10);

/// An open log.
#[derive(Debug)]
pub struct LogFile {
    path: String,
    file: File,
    /// Which file it is; `None` where a name has no bearing on that: standard output, FIFOs, devices.
    identity: Option<Identity>,
    is_shared: bool,
    looked: Instant,
    /// The last line was cut: the next one must not be taken for its end.
    is_torn: bool,
}

/// Device and inode.
type Identity = (u64, u64);

impl LogFile {
    /// Opens `path`; `-` is standard output. A new file may be read by its owner and group, and written by its owner.
    ///
    /// # Errors
    /// The system's.
    pub fn open(path: &str) -> io::Result<Self> {
        let (file, identity, is_shared) = if path == "-" { (stdout()?, None, true) } else { open(path)? };
        Ok(Self { path: path.to_owned(), file, identity, is_shared, looked: Instant::now(), is_torn: false })
    }

    /// Opens the file again if its name means another one by now, or none: it was moved away. If that fails, lines go on to the old one.
    /// Looks once in a while only, unless it is to be `at_once`.
    ///
    /// # Errors
    /// Why it could not be opened.
    pub fn look(&mut self, now: Instant, at_once: bool) -> io::Result<()> {
        let Some(identity) = self.identity else { return Ok(()) };
        if !at_once && now.duration_since(self.looked) < LOOK_INTERVAL {
            return Ok(());
        }
        self.looked = now;
        if named(&self.path) == Some(identity) {
            return Ok(());
        }
        (self.file, self.identity, self.is_shared) = open(&self.path)?;
        self.is_torn = false;
        Ok(())
    }

    /// Writes lines. `is_over` says when it is to give up on a reader that takes nothing.
    ///
    /// # Errors
    /// Bytes that were written, and the system's reason.
    pub fn write(&mut self, lines: &[u8], is_over: impl Fn() -> bool) -> Result<(), (usize, io::Error)> {
        let mut written = 0;
        if self.is_torn {
            self.put(b"\n", &is_over).map_err(|(_, e)| (0, e))?;
            self.is_torn = false;
        }
        while let Some(rest) = lines.get(written..).filter(|rest| !rest.is_empty()) {
            let piece = if self.is_shared { piece(rest) } else { rest };
            match self.put(piece, &is_over) {
                Ok(()) => written += piece.len(),
                Err((n, error)) => {
                    written += n;
                    self.is_torn = n > 0 && piece.get(n - 1) != Some(&b'\n');
                    return Err((written, error));
                }
            }
        }
        Ok(())
    }

    #[expect(clippy::disallowed_methods, reason = "a pipe that is full, and the end of the server may come meanwhile")]
    fn put(&mut self, bytes: &[u8], is_over: &impl Fn() -> bool) -> Result<(), (usize, io::Error)> {
        let mut written = 0;
        while let Some(rest) = bytes.get(written..).filter(|rest| !rest.is_empty()) {
            match self.file.write(rest) {
                Ok(0) => return Err((written, io::ErrorKind::WriteZero.into())),
                Ok(n) => written += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) if e.kind() == io::ErrorKind::WouldBlock && !is_over() => std::thread::sleep(BUSY_PAUSE),
                Err(e) => return Err((written, e)),
            }
        }
        Ok(())
    }
}

/// As many whole lines as a pipe takes at once; of a longer line a part.
fn piece(lines: &[u8]) -> &[u8] {
    let Some(first) = lines.get(..PIPE_BYTES) else { return lines };
    let end = memchr::memrchr(b'\n', first).map_or(PIPE_BYTES, |at| at + 1);
    lines.get(..end).unwrap_or(lines)
}

#[cfg(unix)]
fn stdout() -> io::Result<File> {
    use std::os::fd::AsFd;
    Ok(io::stdout().as_fd().try_clone_to_owned()?.into())
}

#[cfg(not(unix))]
fn stdout() -> io::Result<File> {
    Err(io::ErrorKind::Unsupported.into())
}

#[cfg(unix)]
fn open(path: &str) -> io::Result<(File, Option<Identity>, bool)> {
    use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
    let is_fifo = std::fs::metadata(path).is_ok_and(|m| m.file_type().is_fifo());
    let file = match is_fifo {
        // Opened for writing alone it would wait for a reader. With this end to read from, which is never used, it does not, and
        // readers may come and go.
        true => OpenOptions::new().read(true).write(true).open(path)?,
        false => OpenOptions::new().append(true).create(true).mode(0o640).open(path)?,
    };
    let metadata = file.metadata()?;
    let identity = metadata.is_file().then(|| (metadata.dev(), metadata.ino()));
    Ok((file, identity, !metadata.is_file()))
}

#[cfg(unix)]
fn named(path: &str) -> Option<Identity> {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata(path).ok().map(|m| (m.dev(), m.ino()))
}

#[cfg(not(unix))]
fn open(path: &str) -> io::Result<(File, Option<Identity>, bool)> {
    Ok((OpenOptions::new().append(true).create(true).open(path)?, None, false))
}

#[cfg(not(unix))]
fn named(_: &str) -> Option<Identity> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_end_with_a_line_where_they_can() {
        let line = |n: usize| [vec![b'x'; n - 1], vec![b'\n']].concat();
        let check = |lengths: &[usize], expected: usize| {
            let all: Vec<u8> = lengths.iter().flat_map(|&n| line(n)).collect();
            assert_eq!(piece(&all).len(), expected, "{lengths:?}");
        };
        check(&[10, 20], 30);
        check(&[4000, 96], 4096);
        check(&[4000, 97], 4000);
        check(&[1000, 1000, 1000, 1000, 1000], 4000);
        check(&[5000], 4096);
        check(&[4097, 3], 4096);
    }

    #[cfg(unix)]
    #[test]
    fn a_file_that_was_moved_away_is_opened_again() {
        use std::os::unix::fs::PermissionsExt;
        let directory = std::env::temp_dir().join(format!("nereid-place-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let (path, moved) = (directory.join("a.log"), directory.join("a.log.1"));
        let mut place = LogFile::open(path.to_str().unwrap()).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o137, 0, "at most 0640");
        let begin = Instant::now();
        place.write(b"1\n", || false).unwrap();
        std::fs::rename(&path, &moved).unwrap();
        place.look(begin, false).unwrap();
        place.write(b"2\n", || false).unwrap();
        place.look(begin + LOOK_INTERVAL + Duration::from_secs(1), false).unwrap();
        place.write(b"3\n", || false).unwrap();
        assert_eq!(std::fs::read(&moved).unwrap(), b"1\n2\n");
        assert_eq!(std::fs::read(&path).unwrap(), b"3\n");
        std::fs::remove_dir_all(&directory).unwrap();
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_full_disk_is_an_error_with_what_was_written() {
        let mut place = LogFile::open("/dev/full").unwrap();
        let (written, error) = place.write(b"1\n2\n", || false).unwrap_err();
        assert_eq!((written, error.raw_os_error()), (0, Some(28)));
    }
}
