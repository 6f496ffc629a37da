//! Unusable libraries. A process of its own, because a process loads the runtime once.

mod support;

use backend::Backend;
use backend_onnx::OnnxBackend;
use protocol::pb::inference::ModelConfig;
use std::path::PathBuf;
use support::*;
use tensor::{Code, DataType};

#[test]
fn a_library_that_cannot_be_opened_is_unavailable_with_the_loader_s_error_each_time() {
    let version = Version::new(&identity(F32, &[D::N(1)]));
    let garbage = version.0.join("libonnxruntime.so.1");
    std::fs::write(&garbage, "not a library".repeat(1000)).expect("written");
    let empty = version.0.join("empty.so");
    std::fs::write(&empty, "").expect("written");
    // A library without ONNX Runtime's entry point.
    let other = std::fs::read_to_string("/proc/self/maps").expect("maps");
    let other = other.lines().find_map(|l| l.split_whitespace().nth(5).filter(|p| p.contains("libc.so")));
    let other = PathBuf::from(other.expect("a C library"));

    let config = ModelConfig::default();
    for round in 0..3 {
        for (path, text) in [(&garbage, "invalid ELF header"), (&empty, "file too short"), (&other, "OrtGetApiBase")] {
            let error = OnnxBackend::new(Some(path.clone())).open(&version.spec(&config)).err().expect("refused");
            assert_eq!(error.code(), Code::Unavailable, "{round} {error}");
            let start = format!("unable to use ONNX Runtime at '{}': ", path.display());
            assert!(error.message().starts_with(&start) && error.message().contains(text), "{round} {error}");
            assert!(backend_onnx::preload(path, &[]).is_err());
        }
    }
    // A usable library still works afterwards.
    let signature = signature(0, vec![input("I", DataType::Fp32, &[1])], vec![output("O", DataType::Fp32, &[1])]);
    let model = version.load(&config, signature.clone());
    let outcomes = run(&*model, vec![request(&signature, 1, &[(0, &[1], f32s([2.0]))])]);
    same(&outcomes[0], 0, &[1], f32s([2.0]));
}
