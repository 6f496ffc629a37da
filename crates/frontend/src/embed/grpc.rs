//! gRPC without a socket, for calls that another server in the same process has received. Messages cross as bytes. The
//! calls are served by `grpc::call`, like those of connections, on a stream whose client end ([`Peer`]) is here.
//!
//! A call begins with its metadata and, if it has a single small message, with that message. Other messages follow in
//! pieces, each acknowledged when there is room for the next. Responses are pulled, so that they wait in the stream,
//! where they are counted.

use super::crossing::{EmbedEvent, EmbedInput, Settle};
use super::piece::{CallEnd, Piece};
use crate::failure::FAULT;
use crate::grpc::call;
use crate::grpc::context::GrpcContext;
use crate::grpc::message::PREFIX_BYTES;
use crate::grpc::reply::FIXED;
use crate::grpc::status::{PUSHBACK, Status, code};
use crate::http::decode::percent_decode;
use crate::limits::{
    EMBEDDED_BYTES_PER_CALL, EMBEDDED_EVENTS_PER_CALL_MAX, EMBEDDED_PIECE_BYTES_MAX, HEADER_LIST_BYTES_MAX,
    SEND_BUFFER_BYTES_MAX,
};
use crate::origin::{Caller, Client, Face, Origin};
use http2::{Fields, Peer, Reason, Sent};
use memory::{Account, Kind, SMALL_BYTES_MAX};
use std::future::poll_fn;
use std::net::SocketAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use tensor::{Error, Result};
use tokio::sync::mpsc::UnboundedReceiver;

/// A call that another server has received. Owns all its bytes.
#[derive(Debug, Default)]
pub struct EmbeddedCall {
    /// Path, such as `/inference.GRPCInferenceService/ModelInfer`.
    pub path: String,
    /// Metadata: names and values by turns, values of `-bin` names in base64. No compression fields: messages are not
    /// compressed here.
    pub fields: Vec<String>,
    /// Address of the client. Without it the call counts as one from the network.
    pub peer: Option<SocketAddr>,
    /// Address of the server's end of the connection.
    pub local: Option<SocketAddr>,
    /// The only message; `None` = messages follow.
    pub message: Option<Piece>,
}

/// Serves one call to its end.
pub(super) async fn run(
    context: &Arc<GrpcContext>,
    account: Rc<Account>,
    ticket: u32,
    request: EmbeddedCall,
    said: UnboundedReceiver<EmbedInput>,
    settle: Settle,
) {
    let EmbeddedCall { path, fields, peer, local, message } = request;
    let mut calls = ScriptCalls { settle, said, next: Some(ticket), pushing: None };
    let pairs = fields.chunks_exact(2).filter_map(|pair| Some((pair.first()?.as_str(), pair.get(1)?.as_bytes())));
    let fields = std::iter::once(("content-type", &b"application/grpc"[..])).chain(pairs);
    let begun = Peer::begin(&path, fields, HEADER_LIST_BYTES_MAX as usize, &FIXED, SEND_BUFFER_BYTES_MAX);
    let Ok((stream, request, respond)) = begun else {
        let text = format!(
            "the path or the metadata of a call is against HTTP/2, \
             or longer than {HEADER_LIST_BYTES_MAX} bytes together"
        );
        return calls.end(Status::new(code::INTERNAL, text));
    };
    let origin = peer.map_or(Origin::Network, |peer| Origin::of(peer, || local));
    let client = Client::from(Caller { origin, face: Face::Embedded, peer });
    if let Some(piece) = message {
        if let Err(status) = push(&stream, &account, piece) {
            return calls.end(status);
        }
        stream.end();
    }
    let mut start = Some((request, respond));
    let mut exchange = Exchange { calls, stream, account, service: None, answer: PartialResponse::default() };
    let over = poll_fn(|cx| {
        if let Some((request, respond)) = start.take() {
            let service = call::begin(context, cx, &client, &exchange.account, request, respond);
            exchange.service = service.map(|rest| -> Service { rest });
        }
        exchange.poll(cx)
    });
    if let Over::Cancelled = over.await {
        exchange.calls.cancel();
        exchange.stream.reset(Reason::CANCEL);
        // The service sees a client that disconnected, and ends.
        if let Some(service) = exchange.service {
            service.await;
        }
    }
}

/// How an exchange ended.
enum Over {
    Completed,
    Cancelled,
}

type Service = Pin<Box<dyn Future<Output = ()>>>;

/// Passes a piece to the service. A whole message is charged here, others where they are assembled, which may wait.
fn push(stream: &Peer, account: &Account, piece: Piece) -> Result<(), Status> {
    let Piece { mut bytes, is_whole } = piece;
    if is_whole {
        let charge = account
            .charge(Kind::Body, bytes.len() <= SMALL_BYTES_MAX, bytes.len())
            .inspect_err(|_| account.count_refusal())?;
        bytes = charge.hold(bytes);
    }
    stream.push(bytes);
    Ok(())
}

