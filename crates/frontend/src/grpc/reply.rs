//! What a call answers besides messages: heads, trailers, and refusals, which are both at once.

use super::status::Status;
use crate::encoding::Encoding;
use crate::limits::UNCHARGED_ANSWER_BYTES_MAX;
use crate::rope::Rope;
use bytes::Buf;
use http2::{Field, Gone, StreamWriter};
use memory::{Account, Kind};
use tensor::Error;

/// Fields that repeat: one byte each from the second time on.
pub const FIXED: [(&str, &str); 5] = [
    ("content-type", "application/grpc"),
    ("grpc-accept-encoding", "identity,deflate,gzip"),
    ("grpc-status", "0"),
    ("grpc-encoding", "gzip"),
    ("grpc-encoding", "deflate"),
];
const HEAD: [Field<'static>; 2] = [Field::Fixed(0), Field::Fixed(1)];
const OK: Field<'static> = Field::Fixed(2);
const HEAD_GZIP: [Field<'static>; 3] = [Field::Fixed(0), Field::Fixed(1), Field::Fixed(3)];
const HEAD_DEFLATE: [Field<'static>; 3] = [Field::Fixed(0), Field::Fixed(1), Field::Fixed(4)];

/// Begins a response whose messages are packed like this.
///
/// # Errors
/// `Gone`, here and below, means that the client is.
pub fn begin(respond: &mut StreamWriter, encoding: Encoding) -> Result<(), Gone> {
    let fields: &[_] = match encoding {
        Encoding::Identity => &HEAD,
        Encoding::Gzip => &HEAD_GZIP,
        Encoding::Deflate => &HEAD_DEFLATE,
    };
    respond.send_head(200, fields, false)
}

/// Ends a response that was begun.
pub fn end(respond: &mut StreamWriter, status: &Status) {
    // The client is gone, or it is not: there is nothing more to say in either case.
    let _ = match status.is_ok() {
        true => respond.send_trailers(&[OK]),
        false => status.with_fields(|fields| respond.send_trailers(fields)),
    };
}

/// Ends a call that has nothing but a status. A client that still sends is told to stop when the call is dropped.
pub fn refuse(respond: &mut StreamWriter, status: &Status) {
    let _ = status.with_fields(|fields| {
        let all: smallvec::SmallVec<[Field<'_>; 4]> = HEAD.iter().chain(fields).copied().collect();
        respond.send_head(200, &all, true)
    });
}

/// Charges a message that its client may be slow to read.
///
/// # Errors
/// RESOURCE_EXHAUSTED when there is no memory for it.
pub fn charge(message: Rope, account: &Account) -> Result<Rope, Error> {
    let length = message.remaining();
    if length <= UNCHARGED_ANSWER_BYTES_MAX {
        return Ok(message);
    }
    match account.charge(Kind::Answer, false, length) {
        Ok(charge) => Ok(message.charged(charge)),
        Err(short) => {
            account.count_refusal();
            Err(short.into())
        }
    }
}

/// Ends a call with its one message, or without: how it ended.
pub fn finish(respond: &mut StreamWriter, message: Rope, encoding: Encoding, account: &Account) -> Result<(), Status> {
    let message = match charge(message, account) {
        Ok(message) => message,
        Err(error) => {
            let status = error.into();
            refuse(respond, &status);
            return Err(status);
        }
    };
    if begin(respond, encoding).is_ok() && respond.send_data(message, false).is_ok() {
        let _ = respond.send_trailers(&[OK]);
    }
    Ok(())
}
