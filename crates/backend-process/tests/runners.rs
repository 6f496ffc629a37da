//! Models in processes, as seen by the engine.

#![allow(clippy::disallowed_methods, reason = "tests wait for other threads and processes, and look at clocks")]
#![cfg(target_os = "linux")]

mod support;

use backend::{Counted, InstanceEvents, Model, Readiness};
use backend_process::{RunnerLimits, SharedMemory};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use support::*;
use tensor::{Code, Data, DataType, Error};

fn echoed(model: &dyn Model, count: usize) {
    let ran = run(model, 0, vec![bytes("", count)]);
    let outcome = ran.answer().unwrap_or_else(|e| panic!("{count} bytes: {e}"));
    let [out] = &outcome.outputs[..] else { panic!("{outcome:?}") };
    assert_eq!((&out.name[..], out.shape[0], out.data.len(), out.form.binary), ("OUT", count as i64, count, true));
    assert!(
        out.data.to_vec().expect("in memory").iter().enumerate().all(|(n, &b)| b == (n % 251) as u8),
        "{count} bytes"
    );
    ran.freed().expect("marks");
}

#[test]
fn tensors_of_every_size_round_trip_b_py_04() {
    let model = start("echo", 1, limits()).expect("starts");
    for count in [0, 1, 4096, 4097, 100_000, 700_000, 3 << 20, 20 << 20, 5, 5 << 20, 20 << 20] {
        echoed(&*model, count);
    }
}

#[test]
fn without_shared_memory_tensors_pass_through_the_sockets_b_pyr_01() {
    let model = start("echo", 1, RunnerLimits { shared_memory: SharedMemory::None, ..limits() }).expect("starts");
    for count in [0, 1, 4096, 4097, 700_000, 20 << 20, 5] {
        echoed(&*model, count);
    }
    let ran = run(&*model, 0, vec![bytes("", 250 << 20)]);
    let refused = ran.answer().expect_err("longer than a frame");
    assert_eq!(refused, Error::environment("Failed to allocate memory for the request of model 'm'"));
    echoed(&*model, 10);
}

#[test]
fn strings_are_copied_and_counted_b_py_05() {
    let model = start("echo", 1, limits()).expect("starts");
    let mut raw = Vec::new();
    for n in 0..2000 {
        tensor::strings::push(&mut raw, format!("text {n}").as_bytes());
    }
    let tensor = ("IN_S", DataType::Bytes, Data::Bytes(raw.clone().into()), &[2000][..]);
    let outcome = run(&*model, 0, vec![request("", &[tensor])]).answer().expect("an answer");
    assert_eq!(
        (outcome.outputs[0].datatype, outcome.outputs[0].data.to_vec().expect("in memory")),
        (DataType::Bytes, raw)
    );
}

#[test]
fn each_request_of_a_batch_is_answered_and_the_instance_is_freed_b_py_23() {
    let model = start("echo", 1, limits()).expect("starts");
    let mut entries = vec![bytes("a", 10), bytes("b", 9000), bytes("c", 20)];
    entries[1].request.parameters = vec![
        ("k".into(), protocol::Parameter::String("v".into())),
        ("n".into(), protocol::Parameter::Int(-3)),
        ("d".into(), protocol::Parameter::Double(2.0)),
        ("b".into(), protocol::Parameter::Bool(true)),
    ];
    let parameters = entries[1].request.parameters.clone();
    let ran = run(&*model, 0, entries);
    let outcomes: Vec<_> = (0..3).map(|_| ran.answer().expect("an answer")).collect();
    assert_eq!(outcomes.iter().map(|o| o.outputs[0].data.len()).collect::<Vec<_>>(), [10, 9000, 20]);
    assert_eq!(outcomes[1].parameters, parameters);
    let marks = ran.freed().expect("marks");
    assert!(marks.inputs_ready < marks.inference_end && marks.inference_end <= marks.outputs_ready);
}

