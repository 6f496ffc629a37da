//! The classification extension (P-096): the top k of an output as strings, for HTTP and gRPC alike.

use crate::infer::{OutputForm, OutputTensor};
use crate::signature::{Labels, Signature};
use std::cmp::Ordering;
use std::io::Write;
use tensor::{DataType, Error, Result, Shape, element_count, strings};

/// Most elements of an output with classes; the reference has the same limit, because it sorts all of them.
pub const ELEMENTS_MAX: usize = 1_000_000;

/// Replaces `output` by its best `output.form.classification` classes per row: BYTES `<value>:<index>` or
/// `<value>:<index>:<label>`, best first, shape `[k]` or `[rows, k]`.
///
/// # Errors
/// INVALID_ARG for BOOL, FP16, BF16 and BYTES, and for more than [`ELEMENTS_MAX`] elements.
pub fn top_k(output: &OutputTensor, signature: &Signature) -> Result<OutputTensor> {
    let rank: fn(&[u8], &Layout, Option<&Labels>) -> Vec<u8> = match output.datatype {
        DataType::Uint8 => ranked::<u8>,
        DataType::Uint16 => ranked::<u16>,
        DataType::Uint32 => ranked::<u32>,
        DataType::Uint64 => ranked::<u64>,
        DataType::Int8 => ranked::<i8>,
        DataType::Int16 => ranked::<i16>,
        DataType::Int32 => ranked::<i32>,
        DataType::Int64 => ranked::<i64>,
        DataType::Fp32 => ranked::<f32>,
        DataType::Fp64 => ranked::<f64>,
        t @ (DataType::Bool | DataType::Fp16 | DataType::Bf16 | DataType::Bytes) => {
            return Err(Error::invalid(format!(
                "class result not available for output due to unsupported type '{}'",
                t.name()
            )));
        }
    };
    let too_large = || Error::invalid("classification output tensor too large");
    let count = element_count(&output.shape).and_then(|n| usize::try_from(n).ok()).ok_or_else(too_large)?;
    if count > ELEMENTS_MAX {
        return Err(too_large());
    }
    let size = output.datatype.byte_size().unwrap_or(1);
    if output.data.len() != count * size {
        return Err(Error::internal(format!("output has {} bytes, which do not fit its shape", output.data.len())));
    }
    let batch = output.shape.first().copied().filter(|_| signature.batches());
    // An output without elements has no classes; the reference divides by zero here.
    let rows = batch.map_or(1, |b| usize::try_from(b).unwrap_or(0));
    let classes = count.checked_div(rows).unwrap_or(0);
    let k = classes.min(usize::try_from(output.form.classification).unwrap_or(usize::MAX));
    let labels = signature.outputs.get(usize::from(output.index)).map(|o| &o.labels);
    // Contents in a region are copied once, because another process may write to them during the sort.
    let raw = rank(&output.data.to_bytes()?, &Layout { classes, k }, labels);
    let shape: Shape = batch.into_iter().chain([k as i64]).collect();
    Ok(OutputTensor {
        name: output.name.clone(),
        index: output.index,
        datatype: DataType::Bytes,
        shape,
        data: bytes::Bytes::from(raw).into(),
        form: OutputForm { classification: 0, ..output.form },
    })
}

struct Layout {
    classes: usize,
    k: usize,
}

/// A value that can be ranked and printed.
trait Score: Copy + PartialOrd + Default {
    fn read(bytes: &[u8]) -> Self;
    fn print(self, out: &mut Vec<u8>);
    /// True for NaN, which ranks last.
    fn is_nan(self) -> bool {
        false
    }
}

macro_rules! integers {
    ($($t:ty),*) => { $( impl Score for $t {
        fn read(bytes: &[u8]) -> Self { bytes.first_chunk().map_or(0, |b| Self::from_le_bytes(*b)) }
        fn print(self, out: &mut Vec<u8>) { out.extend_from_slice(itoa::Buffer::new().format(self).as_bytes()); }
    } )* };
}

integers!(u8, u16, u32, u64, i8, i16, i32, i64);

macro_rules! floats {
    ($($t:ty),*) => { $( impl Score for $t {
        fn read(bytes: &[u8]) -> Self { bytes.first_chunk().map_or(0.0, |b| Self::from_le_bytes(*b)) }
        // As %f in C.
        fn print(self, out: &mut Vec<u8>) {
            if Score::is_nan(self) {
                out.extend_from_slice(if self.is_sign_negative() { b"-nan" } else { b"nan" });
            } else {
                // Writing to a vector does not fail.
                let _ = write!(out, "{self:.6}");
            }
        }
        fn is_nan(self) -> bool { self != self }
    } )* };
}

