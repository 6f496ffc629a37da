//! Requests that a server in JavaScript received: the HTTP and gRPC APIs without a socket.

use crate::objects as js;
use crate::settle::{Settled, Settler};
use bytes::Bytes;
use frontend::embed::{CallEnd, EmbedEvent, EmbeddedCall, EmbeddedRequest, Piece, Settle};
use memory::SlabPool;
use napi::bindgen_prelude::Buffer;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use tensor::{Error, Result};

/// Larger bodies are copied by the JavaScript thread into memory that it reuses: fresh memory of this size is a mapping
/// of its own (`memory::heap`), whose pages cost more than the bytes.
const LARGE_BYTES_MIN: usize = 256 << 10;

/// Large bodies by ticket, until JavaScript takes them. At most one per open request.
pub type Bodies = Arc<Mutex<HashMap<u32, Vec<Bytes>>>>;

pub fn request(r: js::EmbeddedRequest) -> EmbeddedRequest {
    EmbeddedRequest {
        method: r.method,
        target: r.target,
        fields: r.fields,
        // An invalid address counts as unknown.
        peer: r.peer.and_then(|at| at.parse().ok()),
        local: r.local.and_then(|at| at.parse().ok()),
        // Copied: JavaScript may write into its buffer as soon as the call returns.
        body: r.body.map(|body| Bytes::copy_from_slice(&body)),
    }
}

pub fn call(r: js::EmbeddedCall) -> EmbeddedCall {
    EmbeddedCall {
        path: r.path,
        fields: r.fields,
        peer: r.peer.and_then(|at| at.parse().ok()),
        local: r.local.and_then(|at| at.parse().ok()),
        message: r.message.map(|message| Piece::first(message.len(), &message)),
    }
}

/// Copies a piece of the messages of a call; `length` is that of the message that it begins.
pub fn piece(bytes: Option<Buffer>, length: Option<f64>) -> Option<Piece> {
    bytes.map(|bytes| match length {
        Some(length) => Piece::first(length as usize, &bytes),
        None => Piece::further(&bytes),
    })
}

/// Reports the progress of calls to JavaScript.
pub fn settle(settler: Settler, bodies: Bodies) -> Settle {
    Arc::new(move |call, event| settler.settle(call, event.map(|event| settled(call, event, &bodies))))
}

fn settled(call: u32, event: EmbedEvent, bodies: &Bodies) -> Settled {
    match event {
        EmbedEvent::Taken => Settled::Nothing,
        EmbedEvent::Call { begun, messages, end } => {
            let messages = messages.into_iter().map(Buffer::from).collect();
            let end = end.map(|CallEnd { code, text, trailers }| js::EmbeddedCallEnd {
                code,
                text,
                trailers: trailers.into_iter().flat_map(|(name, value)| [name, value]).collect(),
            });
            Settled::EmbeddedCall(Box::new(js::EmbeddedCallAnswer { begun, messages, end }))
        }
        event => Settled::Embedded(Box::new(answer(call, event, bodies))),
    }
}

fn answer(call: u32, event: EmbedEvent, bodies: &Bodies) -> js::EmbeddedAnswer {
    let mut answer = js::EmbeddedAnswer::default();
    match event {
        EmbedEvent::ReadBody { bytes_max } => answer.wanted = Some(bytes_max as f64),
        EmbedEvent::Reply { status, fields, body, more, sized } => {
            answer.status = Some(u32::from(status));
            answer.fields = Some(fields.into_iter().flat_map(|(name, value)| [name, value]).collect());
            // Copied: external buffers are freed only by garbage collection and would pin slabs meanwhile.
            let bytes = body.iter().map(Bytes::len).sum::<usize>();
            if bytes < LARGE_BYTES_MIN {
                answer.body = Some(Buffer::from(body.concat()));
            } else {
                answer.large = Some(bytes as f64);
                bodies.lock().insert(call, body);
            }
            answer.more = Some(more);
            answer.sized = Some(sized);
        }
        EmbedEvent::Events { body, done } => {
            answer.body = Some(Buffer::from(body.to_vec()));
            answer.more = Some(!done);
        }
        // These have objects of their own.
        EmbedEvent::Call { .. } | EmbedEvent::Taken => {}
    }
    answer
}

/// Joins the pieces of a body.
///
/// # Errors
/// RESOURCE_EXHAUSTED if there is no memory for it.
pub fn gathered(pieces: &[Buffer]) -> Result<Bytes> {
    let mut slab = SlabPool::global().get(pieces.iter().map(|piece| piece.len()).sum())?;
    let mut rest = &mut slab[..];
    for piece in pieces {
        let (to, behind) = rest.split_at_mut(piece.len());
        to.copy_from_slice(piece);
        rest = behind;
    }
    Ok(slab.freeze())
}

/// Copies the parts of a body into `to`, or drops them.
///
/// # Errors
/// INVALID_ARG if `to` has another length than the parts.
pub fn take(parts: &[Bytes], to: Option<Buffer>) -> Result<()> {
    let Some(mut to) = to else { return Ok(()) };
    let bytes = parts.iter().map(Bytes::len).sum::<usize>();
    if to.len() != bytes {
        return Err(Error::invalid(format!("a buffer of {} bytes is too small for a body of {bytes}", to.len())));
    }
    let mut rest = &mut to[..];
    for part in parts {
        let (to, behind) = rest.split_at_mut(part.len());
        to.copy_from_slice(part);
        rest = behind;
    }
    Ok(())
}
