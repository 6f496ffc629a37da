//! Runs on a device with ONNX Runtime itself and a plug-in provider (tests/mock/provider.c) over the mock driver
//! (crates/device/tests/mock), which counts all bytes copied to, from and on devices. A process searches the driver
//! once, so each case runs an ignored test in a child process.

#![cfg(all(target_os = "linux", target_arch = "x86_64"))]
#![allow(missing_docs)]

mod support;

use backend::{Backend, BatchEntry, Model};
use backend_onnx::OnnxBackend;
use protocol::pb::inference::model_instance_group::Kind;
use protocol::pb::inference::model_optimization_policy::ExecutionAccelerators;
use protocol::pb::inference::model_optimization_policy::execution_accelerators::Accelerator;
use protocol::pb::inference::{ModelConfig, ModelInstanceGroup, ModelOptimizationPolicy};
use protocol::{OutputForm, RequestedOutput, Signature};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, OnceLock};
use support::*;
use tensor::{Base, Code, Data, DataType, RegionRef, Result, part};

/// Directory of the mocks, built once.
fn root() -> &'static Path {
    static MADE: OnceLock<PathBuf> = OnceLock::new();
    MADE.get_or_init(|| {
        let root = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("device-run-{}", std::process::id()));
        std::fs::create_dir_all(root.join("memory")).expect("a directory for tests");
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        for (source, to, more) in [
            ("../device/tests/mock/libcuda.c", "libcuda.so.1", "-lpthread"),
            ("tests/mock/provider.c", "libprovider.so", "-ldl"),
        ] {
            let mut command = Command::new("cc");
            command.args(["-shared", "-fPIC", "-O1"]).arg(here.join(source)).arg("-o").arg(root.join(to)).arg(more);
            assert!(command.status().expect("cc is there, as Rust needs it").success(), "{to} builds");
        }
        root
    })
}

fn child(test: &str, variables: &[(&str, &str)]) {
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    command.args(["--exact", test, "--ignored", "--nocapture", "--test-threads=1"]);
    command.env("NEREID_LIBCUDA", root().join("libcuda.so.1")).env("PROVIDER", root().join("libprovider.so"));
    command.env("NEREID_MOCK_CUDA_DEVICES", "2").env("NEREID_MOCK_CUDA_DIR", root().join("memory"));
    command.envs(variables.iter().copied());
    let output = command.output().expect("a child starts");
    let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && text.contains("1 passed"), "{test}: {:?}\n{text}", output.status);
}

/// The device of these tests; there is another one.
const DEVICE: u32 = 1;

fn load(file: &[u8], signature: &Signature) -> Arc<dyn Model> {
    opened(file, signature, ModelOptimizationPolicy::default()).expect("loads on the device")
}

fn opened(file: &[u8], signature: &Signature, optimization: ModelOptimizationPolicy) -> Result<Arc<dyn Model>> {
    let group = ModelInstanceGroup {
        name: "m_0".into(),
        kind: Kind::Gpu.into(),
        count: 2,
        gpus: vec![DEVICE as i32],
        ..Default::default()
    };
    let config = ModelConfig { name: "m".into(), instance_group: vec![group], ..ModelConfig::default() };
    let optimization = Some(optimization);
    let config = ModelConfig { max_batch_size: signature.max_batch_size as i32, optimization, ..config };
    let version = Version::new(file);
    let mut spec = version.spec(&config);
    spec.settings = vec![("provider-library".into(), std::env::var("PROVIDER").expect("given by the parent"))];
    let opened = OnnxBackend::new(Some(library())).open(&spec).expect("opens");
    opened.finish(&config, Arc::new(signature.clone()))
}

/// Enables CUDA graphs.
fn graphs() -> ModelOptimizationPolicy {
    let parameters = BTreeMap::from([("enable_cuda_graph".to_owned(), "1".to_owned())]);
    let accelerator = Accelerator { name: "cuda".into(), parameters };
    let accelerators = ExecutionAccelerators { gpu_execution_accelerator: vec![accelerator], ..Default::default() };
    ModelOptimizationPolicy { execution_accelerators: Some(accelerators), ..Default::default() }
}

/// Bytes copied so far: to devices, from them, within one, between two.
fn copied() -> [u64; 4] {
    let [up, down, within, peer, ..] = counters();
    [up, down, within, peer]
}

/// Bytes of copies to devices that the driver had to stage, because they were in pageable memory.
fn pageable() -> u64 {
    counters()[4]
}

