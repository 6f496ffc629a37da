//! Tests the driver and shared memory with a mock of `libcuda.so.1` that needs no GPU (tests/mock), and with a client
//! in another process.
//!
//! A process opens the driver once, so each case runs one of the ignored tests of this program in a child.

#![cfg(target_os = "linux")]
#![allow(missing_docs)]

use device::{Driver, HANDLE_BYTES, Handle, Imported, OpenError, driver, failure, suspect};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::OnceLock;

/// The mock and the client, built once, and a directory for the memory of the devices.
struct Mock {
    library: PathBuf,
    exporter: PathBuf,
    memory: PathBuf,
}

fn mock() -> &'static Mock {
    static BUILT: OnceLock<Mock> = OnceLock::new();
    BUILT.get_or_init(|| {
        let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/mock");
        let out = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("cuda-{}", std::process::id()));
        std::fs::create_dir_all(out.join("memory")).expect("a directory for tests");
        let built =
            Mock { library: out.join("libcuda.so.1"), exporter: out.join("exporter"), memory: out.join("memory") };
        let cc = |arguments: &[&str], source: &str, to: &Path| {
            let mut command = Command::new("cc");
            command.args(["-Wall", "-O1"]).arg(sources.join(source)).args(arguments).arg("-o").arg(to);
            assert!(command.status().expect("cc is there, as Rust needs it").success(), "{source} builds");
        };
        cc(&["-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", "-lpthread"], "libcuda.c", &built.library);
        let library = built.library.to_string_lossy();
        cc(&[&library, "-Wl,-rpath,$ORIGIN"], "exporter.c", &built.exporter);
        built
    })
}

/// A child process that owns memory of a device (exporter.c).
struct Exporter {
    child: Child,
    output: BufReader<ChildStdout>,
    handle: String,
}

impl Exporter {
    fn new(size: usize, device: u32) -> Self {
        let mut command = Command::new(&mock().exporter);
        command.args([size.to_string(), device.to_string()]).env("NEREID_MOCK_CUDA_DIR", &mock().memory);
        command.env("NEREID_MOCK_CUDA_DEVICES", "2").stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("the exporter starts");
        let mut output = BufReader::new(child.stdout.take().expect("piped"));
        let mut handle = String::new();
        output.read_line(&mut handle).expect("its handle");
        assert_eq!(handle.trim().len(), 2 * HANDLE_BYTES, "the exporter made its block");
        Self { child, output, handle: handle.trim().to_owned() }
    }

    /// Sum of the bytes of its memory.
    fn sum(&mut self) -> u64 {
        let stdin = self.child.stdin.as_mut().expect("piped");
        stdin.write_all(b"sum\n").and_then(|()| stdin.flush()).expect("it reads");
        let mut line = String::new();
        self.output.read_line(&mut line).expect("it answers");
        line.trim().parse().expect("a number")
    }
}

