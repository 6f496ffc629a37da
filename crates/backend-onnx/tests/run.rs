//! Real runs of tiny models.

#![allow(clippy::disallowed_methods, reason = "tests wait for other threads and processes, and look at clocks")]

mod support;

use backend::{Batch, RunControl};
use memory::RegionRegistry;
use protocol::pb::inference::{BatchInput, BatchOutput, ModelConfig};
use protocol::{OutputForm, RequestedOutput};
use std::sync::Arc;
use support::*;
use tensor::{Code, Data, DataType, Error, Name, Shape};

fn config() -> ModelConfig {
    ModelConfig::default()
}

#[test]
fn one_request_and_a_batch_give_each_its_rows_s_14() {
    let version = Version::new(&addsub(I32, &[D::S("N"), D::N(4)]));
    let s = addsub_signature(8, DataType::Int32, &[4]);
    let model = version.load(&config(), s.clone());
    let entry = |from: i32, rows: i32| {
        let shape = [i64::from(rows), 4];
        request(
            &s,
            rows as u32,
            &[(0, &shape, i32s(from..from + 4 * rows)), (1, &shape, i32s((0..4 * rows).map(|_| 1)))],
        )
    };
    let one = run(&*model, vec![entry(10, 1)]);
    same(&one[0], 0, &[1, 4], i32s(11..15));
    same(&one[0], 1, &[1, 4], i32s(9..13));
    let many = run(&*model, vec![entry(0, 1), entry(100, 3), entry(50, 2)]);
    same(&many[0], 0, &[1, 4], i32s(1..5));
    same(&many[1], 0, &[3, 4], i32s(101..113));
    same(&many[1], 1, &[3, 4], i32s(99..111));
    same(&many[2], 1, &[2, 4], i32s(49..57));
}

#[test]
fn only_wanted_outputs_are_returned_in_configuration_order() {
    let version = Version::new(&addsub(I32, &[D::S("N"), D::N(1)]));
    let s = addsub_signature(8, DataType::Int32, &[1]);
    let model = version.load(&config(), s.clone());
    let entry = || request(&s, 1, &[(1, &[1, 1], i32s([2])), (0, &[1, 1], i32s([7]))]);
    let mut second_only = entry();
    second_only.checked.outputs = [(1, None)].into_iter().collect();
    let results = run(&*model, vec![second_only, entry()]);
    assert_eq!(results[0].as_ref().map(|o| o.outputs.len()), Ok(1));
    same(&results[0], 0, &[1, 1], i32s([5]));
    same(&results[1], 0, &[1, 1], i32s([9]));
}

#[test]
fn every_fixed_size_datatype_passes_unchanged() {
    let codes =
        [(1, DataType::Fp32), (2, DataType::Uint8), (3, DataType::Int8), (4, DataType::Uint16), (5, DataType::Int16)]
            .into_iter()
            .chain([
                (6, DataType::Int32),
                (7, DataType::Int64),
                (9, DataType::Bool),
                (10, DataType::Fp16),
                (11, DataType::Fp64),
            ])
            .chain([(12, DataType::Uint32), (13, DataType::Uint64), (16, DataType::Bf16)]);
    for (code, datatype) in codes {
        let version = Version::new(&identity(code, &[D::S("N"), D::S("L")]));
        let s = signature(8, vec![input("I", datatype, &[-1])], vec![output("O", datatype, &[-1])]);
        let model = version.load(&config(), s.clone());
        let size = datatype.byte_size().expect("fixed");
        let data = |n: usize| Data::Bytes((0..n * size).map(|i| u8::from(i % 3 == 1)).collect::<Vec<u8>>().into());
        // The first run learns the shape, the second has memory allocated in advance.
        for _ in 0..2 {
            let r =
                run(&*model, vec![request(&s, 1, &[(0, &[1, 5], data(5))]), request(&s, 2, &[(0, &[2, 5], data(10))])]);
            same(&r[0], 0, &[1, 5], data(5));
            same(&r[1], 0, &[2, 5], data(10));
            let empty = run(&*model, vec![request(&s, 1, &[(0, &[1, 0], Data::empty())])]);
            same(&empty[0], 0, &[1, 0], Data::empty());
        }
    }
}

