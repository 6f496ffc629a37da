//! The common part of all calls: access, compression, deadline, status.

use super::context::{Call, GrpcContext};
use super::message::Messages;
use super::reply::{finish, reject_with};
use super::status::{Status, code};
use super::unary::{LaterAnswer, Sent, Waits};
use super::{timeout, unary};
use crate::access::Ask;
use crate::encoding::Encoding;
use crate::exchange::Exchange;
use crate::exchange::{EndpointRef, GrpcStream};
use crate::gate::Grant;
use crate::gate_error::GateError;
use crate::origin::{Client, Face};
use crate::record::{Record, RequestName, WHY, asks_why};
use crate::table::calls;
use crate::table::facts::{CallForm, Draining, Facts};
use crate::verbose;
use http2::{Field, Request, RequestHead, StreamWriter};
use memory::Account;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

/// Facts derived from the head of a call and the options of the server. Kept with the head, because clients repeat
/// heads, so that nothing is parsed again for the next call.
struct CallRules {
    is_grpc: bool,
    /// The endpoint and its query for the gate; `None` = unknown call.
    endpoint: Option<(EndpointRef, &'static Facts, Option<Ask<'static>>)>,
    encoding: Result<Encoding, Status>,
    response_encoding: Encoding,
    deadline: Result<Option<Duration>, timeout::Unreadable>,
    /// Whether the client asks for the record of the call.
    asks_why: bool,
}

impl CallRules {
    fn read(context: &GrpcContext, head: &RequestHead) -> Self {
        let media = head.get("content-type").unwrap_or_default();
        let endpoint =
            calls::find(head.path()).map(|endpoint| (endpoint, endpoint.facts(), endpoint.facts().ask(None)));
        let response_encoding = match (endpoint, context.compression_level) {
            (Some((_, facts, _)), Some(_)) if facts.form.has_tensors() => accepted(head),
            _ => Encoding::Identity,
        };
        Self {
            is_grpc: head.method() == b"POST" && media.starts_with(b"application/grpc"),
            endpoint,
            encoding: match head.get("grpc-encoding") {
                None => Ok(Encoding::Identity),
                Some(name) => Encoding::parse(name).ok_or_else(|| {
                    let name = String::from_utf8_lossy(name);
                    Status::new(code::UNIMPLEMENTED, format!("Compression algorithm '{name}' is not supported."))
                }),
            },
            response_encoding,
            deadline: head.get("grpc-timeout").map_or(Ok(None), timeout::parse),
            asks_why: head.get(WHY).is_some_and(asks_why),
        }
    }

    /// Checks the call against state that can change between calls.
    #[inline]
    fn admit(
        &self,
        context: &GrpcContext,
        client: &Client,
        head: &RequestHead,
    ) -> Result<(EndpointRef, &'static Facts, Encoding, Grant), Status> {
        // Checked first, as gRPC's own servers do.
        if self.deadline.is_err() {
            return Err(Status::new(code::INTERNAL, "Error parsing 'grpc-timeout' metadata"));
        }
        let Some((endpoint, facts, ask)) = &self.endpoint else { return Err(Status::new(code::UNIMPLEMENTED, "")) };
        if client.caller.face == Face::Crowded && !facts.is_for_crowd {
            return Err(GateError::Crowded.into());
        }
        let grant = match ask {
            Some(ask) => context.gate.admit(client, ask, |name, at| head.all(name).nth(at))?,
            None => Grant::default(),
        };
        let is_answered = match facts.draining {
            Draining::Answered => true,
            Draining::Sequences => context.engine.sequences() > 0,
            Draining::Rejected => false,
        };
        if context.shared.is_draining() && !is_answered {
            return Err(Status::shutting_down());
        }
        Ok((*endpoint, facts, self.encoding.clone()?, grant))
    }
}

