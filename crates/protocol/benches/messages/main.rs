//! Cost of decoding and encoding messages, by transport, form, datatype and size:
//! `cargo bench -p nereid-protocol --bench messages [-- TEXT]`.
//!
//! Every message has one tensor, and rates count that tensor's bytes in memory, so that all forms are comparable. Each
//! message is read back and compared before it is timed. Freeing memory counts, as it does for a request.

mod heads;
mod numbers;
#[path = "../../tests/support/mod.rs"]
mod support;
mod tensors;
mod wire;

use bytes::Bytes;
use criterion::{BenchmarkId, Criterion, Throughput};
use protocol::http::{Limits, encode_infer, parse_infer};
use protocol::{InferRequest, InferResponse, OutputForm, Signature, grpc};
use smallvec::smallvec;
use std::cell::LazyCell;
use std::hint::black_box;
use support::{NoRegions, identity, output};
use tensor::{DataType, Name, Result};
use wire::Body;

const SIZES: [(&str, usize); 5] =
    [("64 B", 64), ("4 KiB", 4 << 10), ("256 KiB", 256 << 10), ("1 MiB", 1 << 20), ("4 MiB", 4 << 20)];
const TYPES: [DataType; 5] = [DataType::Fp32, DataType::Int64, DataType::Fp16, DataType::Bytes, DataType::Bool];

/// Sizes of a form: JSON stops at 1 MiB, because its cost is per element by then; the other forms skip that size.
fn cells(is_json: bool) -> impl Iterator<Item = (DataType, &'static str, usize)> {
    let sizes = move |size: usize| if is_json { size <= 1 << 20 } else { size != 1 << 20 };
    TYPES
        .into_iter()
        // Neither JSON nor `InferTensorContents` has a form for it; see `wire` for the latter.
        .filter(move |&t| !is_json || t != DataType::Fp16)
        .flat_map(move |t| SIZES.into_iter().filter(move |s| sizes(s.1)).map(move |(label, size)| (t, label, size)))
}

struct Reading {
    group: &'static str,
    is_json: bool,
    make: fn(DataType, &Bytes) -> Option<Body>,
    read: fn(&Body, &Signature) -> Result<InferRequest>,
}

const READINGS: [Reading; 4] = [
    Reading { group: "HTTP binary, read", is_json: false, make: wire::http_binary, read: http },
    Reading { group: "HTTP JSON, read", is_json: true, make: wire::http_json, read: http },
    Reading { group: "gRPC raw contents, read", is_json: false, make: wire::grpc_raw, read: grpc_request },
    Reading { group: "gRPC typed contents, read", is_json: false, make: wire::grpc_typed, read: grpc_request },
];

fn http(body: &Body, signature: &Signature) -> Result<InferRequest> {
    parse_infer(&body.bytes, body.header_length, signature, &NoRegions, &Limits::default())
}

fn grpc_request(body: &Body, signature: &Signature) -> Result<InferRequest> {
    grpc::peek(&body.bytes)?.into_request(signature, &NoRegions).map(|request| *request)
}

fn read(c: &mut Criterion) {
    for Reading { group, is_json, make, read } in READINGS {
        let mut group = c.benchmark_group(group);
        for (datatype, label, size) in cells(is_json) {
            let signature = identity("identity", 1, datatype);
            if make(datatype, &Bytes::new()).is_none() {
                continue;
            }
            // Built lazily, because a filter skips most of them.
            let made = LazyCell::new(|| {
                let raw = tensors::contents(datatype, size);
                let body = make(datatype, &raw).expect("the form carries the datatype");
                let request = read(&body, &signature).expect("the message is valid");
                assert_eq!(
                    request.inputs[0].data.to_vec().expect("in memory"),
                    raw,
                    "{datatype:?} came back otherwise"
                );
                body
            });
            group.throughput(Throughput::Bytes(size as u64));
            group.bench_function(BenchmarkId::new(datatype.name(), label), |b| {
                let body = &*made;
                b.iter(|| read(black_box(body), &signature));
            });
        }
        group.finish();
    }
}

pub(crate) fn response(datatype: DataType, raw: &Bytes, binary: bool) -> InferResponse {
    let mut tensor = output("OUTPUT0", datatype, &[1, tensors::elements(datatype, raw)], raw.clone());
    tensor.form = OutputForm { binary, classification: 0, anywhere: false };
    InferResponse {
        model_name: Name::from_static("identity"),
        model_version: Name::from_static("1"),
        id: Name::from_static("42"),
        outputs: smallvec![tensor],
        ..InferResponse::default()
    }
}

/// A way to write a response; returns the parts.
type Write = fn(&InferResponse, &Signature) -> Result<usize>;

fn http_response(response: &InferResponse, signature: &Signature) -> Result<usize> {
    let body = encode_infer(response, signature)?;
    Ok(black_box(&body).json.len() + body.binary.iter().map(|b| b.len()).sum::<usize>())
}

fn grpc_response(response: &InferResponse, signature: &Signature) -> Result<usize> {
    let message = grpc::encode(response, signature)?;
    Ok(black_box(&message).len())
}

fn write(c: &mut Criterion) {
    // Responses over gRPC never use typed contents, as in Triton.
    let writings: [(_, _, _, Write); 3] = [
        ("HTTP binary, write", false, true, http_response),
        ("HTTP JSON, write", true, false, http_response),
        ("gRPC, write", false, false, grpc_response),
    ];
    for (name, is_json, binary, write) in writings {
        let mut group = c.benchmark_group(name);
        for (datatype, label, size) in cells(is_json) {
            let signature = identity("identity", 1, datatype);
            let made = LazyCell::new(|| {
                let response = response(datatype, &tensors::contents(datatype, size), binary);
                let written = write(&response, &signature).expect("the response is valid");
                assert!(is_json || written > size, "{written} bytes cannot hold {size}");
                response
            });
            group.throughput(Throughput::Bytes(size as u64));
            group.bench_function(BenchmarkId::new(datatype.name(), label), |b| {
                let response = &*made;
                b.iter(|| write(black_box(response), &signature));
            });
        }
        group.finish();
    }
}

fn main() {
    let mut c = Criterion::default().without_plots().configure_from_args();
    read(&mut c);
    write(&mut c);
    numbers::read(&mut c);
    numbers::write(&mut c);
    heads::cache(&mut c);
}
