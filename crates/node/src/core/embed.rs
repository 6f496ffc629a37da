//! Requests that another server of this process received.

use super::NativeCore;
use crate::failure::{Result, thrown};
use crate::json::Json;
use crate::{embed, objects as js};
use frontend::embed::Embedded;
use napi::bindgen_prelude::Buffer;
use napi_derive::napi;
use options::ListenOptions;

#[napi]
impl NativeCore {
    /// Accepts requests that another server of this process received. Options as for listeners; binds nothing.
    #[napi]
    pub fn open_embedded(&self, #[napi(ts_arg_type = "ListenOptions")] options: Json<ListenOptions>) -> Result<()> {
        let settle = embed::settle(self.settler()?, self.embedded_bodies.clone());
        self.server.open_embedded(options.0, settle).map_err(|e| thrown(&e))
    }

    fn with_embedded(&self, work: impl FnOnce(&Embedded)) -> Result<()> {
        self.server.with_embedded(work).map_err(|e| thrown(&e))
    }

    /// Begins a request; `ticket` is its number and the ticket of its first call.
    #[napi]
    pub fn embed(
        &self,
        #[napi(ts_arg_type = "Ticket<EmbeddedAnswer>")] ticket: u32,
        request: js::EmbeddedRequest,
    ) -> Result<()> {
        self.with_embedded(|embedded| embedded.begin(ticket, embed::request(request)))
    }

    /// Begins a gRPC call, like `embed`.
    #[napi]
    pub fn embed_call(
        &self,
        #[napi(ts_arg_type = "Ticket<EmbeddedCallAnswer>")] ticket: u32,
        request: js::EmbeddedCall,
    ) -> Result<()> {
        self.with_embedded(|embedded| embedded.call(ticket, embed::call(request)))
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
    ) -> Result<()> {
        self.with_embedded(|embedded| embedded.piece(request, ticket, embed::piece(piece, length), ends))
    }

    /// The requested body of `request`, in pieces; without pieces, `bytes` is its size.
    #[napi]
    pub fn embed_body(
        &self,
        #[napi(ts_arg_type = "Ticket<EmbeddedAnswer>")] ticket: u32,
        request: u32,
        body: Option<Vec<Buffer>>,
        bytes: f64,
    ) -> Result<()> {
        // Copied: JavaScript may write into its buffers as soon as the call returns.
        let gathered = body.map(|pieces| embed::gathered(&pieces)).transpose().map_err(|e| thrown(&e))?;
        self.with_embedded(|embedded| embedded.body(request, ticket, gathered.ok_or(bytes as u64)))
    }

    /// Copies the large body reported for `ticket` into `to`, which has its size. Without `to` it is dropped.
    #[napi]
    pub fn embed_take(&self, ticket: u32, to: Option<Buffer>) -> Result<()> {
        let parts = self.embedded_bodies.lock().remove(&ticket).unwrap_or_default();
        embed::take(&parts, to).map_err(|e| thrown(&e))
    }

    #[napi]
    pub fn embed_next(
        &self,
        #[napi(ts_arg_type = "Ticket<EmbeddedAnswer | EmbeddedCallAnswer>")] ticket: u32,
        request: u32,
    ) -> Result<()> {
        self.with_embedded(|embedded| embedded.next(request, ticket))
    }

    /// Cancels `request`.
    #[napi]
    pub fn embed_give_up(&self, request: u32) {
        // Without it, there is no such request.
        let _ = self.server.with_embedded(|embedded| embedded.cancel(request));
    }
}