/// Answers a call without waiting if possible. Otherwise returns the rest, for a task of its own.
///
/// A cheap inference is done when this returns, and no future was made for it.
pub fn begin(
    context: &Arc<GrpcContext>,
    cx: &mut Context<'_>,
    client: &Client,
    account: &Rc<Account>,
    request: Request,
    mut respond: StreamWriter,
) -> Option<Pin<Box<impl Future<Output = ()> + use<>>>> {
    let Request { head, body, .. } = request;
    let unkept;
    let plan = match head.derived(|head| CallRules::read(context, head)) {
        Some(plan) => plan,
        None => {
            unkept = CallRules::read(context, &head);
            &unkept
        }
    };
    let endpoint = plan.endpoint.map(|(_, facts, _)| facts);
    let named = || RequestName::grpc(endpoint, &head);
    let record = Record::begin(&context.shared, &client.caller, endpoint, plan.asks_why, named);
    let mut exchange = Exchange::new(client.caller, (**account).clone(), record);
    if !plan.is_grpc {
        exchange.refuse(&Status::new(code::UNIMPLEMENTED, "this is not a gRPC call"));
        let ends = head.method() == b"HEAD";
        if respond.send_head(415, &[Field::Literal("content-type", b"text/plain")], ends).is_ok() && !ends {
            let place = context.shared.strays().at_grpc();
            let text = format!("{place}. A call of gRPC is a POST with content-type application/grpc\n");
            let _ = respond.send_data(text.as_bytes(), true);
        }
        return None;
    }
    let (endpoint, facts, encoding, grant) = match plan.admit(context, client, &head) {
        Ok(admitted) => admitted,
        Err(status) => {
            exchange.record.begin_late(&context.shared, &client.caller, named);
            exchange.refuse(&status);
            reject_with(&mut respond, &status, exchange.why().as_ref());
            return None;
        }
    };
    exchange.admitted(grant);
    let is_logged = verbose::is_on();
    if is_logged {
        verbose::grpc_started(head.path());
    }
    let (response_encoding, deadline) = (plan.response_encoding, plan.deadline.unwrap_or_default());
    let bytes_max = context.engine.options().http_input_bytes_max;
    // Without devices this costs one branch.
    let near = (memory::has_devices() && facts.form.has_tensors()).then(|| context.engine.clone());
    let messages = Messages::new(body, encoding, account.clone(), bytes_max, facts.form.is_stream(), near);
    let mut call = Call { head: head.clone(), endpoint: facts, exchange, messages, response_encoding };
    // Held until the task that continues the call, if any, counts itself.
    let _request = (!facts.form.is_stream()).then(|| context.shared.request());
    let mut sent = None;
    if facts.form == CallForm::Inference
        && let Poll::Ready(message) = call.messages.poll_next(cx)
    {
        match unary::required(message).and_then(|message| unary::send(context, &call, message)) {
            Ok(Sent::Answered(message)) => {
                finish(&mut respond, &call.exchange, message, response_encoding);
                call.sent(&context.shared);
                if is_logged {
                    verbose::grpc_done(call.head.path());
                }
                return None;
            }
            Ok(Sent::Waits(waits)) => sent = Some(StartedCall::Waits(waits)),
            Ok(Sent::Later(answer)) => sent = Some(StartedCall::Later(answer)),
            Err(status) => {
                call.needs_record(&context.shared);
                call.exchange.refuse(&status);
                reject_with(&mut respond, &status, call.exchange.why().as_ref());
                if is_logged {
                    verbose::grpc_done(call.head.path());
                }
                return None;
            }
        }
    }
    let mut rest = Box::pin(finish_later(context.clone(), endpoint, call, respond, deadline, sent));
    rest.as_mut().poll(cx).is_pending().then_some(rest)
}

/// An inference without a response yet.
enum StartedCall {
    Waits(Waits),
    Later(LaterAnswer),
}

