//! Tests streams, pools and locked pages with a mock of `libcuda.so.1` that needs no GPU (tests/mock) and can fail at
//! each call.
//!
//! A process has one driver and one set of pools, so each case runs this program again as a child.

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

/// The mock, built once, and a directory for the memory of its devices.
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

/// Runs an ignored test in a child with two devices. `fail` lists the failing calls, as `FUNCTION:NTH CALL:ERROR`; 0 is
/// every call. Returns the lines that the test passed to `report`, joined by semicolons.
fn child(test: &str, fail: &str, more: &[(&str, &str)]) -> String {
    let mut command = Command::new(std::env::current_exe().expect("its own path"));
    command.args(["--ignored", "--exact", "--nocapture", test]).envs(more.iter().copied());
    command.env("NEREID_LIBCUDA", &mock().library).env("NEREID_MOCK_CUDA_DIR", &mock().memory);
    command.env("NEREID_MOCK_CUDA_FAIL", fail);
    if !more.iter().any(|(name, _)| *name == "NEREID_MOCK_CUDA_DEVICES") {
        command.env("NEREID_MOCK_CUDA_DEVICES", "2");
    }
    let done = command.output().expect("it runs");
    let output = String::from_utf8_lossy(&done.stdout).into_owned();
    let errors = String::from_utf8_lossy(&done.stderr).into_owned();
    assert!(done.status.success(), "{test} with {fail:?} {more:?}: {output}{errors}");
    output.lines().filter_map(|l| l.strip_prefix("result: ")).collect::<Vec<_>>().join("; ")
}

/// Passes a line to the parent process.
fn report(text: impl std::fmt::Display) {
    println!("result: {text}");
}

/// Calls a counter function of the mock.
fn mock_count(function: &str, kind: u8) -> i32 {
    let path = std::env::var_os("NEREID_LIBCUDA").expect("given by the parent");
    #[allow(unsafe_code)]
    // SAFETY: the library is the mock, which the driver opened too; the function takes an integer or ignores it.
    unsafe {
        let library = libloading::Library::new(path).expect("it was opened before");
        library.get::<unsafe extern "C" fn(i32) -> i32>(function.as_bytes()).expect("of the mock")(i32::from(kind))
    }
}

/// Counts of objects that were created and not released: blocks of devices, of the host, locked ranges, streams.
fn live() -> [i32; 4] {
    [b'b', b'h', b'l', b's'].map(|kind| mock_count("mockLive\0", kind))
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
        let at_once = contents(&here) != vec![9; 1000];
        stream.synchronize()?;
        assert_eq!((&contents(&here)[..900], &contents(&here)[900..]), (&numbers[..900], &[9; 100][..]));
        // A copy between devices, then one to the host, in order and in two streams.
        stream.copy(&there, 100, &Data::Region(here.clone()), 0, 900)?;
        let other = Stream::new(1, -1)?;
        stream.synchronize()?;
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
        // More copies than may be pending at a time.
        for i in 0..3000u32 {
            stream.copy(&here, 0, &Bytes::from(i.to_le_bytes().to_vec()).into(), 0, 4)?;
        }
        stream.synchronize()?;
        assert_eq!(contents(&here)[..4], 2999u32.to_le_bytes());
        report(format!("done, {}", if at_once { "at once" } else { "later" }));
        Ok(())
    };
    if let Err(e) = run() {
        report(e.message());
    }
    assert!(pool_uses().iter().all(|pool| pool.used_bytes == 0), "{:?}", pool_uses());
    release_pools();
    report(format!("{:?}", live()));
}

const NOTHING: &str = "[0, 0, 0, 0]";

#[test]
fn m_25_copies_run_in_order_and_keep_their_buffers_until_they_end() {
    assert_eq!(child("copies_are_started_and_waited_for", "", &[]), format!("done, later; {NOTHING}"));
    assert_eq!(
        child("copies_are_started_and_waited_for", "", &[("NEREID_MOCK_CUDA_PEERS", "0")]),
        format!("done, later; {NOTHING}")
    );
}