#[test]
fn outputs_keep_their_type_and_shape_and_unknown_ones_are_dropped_b_py_14() {
    let model = start("echo", 1, limits()).expect("starts");
    for _ in 0..1000 {
        let outcome = run(&*model, 0, vec![bytes("odd", 8)]).answer().expect("an answer");
        let seen: Vec<_> = outcome
            .outputs
            .iter()
            .map(|o| (o.datatype, o.shape.to_vec(), o.data.to_vec().expect("in memory")[0]))
            .collect();
        assert_eq!(seen, [(DataType::Int64, vec![3], b'a'), (DataType::Int64, vec![3], b'c')]);
    }
    let outcome = run(&*model, 0, vec![bytes("in place", 9000)]).answer().expect("an answer");
    assert_eq!(
        outcome.outputs[0].data.to_vec().expect("in memory")[..6],
        [0, 1, 2, 3, 4, 5],
        "from the memory the input came in"
    );
}

#[test]
fn errors_count_as_successes_and_exceptions_as_failures_b_py_24() {
    let model = start("echo", 1, limits()).expect("starts");
    let check = |id, error: Error, counted| match run(&*model, 0, vec![bytes(id, 5000)]).event() {
        Event::Ended(Some(Err(got)), as_what) => assert_eq!((got, as_what), (error, counted)),
        other => panic!("{other:?}"),
    };
    check("error", Error::not_found("no such thing"), Counted::Success);
    check("raise", Error::internal("ValueError: wrong").by_model(), Counted::Failure);
    echoed(&*model, 10);
}

#[test]
fn responses_of_any_size_arrive_in_order_before_the_end_b_py_15() {
    let model = start("echo", 1, limits()).expect("starts");
    for (id, size) in [("stream 300", 100), ("stream 300", 5000), ("stream 20", 2 << 20)] {
        let count: usize = id.split(' ').nth(1).and_then(|n| n.parse().ok()).expect("a number");
        let ran = run(&*model, 0, vec![bytes(id, size)]);
        for n in 0..count {
            match ran.event() {
                Event::Sent(outcome) => {
                    let out = &outcome.outputs[0].data;
                    assert_eq!((out.len(), out.read_at::<1>(0)), (size, Ok([n as u8])), "{n}");
                }
                other => panic!("{other:?}"),
            }
        }
        assert!(matches!(ran.event(), Event::Ended(None, Counted::ByLastAnswer)));
        ran.freed().expect("marks");
    }
}

#[test]
fn a_model_sees_cancellation_and_a_rescheduled_request_runs_again_b_py_19() {
    let model = start("echo", 1, limits()).expect("starts");
    let ran = run(&*model, 0, vec![bytes("cancelled", 10)]);
    ran.freed().expect("marks");
    ran.answers[0].cancel();
    assert_eq!(ran.answer().err(), Some(Error::cancelled("I saw it")));
    let model = start("iterative", 1, limits()).expect("starts");
    match run(&*model, 0, vec![bytes("again", 10)]).event() {
        Event::Again(entry) => assert_eq!(entry.inputs[0].data.len(), 10, "with its inputs"),
        other => panic!("{other:?}"),
    }
}

/// Recorded events of instances.
#[derive(Default)]
struct InstanceLog(Mutex<Vec<String>>);

impl InstanceEvents for InstanceLog {
    fn down(&self, instance: u32, why: Error) {
        assert_eq!(why.code(), Code::Unavailable);
        self.0.lock().expect("no panic").push(format!("down {instance}"));
    }
    fn up(&self, instance: u32) {
        self.0.lock().expect("no panic").push(format!("up {instance}"));
    }
}

impl InstanceLog {
    fn until(&self, expected: &[&str]) {
        until(&format!("{expected:?}"), || *self.0.lock().expect("no panic") == expected);
    }
}

