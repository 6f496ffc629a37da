//! Inferences of the in-process API.

use super::NativeCore;
use crate::failure::{Result, thrown};
use crate::settle::Settled;
use crate::stream::Pull;
use crate::{infer, objects as js};
use engine::Started;
use napi_derive::napi;
use protocol::InferResponse;
use std::sync::Arc;
use tensor::Error;

#[napi]
impl NativeCore {
    /// Starts an inference with one response; `cancel` cancels it.
    #[napi]
    pub fn infer(
        &self,
        #[napi(ts_arg_type = "Ticket<NativeInferResponse>")] ticket: u32,
        request: js::NativeInferRequest,
    ) -> Result<()> {
        let settler = self.settler()?;
        let (name, version) = (request.model.clone(), request.version.clone());
        let started = self.server.engine().model(&name, &version).and_then(|model| {
            protocol::grpc::reject_decoupled(&model.signature)?;
            let request = infer::request(request)?;
            let (settler, tickets, signature) = (settler.clone(), self.tickets.clone(), model.signature.clone());
            let answered = move |result: tensor::Result<Box<InferResponse>>| {
                tickets.lock().remove(&ticket);
                let result = result.and_then(|r| infer::response(*r, &signature));
                settler.settle(ticket, result.map(|r| Settled::Response(Box::new(r))));
            };
            let sink = answered.clone();
            let started = model.call(Box::new(request), || Arc::new(infer::OnlyAnswer::new(sink)), None)?;
            Ok(match started {
                Started::Answered(result) => {
                    answered(result);
                    None
                }
                Started::Queued(handle) => Some(handle),
            })
        });
        match started {
            Ok(None) => {}
            Ok(Some(handle)) => {
                // Locked before the check: a response either came already or will find the handle to remove.
                let mut tickets = self.tickets.lock();
                if !handle.is_settled() {
                    tickets.insert(ticket, handle);
                }
            }
            Err(e) => settler.settle(ticket, Err(e)),
        }
        Ok(())
    }

    #[napi]
    pub fn cancel(&self, ticket: u32) {
        let pull = self.streams.lock().remove(&ticket);
        if let Some(pull) = pull {
            return pull.cancel();
        }
        let handle = self.tickets.lock().remove(&ticket);
        if let Some(handle) = handle {
            handle.cancel();
        }
    }

    /// Starts a request with any number of responses. Throws if rejected; otherwise call `cancel(ticket)` once, at the
    /// end.
    #[napi]
    pub fn infer_stream(&self, ticket: u32, request: js::NativeInferRequest) -> Result<()> {
        let settler = self.settler()?;
        let model = self.server.engine().model(&request.model, &request.version).map_err(|e| thrown(&e))?;
        let pull = infer::request(request).and_then(|request| Pull::start(settler, &model, request));
        self.streams.lock().insert(ticket, pull.map_err(|e| thrown(&e))?);
        Ok(())
    }

    /// The available responses of request `stream`, at least one unless it has ended. Rejects with the first error,
    /// which is the last result; after `cancel` with CANCELLED. One call at a time.
    #[napi]
    pub fn next_responses(
        &self,
        #[napi(ts_arg_type = "Ticket<NextResponses>")] ticket: u32,
        stream: u32,
    ) -> Result<()> {
        let pull = self.streams.lock().get(&stream).cloned();
        pull.ok_or_else(|| thrown(&Error::cancelled("")))?.next(ticket);
        Ok(())
    }
}
