//! A load that needs more memory than there is fails with the numbers, and an unload returns the promised memory.
//!
//! Devices are mocked (crates/device/tests/mock) for a whole process, so that case runs in a child process.

#![cfg(target_os = "linux")]

mod support;

use backend::{Backend, Batch, Marks, MemoryLocation, Model, Need, OpenSpec, Opened, RunControl};
use engine::{Engine, EngineOptions, ServerState};
use memory::{Budget, Ledger};
use protocol::Signature;
use protocol::pb::inference as pb;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use support::{of_numbers, publish};
use tensor::{Code, Result};

/// Needs the memory that the name of its model says: `host 10`, or `0 10` for device 0.
struct Needy;

struct Needs(Vec<Need>);

impl Backend for Needy {
    fn name(&self) -> &'static str {
        "needy"
    }
    fn open(&self, spec: &OpenSpec) -> Result<Box<dyn Opened>> {
        let name = spec.model.to_string();
        let (place, bytes) = name.split_once(' ').expect("a place and a number");
        let place = place.parse().map_or(MemoryLocation::Host, MemoryLocation::Device);
        Ok(Box::new(Needs(vec![Need { place, bytes: bytes.parse().expect("a number") }])))
    }
}

impl Opened for Needs {
    fn needs(&self) -> Result<Vec<Need>> {
        Ok(self.0.clone())
    }
    fn finish(self: Box<Self>, _: &pb::ModelConfig, _: Arc<Signature>) -> Result<Arc<dyn Model>> {
        Ok(Arc::new(Loaded))
    }
}

struct Loaded;

impl Model for Loaded {
    fn execute(&self, _: u32, _: &mut Batch<'_>, _: &RunControl) -> Marks {
        Marks::default()
    }
}

fn engine() -> Arc<Engine> {
    let engine = Engine::new(EngineOptions::default(), vec![Arc::new(Needy)]).expect("starts");
    engine.set_server_state(ServerState::Ready);
    engine
}

fn promised_of_host() -> usize {
    Budget::global().counters().used_bytes.iter().sum()
}

#[test]
fn host_memory_of_a_load_comes_from_the_budget_of_requests() {
    Budget::global().set_limit(8000);
    let engine = engine();
    let load = |name: &str| publish(&engine, &of_numbers(name, "needy"));
    let kept = load("host 4000").expect("it fits");
    assert_eq!(promised_of_host(), 4000);
    let refused = load("host 3001").err().expect("it does not fit beside it");
    assert_eq!(refused.code(), Code::Unavailable);
    assert!(
        refused.message().starts_with("model 'host 3001' version 1 does not fit: it needs 3001 bytes of the host"),
        "{refused}"
    );
    load("host 3000").expect("exactly");
    drop(kept);
    assert_eq!(promised_of_host(), 7000, "it serves");
    drop(engine.retire("host 4000", 1));
    assert_eq!(promised_of_host(), 3000);
    engine.close();
    assert_eq!(promised_of_host(), 0);
}

#[test]
#[ignore = "runs in a child of the other test"]
fn loads_on_a_device() {
    let engine = engine();
    let load = |name: &str, gpu: Option<i32>| {
        let mut config = of_numbers(name, "needy");
        let kind = pb::model_instance_group::Kind::Gpu as i32;
        config.instance_group = gpu
            .map(|gpu| pb::ModelInstanceGroup {
                name: "g".into(),
                kind,
                count: 1,
                gpus: vec![gpu],
                ..Default::default()
            })
            .into_iter()
            .collect();
        publish(&engine, &config)
    };
    load("0 700000", None).expect("it fits");
    println!("told: {:?}", load("0 300001", None).err().expect("it does not").message());
    println!("told: {:?}", load("7 1", None).err().expect("there is no such device").message());
    println!("told: {:?}", Ledger::global().devices());
    drop(engine.retire("0 700000", 1));
    // Memory of other processes on the device counts for the limit of a load.
    Ledger::global().limit_devices(&[(0, 0.5)]);
    device::set_pool_sizes(device::PoolSizes { devices: vec![(0, 600_000)], ..Default::default() });
    load("0 500000", Some(0)).expect("half of it");
    let others = device::allocate(0, 1).expect("a pool of 600000 bytes is made");
    println!("told: {:?}", load("host 1", Some(0)).err().expect("more than half is in use").message());
    load("host 2", Some(1)).expect("another device");
    drop(others);
    engine.close();
    println!("told: {:?} {}", Ledger::global().devices(), promised_of_host());
}

#[test]
fn device_memory_of_a_load_is_limited_by_the_device_and_its_usable_part() {
    let out = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("ledger-{}", std::process::id()));
    let (library, memory) = (out.join("libcuda.so.1"), out.join("memory"));
    std::fs::create_dir_all(&memory).expect("a directory for tests");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../device/tests/mock/libcuda.c");
    let mut cc = Command::new("cc");
    cc.args(["-O1", "-shared", "-fPIC", "-lpthread", "-o"]).arg(&library).arg(source);
    assert!(cc.status().expect("cc is there, as Rust needs it").success(), "the stand-in builds");
    let mut child = Command::new(std::env::current_exe().expect("its own path"));
    child.args(["--ignored", "--exact", "--nocapture", "loads_on_a_device"]).env("NEREID_LIBCUDA", library);
    child
        .env("NEREID_MOCK_CUDA_DIR", memory)
        .env("NEREID_MOCK_CUDA_DEVICES", "2")
        .env("NEREID_MOCK_CUDA_TOTAL", "1000000");
    let done = child.output().expect("it runs");
    let said = String::from_utf8_lossy(&done.stdout);
    assert!(done.status.success(), "{said}{}", String::from_utf8_lossy(&done.stderr));
    let told: Vec<&str> = said.lines().filter_map(|line| line.strip_prefix("told: ")).collect();
    let expected = [
        "\"model '0 300001' version 1 does not fit: it needs 300001 bytes of device 0, which has 1000000 of its \
         1000000 bytes free; \
         loaded models need 700000 of the 1000000 bytes that models may use, 0 bytes of them for \
          models that are being loaded\"",
        "\"model '7 1' version 1 cannot be loaded: device 7 does not report its memory: there is no device 7, there \
         are 2\"",
        "[RowUse { device: 0, limit_bytes: 1000000, promised_bytes: 700000 }]",
        "\"can not create model 'g_0': memory limit set for GPU 0 has exceeded, model loading is rejected.\"",
        "[RowUse { device: 0, limit_bytes: 500000, promised_bytes: 0 }] 0",
    ];
    assert_eq!(told, expected);
}