#[test]
fn misaligned_contents_are_copied_first() {
    let version = Version::new(&addsub(F32, &[D::S("N"), D::N(2)]));
    let s = addsub_signature(8, DataType::Fp32, &[2]);
    let model = version.load(&config(), s.clone());
    let mut body = vec![0u8; 9];
    body[1..].copy_from_slice(&f32s([1.5, 2.5]).to_vec().expect("in memory"));
    let odd = Data::Bytes(bytes::Bytes::from(body).slice(1..));
    let r = run(&*model, vec![request(&s, 1, &[(0, &[1, 2], odd.clone()), (1, &[1, 2], odd)])]);
    same(&r[0], 0, &[1, 2], f32s([3.0, 5.0]));
}

#[test]
fn strings_keep_nul_bytes_and_are_split_by_rows() {
    let dims = |l| [D::S("N"), D::S(l)];
    let file = onnx(
        &[node("Concat", &["A", "B"], &["C"], &[("axis", 1)]), node("Identity", &["A"], &["D"], &[])],
        &[tensor("A", STR, &dims("L")), tensor("B", STR, &dims("K"))],
        &[tensor("C", STR, &dims("M")), tensor("D", STR, &dims("L"))],
        &[],
    );
    let version = Version::new(&file);
    let t = DataType::Bytes;
    let s = signature(
        4,
        vec![input("A", t, &[-1]), input("B", t, &[-1])],
        vec![output("C", t, &[-1]), output("D", t, &[-1])],
    );
    let model = version.load(&config(), s.clone());
    let entry = |a: &[&[u8]], b: &[&[u8]]| {
        let shape = [1, 2];
        request(&s, 1, &[(0, &shape, strings(a)), (1, &shape, strings(b))])
    };
    let r = run(
        &*model,
        vec![entry(&[b"a\0b", b""], &[b"x", "\u{e4}".as_bytes()]), entry(&[b"1", b"2"], &[b"3", b"\xff\xfe"])],
    );
    same(&r[0], 0, &[1, 4], strings(&[b"a\0b", b"", b"x", "\u{e4}".as_bytes()]));
    same(&r[0], 1, &[1, 2], strings(&[b"a\0b", b""]));
    same(&r[1], 0, &[1, 4], strings(&[b"1", b"2", b"3", b"\xff\xfe"]));
    let empty = run(&*model, vec![request(&s, 1, &[(0, &[1, 0], Data::empty()), (1, &[1, 0], Data::empty())])]);
    same(&empty[0], 0, &[1, 0], Data::empty());
}

#[test]
fn reshape_is_applied_both_ways_c_07() {
    let version = Version::new(&addsub(I32, &[D::S("N"), D::N(4)]));
    let mut s = addsub_signature(4, DataType::Int32, &[2, 2]);
    let flat = Some(Shape::from_slice(&[4]));
    s.inputs.iter_mut().for_each(|i| i.reshape = flat.clone());
    s.outputs[0].reshape = flat;
    s.outputs[1].dims = Shape::from_slice(&[4]);
    let model = version.load(&config(), s.clone());
    let entry = || request(&s, 1, &[(0, &[1, 2, 2], i32s(0..4)), (1, &[1, 2, 2], i32s(0..4))]);
    for r in run(&*model, vec![entry(), entry()]) {
        same(&r, 0, &[1, 2, 2], i32s([0, 2, 4, 6]));
        same(&r, 1, &[1, 4], i32s([0; 4]));
    }
    // With an empty reshape, the model has one scalar per row.
    let version = Version::new(&identity(F32, &[D::S("N")]));
    let mut s = signature(4, vec![input("I", DataType::Fp32, &[1])], vec![output("O", DataType::Fp32, &[1])]);
    s.inputs[0].reshape = Some(Shape::new());
    s.outputs[0].reshape = Some(Shape::new());
    let model = version.load(&config(), s.clone());
    let r = run(
        &*model,
        vec![request(&s, 3, &[(0, &[3, 1], f32s([1.0, 2.0, 3.0]))]), request(&s, 1, &[(0, &[1, 1], f32s([4.0]))])],
    );
    same(&r[0], 0, &[3, 1], f32s([1.0, 2.0, 3.0]));
    same(&r[1], 0, &[1, 1], f32s([4.0]));
}

#[test]
fn a_scalar_graph_is_one_element_for_clients() {
    let version = Version::new(&identity(F32, &[]));
    let s = signature(0, vec![input("I", DataType::Fp32, &[1])], vec![output("O", DataType::Fp32, &[1])]);
    let model = version.load(&config(), s.clone());
    let r = run(&*model, vec![request(&s, 0, &[(0, &[1], f32s([2.5]))]), request(&s, 0, &[(0, &[1], f32s([3.5]))])]);
    same(&r[0], 0, &[1], f32s([2.5]));
    same(&r[1], 0, &[1], f32s([3.5]));
}

