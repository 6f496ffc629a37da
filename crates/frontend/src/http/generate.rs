//! `generate` and `generate_stream` (P 1.13): a flat JSON object in; one such object, or server-sent events, out.

use super::events::{Event, EventEncoder, Events};
use super::inference::{media, reject_draining};
use super::reply::{EVENTS, JSON, Reply};
use super::request::RequestHead;
use crate::answers::Inbox;
use crate::exchange::{Exchange, HttpExchange};
use crate::hold;
use crate::inference::{self, Inference, is_long_to_print};
use crate::limits::{ANSWERS_PER_LOOK, JSON_BYTES_ON_REACTOR_MAX};
use crate::offload::{self, CancelFlag};
use crate::record::Record;
use crate::verbose;
use bytes::Bytes;
use engine::ModelVersion;
use memory::{Account, Kind};
use protocol::files::parse_files;
use protocol::generate::{WRONG_RESPONSE_COUNT, encode_generate, parse_generate};
use protocol::http::Limits;
use protocol::{InferRequest, InferResponse};
use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use tensor::{Error, Result};

/// Encoder of `generate` and `generate_stream`: a flat JSON object for each response.
struct Objects {
    version: Arc<ModelVersion>,
    is_stream: bool,
}

impl EventEncoder for Objects {
    fn response(&self, response: &InferResponse) -> Result<Bytes> {
        encode_generate(response, &self.version.signature)
    }

    fn error(&self, error: &Error) -> Bytes {
        protocol::json::error_json(error.message())
    }

    fn around(&self) -> [&'static [u8]; 2] {
        if self.is_stream { [b"data: ", b"\n\n"] } else { [b"", b""] }
    }
}

/// `POST …/generate` and, with `stream`, `…/generate_stream`.
pub async fn generate(exchange: &HttpExchange<'_>, body: &Bytes, stream: bool) -> Reply {
    let (version, request) = match read(exchange, body).await {
        Ok(read) => read,
        Err(error) => return Reply::error(JSON, &error),
    };
    let objects = Arc::new(Objects { version: version.clone(), is_stream: stream });
    if version.signature.decoupled {
        return many(exchange, version, request, objects).await;
    }
    let result = match inference::start(version, request).get().await {
        Ok(Inference::Done(result)) => result,
        Ok(Inference::Pending(pending)) => {
            exchange.waits_for(version, pending.measured());
            pending.await
        }
        Err(error) => return Reply::error(JSON, &error),
    };
    let account = &exchange.with.account;
    let printed = match result {
        Ok(response) => printed(account, &objects, response).await,
        Err(error) => Err(error),
    };
    let text = Event::of(printed, &*objects);
    if stream { Reply::events(text, None) } else { object(text) }
}

/// See [`HttpExchange::reject_early`].
pub fn reject_early(exchange: &HttpExchange<'_>) -> Option<Reply> {
    let refused = find(exchange).and_then(|_| check_encoding(exchange.head)).err()?;
    Some(Reply::error(JSON, &refused))
}

fn find<'e>(exchange: &'e HttpExchange<'_>) -> Result<&'e Arc<ModelVersion>> {
    reject_draining(exchange.context)?;
    exchange.version()
}

pub fn check_encoding(head: &RequestHead) -> Result<()> {
    match head.headers.get("content-encoding") {
        None | Some(b"identity") => Ok(()),
        Some(_) => Err(Error::invalid("Unsupported content-encoding, only 'identity' is supported.")),
    }
}

