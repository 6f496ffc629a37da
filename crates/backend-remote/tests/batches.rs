//! Batches, lifecycle and readiness of runners, over a transport without processes, sockets or clocks.

#![warn(clippy::too_many_lines)]

mod support;

use backend::{Counted, InstanceEvents, Model, Readiness};
use backend_remote::generated::{
    ALL_OUTPUTS, ANSWER_FLAG_FAILED, ANSWER_FLAG_FINAL, Answer, AnswerHead, CallHead, EXECUTE_FLAG_FOLLOWED,
    EXECUTE_FLAG_WAITED, Frame, Header, IsReadyResult, Place, Question, RESULT_FLAG_FAILED, RequestHead, RespondHead,
    ResultHead, VERSION,
};
use backend_remote::{End, Limits, Prefetch, Way};
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::{Duration, Instant};
use support::stage::*;
use support::*;
use tensor::Error;

fn served() -> (Arc<Stage>, Arc<dyn Model>) {
    let stage = Stage::new(ready("{}"));
    let model = stage.start(limits()).expect("starts");
    (stage, model)
}

fn not_healthy() -> Error {
    Error::internal("Stub process 'm_0' is not healthy.").by_model().retry(true)
}

#[test]
fn a_batch_is_answered_in_the_order_of_its_requests_and_frees_its_instance_b_py_23() {
    let (stage, model) = served();
    let load = stage.runner().heard(Frame::Load);
    assert_eq!(&load[Header::BYTES..], br#"{"mode":"run","model":"m"}"#);
    for round in 0..1000 {
        let ran = run(&*model, 0, vec![bytes("a", 1), bytes("b", 9000), bytes("c", 1)]);
        stage.runner().answers(&[1, 2, 3]);
        let answers: Vec<_> = (0..3).map(|_| ran.answer().expect("an answer").outputs[0].data.to_vec()).collect();
        assert_eq!(answers, [Ok(vec![1]), Ok(vec![2]), Ok(vec![3])], "batch {round}");
        ran.freed().expect("marks");
        // Returns the request block; otherwise the segment would fill up.
        let block = stage.runner().heard(Frame::Execute);
        assert!(block.len() < 2000, "large tensors are in a segment");
        stage.runner().say(Way::Side, &release(&block));
    }
}

/// Returns the only block of a batch: that of the tensor in a segment.
fn release(execute: &[u8]) -> Vec<u8> {
    let head = execute.windows(2).position(|two| two == [Place::Request as u8, 0]);
    let at = head.into_iter().chain(0..execute.len() - 20).find(|&at| {
        let number = |at: usize| u64::from_le_bytes(execute[at..at + 8].try_into().expect("a number"));
        execute[at] == Place::Request as u8 && number(at + 12) == 9000
    });
    let at = at.expect("a tensor in a segment");
    framed(Frame::Release, 0, 1, &execute[at + 4..at + 12])
}

#[test]
fn a_runner_that_dies_fails_its_batch_and_is_started_again_b_pyr_07() {
    struct Told(Mutex<Vec<String>>);
    impl InstanceEvents for Told {
        fn down(&self, instance: u32, _: Error) {
            self.0.lock().push(format!("{instance} down"));
        }
        fn up(&self, instance: u32) {
            self.0.lock().push(format!("{instance} up"));
        }
    }
    let (stage, model) = served();
    let told = Arc::new(Told(Mutex::default()));
    remote(&*model).serve(told.clone());
    let ran = run(&*model, 0, vec![bytes("", 1)]);
    stage.runner().dies();
    assert_eq!(ran.answer().err(), Some(not_healthy()));
    assert_eq!(ran.freed(), None, "the instance is lost, not free");
    assert_eq!(*told.0.lock(), ["0 down"]);
    stage.pass(Duration::ZERO);
    assert_eq!((*told.0.lock() == ["0 down", "0 up"], stage.runners.lock().len()), (true, 2));
    let ran = run(&*model, 0, vec![bytes("", 1)]);
    stage.runner().answers(&[7]);
    assert!(ran.answer().is_ok());
    // The second restart in a minute is delayed.
    stage.runner().dies();
    stage.pass(Duration::ZERO);
    assert_eq!(stage.runners.lock().len(), 2);
    stage.pass(Duration::from_millis(100));
    assert_eq!(stage.runners.lock().len(), 3);
}

#[test]
fn b_sec_04_a_runner_that_breaks_the_protocol_is_killed_once_with_its_requests() {
    let (stage, model) = served();
    let ran = run(&*model, 0, vec![bytes("", 1)]);
    let runner = stage.runner();
    runner.say(Way::Work, &result(77, &[1]));
    runner.answers(&[1]);
    assert!(ran.events.try_recv().is_err(), "its frames are ignored");
    assert_eq!(*runner.ends.lock(), [End::Killed]);
    runner.dies();
    assert_eq!(ran.answer().err(), Some(not_healthy()));
}

#[test]
fn a_failed_batch_fails_each_of_its_requests_with_the_text_b_py_24() {
    let (stage, model) = served();
    let ran = run(&*model, 0, vec![bytes("", 1), bytes("", 1)]);
    let mut body = Vec::new();
    ResultHead { batch: 1, releases: 0, error_bytes: 2 }.write(&mut body);
    body.extend_from_slice(b"no");
    stage.runner().say(Way::Work, &framed(Frame::Result, RESULT_FLAG_FAILED, 0, &body));
    for _ in 0..2 {
        match ran.event() {
            Event::Ended(Some(Err(error)), Counted::Failure) => assert_eq!(error, Error::internal("no").by_model()),
            other => panic!("{other:?}"),
        }
    }
    ran.freed().expect("marks");
}

#[test]
fn an_error_counts_as_a_success_unless_the_model_failed_b_py_24() {
    for (flags, expected) in
        [(ANSWER_FLAG_FINAL, Counted::Success), (ANSWER_FLAG_FINAL | ANSWER_FLAG_FAILED, Counted::Failure)]
    {
        let mut answer = Vec::new();
        AnswerHead { kind: Answer::Error as u8, flags, error_bytes: 2, ..AnswerHead::default() }.write(&mut answer);
        answer.extend_from_slice(b"no");
        let mut result = Vec::new();
        ResultHead { batch: 1, releases: 0, error_bytes: 0 }.write(&mut result);
        let mut respond = Vec::new();
        RespondHead { slot: 0, generation: 1 }.write(&mut respond);
        for (way, frame, count, mut body) in
            [(Way::Work, Frame::Result, 1, result), (Way::Side, Frame::Respond, 0, respond)]
        {
            let (stage, model) = served();
            let ran = run(&*model, 0, vec![bytes("", 1)]);
            body.extend_from_slice(&answer);
            stage.runner().say(way, &framed(frame, 0, count, &body));
            match ran.event() {
                Event::Ended(Some(Err(_)), counted) => assert_eq!(counted, expected, "{frame:?}"),
                other => panic!("{other:?}"),
            }
        }
    }
}

#[test]
fn a_batch_that_takes_too_long_hangs_and_then_is_killed_b_pyr_08() {
    let stage = Stage::new(ready("{}"));
    let most = Duration::from_nanos(1);
    let model = stage.start(Limits { execute_timeout: Some(most), ..limits() }).expect("starts");
    let ran = run(&*model, 0, vec![bytes("", 1)]);
    stage.pass(most);
    assert_eq!(*stage.runner().ends.lock(), [End::Hung]);
    stage.pass(Duration::from_secs(1));
    assert_eq!(*stage.runner().ends.lock(), [End::Hung, End::Killed]);
    stage.runner().dies();
    assert_eq!(ran.answer().err(), Some(not_healthy()));
}

#[test]
fn a_cancelled_request_is_seen_by_its_model_b_py_17() {
    let (stage, model) = served();
    let ran = run(&*model, 0, vec![bytes("", 1)]);
    let flag = || {
        let mut byte = [0];
        stage.flags.copy_to(0, &mut byte).expect("a byte");
        byte[0]
    };
    assert_eq!(flag(), 1 << 1, "its generation");
    ran.answers[0].cancel();
    assert_eq!(flag(), 1 << 1 | 1);
    stage.runner().answers(&[1]);
    assert!(ran.answer().is_ok());
}

#[test]
fn a_start_fails_with_the_error_of_the_runner_or_a_timeout_b_py_03() {
    let failed = framed(Frame::Failed, VERSION as u8, 0, br#"{"text":"ImportError: no"}"#);
    let stage = Stage::new(failed);
    assert_eq!(
        stage.start(limits()).err().map(|failure| failure.error),
        Some(Error::internal("ImportError: no").by_model())
    );
    let stage = Stage::new(Vec::new());
    let starting = std::thread::spawn({
        let stage = stage.clone();
        move || stage.start(limits()).err().map(|failure| failure.error)
    });
    until("it was started", || !stage.later.lock().is_empty());
    stage.pass(START);
    let error = Error::unavailable("m_0 was started and did not connect within 30 s").by_model();
    assert_eq!(starting.join().expect("no panic"), Some(error));
    assert!(stage.runner().ends.lock().contains(&End::Killed));
    // A runner that responded has no limit for loading.
    let stage = Stage::new(framed(Frame::Pong, 0, 0, &[0; Question::BYTES]));
    let starting = std::thread::spawn({
        let stage = stage.clone();
        move || stage.start(limits()).is_ok()
    });
    until("it was started", || !stage.later.lock().is_empty());
    stage.pass(START);
    assert!(stage.runner().ends.lock().is_empty());
    stage.runner().say(Way::Work, &ready("{}"));
    assert!(starting.join().expect("no panic"));
}

#[test]
fn dropping_a_model_ends_its_runner_and_kills_it_after_the_grace_period_b_py_03() {
    let (stage, model) = served();
    drop(model);
    let runner = stage.runner();
    runner.heard(Frame::Unload);
    assert_eq!(*runner.ends.lock(), [End::Requested]);
    stage.pass(GRACE);
    assert_eq!(*runner.ends.lock(), [End::Requested, End::Killed]);
    runner.dies();
    stage.pass(Duration::MAX);
    assert_eq!(stage.runners.lock().len(), 1, "the runner is not restarted");
}

#[test]
fn readiness_checks_share_a_response_and_fail_without_one_b_py_26() {
    let stage = Stage::new(ready(r#"{"asks_ready":true}"#));
    let model = stage.start(limits()).expect("starts");
    let (told, answers) = std::sync::mpsc::channel();
    let ask = || match remote(&*model).readiness() {
        Readiness::Ask(ask) => {
            let told = told.clone();
            ask(Box::new(move |answer| {
                let _ = told.send(answer.is_ok());
            }));
        }
        _ => panic!("it wants to be asked"),
    };
    ask();
    ask();
    let asked = stage.runner().sent.lock().iter().filter(|(_, bytes)| bytes[4] == Frame::IsReady as u8).count();
    assert_eq!(asked, 1);
    let mut body = Vec::new();
    IsReadyResult { question: 1, is_ready: 1 }.write(&mut body);
    stage.runner().say(Way::Side, &framed(Frame::IsReadyResult, 0, 0, &body));
    assert_eq!([answers.try_recv(), answers.try_recv()], [Ok(true), Ok(true)]);
    ask();
    stage.runner().dies();
    assert_eq!(answers.try_recv(), Ok(false));
    // A runner that answers what nobody asked is killed, and the checks end with it.
    stage.pass(Duration::ZERO);
    ask();
    let mut body = Vec::new();
    IsReadyResult { question: 2, is_ready: 1 }.write(&mut body);
    stage.runner().say(Way::Side, &framed(Frame::IsReadyResult, 0, 0, &body));
    assert_eq!(*stage.runner().ends.lock(), [End::Killed]);
    stage.runner().dies();
    assert_eq!(answers.try_recv(), Ok(false));
}

/// Number and flags of the last batch that the runner received.
fn last_batch(stage: &Stage) -> (u64, u32) {
    let frame = stage.runner().heard(Frame::Execute);
    let at = |from: usize| frame[Header::BYTES + from..].first_chunk().copied();
    (
        u64::from_le_bytes(at(0).expect("a number").to_owned()),
        u32::from_le_bytes(frame[24..28].try_into().expect("flags")),
    )
}

/// A model whose last result was small, so that batches may be prefetched.
fn prefetching() -> (Arc<Stage>, Arc<dyn Model>) {
    let stage = Stage::new(ready("{}"));
    let model = stage.start_prefetching(limits(), Prefetch::BehindSmall(1)).expect("starts");
    let first = run(&*model, 0, vec![bytes("first", 1)]);
    assert_eq!(last_batch(&stage), (1, 0), "the size of its results is not known yet");
    stage.runner().answers(&[1]);
    first.answer().expect("an answer");
    assert!(first.offer.try_recv().is_err());
    (stage, model)
}

#[test]
fn several_small_batches_are_prefetched_and_all_but_the_running_one_requeued() {
    let stage = Stage::new(ready("{}"));
    let model = stage.start_prefetching(limits(), Prefetch::BehindSmall(3)).expect("starts");
    // A machine that is busy may take a millisecond for one.
    let mut number = 0;
    loop {
        let began = Instant::now();
        let first = run(&*model, 0, vec![bytes("first", 1)]);
        number += 1;
        stage.runner().say(Way::Work, &result(number, &[1]));
        first.answer().expect("an answer");
        if began.elapsed() < Duration::from_millis(1) {
            break;
        }
    }
    let [followed, waited] = [EXECUTE_FLAG_FOLLOWED, EXECUTE_FLAG_WAITED].map(u32::from);
    let send = |id, nth, flags| {
        let ran = run(&*model, 0, vec![bytes(id, 1)]);
        assert_eq!(last_batch(&stage), (number + nth, flags));
        ran
    };
    let runs = send("runs", 1, followed);
    let [one, two, three] = [("one", 2), ("two", 3), ("three", 4)].map(|(id, nth)| send(id, nth, followed | waited));
    for offered in [&runs, &one, &two] {
        offered.offer.try_recv().expect("another may be prefetched");
    }
    three.offer.try_recv().expect_err("three are prefetched");
    // One of those in the middle is cancelled.
    two.answers[0].cancel();
    assert_eq!(two.answer().expect_err("an error"), Error::cancelled(""));
    stage.runner().say(Way::Work, &result(number + 1, &[7]));
    assert_eq!(runs.answer().expect("an answer").outputs[0].data.to_vec(), Ok(vec![7]));
    assert!(one.begun.try_iter().any(|at| at > 0), "it begins with the result before it");
    stage.runner().dies();
    assert_eq!(one.answer().expect_err("it ran"), not_healthy());
    let Event::PutBack(request) = three.event() else { panic!("it was not put back") };
    assert_eq!((request.id.as_str(), request.inputs[0].data.len()), ("three", 1));
}

#[test]
fn behind_a_batch_of_a_millisecond_one_is_prefetched() {
    let stage = Stage::new(ready("{}"));
    let model = stage.start_prefetching(limits(), Prefetch::BehindSmall(3)).expect("starts");
    let first = run(&*model, 0, vec![bytes("first", 1)]);
    let began = Instant::now();
    while began.elapsed() < Duration::from_millis(1) {}
    stage.runner().answers(&[1]);
    first.answer().expect("an answer");
    let [runs, waits] = ["runs", "waits"].map(|id| run(&*model, 0, vec![bytes(id, 1)]));
    runs.offer.try_recv().expect("another may be prefetched");
    waits.offer.try_recv().expect_err("one is prefetched");
}

#[test]
fn a_batch_is_prefetched_behind_a_small_one_and_begins_with_its_result() {
    let (stage, model) = prefetching();
    let [followed, waited] = [EXECUTE_FLAG_FOLLOWED, EXECUTE_FLAG_WAITED].map(u32::from);
    let one = run(&*model, 0, vec![bytes("one", 1)]);
    assert_eq!(last_batch(&stage), (2, followed));
    one.offer.try_recv().expect("another may be prefetched");
    let two = run(&*model, 0, vec![bytes("two", 9000)]);
    assert_eq!(last_batch(&stage), (3, waited), "none is prefetched behind a large one");
    two.offer.try_recv().expect_err("one is prefetched");
    assert_eq!(two.begun.try_recv(), Ok(0), "it waits");
    // No third one: the engine would have to break its rule.
    let three = run(&*model, 0, vec![bytes("three", 1)]);
    assert_eq!(three.answer().expect_err("an error"), not_healthy());

    stage.runner().say(Way::Work, &result(2, &[7]));
    assert_eq!(one.answer().expect("an answer").outputs[0].data.to_vec(), Ok(vec![7]));
    let marks = one.freed().expect("marks");
    assert_eq!(two.begun.try_recv(), Ok(marks.inference_end));
    two.offer.try_recv().expect_err("it is large");
    stage.runner().say(Way::Work, &result(3, &[8]));
    assert_eq!(two.answer().expect("an answer").outputs[0].data.to_vec(), Ok(vec![8]));
    assert_eq!(two.freed().expect("marks").inputs_ready, marks.inference_end);
}

#[test]
fn a_prefetched_batch_is_queued_again_when_the_runner_dies() {
    let (stage, model) = prefetching();
    let runs = run(&*model, 0, vec![bytes("runs", 1)]);
    let waits = run(&*model, 0, vec![bytes("waits", 9000)]);
    stage.runner().dies();
    assert_eq!(runs.answer().expect_err("an error"), not_healthy());
    let Event::PutBack(request) = waits.event() else { panic!("it was not put back") };
    assert_eq!((request.id.as_str(), request.inputs[0].data.len()), ("waits", 9000));
    assert_eq!((runs.freed(), waits.freed()), (None, None));
}

#[test]
fn a_request_that_is_cancelled_while_it_is_prefetched_ends_at_once() {
    let (stage, model) = prefetching();
    let runs = run(&*model, 0, vec![bytes("runs", 1)]);
    let waits = run(&*model, 0, vec![bytes("waits", 1)]);
    assert_eq!(waits.begun.try_recv(), Ok(0), "it is queued");
    waits.answers[0].cancel();
    assert_eq!(waits.answer().expect_err("an error"), Error::cancelled(""));
    assert_eq!(waits.begun.try_recv(), Ok(u64::MAX), "it is no longer queued");
    stage.runner().say(Way::Work, &result(2, &[7]));
    runs.answer().expect("an answer");
    // The runner passes over it, and its slot is free.
    stage.runner().say(Way::Work, &result(3, &[8]));
    waits.freed().expect("marks");
    for number in 4..200 {
        let next = run(&*model, 0, vec![bytes("next", 1)]);
        assert!(stage.runner().heard(Frame::Execute).len() < 200);
        stage.runner().say(Way::Work, &result(number, &[1]));
        next.answer().expect("an answer");
    }
}

#[test]
fn one_request_of_a_prefetched_batch_is_cancelled_and_the_others_are_answered() {
    let (stage, model) = prefetching();
    let runs = run(&*model, 0, vec![bytes("runs", 1)]);
    let waits = run(&*model, 0, vec![bytes("one", 1), bytes("two", 1)]);
    assert_eq!(waits.begun.try_recv(), Ok(0), "it is queued");
    waits.answers[1].cancel();
    assert_eq!(waits.answer().expect_err("an error"), Error::cancelled(""));
    assert_eq!(waits.begun.try_recv(), Ok(u64::MAX), "one of its requests is no longer queued");
    stage.runner().say(Way::Work, &result(2, &[7]));
    runs.answer().expect("an answer");
    stage.runner().say(Way::Work, &result(3, &[8, 9]));
    assert_eq!(waits.answer().expect("an answer").outputs[0].data.to_vec(), Ok(vec![8]));
    waits.freed().expect("marks");
}

#[test]
fn the_requests_of_a_prefetched_batch_are_queued_again_last_one_first() {
    let (stage, model) = prefetching();
    let runs = run(&*model, 0, vec![bytes("runs", 1)]);
    let waits = run(&*model, 0, vec![bytes("one", 1), bytes("two", 1)]);
    stage.runner().dies();
    runs.answer().expect_err("an error");
    for id in ["two", "one"] {
        let Event::PutBack(request) = waits.event() else { panic!("it was not put back") };
        assert_eq!(request.id, id, "each goes before all others");
    }
}

#[test]
fn a_prefetched_batch_fails_if_the_result_before_it_was_not_read() {
    let one_answer = &result(2, &[7])[Header::BYTES + ResultHead::BYTES..];
    let mut unknown_block = Vec::new();
    ResultHead { batch: 2, releases: 1, error_bytes: 0 }.write(&mut unknown_block);
    let unknown_block = framed(Frame::Result, 0, 1, &[&unknown_block, &9u64.to_le_bytes()[..], one_answer].concat());
    let cases = [
        ("too many answers", vec![result(2, &[7, 7])], false),
        ("a block that it does not have", vec![unknown_block], true),
        ("a result of a runner that is being killed", vec![result(77, &[1]), result(2, &[7])], false),
    ];
    for (case, frames, is_answered) in cases {
        let (stage, model) = prefetching();
        let runs = run(&*model, 0, vec![bytes("runs", 1)]);
        let waits = run(&*model, 0, vec![bytes("waits", 1)]);
        frames.iter().for_each(|frame| stage.runner().say(Way::Work, frame));
        assert!(runs.freed.try_recv().is_err(), "{case}: the instance waits for the end of the runner");
        stage.runner().dies();
        assert_eq!(runs.answer().is_ok(), is_answered, "{case}");
        assert_eq!(waits.answer().expect_err(case), not_healthy());
        assert_eq!((runs.freed(), waits.freed()), (None, None), "{case}");
    }
}

#[test]
fn nothing_is_prefetched_behind_a_model_that_calls_others() {
    let (stage, model) = prefetching();
    let runs = run(&*model, 0, vec![bytes("runs", 1)]);
    runs.offer.try_recv().expect("another may be prefetched");
    let mut call = Vec::new();
    CallHead { call: 1, version: -1, model_bytes: 1, ..CallHead::default() }.write(&mut call);
    call.push(b'x');
    RequestHead { outputs: ALL_OUTPUTS as u16, ..RequestHead::default() }.write(&mut call);
    stage.runner().say(Way::Side, &framed(Frame::Call, 0, 0, &call));
    let waits = run(&*model, 0, vec![bytes("waits", 9000)]);
    let Event::PutBack(request) = waits.event() else { panic!("it was not put back") };
    assert_eq!((request.id.as_str(), request.inputs[0].data.len()), ("waits", 9000));
    assert!(waits.freed.try_recv().is_err(), "the instance waits for the batch that runs");
    stage.runner().say(Way::Work, &result(2, &[7]));
    runs.answer().expect("an answer");
    assert!(runs.freed().is_some());
    assert_eq!(waits.freed(), None);
    let next = run(&*model, 0, vec![bytes("next", 1)]);
    assert_eq!(last_batch(&stage), (3, 0));
    next.offer.try_recv().expect_err("it may call others, too");
}

#[test]
fn batches_that_are_always_prefetched_are_few_and_fail_with_the_runner() {
    let stage = Stage::new(ready("{}"));
    let model = stage.start_prefetching(limits(), Prefetch::Always(2)).expect("starts");
    let all: Vec<_> = (0..3).map(|n| run(&*model, 0, vec![bytes("large", 9000 + n)])).collect();
    let is_offered: Vec<_> = all.iter().map(|ran| ran.offer.try_recv().is_ok()).collect();
    assert_eq!(is_offered, [true, true, false]);
    stage.runner().say(Way::Work, &result(1, &[1]));
    all[0].answer().expect("an answer");
    all[2].offer.try_recv().expect("another may be prefetched");
    stage.runner().dies();
    for ran in &all[1..] {
        assert_eq!(ran.answer().expect_err("an error"), not_healthy());
    }
}
