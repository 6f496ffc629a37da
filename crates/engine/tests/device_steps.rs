//! Tensors on devices, with a mock of `libcuda.so.1` that counts copies.
//!
//! A process loads the driver once, so each case runs in a child process: this program with one of the ignored tests.

#![cfg(target_os = "linux")]

mod support;

use backend::{copy, scatter};
use backend_test::{IDENTITY, ON_DEVICE};
use engine::{Engine, EngineOptions, ServerState};
use protocol::pb::inference as pb;
use protocol::pb::inference::model_sequence_batching::{State, StrategyChoice, StrategyDirect};
use protocol::{CorrelationId, InferRequest, InferResponse, InputTensor, RequestedOutput, Sequence};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, OnceLock};
use support::*;
use tensor::{Code, Data, DataType, Error, RegionRef, Result, Shape, part};

const COUNT: usize = 4096;
const BYTES: u64 = 4 * COUNT as u64;

/// Bytes copied to devices, from them, inside one, and from one to another.
#[derive(Debug, PartialEq, Clone, Copy)]
struct Copied {
    up: u64,
    down: u64,
    within: u64,
    peer: u64,
}

const NOTHING: Copied = Copied { up: 0, down: 0, within: 0, peer: 0 };

fn copied() -> Copied {
    let path = std::env::var_os("NEREID_LIBCUDA").expect("given by the parent");
    #[allow(unsafe_code)]
    // SAFETY: the mock, which the driver has opened too, exports this function with one number as its parameter.
    unsafe {
        let library = libloading::Library::new(path).expect("it was opened before");
        let of = library.get::<unsafe extern "C" fn(i32) -> u64>(b"mockCopied\0").expect("of the stand-in");
        Copied { up: of(0), down: of(1), within: of(2), peer: of(3) }
    }
}

/// Copies made by `work`.
fn counted<T>(work: impl FnOnce() -> T) -> (T, Copied) {
    let before = copied();
    let done = work();
    let after = copied();
    let copied = Copied {
        up: after.up - before.up,
        down: after.down - before.down,
        within: after.within - before.within,
        peer: after.peer - before.peer,
    };
    (done, copied)
}

fn library() -> &'static (PathBuf, PathBuf) {
    static BUILT: OnceLock<(PathBuf, PathBuf)> = OnceLock::new();
    BUILT.get_or_init(|| {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../device/tests/mock/libcuda.c");
        let out = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("steps-{}", std::process::id()));
        std::fs::create_dir_all(out.join("memory")).expect("a directory for tests");
        let library = out.join("libcuda.so.1");
        let mut cc = Command::new("cc");
        cc.args(["-O1", "-shared", "-fPIC", "-lpthread"]).arg(source).arg("-o").arg(&library);
        assert!(cc.status().expect("cc is there, as Rust needs it").success(), "the stand-in builds");
        (library, out.join("memory"))
    })
}

/// Runs an ignored test of this program with two devices, and the given failures.
fn child(test: &str, fail: &str) {
    let (library, memory) = library();
    let mut command = Command::new(std::env::current_exe().expect("its own path"));
    command.args(["--ignored", "--exact", "--nocapture", test]).env("NEREID_LIBCUDA", library);
    command.env("NEREID_MOCK_CUDA_DIR", memory).env("NEREID_MOCK_CUDA_DEVICES", "2").env("NEREID_MOCK_CUDA_FAIL", fail);
    let done = command.output().expect("it runs");
    let said = String::from_utf8_lossy(&done.stdout).into_owned() + &String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success() && said.contains("1 passed"), "{test} with {fail:?}: {said}");
}

/// A model on a device: OUTPUT0 is INPUT0.
fn on_device(name: &str, device: i32) -> pb::ModelConfig {
    let group =
        pb::ModelInstanceGroup { name: name.into(), count: 1, kind: 1, gpus: vec![device], ..Default::default() };
    let dims = vec![-1];
    let data_type = DataType::Fp32 as i32;
    pb::ModelConfig {
        name: name.into(),
        backend: "device_identity".into(),
        instance_group: vec![group],
        input: vec![pb::ModelInput { name: "INPUT0".into(), dims: dims.clone(), data_type, ..Default::default() }],
        output: vec![pb::ModelOutput { name: "OUTPUT0".into(), dims, data_type, ..Default::default() }],
        ..Default::default()
    }
}