#[test]
fn b_pyr_07_a_crash_fails_the_requests_of_its_process_which_restarts_in_a_second() {
    let model = start("echo", 2, limits()).expect("starts");
    let log = Arc::new(InstanceLog::default());
    remote(&*model).serve(log.clone());
    let mut expected = Vec::new();
    let stub = Error::internal("Stub process 'm_0' is not healthy.").by_model().retry(true);
    for id in ["kill", "exit", "forks"] {
        let other = run(&*model, 1, vec![bytes("stream 2000", 10)]);
        let ran = run(&*model, 0, vec![bytes(id, 10), bytes("", 5000)]);
        for _ in 0..2 {
            assert_eq!(ran.answer().err(), Some(stub.clone()), "{id}");
        }
        assert!(ran.freed().is_none(), "lost, not free");
        let died = Instant::now();
        expected.extend(["down 0", "up 0"]);
        log.until(&expected);
        let took = died.elapsed();
        println!("{id}: back after {} ms", took.as_millis());
        echoed(&*model, 10);
        for _ in 0..2000 {
            assert!(matches!(other.event(), Event::Sent(_)), "the other process goes on");
        }
        // The next round uses its instance again, which is busy until then.
        assert!(matches!(other.event(), Event::Ended(None, _)));
        other.freed().expect("marks");
        assert!(matches!(remote(&*model).readiness(), Readiness::Ready));
    }
    let restarts = model.metrics().into_iter().find(|m| m.0 == "nereid_runner_restarts").map(|m| m.2);
    assert_eq!(restarts, Some(3.0));
}

#[test]
fn repeated_crashes_restart_after_growing_pauses_that_are_reported_b_pyr_07() {
    let model = start("echo", 1, limits()).expect("starts");
    let log = Arc::new(InstanceLog::default());
    remote(&*model).serve(log.clone());
    for crash in 1..=6 {
        assert!(run(&*model, 0, vec![bytes("exit", 10)]).answer().is_err());
        let died = Instant::now();
        until("it is reported", || log.0.lock().expect("no panic").len() >= crash * 2 - 1);
        if crash == 6 {
            let Readiness::NotReady(why) = remote(&*model).readiness() else { panic!("ready") };
            assert!(why.contains("'m'") && why.ends_with("is started again after a pause of 1.6 s"), "{why}");
            let ran = run(&*model, 0, vec![bytes("", 10)]);
            assert!(ran.answer().is_err_and(|e| e.message() == "Stub process 'm_0' is not healthy."));
        }
        until("it is back", || log.0.lock().expect("no panic").len() == crash * 2);
        assert!(crash < 6 || died.elapsed() >= Duration::from_millis(1600), "{:?}", died.elapsed());
    }
    assert!(matches!(remote(&*model).readiness(), Readiness::Ready));
    echoed(&*model, 10);
}

#[test]
fn a_batch_that_takes_too_long_is_a_crash_b_pyr_08() {
    let limits = backend_process::RunnerLimits { execute_timeout: Some(Duration::from_millis(300)), ..limits() };
    let model = start("echo", 1, limits).expect("starts");
    let log = Arc::new(InstanceLog::default());
    remote(&*model).serve(log.clone());
    echoed(&*model, 10);
    let begin = Instant::now();
    assert!(run(&*model, 0, vec![bytes("hang", 10)]).answer().is_err());
    assert!(begin.elapsed() >= Duration::from_millis(300));
    log.until(&["down 0", "up 0"]);
    echoed(&*model, 10);
}

