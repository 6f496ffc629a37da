//! Ensembles in the engine: steps are ordinary calls, no thread waits for one, and every request ends. Tests of the
//! order of steps are in the crate `graph`.

#![allow(clippy::disallowed_methods, reason = "tests wait for other threads and processes, and look at clocks")]

use crate::support::Got::{Failed, Nothing, Number};
use crate::support::*;
use backend::{Batch, Stopped};
use bytes::Bytes;
use engine::{Engine, ModelVersion, Ticket};
use protocol::pb::inference as pb;
use protocol::{Regions, RequestedOutput};
use std::cell::Cell;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tensor::{Code, Data, Error, Result};

thread_local! {
    static IS_REACTOR: Cell<bool> = const { Cell::new(false) };
}

/// Usually long enough for a step to respond; always for a thousand of them.
const PAUSE: Duration = Duration::from_micros(500);

/// `m: a b c` is a chain ensemble m of the steps a, b and c.
fn chain(line: &str) -> pb::ModelConfig {
    let (name, steps) = line.split_once(": ").unwrap();
    let steps: Vec<_> = steps.split(' ').collect();
    chain_of(name, &steps, 0)
}

fn limited(mut config: pb::ModelConfig, limit: u32) -> pb::ModelConfig {
    if let Some(pb::model_config::SchedulingChoice::EnsembleScheduling(graph)) = &mut config.scheduling_choice {
        graph.max_inflight_requests = limit;
    }
    config
}

/// Responds to each request with a function of its number.
fn plain(f: impl Fn(u8) -> Result<u8> + Send + Sync + 'static) -> Script {
    Arc::new(move |_, batch: &mut Batch<'_>, _| {
        for entry in batch.requests.iter_mut() {
            entry.result = Some(f(asked(entry)).map(outcome));
        }
    })
}

/// Responds to each request as many times as its number says, on a thread of its own.
fn many() -> Script {
    Arc::new(|_, batch, _| {
        for entry in batch.requests.iter_mut() {
            let (n, responder) = (asked(entry), entry.responder.take().unwrap());
            std::thread::spawn(move || {
                (0..n).try_for_each(|i| responder.send(outcome(i)))?;
                responder.finish(None);
                Ok::<_, Stopped>(())
            });
        }
    })
}

/// Responds with pauses until it is stopped; returns how many were not. Without pauses other steps cannot keep up.
fn endless(running: Arc<AtomicUsize>, pause: Duration) -> Script {
    Arc::new(move |_, batch, _| {
        for entry in batch.requests.iter_mut() {
            let responder = entry.responder.take().unwrap();
            running.fetch_add(1, SeqCst);
            let running = running.clone();
            std::thread::spawn(move || {
                while responder.send(outcome(1)).is_ok() {
                    std::thread::sleep(pause);
                }
                responder.finish(None);
                running.fetch_sub(1, SeqCst);
            });
        }
    })
}

/// Uses a core as long as a cheap step, and returns its number; counts its runs on the calling thread.
fn working(here: Arc<AtomicUsize>) -> Script {
    plain(move |n| {
        let until = Instant::now() + Duration::from_micros(10);
        while Instant::now() < until {}
        here.fetch_add(usize::from(IS_REACTOR.get()), SeqCst);
        Ok(n)
    })
}

/// Runs `work` on a thread with turns, like a reactor.
fn on_a_reactor(work: impl FnOnce() + Send) {
    std::thread::scope(|scope| {
        scope.spawn(|| {
            engine::begin_turns(|| ());
            IS_REACTOR.set(true);
            work();
        });
    });
}

/// Data whose release panics.
struct Trap;

impl AsRef<[u8]> for Trap {
    fn as_ref(&self) -> &[u8] {
        &[9]
    }
}

impl Drop for Trap {
    fn drop(&mut self) {
        assert!(std::thread::panicking(), "a planted panic, when data are released");
    }
}

/// Waits for the test before each run, which it announces.
fn gated() -> (Script, Receiver<u8>, Sender<()>) {
    let ((begun, begins), (go, gone)) = (channel(), channel());
    let gone = Mutex::new(gone);
    let script = plain(move |n| {
        let _ = begun.send(n);
        let _ = gone.lock().unwrap().recv_timeout(WITHIN);
        Ok(n)
    });
    (script, begins, go)
}

struct Served {
    engine: Arc<Engine>,
    m: Arc<ModelVersion>,
}

