//! Models run by `runner.py`.

#![allow(clippy::disallowed_methods, reason = "tests wait for other threads and processes, and look at clocks")]
#![allow(dead_code, missing_docs)] // each test uses its part

#[path = "../../../backend-remote/tests/support/mod.rs"]
mod engine;

use backend::Model;
use backend_process::{
    Command, Failure, Instance, OutputTarget, Prefetch, RunnerKind, RunnerLimits, SharedMemory, Spec, hosted,
};
pub use engine::*;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

pub fn limits() -> RunnerLimits {
    RunnerLimits {
        shared_memory: SharedMemory::Tensors,
        device_inputs: false,
        segment_bytes: 1 << 20,
        growth_bytes: 1 << 20,
        arena_bytes_max: 64 << 20,
        start_timeout: Duration::from_secs(30),
        exit_grace: Duration::from_secs(5),
        execute_timeout: None,
        memory_bytes_max: None,
        restart: true,
        restart_wait: Duration::ZERO,
        new_privileges: false,
        output_bytes_per_second: 10_000,
    }
}

/// The interpreter itself: `python3` may be a script that selects one.
pub fn python() -> PathBuf {
    static FOUND: OnceLock<PathBuf> = OnceLock::new();
    let ask = || {
        let asked =
            std::process::Command::new("python3").args(["-c", "import sys; print(sys.executable, end='')"]).output();
        PathBuf::from(String::from_utf8(asked.expect("python3 on PATH").stdout).expect("a path"))
    };
    FOUND.get_or_init(ask).clone()
}

pub fn instance(mode: &str, number: usize) -> Instance {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/runner.py");
    let path = std::env::var_os("PATH").unwrap_or_default();
    Instance {
        name: format!("m_{number}").as_str().into(),
        kind: RunnerKind::StubProcess,
        command: Command {
            program: python(),
            arguments: vec![script.into(), mode.into()],
            environment: vec![("PATH".into(), path)],
        },
        load: r#"{"instance":"m_0","model":"m"}"#.into(),
    }
}

pub fn start(mode: &str, instances: usize, limits: RunnerLimits) -> Result<Arc<dyn Model>, Failure> {
    let spec = Spec {
        instances: (0..instances).map(|n| hosted(instance(mode, n), &limits, OutputTarget::Lines)).collect(),
        further: None,
        decoupled: mode == "decoupled",
        iterative: mode == "iterative",
        reports_statistics: false,
        counts_failed: true,
        sends_all_outputs: false,
        prefetch: Prefetch::Never,
        parameter_prefix: "nereid.python.",
        limits: limits.of_runner(),
    };
    backend_process::start(spec, signature(), no_host())
}
