//! Regions with locked pages, pinned slabs and their fallbacks, with the stand-in of the CUDA driver. Devices belong to
//! a whole process: each case runs in a child, this program again.

#![cfg(target_os = "linux")]
#![allow(missing_docs)]

use memory::{RegionKind, RegionRegistry, SlabPool};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, OnceLock};

/// The stand-in, built once.
fn library() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        let out = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("memory-{}", std::process::id()));
        std::fs::create_dir_all(out.join("memory")).expect("a directory for tests");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../device/tests/mock/libcuda.c");
        let library = out.join("libcuda.so.1");
        let mut cc = Command::new("cc");
        cc.args(["-O1", "-shared", "-fPIC", "-lpthread", "-o"]).arg(&library).arg(source);
        assert!(cc.status().expect("cc is there, as Rust needs it").success(), "the stand-in builds");
        library
    })
}

fn child(test: &str, devices: &str, fail: &str) -> Vec<String> {
    let mut command = Command::new(std::env::current_exe().expect("its own path"));
    command.args(["--ignored", "--exact", "--nocapture", test]).env("NEREID_LIBCUDA", library());
    command.env("NEREID_MOCK_CUDA_DIR", library().with_file_name("memory"));
    command.env("NEREID_MOCK_CUDA_DEVICES", devices).env("NEREID_MOCK_CUDA_FAIL", fail);
    let done = command.output().expect("it runs");
    let said = String::from_utf8_lossy(&done.stdout);
    assert!(done.status.success(), "{devices} {fail:?}: {said}{}", String::from_utf8_lossy(&done.stderr));
    said.lines().filter_map(|line| line.strip_prefix("printed: ")).map(str::to_owned).collect()
}

/// Records warnings for the test.
struct RecordedWarnings;
static WARNINGS: Mutex<Vec<String>> = Mutex::new(Vec::new());

impl log::Log for RecordedWarnings {
    fn enabled(&self, _: &log::Metadata<'_>) -> bool {
        true
    }
    fn log(&self, record: &log::Record<'_>) {
        if record.level() <= log::Level::Warn {
            WARNINGS.lock().expect("not poisoned").push(record.args().to_string());
        }
    }
    fn flush(&self) {}
}

fn record_warnings() {
    log::set_logger(&RecordedWarnings).expect("the only one");
    log::set_max_level(log::LevelFilter::Info);
}

fn print(text: impl std::fmt::Display) {
    println!("printed: {text}");
}

/// Number of locked ranges ('l') or host blocks that the stand-in has.
fn live(what: u8) -> i32 {
    #[allow(unsafe_code)]
    // SAFETY: a function of the stand-in that takes an integer.
    unsafe {
        let path = std::env::var_os("NEREID_LIBCUDA").expect("given by the parent");
        let library = libloading::Library::new(path).expect("it is there");
        library.get::<unsafe extern "C" fn(i32) -> i32>(b"mockLive\0").expect("of the stand-in")(i32::from(what))
    }
}

#[test]
#[ignore = "runs in a child of the other tests"]
fn regions_are_registered() {
    device::lock_at_most(3 * 4096);
    let key = format!("nereid_test_{}_locked", std::process::id());
    let path = format!("/dev/shm/{key}");
    std::fs::File::create(&path).and_then(|mut f| f.write_all(&[5; 4 * 4096])).expect("/dev/shm is writable");
    let registry = RegionRegistry::default();
    for (name, size) in [("a", 2 * 4096), ("b", 2 * 4096), ("c", 4096)] {
        registry.register(name, &key, 0, size).expect("registered, locked or not");
    }
    let window = |name: &str| registry.resolve(name, 8, 8).expect("inside");
    let locked = ["a", "b", "c"].map(|name| window(name).is_page_locked());
    print(format!("{locked:?} {:?} {}", device::locked_bytes().0, live(b'l')));
    assert_eq!(window("a").read_at::<2>(0), Ok([5, 5]));
    let held = window("a");
    registry.unregister_all(RegionKind::System);
    print(format!("{} {}", device::locked_bytes().0, live(b'l')));
    drop(held);
    print(format!("{} {}", device::locked_bytes().0, live(b'l')));
    std::fs::remove_file(path).expect("it is there");
}

#[test]
fn regions_are_page_locked_within_the_limit_until_their_last_window_ends() {
    assert_eq!(child("regions_are_registered", "1", ""), ["[true, false, true] 12288 2", "8192 1", "0 0"]);
    for (devices, fail) in [("0", ""), ("1", "cuMemHostRegister_v2:0:1"), ("1", "cuDevicePrimaryCtxRetain:0:1")] {
        assert_eq!(child("regions_are_registered", devices, fail), ["[false, false, false] 0 0", "0 0", "0 0"]);
    }
    // If the driver fails to unlock pages, the region is unregistered all the same.
    assert_eq!(child("regions_are_registered", "1", "cuMemHostUnregister:0:1").last().map(String::as_str), Some("0 2"));
}

