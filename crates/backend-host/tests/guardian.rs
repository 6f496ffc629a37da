//! Processes that a library started end with its process, or with the server.
#![cfg(target_os = "linux")]
#![allow(clippy::disallowed_methods, reason = "tests wait for other processes, and look at clocks")]

use std::io::{Read, Write};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const SERVER: &str = "-1-abc";

fn server() -> String {
    format!("{}{SERVER}", std::process::id())
}

/// A daemon of a runner: in no session that is known.
fn daemon(runner: u32) -> Child {
    let variable = format!("{}-{runner}", server());
    Command::new("sleep").arg("60").env("NEREID_RUNNER", variable).spawn().expect("sleep")
}

fn guardian() -> Child {
    let program = env!("CARGO_BIN_EXE_nereid-backend-host");
    let mut command = Command::new(program);
    command.args(["--guardian", &server()]).stdin(Stdio::piped()).stdout(Stdio::piped());
    command.spawn().expect("the guardian")
}

fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !is_so() {
        assert!(begin.elapsed() < Duration::from_secs(10), "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn what_a_runner_leaves_behind_ends_with_it_and_nothing_else() {
    let mut guardian = guardian();
    let (mut first, mut other) = (daemon(1), daemon(2));
    let mut lines = guardian.stdin.take().expect("a pipe");
    lines.write_all(b"+1 999999 5\n+2 999998 5\nnonsense\n-1\n").expect("written");
    until("it ends", || first.try_wait().expect("waits").is_some());
    assert!(other.try_wait().expect("waits").is_none(), "its runner lives");
    lines.write_all(b"-2\n").expect("written");
    until("it ends, too", || other.try_wait().expect("waits").is_some());
    let mut stranger = Command::new("sleep").arg("60").spawn().expect("sleep");
    lines.write_all(b"-3\n").expect("written");
    drop(lines);
    std::thread::sleep(Duration::from_millis(100));
    assert!(stranger.try_wait().expect("waits").is_none());
    stranger.kill().expect("killed");
    stranger.wait().expect("waits");
    // Its server lives, so it waits; the test ends it.
    guardian.kill().expect("killed");
    let mut output = String::new();
    guardian.stdout.take().expect("a pipe").read_to_string(&mut output).expect("text");
    assert_eq!(output.matches("which still ran").count(), 2, "{output}");
    guardian.wait().expect("waits");
}
