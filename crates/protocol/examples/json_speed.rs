//! Prints what a float costs as JSON, in and out: `cargo run --release -p nereid-protocol --example json_speed`.

use bytes::Bytes;
use protocol::http::{Limits, encode_infer, parse_infer};
use protocol::{InferResponse, InputSpec, OutputSpec, OutputTensor, Regions, Signature};
use smallvec::smallvec;
use std::fmt::Write;
use std::hint::black_box;
use std::time::Instant;
use tensor::{DataType, Error, Name, RegionRef};

const FLOATS: usize = 256 * 1024;
const RUNS: usize = 15;

struct NoRegions;

impl Regions for NoRegions {
    fn resolve(&self, _: &str, _: u64, _: u64) -> Result<RegionRef, Error> {
        Err(Error::not_found("no regions"))
    }
}

/// Median nanoseconds per float.
fn time(mut f: impl FnMut()) -> f64 {
    let mut runs: Vec<f64> = (0..RUNS)
        .map(|_| {
            let start = Instant::now();
            f();
            start.elapsed().as_nanos() as f64 / FLOATS as f64
        })
        .collect();
    runs.sort_by(f64::total_cmp);
    runs[RUNS / 2]
}

fn report(label: &str, text: impl Fn(f64) -> String, data_first: bool) {
    // A multiplicative generator: the same numbers in every run.
    let mut state = 88_172_645_463_325_252u64;
    let mut data = String::new();
    for i in 0..FLOATS {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let value = (state >> 11) as f64 / (1u64 << 53) as f64 * 2.0 - 1.0;
        let _ = write!(data, "{}{}", if i > 0 { "," } else { "" }, text(value));
    }
    let head = format!(r#""name":"IN","shape":[1,{FLOATS}],"datatype":"FP32""#);
    let data = format!(r#""data":[{data}]"#);
    let (a, b) = if data_first { (&data, &head) } else { (&head, &data) };
    let body = Bytes::from(format!(r#"{{"inputs":[{{{a},{b}}}]}}"#));
    let signature = Signature {
        model: Name::from_static("m"),
        version: Name::from_static("1"),
        max_batch_size: 1,
        inputs: vec![InputSpec {
            name: Name::from_static("IN"),
            datatype: DataType::Fp32,
            dims: smallvec![-1],
            reshape: None,
            optional: false,
            allow_ragged_batch: false,
        }],
        outputs: vec![OutputSpec {
            name: Name::from_static("OUT"),
            datatype: DataType::Fp32,
            dims: smallvec![-1],
            reshape: None,
            labels: Vec::new(),
        }],
        decoupled: false,
    };
    let parse = || match parse_infer(&body, None, &signature, &NoRegions, &Limits::default()) {
        Ok(request) => request,
        Err(e) => panic!("{e}"),
    };
    let read = time(|| drop(black_box(parse())));
    let input = &parse().inputs[0];
    let response = InferResponse {
        outputs: smallvec![OutputTensor {
            name: Name::from_static("OUT"),
            index: 0,
            datatype: DataType::Fp32,
            shape: input.shape.clone(),
            data: input.data.clone(),
            form: Default::default(),
        }],
        ..InferResponse::default()
    };
    let write = time(|| drop(black_box(encode_infer(&response, &signature))));
    let bytes = body.len() as f64 / FLOATS as f64;
    println!("{label:38} {bytes:5.1} bytes/float   read {read:5.1} ns   write {write:5.1} ns");
}

fn main() {
    report("16 to 17 digits (Python float)", |v| format!("{v:?}"), false);
    report("FP32 widened (numpy tolist)", |v| format!("{:?}", f64::from(v as f32)), false);
    report("shortest FP32", |v| format!("{:?}", v as f32), false);
    report("3 decimals", |v| format!("{v:.3}"), false);
    report("small integers", |v| format!("{}", (v * 256.0) as i32), false);
    report("FP32 widened, data before datatype", |v| format!("{:?}", f64::from(v as f32)), true);
}
