//! Streams, pools and locked pages against a `libcuda.so.1` without a GPU (tests/mock), with failures at each call.
//!
//! What there is of a driver, and of pools, is of the whole process: each case runs in a child, this program again.

#![cfg(target_os = "linux")]
#![allow(missing_docs)]

use bytes::Bytes;
use device::{Locked, NoRoom, PoolSizes, Stream, allocate, driver, is_pinned, pinned, pool_uses, release_pools};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::ptr::NonNull;
use std::sync::OnceLock;
use tensor::{Base, Code, Data, RegionRef};

struct Mock {
    library: PathBuf,
    memory: PathBuf,
}

/// The mock, built once; and a directory for the memory of this run's devices.
fn mock() -> &'static Mock {
    static BUILT: OnceLock<Mock> = OnceLock::new();
    BUILT.get_or_init(|| {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/mock/libcuda.c");
        let out = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("streams-{}", std::process::id()));
        std::fs::create_dir_all(out.join("memory")).expect("a directory for tests");
        let mock = Mock { library: out.join("libcuda.so.1"), memory: out.join("memory") };
        let mut cc = Command::new("cc");
        cc.args(["-Wall", "-O1", "-shared", "-fPIC", "-lpthread", "-o"]).arg(&mock.library).arg(source);
        assert!(cc.status().expect("cc is there, as Rust needs it").success(), "the mock builds");
        mock
    })
}

/// Runs an ignored test of this program with two devices, and what is to fail in it. What it told.
fn child(test: &str, fail: &str, more: &[(&str, &str)]) -> String {
    let mut command = Command::new(std::env::current_exe().expect("its own path"));
    command.args(["--ignored", "--exact", "--nocapture", test]).envs(more.iter().copied());
    command.env("NEREID_LIBCUDA", &mock().library).env("NEREID_MOCK_CUDA_DIR", &mock().memory);
    command.env("NEREID_MOCK_CUDA_FAIL", fail);
    if !more.iter().any(|(name, _)| *name == "NEREID_MOCK_CUDA_DEVICES") {
        command.env("NEREID_MOCK_CUDA_DEVICES", "2");
    }
    let done = command.output().expect("it runs");
    let said = String::from_utf8_lossy(&done.stdout).into_owned();
    let complaints = String::from_utf8_lossy(&done.stderr).into_owned();
    assert!(done.status.success(), "{test} with {fail:?} {more:?}: {said}{complaints}");
    said.lines().filter_map(|l| l.strip_prefix("told: ")).collect::<Vec<_>>().join("; ")
}

fn tell(text: impl std::fmt::Display) {
    println!("told: {text}");
}

/// A number that the mock keeps.
fn asked(function: &str, what: u8) -> i32 {
    let path = std::env::var_os("NEREID_LIBCUDA").expect("given by the parent");
    #[allow(unsafe_code)]
    // SAFETY: the mock, which the driver opened too, and a function of it that takes an integer or ignores it.
    unsafe {
        let library = libloading::Library::new(path).expect("it was opened before");
        library.get::<unsafe extern "C" fn(i32) -> i32>(function.as_bytes()).expect("of the mock")(i32::from(what))
    }
}

/// Counts of objects that were created and not released: blocks of devices, of the host, locked ranges, streams,
/// events.
fn live() -> [i32; 5] {
    [b'b', b'h', b'l', b's', b'e'].map(|what| asked("mockLive\0", what))
}

fn contents(region: &RegionRef) -> Vec<u8> {
    Data::Region(region.clone()).to_vec().expect("the device answers")
}

