//! HTTP/2 as a server needs it (RFC 9113, RFC 7541), for connections that live on one thread.
//!
//! It is on the way of every tensor, and what it costs is what a small inference costs. So there is no lock, no atomic and no task
//! inside: a turn is one read, all frames of it, the answers of every call that needs no waiting, one write. A header block that
//! was decoded before and means the same is not decoded again (`heads`), and what its reader made of it is kept with it.
//!
//! [`Machine`] has no I/O and no clock: bytes in, calls out; answers in, bytes out. [`Connection`] drives one over a socket.
//! Handles ([`Body`], [`Responder`]) belong to the thread of their connection and stay harmless when it is gone. A [`Peer`] stands in for a
//! connection where calls come from the same process.
//!
//! What it does not do: the client's side, server push, priorities (frames are checked and ignored), `CONNECT`, upgrades.
//!
//! Every queue here has a bound: see [`Options`] and `limits`.

mod collect;
mod connection;
mod core;
mod ends;
mod frame;
mod handle;
mod head;
mod heads;
mod hpack;
mod later;
mod ledger;
pub mod limits;
mod local;
mod options;
mod output;
mod pieces;
mod socket;
mod wake;

pub use collect::{Collect, Gone, NotCollected};
pub use connection::Connection;
pub use core::{Machine, Read};
pub use ends::{Fields, Sent};
pub use frame::Reason;
pub use handle::{Body, Request, Responder};
pub use head::RequestHead;
pub use hpack::Field;
pub use later::go_on_later;
pub use ledger::Room;
pub use local::{BadFields, Peer};
pub use options::{Options, Pings, Times};
pub use socket::Socket;

/// Frames and header blocks without a connection, for the client of the benchmarks. No part of what a server needs.
#[doc(hidden)]
pub mod parts {
    pub use crate::frame::{
        FRAME_BYTES_MIN, FrameHead, HEAD_BYTES, PREFACE, WINDOW_DEFAULT, flag, kind, number31, setting,
    };
    pub use crate::hpack::{Decoder, Encoder};
    pub use crate::output::Output;
}
