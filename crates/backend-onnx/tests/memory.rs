//! Memory of a loaded model, and its release. One test in a process of its own, as it measures the whole process.

#![cfg(target_os = "linux")]

mod support;

use protocol::pb::inference::ModelConfig;
use support::*;
use tensor::DataType;

/// Weights of 1 MiB each: below the size that glibc, by default, would ever map one by one again.
const LAYERS: usize = 96;
const WIDTH: usize = 512;
const MIB: usize = 1 << 20;

fn resident_mib() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").expect("readable");
    let line = status.lines().find_map(|l| l.strip_prefix("RssAnon:")).expect("told");
    line.trim().trim_end_matches(" kB").parse::<usize>().expect("a number") * 1024 / MIB
}

#[test]
fn a_model_takes_its_size_each_time_it_is_loaded_and_gives_it_back() {
    // All different, because equal weights are stored once.
    let weights = |i: usize| f32s((0..WIDTH * WIDTH).map(|n| (n * LAYERS + i) as f32)).to_vec().expect("in memory");
    let names: Vec<[String; 3]> =
        (0..LAYERS).map(|i| [format!("x{i}"), format!("w{i}"), format!("x{}", i + 1)]).collect();
    let nodes: Vec<_> = names.iter().map(|[x, w, y]| node("MatMul", &[x, w], &[y], &[])).collect();
    let initializers: Vec<_> =
        names.iter().zip(0..).map(|([_, w, _], i)| initializer(w, F32, &[WIDTH as i64; 2], &weights(i))).collect();
    let wide = [D::S("n"), D::N(WIDTH as i64)];
    let last = format!("x{LAYERS}");
    let version = Version::new(&onnx(&nodes, &[tensor("x0", F32, &wide)], &[tensor(&last, F32, &wide)], &initializers));
    drop((nodes, initializers));
    let last: &'static str = last.leak();
    let dims = [WIDTH as i64];
    let s = signature(8, vec![input("x0", DataType::Fp32, &dims)], vec![output(last, DataType::Fp32, &dims)]);
    // The library itself, and what it allocates once.
    drop(Version::new(&identity(F32, &[D::N(1)])).open(&ModelConfig::default()).expect("opens"));
    let mut before = resident_mib();
    for round in 0..8 {
        // On a new thread, as in the engine: malloc uses another arena each time.
        let (model, loaded) = std::thread::scope(|scope| {
            let load = || {
                let model = version.load(&ModelConfig::default(), s.clone());
                (model, resident_mib())
            };
            scope.spawn(load).join().expect("loads")
        });
        // This thread stands for a reactor, which may drop the last response of an unloaded model.
        let cpu = memory::thread::cpu_ns();
        drop(model);
        let cpu = memory::thread::cpu_ns() - cpu;
        assert!(cpu < 1_000_000, "round {round}: dropping the model took {cpu} ns of the thread that serves");
        assert!(memory::release::finish(std::time::Duration::from_secs(10)));
        let after = resident_mib();
        println!("round {round}: {before} MiB before, {loaded} loaded, {after} after");
        assert!(
            loaded - before < LAYERS * 115 / 100,
            "round {round}: {LAYERS} MiB of weights take {} MiB",
            loaded - before
        );
        assert!(after - before.min(after) < LAYERS / 16, "round {round}: {} MiB stay", after - before);
        // The trim also returns memory that this test had freed before.
        before = before.min(after);
    }
}