#[test]
#[ignore = "runs in a child of the other tests"]
fn copies_are_started_and_waited_for() {
    let run = || -> tensor::Result<()> {
        let stream = Stream::new(0, 0)?;
        let (here, there) = (allocate(0, 1000)?, allocate(1, 1000)?);
        let numbers: Vec<u8> = (0..1000u32).map(|i| i as u8).collect();
        here.fill(0, 1000, 9)?;
        stream.copy(&here, 0, &Bytes::from(numbers.clone()).into(), 0, 900)?;
        let event = stream.record()?;
        let at_once = contents(&here) != vec![9; 1000];
        event.wait()?;
        assert!(event.is_over()?);
        assert_eq!((&contents(&here)[..900], &contents(&here)[900..]), (&numbers[..900], &[9; 100][..]));
        // From device to device, and from there to the host, one behind the other and by two streams.
        stream.copy(&there, 100, &Data::Region(here.clone()), 0, 900)?;
        let other = Stream::new(1, -1)?;
        other.after(&stream.record()?)?;
        let pending = other.download(&there, 100, vec![0; 900])?;
        assert_eq!(pending.wait()?, numbers[..900]);
        stream.copy(&here, 500, &Data::Region(here.clone()), 0, 100)?;
        stream.synchronize()?;
        assert_eq!(contents(&here)[500..600], numbers[..100]);
        // Buffers of a copy live until the copy ends; dropping the last handle waits for it.
        let (gone, buffer) =
            (allocate(0, 5000)?, pinned(5000).map_err(|_| tensor::Error::unavailable("no pinned pool"))?);
        stream.copy(&gone, 0, &Bytes::from(vec![7; 5000]).into(), 0, 5000)?;
        drop(stream.download(&gone, 0, buffer)?);
        drop(gone);
        for (offset, len) in [(1000, 1), (0, 1001), (usize::MAX, 2)] {
            let bytes = Data::from(Bytes::from(vec![0; 2000]));
            assert!(stream.copy(&here, offset, &bytes, 0, len).is_err(), "outside");
            assert!(stream.copy(&here, 0, &Data::Region(there.clone()), offset, len).is_err());
            assert!(stream.download(&here, offset, vec![0; len]).is_err());
        }
        assert!(stream.copy(&here, 0, &Bytes::from(vec![0; 3]).into(), 1, 3).is_err());
        // More than may wait at a time.
        for i in 0..3000u32 {
            stream.copy(&here, 0, &Bytes::from(i.to_le_bytes().to_vec()).into(), 0, 4)?;
        }
        stream.synchronize()?;
        assert_eq!(contents(&here)[..4], 2999u32.to_le_bytes());
        tell(format!("done, {}", if at_once { "at once" } else { "later" }));
        Ok(())
    };
    if let Err(e) = run() {
        tell(e.message());
    }
    assert!(pool_uses().iter().all(|pool| pool.used_bytes == 0), "{:?}", pool_uses());
    release_pools();
    tell(format!("{:?}", live()));
}

const NOTHING: &str = "[0, 0, 0, 0, 0]";

#[test]
fn m_25_copies_are_made_in_order_and_kept_until_they_are() {
    assert_eq!(child("copies_are_started_and_waited_for", "", &[]), format!("done, later; {NOTHING}"));
    assert_eq!(
        child("copies_are_started_and_waited_for", "", &[("NEREID_MOCK_CUDA_PEERS", "0")]),
        format!("done, later; {NOTHING}")
    );
}

#[test]
fn m_25_each_call_that_fails_is_named_and_nothing_leaks() {
    let words = "CUDA_ERROR_ILLEGAL_ADDRESS (700): an illegal memory access was encountered";
    for (function, named) in [
        ("cuStreamCreateWithPriority", "cuStreamCreateWithPriority"),
        ("cuMemcpyHtoDAsync_v2", "cuMemcpyHtoDAsync"),
        ("cuMemcpyDtoHAsync_v2", "cuMemcpyDtoHAsync"),
        ("cuMemcpyDtoDAsync_v2", "cuMemcpyDtoDAsync"),
        ("cuMemcpyPeerAsync", "cuMemcpyPeerAsync"),
        ("cuEventCreate", "cuEventCreate"),
        ("cuEventRecord", "cuEventRecord"),
        ("cuEventSynchronize", "cuEventSynchronize"),
        ("cuEventQuery", "cuEventQuery"),
        ("cuStreamWaitEvent", "cuStreamWaitEvent"),
    ] {
        for nth in [1, 2] {
            let told = child("copies_are_started_and_waited_for", &format!("{function}:{nth}:700"), &[]);
            let failed = format!("{named} failed with {words}; {NOTHING}");
            // A second call of some there is not.
            let rarely = nth == 2 && told == format!("done, later; {NOTHING}");
            assert!(told == failed || rarely, "{function} {nth}: {told}");
        }
    }
    // After a failed wait the device may still write: the buffers of the copy are never freed, and the server
    // continues.
    let told = child("a_wait_that_fails_keeps_what_the_device_may_touch", "cuStreamSynchronize:1:700", &[]);
    assert_eq!(told, format!("cuStreamSynchronize failed with {words}; 512 bytes are kept"));
    for function in ["cuStreamDestroy_v2", "cuEventDestroy_v2"] {
        let told = child("copies_are_started_and_waited_for", &format!("{function}:0:1"), &[]);
        assert!(told.starts_with("done, later"), "who gives back tells only the log: {told}");
    }
    for function in ["cuDeviceCanAccessPeer", "cuCtxEnablePeerAccess"] {
        let told = child("copies_are_started_and_waited_for", &format!("{function}:0:1"), &[]);
        assert_eq!(told, format!("done, later; {NOTHING}"), "peers only make copies faster");
    }
}

