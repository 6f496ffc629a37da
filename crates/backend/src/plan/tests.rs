//! The tables of memory.md 3.2 to 3.5, and plans executed over vectors.

use super::*;
use MemoryKind::{Device, Pageable, Pinned};
use proptest::prelude::*;
use std::fmt;

const ROOM: usize = 1 << 20;

impl CopyPlan {
    /// Bytes that the plan writes to targets.
    fn bytes(&self) -> usize {
        let written = self.steps.iter().map(|step| match step {
            CopyStep::Copy { to: Position { end: CopyEnd::Target(_), .. }, len, .. } => *len,
            _ => 0,
        });
        written.sum()
    }

    fn devices(&self) -> usize {
        self.steps.iter().filter(|step| matches!(step, CopyStep::Synchronize(_))).count()
    }

    /// The highest number of times that a byte is copied, by the processor or a device (memory.md 3.5).
    fn copies(&self) -> u32 {
        if self.staging.is_empty() { u32::from(!self.steps.is_empty()) } else { 2 }
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, number) = match self.end {
            CopyEnd::Source(n) => ("source", n),
            CopyEnd::Target(n) => ("target", n),
            CopyEnd::Staging(n) => ("staging", n),
        };
        write!(f, "{name} {number}+{}", self.offset)
    }
}

impl fmt::Display for CopyKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Memcpy => f.write_str("memcpy"),
            Self::Upload(device) => write!(f, "upload to device {device}"),
            Self::Download(device) => write!(f, "download from device {device}"),
            Self::Within(device) => write!(f, "copy on device {device}"),
            Self::Peer(from, to) => write!(f, "peer copy from device {from} to {to}"),
        }
    }
}

impl fmt::Display for CopyStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Copy { how, from, to, len } => write!(f, "{how}: {len} bytes, {from} -> {to}"),
            Self::Synchronize(device) => write!(f, "synchronize device {device}"),
        }
    }
}

/// One line per step, and a line with the sum.
impl fmt::Display for CopyPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for step in &self.steps {
            writeln!(f, "{step}")?;
        }
        write!(f, "{} bytes, copies: {}", self.bytes(), self.copies())
    }
}

fn alone(memory: MemoryKind, len: usize) -> (Endpoint, usize) {
    (Endpoint::alone(memory), len)
}

/// Device memory at an address.
fn at(device: u32, start: u64, len: usize) -> (Endpoint, usize) {
    (Endpoint { memory: Device(device), extent: Some(Extent { object: (u64::from(device), 7), start }) }, len)
}

fn lines(plan: &CopyPlan) -> Vec<String> {
    plan.to_string().lines().map(str::to_owned).collect()
}

#[test]
fn m_29_staging_and_the_number_of_copies_are_those_of_table_3_2() {
    let check = |from, to, copies, steps: &[&str]| {
        let plan = CopyPlan::whole(Endpoint::alone(from), to, 8, ROOM);
        let mut expected: Vec<String> = steps.iter().map(|&s| s.to_owned()).collect();
        expected.push(format!("8 bytes, copies: {copies}"));
        assert_eq!(lines(&plan), expected, "{from:?} to {to:?}");
    };
    let memcpy = ["memcpy: 8 bytes, source 0+0 -> target 0+0"];
    for (from, to) in [(Pageable, Pageable), (Pageable, Pinned), (Pinned, Pageable), (Pinned, Pinned)] {
        check(from, to, 1, &memcpy);
    }
    let (into, upload) =
        ("memcpy: 8 bytes, source 0+0 -> staging 0+0", "upload to device 1: 8 bytes, staging 0+0 -> target 0+0");
    check(Pageable, Device(1), 2, &[into, upload, "synchronize device 1"]);
    check(Pinned, Device(1), 1, &["upload to device 1: 8 bytes, source 0+0 -> target 0+0", "synchronize device 1"]);
    let download = "download from device 0: 8 bytes, source 0+0 -> staging 0+0";
    let out = "memcpy: 8 bytes, staging 0+0 -> target 0+0";
    check(Device(0), Pageable, 2, &[download, "synchronize device 0", out]);
    check(Device(0), Pinned, 1, &["download from device 0: 8 bytes, source 0+0 -> target 0+0", "synchronize device 0"]);
    check(Device(1), Device(1), 1, &["copy on device 1: 8 bytes, source 0+0 -> target 0+0", "synchronize device 1"]);
    let peer = "peer copy from device 0 to 1: 8 bytes, source 0+0 -> target 0+0";
    check(Device(0), Device(1), 1, &[peer, "synchronize device 1"]);
}