fn counters() -> [u64; 6] {
    let path = std::env::var_os("NEREID_LIBCUDA").expect("given by the parent");
    #[allow(unsafe_code)]
    // SAFETY: the mock, which the driver opened too, and a function of it with one integer.
    unsafe {
        let library = libloading::Library::new(path).expect("it was opened before");
        let ask = library.get::<unsafe extern "C" fn(i32) -> u64>(b"mockCopied\0").expect("of the mock");
        std::array::from_fn(|what| ask(what as i32))
    }
}

/// The result of `f` and the bytes that it copied.
fn counted<T>(f: impl FnOnce() -> T) -> (T, [u64; 4]) {
    let before = copied();
    let done = f();
    let after = copied();
    (done, std::array::from_fn(|n| after[n] - before[n]))
}

/// A device region with these contents.
fn on(device: u32, contents: &Data) -> RegionRef {
    let region = device::allocate(device, contents.len()).expect("there is room");
    region.copy_from(0, &contents.to_vec().expect("in memory")).expect("written");
    region
}

fn address(region: &RegionRef) -> u64 {
    match region.base() {
        Base::Device(memory) => memory.address(),
        Base::Host(_) => panic!("it is on a device"),
    }
}

/// Directs the outputs of a request to these regions.
fn to(mut entry: BatchEntry, signature: &Signature, regions: &[Option<RegionRef>]) -> BatchEntry {
    entry.checked.outputs = regions.iter().enumerate().map(|(n, _)| (n as u16, Some(n as u16))).collect();
    for (spec, region) in signature.outputs.iter().zip(regions) {
        // Without a region: anywhere.
        let form = if region.is_none() { OutputForm::ANYWHERE } else { OutputForm::default() };
        entry.request.outputs.push(RequestedOutput { name: spec.name.clone(), form, region: region.clone() });
    }
    entry
}

fn ramp(from: i32, n: i32) -> Data {
    f32s((from..from + n).map(|i| i as f32))
}

fn contents(data: &Data) -> Vec<u8> {
    data.to_vec().expect("readable")
}

#[test]
fn device_tensors_are_read_and_written_in_place() {
    child("inner_in_place", &[]);
}

#[test]
#[ignore = "run by device_tensors_are_read_…"]
fn inner_in_place() {
    let s = addsub_signature(8, DataType::Fp32, &[64]);
    let model = load(&addsub(F32, &[D::S("N"), D::N(64)]), &s);
    let (a, b) = (on(DEVICE, &ramp(10, 64)), on(DEVICE, &ramp(0, 64)));
    let (sum, difference) = (f32s((0..64).map(|i| (10 + 2 * i) as f32)), f32s((0..64).map(|_| 10.0)));
    let inputs = |a: &RegionRef, b: &RegionRef| {
        request(&s, 1, &[(0, &[1, 64], Data::Region(a.clone())), (1, &[1, 64], Data::Region(b.clone()))])
    };
    // Into regions of the device: nothing is copied, and the response has the regions.
    let (x, y) = (device::allocate(DEVICE, 256).expect("room"), device::allocate(DEVICE, 512).expect("room"));
    let asked = to(inputs(&a, &b), &s, &[Some(x.clone()), Some(y.clone())]);
    let (r, copies) = counted(|| run(&*model, vec![asked]));
    assert_eq!(copies, [0; 4], "in place");
    assert!(r[0].as_ref().expect("runs").outputs.iter().all(|o| matches!(o.data, Data::Region(_))));
    assert_eq!(contents(&Data::Region(x.clone())), contents(&sum));
    assert_eq!(contents(&Data::Region(part::part(&y, 0, 256).expect("inside"))), contents(&difference));
    // Anywhere: in memory of the server on the device, which the next step of an ensemble uses in place.
    let (r, copies) = counted(|| run(&*model, vec![to(inputs(&a, &b), &s, &[None, None])]));
    assert_eq!(copies, [0; 4]);
    let next: Vec<RegionRef> = r[0]
        .as_ref()
        .expect("runs")
        .outputs
        .iter()
        .map(|o| match &o.data {
            Data::Region(region) => region.clone(),
            Data::Bytes(_) => panic!("it stays on the device"),
        })
        .collect();
    let (r, copies) = counted(|| run(&*model, vec![to(inputs(&next[0], &next[1]), &s, &[None, Some(x.clone())])]));
    assert_eq!(copies, [0; 4]);
    assert_eq!(
        contents(&r[0].as_ref().expect("runs").outputs[0].data),
        contents(&f32s((0..64).map(|i| (20 + 2 * i) as f32)))
    );
    // To the host: one transfer for each output, none for inputs.
    let (r, copies) = counted(|| run(&*model, vec![inputs(&a, &b)]));
    assert_eq!(copies, [0, 512, 0, 0]);
    same(&r[0], 0, &[1, 64], sum.clone());
    // From the host: the runtime copies in both directions.
    let host = request(&s, 1, &[(0, &[1, 64], ramp(10, 64)), (1, &[1, 64], ramp(0, 64))]);
    let (r, copies) = counted(|| run(&*model, vec![host]));
    assert_eq!(copies, [512, 512, 0, 0]);
    same(&r[0], 1, &[1, 64], difference.clone());
    // One input on each.
    let mixed = request(&s, 1, &[(0, &[1, 64], ramp(10, 64)), (1, &[1, 64], Data::Region(b.clone()))]);
    let (r, copies) = counted(|| run(&*model, vec![to(mixed, &s, &[Some(x.clone()), Some(y.clone())])]));
    assert!(r[0].is_ok());
    assert_eq!(copies, [256, 0, 0, 0]);
    assert_eq!(contents(&Data::Region(x.clone())), contents(&sum));
    // An input on the other device: one peer copy.
    let far = on(0, &ramp(10, 64));
    let (r, copies) = counted(|| run(&*model, vec![to(inputs(&far, &b), &s, &[Some(x.clone()), None])]));
    assert!(r[0].is_ok());
    assert_eq!(copies, [0, 0, 0, 256]);
    assert_eq!(contents(&Data::Region(x)), contents(&sum));
}

