//! Measures the memory of its process, so it has one of its own.

#![cfg(target_os = "linux")]

mod support;

use protocol::pb::inference::ModelConfig;
use protocol::{InputSpec, OutputSpec};
use support::{D, F32, Version, f32s, input, node, onnx, output, request, run, tensor};
use tensor::DataType;

const NAME_BYTES: usize = 256 << 10;

/// Resident pages of 4 KiB of the process.
fn resident_pages() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("Linux has it");
    statm.split(' ').nth(1).and_then(|n| n.parse().ok()).expect("a number")
}

/// Loads a model with unique tensor names, runs it once and drops it.
fn load_and_drop(number: usize) {
    let name = |side: &str| format!("{side}{number}{}", "x".repeat(NAME_BYTES));
    let (i, o) = (name("I"), name("O"));
    let file =
        onnx(&[node("Neg", &[&i], &[&o], &[])], &[tensor(&i, F32, &[D::N(2)])], &[tensor(&o, F32, &[D::N(2)])], &[]);
    let version = Version::new(&file);
    let (t, i, o) = (DataType::Fp32, i.as_str().into(), o.as_str().into());
    let inputs = vec![InputSpec { name: i, ..input("", t, &[2]) }];
    let outputs = vec![OutputSpec { name: o, ..output("", t, &[2]) }];
    let s = support::signature(0, inputs, outputs);
    let model = version.load(&ModelConfig::default(), s.clone());
    let answer = run(&*model, vec![request(&s, 0, &[(0, &[2], f32s([1.0, 2.0]))])]);
    assert!(answer[0].is_ok());
}

#[test]
fn names_of_tensors_are_freed_with_their_model() {
    (0..10).for_each(load_and_drop);
    let before = resident_pages();
    (10..210).for_each(load_and_drop);
    let grown = resident_pages().saturating_sub(before) * 4096;
    // Two names per model would be 100 MiB, if leaked.
    assert!(grown < 40 << 20, "{grown} bytes more after 200 models");
}
