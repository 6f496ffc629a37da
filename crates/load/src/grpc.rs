//! A lean gRPC client: calls with ready-made messages, `connections` × `streams`.
//!
//! Client and server share the cores of the machine that measures, so what the client costs dilutes every ratio of two
//! servers. Hence one task per connection, nothing allocated per call, and one write for all calls that one read made
//! room for. On the wire it does what clients do: header fields go into the server's table with the first call and are
//! a byte each from then on.

use crate::call::News;
use crate::client::{GrpcClient, Wire, Wires};
use crate::http1::{PAUSE, STRIDE, timed_out};
use crate::messages::framed;
use crate::pace::{Measurement, Pace, Watch};
use crate::plan::{AnyError, Plan, Prepared};
use crate::tls::Connector;
use http2::Field;
use http2::parts::{Encoder, FRAME_BYTES_MIN};
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Instant;

/// Every request of a plan, made once for all connections.
pub fn wires(plan: &Plan) -> Result<Rc<Wires>, AnyError> {
    let scheme = if plan.tls.is_some() { "https" } else { "http" };
    let mut fields: Vec<(&str, &str)> = vec![(":method", "POST"), (":scheme", scheme), (":path", &plan.path)];
    fields.extend([(":authority", plan.host()), ("te", "trailers"), ("content-type", "application/grpc")]);
    // A plan with one request keeps all its fields in the server's table, as clients do with repeated fields.
    if let [request] = &plan.ring[..] {
        fields.extend(request.headers.iter().map(|(name, value)| (name.as_str(), value.as_str())));
    }
    let own = |request: &Prepared| if plan.ring.len() == 1 { Vec::new() } else { literals(&request.headers) };
    let wire = |request: &Prepared| Wire { message: framed(&request.body), fields: own(request) };
    let requests: Vec<Wire> = plan.ring.iter().map(wire).collect();
    let of_all: usize = fields.iter().map(|(name, value)| name.len() + value.len() + 8).sum();
    let longest = of_all + requests.iter().map(|wire| wire.fields.len()).max().unwrap_or_default();
    if longest > FRAME_BYTES_MIN as usize || fields.len() > usize::from(u8::MAX) {
        let count = fields.len();
        return Err(
            format!("{count} header fields with {longest} bytes: 255 with {FRAME_BYTES_MIN} can be sent").into()
        );
    }
    let leaked = |(name, value): &(&str, &str)| -> (&'static str, &'static str) {
        (name.to_ascii_lowercase().leak(), (*value).to_owned().leak())
    };
    Ok(Rc::new(Wires { requests, fields: fields.iter().map(leaked).collect::<Vec<_>>().leak() }))
}

/// Fields as literals that enter no table.
pub fn literals(headers: &[(impl AsRef<str>, String)]) -> Vec<u8> {
    let (mut out, encoder) = (Vec::new(), Encoder::new(&[]));
    for (name, value) in headers {
        encoder.literal(&mut out, Field::Literal(&name.as_ref().to_ascii_lowercase(), value.as_bytes()));
    }
    out
}

/// One call; the message of the answer with its five-byte prefix.
pub async fn once(plan: &Plan, connector: &Connector) -> Result<Vec<u8>, AnyError> {
    let mut connection = GrpcClient::open(plan, connector, &wires(plan)?, 0).await?;
    connection.keeps = true;
    let (mut due, mut answer) = (Some(Instant::now()), Err("no answer".into()));
    let mut told = |news: News<'_>| match news {
        News::Done { answer: message, .. } => answer = Ok(message.to_vec()),
        News::Failed { text, .. } => answer = Err(text.into()),
        News::Response { .. } => {}
    };
    let calls = poll_fn(|cx| connection.poll(cx, &mut |_| Poll::Ready(due.take()), &mut told));
    Watch::new(plan.timeout()).limit(calls).await.ok_or_else(|| timed_out(plan))??;
    answer
}

/// One connection with its requests, opened anew when that is needed, until the run is over.
pub struct Worker {
    connector: Rc<Connector>,
    connection: GrpcClient,
}

impl Worker {
    /// Opens the connection number `number`.
    pub async fn open(
        plan: &Plan,
        connector: &Rc<Connector>,
        wires: &Rc<Wires>,
        number: usize,
    ) -> Result<Self, AnyError> {
        let connection = GrpcClient::open(plan, connector, wires, number * STRIDE).await?;
        Ok(Self { connector: connector.clone(), connection })
    }

    /// Sends requests until the run is over.
    pub async fn work(mut self, run: Rc<Measurement>, mut pace: Pace) {
        let (limit, text) = (run.plan.timeout(), timed_out(&run.plan));
        loop {
            let mut watch = Watch::new(limit);
            let connection = &mut self.connection;
            let mut told = |news: News<'_>| match news {
                News::Response { due, last } => {
                    let now = Instant::now();
                    run.count(due, |tally| tally.response(due, last, now));
                }
                News::Done { due, entry, answer } if run.plan.accepts(entry, answer) => run.done(due, Instant::now()),
                News::Done { due, .. } => run.failed(due, "a response differs from the expected one"),
                News::Failed { due, text } => run.failed(due, text),
            };
            let mut next = |cx: &mut Context<'_>| {
                let due = pace.poll_due(cx);
                if let Poll::Ready(Some(due)) = due {
                    run.sent(due);
                }
                due
            };
            let result = poll_fn(|cx| {
                let polled = connection.poll(cx, &mut next, &mut told);
                if polled.is_pending() && watch.poll(|| connection.oldest(), cx) {
                    connection.expire(limit, &text, &mut told)?;
                    // The reset is written, and the next request begins.
                    cx.waker().wake_by_ref();
                }
                polled
            });
            match result.await {
                Ok(true) => return,
                Ok(false) => {}
                Err(e) => {
                    let (lost, e) = (connection.lost(), e.to_string());
                    if lost.is_empty() {
                        run.unreachable(&e);
                    }
                    lost.into_iter().for_each(|due| run.failed(due, &e));
                    if run.goes_on() {
                        tokio::time::sleep(PAUSE).await;
                    }
                }
            }
            loop {
                if !run.goes_on() {
                    return;
                }
                let (wires, next) = (self.connection.wires.clone(), self.connection.next);
                let opened = watch.limit(GrpcClient::open(&run.plan, &self.connector, &wires, next)).await;
                match opened.unwrap_or_else(|| Err(text.clone().into())) {
                    Ok(connection) => {
                        self.connection = connection;
                        break;
                    }
                    Err(e) => run.unreachable(&e.to_string()),
                }
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}
