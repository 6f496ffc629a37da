//! Cost of one number in JSON, by notation: it depends on the digits, not the bytes.

use crate::tensors::Random;
use crate::wire::{Body, json};
use crate::{http, http_response, response, support};
use criterion::{BenchmarkId, Criterion, Throughput};
use protocol::Signature;
use std::cell::LazyCell;
use std::fmt::Write as _;
use std::hint::black_box;
use tensor::{Data, DataType};

const NUMBERS: usize = 64 << 10;

/// A notation of numbers and the layout of their array.
struct Form {
    name: &'static str,
    datatype: DataType,
    separator: &'static str,
    /// `data` before `datatype`, so that the numbers cannot be converted during the scan.
    data_first: bool,
    /// True if it is also printed, because its values cost something else than those of the other forms.
    written: bool,
    text: fn(&mut Random) -> String,
}

const FP32: Form = Form {
    name: "FP32 widened (numpy's tolist)",
    datatype: DataType::Fp32,
    separator: ",",
    data_first: false,
    written: true,
    text: |r| format!("{:?}", f64::from(r.unit() as f32)),
};

const FORMS: [Form; 9] = [
    FP32,
    Form { name: "16 to 17 digits (Python's float)", written: false, text: |r| format!("{:?}", r.unit()), ..FP32 },
    Form { name: "shortest FP32", written: false, text: |r| format!("{:?}", r.unit() as f32), ..FP32 },
    Form { name: "3 decimals", text: |r| format!("{:.3}", r.unit()), ..FP32 },
    Form { name: "whole numbers", text: |r| format!("{}", (r.unit() * 256.0) as i32), ..FP32 },
    Form { name: "FP32 widened, blanks between (Python's json)", separator: ", ", written: false, ..FP32 },
    Form { name: "FP32 widened, data before datatype", data_first: true, written: false, ..FP32 },
    Form { name: "INT64 of 5 digits", datatype: DataType::Int64, text: |r| format!("{}", r.next() % 100_000), ..FP32 },
    Form { name: "INT64 of 19 digits", datatype: DataType::Int64, text: |r| format!("{}", r.next() as i64), ..FP32 },
];

fn signature(form: &Form) -> Signature {
    support::identity("identity", 1, form.datatype)
}

fn body(form: &Form) -> Body {
    let mut random = Random::new();
    let mut data = String::new();
    for i in 0..NUMBERS {
        let _ = write!(data, "{}{}", if i > 0 { form.separator } else { "" }, (form.text)(&mut random));
    }
    let head = format!(r#""name":"INPUT0","shape":[1,{NUMBERS}],"datatype":"{}""#, form.datatype.name());
    let data = format!(r#""data":[{data}]"#);
    let (a, b) = if form.data_first { (data, head) } else { (head, data) };
    json(&format!(r#"{{"inputs":[{{{a},{b}}}]}}"#))
}

fn tensor(form: &Form, body: &Body) -> Data {
    let request = http(body, &signature(form)).expect("the body is valid");
    let data = request.inputs[0].data.clone();
    assert_eq!(data.len(), NUMBERS * form.datatype.byte_size().unwrap_or(0), "numbers are missing");
    data
}

pub fn read(c: &mut Criterion) {
    let mut group = c.benchmark_group("HTTP JSON numbers, read");
    group.throughput(Throughput::Elements(NUMBERS as u64));
    for form in FORMS {
        let signature = signature(&form);
        let made = LazyCell::new(|| {
            let body = body(&form);
            tensor(&form, &body);
            body
        });
        group.bench_function(BenchmarkId::from_parameter(form.name), |b| {
            let body = &*made;
            b.iter(|| http(black_box(body), &signature));
        });
    }
    group.finish();
}

/// Measures tensor to text: the values of each form, in the server's notation.
pub fn write(c: &mut Criterion) {
    let mut group = c.benchmark_group("HTTP JSON numbers, write");
    group.throughput(Throughput::Elements(NUMBERS as u64));
    for form in FORMS.iter().filter(|f| f.written) {
        let signature = signature(form);
        let made = LazyCell::new(|| match tensor(form, &body(form)) {
            Data::Bytes(raw) => response(form.datatype, &raw, false),
            Data::Region(_) => unreachable!("no region is registered"),
        });
        group.bench_function(BenchmarkId::from_parameter(form.name), |b| {
            let response = &*made;
            b.iter(|| http_response(black_box(response), &signature));
        });
    }
    group.finish();
}
