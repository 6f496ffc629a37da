//! Sessions whose configuration names no threads: runs on several threads at once, and the end of a session.

#![allow(clippy::disallowed_methods, reason = "tests wait for other threads, and look at clocks")]

mod support;

use backend::Backend;
use backend_onnx::OnnxBackend;
use protocol::pb::inference::{ModelConfig, ModelParameter};
use std::time::{Duration, Instant};
use support::*;
use tensor::DataType;

const RUNS: i32 = 60;

fn cores() -> u32 {
    std::thread::available_parallelism().map_or(1, |n| u32::try_from(n.get()).expect("few cores"))
}

/// Threads of this process that the runtime's sessions have.
fn helpers() -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").expect("tasks").flatten();
    let names = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("comm")).ok());
    names.filter(|name| name.trim() == "nereid-onnx").count()
}

/// A graph of unknown width, so that it does not count as small.
fn version() -> (Version, protocol::Signature) {
    (Version::new(&addsub(I32, &[D::S("N"), D::S("W")])), addsub_signature(8, DataType::Int32, &[-1]))
}

fn configured(key: &str, value: &str) -> ModelConfig {
    let parameter = ModelParameter { string_value: value.to_owned() };
    ModelConfig { parameters: [(key.to_owned(), parameter)].into(), ..ModelConfig::default() }
}

#[test]
fn runs_at_once_of_two_sessions_are_right_and_sessions_end_with_their_helpers() {
    let versions = [version(), version()];
    // The first model makes the shared pool, which stays.
    let configured = versions[0].0.load(&configured("intra_op_thread_count", "1"), versions[0].1.clone());
    let before = helpers();
    drop(configured);
    let models =
        versions.each_ref().map(|(version, signature)| version.load(&ModelConfig::default(), signature.clone()));
    if cores() == 1 {
        assert!(models.iter().all(|model| model.capabilities().cores.is_none()), "one core has no helper");
        return;
    }
    assert!(models.iter().all(|model| model.capabilities().cores == Some(cores())));
    std::thread::scope(|scope| {
        for caller in 0..4 {
            let model = &models[caller % 2];
            let signature = &versions[caller % 2].1;
            scope.spawn(move || {
                for run in 0..RUNS {
                    // Wide enough to be divided among threads.
                    let width = if run % 2 == 0 { 3 } else { 60_000 };
                    let from = run + caller as i32 * RUNS;
                    let rows = [1, i64::from(width)];
                    let inputs = [
                        (0, &rows[..], i32s((0..width).map(|i| i + from))),
                        (1, &rows[..], i32s((0..width).map(|_| 1))),
                    ];
                    let outcomes = support::run(&**model, vec![request(signature, 1, &inputs)]);
                    same(&outcomes[0], 0, &rows, i32s((0..width).map(|i| i + from + 1)));
                }
            });
        }
    });
    // Some helpers are held now.
    drop(models);
    let until = Instant::now() + Duration::from_secs(20);
    while helpers() > before {
        assert!(Instant::now() < until, "sessions that nobody uses keep {} threads", helpers());
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn threads_that_a_configuration_or_a_setting_names_are_obeyed() {
    let (version, signature) = version();
    for (key, value) in [("intra_op_thread_count", "2"), ("inter_op_thread_count", "1"), ("execution_mode", "1")] {
        assert_eq!(version.load(&configured(key, value), signature.clone()).capabilities().cores, None, "{key}");
    }
    let spins = configured("session.intra_op.allow_spinning", "0");
    assert_eq!(version.load(&spins, signature.clone()).capabilities().cores, Some(cores()).filter(|&cores| cores > 1));
    for (setting, value) in [("adaptive-threads", "false"), ("enable-global-threadpool", "true")] {
        let mut spec = version.spec(&ModelConfig::default());
        spec.settings = vec![(setting.to_owned(), value.to_owned())];
        let opened = OnnxBackend::new(Some(library())).open(&spec).expect("opens");
        let model = opened.finish(&ModelConfig::default(), std::sync::Arc::new(signature.clone())).expect("matches");
        assert_eq!(model.capabilities().cores, None, "{setting}");
    }
}