/// The open calls of JavaScript.
struct ScriptCalls {
    settle: Settle,
    said: UnboundedReceiver<EmbedInput>,
    next: Option<u32>,
    pushing: Option<u32>,
}

impl ScriptCalls {
    fn report(&self, call: u32, event: Result<EmbedEvent>) {
        (self.settle)(call, event);
    }

    /// Answers with the status of a call that failed before it began.
    fn end(&mut self, status: Status) {
        if let Some(call) = self.next.take() {
            self.report(
                call,
                Ok(EmbedEvent::Call { begun: false, messages: Vec::new(), end: Some(CallEnd::of(status)) }),
            );
        }
    }

    fn cancel(&mut self) {
        for call in [self.next.take(), self.pushing.take()].into_iter().flatten() {
            self.report(call, Err(Error::cancelled("the call is over")));
        }
    }
}

impl Drop for ScriptCalls {
    fn drop(&mut self) {
        self.cancel();
        // Calls made after the last answer, or when the thread ended.
        self.said.close();
        while let Ok(EmbedInput::Body(call, _) | EmbedInput::Next(call) | EmbedInput::Piece { call, .. }) =
            self.said.try_recv()
        {
            self.report(call, Err(Error::cancelled("the call is over")));
        }
    }
}

struct Exchange {
    calls: ScriptCalls,
    stream: Peer,
    account: Rc<Account>,
    service: Option<Service>,
    answer: PartialResponse,
}

impl Exchange {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Over> {
        while let Poll::Ready(said) = self.calls.said.poll_recv(cx) {
            match said {
                Some(EmbedInput::Next(call)) if self.calls.next.is_none() => self.calls.next = Some(call),
                Some(EmbedInput::Piece { call, piece, ends }) if self.calls.pushing.is_none() => {
                    self.calls.pushing = Some(call);
                    match piece.map_or(Ok(()), |piece| push(&self.stream, &self.account, piece)) {
                        Ok(()) if ends => self.stream.end(),
                        Ok(()) => {}
                        Err(status) => {
                            self.stream.reset(Reason::CANCEL);
                            self.answer.end.get_or_insert(CallEnd::of(status));
                        }
                    }
                }
                Some(EmbedInput::Next(call) | EmbedInput::Body(call, _) | EmbedInput::Piece { call, .. }) => {
                    self.calls.report(call, Err(Error::internal("an embedded call was used twice at once")));
                }
                Some(EmbedInput::Cancel) | None => return Poll::Ready(Over::Cancelled),
            }
        }
        if let Some(service) = &mut self.service
            && service.as_mut().poll(cx).is_ready()
        {
            self.service = None;
        }
        if self.stream.poll_read(EMBEDDED_PIECE_BYTES_MAX, cx).is_ready()
            && let Some(call) = self.calls.pushing.take()
        {
            self.calls.report(call, Ok(EmbedEvent::Taken));
        }
        // Responses that were not requested stay in the stream, where they are charged and slow the service down.
        let Some(call) = self.calls.next else { return Poll::Pending };
        while self.answer.end.is_none() && !self.answer.is_full() {
            match self.stream.poll_sent(cx) {
                Poll::Ready(sent) => self.answer.take(sent),
                Poll::Pending => break,
            }
        }
        if self.answer.is_empty() {
            return Poll::Pending;
        }
        let is_over = self.answer.end.is_some();
        self.calls.next = None;
        self.calls.report(call, Ok(self.answer.take_event()));
        if is_over { Poll::Ready(Over::Completed) } else { Poll::Pending }
    }
}

/// Part of the response that was taken from the stream and not yet passed on.
#[derive(Default)]
struct PartialResponse {
    begun: bool,
    messages: Vec<Vec<u8>>,
    /// Bytes of `messages`.
    bytes: usize,
    /// Received part of the prefix of the next message.
    prefix: Vec<u8>,
    /// Received part of the next message, and the number of its missing bytes.
    message: Option<(Vec<u8>, usize)>,
    end: Option<CallEnd>,
}

impl PartialResponse {
    fn is_full(&self) -> bool {
        self.messages.len() >= EMBEDDED_EVENTS_PER_CALL_MAX || self.bytes >= EMBEDDED_BYTES_PER_CALL
    }

    fn is_empty(&self) -> bool {
        !self.begun && self.messages.is_empty() && self.end.is_none()
    }

    fn take_event(&mut self) -> EmbedEvent {
        self.bytes = 0;
        EmbedEvent::Call {
            begun: std::mem::take(&mut self.begun),
            messages: std::mem::take(&mut self.messages),
            end: self.end.take(),
        }
    }