#[test]
fn m_29_without_pinned_memory_nothing_is_staged() {
    let up = CopyPlan::gather(&[alone(Pageable, 3), alone(Pageable, 5)], Device(0), 0);
    let expected = [
        "upload to device 0: 3 bytes, source 0+0 -> target 0+0",
        "upload to device 0: 5 bytes, source 1+0 -> target 0+3",
        "synchronize device 0",
        "8 bytes, copies: 1",
    ];
    assert_eq!(lines(&up), expected);
    assert!(up.staging().is_empty());
    // Nor is a piece that is larger than a block.
    let large = CopyPlan::gather(&[alone(Pageable, 65), alone(Pageable, 2)], Device(0), 64);
    assert_eq!(large.staging(), [2]);
}

#[test]
fn m_29_adjacent_pieces_on_the_device_share_a_staging_block_and_one_transfer() {
    let sources = [alone(Pageable, 8), alone(Pageable, 12), alone(Pinned, 4), alone(Pageable, 1), alone(Pageable, 2)];
    let expected = [
        // The pinned source is uploaded directly and ends the first block.
        "upload to device 0: 4 bytes, source 2+0 -> target 0+20",
        "memcpy: 8 bytes, source 0+0 -> staging 0+0",
        "memcpy: 12 bytes, source 1+0 -> staging 0+8",
        "upload to device 0: 20 bytes, staging 0+0 -> target 0+0",
        "memcpy: 1 bytes, source 3+0 -> staging 1+0",
        "memcpy: 2 bytes, source 4+0 -> staging 1+1",
        "upload to device 0: 3 bytes, staging 1+0 -> target 0+24",
        "synchronize device 0",
        "27 bytes, copies: 2",
    ];
    assert_eq!(lines(&CopyPlan::gather(&sources, Device(0), ROOM)), expected);
    // More pieces than a block can hold need several blocks.
    let four = [alone(Pageable, 8); 4];
    assert_eq!(CopyPlan::gather(&four, Device(0), 16).staging(), [16, 16]);
}

#[test]
fn m_29_adjacent_sources_on_a_device_are_copied_at_once() {
    // Three adjacent requests in the region of one client; then another region.
    let sources = [at(0, 100, 10), at(0, 110, 10), at(0, 120, 5), at(0, 130, 5)];
    let expected = [
        "copy on device 0: 25 bytes, source 0+0 -> target 0+0",
        "copy on device 0: 5 bytes, source 3+0 -> target 0+25",
        "synchronize device 0",
        "30 bytes, copies: 1",
    ];
    assert_eq!(lines(&CopyPlan::gather(&sources, Device(0), ROOM)), expected);
    // Host regions are read one by one.
    let host = CopyPlan::gather(&[alone(Pageable, 10), alone(Pageable, 10)], Pageable, ROOM);
    assert_eq!(host.steps().len(), 2);
    assert_eq!(host.devices(), 0);
}

#[test]
fn m_29_an_output_is_downloaded_first_and_divided_after_the_synchronize() {
    let (source, targets) =
        (Endpoint::alone(Device(1)), [Endpoint::alone(Pageable), Endpoint::alone(Pinned), Endpoint::alone(Pageable)]);
    let row = |target: usize| Piece { source: 0, from: 4 * target, target, to: 0, len: 4 };
    let expected = [
        "download from device 1: 4 bytes, source 0+4 -> target 1+0",
        "download from device 1: 4 bytes, source 0+0 -> staging 0+0",
        "download from device 1: 4 bytes, source 0+8 -> staging 1+0",
        "synchronize device 1",
        "memcpy: 4 bytes, staging 0+0 -> target 0+0",
        "memcpy: 4 bytes, staging 1+0 -> target 2+0",
        "12 bytes, copies: 2",
    ];
    assert_eq!(lines(&CopyPlan::new(&[source], &targets, (0..3).map(row), ROOM)), expected);
    let both = [targets[0], targets[2]];
    let plan = CopyPlan::new(&[source], &both, (0..2).map(row), ROOM);
    assert_eq!((plan.staging(), plan.steps().len()), (&[8][..], 4), "one transfer for rows in a row");
}

/// The rows of 3.5 that need a plan; the others copy nothing or stay on the host.
#[test]
fn m_30_the_numbers_of_copies_are_those_of_3_5() {
    let check = |what: &str, sources: &[(Endpoint, usize)], target, copies| {
        assert_eq!(CopyPlan::gather(sources, target, ROOM).copies(), copies, "{what}");
    };
    check("HTTP binary to CPU, n requests", &[alone(Pageable, 4), alone(Pageable, 4)], Pageable, 1);
    check("HTTP binary to GPU", &[alone(Pageable, 4)], Device(0), 2);
    check("HTTP binary in pinned memory to GPU", &[alone(Pinned, 4)], Device(0), 1);
    check("system shm to GPU", &[alone(Pageable, 4)], Device(0), 2);
    check("system shm to GPU, page-locked", &[alone(Pinned, 4)], Device(0), 1);
    check("CUDA shm to same GPU, n requests", &[at(0, 0, 4), at(0, 64, 4)], Device(0), 1);
    check("CUDA shm to other GPU", &[at(0, 0, 4)], Device(1), 1);
    check("tensor on GPU to CPU", &[at(0, 0, 4)], Pageable, 2);
    check("tensor on GPU to pinned memory", &[at(0, 0, 4)], Pinned, 1);
    check("nothing", &[alone(Pageable, 0)], Device(0), 0);
}