#[test]
fn device_tensors_that_cannot_be_used_in_place_are_copied_on_the_device_once() {
    child("inner_copied", &[]);
}

#[test]
#[ignore = "run by device_tensors_that_cannot_…"]
fn inner_copied() {
    let s = addsub_signature(8, DataType::Fp32, &[64]);
    let model = load(&addsub(F32, &[D::S("N"), D::N(64)]), &s);
    let inputs =
        |a: RegionRef, b: RegionRef| request(&s, 1, &[(0, &[1, 64], Data::Region(a)), (1, &[1, 64], Data::Region(b))]);
    let many = on(DEVICE, &ramp(0, 200));
    let at = |offset: usize| part::part(&many, offset, 256).expect("inside");
    // An address that is misaligned for kernels.
    let out = device::allocate(DEVICE, 300).expect("room");
    let odd = part::part(&out, 4, 256).expect("inside");
    let (r, copies) = counted(|| run(&*model, vec![to(inputs(at(4), at(0)), &s, &[Some(odd.clone()), None])]));
    assert!(r[0].is_ok(), "{:?}", r[0].as_ref().err());
    assert_eq!((copies, address(&odd) % 256), ([0, 0, 512, 0], 4), "the input and the output, once each");
    assert_eq!(contents(&Data::Region(odd)), contents(&f32s((0..64).map(|i| (2 * i + 1) as f32))));
    // An output that overlaps an input of its own request.
    let (r, copies) = counted(|| run(&*model, vec![to(inputs(at(256), at(0)), &s, &[Some(at(256)), None])]));
    assert!(r[0].is_ok());
    assert_eq!(copies, [0, 0, 256, 0]);
    assert_eq!(contents(&Data::Region(at(256))), contents(&f32s((0..64).map(|i| (2 * i + 64) as f32))));
    // A batch: contiguous inputs are used in place, others are gathered; outputs are parts of one tensor.
    let row = on(DEVICE, &ramp(0, 128));
    let half = |n: usize| part::part(&row, 256 * n, 256).expect("inside");
    let (x, y) = (device::allocate(DEVICE, 256).expect("room"), on(DEVICE, &ramp(0, 64)));
    let batch = vec![
        to(inputs(half(0), y.clone()), &s, &[None, Some(x.clone())]),
        to(inputs(half(1), x.clone()), &s, &[None, None]),
    ];
    let (r, copies) = counted(|| run(&*model, batch));
    assert_eq!(copies, [0, 0, 2 * 256 + 256, 0], "one input in a row, one put there, one output to its region");
    let outputs = |n: usize| &r[n].as_ref().expect("runs").outputs;
    assert_eq!(contents(&outputs(0)[0].data), contents(&f32s((0..64).map(|i| (2 * i) as f32))));
    assert_eq!((outputs(1)[0].data.len(), outputs(1)[1].data.len()), (256, 256));
}