/// A chain ensemble of these models.
fn chain(name: &str, models: &[&str]) -> pb::ModelConfig {
    let tensor = |i: usize| match i {
        0 => "INPUT0".to_owned(),
        i if i == models.len() => "OUTPUT0".to_owned(),
        i => format!("t{i}"),
    };
    let step = |(i, model): (usize, &&str)| pb::model_ensembling::Step {
        model_name: (*model).into(),
        model_version: -1,
        input_map: [("INPUT0".to_owned(), tensor(i))].into(),
        output_map: [("OUTPUT0".to_owned(), tensor(i + 1))].into(),
        ..Default::default()
    };
    let graph = pb::ModelEnsembling { step: models.iter().enumerate().map(step).collect(), max_inflight_requests: 0 };
    let choice = pb::model_config::SchedulingChoice::EnsembleScheduling(graph);
    pb::ModelConfig {
        scheduling_choice: Some(choice),
        backend: String::new(),
        instance_group: vec![],
        ..on_device(name, 0)
    }
}

fn values(seed: u8) -> Vec<u8> {
    (0..BYTES).map(|i| (i % 249) as u8 ^ seed).collect()
}

fn given(data: Data) -> Box<InferRequest> {
    let shape = Shape::from_slice(&[(data.len() / 4) as i64]);
    let input = InputTensor { name: "INPUT0".into(), datatype: Some(DataType::Fp32), shape, data };
    Box::new(InferRequest { inputs: [input].into_iter().collect(), ..InferRequest::default() })
}

fn asked_of(engine: &Engine, model: &str, request: Box<InferRequest>) -> Result<Box<InferResponse>> {
    let version = engine.model(model, "")?;
    try_request(&version, request, None)?.next_answer().response.expect("an answer")
}

fn bytes(response: &InferResponse) -> Vec<u8> {
    response.outputs[0].data.host().expect("in memory of the host").to_vec()
}

fn engine() -> Arc<Engine> {
    let engine = Engine::new(EngineOptions::default(), vec![Arc::new(ON_DEVICE)]).expect("an engine");
    engine.set_server_state(ServerState::Ready);
    for (name, device) in [("a", 0), ("b", 0), ("c", 1)] {
        publish(&engine, &on_device(name, device)).expect("a good configuration");
    }
    for (name, models) in [("one", &["a", "b", "a"][..]), ("two", &["a", "c", "c", "b"]), ("nested", &["one", "b"])] {
        publish(&engine, &chain(name, models)).expect("a good configuration");
    }
    engine
}

/// Memory of a device with these bytes.
fn there(device: u32, bytes: &[u8]) -> RegionRef {
    let made = device::allocate(device, bytes.len()).expect("room");
    made.copy_from(0, bytes).expect("inside");
    made
}

#[test]
fn m_29_steps_leave_tensors_on_their_device() {
    child("steps", "");
}

#[test]
#[ignore = "runs in a child of the other tests"]
fn steps() {
    let engine = engine();
    let whole = Copied { up: BYTES, down: BYTES, ..NOTHING };
    for (model, expected) in
        [("a", whole), ("one", whole), ("nested", whole), ("two", Copied { peer: 2 * BYTES, ..whole })]
    {
        let request = given(Data::Bytes(values(1).into()));
        let (response, copied) = counted(|| asked_of(&engine, model, request).expect("an answer"));
        assert_eq!((copied, bytes(&response) == values(1)), (expected, true), "{model}");
    }
    // A tensor that is and stays on the device is not copied.
    let (source, target) = (there(0, &values(2)), there(0, &values(0)));
    for (model, expected) in [("a", Copied { within: BYTES, ..NOTHING }), ("one", Copied { within: BYTES, ..NOTHING })]
    {
        target.fill(0, BYTES as usize, 0).expect("inside");
        let mut request = given(Data::Region(source.clone()));
        let region = Some(target.clone());
        request.outputs.push(RequestedOutput { name: "OUTPUT0".into(), form: Default::default(), region });
        let (response, copied) = counted(|| asked_of(&engine, model, request).expect("an answer"));
        assert_eq!(copied, expected, "{model}");
        assert_eq!(response.outputs[0].data.to_vec().expect("read"), values(2), "{model}");
        assert_eq!(Data::Region(target.clone()).to_vec().expect("read"), values(2), "{model}");
    }
}

#[test]
fn m_25_outputs_are_copied_once() {
    child("places", "");
    // Without page-locked memory nothing is staged, but contents arrive.
    child("places", "cuMemHostAlloc:0:2");
}