floats!(f32, f64);

fn ranked<S: Score>(values: &[u8], layout: &Layout, labels: Option<&Labels>) -> Vec<u8> {
    let size = size_of::<S>();
    let mut raw = Vec::new();
    if layout.k == 0 {
        return raw;
    }
    let mut text = Vec::new();
    for row in values.chunks_exact(layout.classes * size) {
        let mut scores: Vec<(S, usize)> = row.chunks_exact(size).map(S::read).zip(0..).collect();
        // Best first, equal values in the order of classes, NaN last.
        let order = |a: &(S, usize), b: &(S, usize)| {
            let nan = a.0.is_nan().cmp(&b.0.is_nan());
            nan.then(b.0.partial_cmp(&a.0).unwrap_or(Ordering::Equal)).then(a.1.cmp(&b.1))
        };
        if layout.k < scores.len() {
            scores.select_nth_unstable_by(layout.k, order);
            scores.truncate(layout.k);
        }
        scores.sort_unstable_by(order);
        for (score, index) in scores {
            text.clear();
            score.print(&mut text);
            text.push(b':');
            text.extend_from_slice(itoa::Buffer::new().format(index).as_bytes());
            if let Some(label) = labels.and_then(|l| l.get(index)) {
                text.push(b':');
                text.extend_from_slice(label);
            }
            strings::push(&mut raw, &text);
        }
    }
    raw
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{output, signature};
    use bytes::Bytes;

    fn f32s(values: &[f32]) -> Vec<u8> {
        values.iter().flat_map(|v| v.to_le_bytes()).collect()
    }

    fn check(
        batch: u32,
        datatype: DataType,
        shape: &[i64],
        data: Vec<u8>,
        k: u32,
        expected: &[&str],
        out_shape: &[i64],
    ) {
        let mut sig = signature("classify", batch, &[], &[("OUTPUT0", datatype, &shape[usize::from(batch > 0)..])]);
        sig.outputs[0].labels = Labels::read(Bytes::from_static(b"label0\nlabel1\n\nlabel3"));
        let mut out = output("OUTPUT0", datatype, shape, Bytes::from(data));
        out.form.classification = k;
        let got = top_k(&out, &sig).unwrap();
        let strings: Vec<String> = strings::Strings::new(&got.data.to_bytes().expect("in memory"))
            .map(|s| String::from_utf8_lossy(s.unwrap()).into_owned())
            .collect();
        assert_eq!(strings, expected);
        assert_eq!(&got.shape[..], out_shape);
        assert_eq!(got.datatype, DataType::Bytes);
    }

    #[test]
    fn p096_classes_are_sorted_and_labelled() {
        let scores = [0.5, 9.0, -3.0, 9.0, 0.25, 7.0, 1e10, -0.0, 2.0, 3.0];
        let top = ["10000000000.000000:6", "9.000000:1:label1", "9.000000:3:label3"];
        check(8, DataType::Fp32, &[1, 10], f32s(&scores), 3, &top, &[1, 3]);
        check(0, DataType::Fp32, &[2, 5], f32s(&scores), 1, &top[..1], &[1]);
        check(
            8,
            DataType::Fp32,
            &[2, 2],
            f32s(&[0.1, 1e-7, 3.0, f32::NAN]),
            9,
            &["0.100000:0:label0", "0.000000:1:label1", "3.000000:0:label0", "nan:1:label1"],
            &[2, 2],
        );
        let ints: Vec<u8> = [5i32, -1, 5, 900, 0, 4].iter().flat_map(|v| v.to_le_bytes()).collect();
        check(8, DataType::Int32, &[1, 6], ints, 3, &["900:3:label3", "5:0:label0", "5:2"], &[1, 3]);
    }

    #[test]
    fn p096_an_empty_output_has_no_classes() {
        check(8, DataType::Fp32, &[0, 3], Vec::new(), 3, &[], &[0, 0]);
        check(0, DataType::Fp32, &[0], Vec::new(), 3, &[], &[0]);
    }

    #[test]
    fn p096_errors_have_their_texts() {
        let sig = signature("m", 0, &[], &[("O", DataType::Bool, &[1])]);
        let refused = |t, shape: &[i64], n| {
            top_k(&output("O", t, shape, Bytes::from(vec![0; n])), &sig).unwrap_err().message().to_owned()
        };
        assert_eq!(
            refused(DataType::Bool, &[1], 1),
            "class result not available for output due to unsupported type 'BOOL'"
        );
        assert_eq!(refused(DataType::Uint8, &[1_000_001], 1_000_001), "classification output tensor too large");
    }
}