#[test]
fn a_scalar_graph_may_be_configured_with_several_dimensions_of_one() {
    let version = Version::new(&identity(F32, &[]));
    let s = signature(0, vec![input("I", DataType::Fp32, &[1, 1])], vec![output("O", DataType::Fp32, &[1, 1])]);
    let model = version.load(&config(), s.clone());
    let r = run(&*model, vec![request(&s, 0, &[(0, &[1, 1], f32s([2.5]))])]);
    same(&r[0], 0, &[1, 1], f32s([2.5]));
}

#[test]
fn a_model_without_inputs_runs() {
    let value = initializer("c", I32, &[2], &i32s([4, 5]).to_vec().expect("in memory"));
    let version =
        Version::new(&onnx(&[node("Identity", &["c"], &["O"], &[])], &[], &[tensor("O", I32, &[D::N(2)])], &[value]));
    let s = signature(0, vec![], vec![output("O", DataType::Int32, &[2])]);
    let model = version.load(&config(), s.clone());
    let r = run(&*model, vec![request(&s, 0, &[])]);
    same(&r[0], 0, &[2], i32s([4, 5]));
}

#[test]
fn an_omitted_optional_input_has_the_value_of_its_initializer() {
    let version = Version::new(&onnx(
        &[node("Add", &["I", "bias"], &["O"], &[])],
        &[tensor("I", I32, &[D::N(2)]), tensor("bias", I32, &[D::N(2)])],
        &[tensor("O", I32, &[D::N(2)])],
        &[initializer("bias", I32, &[2], &i32s([100, 200]).to_vec().expect("in memory"))],
    ));
    let mut s = signature(
        0,
        vec![input("I", DataType::Int32, &[2]), input("bias", DataType::Int32, &[2])],
        vec![output("O", DataType::Int32, &[2])],
    );
    s.inputs[1].optional = true;
    let model = version.load(&config(), s.clone());
    let with = request(&s, 0, &[(0, &[2], i32s([1, 2])), (1, &[2], i32s([1, 1]))]);
    let r = run(&*model, vec![request(&s, 0, &[(0, &[2], i32s([1, 2]))]), with]);
    same(&r[0], 0, &[2], i32s([101, 202]));
    same(&r[1], 0, &[2], i32s([2, 3]));
}

#[test]
fn outputs_that_pass_an_input_through_do_not_share_its_memory() {
    let both = [tensor("I", F32, &[D::S("n")])];
    let doubled = node("Add", &["I", "I"], &["O"], &[]);
    let version = Version::new(&onnx(&[doubled], &both, &[both[0].clone(), tensor("O", F32, &[D::S("n")])], &[]));
    let t = DataType::Fp32;
    let s = signature(0, vec![input("I", t, &[-1])], vec![output("I", t, &[-1]), output("O", t, &[-1])]);
    let model = version.load(&config(), s.clone());
    for first in 0..3 {
        let data = f32s((first..first + 3000).map(|i| i as f32));
        let r = run(&*model, vec![request(&s, 0, &[(0, &[3000], data.clone())])]);
        let got = r[0].as_ref().expect("runs").outputs[0].data.clone();
        assert_eq!(got.to_vec().expect("in memory"), data.to_vec().expect("in memory"));
        let range = data.host().expect("a body").as_ptr_range();
        assert!(!range.contains(&got.host().expect("a response").as_ptr()), "copied");
    }
    // Two floats, run by a recipe from the second time on, with new values each time.
    for i in 0..4 {
        let data = f32s([i as f32, 7.0]);
        let r = run(&*model, vec![request(&s, 0, &[(0, &[2], data.clone())])]);
        same(&r[0], 0, &[2], data);
        same(&r[0], 1, &[2], f32s([2.0 * i as f32, 14.0]));
    }
    // From a region, and into the same one.
    let floats = f32s((0..3000).map(|i| i as f32));
    let (key, regions) = shm("through", &[floats.to_vec().expect("in memory"), vec![0; 100]].concat());
    regions.register("r", &key, 0, 12_100).expect("fits");
    let window = |at| regions.resolve("r", at, 12_000).expect("inside");
    for target in [None, Some(window(0)), Some(window(64))] {
        let mut e = request(&s, 0, &[(0, &[3000], Data::Region(window(0)))]);
        if let Some(target) = &target {
            e.request.outputs.push(wants(target.clone(), "I"));
            e.checked.outputs = [(0, Some(0))].into_iter().collect();
        }
        let r = run(&*model, vec![e]);
        same(&r[0], 0, &[3000], floats.clone());
    }
    let _ = std::fs::remove_file(format!("/dev/shm/{key}"));
}

