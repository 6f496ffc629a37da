//! The console's stream: what the server does, as events once a second, for as long as the page is open.
//!
//! The numbers of one event are made on another thread from counters that exist anyway; a page that is closed leaves
//! nothing behind.

use super::*;
use crate::access::{Act, Ask};
use crate::failure;
use crate::gate::Grant;
use crate::http::context::HttpContext;
use crate::http::events::{Event, EventSource, Events};
use crate::limits::{CONSOLE_SLOWEST_TICKS, CONSOLES_MAX};
use crate::shared::{Phase, Place, Shared};
use std::collections::HashMap;
use std::future::poll_fn;
use std::hash::{BuildHasher, RandomState};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll, ready};
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

const INTERVAL: Duration = Duration::from_secs(1);

pub struct ConsoleEvents;

impl Endpoint for ConsoleEvents {
    fn facts(&self) -> &'static Facts {
        const { &Facts { is_filtered: true, is_near: true, ..Facts::read("console", Category::Statistics) } }
    }

    fn http<'a>(&'a self, exchange: &'a HttpExchange<'a>, _body: RequestBody) -> HttpAnswer<'a> {
        HttpAnswer::Later(Box::pin(async move {
            let HttpExchange { context, head, with, .. } = exchange;
            let header = |name: &str, at: usize| head.headers.all(name).nth(at);
            let Some(open) = context.shared.open_console() else {
                return Reply::error(
                    JSON,
                    &Error::unavailable(format!(
                        "{CONSOLES_MAX} pages with the console are open, which is the limit (nereid_consoles_max); \
                         close one"
                    )),
                );
            };
            let may = |category, act| {
                let ask = Ask { is_in_body: true, ..Ask::new(category, act, None) };
                context.gate.would_admit(&with.caller, &with.grant, &ask, &header)
            };
            let may = May {
                index: may(Category::ModelRepository, Act::Read),
                load: may(Category::ModelRepository, Act::Write),
                logging: may(Category::Logging, Act::Write),
                logs: may(Category::Logging, Act::Read),
                trace: may(Category::Trace, Act::Write),
                infer: may(Category::Inference, Act::Read),
            };
            let mut events = Events::of(Box::new(Live::new(context, with.grant.clone(), may, open)));
            let Some(first) = poll_fn(|cx| events.poll_next(cx)).await else {
                return Reply::error(JSON, &Error::unavailable("Server not ready"));
            };
            let mut reply = Reply::events(first, Some(Box::new(events)));
            reply.add("cache-control", "no-store");
            // A proxy must not wait for more events.
            reply.add("x-accel-buffering", "no");
            reply
        }))
    }
}

/// Permissions of the caller.
#[derive(Clone, Copy)]
struct May {
    index: bool,
    load: bool,
    logging: bool,
    logs: bool,
    trace: bool,
    infer: bool,
}

/// Everything that the next event is made of.
struct ConsoleState {
    engine: Arc<Engine>,
    control: Arc<dyn crate::control::Control>,
    shared: Arc<Shared>,
    grant: Grant,
    may: May,
    hasher: RandomState,
    /// Hashes of the rows and texts that were sent.
    sent: HashMap<String, u64>,
    /// Number of the next log line.
    line: u64,
    ticks: u64,
}

type Step = Pin<Box<dyn Future<Output = Option<(Box<ConsoleState>, Bytes)>> + Send>>;

/// The stream of one page.
struct Live {
    state: Option<Box<ConsoleState>>,
    step: Option<Step>,
    next: Instant,
    phase: watch::Receiver<Phase>,
    _open: Place,
}

impl Live {
    fn new(context: &HttpContext, grant: Grant, may: May, open: Place) -> Self {
        let state = ConsoleState {
            engine: context.engine.clone(),
            control: context.control.clone(),
            shared: context.shared.clone(),
            grant,
            may,
            hasher: RandomState::new(),
            sent: HashMap::new(),
            line: 0,
            ticks: 0,
        };
        let (next, phase) = (Instant::now(), context.shared.watch());
        Self { state: Some(Box::new(state)), step: None, next, phase, _open: open }
    }
}

impl EventSource for Live {
    fn poll_next(&mut self, cx: &mut TaskContext<'_>) -> Poll<Option<Event>> {
        if let Some(state) = self.state.take() {
            // A server that ends does not wait for its pages.
            if state.shared.is_parting() && state.ticks > 0 {
                return Poll::Ready(None);
            }
            let (at, mut phase) = (self.next, self.phase.clone());
            self.step = Some(Box::pin(async move {
                tokio::select! {
                    () = sleep_until(at) => {}
                    _ = phase.changed() => {}
                }
                state.step().await
            }));
        }
        let Some(step) = &mut self.step else { return Poll::Ready(None) };
        let made = ready!(step.as_mut().poll(cx));
        self.step = None;
        let Some((state, text)) = made else { return Poll::Ready(None) };
        self.next = Instant::now() + INTERVAL;
        self.state = Some(state);
        Poll::Ready(Some(Event::text(text)))
    }
}