#[test]
fn m_29_host_requests_are_gathered_in_page_locked_memory() {
    child("inner_pinned", &[("PINNED", "1")]);
    // Without page-locked memory, pageable memory works, too.
    child("inner_pinned", &[("NEREID_MOCK_CUDA_FAIL", "cuMemHostAlloc:0:2")]);
}

#[test]
#[ignore = "run by m_29_requests_of_the_host_…"]
fn inner_pinned() {
    let s = addsub_signature(8, DataType::Fp32, &[1024]);
    let model = load(&addsub(F32, &[D::S("N"), D::N(1024)]), &s);
    let asked = |from: i32| request(&s, 1, &[(0, &[1, 1024], ramp(from, 1024)), (1, &[1, 1024], ramp(0, 1024))]);
    let staged = (backend::copy::staged_bytes(), pageable());
    let (r, copies) = counted(|| run(&*model, vec![asked(1), asked(2)]));
    assert_eq!(copies, [4 * 4096, 4 * 4096, 0, 0], "each tensor once");
    for (n, from) in [(0, 1), (1, 2)] {
        same(&r[n], 0, &[1, 1024], f32s((0..1024).map(|i| (from + 2 * i) as f32)));
    }
    let by_driver = if std::env::var_os("PINNED").is_some() { 0 } else { 4 * 4096 };
    assert_eq!((backend::copy::staged_bytes() - staged.0, pageable() - staged.1), (0, by_driver));
    drop(r);
    let used: usize = device::pool_uses().iter().map(|pool| pool.used_bytes).sum();
    assert_eq!(used, 0, "all of it came back");
}

#[test]
fn device_outputs_of_unknown_shape_stay_on_the_device() {
    child("inner_unknown", &[]);
}

#[test]
#[ignore = "run by device_outputs_of_unknown_…"]
fn inner_unknown() {
    // The graph does not declare the output's shape; the first run learns it.
    let file = onnx(
        &[node("Identity", &["I"], &["O"], &[])],
        &[tensor("I", F32, &[D::S("N"), D::S("M")])],
        &[tensor("O", F32, &[D::S("N"), D::S("K")])],
        &[],
    );
    let t = DataType::Fp32;
    let s = signature(8, vec![input("I", t, &[-1])], vec![output("O", t, &[-1])]);
    let model = load(&file, &s);
    let given = on(DEVICE, &ramp(0, 100));
    let region = device::allocate(DEVICE, 400).expect("room");
    let asked =
        |target: Option<RegionRef>| to(request(&s, 1, &[(0, &[1, 100], Data::Region(given.clone()))]), &s, &[target]);
    for (round, copies_to_region) in [(0, 400), (1, 0)] {
        let (r, copies) = counted(|| run(&*model, vec![asked(Some(region.clone()))]));
        assert!(r[0].is_ok());
        assert_eq!(copies, [0, 0, copies_to_region, 0], "round {round}");
        assert_eq!(contents(&Data::Region(region.clone())), contents(&ramp(0, 100)));
    }
    // Allocated by the runtime, and alive after the model is dropped.
    let other = on(DEVICE, &ramp(5, 60));
    let asked = to(request(&s, 1, &[(0, &[1, 60], Data::Region(other))]), &s, &[None]);
    let (r, copies) = counted(|| run(&*model, vec![asked]));
    drop(model);
    let output = &r[0].as_ref().expect("runs").outputs[0];
    assert_eq!((copies, output.shape.to_vec()), ([0; 4], vec![1, 60]));
    assert!(matches!(&output.data, Data::Region(region) if region.host().is_none() && !region.is_shared()));
    assert_eq!(contents(&output.data), contents(&ramp(5, 60)));
}

#[test]
fn device_runs_that_fail_are_not_repeated() {
    child("inner_failing", &[]);
}

