//! Processes and threads started by a loading thread (`memory::thread::lower_priority`) keep the server's niceness.
#![cfg(target_os = "linux")]

mod support;

use std::collections::BTreeMap;
use std::fs;
use std::process::Command;
use support::*;

/// Niceness and parent, from a `stat` of /proc; `None` if it has ended.
fn stat(path: &str) -> Option<(i32, u32)> {
    let text = fs::read_to_string(path).ok()?;
    let fields: Vec<&str> = text.rsplit_once(')')?.1.split_ascii_whitespace().collect();
    Some((fields.get(16)?.parse().ok()?, fields.get(1)?.parse().ok()?))
}

fn numbers(directory: &str) -> Vec<u32> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

/// Threads of this process and its descendants, by name, with their niceness.
fn threads() -> BTreeMap<String, i32> {
    let ours = std::process::id();
    let mut family = vec![ours];
    let parents: Vec<(u32, u32)> =
        numbers("/proc").iter().filter_map(|&pid| Some((pid, stat(&format!("/proc/{pid}/stat"))?.1))).collect();
    let mut at = 0;
    while let Some(&parent) = family.get(at) {
        family.extend(parents.iter().filter(|(_, above)| *above == parent).map(|(pid, _)| pid));
        at += 1;
    }
    let mut found = BTreeMap::new();
    for pid in family {
        for id in numbers(&format!("/proc/{pid}/task")) {
            let path = format!("/proc/{pid}/task/{id}");
            let name = fs::read_to_string(format!("{path}/comm")).unwrap_or_default();
            if let Some((niceness, _)) = stat(&format!("{path}/stat")) {
                found.insert(format!("{pid}/{id} {}", name.trim()), niceness);
            }
        }
    }
    found
}

/// Environment variable that marks the child process, which runs the test.
const CHILD: &str = "NEREID_TEST_NICENESS";

/// Runs in a child process with niceness 0 if that is permitted, since the suite itself runs at niceness 10.
#[test]
fn processes_started_by_a_loading_thread_keep_the_niceness_of_the_server() {
    if std::env::var_os(CHILD).is_some() {
        return load_with_low_priority();
    }
    let ours = stat("/proc/self/stat").expect("a process").0;
    let test = std::env::current_exe().expect("a path");
    let done = Command::new("nice")
        .args(["-n", &(-ours).to_string()])
        .arg(test)
        .args(["--exact", "processes_started_by_a_loading_thread_keep_the_niceness_of_the_server", "--nocapture"])
        .env(CHILD, "1")
        .output()
        .expect("nice runs");
    let output = String::from_utf8_lossy(&done.stdout);
    print!("{output}");
    assert!(done.status.success(), "{output}{}", String::from_utf8_lossy(&done.stderr));
}

fn load_with_low_priority() {
    let ours = stat("/proc/self/stat").expect("a process").0;
    // A process that is as nice already sees no difference.
    if ours >= memory::thread::LOADING_NICENESS {
        println!("not run: the tests run at niceness {ours}, and may not change that");
        return;
    }
    let (model, loader) = std::thread::spawn(|| {
        memory::thread::lower_priority();
        (start("echo", 2, limits()).expect("starts"), stat("/proc/thread-self/stat").expect("a thread").0)
    })
    .join()
    .expect("no panic");
    assert!(loader > ours, "the thread that loads has {loader}, as the others have {ours}");
    for instance in 0..2 {
        run(&*model, instance, vec![bytes("", 3 << 20)]).answer().expect("an answer");
    }
    let threads = threads();
    let names: Vec<&str> = threads.keys().filter_map(|name| name.split_once(' ')).map(|(_, name)| name).collect();
    assert!(names.iter().filter(|name| name.starts_with("python")).count() >= 2, "two processes run: {names:?}");
    let behind: Vec<_> = threads.iter().filter(|&(_, &niceness)| niceness != ours).collect();
    assert!(behind.is_empty(), "not at {ours}: {behind:?}");
}