#[test]
fn a_hanging_process_without_clients_ends_once_its_model_leaves_service_b_pyr_09() {
    let model = start("echo", 2, RunnerLimits { exit_grace: Duration::from_millis(300), ..limits() }).expect("starts");
    let log = Arc::new(InstanceLog::default());
    remote(&*model).serve(log.clone());
    let ran = [run(&*model, 0, vec![bytes("hang", 10)]), run(&*model, 1, vec![bytes("hang", 10)])];
    ran[0].answers[0].cancel();
    std::thread::sleep(Duration::from_millis(600));
    log.until(&[]);
    let left = Instant::now();
    remote(&*model).leave_service(Duration::MAX);
    assert_eq!(
        ran[0].answer().err(),
        Some(Error::internal("Stub process 'm_0' is not healthy.").by_model().retry(true))
    );
    assert!(left.elapsed() >= Duration::from_millis(300), "{:?}", left.elapsed());
    // A client waits for the other one, which ends soon after its cancellation.
    assert!(ran[1].events.recv_timeout(Duration::from_millis(600)).is_err());
    log.until(&["down 0"]);
    ran[1].answers[0].cancel();
    let cancelled = Instant::now();
    // The server exits: the shorter grace applies.
    remote(&*model).leave_service(Duration::ZERO);
    assert!(ran[1].answer().is_err());
    assert!(cancelled.elapsed() < Duration::from_secs(5));
    log.until(&["down 0", "down 1"]);
    let Readiness::NotReady(why) = remote(&*model).readiness() else { panic!("ready") };
    assert_eq!(why, "model 'm' is being unloaded");
}

#[test]
fn a_failed_start_returns_its_reason_and_leaves_nothing_b_py_03() {
    let failure = start("fails", 2, limits()).err().expect("fails");
    assert_eq!(failure.error, Error::internal("ImportError: no").by_model());
    let source = failure.source.expect("a place");
    assert_eq!(
        (&source.file[..], source.line, &source.text[..], failure.missing),
        ("/m.py", 3, "import no", Some("no".into()))
    );
    let failure = start("dies_at_start", 1, limits()).err().expect("fails");
    assert_eq!(failure.error, Error::internal("Stub process 'm_0' is not healthy.").by_model().retry(true));
    let failure = start("old", 1, limits()).err().expect("fails");
    let text = "the runtime speaks version 1 of the runner protocol, the server 2";
    assert_eq!(failure.error, Error::internal(text));
    let limit = RunnerLimits { start_timeout: Duration::from_millis(500), ..limits() };
    let failure = start("mute", 1, limit).err().expect("fails");
    assert_eq!(failure.error, Error::unavailable("m_0 was started and did not connect within 0.5 s").by_model());
    let mut none = instance("echo", 0);
    none.command.program = "/no/such/program".into();
    let failure =
        backend_process::complete_config(&none, &limits(), backend_process::OutputTarget::Lines).expect_err("fails");
    assert!(failure.error.message().contains("No such file"), "{failure:?}");
}

#[test]
fn a_process_inherits_only_its_own_descriptors_b_sec_01() {
    // A descriptor that is not close-on-exec, as other code may open it.
    let completed =
        backend_process::complete_config(&instance("descriptors", 0), &limits(), backend_process::OutputTarget::Lines);
    let facts = completed.expect("an answer").expect("facts");
    assert_eq!(
        facts,
        r#"[[0, 1, 2, 3, 4, 5, 6, 7], true, "/dev/null", ["LC_CTYPE", "NEREID_RUNNER", "PATH"], "SIG_DFL", []]"#
    );
}

#[test]
fn readiness_queries_are_shared_and_bounded_b_py_26() {
    let check = |mode, expected: bool| {
        let model = start(mode, 1, limits()).expect("starts");
        let (send, answers) = std::sync::mpsc::channel();
        for _ in 0..3 {
            let send = send.clone();
            match remote(&*model).readiness() {
                Readiness::Ask(ask) => ask(Box::new(move |answer| {
                    let _ = send.send(answer.is_ok());
                })),
                _ => panic!("to be completed"),
            }
        }
        for _ in 0..3 {
            assert_eq!(answers.recv_timeout(LONG), Ok(expected), "{mode}");
        }
    };
    check("asks", true);
    check("unready", false);
    check("never_ready", false);
}