/// Executes a plan over vectors, in order; downloads are delayed until their synchronize.
fn executed(plan: &CopyPlan, sources: &[Vec<u8>], targets: &mut [Vec<u8>]) {
    let mut staging: Vec<Vec<u8>> = plan.staging().iter().map(|&len| vec![0xee; len]).collect();
    let mut under_way: Vec<(u32, Position, Vec<u8>)> = Vec::new();
    fn write(to: Position, bytes: &[u8], staging: &mut [Vec<u8>], targets: &mut [Vec<u8>]) {
        let place = match to.end {
            CopyEnd::Staging(n) => &mut staging[n],
            CopyEnd::Target(n) => &mut targets[n],
            CopyEnd::Source(_) => panic!("a source is not written to"),
        };
        place[to.offset..to.offset + bytes.len()].copy_from_slice(bytes);
    }
    for step in plan.steps() {
        match *step {
            CopyStep::Copy { how, from, to, len } => {
                let whole = match from.end {
                    CopyEnd::Source(n) => &sources[n],
                    CopyEnd::Staging(n) => &staging[n],
                    CopyEnd::Target(_) => panic!("a target is not read"),
                };
                let bytes = whole[from.offset..from.offset + len].to_vec();
                match how.device() {
                    Some(device) => under_way.push((device, to, bytes)),
                    None => write(to, &bytes, &mut staging, targets),
                }
            }
            CopyStep::Synchronize(device) => {
                for (_, to, bytes) in under_way.extract_if(.., |(of, ..)| *of == device) {
                    write(to, &bytes, &mut staging, targets);
                }
            }
        }
    }
    assert!(under_way.is_empty(), "a transfer is not synchronized:\n{plan}");
}

fn memory() -> impl Strategy<Value = MemoryKind> {
    prop_oneof![Just(Pageable), Just(Pinned), Just(Device(0)), Just(Device(1))]
}

proptest! {
    #[test]
    fn m_29_an_executed_plan_concatenates_its_sources(
        parts in prop::collection::vec((memory(), prop::collection::vec(any::<u8>(), 0..40)), 0..12),
        target in memory(),
        room in prop_oneof![Just(0usize), 1..200usize],
    ) {
        let sources: Vec<_> = parts.iter().map(|(memory, bytes)| alone(*memory, bytes.len())).collect();
        let bytes: Vec<Vec<u8>> = parts.iter().map(|(_, bytes)| bytes.clone()).collect();
        let expected = bytes.concat();
        let plan = CopyPlan::gather(&sources, target, room);
        let mut made = [vec![0; expected.len()]];
        executed(&plan, &bytes, &mut made);
        prop_assert_eq!(&made[0], &expected, "{}", plan);
        prop_assert_eq!(plan.bytes(), expected.len());
        prop_assert!(plan.staging().iter().all(|&len| len <= room));
        let host = |m: &MemoryKind| !matches!(m, Device(_));
        if host(&target) && parts.iter().all(|(m, _)| host(m)) {
            prop_assert_eq!((plan.devices(), plan.staging().len()), (0, 0));
        }
    }

    #[test]
    fn m_29_dividing_an_output_is_the_inverse_of_concatenation(
        source in memory(),
        rows in prop::collection::vec((memory(), 0..30usize), 1..10),
        room in prop_oneof![Just(0usize), 1..100usize],
    ) {
        let all: Vec<u8> = (0..rows.iter().map(|r| r.1).sum::<usize>()).map(|i| i as u8).collect();
        let targets: Vec<Endpoint> = rows.iter().map(|r| Endpoint::alone(r.0)).collect();
        let mut from = 0;
        let pieces: Vec<Piece> = rows.iter().enumerate().map(|(target, &(_, len))| {
            from += len;
            Piece { source: 0, from: from - len, target, to: 0, len }
        }).collect();
        let plan = CopyPlan::new(&[Endpoint::alone(source)], &targets, pieces, room);
        let mut made: Vec<Vec<u8>> = rows.iter().map(|r| vec![0; r.1]).collect();
        executed(&plan, std::slice::from_ref(&all), &mut made);
        prop_assert_eq!(made.concat(), all, "{}", plan);
    }
}
