//! Measures gathering the inputs of a batch and scattering its output:
//! `cargo bench -p nereid-backend --bench gather_scatter [-- TEXT]`.
//!
//! Sizes are of one request's tensor; rates count the whole batch.

use backend::gather::gather;
use backend::{BatchEntry, scatter};
use bytes::Bytes;
use criterion::{BenchmarkId, Criterion, Throughput};
use memory::{RegionLimits, RegionRegistry};
use protocol::{Checked, InferRequest, InputTensor, OutputForm, OutputSpec, OutputTensor, RequestedOutput};
use smallvec::smallvec;
use std::cell::LazyCell;
use std::fs;
use std::hint::black_box;
use std::path::PathBuf;
use tensor::{Data, DataType, Name, RegionRef, Result};

const REQUESTS: [usize; 3] = [1, 8, 32];
const SIZES: [(&str, usize); 3] = [("256 B", 256), ("64 KiB", 64 << 10), ("1 MiB", 1 << 20)];

/// One row of UINT8, and maybe a region for its output.
fn entry(mark: usize, size: usize, region: Option<RegionRef>) -> BatchEntry {
    let input = InputTensor {
        name: Name::from_static("INPUT0"),
        datatype: Some(DataType::Uint8),
        shape: smallvec![1, size as i64],
        data: Data::Bytes(vec![mark as u8; size].into()),
    };
    let output = RequestedOutput { name: Name::from_static("OUTPUT0"), form: OutputForm::default(), region };
    let request = InferRequest { inputs: smallvec![input], outputs: smallvec![output], ..InferRequest::default() };
    let checked = Checked { rows: 1, inputs: smallvec![0], outputs: smallvec![(0, Some(0))] };
    BatchEntry::new(Box::new(request), checked)
}

fn gathering(c: &mut Criterion) {
    let mut group = c.benchmark_group("gather");
    for requests in REQUESTS {
        for (label, size) in SIZES {
            let made = LazyCell::new(|| {
                let entries: Vec<_> = (0..requests).map(|i| entry(i, size, None)).collect();
                let all = gather(&entries, 0).ok().flatten().unwrap_or_default();
                for (i, row) in all.to_vec().expect("in memory").chunks(size).enumerate() {
                    assert!(row.iter().all(|&b| b == i as u8), "row {i} is another's");
                }
                assert_eq!(all.len(), requests * size);
                entries
            });
            group.throughput(Throughput::Bytes((requests * size) as u64));
            group.bench_function(BenchmarkId::from_parameter(format!("{requests} × {label}")), |b| {
                let entries = &*made;
                b.iter(|| gather(black_box(entries), 0));
            });
        }
    }
    group.finish();
}

/// The file behind a region; gone when dropped.
struct Shared {
    file: PathBuf,
    regions: RegionRegistry,
}

impl Shared {
    fn new(bytes: usize) -> Self {
        let key = format!("nereid-bench-{}", std::process::id());
        let file = PathBuf::from("/dev/shm").join(&key);
        // Written, not only sized: the pages shall be there before anything is timed.
        fs::write(&file, vec![0; bytes]).expect("/dev/shm has room");
        let shared = Self { file, regions: RegionRegistry::new(RegionLimits::default()) };
        shared.regions.register("out", &key, 0, bytes as u64).expect("the file can be mapped");
        shared
    }

    fn window(&self, at: usize, size: usize) -> RegionRef {
        self.regions.resolve("out", at as u64, size as u64).expect("the window lies inside")
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.file);
    }
}

/// Rows of the batch's output, placed and described, as a backend does for each request.
fn hand_out(
    entries: &[BatchEntry],
    spec: &OutputSpec,
    all: &Bytes,
    size: usize,
) -> impl Iterator<Item = Result<OutputTensor>> {
    entries.iter().enumerate().map(move |(i, entry)| {
        let data = Data::Bytes(all.slice(i * size..(i + 1) * size));
        scatter::output(entry, spec, (0, Some(0)), smallvec![1, size as i64], data)
    })
}

fn scattering(c: &mut Criterion) {
    let spec = OutputSpec {
        name: Name::from_static("OUTPUT0"),
        datatype: DataType::Uint8,
        dims: smallvec![-1],
        reshape: None,
        labels: Default::default(),
    };
    for (name, to_region) in [("scatter into responses", false), ("scatter into shared memory", true)] {
        let mut group = c.benchmark_group(name);
        for requests in REQUESTS {
            for (label, size) in SIZES {
                let made = LazyCell::new(|| {
                    let shared = to_region.then(|| Shared::new(requests * size));
                    let region = |i| shared.as_ref().map(|s| s.window(i * size, size));
                    let entries: Vec<_> = (0..requests).map(|i| entry(i, size, region(i))).collect();
                    let all: Bytes = (0..requests * size).map(|i| (i / size + 1) as u8).collect();
                    for (i, output) in hand_out(&entries, &spec, &all, size).enumerate() {
                        let data = output.expect("the region is whole").data;
                        assert_eq!(matches!(data, Data::Region(_)), to_region);
                        assert!(
                            data.to_vec().expect("in memory").iter().all(|&b| b == (i + 1) as u8),
                            "row {i} is another's"
                        );
                    }
                    (entries, all, shared)
                });
                group.throughput(Throughput::Bytes((requests * size) as u64));
                group.bench_function(BenchmarkId::from_parameter(format!("{requests} × {label}")), |b| {
                    let (entries, all, _shared) = &*made;
                    b.iter(|| {
                        hand_out(black_box(entries), &spec, all, size).for_each(|output| drop(black_box(output)))
                    });
                });
            }
        }
        group.finish();
    }
}

fn main() {
    let mut c = Criterion::default().without_plots().configure_from_args();
    gathering(&mut c);
    scattering(&mut c);
}