/// The part of a call that may wait.
async fn finish_later(
    context: Arc<GrpcContext>,
    endpoint: EndpointRef,
    mut call: Call,
    mut respond: StreamWriter,
    deadline: Option<Duration>,
    sent: Option<StartedCall>,
) {
    let head = call.head.clone();
    match endpoint.facts().form {
        CallForm::Inferences => {
            endpoint.serve(GrpcStream { context: &context, call, respond, deadline }).await;
            verbose::grpc_done(head.path());
        }
        CallForm::Stream => {
            // The client ends these calls, so they count as successful.
            call.exchange.succeeds();
            endpoint.serve(GrpcStream { context: &context, call, respond, deadline }).await;
        }
        form @ (CallForm::Unary | CallForm::Inference) => {
            let _request = context.shared.request();
            let encoding = call.response_encoding;
            let answer = async {
                let answer = match sent {
                    Some(StartedCall::Waits(waits)) => waits.await,
                    Some(StartedCall::Later(answer)) => answer.await,
                    None => unary::answer(&context, endpoint, &mut call).await,
                };
                if let Some(pause) = context.delays.response
                    && form != CallForm::Inference
                {
                    Box::pin(tokio::time::sleep(pause)).await;
                }
                answer
            };
            let watched = until_reset(&mut respond, context.delays.notification, answer);
            let outcome = match deadline {
                None => watched.await,
                Some(limit) => limited(limit, watched).await,
            };
            match outcome {
                // The client disconnected; dropping the future cancelled the work.
                None => {
                    call.needs_record(&context.shared);
                    verbose::grpc_cancelled(head.path());
                }
                Some(Ok(message)) => {
                    finish(&mut respond, &call.exchange, message, encoding);
                    call.sent(&context.shared);
                    verbose::grpc_done(head.path());
                }
                Some(Err(status)) => {
                    call.needs_record(&context.shared);
                    call.exchange.refuse(&status);
                    reject_with(&mut respond, &status, call.exchange.why().as_ref());
                    verbose::grpc_done(head.path());
                }
            }
        }
    }
}

/// Limits the time of `work`. Boxed, because most calls have no deadline.
async fn limited<T>(
    limit: Duration,
    work: impl Future<Output = Option<Result<T, Status>>>,
) -> Option<Result<T, Status>> {
    Box::pin(tokio::time::timeout(limit, work)).await.unwrap_or_else(|_| Some(Err(Status::deadline_exceeded())))
}

/// gzip if the client accepts it, otherwise deflate or no compression.
fn accepted(head: &RequestHead) -> Encoding {
    let list = head.get("grpc-accept-encoding").unwrap_or_default();
    let has = |e: Encoding| list.split(|&b| b == b',').any(|n| n.trim_ascii() == e.name().as_bytes());
    [Encoding::Gzip, Encoding::Deflate].into_iter().find(|&e| has(e)).unwrap_or(Encoding::Identity)
}

/// Runs `work` until the client resets the stream. The reset takes effect after `delay`.
async fn until_reset<T>(
    respond: &mut StreamWriter,
    delay: Option<Duration>,
    work: impl Future<Output = T>,
) -> Option<T> {
    let mut work = pin!(work);
    let mut pause = None;
    poll_fn(|cx| {
        if let Poll::Ready(result) = work.as_mut().poll(cx) {
            return Poll::Ready(Some(result));
        }
        if pause.is_none() && respond.poll_reset(cx).is_pending() {
            return Poll::Pending;
        }
        let Some(delay) = delay else { return Poll::Ready(None) };
        pause.get_or_insert_with(|| Box::pin(tokio::time::sleep(delay))).as_mut().poll(cx).map(|()| None)
    })
    .await
}

#[cfg(test)]
mod tests {
    /// A future is copied into its box for each call that waits. `--no-capture` prints the size.
    #[test]
    fn the_future_of_a_call_stays_small() {
        fn size<A, B, C, D, E, G, F: Future>(_: impl Fn(A, B, C, D, E, G) -> F) -> usize {
            size_of::<F>()
        }
        let bytes = size(super::finish_later);
        println!("{bytes} bytes");
        assert!(bytes <= 2304, "{bytes} bytes");
    }
}