#[test]
#[ignore = "runs in a child of the other tests"]
fn a_wait_that_fails_keeps_what_the_device_may_touch() {
    let stream = Stream::new(0, 0).expect("a stream");
    let region = allocate(0, 500).expect("room");
    let pending = stream.download(&region, 0, vec![0; 500]).expect("started");
    drop(region);
    tell(pending.wait().expect_err("the mock fails").message());
    drop(stream);
    let kept: usize = pool_uses().iter().map(|pool| pool.used_bytes).sum();
    tell(format!("{kept} bytes are kept"));
}

#[test]
#[ignore = "runs in a child of the other tests"]
fn pools_divide_their_blocks() {
    device::set_pool_sizes(PoolSizes { pinned: 4096, devices: vec![(0, 1 << 20), (1, 7), (1, 0), (0, 8192)] });
    assert!(pool_uses().is_empty() && live_blocks() == 0, "nothing is made before it is needed");
    match allocate(0, 8192 - 256) {
        Ok(most) => {
            let Base::Device(memory) = most.base() else { panic!("of a device") };
            assert_eq!((memory.device(), memory.address() % 256, most.len()), (0, 0, 8192 - 256));
            assert!(allocate(0, 257).is_err_and(|e| e.code() == Code::ResourceExhausted));
            tell(allocate(0, 257).err().expect("no room").message());
            let rest = allocate(0, 256).expect("exactly");
            assert!(rest.extent().object == most.extent().object && !rest.overlaps(&*most));
            rest.copy_from_region(0, &*most, 1000, 256).expect("inside");
            assert!(most.copy_to(8192 - 256, &mut [0]).is_err() && rest.copy_from(1, &[0; 256]).is_err());
            drop(most);
            allocate(0, 4096).expect("room again");
        }
        Err(e) => tell(e.message()),
    }
    assert_eq!(allocate(1, 1).err().map(|e| e.code()), Some(Code::Unavailable), "0 is no pool");
    assert_eq!(allocate(2, 1).err().map(|e| e.code()), Some(Code::Unavailable));
    match pinned(1000) {
        Ok(mut piece) => {
            piece.fill(3);
            let bytes = piece.freeze();
            let row = bytes.slice(10..20);
            assert!(is_pinned(&row) && !is_pinned(&[]) && !is_pinned(&[0; 10]));
            drop(bytes);
            assert_eq!(pool_uses()[0].used_bytes, 1024, "a view lives");
            assert_eq!(pinned(3073).err(), Some(NoRoom::Exhausted));
            assert_eq!(&row[..], [3; 10]);
        }
        Err(why) => tell(format!("{why:?}")),
    }
    let uses = pool_uses();
    tell(format!("{:?}", uses.iter().map(|p| (p.device, p.bytes_max, p.used_bytes, p.exhausted)).collect::<Vec<_>>()));
    release_pools();
    tell(format!("{:?}", live()));
    assert!(!is_pinned(&[0; 8]));
}

fn live_blocks() -> i32 {
    asked("mockLive\0", b'b') + asked("mockLive\0", b'h')
}

