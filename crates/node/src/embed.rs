//! Requests that a server in JavaScript received: the HTTP and gRPC APIs without a socket.

use crate::core::NativeCore;
use crate::failure::thrown;
use crate::json::Json;
use crate::objects as js;
use crate::settle::{Settled, Settler};
use bytes::Bytes;
use frontend::embed::{CallEnd, EmbedEvent, Embedded, EmbeddedCall, EmbeddedRequest, Piece, Settle};
use memory::SlabPool;
use napi::bindgen_prelude::Buffer;
use napi_derive::napi;
use options::ListenOptions;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use tensor::{Error, Result};

/// Larger bodies are copied by the JavaScript thread into memory that it reuses: fresh memory of this size is a mapping
/// of its own (`memory::heap`), whose pages cost more than the bytes.
const LARGE_BYTES_MIN: usize = 256 << 10;

/// Large bodies by ticket, until JavaScript takes them. At most one per open request.
pub type Bodies = Arc<Mutex<HashMap<u32, Vec<Bytes>>>>;

fn request(r: js::EmbeddedRequest) -> EmbeddedRequest {
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

fn call(r: js::EmbeddedCall) -> EmbeddedCall {
    EmbeddedCall {
        path: r.path,
        fields: r.fields,
        peer: r.peer.and_then(|at| at.parse().ok()),
        local: r.local.and_then(|at| at.parse().ok()),
        message: r.message.map(|message| Piece::first(message.len(), &message)),
    }
}

/// Copies a piece of the messages of a call; `length` is that of the message that it begins.
fn piece(bytes: Option<Buffer>, length: Option<f64>) -> Option<Piece> {
    bytes.map(|bytes| match length {
        Some(length) => Piece::first(length as usize, &bytes),
        None => Piece::further(&bytes),
    })
}

/// Reports the progress of calls to JavaScript.
fn settle(settler: Settler, bodies: Bodies) -> Settle {
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
fn gathered(pieces: &[Buffer]) -> Result<Bytes> {
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
fn take(parts: &[Bytes], to: Option<Buffer>) -> Result<()> {
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

#[napi]
impl NativeCore {
    /// Accepts requests that another server of this process received. Options as for listeners; binds nothing.
    #[napi]
    pub fn open_embedded(
        &self,
        #[napi(ts_arg_type = "ListenOptions")] options: Json<ListenOptions>,
    ) -> crate::failure::Result<()> {
        let settle = settle(self.settler()?, self.embedded_bodies.clone());
        self.server.open_embedded(options.0, settle).map_err(|e| thrown(&e))
    }

    fn with_embedded(&self, work: impl FnOnce(&Embedded)) -> crate::failure::Result<()> {
        self.server.with_embedded(work).map_err(|e| thrown(&e))
    }

    /// Begins a request; `ticket` is its number and the ticket of its first call.
    #[napi]
    pub fn embed(
        &self,
        #[napi(ts_arg_type = "Ticket<EmbeddedAnswer>")] ticket: u32,
        request: js::EmbeddedRequest,
    ) -> crate::failure::Result<()> {
        self.with_embedded(|embedded| embedded.begin(ticket, self::request(request)))
    }

    /// Begins a gRPC call, like `embed`.
    #[napi]
    pub fn embed_call(
        &self,
        #[napi(ts_arg_type = "Ticket<EmbeddedCallAnswer>")] ticket: u32,
        request: js::EmbeddedCall,
    ) -> crate::failure::Result<()> {
        self.with_embedded(|embedded| embedded.call(ticket, call(request)))
    }

    /// A further piece of the messages of call `request`; `length` is that of the message that the piece begins.
    #[napi]
    pub fn embed_piece(
        &self,
        #[napi(ts_arg_type = "Ticket<void>")] ticket: u32,
        request: u32,
        piece: Option<Buffer>,
        length: Option<f64>,
        ends: bool,
    ) -> crate::failure::Result<()> {
        self.with_embedded(|embedded| embedded.piece(request, ticket, self::piece(piece, length), ends))
    }

    /// The requested body of `request`, in pieces; without pieces, `bytes` is its size.
    #[napi]
    pub fn embed_body(
        &self,
        #[napi(ts_arg_type = "Ticket<EmbeddedAnswer>")] ticket: u32,
        request: u32,
        body: Option<Vec<Buffer>>,
        bytes: f64,
    ) -> crate::failure::Result<()> {
        // Copied: JavaScript may write into its buffers as soon as the call returns.
        let gathered = body.map(|pieces| gathered(&pieces)).transpose().map_err(|e| thrown(&e))?;
        self.with_embedded(|embedded| embedded.body(request, ticket, gathered.ok_or(bytes as u64)))
    }

    /// Copies the large body reported for `ticket` into `to`, which has its size. Without `to` it is dropped.
    #[napi]
    pub fn embed_take(&self, ticket: u32, to: Option<Buffer>) -> crate::failure::Result<()> {
        let parts = self.embedded_bodies.lock().remove(&ticket).unwrap_or_default();
        take(&parts, to).map_err(|e| thrown(&e))
    }

    #[napi]
    pub fn embed_next(
        &self,
        #[napi(ts_arg_type = "Ticket<EmbeddedAnswer | EmbeddedCallAnswer>")] ticket: u32,
        request: u32,
    ) -> crate::failure::Result<()> {
        self.with_embedded(|embedded| embedded.next(request, ticket))
    }

    /// Cancels `request`.
    #[napi]
    pub fn embed_give_up(&self, request: u32) {
        // Without it, there is no such request.
        let _ = self.server.with_embedded(|embedded| embedded.cancel(request));
    }
}
