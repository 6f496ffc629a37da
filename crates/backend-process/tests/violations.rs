//! A runner that breaks the protocol is killed, with no other effect.
#![cfg(target_os = "linux")]

mod support;

use support::*;

// B-SEC-03: each case over real sockets; fuzz/ has targets for their frames.
#[test]
fn a_process_that_breaks_the_protocol_is_killed_and_restarted_b_sec_04_b_sec_05() {
    let violations = [
        "segment",
        "behind the end",
        "behind the end of requests",
        "not wanted and outside",
        "broken strings",
        "batch",
        "answers",
        "twice",
        "block",
        "a lease that it was not given",
        "a lease that is not wanted",
        "a lease back",
        "parameters",
        "nothing",
        "reschedule on the side",
        "result on the side",
        "ready again",
        "no json",
        "another model",
        "another instance",
        "question",
        "half a frame",
        "closes its sockets",
    ];
    let numbers: Vec<String> = (0..39).map(|n| n.to_string()).collect();
    for violation in violations.into_iter().chain(numbers.iter().map(String::as_str)) {
        let model = start("violates", 1, limits()).expect("starts");
        let ran = run(&*model, 0, vec![bytes(violation, 5000)]);
        let error = ran.answer().err();
        assert_eq!(
            error.map(|e| e.message().to_owned()).as_deref(),
            Some("Stub process 'm_0' is not healthy."),
            "{violation}"
        );
        ran.freed();
    }
}