#[test]
fn m_27_m_28_pools_are_bounded_come_back_and_are_made_when_they_are_needed() {
    let full = "the memory pool of device 0 has no room for 257 bytes: 7936 of 8192 bytes are in use; \
                --cuda-memory-pool-byte-size=0:BYTES makes it larger";
    let uses = "[(None, 4096, 0, 1), (Some(0), 8192, 0, 2), (Some(1), 0, 0, 0)]";
    assert_eq!(child("pools_divide_their_blocks", "", &[]), format!("{full}; {uses}; {NOTHING}"));
    let none = "[(None, 4096, 0, 0), (Some(0), 8192, 0, 0), (Some(1), 0, 0, 0)]";
    for function in ["cuMemAlloc_v2", "cuMemHostAlloc", "cuCtxSetCurrent", "cuDevicePrimaryCtxRetain"] {
        let told = child("pools_divide_their_blocks", &format!("{function}:0:2"), &[]);
        let no_device = "there is no memory pool of device 0";
        let expected = match function {
            "cuMemAlloc_v2" => {
                format!("{no_device}; [(None, 4096, 0, 1), (Some(0), 8192, 0, 0), (Some(1), 0, 0, 0)]; {NOTHING}")
            }
            "cuMemHostAlloc" => {
                format!("{full}; NoPool; [(None, 4096, 0, 0), (Some(0), 8192, 0, 2), (Some(1), 0, 0, 0)]; {NOTHING}")
            }
            _ => format!("{no_device}; NoPool; {none}; {NOTHING}"),
        };
        assert_eq!(told, expected, "{function}");
    }
    let told = child("pools_divide_their_blocks", "cuMemFree_v2:0:700,cuMemFreeHost:0:700", &[]);
    assert!(told.ends_with("[1, 1, 0, 0, 0]"), "the log is told, nothing else: {told}");
}

#[test]
#[ignore = "runs in a child of the other tests"]
fn pages_are_locked() {
    device::lock_at_most(10_000);
    let mut memory = vec![0u8; 20_000];
    let start = NonNull::new(memory.as_mut_ptr()).expect("not null");
    #[allow(unsafe_code)]
    // SAFETY: the memory outlives what is returned.
    let lock = |offset: usize, len: usize| unsafe { Locked::new(start.add(offset), len) };
    let first = lock(0, 8000);
    assert!(lock(8000, 2001).is_none() && lock(8000, 0).is_none(), "more than the limit, and nothing");
    let twice = lock(100, 100);
    tell(format!("{} {} {:?} {:?}", first.is_some(), twice.is_some(), device::locked_bytes(), live()));
    drop((first, twice));
    tell(format!("{:?} {:?}", device::locked_bytes(), live()));
}

#[test]
fn pages_are_locked_within_a_limit_and_a_refusal_is_no_error() {
    let check = |fail: &str, devices: &str, told: &str| {
        assert_eq!(child("pages_are_locked", fail, &[("NEREID_MOCK_CUDA_DEVICES", devices)]), told, "{fail}");
    };
    check("", "2", "true false (8000, 10000) [0, 0, 1, 0, 0]; (0, 10000) [0, 0, 0, 0, 0]");
    check("cuMemHostRegister_v2:0:1", "2", &format!("false false (0, 10000) {NOTHING}; (0, 10000) {NOTHING}"));
    check("cuMemHostRegister_v2:0:1", "0", &format!("false false (0, 10000) {NOTHING}; (0, 10000) {NOTHING}"));
    check("cuMemHostUnregister:0:1", "2", "true false (8000, 10000) [0, 0, 1, 0, 0]; (0, 10000) [0, 0, 1, 0, 0]");
}

#[test]
#[ignore = "runs in a child of the other tests"]
fn devices_become_peers() {
    device::allow_peers(std::env::var_os("NO_PEERS").is_none());
    let driver = driver().expect("the mock");
    let alone = (driver.memory(0).map(|m| m.total), asked("mockPeers\0", 0));
    let (before, kept) = (driver.memory(1), allocate(1, 100));
    let after = driver.memory(1);
    let taken = before.and_then(|b| after.map(|a| b.free - a.free));
    tell(format!("{alone:?} {} {taken:?}", asked("mockPeers\0", 0)));
    drop(kept);
}

#[test]
fn m_26_devices_that_are_used_reach_each_other_unless_that_is_off() {
    let total = [("NEREID_MOCK_CUDA_TOTAL", "1000000000")];
    let run = |more: &[(&str, &str)]| child("devices_become_peers", "", &[&total[..], more].concat());
    assert_eq!(run(&[]), "(Ok(1000000000), 0) 2 Ok(67108864)");
    assert_eq!(run(&[("NO_PEERS", "1")]), "(Ok(1000000000), 0) 0 Ok(67108864)");
    assert_eq!(run(&[("NEREID_MOCK_CUDA_PEERS", "0")]), "(Ok(1000000000), 0) 0 Ok(67108864)");
}