impl ConsoleState {
    /// The events of this second; `None` if the server has no thread for them.
    async fn step(mut self: Box<Self>) -> Option<(Box<Self>, Bytes)> {
        // A key that was taken away sees nothing more; the page connects again, and learns why.
        self.grant.check_again().ok()?;
        let mut argument = Text::begin(b'{');
        argument.key("index").boolean(self.may.index).key("logs").boolean(self.may.logs);
        argument.key("line").integer(self.line).key("first").boolean(self.ticks == 0).close(b'}');
        let argument = argument.into_string().ok()?;
        let told = self.control.call(ControlOperation::Console, argument.into()).await;
        let work = move |_: &offload::CancelFlag<'_>| {
            let text = told.and_then(|told| self.print(&told));
            let text = text.unwrap_or_else(|error| {
                let mut out = Vec::new();
                put(&mut out, "error", protocol::json::error_json(error.message()));
                out
            });
            (self, Bytes::from(text))
        };
        offload::run(0, work).await.ok()
    }

    /// `told`: what TypeScript knows, the JSON of the native contract.
    fn print(&mut self, told: &str) -> tensor::Result<Vec<u8>> {
        let told = Value::parse(told.as_bytes())?;
        let mut out = Vec::with_capacity(4096);
        if self.ticks == 0 {
            put(&mut out, "hello", self.hello(told)?.into_bytes());
        }
        if let Some(index) = told.get("index") {
            let rows = self.seen(index)?;
            if self.is_new("index", &rows) {
                put(&mut out, "index", rows);
            }
        }
        let now = self.now(told)?;
        put(&mut out, "now", now);
        if self.ticks.is_multiple_of(CONSOLE_SLOWEST_TICKS) {
            let slowest = self.shared.kept().listed("", |model| self.grant.covers(model));
            if self.is_new("slowest", slowest.as_bytes()) {
                put(&mut out, "slowest", slowest);
            }
        }
        if let Some(lines) =
            told.get("lines").filter(|lines| lines.elements().is_ok_and(|mut all| all.next().is_some()))
        {
            self.line = told.member("line")?.as_u64()?;
            let mut text = Text::begin(b'{');
            text.key("lines").raw(lines.text()).close(b'}');
            put(&mut out, "log", text.into_bytes());
        }
        self.ticks += 1;
        Ok(out)
    }

    /// Whether this text of `name` was not sent yet.
    fn is_new(&mut self, name: &str, text: &[u8]) -> bool {
        let hash = self.hasher.hash_one(text);
        match self.sent.get_mut(name) {
            Some(last) => std::mem::replace(last, hash) != hash,
            None => self.sent.insert(name.to_owned(), hash).is_none(),
        }
    }

    fn hello(&self, told: Value<'_>) -> tensor::Result<Text> {
        let metadata = self.engine.server_metadata();
        let May { load, logging, logs, trace, infer, .. } = self.may;
        let mut text = Text::begin(b'{');
        text.key("server").open(b'{').key("name").string(&metadata.name).key("version").string(&metadata.version);
        text.key("nereid").raw(told.member("nereid")?.text()).close(b'}');
        text.key("may").open(b'{').key("load").boolean(load).key("logging").boolean(logging);
        text.key("trace").boolean(trace).key("logs").boolean(logs).key("infer").boolean(infer).close(b'}');
        for name in ["explicit", "started_ms", "grpc_port"] {
            text.key(name).raw(told.member(name)?.text());
        }
        text.close(b'}');
        Ok(text)
    }

    /// The rows of the index that the caller may see.
    fn seen(&self, index: Value<'_>) -> tensor::Result<Bytes> {
        if !self.grant.is_some() {
            return Ok(Bytes::copy_from_slice(index.text()));
        }
        let mut text = Text::begin(b'[');
        for row in index.elements()? {
            if self.grant.covers(&row.member("name")?.as_string()?) {
                text.raw(row.text());
            }
        }
        text.close(b']');
        Ok(text.into_bytes())
    }

    fn now(&mut self, told: Value<'_>) -> tensor::Result<Bytes> {
        let engine = self.engine.clone();
        let [(.., waiting), (.., running)] = engine.at_work();
        let memory = self.shared.budget().counters();
        let rows = engine.live_rows(|model| self.grant.covers(model));
        let (mut answered, mut open) = (0, 0);
        let mut text = Text::begin(b'{');
        text.key("time_ms").raw(told.member("time_ms")?.text());
        text.key("ready").boolean(engine.is_ready()).key("draining").boolean(self.shared.is_parting());
        text.key("waiting").integer(waiting as u64).key("running").integer(running as u64);
        text.key("connections").integer(self.shared.connections());
        text.key("connections_max").integer(self.shared.connections_max());
        text.key("failed").open(b'{');
        for (fault, count) in failure::counts() {
            text.key(fault).integer(count);
        }
        text.close(b'}').key("memory").open(b'{');
        text.key("used").integer(memory.used_bytes.iter().sum::<usize>()).key("limit").integer(memory.limit_bytes);
        text.key("process").raw(told.member("process_bytes")?.text());
        text.key("waiting").integer(memory.waiting).close(b'}');
        for name in ["cpu_s", "cores", "devices"] {
            text.key(name).raw(told.member(name)?.text());
        }
        text.key("models").open(b'[');
        for row in &rows {
            answered += row.answered;
            open += row.open;
            if self.is_new(&format!("{}/{}", row.model, row.version), row.json.as_bytes()) {
                text.raw(row.json.as_bytes());
            }
        }
        text.close(b']').key("answered").integer(answered).key("accepted").integer(answered + open).close(b'}');
        // Hashes of versions that left.
        if self.sent.len() > rows.len() * 2 + 64 {
            self.sent.clear();
        }
        Ok(text.into_bytes())
    }
}

/// Writes an event.
fn put(out: &mut Vec<u8>, name: &str, json: impl AsRef<[u8]>) {
    for part in [b"event: ", name.as_bytes(), b"\ndata: ", json.as_ref(), b"\n\n"] {
        out.extend_from_slice(part);
    }
}
