//! B-PY-10 to B-PY-13: calls between models count like those of clients, with error texts for the calling model.

#![allow(clippy::disallowed_methods, reason = "tests wait for other threads and processes, and look at clocks")]

use crate::support::{self, Got, WITHIN, asked, handing_out, instances, model, outcome, settles, soon};
use backend::{CallAnswers, ModelCall};
use engine::{Engine, MODEL_CALLS_DEPTH_MAX, ModelVersion, ServerState};
use protocol::InferResponse;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};
use tensor::{Code, Error, Result};

type Answered = (Option<Result<Box<InferResponse>>>, bool);

struct Channel(Sender<Answered>);

impl CallAnswers for Channel {
    fn answer(&self, response: Option<Result<Box<InferResponse>>>, is_final: bool) {
        let _ = self.0.send((response, is_final));
    }
}

struct Made {
    answers: Receiver<Answered>,
    handle: Box<dyn backend::Call>,
}

fn of(model: &str, number: u8) -> ModelCall {
    let request = support::request(number);
    ModelCall {
        model: model.into(),
        version: -1,
        request,
        decoupled: false,
        parent_trace: None,
        is_only_checked: false,
    }
}

fn start(engine: &Engine, call: ModelCall) -> Result<Made> {
    let (send, answers) = channel();
    let handle = engine.call_from_model(call, Arc::new(Channel(send)))?;
    Ok(Made { answers, handle })
}

fn refused(engine: &Engine, call: ModelCall) -> (Code, String) {
    let error = start(engine, call).err().expect("refused");
    (error.code(), error.message().to_owned())
}

impl Made {
    fn next(&self) -> (Got, bool) {
        let (response, is_final) = self.answers.recv_timeout(WITHIN).expect("an answer");
        let got = match response {
            Some(Ok(response)) => Got::Number(response.outputs[0].data.to_vec().expect("in memory")[0]),
            Some(Err(error)) => Got::Failed(error.code()),
            None => Got::Nothing,
        };
        (got, is_final)
    }

    fn error(&self) -> Error {
        let (response, is_final) = self.answers.recv_timeout(WITHIN).expect("an answer");
        assert!(is_final);
        response.expect("an error").expect_err("an error")
    }

    fn is_silent(&self) {
        assert!(self.answers.recv_timeout(Duration::from_millis(20)).is_err(), "an answer too early");
    }
}

#[test]
fn b_py_10_rejected_calls_have_the_errors_of_client_requests() {
    let (engine, _version) = model(|_| {}, |_, _, _| panic!("nothing may run"));
    let call = |change: fn(&mut ModelCall)| {
        let mut call = of("m", 1);
        change(&mut call);
        refused(&engine, call).1
    };
    assert_eq!(call(|c| c.model = "nope".into()), "Request for unknown model: 'nope' is not found");
    assert_eq!(call(|c| c.model = String::new()), "Request for unknown model: '' is not found");
    for version in [7, 0, -2] {
        let mut asked = of("m", 1);
        asked.version = version;
        assert_eq!(refused(&engine, asked).1, format!("Request for unknown model: 'm' version {version} is not found"));
    }
    assert_eq!(
        call(|c| c.request.inputs.clear()),
        "[request id: r1] expected 1 inputs but got 0 inputs for model 'm'. Got input(s) [], but missing required \
         input(s) ['I']. \
         Please provide all required input(s)."
    );
    let mut deep = of("m", 1);
    deep.request.depth = MODEL_CALLS_DEPTH_MAX + 1;
    assert!(refused(&engine, deep).1.contains("call one another"), "B-SEC-07");
    settles(&engine, &engine.model("m", "").expect("ready"));
}

#[test]
fn b_py_10_a_call_for_one_response_to_a_decoupled_model_is_rejected() {
    let (engine, _version, _responders) = handing_out(|_| {});
    assert_eq!(
        refused(&engine, of("m", 1)),
        (
            Code::Unsupported,
            "Model m is using the decoupled. The current BLS request call doesn't support models using the decoupled \
             transaction \
             policy. Please use 'decoupled=True' argument to the 'exec' or 'async_exec' calls for decoupled models.'"
                .into()
        )
    );
}