#[test]
fn m_25_an_error_names_the_failed_call_and_nothing_leaks() {
    let words = "CUDA_ERROR_ILLEGAL_ADDRESS (700): an illegal memory access was encountered";
    for (function, named) in [
        ("cuStreamCreateWithPriority", "cuStreamCreateWithPriority"),
        ("cuMemcpyHtoDAsync_v2", "cuMemcpyHtoDAsync"),
        ("cuMemcpyDtoHAsync_v2", "cuMemcpyDtoHAsync"),
        ("cuMemcpyDtoDAsync_v2", "cuMemcpyDtoDAsync"),
        ("cuMemcpyPeerAsync", "cuMemcpyPeerAsync"),
    ] {
        for nth in [1, 2] {
            let result = child("copies_are_started_and_waited_for", &format!("{function}:{nth}:700"), &[]);
            let failed = format!("{named} failed with {words}; {NOTHING}");
            // Some functions are called once.
            let once = nth == 2 && result == format!("done, later; {NOTHING}");
            assert!(result == failed || once, "{function} {nth}: {result}");
        }
    }
    // After a failed wait the device may still write: the buffers of the copy are never freed, and the server
    // continues.
    let result = child("a_failed_wait_keeps_the_buffers", "cuStreamSynchronize:1:700", &[]);
    assert_eq!(result, format!("cuStreamSynchronize failed with {words}; 512 bytes are kept"));
    {
        let function = "cuStreamDestroy_v2";
        let result = child("copies_are_started_and_waited_for", &format!("{function}:0:1"), &[]);
        assert!(result.starts_with("done, later"), "a failed release is only logged: {result}");
    }
    for function in ["cuDeviceCanAccessPeer", "cuCtxEnablePeerAccess"] {
        let result = child("copies_are_started_and_waited_for", &format!("{function}:0:1"), &[]);
        assert_eq!(result, format!("done, later; {NOTHING}"), "peers only make copies faster");
    }
}

#[test]
#[ignore = "runs in a child of the other tests"]
fn a_failed_wait_keeps_the_buffers() {
    let stream = Stream::new(0, 0).expect("a stream");
    let region = allocate(0, 500).expect("room");
    let pending = stream.download(&region, 0, vec![0; 500]).expect("started");
    drop(region);
    report(pending.wait().expect_err("the mock fails").message());
    drop(stream);
    let kept: usize = pool_uses().iter().map(|pool| pool.used_bytes).sum();
    report(format!("{kept} bytes are kept"));
}

#[test]
#[ignore = "runs in a child of the other tests"]
fn pools_divide_their_blocks() {
    device::set_pool_sizes(PoolSizes { pinned: 4096, devices: vec![(0, 1 << 20), (1, 7), (1, 0), (0, 8192)] });
    assert!(pool_uses().is_empty() && live_blocks() == 0, "no block is allocated before its first use");
    match allocate(0, 8192 - 256) {
        Ok(most) => {
            let Base::Device(memory) = most.base() else { panic!("of a device") };
            assert_eq!((memory.device(), memory.address() % 256, most.len()), (0, 0, 8192 - 256));
            assert!(allocate(0, 257).is_err_and(|e| e.code() == Code::ResourceExhausted));
            report(allocate(0, 257).err().expect("no room").message());
            let rest = allocate(0, 256).expect("exactly");
            assert!(rest.extent().object == most.extent().object && !rest.overlaps(&*most));
            rest.copy_from_region(0, &*most, 1000, 256).expect("inside");
            assert!(most.copy_to(8192 - 256, &mut [0]).is_err() && rest.copy_from(1, &[0; 256]).is_err());
            drop(most);
            allocate(0, 4096).expect("room again");
        }
        Err(e) => report(e.message()),
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
        Err(why) => report(format!("{why:?}")),
    }
    let uses = pool_uses();
    let counts: Vec<_> = uses.iter().map(|p| (p.device, p.bytes_max, p.used_bytes, p.exhausted)).collect();
    report(format!("{counts:?}"));
    release_pools();
    report(format!("{:?}", live()));
    assert!(!is_pinned(&[0; 8]));
}

fn live_blocks() -> i32 {
    mock_count("mockLive\0", b'b') + mock_count("mockLive\0", b'h')
}

