//! Heads and trailers of responses. A rejected call has one head, which is its trailers, too.

use super::status::Status;
use crate::encoding::Encoding;
use crate::exchange::Exchange;
use crate::limits::UNCHARGED_ANSWER_BYTES_MAX;
use crate::record::WHY;
use crate::rope::Rope;
use bytes::Buf;
use http2::{Field, Gone, StreamWriter};
use memory::{Account, Kind};
use smallvec::SmallVec;
use tensor::Error;

/// Fields of many responses, each sent as one byte from the second time on.
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

/// Begins a response whose messages have this compression.
///
/// # Errors
/// `Gone` if the client disconnected.
pub fn begin(respond: &mut StreamWriter, encoding: Encoding) -> Result<(), Gone> {
    let fields: &[_] = match encoding {
        Encoding::Identity => &HEAD,
        Encoding::Gzip => &HEAD_GZIP,
        Encoding::Deflate => &HEAD_DEFLATE,
    };
    respond.send_head(200, fields, false)
}

type Trailers<'a> = SmallVec<[Field<'a>; 6]>;

/// The record of a call, if its client asked for it.
fn record_field(why: Option<&String>) -> Option<Field<'_>> {
    why.map(|why| Field::Literal(WHY, why.as_bytes()))
}

/// Ends a response that was begun.
pub fn end(respond: &mut StreamWriter, status: &Status) {
    end_with(respond, status, None);
}

/// Like `end`. `why`: the record, if the client asked for it.
pub fn end_with(respond: &mut StreamWriter, status: &Status, why: Option<&String>) {
    // If the client disconnected, there is nothing left to do.
    let _ = match (status.is_ok(), record_field(why)) {
        (true, None) => respond.send_trailers(&[OK]),
        (true, Some(why)) => respond.send_trailers(&[OK, why]),
        (false, why) => status.with_fields(|fields| {
            let all: Trailers<'_> = fields.iter().copied().chain(why).collect();
            respond.send_trailers(&all)
        }),
    };
}

/// Ends a call with a status only. A client that still sends is told to stop when the call is dropped.
pub fn reject(respond: &mut StreamWriter, status: &Status) {
    reject_with(respond, status, None);
}

/// Like `reject`. `why`: the record, if the client asked for it.
pub fn reject_with(respond: &mut StreamWriter, status: &Status, why: Option<&String>) {
    let _ = status.with_fields(|fields| {
        let all: Trailers<'_> = HEAD.iter().chain(fields).copied().chain(record_field(why)).collect();
        respond.send_head(200, &all, true)
    });
}

/// Charges a message that the client may read slowly.
///
/// # Errors
/// RESOURCE_EXHAUSTED if there is no memory for it.
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

/// Ends a unary call with its message, or with an error if the message cannot be charged.
pub fn finish(respond: &mut StreamWriter, exchange: &Exchange, message: Rope, encoding: Encoding) {
    exchange.sending(message.remaining());
    let message = match charge(message.granted(&exchange.grant), &exchange.account) {
        Ok(message) => message,
        Err(error) => {
            let status = error.into();
            exchange.ended(&status);
            return reject_with(respond, &status, exchange.why().as_ref());
        }
    };
    if begin(respond, encoding).is_ok() && respond.send_data(message, false).is_ok() {
        exchange.succeeds();
        end_with(respond, &Status::ok(), exchange.why().as_ref());
    }
    exchange.ended(&Status::ok());
}