#[test]
fn b_py_10_a_call_counts_like_a_client_request_and_keeps_its_error_code() {
    let (engine, version) = model(
        |_| {},
        |_, batch, _| {
            for entry in batch.requests.iter_mut() {
                let number = asked(entry);
                let failed = || Err(Error::not_found("gone"));
                entry.result = Some(if number == 9 { failed() } else { Ok(outcome(number)) });
            }
        },
    );
    // The first ones run on the pool, later ones on this thread.
    for _ in 0..200 {
        assert_eq!(start(&engine, of("m", 5)).expect("accepted").next(), (Got::Number(5), true));
    }
    let error = start(&engine, of("m", 9)).expect("accepted").error();
    assert_eq!((error.code(), error.message()), (Code::NotFound, "gone"));
    let statistics = version.statistics();
    assert_eq!((statistics.success.count, statistics.fail.count), (200, 1));
    // Numbered like any other version.
    let mut one = of("m", 3);
    one.version = 1;
    assert_eq!(start(&engine, one).expect("accepted").next(), (Got::Number(3), true));
    settles(&engine, &version);
}

#[test]
fn b_py_12_a_decoupled_call_gets_every_response_and_a_separate_end() {
    let (engine, version, responders) = handing_out(|_| {});
    let mut call = of("m", 1);
    call.decoupled = true;
    let made = start(&engine, call).expect("accepted");
    let (_, responder) = responders.recv_timeout(WITHIN).expect("it runs");
    responder.send(outcome(1)).expect("wanted");
    responder.fail(Error::not_found("mid"));
    responder.finish(None);
    assert_eq!(made.next(), (Got::Number(1), false));
    assert_eq!(made.next(), (Got::Failed(Code::NotFound), false));
    assert_eq!(made.next(), (Got::Nothing, true));
    settles(&engine, &version);
}

#[test]
fn b_py_12_a_cancelled_call_ends_soon_in_any_stage() {
    let (engine, version, responders) = handing_out(|_| {});
    let mut call = of("m", 1);
    call.decoupled = true;
    let made = start(&engine, call).expect("accepted");
    let (_, responder) = responders.recv_timeout(WITHIN).expect("it runs");
    let (told, hears) = channel();
    responder.on_cancel(move || told.send(()).expect("the test waits"));
    made.handle.cancel();
    hears.recv_timeout(WITHIN).expect("the model hears of it");
    made.handle.cancel();
    responder.finish(None);
    assert_eq!(made.next(), (Got::Failed(Code::Cancelled), true));
    settles(&engine, &version);
}

#[test]
fn b_py_13_a_timeout_limits_how_long_a_call_waits() {
    let (engine, version, leave) = parked();
    // Like a model that calls itself: its only instance is busy with the caller.
    let caller = start(&engine, of("m", 1)).expect("accepted");
    soon("the caller runs", || version.inflight() == 1 && version.statistics().pending == 0);
    let patient = start(&engine, of("m", 2)).expect("accepted");
    let mut brief = of("m", 3);
    brief.request.timeout_us = 30_000;
    let began = Instant::now();
    let brief = start(&engine, brief).expect("accepted");
    // Armed after the other one: the earlier one counts.
    let mut briefer = of("m", 4);
    briefer.request.timeout_us = 1000;
    let briefer = start(&engine, briefer).expect("accepted");
    for call in [briefer, brief] {
        let error = call.error();
        assert_eq!((error.code(), error.message()), (Code::Unavailable, "Request timeout expired"));
    }
    assert!(began.elapsed() >= Duration::from_millis(30));
    patient.is_silent();
    for _ in 0..2 {
        leave.send(()).expect("it waits");
    }
    assert_eq!((caller.next(), patient.next()), ((Got::Number(1), true), (Got::Number(2), true)));
    settles(&engine, &version);
}

#[test]
fn b_py_13_a_timeout_does_not_end_a_running_request() {
    let (leave, wait) = channel::<()>();
    let wait = parking(wait);
    let (engine, version) = model(
        |_| {},
        move |_, batch, _| {
            wait();
            for entry in batch.requests.iter_mut() {
                entry.result = Some(Ok(outcome(asked(entry))));
            }
        },
    );
    // On a busy machine a thread may begin to run it too late, even several times.
    let in_time = (0..20).find_map(|_| {
        let mut call = of("m", 1);
        call.request.timeout_us = 50_000;
        let began = Instant::now();
        let made = start(&engine, call).expect("accepted");
        soon("it runs or is over", || version.statistics().pending == 0);
        let in_time = began.elapsed() < Duration::from_millis(50);
        std::thread::sleep(Duration::from_millis(70));
        leave.send(()).expect("there is a test");
        let end = made.next();
        in_time.then_some(end)
    });
    assert_eq!(in_time, Some((Got::Number(1), true)));
    settles(&engine, &version);
}