#[test]
fn outputs_whose_shapes_depend_on_values_are_correct() {
    // NonZero's output shape depends on values, so a learned shape is wrong.
    let file = onnx(
        &[node("NonZero", &["I"], &["O"], &[])],
        &[tensor("I", I32, &[D::S("n")])],
        &[tensor("O", I64, &[D::N(1), D::S("k")])],
        &[],
    );
    let version = Version::new(&file);
    let s = signature(0, vec![input("I", DataType::Int32, &[-1])], vec![output("O", DataType::Int64, &[1, -1])]);
    let model = version.load(&config(), s.clone());
    for values in [[1, 0, 1], [1, 1, 1], [0, 0, 0], [0, 1, 0], [1, 0, 1]] {
        let r = run(&*model, vec![request(&s, 0, &[(0, &[3], i32s(values))])]);
        let expected: Vec<u8> = (0i64..3).filter(|&i| values[i as usize] != 0).flat_map(i64::to_le_bytes).collect();
        assert_eq!(seen(&r[0], 0), (vec![1, expected.len() as i64 / 8], expected));
    }
}

#[test]
fn repeated_runs_answer_each_request_with_its_own_rows() {
    let version = Version::new(&addsub(I32, &[D::S("N"), D::S("w")]));
    let s = addsub_signature(8, DataType::Int32, &[-1]);
    let model = version.load(&config(), s.clone());
    let (key, regions) = shm("repeat", &i32s(0..64).to_vec().expect("in memory"));
    regions.register("r", &key, 0, 256).expect("fits");
    // Classes recur in another order, with other values.
    let kinds: [(&[i32], i32); 6] = [(&[1], 4), (&[2], 4), (&[1, 2], 4), (&[1], 3), (&[3], 4), (&[1, 1, 1], 600)];
    for round in 0..4 {
        for (k, &(rows, width)) in kinds.iter().cycle().skip(round).take(kinds.len()).enumerate() {
            let from = |i: usize| (round * 1000 + k * 100 + i * 10) as i32;
            let entries = rows.iter().enumerate().map(|(i, &rows)| {
                let (shape, n) = ([i64::from(rows), i64::from(width)], rows * width);
                let one = (1, &shape[..], i32s((0..n).map(|_| 1)));
                let start = from(i);
                let mut inputs = [(0, &shape[..], i32s(start..start + n)), one];
                if round == 2 {
                    inputs.reverse();
                }
                let mut e = request(&s, rows as u32, &inputs);
                if round == 3 && k % 2 == 0 {
                    e.checked.outputs = [(1, None)].into_iter().collect();
                }
                e
            });
            let results = run(&*model, entries.collect());
            for (i, r) in results.iter().enumerate() {
                let (n, start) = (rows[i] * width, from(i));
                let shape = [i64::from(rows[i]), i64::from(width)];
                let last = r.as_ref().expect("runs").outputs.len() - 1;
                same(r, last, &shape, i32s(start - 1..start + n - 1));
                if last > 0 {
                    same(r, 0, &shape, i32s(start + 1..start + n + 1));
                }
            }
        }
        // From a region.
        let data = Data::Region(regions.resolve("r", 0, 16).expect("inside"));
        let r = run(&*model, vec![request(&s, 1, &[(0, &[1, 4], data), (1, &[1, 4], i32s([5; 4]))])]);
        same(&r[0], 0, &[1, 4], i32s(5..9));
    }
    let _ = std::fs::remove_file(format!("/dev/shm/{key}"));
}

