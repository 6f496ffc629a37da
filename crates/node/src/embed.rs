//! Requests that a server in JavaScript received: the HTTP and the gRPC API without a socket of its own.

use crate::objects as js;
use crate::settle::{Settled, Settler};
use bytes::Bytes;
use frontend::embed::{CallEnd, Embedded, EmbeddedCall, EmbeddedRequest, Piece, Settle, Told};
use napi::bindgen_prelude::Buffer;
use std::sync::Arc;

pub fn request(r: js::EmbeddedRequest) -> EmbeddedRequest {
    EmbeddedRequest {
        method: r.method,
        target: r.target,
        fields: r.fields,
        // What is no address is not known.
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

/// A part of what is sent in a call; `length` is that of the message which it begins. Copied, as all that JavaScript may write into.
pub fn piece(bytes: Option<Buffer>, length: Option<f64>) -> Option<Piece> {
    bytes.map(|bytes| match length {
        Some(length) => Piece::first(length as usize, &bytes),
        None => Piece::further(&bytes),
    })
}

/// Reports calls to JavaScript.
pub fn settle(settler: Settler) -> Settle {
    Arc::new(move |call, told| settler.settle(call, told.map(settled)))
}

fn settled(told: Told) -> Settled {
    match told {
        Told::Taken => Settled::Nothing,
        Told::Call { begun, messages, end } => {
            let messages = messages.into_iter().map(Buffer::from).collect();
            let end = end.map(|CallEnd { code, text, trailers }| js::EmbeddedCallEnd {
                code,
                text,
                trailers: trailers.into_iter().flat_map(|(name, value)| [name, value]).collect(),
            });
            Settled::EmbeddedCall(Box::new(js::EmbeddedCallAnswer { begun, messages, end }))
        }
        told => Settled::Embedded(Box::new(answer(told))),
    }
}

fn answer(told: Told) -> js::EmbeddedAnswer {
    let mut answer =
        js::EmbeddedAnswer { wanted: None, status: None, fields: None, body: None, more: None, sized: None };
    match told {
        Told::Wanted { bytes_max } => answer.wanted = Some(bytes_max as f64),
        Told::Reply { status, fields, body, more, sized } => {
            answer.status = Some(u32::from(status));
            answer.fields = Some(fields.into_iter().flat_map(|(name, value)| [name, value]).collect());
            // Copied: external buffers are freed only when the event loop turns, and would pin slabs meanwhile.
            answer.body = Some(Buffer::from(body.to_vec()));
            answer.more = Some(more);
            answer.sized = Some(sized);
        }
        Told::Events { body, done } => {
            answer.body = Some(Buffer::from(body.to_vec()));
            answer.more = Some(!done);
        }
        // They have objects of their own.
        Told::Call { .. } | Told::Taken => {}
    }
    answer
}

/// The body that was wanted: its bytes, or how many it has where it is longer.
pub fn body(embedded: &Embedded, ticket: u32, call: u32, body: Option<Buffer>, bytes: f64) {
    embedded.body(ticket, call, body.map(|body| Bytes::copy_from_slice(&body)).ok_or(bytes as u64));
}