/// A model of one instance whose executions wait for the test.
fn parked() -> (Arc<Engine>, Arc<ModelVersion>, Sender<()>) {
    let (leave, wait) = channel::<()>();
    let wait = parking(wait);
    let (engine, version) = model(
        |config| instances(config, 1),
        move |_, batch, _| {
            wait();
            for entry in batch.requests.iter_mut() {
                entry.result = Some(Ok(outcome(asked(entry))));
            }
        },
    );
    (engine, version, leave)
}

/// Waits once for each message.
fn parking(wait: Receiver<()>) -> impl Fn() + Send + Sync {
    let wait = std::sync::Mutex::new(wait);
    move || wait.lock().unwrap().recv_timeout(WITHIN).expect("leave to end")
}

#[test]
fn b_py_10_a_stopping_server_accepts_calls_for_requests_in_flight() {
    let (engine, version) = model(
        |_| {},
        |_, batch, _| {
            for entry in batch.requests.iter_mut() {
                entry.result = Some(Ok(outcome(asked(entry))));
            }
        },
    );
    engine.set_server_state(ServerState::Exiting);
    assert!(support::try_call(&version, 1, None).is_err(), "a client is");
    assert_eq!(start(&engine, of("m", 1)).expect("accepted").next(), (Got::Number(1), true));
    settles(&engine, &version);
}

#[test]
fn b_py_13_a_call_is_part_of_the_trace_of_its_request() {
    let (engine, version) = model(
        |_| {},
        |_, batch, _| {
            for entry in batch.requests.iter_mut() {
                entry.result = Some(Ok(outcome(asked(entry))));
            }
        },
    );
    let setting = trace::TraceSetting {
        number: 1,
        mode: trace::TraceMode::Triton,
        timestamps: true,
        tensors: false,
        rate: 1,
        count: 1,
    };
    engine.tracer().set("", Some(setting)).expect("few");
    let parent = version.trace().begin(|| None).expect("sampled");
    parent.accepted("caller", 1, "", 1);
    let mut call = of("m", 1);
    call.parent_trace = Some(parent.clone());
    start(&engine, call).expect("accepted").next();
    // Without a parent there is no child trace, even if requests of clients are sampled.
    start(&engine, of("m", 1)).expect("accepted").next();
    settles(&engine, &version);
    drop(parent);
    soon("the record is complete", || engine.tracer().waiting().0 == 1);
    let records = engine.tracer().take(10).records;
    let calls: Vec<_> = records[0].calls.iter().map(|c| (&*c.model, c.parent != 0)).collect();
    assert_eq!(calls, [("caller", false), ("m", true)]);
}

#[test]
fn b_py_12_a_decoupled_call_may_use_a_model_with_one_response() {
    let (engine, version) = model(
        |_| {},
        |_, batch, _| {
            for entry in batch.requests.iter_mut() {
                entry.result = Some(Ok(outcome(asked(entry))));
            }
        },
    );
    let mut call = of("m", 4);
    call.decoupled = true;
    assert_eq!(start(&engine, call).expect("accepted").next(), (Got::Number(4), true));
    settles(&engine, &version);
}

#[test]
fn b_sec_07_calls_through_ensembles_count_their_depth() {
    let (send, depths) = channel();
    let (engine, _version) = model(
        |_| {},
        move |_, batch, _| {
            for entry in batch.requests.iter_mut() {
                send.send(entry.request.depth).expect("the test waits");
                entry.result = Some(Ok(outcome(asked(entry))));
            }
        },
    );
    support::publish(&engine, &support::ensemble_of("graph", "m")).expect("a good graph");
    let mut call = of("graph", 6);
    call.request.depth = 7;
    assert_eq!(start(&engine, call).expect("accepted").next(), (Got::Number(6), true));
    assert_eq!(depths.recv_timeout(WITHIN), Ok(7));
}
