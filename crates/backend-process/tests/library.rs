//! A process that serves many instances, as seen by the engine.

#![allow(clippy::disallowed_methods, reason = "tests wait for other threads and processes, and look at clocks")]
#![cfg(target_os = "linux")]

mod support;

use backend::Model;
use backend_process::{Command, Failure, HostedLibrary, OutputTarget, Prefetch, RunnerLimits, Spec, ask_and_keep};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use support::*;
use tensor::Code;

/// A process, and the file that it writes when it is asked to end.
fn library(name: &str) -> (HostedLibrary, PathBuf) {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/library.py");
    let file = std::env::temp_dir().join(format!("nereid-library-{name}-{}", std::process::id()));
    let path = std::env::var_os("PATH").unwrap_or_default();
    let command = Command {
        program: python(),
        arguments: vec![script.into(), file.clone().into()],
        environment: vec![("PATH".into(), path)],
    };
    (HostedLibrary::new(name.into(), command, limits(), OutputTarget::Lines), file)
}

fn started(library: &HostedLibrary, instances: &[&str], limits: &RunnerLimits) -> Result<Arc<dyn Model>, Failure> {
    let instance = |name: &&str| library.instance((*name).into(), &format!(r#"{{"instance":"{name}"}}"#), limits);
    let spec = Spec {
        instances: instances.iter().map(instance).collect(),
        further: None,
        decoupled: false,
        iterative: false,
        reports_statistics: false,
        counts_failed: true,
        sends_all_outputs: false,
        prefetch: Prefetch::Never,
        parameter_prefix: "nereid.python.",
        limits: limits.of_runner(),
    };
    backend_process::start(spec, signature(), no_host())
}

/// The number of the process that an instance is in.
fn process_of(model: &dyn Model, instance: u32) -> String {
    run(model, instance, vec![bytes("", 10)]).answer().expect_err("answers are errors here").message().to_owned()
}

/// Waits until an instance is in another process.
fn process_after(model: &dyn Model, instance: u32, before: &str) -> String {
    let begin = Instant::now();
    loop {
        let now = process_of(model, instance);
        if now.parse::<u32>().is_ok() && now != before {
            return now;
        }
        assert!(begin.elapsed() < Duration::from_secs(10), "{now}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn wait_for(file: &Path) -> String {
    let begin = Instant::now();
    loop {
        match std::fs::read_to_string(file) {
            Ok(text) if !text.is_empty() => {
                std::fs::remove_file(file).expect("removed");
                return text;
            }
            _ => assert!(begin.elapsed() < Duration::from_secs(10), "{}", file.display()),
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn instances_of_several_models_share_a_process_that_outlives_them() {
    let (library, file) = library("shared");
    let first = started(&library, &["a", "b"], &limits()).expect("starts");
    let second = started(&library, &["c"], &limits()).expect("starts");
    let process = process_of(&*first, 0);
    assert_eq!([process_of(&*first, 1), process_of(&*second, 0)], [process.clone(), process.clone()]);
    drop((first, second));
    let third = started(&library, &["d"], &limits()).expect("starts");
    assert_eq!(process_of(&*third, 0), process, "it stays without models");
    library.close();
    std::thread::sleep(Duration::from_millis(100));
    assert!(!file.exists(), "not before its last instance");
    drop(third);
    assert_eq!(wait_for(&file), process, "it is asked to finalize");
    assert!(started(&library, &["e"], &limits()).is_err(), "and no other one is started");
}

#[test]
fn the_configuration_is_completed_by_a_runner_that_stays() {
    let (library, _) = library("kept");
    let own = library.instance("m".into(), r#"{"instance":""}"#, &limits());
    let (completed, kept) = ask_and_keep(&own, &limits(), no_host(), "m".into()).expect("completes");
    assert_eq!(completed.config.as_deref(), Some("{}"));
    assert_eq!(completed.groups.as_deref(), Some(r#"[{"kind": "CPU", "count": 2, "gpus": []}]"#));
    let model = started(&library, &["a"], &limits()).expect("starts");
    let process = process_of(&*model, 0);
    drop(kept);
    assert_eq!(process_of(&*model, 0), process, "its end is that of a connection");
    library.close();
}

#[test]
fn a_start_that_fails_costs_no_other_instance() {
    let (library, _) = library("refused");
    let model = started(&library, &["a"], &limits()).expect("starts");
    let process = process_of(&*model, 0);
    let failure = started(&library, &["b", "refuses", "c"], &limits()).err().expect("fails");
    assert_eq!((failure.error.code(), failure.error.message()), (Code::NotFound, "no"));
    std::thread::sleep(Duration::from_millis(700));
    assert_eq!(process_of(&*model, 0), process);
    library.close();
}

#[test]
fn instances_that_start_or_end_late_cost_no_other_instance() {
    let (library, _) = library("late");
    let model = started(&library, &["a"], &limits()).expect("starts");
    let process = process_of(&*model, 0);
    let brief = RunnerLimits { exit_grace: Duration::from_millis(50), ..limits() };
    assert!(started(&library, &["refuses", "starts late"], &brief).is_err(), "the second one still loads");
    drop(started(&library, &["ends late"], &brief).expect("starts"));
    std::thread::sleep(Duration::from_millis(1000));
    assert_eq!(process_of(&*model, 0), process);
    library.close();
}

#[test]
fn after_a_crash_all_instances_are_back_in_one_new_process() {
    let (library, _) = library("crash");
    let (first, second) =
        (started(&library, &["a", "crashes"], &limits()).expect("starts"), started(&library, &["b"], &limits()));
    let second = second.expect("starts");
    let process = process_of(&*second, 0);
    let begin = Instant::now();
    let error = run(&*first, 1, vec![bytes("", 10)]).answer().expect_err("it crashes");
    assert_eq!(error.message(), "Instance 'crashes' is not healthy.");
    let next = process_after(&*second, 0, &process);
    assert_eq!(process_after(&*first, 0, &process), next);
    assert!(begin.elapsed() < Duration::from_secs(5), "{:?}", begin.elapsed());
    library.close();
}

#[test]
fn a_connection_that_is_closed_without_reason_costs_the_process() {
    let (library, _) = library("closes");
    let model = started(&library, &["a", "closes"], &limits()).expect("starts");
    let process = process_of(&*model, 0);
    run(&*model, 1, vec![bytes("", 10)]).answer().expect_err("it ends");
    assert_ne!(process_after(&*model, 0, &process), process);
    library.close();
}
