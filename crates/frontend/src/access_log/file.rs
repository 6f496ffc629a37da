//! The file of a log: regular file, FIFO, device, or standard output. A regular file is reopened after a rotation.
//!
//! Writes block, so only the thread of a log calls this. Standard output and pipes may have other writers, such as the
//! server's own log: lines are written to them in whole, up to `PIPE_BYTES` at a time, which the kernel does not mix.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::time::{Duration, Instant};

/// Interval of the checks whether the path still names the open file.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// Bytes that a pipe takes atomically.
const PIPE_BYTES: usize = 4096;
/// Pause before a write is repeated, if another process made the descriptor non-blocking.
const BUSY_PAUSE: Duration = Duration::from_millis(10);

/// The open file of a log.
#[derive(Debug)]
pub struct LogFile {
    path: String,
    file: File,
    /// `None` for standard output, FIFOs and devices, which are never reopened.
    identity: Option<Identity>,
    is_shared: bool,
    looked: Instant,
    /// The last line was cut, so a line feed must precede the next one.
    is_torn: bool,
}

/// Device and inode.
type Identity = (u64, u64);

impl LogFile {
    /// Opens `path`; `-` is standard output. A new file has mode 0640.
    ///
    /// # Errors
    /// The error of the system call.
    pub fn open(path: &str) -> io::Result<Self> {
        let (file, identity, is_shared) = if path == "-" { (stdout()?, None, true) } else { open(path)? };
        Ok(Self { path: path.to_owned(), file, identity, is_shared, looked: Instant::now(), is_torn: false })
    }

    /// Reopens the file if its path names another file or none. If that fails, lines still go to the old file. Checks
    /// at most every `LOOK_INTERVAL`, unless `at_once`.
    ///
    /// # Errors
    /// The error of the system call that opens the file.
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

    /// Writes lines. Waits for a reader that takes nothing until `is_over`.
    ///
    /// # Errors
    /// Number of bytes that were written, and the error of the system call.
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

    #[expect(clippy::disallowed_methods, reason = "a full pipe; the server may end meanwhile")]
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

/// The whole lines that a pipe takes atomically, or part of a longer line.
fn piece(lines: &[u8]) -> &[u8] {
    let Some(first) = lines.get(..PIPE_BYTES) else { return lines };
    let end = memchr::memrchr(b'\n', first).map_or(PIPE_BYTES, |at| at + 1);
    lines.get(..end).unwrap_or(lines)
}

fn stdout() -> io::Result<File> {
    use std::os::fd::AsFd;
    Ok(io::stdout().as_fd().try_clone_to_owned()?.into())
}

fn open(path: &str) -> io::Result<(File, Option<Identity>, bool)> {
    use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
    let is_fifo = std::fs::metadata(path).is_ok_and(|m| m.file_type().is_fifo());
    let file = match is_fifo {
        // Opened for writing only, it would block until there is a reader. With its own reading end, which is never
        // used, it does not, and readers may come and go.
        true => OpenOptions::new().read(true).write(true).open(path)?,
        false => OpenOptions::new().append(true).create(true).mode(0o640).open(path)?,
    };
    let metadata = file.metadata()?;
    let identity = metadata.is_file().then(|| (metadata.dev(), metadata.ino()));
    Ok((file, identity, !metadata.is_file()))
}

fn named(path: &str) -> Option<Identity> {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata(path).ok().map(|m| (m.dev(), m.ino()))
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

    #[test]
    fn a_file_that_was_moved_is_reopened() {
        use std::os::unix::fs::PermissionsExt;
        let directory = std::env::temp_dir().join(format!("nereid-file-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let (path, moved) = (directory.join("a.log"), directory.join("a.log.1"));
        let mut file = LogFile::open(path.to_str().unwrap()).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o137, 0, "at most 0640");
        let begin = Instant::now();
        file.write(b"1\n", || false).unwrap();
        std::fs::rename(&path, &moved).unwrap();
        file.look(begin, false).unwrap();
        file.write(b"2\n", || false).unwrap();
        file.look(begin + LOOK_INTERVAL + Duration::from_secs(1), false).unwrap();
        file.write(b"3\n", || false).unwrap();
        assert_eq!(std::fs::read(&moved).unwrap(), b"1\n2\n");
        assert_eq!(std::fs::read(&path).unwrap(), b"3\n");
        std::fs::remove_dir_all(&directory).unwrap();
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn an_error_of_a_full_disk_tells_how_many_bytes_were_written() {
        let mut file = LogFile::open("/dev/full").unwrap();
        let (written, error) = file.write(b"1\n2\n", || false).unwrap_err();
        assert_eq!((written, error.raw_os_error()), (0, Some(28)));
    }
}
