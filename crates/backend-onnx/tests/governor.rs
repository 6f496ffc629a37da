//! The workers of the shared pool step aside while there are as many heavy runs as cores, with real models.

mod support;

use backend::{Backend, Model};
use backend_onnx::OnnxBackend;
use parking_lot::Mutex;
use protocol::Signature;
use protocol::pb::inference::{ModelConfig, ModelParameter};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use support::*;
use tensor::DataType;

/// What is parked belongs to the process, so one test at a time.
static ALONE: Mutex<()> = Mutex::new(());

const WIDTH: usize = 512;
const ROWS: usize = 256;
const STEPS: usize = 48;

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// At least one worker, on a machine with one core, too.
fn threads() -> usize {
    cores().max(2)
}

/// The input times the unit matrix, several times: tens of milliseconds that return the input.
fn heavy() -> Version {
    let unit = (0..WIDTH * WIDTH).map(|i| if i % (WIDTH + 1) == 0 { 1.0 } else { 0.0 });
    let names: Vec<String> = (0..STEPS).map(|i| format!("T{i}")).collect();
    let name = |i: usize| match i {
        0 => "I",
        STEPS => "O",
        _ => names[i].as_str(),
    };
    let nodes: Vec<_> = (0..STEPS).map(|i| node("MatMul", &[name(i), "W"], &[name(i + 1)], &[])).collect();
    let t = |n| tensor(n, F32, &[D::N(ROWS as i64), D::N(WIDTH as i64)]);
    let w = initializer("W", F32, &[WIDTH as i64; 2], &f32s(unit).to_vec().expect("in memory"));
    Version::new(&onnx(&nodes, &[t("I")], &[t("O")], &[w]))
}

fn heavy_signature() -> Signature {
    let dims = [ROWS as i64, WIDTH as i64];
    signature(0, vec![input("I", DataType::Fp32, &dims)], vec![output("O", DataType::Fp32, &dims)])
}

fn load(version: &Version, signature: Signature, config: &ModelConfig) -> Arc<dyn Model> {
    let pool = [("enable-global-threadpool", "1".to_owned()), ("intra_op_thread_count", threads().to_string())];
    // Has an effect the first time.
    backend_onnx::preload(&library(), &pool.map(|(k, v)| (k.to_owned(), v))).expect("loads");
    let mut spec = version.spec(config);
    spec.settings.push(("park-workers".to_owned(), "true".to_owned()));
    let opened = OnnxBackend::new(Some(library())).open(&spec).expect("opens");
    opened.finish(&spec.config, Arc::new(signature)).expect("matches")
}

fn heavy_run(model: &dyn Model, seed: usize) {
    let data = f32s((0..ROWS * WIDTH).map(|i| ((i + seed) % 97) as f32));
    let shape = [ROWS as i64, WIDTH as i64];
    let s = heavy_signature();
    same(&run(model, vec![request(&s, 0, &[(0, &shape, data.clone())])])[0], 0, &shape, data);
}

/// `callers` threads run the model over and over, while `watch` says go on.
fn concurrently(callers: usize, once: impl Fn(usize) + Sync, watch: impl Fn() -> bool) {
    let stop = AtomicBool::new(false);
    let end = Instant::now() + Duration::from_secs(20);
    std::thread::scope(|scope| {
        for caller in 0..callers {
            let (stop, once) = (&stop, &once);
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    once(caller);
                }
            });
        }
        while watch() && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(1));
        }
        stop.store(true, Ordering::Relaxed);
    });
}

fn parked() -> (u32, u64) {
    backend_onnx::bench::parked().expect("a model that shares the pool was loaded")
}

/// Waits until no worker is parked.
fn all_free() {
    let end = Instant::now() + Duration::from_secs(5);
    while parked().0 > 0 {
        assert!(Instant::now() < end, "{:?}", parked());
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn every_worker_is_parked_while_heavy_runs_fill_the_cores_and_free_after() {
    let _alone = ALONE.lock();
    let version = heavy();
    let model = load(&version, heavy_signature(), &ModelConfig::default());
    model.set_heavy(true);
    heavy_run(&*model, 0);
    let (held, before) = parked();
    assert_eq!(held, 0, "a run alone has the whole pool");
    for _ in 0..8 {
        let workers = threads() as u32 - 1;
        concurrently(threads(), |caller| heavy_run(&*model, caller), || parked().0 < workers);
        assert!(parked().1 > before, "nobody was parked");
        all_free();
        heavy_run(&*model, 0);
    }
}

#[test]
fn one_run_at_a_time_parks_nobody() {
    let _alone = ALONE.lock();
    let version = heavy();
    let model = load(&version, heavy_signature(), &ModelConfig::default());
    model.set_heavy(true);
    all_free();
    let before = parked().1;
    (0..12).for_each(|seed| heavy_run(&*model, seed));
    assert_eq!(parked(), (0, before));
}

/// Runs `once` from as many threads as there are cores for a while, and sees nobody parked.
fn never_parks(once: impl Fn(usize) + Sync) {
    all_free();
    let before = parked().1;
    let end = Instant::now() + Duration::from_millis(800);
    concurrently(threads(), once, || Instant::now() < end);
    assert_eq!(parked(), (0, before));
}

#[test]
fn cheap_runs_park_nobody() {
    let _alone = ALONE.lock();
    // Wider than what runs on the calling thread only, so that it shares the pool.
    const WIDE: i32 = 8192;
    let version = Version::new(&addsub(I32, &[D::S("N"), D::N(WIDE.into())]));
    let s = addsub_signature(8, DataType::Int32, &[WIDE.into()]);
    let model = load(&version, s.clone(), &ModelConfig::default());
    let (shape, ramp) = ([1, i64::from(WIDE)], || i32s(0..WIDE));
    never_parks(|_| {
        let r = run(&*model, vec![request(&s, 1, &[(0, &shape, ramp()), (1, &shape, ramp())])]);
        same(&r[0], 0, &shape, i32s((0..WIDE).map(|i| 2 * i)));
    });
}

#[test]
fn runs_in_a_pool_of_their_own_park_nobody_c_19() {
    let _alone = ALONE.lock();
    let shared = heavy();
    let _shared = load(&shared, heavy_signature(), &ModelConfig::default());
    let count = ModelParameter { string_value: "1".into() };
    let config =
        ModelConfig { parameters: [("intra_op_thread_count".to_owned(), count)].into(), ..ModelConfig::default() };
    let version = heavy();
    let model = load(&version, heavy_signature(), &config);
    model.set_heavy(true);
    never_parks(|caller| heavy_run(&*model, caller));
}