#[test]
fn m_27_m_28_pools_are_bounded_allocated_on_first_use_and_released() {
    let full = "the memory pool of device 0 has no room for 257 bytes: 7936 of 8192 bytes are in use; \
                --cuda-memory-pool-byte-size=0:BYTES makes it larger";
    let uses = "[(None, 4096, 0, 1), (Some(0), 8192, 0, 2), (Some(1), 0, 0, 0)]";
    assert_eq!(child("pools_divide_their_blocks", "", &[]), format!("{full}; {uses}; {NOTHING}"));
    let none = "[(None, 4096, 0, 0), (Some(0), 8192, 0, 0), (Some(1), 0, 0, 0)]";
    for function in ["cuMemAlloc_v2", "cuMemHostAlloc", "cuCtxSetCurrent", "cuDevicePrimaryCtxRetain"] {
        let result = child("pools_divide_their_blocks", &format!("{function}:0:2"), &[]);
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
        assert_eq!(result, expected, "{function}");
    }
    let result = child("pools_divide_their_blocks", "cuMemFree_v2:0:700,cuMemFreeHost:0:700", &[]);
    assert!(result.ends_with("[1, 1, 0, 0]"), "a failed release is only logged: {result}");
}

#[test]
#[ignore = "runs in a child of the other tests"]
fn pages_are_locked() {
    device::lock_at_most(10_000);
    let mut memory = vec![0u8; 20_000];
    let start = NonNull::new(memory.as_mut_ptr()).expect("not null");
    #[allow(unsafe_code)]
    // SAFETY: the memory outlives the returned locks.
    let lock = |offset: usize, len: usize| unsafe { Locked::new(start.add(offset), len) };
    let first = lock(0, 8000);
    assert!(lock(8000, 2001).is_none() && lock(8000, 0).is_none(), "more than the limit, and nothing");
    let twice = lock(100, 100);
    report(format!("{} {} {:?} {:?}", first.is_some(), twice.is_some(), device::locked_bytes(), live()));
    drop((first, twice));
    report(format!("{:?} {:?}", device::locked_bytes(), live()));
}

#[test]
fn pages_are_locked_within_a_limit_and_a_failure_is_no_error() {
    let check = |fail: &str, devices: &str, expected: &str| {
        assert_eq!(child("pages_are_locked", fail, &[("NEREID_MOCK_CUDA_DEVICES", devices)]), expected, "{fail}");
    };
    check("", "2", "true false (8000, 10000) [0, 0, 1, 0]; (0, 10000) [0, 0, 0, 0]");
    check("cuMemHostRegister_v2:0:1", "2", &format!("false false (0, 10000) {NOTHING}; (0, 10000) {NOTHING}"));
    check("cuMemHostRegister_v2:0:1", "0", &format!("false false (0, 10000) {NOTHING}; (0, 10000) {NOTHING}"));
    check("cuMemHostUnregister:0:1", "2", "true false (8000, 10000) [0, 0, 1, 0]; (0, 10000) [0, 0, 1, 0]");
}

#[test]
#[ignore = "runs in a child of the other tests"]
fn devices_become_peers() {
    device::allow_peers(std::env::var_os("NO_PEERS").is_none());
    let driver = driver().expect("the mock");
    let alone = (driver.memory(0).map(|m| m.total), mock_count("mockPeers\0", 0));
    let (before, kept) = (driver.memory(1), allocate(1, 100));
    let after = driver.memory(1);
    let taken = before.and_then(|b| after.map(|a| b.free - a.free));
    report(format!("{alone:?} {} {taken:?}", mock_count("mockPeers\0", 0)));
    drop(kept);
}

#[test]
fn m_26_used_devices_are_peers_unless_peers_are_off() {
    let total = [("NEREID_MOCK_CUDA_TOTAL", "1000000000")];
    let run = |more: &[(&str, &str)]| child("devices_become_peers", "", &[&total[..], more].concat());
    assert_eq!(run(&[]), "(Ok(1000000000), 0) 2 Ok(67108864)");
    assert_eq!(run(&[("NO_PEERS", "1")]), "(Ok(1000000000), 0) 0 Ok(67108864)");
    assert_eq!(run(&[("NEREID_MOCK_CUDA_PEERS", "0")]), "(Ok(1000000000), 0) 0 Ok(67108864)");
}