#[test]
fn a_failing_run_is_not_repeated() {
    // O = table[I + 0], where 0 comes from random numbers R. With a seed, they tell how often the graph has run.
    let nodes = [
        node("Cast", &["I"], &["f"], &[("to", F32)]),
        random_like("f", "R", 7.0),
        node("Mul", &["R", "zero"], &["z"], &[]),
        node("Cast", &["z"], &["zeros"], &[("to", I32)]),
        node("Add", &["I", "zeros"], &["at"], &[]),
        node("Gather", &["table", "at"], &["O"], &[]),
    ];
    let table = i32s([10, 11, 12]).to_vec().expect("in memory");
    let file = onnx(
        &nodes,
        &[tensor("I", I32, &[D::N(1)])],
        &[tensor("O", I32, &[D::N(1)]), tensor("R", F32, &[D::N(1)])],
        &[initializer("zero", F32, &[], &[0; 4]), initializer("table", I32, &[3], &table)],
    );
    let (t, version) = (DataType::Int32, Version::new(&file));
    let outputs = vec![output("O", t, &[1]), output("R", DataType::Fp32, &[1])];
    let s = signature(0, vec![input("I", t, &[1])], outputs);
    let drawn = |indices: [i32; 7]| {
        let model = version.load(&config(), s.clone());
        indices.map(|index| {
            let answer = &run(&*model, vec![request(&s, 0, &[(0, &[1], i32s([index]))])])[0];
            assert_eq!(answer.is_err(), index == 3);
            answer.is_ok().then(|| seen(answer, 1))
        })
    };
    let (good, mixed) = (drawn([2; 7]), drawn([3, 2, 2, 2, 3, 3, 2]));
    assert_ne!(good[5], good[6]);
    for (run, numbers) in mixed.into_iter().enumerate().filter(|(_, numbers)| numbers.is_some()) {
        assert_eq!(numbers, good[run], "run {run}");
    }
}

#[test]
fn a_failure_of_a_repeated_run_is_returned_and_the_next_one_runs() {
    // Gather rejects an index that is out of bounds, for any shape.
    let file = onnx(
        &[node("Gather", &["table", "I"], &["O"], &[])],
        &[tensor("I", I32, &[D::N(2)])],
        &[tensor("O", I32, &[D::N(2)])],
        &[initializer("table", I32, &[3], &i32s([10, 11, 12]).to_vec().expect("in memory"))],
    );
    let version = Version::new(&file);
    let t = DataType::Int32;
    let s = signature(0, vec![input("I", t, &[2])], vec![output("O", t, &[2])]);
    let model = version.load(&config(), s.clone());
    let run = |indices: [i32; 2]| run(&*model, vec![request(&s, 0, &[(0, &[2], i32s(indices))])]);
    for _ in 0..3 {
        same(&run([0, 2])[0], 0, &[2], i32s([10, 12]));
        same(&run([1, 1])[0], 0, &[2], i32s([11, 11]));
        let failed = run([0, 3]);
        let error = failed[0].as_ref().expect_err("3 is out of bounds");
        assert!(error.message().contains("indices element out of data bounds"), "{error}");
    }
}

#[test]
fn a_failing_run_has_the_runtime_s_text_and_class_internal() {
    let d = |n| vec![D::S(n)];
    let file = onnx(
        &[node("Add", &["INPUT0", "INPUT1"], &["OUTPUT0"], &[])],
        &[tensor("INPUT0", I32, &d("a")), tensor("INPUT1", I32, &d("b"))],
        &[tensor("OUTPUT0", I32, &d("c"))],
        &[],
    );
    let version = Version::new(&file);
    let t = DataType::Int32;
    let s = signature(0, vec![input("INPUT0", t, &[-1]), input("INPUT1", t, &[-1])], vec![output("OUTPUT0", t, &[-1])]);
    let model = version.load(&config(), s.clone());
    let r = run(&*model, vec![request(&s, 0, &[(0, &[2], i32s([1, 2])), (1, &[3], i32s([1, 2, 3]))])]);
    let error = r[0].as_ref().expect_err("2 and 3 do not broadcast");
    assert_eq!(error.code(), Code::Internal);
    assert!(
        error.message().starts_with("onnx runtime error 1: Non-zero status code returned while running Add node."),
        "{error}"
    );
    assert!(error.message().contains("Attempting to broadcast an axis by a dimension other than 1. 2 by 3"), "{error}");
}