#[test]
#[ignore = "run by device_runs_that_fail_…"]
fn inner_failing() {
    // O = table[I + 0]. Each run copies the sum's 8 bytes to the host, where Gather is, so bytes count the runs.
    let file = onnx(
        &[node("Add", &["I", "zero"], &["at"], &[]), node("Gather", &["table", "at"], &["O"], &[])],
        &[tensor("I", I32, &[D::N(2)])],
        &[tensor("O", I32, &[D::N(2)])],
        &[initializer("zero", I32, &[2], &[0; 8]), initializer("table", I32, &[3], &contents(&i32s([10, 11, 12])))],
    );
    let s = signature(0, vec![input("I", DataType::Int32, &[2])], vec![output("O", DataType::Int32, &[2])]);
    let model = load(&file, &s);
    let at = |indices: [i32; 2]| Data::Region(on(DEVICE, &i32s(indices)));
    let asked = |indices| vec![request(&s, 0, &[(0, &[2], at(indices))])];
    for _ in 0..2 {
        let (r, [_, down, ..]) = counted(|| run(&*model, asked([0, 2])));
        same(&r[0], 0, &[2], i32s([10, 12]));
        assert_eq!(down, 8);
        let (r, [_, down, ..]) = counted(|| run(&*model, asked([0, 3])));
        let error = r[0].as_ref().expect_err("there is no such row");
        assert!(error.message().contains("idx=3"), "{error}");
        assert_eq!(down, 8, "a run that fails is not made again");
    }

    // The number of nonzero elements is unknown before a run: if the number of the previous run is wrong, the run is
    // repeated.
    let file = onnx(
        &[node("Add", &["I", "zero"], &["x"], &[]), node("NonZero", &["x"], &["O"], &[])],
        &[tensor("I", I32, &[D::N(4)])],
        &[tensor("O", I64, &[D::N(1), D::S("N")])],
        &[initializer("zero", I32, &[4], &[0; 16])],
    );
    let s = signature(0, vec![input("I", DataType::Int32, &[4])], vec![output("O", DataType::Int64, &[1, -1])]);
    let model = load(&file, &s);
    let asked = |values: [i32; 4]| vec![request(&s, 0, &[(0, &[4], Data::Region(on(DEVICE, &i32s(values))))])];
    let places: [(_, &[i64], _); 4] = [
        ([1, 0, 1, 0], &[0, 2], 1),
        ([0, 1, 1, 0], &[1, 2], 1),
        ([1, 0, 1, 1], &[0, 2, 3], 2),
        ([0, 0, 1, 0], &[2], 1),
    ];
    for (values, expected, runs) in places {
        let (r, [_, down, ..]) = counted(|| run(&*model, asked(values)));
        same(&r[0], 0, &[1, expected.len() as i64], i64s(expected.iter().copied()));
        assert_eq!(down, 16 * runs, "{values:?}");
    }
}

#[test]
fn device_runs_with_captured_graphs_answer_each_request_with_its_own_tensors() {
    // Like a CUDA graph, the provider reuses the addresses of its first run.
    child("inner_captured", &[("NEREID_MOCK_CUDA_GRAPHS", "1")]);
}

#[test]
#[ignore = "run by device_runs_that_are_captured_…"]
fn inner_captured() {
    let s = addsub_signature(8, DataType::Fp32, &[64]);
    let file = addsub(F32, &[D::S("N"), D::N(64)]);
    let model = opened(&file, &s, graphs()).expect("its shapes are fixed");
    let asked = |from: i32| request(&s, 1, &[(0, &[1, 64], ramp(from, 64)), (1, &[1, 64], ramp(0, 64))]);
    let sum = |from: i32| f32s((0..64).map(|i| (from + 2 * i) as f32));
    for from in [10, 20, 30] {
        let (r, copies) = counted(|| run(&*model, vec![asked(from)]));
        assert_eq!(copies, [512, 512, 0, 0], "inputs in, outputs out");
        same(&r[0], 0, &[1, 64], sum(from));
    }
    // Each number of rows has a graph.
    for from in [1, 2] {
        let r = run(&*model, vec![asked(from), asked(from + 50)]);
        same(&r[0], 0, &[1, 64], sum(from));
        same(&r[1], 0, &[1, 64], sum(from + 50));
    }
    // From and to device memory: into the graph's buffers and out of them, on the device.
    let (a, b) = (on(DEVICE, &ramp(5, 64)), on(DEVICE, &ramp(0, 64)));
    let x = device::allocate(DEVICE, 256).expect("room");
    let there = request(&s, 1, &[(0, &[1, 64], Data::Region(a)), (1, &[1, 64], Data::Region(b))]);
    let (r, copies) = counted(|| run(&*model, vec![to(there, &s, &[Some(x.clone()), None])]));
    assert!(r[0].is_ok(), "{:?}", r[0].as_ref().err());
    assert_eq!(copies, [0, 0, 4 * 256, 0]);
    assert_eq!(contents(&Data::Region(x)), contents(&sum(5)));
    // From several threads: the runtime keeps graphs per thread, so one thread runs them all.
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (model, asked, sum) = (&model, &asked, &sum);
            scope.spawn(move || {
                for round in 0..25 {
                    let from = 1000 * thread + round;
                    same(&run(&**model, vec![asked(from)])[0], 0, &[1, 64], sum(from));
                }
            });
        }
    });
    // Without graphs in the configuration, this provider still reuses the first addresses: the test can fail.
    let plain = load(&file, &s);
    let host = |from| run(&*plain, vec![asked(from)]);
    same(&host(1)[0], 0, &[1, 64], sum(1));
    let held = on(DEVICE, &ramp(7, 64));
    let r = run(&*plain, vec![request(&s, 1, &[(0, &[1, 64], Data::Region(held)), (1, &[1, 64], ramp(0, 64))])]);
    assert!(r[0].is_err() || seen(&r[0], 0).1 != contents(&sum(7)));

    let refused = |file: &[u8], s: &Signature| {
        let error = opened(file, s, graphs()).map(drop).expect_err("refused");
        assert_eq!(error.code(), Code::Unsupported, "{error}");
        error.message().to_owned()
    };
    let open = addsub_signature(8, DataType::Fp32, &[-1]);
    let file_open = addsub(F32, &[D::S("N"), D::S("M")]);
    assert_eq!(
        refused(&file_open, &open),
        format!(
            "model '{}' cannot run by CUDA graphs: input 'INPUT0' has the dims [-1], which are not fixed. Leave the \
             parameter out",
            open.model
        )
    );
    let many = addsub_signature(65, DataType::Fp32, &[64]);
    assert!(refused(&file, &many).contains("max_batch_size is 65, and each number of rows takes a graph: at most 64"));
}