    fn take(&mut self, sent: Option<Sent>) {
        match sent {
            Some(Sent::Data(data)) => self.take_data(&data),
            // The head of a rejected call is its end, too.
            Some(Sent::Head(_, fields)) if fields.iter().any(|(name, _)| name == STATUS) => {
                self.end = Some(CallEnd::read(fields));
            }
            Some(Sent::Head(..)) => self.begun = true,
            Some(Sent::End(fields)) => self.end = Some(CallEnd::read(fields)),
            Some(Sent::Reset(_)) | None => {
                self.end =
                    Some(CallEnd::of(Status::new(code::CANCELLED, "the call ended before its response was complete")));
            }
        }
    }

    /// Copies data into messages: JavaScript gets each message as one buffer that it owns.
    fn take_data(&mut self, mut data: &[u8]) {
        loop {
            if let Some((message, missing)) = &mut self.message {
                let (now, later) = data.split_at(data.len().min(*missing));
                message.extend_from_slice(now);
                *missing -= now.len();
                data = later;
                if *missing > 0 {
                    return;
                }
                if let Some((message, _)) = self.message.take() {
                    self.bytes += message.len();
                    self.messages.push(message);
                }
            }
            let (now, later) = data.split_at(data.len().min(PREFIX_BYTES - self.prefix.len()));
            self.prefix.extend_from_slice(now);
            data = later;
            // The flag marks a compressed message. None is compressed, because no call here accepts compression.
            let [_, length @ ..] = &self.prefix[..] else { return };
            let Ok(length) = <[u8; 4]>::try_from(length) else { return };
            let length = u32::from_be_bytes(length) as usize;
            self.prefix.clear();
            self.message = Some((Vec::with_capacity(length), length));
        }
    }
}

const STATUS: &str = "grpc-status";

impl CallEnd {
    fn of(status: Status) -> Self {
        let mut trailers = Vec::new();
        if !status.is_ok() {
            trailers.extend(status.retry_after.map(|after| (PUSHBACK.to_owned(), after.as_millis().to_string())));
            trailers.push((FAULT.to_owned(), status.failure().count().to_owned()));
        }
        Self { code: status.code.into(), text: status.message, trailers }
    }

    fn read(fields: Fields) -> Self {
        let mut end = Self { code: 2, text: String::new(), trailers: Vec::new() };
        for (name, value) in fields {
            let value = String::from_utf8_lossy(&value).into_owned();
            match name.as_str() {
                STATUS => end.code = value.parse().unwrap_or(end.code),
                "grpc-message" => end.text = percent_decode(&value).into_owned(),
                // The other server writes these itself.
                "content-type" | "grpc-accept-encoding" | "grpc-encoding" => {}
                _ => end.trailers.push((name, value)),
            }
        }
        end
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::grpc::message::TENSOR_ALIGN;
    use bytes::Bytes;

    #[test]
    fn messages_are_whole_for_any_split_of_their_bytes() {
        let framed = b"\0\0\0\0\x03abc\0\0\0\0\0\0\0\0\0\x02de";
        for size in 1..=framed.len() {
            let mut answer = PartialResponse::default();
            framed.chunks(size).for_each(|part| answer.take(Some(Sent::Data(Bytes::copy_from_slice(part)))));
            assert_eq!(answer.messages, [&b"abc"[..], b"", b"de"], "in parts of {size}");
            assert_eq!(answer.bytes, 5);
        }
    }

    #[test]
    fn the_end_of_a_call_has_the_decoded_text_and_the_other_trailers() {
        for text in ["plain", "100% of 'a'\n", "größer: 中", "%", "%zz", "a%2"] {
            let status = Status { retry_after: Some(std::time::Duration::from_millis(1500)), ..Status::new(8, text) };
            let fields = status.with_fields(|fields| {
                let of = |field: &http2::Field<'_>| match field {
                    http2::Field::Literal(name, value) => ((*name).to_owned(), value.to_vec()),
                    http2::Field::Fixed(_) => (String::new(), Vec::new()),
                };
                fields.iter().map(of).collect::<Fields>()
            });
            let end = CallEnd::read(fields);
            assert_eq!(end, CallEnd::of(status));
            assert_eq!((end.code, &*end.text, end.trailers.len()), (8, text, 2));
        }
        assert_eq!(percent_decode("a%2"), "a%2", "not an escape");
    }

    #[test]
    fn the_first_tensor_of_a_whole_message_is_aligned() {
        use prost::Message;
        for n in 0..70 {
            let message = protocol::pb::inference::ModelInferRequest {
                model_name: "m".repeat(n),
                raw_input_contents: vec![Bytes::from(vec![0xaa; 64])],
                ..Default::default()
            };
            let message = message.encode_to_vec();
            let Piece { bytes, is_whole } = Piece::first(message.len(), &message);
            let at = PREFIX_BYTES + protocol::grpc::raw_offset(&message).unwrap();
            assert!(is_whole && bytes[at..].as_ptr().addr().is_multiple_of(TENSOR_ALIGN), "{n}");
            assert_eq!(bytes[PREFIX_BYTES..], message);
        }
        assert_eq!(Piece::first(usize::MAX, b"").bytes[..], [0, 255, 255, 255, 255]);
    }
}