#[test]
fn too_few_rows_from_the_model_fail_the_requests_that_lack_rows_s_14() {
    // Only the first row passes the mask.
    let file = onnx(
        &[node("Compress", &["I", "mask"], &["O"], &[("axis", 0)])],
        &[tensor("I", I32, &[D::S("N"), D::N(1)])],
        &[tensor("O", I32, &[D::S("K"), D::N(1)])],
        &[initializer("mask", BOOL, &[1], &[1])],
    );
    let version = Version::new(&file);
    let s = signature(4, vec![input("I", DataType::Int32, &[1])], vec![output("O", DataType::Int32, &[1])]);
    let model = version.load(&config(), s.clone());
    let entry = |v| request(&s, 1, &[(0, &[1, 1], i32s([v]))]);
    for _ in 0..2 {
        let mut second = entry(2);
        second.request.id = Name::from("x");
        let r = run(&*model, vec![entry(1), second]);
        same(&r[0], 0, &[1, 1], i32s([1]));
        let text = "[request id: x] failed to split the output tensor 'O' in responses: \
                    expected batch size of at least 2 in model output, got 1";
        assert_eq!(r[1].as_ref().err(), Some(&Error::new(Code::Unsupported, text)));
    }
}

fn shm(tag: &str, bytes: &[u8]) -> (String, RegionRegistry) {
    let key = format!("nereid_onnx_{}_{tag}", std::process::id());
    std::fs::write(format!("/dev/shm/{key}"), bytes).expect("/dev/shm is writable");
    (key, RegionRegistry::default())
}

#[test]
fn a_constant_output_is_returned_by_every_run() {
    let constants = f32s([1.5, 2.5]);
    let added = node("Add", &["I", "c"], &["O"], &[]);
    let version = Version::new(&onnx(
        &[added],
        &[tensor("I", F32, &[D::N(2)])],
        &[tensor("c", F32, &[D::N(2)]), tensor("O", F32, &[D::N(2)])],
        &[initializer("c", F32, &[2], &constants.to_vec().expect("in memory"))],
    ));
    let t = DataType::Fp32;
    let s = signature(0, vec![input("I", t, &[2])], vec![output("c", t, &[2]), output("O", t, &[2])]);
    let model = version.load(&config(), s.clone());
    for i in 0..4 {
        let r = run(&*model, vec![request(&s, 0, &[(0, &[2], f32s([i as f32, 0.0]))])]);
        same(&r[0], 0, &[2], constants.clone());
        same(&r[0], 1, &[2], f32s([i as f32 + 1.5, 2.5]));
    }
}

fn wants(region: tensor::RegionRef, name: &'static str) -> RequestedOutput {
    RequestedOutput { name: name.into(), form: OutputForm::default(), region: Some(region) }
}

#[test]
fn regions_are_read_and_written_in_place() {
    let version = Version::new(&addsub(F32, &[D::S("N"), D::N(4)]));
    let s = addsub_signature(8, DataType::Fp32, &[4]);
    let model = version.load(&config(), s.clone());
    let mut contents = vec![0u8; 8192];
    contents[..32].copy_from_slice(&f32s((0..8).map(|i| i as f32)).to_vec().expect("in memory"));
    let (key, regions) = shm("place", &contents);
    regions.register("in", &key, 0, 4096).expect("fits");
    regions.register("out", &key, 4096, 4096).expect("fits");
    let at = |name: &str, offset, size| regions.resolve(name, offset, size).expect("inside");
    let entry = |out: tensor::RegionRef| {
        let mut e = request(
            &s,
            1,
            &[(0, &[1, 4], Data::Region(at("in", 0, 16))), (1, &[1, 4], Data::Region(at("in", 16, 16)))],
        );
        e.request.outputs.push(wants(out, "OUTPUT0"));
        e.checked.outputs = [(0, Some(0))].into_iter().collect();
        e
    };
    let sum = f32s([4.0, 6.0, 8.0, 10.0]);
    // In place, in a region that is larger than needed.
    let r = run(&*model, vec![entry(at("out", 0, 64))]);
    assert!(matches!(r[0].as_ref().expect("runs").outputs[0].data, Data::Region(_)));
    assert_eq!(Data::Region(at("out", 0, 16)).to_vec().expect("in memory"), sum.to_vec().expect("in memory"));
    // A batch, and a region that overlaps the input: copied after the run.
    let r = run(&*model, vec![entry(at("out", 100, 16)), entry(at("in", 0, 16))]);
    assert!(r.iter().all(Result::is_ok));
    assert_eq!(Data::Region(at("out", 100, 16)).to_vec().expect("in memory"), sum.to_vec().expect("in memory"));
    assert_eq!(Data::Region(at("in", 0, 16)).to_vec().expect("in memory"), sum.to_vec().expect("in memory"));
    // Too small.
    let r = run(&*model, vec![entry(at("out", 0, 15))]);
    let text = "shared memory size specified with the request for output 'OUTPUT0' (15 bytes) should be at least 16 \
                bytes to hold the results";
    assert_eq!(r[0].as_ref().err(), Some(&Error::malformed(text)));
    let _ = std::fs::remove_file(format!("/dev/shm/{key}"));
}

