//! Load on a server over HTTP/1.1 or gRPC, and what came of it.
//!
//! `plan` says what is to be done, `pace` when, `http1` and `grpc` do it, `report` counts it. One thread: it sends more
//! than most servers take, and its cost is known. Whatever a server sends, a run ends: each request has a limit of
//! time, each answer one of bytes.

pub mod body;
mod call;
mod client;
pub mod events;
pub mod grpc;
mod http1;
pub mod messages;
pub mod pace;
pub mod plan;
pub mod report;
pub mod system;
pub mod tls;

use pace::{Measurement, Pace, Traffic, Watch};
use plan::{AnyError, Plan, Protocol};
use report::{Outcome, SERIES_MAX};
use serde_json::Value;
use std::cell::Cell;
use std::rc::Rc;
use std::time::{Duration, Instant};
use tls::Connector;
use tokio::task::JoinSet;

/// How often the run looks whether it is to end.
const LOOK: Duration = Duration::from_millis(20);
/// How long requests in flight may go on when the run is ended early: somebody waits at a terminal.
const GRACE: Duration = Duration::from_millis(30);

fn block_on<T>(work: impl Future<Output = Result<T, AnyError>>) -> Result<T, AnyError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    tokio::task::LocalSet::new().block_on(&runtime, work)
}

/// One request; the body of the answer, over gRPC the message with its prefix.
pub fn once(plan: &Plan) -> Result<Vec<u8>, AnyError> {
    let connector = Rc::new(Connector::new(plan, Rc::default())?);
    block_on(async {
        match plan.protocol {
            Protocol::Http => http1::once(plan, &connector).await,
            Protocol::Grpc => grpc::once(plan, &connector).await,
        }
    })
}

/// Connections that are open, of one of the protocols.
enum Workers {
    Http(Vec<http1::HttpClient>),
    Grpc(Vec<grpc::Worker>),
}

impl Workers {
    async fn open(plan: &Plan, connector: &Rc<Connector>) -> Result<Self, AnyError> {
        match plan.protocol {
            Protocol::Http => {
                let (wires, count, mut all) = (http1::wires(plan), Rc::new(Cell::new(0)), Vec::new());
                for i in 0..plan.connections * plan.streams {
                    all.push(http1::HttpClient::open(plan, connector, &wires, i * http1::STRIDE, &count).await?);
                }
                Ok(Self::Http(all))
            }
            Protocol::Grpc => {
                let (wires, mut all) = (grpc::wires(plan)?, Vec::new());
                for i in 0..plan.connections {
                    all.push(grpc::Worker::open(plan, connector, &wires, i).await?);
                }
                Ok(Self::Grpc(all))
            }
        }
    }

    fn start(self, run: &Rc<Measurement>) -> Result<JoinSet<()>, AnyError> {
        let mut set = JoinSet::new();
        match self {
            Self::Http(all) => {
                for one in all {
                    set.spawn_local(http1::work(run.clone(), one, Pace::new(run)?));
                }
            }
            Self::Grpc(all) => {
                for one in all {
                    set.spawn_local(one.work(run.clone(), Pace::new(run)?));
                }
            }
        }
        Ok(set)
    }
}

/// Does what the plan says. `progress` is called at the times that it names; `is_ended` ends the run early.
pub fn run(plan: Plan, is_ended: impl Fn() -> bool, progress: impl FnMut(Value)) -> Result<Outcome, AnyError> {
    block_on(async {
        let traffic: Rc<Traffic> = Rc::default();
        let connector = Rc::new(Connector::new(&plan, traffic.clone())?);
        let mut limit = Watch::new(plan.timeout());
        let opened = tokio::select! {
            opened = limit.limit(Workers::open(&plan, &connector)) => opened,
            () = ended(&is_ended) => {
                return Err(format!("ended before a connection to {} was open", plan.address).into());
            }
        };
        let workers =
            opened.ok_or_else(|| format!("no connection to {} within {} s", plan.address, plan.timeout_s))??;
        let run = Measurement::begin(plan, traffic);
        let mut workers = workers.start(&run)?;
        watch(&run, &mut workers, is_ended, progress).await?;
        workers.shutdown().await;
        Ok(run.outcome())
    })
}

/// Waits until the run is to end.
async fn ended(is_ended: &impl Fn() -> bool) {
    while !is_ended() {
        tokio::time::sleep(LOOK).await;
    }
}

/// Waits until all workers ended, or as long as requests may take, or, after the run was ended, a little longer.
async fn watch(
    run: &Measurement,
    workers: &mut JoinSet<()>,
    is_ended: impl Fn() -> bool,
    mut progress: impl FnMut(Value),
) -> Result<(), AnyError> {
    let asked = run.plan.progress_s;
    let interval = if asked > 0.0 { asked } else { 1.0 };
    let interval = Duration::from_secs_f64(interval.max(run.plan.seconds / f64::from(SERIES_MAX)));
    let (mut last, mut is_started, mut until) = (run.start(), false, run.deadline());
    let (mut why, mut is_stopped) = (http1::timed_out(&run.plan), false);
    loop {
        let now = Instant::now();
        if !is_started && now >= run.start() {
            (is_started, last) = (true, run.start());
            run.started();
        }
        let next = if is_started { last + interval } else { run.start() };
        if is_started && now >= next {
            let point = run.point(now, now - last);
            last = now;
            if asked > 0.0 {
                progress(point);
            }
            continue;
        }
        if !is_stopped && is_ended() {
            run.stop();
            is_stopped = true;
            (until, why) = (now + GRACE, "no response before the run was ended".to_owned());
        }
        if now >= until {
            break;
        }
        tokio::select! {
            joined = workers.join_next() => match joined {
                None => break,
                Some(joined) => joined?,
            },
            () = tokio::time::sleep_until(next.min(now + LOOK).into()) => {}
        }
    }
    run.abandon(&why);
    // The rest of the last interval counts, unless it is too short to say something.
    let now = Instant::now();
    if is_started && now - last > interval / 10 {
        run.point(now, now - last);
    }
    Ok(())
}