#[test]
fn a_full_arena_fails_its_request_only_b_sec_10() {
    let limits = backend_process::RunnerLimits { arena_bytes_max: 4 << 20, ..limits() };
    let model = start("echo", 1, limits).expect("starts");
    echoed(&*model, 2 << 20);
    let ran = run(&*model, 0, vec![bytes("", 5 << 20), bytes("", 9000)]);
    let mut answers = [ran.answer(), ran.answer()];
    answers.sort_by_key(|a| a.is_ok());
    let text = "Failed to allocate memory for the request of model 'm'";
    assert_eq!(answers[0].as_ref().err(), Some(&Error::environment(text)));
    assert!(answers[1].is_ok());
    ran.freed().expect("marks");
    let ran = run(&*model, 0, vec![bytes("", 5 << 20)]);
    assert!(ran.answer().is_err());
    ran.freed().expect("free again though nothing ran");
    echoed(&*model, 2 << 20);
}

#[test]
fn releases_of_an_unsent_batch_are_sent_with_another_b_sec_11() {
    let limits = backend_process::RunnerLimits { arena_bytes_max: 4 << 20, ..limits() };
    let model = start("echo", 1, limits).expect("starts");
    // There is memory for only four such responses.
    for _ in 0..8 {
        echoed(&*model, 1 << 20);
        assert!(run(&*model, 0, vec![bytes("", 5 << 20)]).answer().is_err());
    }
}

#[test]
fn endless_output_delays_no_response_b_pyr_11() {
    let model = start("echo", 1, limits()).expect("starts");
    let begin = Instant::now();
    run(&*model, 0, vec![bytes("print", 10)]).answer().expect("an answer");
    println!("100 MB of output: {} ms", begin.elapsed().as_millis());
    echoed(&*model, 10);
}

/// Descriptors, threads and memory of this process, and the model's own gauges: all that can leak.
fn held(model: &dyn Model) -> (usize, usize, f64, Vec<(&'static str, f64)>) {
    let count = |directory| std::fs::read_dir(directory).map_or(0, Iterator::count);
    let resident = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: f64 = resident.split(' ').nth(1).and_then(|n| n.parse().ok()).unwrap_or(0.0);
    let metrics = model.metrics().into_iter().map(|(name, _, value)| (name, value)).collect();
    (count("/proc/self/fd"), count("/proc/self/task"), pages * 4096.0, metrics)
}

/// `NEREID_CALLS=100000` sets the number. Other tests of the process have descriptors and threads, too.
#[test]
#[ignore = "counts what the whole process holds: run alone, with --ignored"]
fn many_calls_leak_no_descriptors_memory_or_arenas_b_sec_11() {
    let calls: usize = std::env::var("NEREID_CALLS").ok().and_then(|n| n.parse().ok()).unwrap_or(20_000);
    let model = start("echo", 1, limits()).expect("starts");
    let some = |count: usize| {
        for n in 0..count {
            let size = [10, 3000, 9000, 70_000, 300_000][n % 5];
            let id = if n % 7 == 0 { "stream 1" } else { "" };
            let ran = run(&*model, 0, vec![bytes(id, size)]);
            while !matches!(ran.event(), Event::Ended(..)) {}
            ran.freed().expect("marks");
        }
    };
    some(1000);
    let before = held(&*model);
    let begin = Instant::now();
    some(calls);
    let after = held(&*model);
    println!("{calls} calls in {:.1} s\nbefore {before:?}\nafter  {after:?}", begin.elapsed().as_secs_f64());
    // A block returned on the side may arrive after the next batch: then there is one more segment, once.
    assert!(after.0 <= before.0 + 1 && after.1 == before.1, "descriptors and threads");
    assert!(after.2 - before.2 < 16e6, "memory: {} bytes more", after.2 - before.2);
    for ((name, was), (_, is)) in before.3.into_iter().zip(after.3) {
        let more = if name == "nereid_runner_resident_bytes" { 4e6 } else { 0.0 };
        // The last request's blocks are returned with the next result.
        let more = if name == "nereid_runner_request_bytes" { 1e6 } else { more };
        let more = if name == "nereid_runner_shared_bytes" { f64::from(1 << 20) } else { more };
        assert!(is - was <= more, "{name}: {was}, then {is}");
    }
}