#[test]
fn a_region_truncated_before_the_run_fails_only_its_request() {
    let version = Version::new(&addsub(F32, &[D::S("N"), D::N(1024)]));
    let s = addsub_signature(8, DataType::Fp32, &[1024]);
    let model = version.load(&config(), s.clone());
    let (key, regions) = shm("truncated", &[0; 4 * 4096]);
    regions.register("r", &key, 0, 4 * 4096).expect("fits");
    let window = regions.resolve("r", 8192, 4096).expect("inside");
    let ones = || f32s((0..1024).map(|_| 1.0));
    let good = || request(&s, 1, &[(0, &[1, 1024], ones()), (1, &[1, 1024], ones())]);
    let bad = request(&s, 1, &[(0, &[1, 1024], Data::Region(window)), (1, &[1, 1024], ones())]);
    std::fs::File::options()
        .write(true)
        .open(format!("/dev/shm/{key}"))
        .and_then(|f| f.set_len(4096))
        .expect("truncate");
    let r = run(&*model, vec![good(), bad, good()]);
    assert_eq!(r[1].as_ref().err(), Some(&Error::invalid("Invalid shared memory region: 'r'")));
    same(&r[2], 0, &[1, 1024], f32s((0..1024).map(|_| 2.0)));
    let _ = std::fs::remove_file(format!("/dev/shm/{key}"));
}

#[test]
fn strings_changed_in_a_region_after_their_check_fail_only_their_request() {
    let version = Version::new(&identity(STR, &[D::S("N"), D::S("L")]));
    let s = signature(4, vec![input("I", DataType::Bytes, &[-1])], vec![output("O", DataType::Bytes, &[-1])]);
    let model = version.load(&config(), s.clone());
    let raw = strings(&[b"ab"]);
    let (key, regions) = shm("strings", &raw.to_vec().expect("in memory"));
    regions.register("r", &key, 0, raw.len() as u64).expect("fits");
    let window = Data::Region(regions.resolve("r", 0, raw.len() as u64).expect("inside"));
    let entry = |d: &Data| request(&s, 1, &[(0, &[1, 1], d.clone())]);
    same(&run(&*model, vec![entry(&window)])[0], 0, &[1, 1], raw.clone());
    std::fs::write(format!("/dev/shm/{key}"), [255, 255, 0, 0, 1, 1]).expect("change");
    let r = run(&*model, vec![entry(&window), entry(&raw)]);
    let text = "[request id: <id_unknown>] expected 1 string elements for inference input 'I' for model 'm', got 0";
    assert_eq!(r[0].as_ref().err(), Some(&Error::invalid(text)));
    same(&r[1], 0, &[1, 1], raw);
    let _ = std::fs::remove_file(format!("/dev/shm/{key}"));
}

#[test]
fn ragged_inputs_are_concatenated_and_counted_c_12_s_16() {
    let t = |n, e| tensor(n, e, &[D::S(n)]);
    let file = onnx(
        &[
            node("Identity", &["I"], &["O"], &[]),
            node("Identity", &["ACC"], &["COUNTS"], &[]),
            node("Identity", &["SHAPES"], &["S"], &[]),
        ],
        &[t("I", I32), t("ACC", I32), tensor("SHAPES", F32, &[D::S("n"), D::S("r")])],
        &[t("O", I32), t("COUNTS", I32), tensor("S", F32, &[D::S("n"), D::S("r")])],
        &[],
    );
    let version = Version::new(&file);
    let i = DataType::Int32;
    let mut s = signature(
        8,
        vec![input("I", i, &[-1])],
        vec![output("O", i, &[-1]), output("COUNTS", i, &[]), output("S", DataType::Fp32, &[-1])],
    );
    s.inputs[0].allow_ragged_batch = true;
    let batch_input = |kind, target: &str, datatype: DataType| BatchInput {
        kind,
        target_name: vec![target.into()],
        data_type: datatype as i32,
        source_input: vec!["I".into()],
    };
    let config = ModelConfig {
        // 1: running sum, 4: item shape.
        batch_input: vec![batch_input(1, "ACC", i), batch_input(4, "SHAPES", DataType::Fp32)],
        batch_output: vec![BatchOutput { target_name: vec!["O".into()], kind: 0, source_input: vec!["I".into()] }],
        ..ModelConfig::default()
    };
    let model = version.load(&config, s.clone());
    let entry = |n: i32| request(&s, 1, &[(0, &[1, i64::from(n)], i32s(0..n))]);
    for _ in 0..2 {
        let r = run(&*model, vec![entry(3), entry(4), entry(5)]);
        for (r, (n, sum)) in r.iter().zip([(3, 3), (4, 7), (5, 12)]) {
            same(r, 0, &[1, n], i32s(0..n as i32));
            same(r, 1, &[1], i32s([sum]));
            same(r, 2, &[1, 1], f32s([n as f32]));
        }
    }
}