#[test]
#[ignore = "runs in a child of the other tests"]
fn places() {
    let n = BYTES as usize;
    let host = Data::Bytes(values(3).into());
    let on = |device| Data::Region(there(device, &values(3)));
    let check = |what: &str, source: Data, target: Option<u32>, expected: Copied| {
        let region = target.map(|device| there(device, &values(0)));
        let (placed, copied) = counted(|| scatter::place("O", source, region.as_ref()).expect("placed"));
        assert_eq!(copied, expected, "{what}");
        assert_eq!(placed.to_vec().expect("read"), values(3), "{what}");
    };
    check("host to device", host.clone(), Some(1), Copied { up: BYTES, ..NOTHING });
    check("device to host", on(1), None, Copied { down: BYTES, ..NOTHING });
    check("on one device", on(1), Some(1), Copied { within: BYTES, ..NOTHING });
    check("from one to another", on(0), Some(1), Copied { peer: BYTES, ..NOTHING });
    let same = there(0, &values(3));
    let (placed, copied) = counted(|| scatter::place("O", Data::Region(same.clone()), Some(&same)).expect("placed"));
    assert_eq!((copied, placed.to_vec().expect("read")), (NOTHING, values(3)), "already there");
    // Overlapping: as if everything was read before the first write.
    let moved = part::part(&same, 4, n - 4).expect("inside");
    scatter::place("O", Data::Region(part::part(&same, 0, n - 4).expect("inside")), Some(&moved)).expect("placed");
    assert_eq!(Data::Region(moved).to_vec().expect("read"), values(3)[..n - 4]);
}

#[test]
fn m_29_a_batch_is_gathered_on_its_device() {
    child("rows", "");
}

#[test]
#[ignore = "runs in a child of the other tests"]
fn rows() {
    let all = there(1, &values(4));
    let row = |start, len| Data::Region(part::part(&all, start, len).expect("inside"));
    // With the parts of the step before.
    let divided = [row(0, 100), row(100, 0), row(100, 60), row(160, 40)];
    let (made, copied) = counted(|| copy::on_device(&divided, 1, true).expect("room").expect("a row"));
    assert_eq!((copied, made.len()), (NOTHING, 200));
    assert_eq!(Data::Region(made).to_vec().expect("read"), values(4)[..200]);
    // In another order, from another location, or in shared memory: copied, adjacent parts together.
    let host = Data::Bytes(values(5)[..8].to_vec().into());
    let mixed = [row(100, 60), row(160, 40), host.clone(), Data::Region(there(0, &[7; 8])), row(0, 100)];
    let (made, copied) = counted(|| copy::on_device(&mixed, 1, true).expect("room").expect("a row"));
    assert_eq!(copied, Copied { up: 8, down: 0, within: 200, peer: 8 });
    let expected = [&values(4)[100..200], &values(5)[..8], &[7; 8], &values(4)[..100]].concat();
    assert_eq!(Data::Region(made).to_vec().expect("read"), expected);
    // To the host.
    let mut found = vec![0; 208];
    copy::gather(&[row(100, 100), host, row(0, 100)], copy::Target::Host(&mut found)).expect("copied");
    assert_eq!(found, [&values(4)[100..200], &values(5)[..8], &values(4)[..100]].concat());
    assert!(copy::on_device(&[], 0, true).expect("nothing").is_none());
}

#[test]
fn m_29_contents_of_all_locations_are_gathered() {
    child("anything", "");
    child("anything", "cuMemHostAlloc:0:2");
}

#[test]
#[ignore = "runs in a child of the other tests"]
fn anything() {
    let mut state = 1u64;
    let mut random = move |below: usize| {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 33) as usize % below
    };
    // Two allocations on each device, whose parts are sometimes adjacent.
    let blocks: Vec<RegionRef> = (0..4).map(|i| there(i / 2, &values(10 + i as u8))).collect();
    for round in 0..300 {
        let mut expected = Vec::new();
        let mut after: Option<(usize, usize)> = None;
        let sources: Vec<Data> = (0..random(9))
            .map(|_| {
                let len = random(400);
                let bytes: Vec<u8> = (0..len).map(|_| random(256) as u8).collect();
                let (data, bytes) = match random(5) {
                    0 => (Data::Bytes(bytes.clone().into()), bytes),
                    1 => match device::pinned(len) {
                        Ok(mut block) => {
                            block.copy_from_slice(&bytes);
                            (Data::Bytes(block.freeze()), bytes)
                        }
                        Err(_) => (Data::Bytes(bytes.clone().into()), bytes),
                    },
                    _ => {
                        let (block, start) = after.filter(|_| random(3) > 0).unwrap_or((random(4), random(10_000)));
                        let len = len.min(BYTES as usize - start);
                        after = Some((block, start + len));
                        let bytes = values(10 + block as u8)[start..start + len].to_vec();
                        (Data::Region(part::part(&blocks[block], start, len).expect("inside")), bytes)
                    }
                };
                expected.extend(bytes);
                data
            })
            .collect();
        let mut host = vec![0; expected.len()];
        copy::gather(&sources, copy::Target::Host(&mut host)).expect("copied");
        assert_eq!(host, expected, "to the host, round {round}");
        let mut locked = device::pinned(expected.len());
        if let Ok(locked) = &mut locked {
            copy::gather(&sources, copy::Target::Host(locked)).expect("copied");
            assert_eq!(**locked, expected, "to locked memory, round {round}");
        }
        for device in 0..2 {
            let made = copy::on_device(&sources, device, random(2) == 0).expect("room");
            let found = made.map_or(Vec::new(), |made| Data::Region(made).to_vec().expect("read"));
            assert_eq!(found, expected, "to device {device}, round {round}");
        }
    }
}

