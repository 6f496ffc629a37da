//! HTTP/2 for a server (RFC 9113, RFC 7541), with connections that stay on one thread.
//!
//! Every tensor passes through here, and the cost shows in small inferences. So there are no locks, atomics or tasks
//! inside: a turn is one read, all its frames, the responses that need no waiting, and one write. A repeated header
//! block is decoded once (`heads`); what the caller derives from it is kept with it.
//!
//! [`Machine`] has no I/O and no clock: it turns bytes into calls and responses into bytes. [`Connection`] drives one
//! over a socket. Handles ([`Body`], [`StreamWriter`]) belong to the thread of their connection and return errors once
//! it is gone. A [`Peer`] replaces the connection for calls from the same process.
//!
//! Not here: the client's side, server push, priorities (frames are checked and ignored), `CONNECT`, upgrades.
//!
//! Every queue has a bound: see [`Options`] and `limits`.

mod collect;
mod connection;
mod core;
mod ends;
mod frame;
mod handle;
mod head;
mod heads;
mod hpack;
mod ledger;
pub mod limits;
mod local;
mod options;
mod output;
mod pieces;
mod socket;
mod wake;
mod yielding;

pub use collect::{Collect, Gone, NotCollected};
pub use connection::Connection;
pub use core::{ConnectionProgress, Machine, Read, Waits};
pub use ends::{Fields, Sent};
pub use frame::Reason;
pub use handle::{Body, Request, StreamWriter};
pub use head::RequestHead;
pub use hpack::Field;
pub use ledger::Room;
pub use local::{BadFields, Peer};
pub use options::{Options, Pings, Times};
pub use socket::Socket;
pub use yielding::yield_turn;

/// Frames and header blocks without a connection, only for the client of the benchmarks.
#[doc(hidden)]
pub mod parts {
    pub use crate::frame::{
        FRAME_BYTES_MIN, FrameHead, HEAD_BYTES, PREFACE, WINDOW_DEFAULT, flag, kind, number31, setting,
    };
    pub use crate::hpack::{Decoder, Encoder};
    pub use crate::output::OutputBuffer;
}