#[test]
fn a_batch_whose_requests_are_cancelled_is_stopped() {
    // 1e8 rounds of the loop would take minutes.
    let version = Version::new(&long_loop());
    let s = signature(0, vec![input("n", DataType::Int64, &[1])], vec![output("O", DataType::Fp32, &[1])]);
    let model = version.load(&config(), s.clone());
    let n = |n: i64| Data::Bytes(n.to_le_bytes().to_vec().into());
    same(&run(&*model, vec![request(&s, 0, &[(0, &[1], n(5))])])[0], 0, &[1], f32s([5.0]));
    let control = Arc::new(RunControl::new(1));
    let canceller = Arc::clone(&control);
    let thread = std::thread::spawn(move || {
        std::thread::sleep(std::time::Duration::from_millis(100));
        canceller.cancel_one();
    });
    let mut entries = vec![request(&s, 0, &[(0, &[1], n(1 << 40))])];
    model.execute(0, &mut Batch::new(&mut entries), &control);
    thread.join().expect("canceller");
    assert_eq!(entries[0].result.as_ref().and_then(|r| r.as_ref().err()).map(Error::code), Some(Code::Cancelled));
    // A batch that is cancelled before it begins does not run.
    let mut entries = vec![request(&s, 0, &[(0, &[1], n(1 << 40))])];
    model.execute(0, &mut Batch::new(&mut entries), &control);
    assert_eq!(entries[0].result.as_ref().and_then(|r| r.as_ref().err()).map(Error::code), Some(Code::Cancelled));
    // The next batch is not stopped.
    same(&run(&*model, vec![request(&s, 0, &[(0, &[1], n(7))])])[0], 0, &[1], f32s([7.0]));
}

#[test]
fn instances_run_one_session_concurrently() {
    let version = Version::new(&addsub(I32, &[D::S("N"), D::N(16)]));
    let s = addsub_signature(8, DataType::Int32, &[16]);
    let model = version.load(&config(), s.clone());
    std::thread::scope(|scope| {
        for t in 0..4 {
            let (model, s) = (&model, &s);
            scope.spawn(move || {
                for i in 0..200 {
                    let (a, b) = (t * 1000 + i, i);
                    let shape = [1, 16];
                    let r =
                        run(&**model, vec![request(s, 1, &[(0, &shape, i32s([a; 16])), (1, &shape, i32s([b; 16]))])]);
                    same(&r[0], 0, &shape, i32s([a + b; 16]));
                    same(&r[0], 1, &shape, i32s([a - b; 16]));
                }
            });
        }
    });
}

/// O = n, counted up by one in a Loop of n rounds.
fn long_loop() -> Vec<u8> {
    let body = graph(
        &[node("Identity", &["c"], &["c2"], &[]), node("Add", &["x", "one"], &["x2"], &[])],
        &[tensor("i", I64, &[]), tensor("c", BOOL, &[]), tensor("x", F32, &[D::N(1)])],
        &[tensor("c2", BOOL, &[]), tensor("x2", F32, &[D::N(1)])],
        &[],
    );
    onnx(
        &[node("Squeeze", &["n"], &["m"], &[]), loop_node("m", "", "zero", "O", &body)],
        &[tensor("n", I64, &[D::N(1)])],
        &[tensor("O", F32, &[D::N(1)])],
        &[initializer("zero", F32, &[1], &0f32.to_le_bytes()), initializer("one", F32, &[1], &1f32.to_le_bytes())],
    )
}