async fn read<'e>(exchange: &'e HttpExchange<'_>, body: &Bytes) -> Result<(&'e Arc<ModelVersion>, Box<InferRequest>)> {
    let context = exchange.context;
    let version = find(exchange)?;
    if version.signature.decoupled {
        // Its responses come from the inbox, which knows no record.
        exchange.needs_record();
    }
    exchange.accept(version);
    check_encoding(exchange.head)?;
    let media = media(exchange.head, None, body)?;
    let parse = move |body: &Bytes, model: &ModelVersion, limits: &Limits| match &media {
        None => parse_generate(body, &model.signature, limits),
        Some(media) => parse_files(body, media, false, &model.signature, limits),
    };
    let parsed = if body.len() > JSON_BYTES_ON_REACTOR_MAX {
        let (text, limits, model) = (body.clone(), context.limits, version.clone());
        let parse = move |_: &CancelFlag<'_>| {
            let mut request = parse(&text, &model, &limits)?;
            inference::dispose_offloaded(&mut request);
            Ok::<_, Error>(Box::new(request))
        };
        let work = offload::run_charged(&exchange.with.account, Kind::Unpacked, body.len(), parse);
        work.await.and_then(|(parsed, charge)| {
            let mut request = parsed?;
            inference::charge(&mut request, charge);
            Ok(request)
        })
    } else {
        parse(body, version, &context.limits).map(Box::new)
    };
    let mut request = parsed.inspect_err(|e| verbose::infer_failed(None, e))?;
    exchange.follow(&mut request);
    Ok((version, request))
}

/// Answers a request that may have any number of responses.
async fn many(
    exchange: &HttpExchange<'_>,
    version: &Arc<ModelVersion>,
    request: Box<InferRequest>,
    objects: Arc<Objects>,
) -> Reply {
    let Exchange { account, record, .. } = &exchange.with;
    let inbox = Inbox::new(account);
    // The inbox has this request alone.
    let key = inbox.reserve();
    if let Err(error) = inbox.starter().start(key, version, request).get().await {
        return Reply::error(JSON, &error);
    }
    if objects.is_stream {
        return first_event(Events::new(inbox, objects, account, record.take_trace()), record).await;
    }
    match only(&inbox, record).await {
        (1, Some(Ok(response))) => object(Event::of(printed(account, &objects, response).await, &*objects)),
        (1, Some(Err(error))) => object(Event::of(Err(error), &*objects)),
        // The first response decides the status only.
        (_, first) => {
            let status = if matches!(first, Some(Err(_))) { 400 } else { 200 };
            Reply::new(status, JSON, protocol::json::error_json(WRONG_RESPONSE_COUNT)).chunked()
        }
    }
}

/// Waits for all responses, which the model makes anyway. Returns their number and the first of them.
async fn only(inbox: &Inbox, record: &Record) -> (u64, Option<Result<Box<InferResponse>>>) {
    let (mut count, mut first, mut taken) = (0u64, None, 0u32);
    loop {
        let answer = poll_fn(|cx| inbox.poll_next(cx)).await;
        record.responded(&answer);
        if let Some(response) = answer.response {
            count += 1;
            first.get_or_insert(response);
        }
        if answer.is_final {
            return (count, first);
        }
        taken = taken.wrapping_add(1);
        if taken.is_multiple_of(ANSWERS_PER_LOOK) {
            hold::pause().await;
        }
    }
}

/// Begins the stream with its first response, if there is one, which decides the status.
async fn first_event(mut events: Events, record: &Record) -> Reply {
    let Some(first) = poll_fn(|cx| events.poll_next(cx)).await else { return Reply::empty(EVENTS).chunked() };
    let is_over = poll_fn(|cx| Poll::Ready(events.poll_over(cx))).await;
    events.note_in(record.events());
    Reply::events(first, (!is_over).then(|| Box::new(events)))
}

/// The text of a response; another thread prints it if that takes long.
async fn printed(account: &Account, objects: &Arc<Objects>, response: Box<InferResponse>) -> Result<Bytes> {
    if !is_long_to_print(&response) {
        return objects.response(&response);
    }
    let (bytes, objects) = (response.answered_bytes(), objects.clone());
    let work = offload::run_charged(account, Kind::Answer, bytes, move |_| objects.response(&response));
    work.await.and_then(|(printed, charge)| Ok(offload::made(printed?, charge)))
}

/// The reply of `generate`. Once a request was accepted every failure is a 400, whatever its class (P 1.13).
fn object(text: Event) -> Reply {
    Reply { content_type: JSON, ..Reply::events(text, None) }
}