#[test]
fn m_29_a_run_that_waits_for_a_device_is_not_inline() {
    child("waits", "");
}

#[test]
#[ignore = "runs in a child of the other tests"]
fn waits() {
    let engine = Engine::new(EngineOptions::default(), vec![Arc::new(IDENTITY)]).expect("an engine");
    engine.set_server_state(ServerState::Ready);
    let config = pb::ModelConfig { backend: "identity".into(), instance_group: vec![], ..on_device("host", 0) };
    let version = publish(&engine, &config).expect("a good configuration");
    let small = || Data::Bytes(values(1)[..64].to_vec().into());
    let is_inline = |request| {
        let call = try_request(&version, request, None).expect("accepted");
        let answer = call.next_answer().response.expect("an answer").expect("it succeeds");
        assert_eq!(answer.outputs[0].data.to_vec().expect("read"), values(1)[..64]);
        call.ticket.is_none()
    };
    // Once it is known to be cheap, it may run inline.
    let until = std::time::Instant::now() + std::time::Duration::from_secs(60);
    while !is_inline(given(small())) {
        assert!(std::time::Instant::now() < until, "it costs next to nothing");
    }
    let device = there(0, &values(1)[..64]);
    assert!(!is_inline(given(Data::Region(device.clone()))), "an input lies there");
    let mut request = given(small());
    let region = Some(there(1, &values(0)[..64]));
    request.outputs.push(RequestedOutput { name: "OUTPUT0".into(), form: Default::default(), region });
    assert!(!is_inline(request), "an output is wanted there");
    assert!((0..100).any(|_| is_inline(given(small()))), "others run here as before");
}

#[test]
fn m_29_a_state_stays_on_its_device() {
    child("state", "");
}

/// A sequence model that responds with the previous input.
fn remembering() -> pb::ModelConfig {
    let mut config = on_device("s", 1);
    let output = pb::ModelOutput { name: "OUTPUT1".into(), ..config.output[0].clone() };
    config.output.push(output);
    let state = State {
        input_name: "INPUT1".into(),
        output_name: "OUTPUT0".into(),
        data_type: DataType::Fp32 as i32,
        dims: vec![COUNT as i64],
        ..Default::default()
    };
    config.scheduling_choice = Some(pb::model_config::SchedulingChoice::SequenceBatching(pb::ModelSequenceBatching {
        max_sequence_idle_microseconds: 1_000_000_000,
        state: vec![state],
        strategy_choice: Some(StrategyChoice::Direct(StrategyDirect::default())),
        ..Default::default()
    }));
    config
}

#[test]
#[ignore = "runs in a child of the other tests"]
fn state() {
    let engine = engine();
    publish(&engine, &remembering()).expect("a good configuration");
    let mut before = vec![0; BYTES as usize];
    for n in 1..5 {
        let mut request = given(Data::Bytes(values(n).into()));
        request.sequence = Sequence { id: CorrelationId::Number(1), start: n == 1, end: n == 4 };
        request.outputs.push(RequestedOutput { name: "OUTPUT1".into(), form: Default::default(), region: None });
        let (response, copied) = counted(|| asked_of(&engine, "s", request).expect("an answer"));
        assert_eq!((bytes(&response) == before, response.outputs.len()), (true, 1), "request {n}");
        // The first state is host memory with zeros.
        let up = if n == 1 { 2 * BYTES } else { BYTES };
        assert_eq!(copied, Copied { up, down: BYTES, ..NOTHING }, "request {n}");
        before = values(n);
    }
}

#[test]
fn m_29_a_failed_device_returns_an_error_and_never_zeros() {
    child("failure", "cuMemcpyDtoH_v2:0:2,cuMemcpyDtoHAsync_v2:0:2");
    child("failure", "cuStreamSynchronize:0:2,cuMemcpyDtoH_v2:0:2");
    child("failure", "cuMemAlloc_v2:0:2");
}

#[test]
#[ignore = "runs in a child of the other tests"]
fn failure() {
    let engine = engine();
    for model in ["a", "one", "two"] {
        let failed: Error = asked_of(&engine, model, given(Data::Bytes(values(1).into()))).expect_err("it fails");
        assert!(matches!(failed.code(), Code::Internal | Code::Unavailable), "{failed:?}");
    }
}