#[test]
fn a_device_that_the_runtime_reports_as_lost_is_lost_for_all() {
    child("inner_lost", &[]);
}

#[test]
#[ignore = "run by a_device_that_the_runtime_…"]
fn inner_lost() {
    let s = addsub_signature(8, DataType::Fp32, &[4]);
    let model = load(&addsub(F32, &[D::S("N"), D::N(4)]), &s);
    let asked = |first: f32| {
        run(&*model, vec![request(&s, 1, &[(0, &[1, 4], f32s([first, 0.0, 0.0, 0.0])), (1, &[1, 4], ramp(0, 4))])])
    };
    // As in a server, which has allocated memory of the device before.
    drop(device::allocate(DEVICE, 4).expect("room"));
    assert!(asked(1.0)[0].is_ok() && device::failure::failures() == 0);
    let lost = asked(70000.0)[0].as_ref().map(|_| ()).expect_err("the device fails").clone();
    assert_eq!(lost.code(), Code::Unavailable, "{lost}");
    assert!(
        lost.message().starts_with(
            "GPU 1 failed: ONNX Runtime: CUDA failure 700: an illegal memory access was encountered ; GPU=0 (cuC"
        ),
        "{lost}"
    );
    assert!(device::failure::failed(DEVICE).is_some() && device::failure::failed(0).is_none());
}

#[test]
fn device_plug_ins_that_cannot_be_used_are_load_errors() {
    child("inner_refused", &[]);
}

#[test]
#[ignore = "run by device_plug_ins_that_…"]
fn inner_refused() {
    let refused = |library: &str, gpu: i32| {
        let group = ModelInstanceGroup { kind: Kind::Gpu.into(), count: 1, gpus: vec![gpu], ..Default::default() };
        let config = ModelConfig { name: "m".into(), instance_group: vec![group], ..ModelConfig::default() };
        let version = Version::new(&identity(F32, &[D::N(1)]));
        let mut spec = version.spec(&config);
        spec.settings = vec![("provider-library".into(), library.to_owned())];
        let t = DataType::Fp32;
        let s = signature(0, vec![input("I", t, &[1])], vec![output("O", t, &[1])]);
        let opened = OnnxBackend::new(Some(support::library())).open(&spec);
        let error = opened.and_then(|o| o.finish(&config, s.into())).map(drop).expect_err("refused");
        assert_eq!(error.code(), Code::Unavailable);
        error.message().to_owned()
    };
    assert!(refused("/nowhere/provider.so", 0).contains("there is no file '/nowhere/provider.so'"));
    let other = std::env::var("NEREID_LIBCUDA").expect("given by the parent");
    assert!(refused(&other, 0).contains("CreateEpFactories"), "no plug-in");
    let provider = std::env::var("PROVIDER").expect("given by the parent");
    assert!(refused(&provider, 7).contains("offers no device 7 of CUDA"));
}