impl Drop for Exporter {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

/// Runs an ignored test in a child with the mock; `fail` lists the failing calls. Returns the lines that the test
/// passed to `report`, joined by semicolons.
fn child(test: &str, handle: &str, devices: &str, fail: &str) -> String {
    let mut command = Command::new(std::env::current_exe().expect("its own path"));
    command.args(["--ignored", "--exact", "--nocapture", test]);
    command.env("NEREID_LIBCUDA", &mock().library).env("NEREID_MOCK_CUDA_DIR", &mock().memory);
    command.env("NEREID_MOCK_CUDA_DEVICES", devices).env("NEREID_MOCK_CUDA_FAIL", fail).env("HANDLE", handle);
    let done = command.output().expect("it runs");
    let output = String::from_utf8_lossy(&done.stdout).into_owned();
    let errors = String::from_utf8_lossy(&done.stderr).into_owned();
    assert!(done.status.success(), "{test} with {fail:?}: {output}{errors}");
    output.lines().filter_map(|l| l.strip_prefix("result: ")).collect::<Vec<_>>().join("; ")
}

/// Passes a line to the parent process.
fn report(text: impl std::fmt::Display) {
    println!("result: {text}");
}

fn given_handle() -> Handle {
    let text = std::env::var("HANDLE").expect("given by the parent");
    Handle(std::array::from_fn(|i| u8::from_str_radix(&text[2 * i..2 * i + 2], 16).expect("hexadecimal digits")))
}

/// Number of blocks of other processes that the mock maps in this one.
fn imported() -> i32 {
    let path = std::env::var_os("NEREID_LIBCUDA").expect("given by the parent");
    #[allow(unsafe_code)]
    // SAFETY: the library is the mock, which the driver opened too; the function takes no arguments.
    unsafe {
        let library = libloading::Library::new(path).expect("it was opened before");
        library.get::<unsafe extern "C" fn() -> i32>(b"mockImported\0").expect("of the mock")()
    }
}

#[test]
#[ignore = "runs in a child of the other tests"]
fn use_the_handle() {
    match Imported::open(1, given_handle()) {
        Err(OpenError::NoDevice(why)) => report(format!("no device: {why}")),
        Err(OpenError::Failed(e) | OpenError::Lost(e)) => report(e.message()),
        Ok(memory) => {
            let Ok(again) = Imported::open(1, given_handle()) else { panic!("opened a moment ago") };
            assert!(std::ptr::eq(&raw const *memory, &raw const *again), "one handle, opened once");
            assert_eq!((memory.device(), imported()), (1, 1));
            report(format!("{} bytes", memory.len()));
            let mut bytes = vec![9; 200];
            report(memory.read(100, &mut bytes).map_or_else(|e| e.message().to_owned(), |()| format!("{bytes:?}")));
            report(memory.write(0, &[1; 64]).map_or_else(|e| e.message().to_owned(), |()| "written".into()));
            for (offset, len) in [(memory.len(), 1), (0, memory.len() + 1), (usize::MAX, 2)] {
                assert!(
                    memory.read(offset, &mut vec![0; len]).is_err() && memory.write(offset, &vec![0; len]).is_err()
                );
            }
            drop(again);
            assert_eq!(imported(), 1, "one owner is left");
        }
    }
    if std::env::var("NEREID_MOCK_CUDA_FAIL")
        .is_ok_and(|f| !f.starts_with("cuIpcClose") && !f.starts_with("cuCtxSetCurrent:0"))
    {
        assert_eq!(if driver().is_ok() { imported() } else { 0 }, 0, "everything was given back");
    }
}

#[test]
fn m_23_memory_of_another_process_is_read_and_written() {
    let mut client = Exporter::new(1000, 1);
    let before = client.sum();
    let result = child("use_the_handle", &client.handle, "2", "");
    let expected: Vec<u8> = (100..300u32).map(|i| i as u8).collect();
    assert_eq!(result, format!("1000 bytes; {expected:?}; written"));
    let written: u64 = (0..64).sum();
    assert_eq!(client.sum(), before - written + 64, "the client sees what was written");
}

#[test]
fn m_22_a_failed_call_is_an_error_with_the_drivers_text_and_leaks_nothing() {
    let client = Exporter::new(1000, 1);
    let run = |fail: &str| child("use_the_handle", &client.handle, "2", fail);
    for function in ["cuInit", "cuDriverGetVersion", "cuDeviceGetCount"] {
        let words = "CUDA_ERROR_NO_DEVICE (100): no CUDA-capable device is detected";
        assert_eq!(run(&format!("{function}:1:100")), format!("no device: {function} failed with {words}"));
    }
    for (function, named) in [
        ("cuDeviceGet", "cuDeviceGet"),
        ("cuDevicePrimaryCtxRetain", "cuDevicePrimaryCtxRetain"),
        ("cuCtxSetCurrent", "cuCtxSetCurrent"),
        ("cuIpcOpenMemHandle_v2", "cuIpcOpenMemHandle"),
        ("cuMemGetAddressRange_v2", "cuMemGetAddressRange"),
    ] {
        let words = "CUDA_ERROR_INVALID_HANDLE (400): invalid resource handle";
        assert_eq!(run(&format!("{function}:1:400")), format!("{named} failed with {words}"));
    }
    // Without memory only this copy fails; with a lost context everything on the device fails.
    let short = "CUDA_ERROR_OUT_OF_MEMORY (2): out of memory";
    assert_eq!(run("cuMemcpyDtoH_v2:1:2"), format!("1000 bytes; cuMemcpyDtoH failed with {short}; written"));
    let words = "CUDA_ERROR_ILLEGAL_ADDRESS (700): an illegal memory access was encountered";
    let result = run("cuMemcpyDtoH_v2:1:700");
    let gone = "it cannot be used until the server is started again";
    assert_eq!(
        result,
        format!("1000 bytes; cuMemcpyDtoH failed with {words}; GPU 1 failed: cuMemcpyDtoH failed with {words}; {gone}")
    );
    for (function, named) in [("cuMemcpyHtoD_v2", "cuMemcpyHtoD"), ("cuCtxSynchronize", "cuCtxSynchronize")] {
        let result = run(&format!("{function}:1:700"));
        assert!(result.ends_with(&format!("; {named} failed with {words}")), "{result}");
    }
    assert!(run("cuIpcCloseMemHandle:1:4").ends_with("written"), "a failed close is only logged");
    assert_eq!(run("cuMemcpyDtoH_v2:1:12345").split("; ").nth(1), Some("cuMemcpyDtoH failed with error 12345"));
}

#[test]
fn m_24_invalid_handles_are_rejected() {
    let client = Exporter::new(64, 0);
    let invalid = "cuIpcOpenMemHandle failed with CUDA_ERROR_INVALID_HANDLE (400): invalid resource handle";
    assert_eq!(child("use_the_handle", &client.handle, "2", ""), invalid, "of another device");
    assert_eq!(child("use_the_handle", &"00".repeat(HANDLE_BYTES), "2", ""), invalid);
    assert_eq!(child("use_the_handle", &client.handle, "1", ""), "there is no device 1, there are 1");
    let none = child("use_the_handle", &client.handle, "0", "");
    assert!(none.starts_with("no device: cuInit failed with CUDA_ERROR_NO_DEVICE (100)"), "{none}");
}

/// Collects the handles that are closed.
#[derive(Default)]
struct ClosedHandles(std::sync::Mutex<Vec<(u32, Handle)>>);

impl device::Closing for ClosedHandles {
    fn closing(&self, device: u32, handle: &Handle) {
        self.0.lock().expect("not poisoned").push((device, *handle));
    }
}

#[test]
#[ignore = "runs in a child of the other tests"]
fn lend_a_piece() {
    device::set_pool_sizes(device::PoolSizes { pinned: 0, devices: vec![(1, 1 << 20)] });
    let closed = std::sync::Arc::new(ClosedHandles::default());
    let weak = std::sync::Arc::downgrade(&closed);
    device::watch_closing(weak);
    let (first, second) = (device::allocate(1, 1000).expect("room"), device::allocate(1, 1000).expect("room"));
    second.copy_from(0, &[7; 1000]).expect("inside");
    let (tensor::Base::Device(before), tensor::Base::Device(memory)) = (first.base(), second.base()) else {
        panic!("of a device")
    };
    let Some(exported) = memory.exported() else {
        report("none");
        return;
    };
    assert_eq!(before.exported().map(|e| e.handle), Some(exported.handle), "one handle for the block");
    assert_eq!((before.exported().map(|e| e.offset), exported.offset), (Some(0), 1024));
    let hex: String = exported.handle.iter().map(|b| format!("{b:02x}")).collect();
    let mut command = Command::new(std::env::current_exe().expect("its own path"));
    command.args(["--ignored", "--exact", "--nocapture", "read_a_piece"]);
    let done = command.env("HANDLE", format!("{hex}{}", exported.offset)).output().expect("it runs");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    assert_eq!(second.read_at::<3>(8), Ok([7, 8, 7]), "it wrote there");
    drop((first, second));
    device::release_pools();
    let closed = closed.0.lock().expect("not poisoned").clone();
    report(closed == [(1, Handle(exported.handle))]);
}

#[test]
#[ignore = "runs in a child of a child"]
fn read_a_piece() {
    let text = std::env::var("HANDLE").expect("given by the parent");
    let offset: usize = text[2 * HANDLE_BYTES..].parse().expect("a number");
    let Ok(memory) = Imported::open(1, given_handle()) else { panic!("it is there") };
    let mut bytes = vec![0; 1000];
    memory.read(offset, &mut bytes).expect("inside");
    assert!(bytes.iter().all(|&b| b == 7));
    memory.write(offset + 9, &[8]).expect("inside");
}

#[test]
fn b_pyr_14_another_process_opens_a_piece_of_a_pool_and_learns_when_it_is_freed() {
    assert_eq!(child("lend_a_piece", "", "2", ""), "true");
    // If the driver makes no handles, contents are copied through the host.
    assert_eq!(child("lend_a_piece", "", "2", "cuIpcGetMemHandle:0:801"), "none");
}

#[test]
fn m_22_without_the_library_there_is_no_gpu_and_the_reason_names_it() {
    let missing = Driver::open(&["/nonexistent/libcuda.so.1".into()]).err().expect("there is none");
    assert!(missing.0.contains("/nonexistent/libcuda.so.1"), "{missing}");
    // The error names the first function that another library lacks; none is called.
    let other = Driver::open(&["libc.so.6".into()]).err().expect("libc is no driver");
    assert_eq!(other.0, "the CUDA driver has no cuInit");
}

#[test]
#[ignore = "runs in a child of the other tests"]
fn lose_the_device() {
    let (send, failures) = std::sync::mpsc::channel();
    let sender = send.clone();
    let _first = failure::on_failure(move |device, why| drop(sender.send((device, why.to_owned()))));
    let gone = send.clone();
    drop(failure::on_failure(move |device, why| drop(gone.send((device, format!("dropped: {why}"))))));
    let Ok(memory) = Imported::open(1, given_handle()) else { panic!("it is there") };
    assert_eq!((failure::failures(), failure::failed(1)), (0, None));
    assert!(memory.read(0, &mut [0]).is_err());
    assert!(memory.read(0, &mut [0]).is_err_and(|e| e.code() == tensor::Code::Unavailable));
    failure::report(1, "a second reason");
    let (device, why) = failures.recv_timeout(std::time::Duration::from_secs(60)).expect("reported");
    assert!(
        failure::check(0).is_ok()
            && Imported::open(0, given_handle()).is_err_and(|e| matches!(e, OpenError::Failed(_)))
    );
    assert!(Imported::open(1, given_handle()).is_err_and(|e| matches!(e, OpenError::Lost(_))), "also what is open");
    let _late = failure::on_failure(move |device, why| drop(send.send((device, format!("late: {why}")))));
    report(format!("{device} {why}; {:?}; {} failed", failures.recv(), failure::failures()));
}

#[test]
fn m_22_a_lost_context_is_permanent_and_each_observer_is_notified_once() {
    let client = Exporter::new(1000, 1);
    let why = "cuMemcpyDtoH failed with error 719";
    let result = child("lose_the_device", &client.handle, "2", "cuMemcpyDtoH_v2:1:719");
    assert_eq!(result, format!("1 {why}; Ok((1, \"late: {why}\")); 1 failed"));
}

#[test]
#[ignore = "runs in a child of the other tests"]
fn suspect_the_device() {
    assert!(!suspect(0, "a library says 700"), "the driver reports no failure, the first time");
    report(format!("{}", suspect(1, "a library says 700")));
    report(failure::failed(1).map_or_else(String::new, |why| why.to_string()));
    report(format!("{:?} {}", failure::failed(0), suspect(1, "once more")));
}

#[test]
fn m_22_a_suspected_device_is_lost_only_if_the_driver_confirms_it() {
    let result = child("suspect_the_device", "", "2", "cuCtxSynchronize:2:719");
    assert_eq!(result, "true; a library says 700 (cuCtxSynchronize failed with error 719); None true");
    // A temporary error does not make a device lost.
    assert_eq!(child("suspect_the_device", "", "2", "cuCtxSynchronize:2:2"), "false; ; None false");
    assert_eq!(child("suspect_the_device", "", "2", ""), "false; ; None false");
}
