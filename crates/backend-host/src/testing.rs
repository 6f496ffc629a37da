//! A connection whose server is a test.

use crate::link::Link;
use crate::segments::{Flags, Segments};
use frames::generated::Header;
use frames::{AnswerRef, FromRunner};
use parking_lot::Mutex;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

/// The server's end of a connection.
pub(crate) struct FakeServer {
    pub(crate) link: Arc<Link>,
    side: Mutex<UnixStream>,
    /// Kept open.
    _work: UnixStream,
}

/// Bytes of each segment.
const SEGMENT_BYTES: u64 = 1 << 20;

/// A connection, and its server.
pub(crate) fn connection() -> (Arc<Link>, FakeServer) {
    let (work, other_work) = UnixStream::pair().expect("sockets");
    let (side, other_side) = UnixStream::pair().expect("sockets");
    let segments = Segments::new(&memory(), &memory()).expect("segments");
    let link = Link::new(work, side, segments, Flags::new(&memory()).expect("flags"));
    (Arc::clone(&link), FakeServer { link, side: Mutex::new(other_side), _work: other_work })
}

fn memory() -> OwnedFd {
    let memory = rustix::fs::memfd_create("test", rustix::fs::MemfdFlags::CLOEXEC).expect("memory");
    rustix::fs::ftruncate(&memory, SEGMENT_BYTES).expect("memory");
    memory
}

impl FakeServer {
    /// Waits for the next frame on the side socket.
    pub(crate) fn side_frame<T>(&self, use_it: impl FnOnce(FromRunner<'_>) -> T) -> T {
        let mut side = self.side.lock();
        let mut bytes = vec![0; Header::BYTES];
        side.read_exact(&mut bytes).expect("a header");
        let length = Header::read(bytes.first_chunk().expect("a header")).length as usize;
        bytes.resize(Header::BYTES + length, 0);
        side.read_exact(&mut bytes[Header::BYTES..]).expect("a body");
        drop(side);
        let (header, body, _) = frames::split(&bytes).expect("valid").expect("whole");
        use_it(frames::read(&header, body).expect("a frame"))
    }

    /// Waits for the next CONTROL.
    pub(crate) fn question(&self) -> String {
        self.side_frame(|frame| match frame {
            FromRunner::Control(json) => json.to_owned(),
            other => panic!("{other:?}"),
        })
    }

    /// Answers a CONTROL with members of an object.
    pub(crate) fn result(&self, question: &str, members: &str) {
        let id = &crate::json::read::<serde_json::Value>(question).expect("JSON")["id"];
        self.link.control_result(&format!(r#"{{"id":{id},{members}}}"#));
    }

    /// Answers a CALL.
    pub(crate) fn respond(&self, call: u64, answer: &AnswerRef<'_>) {
        self.link.call_response(call, answer);
    }
}