/// Loads the models `add1`, `add10`, `fail` (of 9), `many`, the `others` on backends of their own, and the ensembles.
fn serve(others: Vec<(&'static str, Script)>, ensembles: &[pb::ModelConfig]) -> Served {
    let names: Vec<_> = others.iter().map(|o| o.0).collect();
    let refuse_nine = |n| if n == 9 { Err(Error::internal("nine")) } else { Ok(n) };
    let mut scripts = vec![
        ("add1", plain(|n| Ok(n + 1))),
        ("add10", plain(|n| Ok(n + 10))),
        ("fail", plain(refuse_nine)),
        ("many", many()),
    ];
    scripts.extend(others);
    let engine = engine_with(scripts).unwrap();
    for name in ["add1", "add10", "fail", "many"].iter().chain(&names) {
        let mut config = of_numbers(name, name);
        if ["many", "endless"].contains(name) {
            decoupled(&mut config);
        }
        publish(&engine, &config).unwrap();
    }
    for ensemble in ensembles {
        publish(&engine, ensemble).unwrap();
    }
    let m = engine.model("m", "").unwrap();
    Served { engine, m }
}

impl Served {
    fn settles(&self) {
        settles(&self.engine, &self.m);
    }
    fn stats(&self, model: &str) -> engine::VersionStatistics {
        self.engine.model(model, "").unwrap().statistics()
    }
}

#[test]
fn each_step_counts_a_request_once_o_34() {
    let s = serve(vec![], &[chain("m: add1 add10 add1")]);
    for n in 0..3 {
        assert_eq!(call(&s.m, n).rest(), [Number(n + 12)]);
    }
    s.settles();
    let (m, one, ten) = (s.stats("m"), s.stats("add1"), s.stats("add10"));
    let count = |s: &engine::VersionStatistics| (s.success.count, s.inference_count, s.execution_count, s.fail.count);
    assert_eq!([count(&m), count(&one), count(&ten)], [(3, 3, 3, 0), (6, 6, 6, 0), (3, 3, 3, 0)]);
    // Its times are the sums of those of its steps.
    for (all, parts) in [
        (m.compute_input, [one.compute_input, ten.compute_input]),
        (m.compute_infer, [one.compute_infer, ten.compute_infer]),
        (m.compute_output, [one.compute_output, ten.compute_output]),
    ] {
        assert_eq!((all.count, all.ns), (3, parts[0].ns + parts[1].ns));
    }
    assert!(m.queue.count == 3 && m.queue.ns > 0 && m.queue.ns < m.success.ns);
    assert_eq!(m.batches.iter().map(|b| (b.0, b.1.count)).collect::<Vec<_>>(), [(1, 3)]);
}

#[test]
fn cheap_steps_run_inline() {
    let s = serve(vec![], &[chain("m: add1 add10")]);
    // Once their cost is known.
    soon("an answer at once", || {
        let call = call(&s.m, 1);
        let at_once = call.ticket.is_none();
        assert_eq!(call.rest(), [Number(12)]);
        at_once
    });
    s.settles();
}

#[test]
fn a_reactor_leaves_the_steps_of_a_wide_ensemble_to_the_pool_after_a_while() {
    const STEPS: usize = 1000;
    let (open, opened) = (Arc::new(AtomicUsize::new(1)), Arc::new(AtomicUsize::new(0)));
    let gate = open.clone();
    let slow = plain(move |n| {
        soon("the gate opens", || gate.load(SeqCst) == 1);
        Ok(n)
    });
    let mut wide = of_numbers("m", "");
    let step = |i: usize| pb::model_ensembling::Step {
        model_name: "slow".into(),
        model_version: -1,
        input_map: [("I".to_owned(), "I".to_owned())].into(),
        output_map: [("O".to_owned(), format!("O{i}"))].into(),
        ..Default::default()
    };
    let graph = pb::ModelEnsembling { step: (0..STEPS).map(step).collect(), max_inflight_requests: 0 };
    wide.scheduling_choice = Some(pb::model_config::SchedulingChoice::EnsembleScheduling(graph));
    let output = wide.output[0].clone();
    wide.output = (0..STEPS).map(|i| pb::ModelOutput { name: format!("O{i}"), ..output.clone() }).collect();
    let s = serve(vec![("slow", slow)], &[wide]);
    // Never on the calling thread.
    let mut ordered = of_numbers("slow", "slow");
    dynamic(&mut ordered, pb::ModelDynamicBatching { preserve_ordering: true, ..Default::default() });
    let (m, steps) = (s.m.clone(), publish(&s.engine, &ordered).unwrap());
    let counted = opened.clone();
    std::thread::spawn(move || {
        engine::begin_turns(|| ());
        // Unless this thread loses its core right here.
        soon("the call returns before all steps are called", || {
            open.store(0, SeqCst);
            let call = call(&m, 7);
            let called = steps.inflight() as usize;
            open.store(1, SeqCst);
            assert!(call.next_answer().response.is_some_and(|r| r.is_ok_and(|r| r.outputs.len() == STEPS)));
            counted.fetch_add(1, SeqCst);
            called < STEPS
        });
    })
    .join()
    .unwrap();
    s.settles();
    let calls = opened.load(SeqCst);
    assert_eq!((s.stats("m").success.count, s.stats("slow").success.count), (calls as u64, (STEPS * calls) as u64));
}

#[test]
fn the_end_of_a_turn_holds_its_reactor_for_at_most_a_millisecond() {
    // Enough for 3 ms of steps, and few enough that a batch of them is cheap in a test build, too.
    const REQUESTS: u8 = 24;
    let here = Arc::new(AtomicUsize::new(0));
    let work = ["work"; 12].join(" ");
    let s = serve(vec![("first", plain(Ok)), ("work", working(here.clone()))], &[chain(&format!("m: add1 {work}"))]);
    let mut batching = of_numbers("first", "first");
    batching.max_batch_size = REQUESTS.into();
    dynamic(&mut batching, pb::ModelDynamicBatching::default());
    publish(&s.engine, &batching).unwrap();
    let m = publish(&s.engine, &chain(&format!("m: first {work}"))).unwrap();
    let mut rounds = Vec::new();
    on_a_reactor(|| {
        // Slow runs of other tests at the beginning are forgotten slowly.
        let until = Instant::now() + 6 * WITHIN;
        // Learns that the models are cheap, before which nothing runs inline.
        while rounds.iter().filter(|&&runs| runs > 0).count() < 3 {
            assert!(Instant::now() < until, "never: a step runs at the end of a turn: {rounds:?}");
            let calls: Vec<_> = (0..REQUESTS).map(|n| call(&m, n)).collect();
            here.store(0, SeqCst);
            engine::end_turn();
            rounds.push(here.load(SeqCst));
            for (n, call) in calls.iter().enumerate() {
                assert_eq!(call.rest(), [Number(n as u8)]);
            }
        }
    });
    // Steps of 10 µs and more.
    assert!(rounds.iter().all(|&runs| runs <= 60), "{rounds:?}");
    s.settles();
}

#[test]
fn the_rest_of_a_turn_with_many_models_moves_to_the_next() {
    const MODELS: usize = 120;
    let here = Arc::new(AtomicUsize::new(0));
    let s = serve(vec![("work", working(here.clone()))], &[chain("m: add1")]);
    let batching = |i: usize| {
        let mut config = of_numbers(&format!("m{i}"), "work");
        dynamic(&mut config, pb::ModelDynamicBatching::default());
        publish(&s.engine, &config).unwrap()
    };
    let models: Vec<_> = (0..MODELS).map(batching).collect();
    let ask = |m: &ModelVersion| {
        let (send, answers) = channel();
        let sink = || Arc::new(move |answer: engine::EngineResponse| drop(send.send(answer))) as Arc<dyn engine::Sink>;
        m.call(request(1), sink, None).unwrap();
        answers
    };
    let mut rounds = Vec::new();
    on_a_reactor(|| {
        let until = Instant::now() + WITHIN;
        while rounds.iter().filter(|&&runs| runs > 10).count() < 3 {
            assert!(Instant::now() < until, "never: batches run at the end of a turn: {rounds:?}");
            let calls: Vec<_> = models.iter().map(|m| ask(m)).collect();
            here.store(0, SeqCst);
            engine::end_turn();
            rounds.push(here.load(SeqCst));
            // As often as it requests a turn.
            (0..MODELS).for_each(|_| engine::end_turn());
            for call in calls {
                let _ = call.recv_timeout(WITHIN);
            }
        }
    });
    assert!(rounds.iter().all(|&runs| runs <= 52), "{rounds:?}");
    s.settles();
}

#[test]
fn a_reactor_leaves_large_outputs_for_regions_to_the_pool() {
    const LARGE: usize = 4 << 20;
    let bytes = Bytes::from(vec![7; LARGE]);
    let sized: Script = Arc::new(move |_, batch, _| {
        for entry in batch.requests.iter_mut() {
            let bytes = if asked(entry) == 1 { bytes.clone() } else { bytes.slice(..1) };
            let mut made = outcome(0);
            made.outputs[0].shape = [1, bytes.len() as i64].into_iter().collect();
            made.outputs[0].data = Data::Bytes(bytes);
            entry.result = Some(Ok(made));
        }
    });
    let wide = |mut config: pb::ModelConfig| {
        config.output[0].dims = vec![-1];
        config
    };
    let s = serve(vec![("sized", sized)], &[chain("m: add1")]);
    publish(&s.engine, &wide(of_numbers("sized", "sized"))).unwrap();
    let m = publish(&s.engine, &wide(chain("m: sized"))).unwrap();
    let key = format!("nereid-test-ensembles-{}", std::process::id());
    let file = std::path::PathBuf::from(format!("/dev/shm/{key}"));
    std::fs::write(&file, vec![0; LARGE]).unwrap();
    s.engine.regions().register("out", &key, 0, LARGE as u64).unwrap();
    let at_once = |n| {
        let mut request = request(n);
        let region = Some(s.engine.resolve("out", 0, LARGE as u64).unwrap());
        request.outputs.push(RequestedOutput { name: "O".into(), form: Default::default(), region });
        let call = try_request(&m, request, None).unwrap();
        assert!(call.next_answer().response.is_some_and(|r| r.is_ok()));
        call.ticket.is_none()
    };
    on_a_reactor(|| {
        soon("a small one is answered at once", || at_once(0));
        let large = (0..20).filter(|_| at_once(1)).count();
        assert_eq!(large, 0, "answered on this thread");
        soon("and small ones still are", || at_once(0));
    });
    assert!(std::fs::read(&file).unwrap() == vec![7; LARGE]);
    std::fs::remove_file(&file).unwrap();
    settles(&s.engine, &m);
}

#[test]
fn a_panic_in_a_flow_passes_its_permit_to_the_next_s_32() {
    let ((begun, begins), (go, gone)) = (channel(), channel());
    let gone = Mutex::new(gone);
    let trap: Script = Arc::new(move |_, batch, _| {
        for entry in batch.requests.iter_mut() {
            let n = asked(entry);
            let _ = begun.send(n);
            let _ = gone.lock().unwrap().recv_timeout(WITHIN);
            let mut made = outcome(n);
            if n == 1 {
                // No tensor of the ensemble, so it is dropped with the response.
                let mut more = outcome(0).outputs.remove(0);
                (more.index, more.data) = (7, Data::Bytes(Bytes::from_owner(Trap)));
                made.outputs.push(more);
            }
            entry.result = Some(Ok(made));
        }
    });
    let s = serve(vec![("trap", trap)], &[limited(chain("m: trap"), 1)]);
    let calls: Vec<_> = [1, 2, 3].map(|n| call(&s.m, n)).into();
    for _ in 0..3 {
        begins.recv_timeout(WITHIN).expect("each gets its place");
        go.send(()).unwrap();
    }
    let got: Vec<_> = calls.iter().map(Call::rest).collect();
    assert_eq!(got, [vec![Failed(Code::Internal)], vec![Number(2)], vec![Number(3)]]);
    go.send(()).unwrap();
    assert_eq!(call(&s.m, 4).rest(), [Number(4)], "no place is lost");
    s.settles();
}

#[test]
fn ensembles_that_contain_each_other_do_not_load() {
    let s = serve(vec![], &[chain("n: add1"), chain("m: n")]);
    let refused = |line| publish(&s.engine, &chain(line)).map(|_| ()).unwrap_err();
    let error = refused("n: m");
    let text = "circular dependency between ensembles: n -> ... -> m -> n";
    assert_eq!((error.code(), error.message()), (Code::InvalidArg, text));
    assert_eq!(refused("add1: m").message(), "circular dependency between ensembles: n -> ... -> m -> n");
    assert_eq!(refused("m: m").message(), "circular dependency between ensembles: m -> ... -> m -> m");
    assert_eq!(call(&s.m, 1).rest(), [Number(2)], "what served goes on");
    s.settles();
}

#[test]
fn ensembles_that_became_too_deep_after_loading_return_an_error() {
    let mut all = vec![chain("e0: add1")];
    all.extend((1..16).map(|i| chain(&format!("e{i}: e{}", i - 1))));
    all.push(chain("m: e15"));
    let s = serve(vec![], &all);
    assert_eq!(call(&s.m, 1).rest(), [Number(2)]);
    // The innermost ensemble is deeper now.
    for line in ["d0: add10", "d1: d0", "d2: d1", "add1: d2"] {
        publish(&s.engine, &chain(line)).unwrap();
    }
    let error = call(&s.m, 1).error();
    assert!(error.message().ends_with("ensembles contain one another more than 16 levels deep"), "{error}");
    s.settles();
}

#[test]
fn the_error_of_a_step_is_the_response_and_counts_twice_o_20() {
    let s = serve(vec![], &[chain("m: add1 fail add10")]);
    let error = call(&s.m, 8).error();
    assert_eq!((error.code(), error.message()), (Code::Internal, "in ensemble 'm', nine"));
    assert_eq!(call(&s.m, 1).rest(), [Number(12)]);
    s.settles();
    let (m, fail) = (s.stats("m"), s.stats("fail"));
    assert_eq!((m.fail.count, m.failures, m.success.count), (2, [0, 0, 0, 2], 1), "OTHER, as Triton counts it");
    assert_eq!((fail.fail.count, fail.failures), (1, [0, 0, 1, 0]));
    assert_eq!(s.stats("add10").success.count, 1);
}

#[test]
fn a_step_that_panics_fails_its_request_only() {
    let s = serve(vec![("panics", plain(|_| panic!("a planted panic")))], &[chain("m: add1 panics"), chain("n: add1")]);
    let error = call(&s.m, 1).error();
    assert!(error.message().starts_with("in ensemble 'm', the backend of model 'panics' stopped"), "{error}");
    s.settles();
}

#[test]
fn a_rejected_step_fails_the_request_with_its_text() {
    let s = serve(vec![], &[chain("m: add1")]);
    // Reloaded with fewer rows than the ensemble's plan allows.
    let mut narrow = of_numbers("add1", "add1");
    narrow.input[0].dims = vec![2];
    publish(&s.engine, &narrow).unwrap();
    let error = try_call(&s.m, 1, None).map(|_| ()).unwrap_err();
    assert!(
        error.message().contains("ensemble tensor I: inconsistent shape: [-1,1] is inferred from model m"),
        "{error}"
    );
    // And again as before.
    publish(&s.engine, &of_numbers("add1", "add1")).unwrap();
    assert_eq!(call(&s.m, 1).rest(), [Number(2)]);
    let load = s.engine.retire("add1", 1).map(|version| version.identity.load);
    s.engine.retired("add1", 1, load, "unloaded");
    let error = try_call(&s.m, 1, None).map(|_| ()).unwrap_err();
    assert_eq!(error.message(), "Request for unknown model: 'add1' has no available versions");
    s.settles();
}

#[test]
fn requests_finish_on_the_version_on_which_they_began() {
    let (script, begins, go) = gated();
    let s = serve(vec![("slow", script)], &[chain("m: slow add1")]);
    let call = call(&s.m, 1);
    begins.recv_timeout(WITHIN).unwrap();
    let add1 = s.engine.retire("add1", 1).unwrap();
    go.send(()).unwrap();
    assert_eq!(call.rest(), [Number(2)], "it holds what it will call");
    assert_eq!(add1.statistics().success.count, 1);
    s.settles();
}

#[test]
fn an_ensemble_of_ensembles_is_one_call_in_another() {
    let s = serve(vec![], &[chain("in: add1 fail"), chain("m: in in add10")]);
    assert_eq!(call(&s.m, 1).rest(), [Number(13)]);
    let error = call(&s.m, 7).error();
    assert_eq!(error.message(), "in ensemble 'm', in ensemble 'in', nine");
    s.settles();
    assert_eq!(s.stats("in").success.count, 3);
    let (m, one, ten, fail) = (s.stats("m"), s.stats("add1"), s.stats("add10"), s.stats("fail"));
    assert!(m.compute_infer.ns <= one.compute_infer.ns + ten.compute_infer.ns + fail.compute_infer.ns);
    assert!(m.compute_infer.ns >= ten.compute_infer.ns && m.compute_infer.count == 1);
}

#[test]
fn responses_of_a_decoupled_step_are_ordered_and_end() {
    let s = serve(vec![], &[chain("m: many add10")]);
    assert!(s.m.signature.decoupled, "whatever its own configuration says");
    for n in [0, 1, 3, 100] {
        let got = call(&s.m, n).rest();
        let numbers: Vec<_> = got.iter().filter(|g| **g != Nothing).cloned().collect();
        assert_eq!(numbers, (0..n).map(|i| Number(i + 10)).collect::<Vec<_>>());
    }
    s.settles();
    assert_eq!((s.stats("m").success.count, s.stats("m").inference_count), (4, 4), "however many answers");
}

#[test]
fn a_model_reduced_to_one_instance_is_called_in_order_r_28() {
    let (send, seen) = channel();
    let uneven = plain(|n| {
        std::thread::sleep(Duration::from_millis(if n % 2 == 0 { 5 } else { 0 }));
        Ok(n)
    });
    let single = plain(move |n| {
        let _ = send.send(n);
        Ok(n)
    });
    let s = serve(vec![("uneven", uneven), ("single", single)], &[chain("m: many uneven single")]);
    let with = |name: &str, count| {
        let mut config = of_numbers(name, name);
        instances(&mut config, count);
        config
    };
    publish(&s.engine, &with("uneven", 2)).unwrap();
    publish(&s.engine, &with("single", 2)).unwrap();
    let m = publish(&s.engine, &chain("m: many uneven single")).unwrap();
    let one = prost::Message::encode_to_vec(&with("single", 1));
    assert_eq!(s.engine.update("single", 1, one.into(), "{}".into()), Ok(true));
    call(&m, 20).rest();
    assert_eq!(seen.try_iter().collect::<Vec<_>>(), (0..20).collect::<Vec<_>>());
    settles(&s.engine, &m);
}

#[test]
fn a_failed_iteration_ends_the_request_and_its_endless_steps() {
    let running = Arc::new(AtomicUsize::new(0));
    let never = plain(|_| Err(Error::internal("never")));
    let s = serve(vec![("endless", endless(running.clone(), PAUSE)), ("never", never)], &[chain("m: endless never")]);
    assert_eq!(call(&s.m, 1).rest(), [Failed(Code::Internal)]);
    soon("the step stopped", || running.load(SeqCst) == 0);
    s.settles();
}

#[test]
fn an_endless_step_is_bounded_before_a_slow_one() {
    let running = Arc::new(AtomicUsize::new(0));
    let (slow, _begins, go) = gated();
    let s =
        serve(vec![("endless", endless(running.clone(), Duration::ZERO)), ("slow", slow)], &[chain("m: endless slow")]);
    let call = call(&s.m, 1);
    soon("the step stopped", || running.load(SeqCst) == 0);
    drop(go);
    assert_eq!(call.rest().last(), Some(&Failed(Code::ResourceExhausted)));
    s.settles();
}

#[test]
fn a_slow_reader_ends_its_request_with_the_reason() {
    let running = Arc::new(AtomicUsize::new(0));
    let s =
        serve(vec![("endless", endless(running.clone(), PAUSE))], &[chain("in: endless add1"), chain("m: in add10")]);
    let call = call(&s.m, 1);
    assert_eq!(call.next(), (Number(12), false));
    call.ticket().overrun(Error::exhausted("too far behind"));
    let last = loop {
        let answer = call.next_answer();
        if answer.is_final {
            break answer.response.expect("an error").expect_err("an error");
        }
    };
    assert_eq!(last, Error::exhausted("too far behind"));
    soon("the step stopped", || running.load(SeqCst) == 0);
    s.settles();
}

#[test]
fn a_cancelled_request_makes_no_further_calls_s_41() {
    let (slow, begins, go) = gated();
    let s = serve(vec![("slow", slow)], &[chain("in: slow add1"), chain("m: in add10")]);
    let group = Ticket::group(None).unwrap();
    let first = try_call(&s.m, 1, Some(&group)).unwrap();
    begins.recv_timeout(WITHIN).unwrap();
    group.cancel();
    go.send(()).unwrap();
    assert_eq!(first.rest(), [Failed(Code::Cancelled)]);
    group.end();
    s.settles();
    assert_eq!((s.stats("add1").success.count, s.stats("add10").success.count), (0, 0));
    assert_eq!(s.stats("m").failures, [0, 1, 0, 0]);
}

#[test]
fn calls_of_a_step_in_flight_are_limited_s_32() {
    let (now, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let counting = {
        let most = most.clone();
        plain(move |n| {
            most.fetch_max(now.fetch_add(1, SeqCst) + 1, SeqCst);
            std::thread::sleep(Duration::from_millis(1));
            now.fetch_sub(1, SeqCst);
            Ok(n)
        })
    };
    let s = serve(vec![("counting", counting)], &[limited(chain("m: add1 counting add1"), 1)]);
    let mut wide = of_numbers("counting", "counting");
    instances(&mut wide, 4);
    publish(&s.engine, &wide).unwrap();
    let calls: Vec<_> = (0..40).map(|n| call(&s.m, n)).collect();
    for (n, call) in calls.iter().enumerate() {
        assert_eq!(call.rest(), [Number(n as u8 + 2)]);
    }
    assert_eq!(most.load(SeqCst), 1, "four instances, one call at a time");
    s.settles();
}

#[test]
fn a_cancelled_request_leaves_the_queue_of_its_step_s_32() {
    let (slow, begins, go) = gated();
    let s = serve(vec![("slow", slow)], &[limited(chain("m: slow"), 1)]);
    let first = call(&s.m, 1);
    begins.recv_timeout(WITHIN).unwrap();
    let (second, third) = (call(&s.m, 2), call(&s.m, 3));
    second.is_silent();
    second.ticket().cancel();
    assert_eq!(second.rest(), [Failed(Code::Cancelled)], "while the first still runs");
    go.send(()).unwrap();
    go.send(()).unwrap();
    assert_eq!((first.rest(), third.rest()), (vec![Number(1)], vec![Number(3)]));
    assert_eq!(begins.recv_timeout(WITHIN), Ok(3), "the second was never called");
    s.settles();
}

#[test]
fn a_request_cancelled_during_a_step_does_not_queue_for_the_next_s_32() {
    let ((before, begun, go), (slow, begins, gone)) = (gated(), gated());
    let s = serve(vec![("before", before), ("slow", slow)], &[limited(chain("m: before slow"), 1)]);
    let first = call(&s.m, 1);
    go.send(()).unwrap();
    assert_eq!(begins.recv_timeout(WITHIN), Ok(1));
    let second = call(&s.m, 2);
    assert_eq!((begun.recv_timeout(WITHIN), begun.recv_timeout(WITHIN)), (Ok(1), Ok(2)));
    second.ticket().cancel();
    go.send(()).unwrap();
    assert_eq!(second.rest(), [Failed(Code::Cancelled)]);
    first.is_silent();
    gone.send(()).unwrap();
    assert_eq!(first.rest(), [Number(1)]);
    s.settles();
}

#[test]
fn requests_of_many_threads_get_their_own_responses() {
    let s = serve(vec![], &[chain("in: add1 many add1"), limited(chain("m: add1 in fail"), 3)]);
    std::thread::scope(|scope| {
        for t in 0..4 {
            let m = &s.m;
            scope.spawn(move || {
                for i in 0..100 {
                    let n = (t + i) % 7;
                    let asked = call(m, n);
                    if i % 11 == 0 {
                        asked.ticket().cancel();
                    }
                    let got = asked.rest();
                    let numbers: Vec<_> =
                        got.iter().filter_map(|g| if let Number(n) = g { Some(*n) } else { None }).collect();
                    assert_eq!(numbers, (1..=numbers.len() as u8).collect::<Vec<_>>(), "in order, none left out");
                    assert!(numbers.len() <= n as usize + 2);
                    if i % 11 != 0 {
                        assert_eq!(numbers.len(), n as usize + 2, "{got:?}");
                    }
                }
            });
        }
    });
    s.settles();
}

#[test]
fn an_ensemble_that_its_models_do_not_fit_does_not_load() {
    let s = serve(vec![], &[chain("m: add1")]);
    let refused = |config: &pb::ModelConfig| publish(&s.engine, config).map(|_| ()).unwrap_err().message().to_owned();
    let mut wide = chain("e: add1");
    wide.max_batch_size = 16;
    let text = "ensemble e allows maximum batch size 16, but it contains model add1 which only allows maximum batch \
         size to be 8";
    assert_eq!(refused(&wide), text);
    assert_eq!(refused(&chain("e: nobody")), "Request for unknown model: 'nobody' is not found");
    let known: BTreeSet<_> = s.engine.statistics("", "").unwrap().into_iter().map(|v| v.name).collect();
    assert!(!known.contains("e"));
}
