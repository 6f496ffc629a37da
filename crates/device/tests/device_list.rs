//! Tests the list of devices with a mock of `libcuda.so.1` that needs no GPU (tests/mock).
//!
//! A process opens the driver once, so each case runs this program again as a child. The child runs an ignored test,
//! which prints the list.

#![cfg(target_os = "linux")]
#![allow(missing_docs)]

use device::{Device, devices};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

fn mock() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        let out = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("list-{}", std::process::id()));
        std::fs::create_dir_all(&out).expect("a directory for tests");
        let (source, library) =
            (Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/mock/libcuda.c"), out.join("libcuda.so.1"));
        let mut cc = Command::new("cc");
        cc.args(["-Wall", "-O1", "-shared", "-fPIC", "-lpthread"]).arg(source).arg("-o").arg(&library);
        assert!(cc.status().expect("cc is there, as Rust needs it").success(), "the mock builds");
        library
    })
}

/// Devices that a child process with these environment variables lists.
fn found(variables: &[(&str, &str)]) -> String {
    let mut command = Command::new(std::env::current_exe().expect("its own path"));
    command.args(["--ignored", "--exact", "--nocapture", "print_the_list"]).env_remove("CUDA_VISIBLE_DEVICES");
    command.env("NEREID_LIBCUDA", mock()).env("NEREID_MOCK_CUDA_DEVICES", "2").envs(variables.iter().copied());
    let done = command.output().expect("it runs");
    let output = String::from_utf8_lossy(&done.stdout).into_owned();
    assert!(done.status.success(), "{variables:?}: {output}{}", String::from_utf8_lossy(&done.stderr));
    output.lines().filter_map(|line| line.strip_prefix("result: ")).collect::<Vec<_>>().join("\n")
}

#[test]
#[ignore = "runs in a child of the other tests"]
fn print_the_list() {
    let line = |d: &Device| {
        let uuid = d.uuid.map_or_else(|| "-".into(), |u| u.to_string());
        let pci = d.pci.map_or_else(|| "-".into(), |p| p.to_string());
        let (capability, memory) = (d.compute_capability.unwrap_or_default(), d.memory_bytes.unwrap_or_default() >> 30);
        format!("{} {:?} {uuid} {pci} {capability:?} {memory} {:?}", d.ordinal, d.name, d.peers)
    };
    match devices() {
        Err(why) => println!("result: none: {why}"),
        Ok(list) => list.iter().for_each(|device| println!("result: {}", line(device))),
    }
}

const FIRST: &str = "\"Mock 0\" a0000000-0000-4000-8000-000000000001 0000:17:00.0 (9, 0) 16";
const SECOND: &str = "\"Mock 1\" a1000000-0000-4000-8000-000000000002 0000:27:00.0 (8, 9) 16";
const NONE: &str = "none: cuInit failed with CUDA_ERROR_NO_DEVICE (100): no CUDA-capable device is detected";

#[test]
fn m_22_the_list_describes_every_device() {
    assert_eq!(found(&[]), format!("0 {FIRST} [1]\n1 {SECOND} [0]"));
    assert_eq!(found(&[("NEREID_MOCK_CUDA_PEERS", "0")]), format!("0 {FIRST} []\n1 {SECOND} []"));
}

#[test]
fn the_list_follows_the_order_of_cuda_visible_devices() {
    for (list, expected) in [
        ("1", format!("0 {SECOND} []")),
        ("1,0", format!("0 {SECOND} [1]\n1 {FIRST} [0]")),
        ("0,2,1", format!("0 {FIRST} []")),
        ("1,-1,0", format!("0 {SECOND} []")),
        ("GPU-a1000000-0000-4000-8000-000000000002", format!("0 {SECOND} []")),
        ("GPU-a1,GPU-A0", format!("0 {SECOND} [1]\n1 {FIRST} [0]")),
        ("GPU-a", NONE.into()),
        ("", NONE.into()),
        ("-1", NONE.into()),
        ("MIG-b1", NONE.into()),
    ] {
        let expected = if expected == NONE { format!("{NONE}; CUDA_VISIBLE_DEVICES is '{list}'") } else { expected };
        assert_eq!(found(&[("CUDA_VISIBLE_DEVICES", list)]), expected, "{list:?}");
    }
}

#[test]
fn an_instance_has_its_own_uuid_and_the_address_of_its_device() {
    let instance = |of: u8| format!("\"Mock 1\" b1{of}00000-0000-4000-8000-000000000002 0000:27:00.0 (8, 9) 8");
    let with = |list| found(&[("NEREID_MOCK_CUDA_MIG", "1"), ("CUDA_VISIBLE_DEVICES", list)]);
    assert_eq!(with("MIG-b110"), format!("0 {} []", instance(1)));
    assert_eq!(with("0,MIG-b1000000-0000-4000-8000-000000000002"), format!("0 {FIRST} [1]\n1 {} [0]", instance(0)));
    assert!(with("MIG-b1").starts_with(NONE), "two uuids have this prefix");
}

#[test]
fn m_22_a_property_that_the_driver_does_not_return_is_missing_alone() {
    for (function, with, without) in [
        ("cuDeviceGetName", "\"Mock 0\"", "\"\""),
        ("cuDeviceGetUuid_v2", "a0000000-0000-4000-8000-000000000001", "-"),
        ("cuDeviceGetPCIBusId", "0000:17:00.0", "-"),
        ("cuDeviceGetAttribute", "(9, 0)", "(0, 0)"),
        ("cuDeviceTotalMem_v2", " 16 [", " 0 ["),
        ("cuDeviceCanAccessPeer", "[1]", "[]"),
    ] {
        let first = format!("0 {FIRST} [1]").replace(with, without);
        assert_eq!(
            found(&[("NEREID_MOCK_CUDA_FAIL", &format!("{function}:1:999"))]),
            format!("{first}\n1 {SECOND} [0]"),
            "{function}"
        );
    }
    assert_eq!(
        found(&[("NEREID_MOCK_CUDA_FAIL", "cuDeviceGet:0:101")]),
        "0 \"\" - - (0, 0) 0 []\n1 \"\" - - (0, 0) 0 []"
    );
}