#[test]
#[ignore = "runs in a child of the other tests"]
fn slabs_are_pinned() {
    record_warnings();
    let sizes = device::PoolSizes { pinned: 16384, devices: vec![(0, 8192)] };
    device::set_pool_sizes(sizes);
    let pool = SlabPool::global();
    let mut first = pool.pinned(8000).expect("memory");
    first.window(10..20).fill(7);
    first.truncate(100);
    let is_pinned = first.is_pinned();
    let budget = memory::Budget::new(1 << 20);
    let charge = budget.account().charge(memory::Kind::Body, false, 100).expect("room");
    let bytes = first.freeze_with(charge);
    assert_eq!((bytes.len(), &bytes[10..20], device::is_pinned(&bytes)), (100, &[7; 10][..], is_pinned));
    let more: Vec<_> = (0..3).map(|_| pool.pinned(8000).expect("memory")).collect();
    let pinned = more.iter().filter(|slab| slab.is_pinned()).count();
    let used = |uses: Vec<device::PoolUse>| uses.iter().map(|p| p.used_bytes).sum::<usize>();
    print(format!("{is_pinned} {pinned} {}", used(device::pool_uses())));
    drop(more);
    // The device's pool has room for one.
    let there: Vec<_> = (0..2).map(|_| device::allocate(0, 8000)).collect();
    print(there.iter().map(|made| if made.is_ok() { "device" } else { "none" }).collect::<Vec<_>>().join(", "));
    assert_eq!(budget.counters().used_bytes[0], 100, "a view lives");
    drop((there, bytes));
    assert_eq!((used(device::pool_uses()), budget.counters().used_bytes[0]), (0, 0));
    device::release_pools();
    print(format!("{} {}", live(b'h'), live(b'b')));
    WARNINGS.lock().expect("not poisoned").iter().for_each(print);
}

#[test]
fn m_27_without_pinned_memory_slabs_are_ordinary_with_one_warning() {
    let exhausted = "failed to allocate pinned system memory, falling back to non-pinned system memory";
    let no_pool =
        "failed to allocate pinned system memory: no pinned memory pool, falling back to non-pinned system memory";
    let pool = "the memory pool of device 0 has no room for 8000 bytes: 8192 of 8192 bytes are in use; \
                --cuda-memory-pool-byte-size=0:BYTES makes it larger";
    let printed = child("slabs_are_pinned", "1", "");
    assert_eq!(printed, ["true 1 16384", "device, none", "0 0", exhausted, pool]);
    assert_eq!(child("slabs_are_pinned", "0", ""), ["false 0 0", "none, none", "0 0", no_pool]);
    let printed = child("slabs_are_pinned", "1", "cuMemHostAlloc:0:2,cuMemAlloc_v2:0:2");
    assert_eq!(printed[..3], ["false 0 0", "none, none", "0 0"]);
    let words = "failed with CUDA_ERROR_OUT_OF_MEMORY (2): out of memory";
    assert_eq!(printed[3], format!("there is no pinned memory pool of 16384 bytes: cuMemHostAlloc {words}"));
    assert_eq!(
        printed[4..],
        [no_pool.to_owned(), format!("there is no memory pool of device 0 of 8192 bytes: cuMemAlloc {words}")]
    );
}

#[test]
#[ignore = "runs in a child of the other tests"]
fn bodies_are_pinned() {
    let sizes = device::PoolSizes { pinned: 1 << 20, devices: Vec::new() };
    device::set_pool_sizes(sizes);
    let body = SlabPool::pinned_for_body;
    assert!(body(4096).is_none() && !memory::has_devices(), "nothing is looked for, and nothing is made");
    device::prepare_pinned();
    let most = (1 << 20) / device::BODY_PINNED_SHARE;
    print(format!("{} {}", body(most).is_some(), body(most + 1).is_some()));
    let mut held: Vec<_> = std::iter::from_fn(|| body(most)).collect();
    print(held.len());
    // Staging and outputs can still use the pinned pool.
    print(SlabPool::only_pinned((1 << 20) / device::BODIES_PINNED_SHARE).is_ok());
    let frozen = held.pop().map(memory::SlabMut::freeze);
    assert!(body(most).is_none(), "a body that was read counts until its last view is gone");
    drop(frozen);
    print(body(most).is_some());
    drop(held);
    device::release_pools();
    print(format!("{} {}", body(4096).is_some(), live(b'h')));
}

#[test]
fn m_27_all_bodies_and_each_body_have_limited_parts_of_the_pinned_pool() {
    assert_eq!(child("bodies_are_pinned", "1", ""), ["true false", "4", "true", "true", "false 0"]);
    let none = ["false false", "0", "false", "false", "false 0"];
    assert_eq!(child("bodies_are_pinned", "0", ""), none);
    assert_eq!(child("bodies_are_pinned", "1", "cuMemHostAlloc:0:2"), none);
}
