//! Processes that a model started end with its runner. Alone in its process, which has one guardian.
#![cfg(target_os = "linux")]

mod support;

use backend_process::{Command, guard_with};
use std::fs;
use std::path::{Path, PathBuf};
use support::*;

/// Has the model start a daemon; returns its pid.
fn left(model: &dyn backend::Model) -> i32 {
    let note = std::env::temp_dir().join(format!("nereid-left-{}", std::process::id()));
    run(model, 0, vec![bytes(&format!("leaves {}", note.display()), 10)]).answer().expect("an answer");
    let pid = fs::read_to_string(&note).expect("noted").parse().expect("a number");
    fs::remove_file(note).expect("removed");
    pid
}

fn is_running(pid: i32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']))
}

/// Our guardian processes.
fn guardians() -> Vec<i32> {
    let ours = format!(" {} ", std::process::id());
    let is_ours = |path: &Path| {
        let read = |name| fs::read_to_string(path.join(name)).unwrap_or_default();
        read("cmdline").contains("guardian.py") && read("stat").contains(&ours) && !read("stat").contains(") Z ")
    };
    let all = fs::read_dir("/proc").expect("/proc").flatten().map(|entry| entry.path());
    all.filter(|path| is_ours(path)).filter_map(|path| path.file_name()?.to_str()?.parse().ok()).collect()
}

#[test]
fn b_pyr_09_processes_of_a_model_end_with_it_also_after_a_guardian_was_killed() {
    let script = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../backend-python/runtime/nereid_runner/guardian.py");
    let arguments = vec!["-I".into(), "-S".into(), script.into()];
    guard_with(Command { program: python(), arguments, environment: vec![] });
    let model = start("echo", 1, limits()).expect("starts");
    let other = start("echo", 1, limits()).expect("starts");
    let (first, others) = (left(&*model), left(&*other));
    assert!(is_running(first) && is_running(others));
    assert!(run(&*model, 0, vec![bytes("kill", 10)]).answer().is_err());
    until("it ends with its process", || !is_running(first));
    assert!(is_running(others), "it belongs to a process that lives");
    assert_eq!(guardians().len(), 1);

    for guardian in guardians() {
        let killed = std::process::Command::new("kill").args(["-9", &guardian.to_string()]).status();
        assert!(killed.expect("kill").success());
    }
    until("none guards", || guardians().is_empty());
    // Another guardian is started with the state of the first one.
    drop(other);
    until("it ends with its model", || !is_running(others));
    assert_eq!(guardians().len(), 1);
}
