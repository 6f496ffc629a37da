//! The classification extension (P-096): the top k of an output as strings, for HTTP and gRPC alike.

use crate::infer::{OutputForm, OutputTensor};
use crate::signature::{Labels, Signature};
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
    let scores: Scores = match output.datatype {
        DataType::Uint8 => Scores::of::<u8>(),
        DataType::Uint16 => Scores::of::<u16>(),
        DataType::Uint32 => Scores::of::<u32>(),
        DataType::Uint64 => Scores::of::<u64>(),
        DataType::Int8 => Scores::of::<i8>(),
        DataType::Int16 => Scores::of::<i16>(),
        DataType::Int32 => Scores::of::<i32>(),
        DataType::Int64 => Scores::of::<i64>(),
        DataType::Fp32 => Scores::of::<f32>(),
        DataType::Fp64 => Scores::of::<f64>(),
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
    if output.data.len() != count * scores.size {
        return Err(
            Error::internal(format!("output has {} bytes, which do not fit its shape", output.data.len())).by_model()
        );
    }
    let batch = output.shape.first().copied().filter(|_| signature.batches());
    // An output without elements has no classes; the reference divides by zero here.
    let rows = batch.map_or(1, |b| usize::try_from(b).unwrap_or(0));
    let classes = count.checked_div(rows).unwrap_or(0);
    let k = classes.min(usize::try_from(output.form.classification).unwrap_or(usize::MAX));
    let labels = signature.outputs.get(usize::from(output.index)).map(|o| &o.labels);
    // Contents in a region are copied once, because another process may write to them during the sort.
    let raw = scores.ranked(&output.data.to_bytes()?, classes, k, labels);
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

/// A value that can be ranked and printed.
trait Score: Copy {
    fn read(bytes: &[u8]) -> Self;
    /// The rank: lower is better, equal for equal values, and the largest for NaN.
    fn rank(self) -> u64;
    fn print(self, out: &mut Vec<u8>);
}

/// The functions of a datatype. Sorting and formatting exist once: only these differ by datatype.
struct Scores {
    /// Bytes of a value.
    size: usize,
    /// Ranks the values of a row, each with its index.
    ranks: fn(&[u8]) -> Vec<(u64, u32)>,
    print: fn(&[u8], &mut Vec<u8>),
}

macro_rules! integers {
    ($($t:ty),*) => { $( impl Score for $t {
        fn read(bytes: &[u8]) -> Self { bytes.first_chunk().map_or(0, |b| Self::from_le_bytes(*b)) }
        // The distance to the largest value.
        fn rank(self) -> u64 { Self::MAX.abs_diff(self).into() }
        fn print(self, out: &mut Vec<u8>) { out.extend_from_slice(itoa::Buffer::new().format(self).as_bytes()); }
    } )* };
}

integers!(u8, u16, u32, u64, i8, i16, i32, i64);

macro_rules! floats {
    ($($t:ty),*) => { $( impl Score for $t {
        fn read(bytes: &[u8]) -> Self { bytes.first_chunk().map_or(0.0, |b| Self::from_le_bytes(*b)) }
        fn rank(self) -> u64 {
            if self.is_nan() {
                return u64::MAX;
            }
            // Zeros are equal. The bits of positive numbers grow with them, those of negative ones with their
            // distance to 0.
            let bits = f64::from(self + 0.0).to_bits();
            if bits >> 63 == 0 { !(1 << 63) - bits } else { bits }
        }
        // As %f in C.
        fn print(self, out: &mut Vec<u8>) {
            if self.is_nan() {
                out.extend_from_slice(if self.is_sign_negative() { b"-nan" } else { b"nan" });
            } else {
                // Writing to a vector does not fail.
                let _ = write!(out, "{self:.6}");
            }
        }
    } )* };
}

floats!(f32, f64);

impl Scores {
    fn of<S: Score>() -> Self {
        Self {
            size: size_of::<S>(),
            ranks: |row| row.chunks_exact(size_of::<S>()).map(|value| S::read(value).rank()).zip(0..).collect(),
            print: |value, text| S::read(value).print(text),
        }
    }

    /// The best `k` of each row of `classes` values: best first, equal values in the order of classes, NaN last.
    fn ranked(&self, values: &[u8], classes: usize, k: usize, labels: Option<&Labels>) -> Vec<u8> {
        let mut raw = Vec::new();
        if k == 0 {
            return raw;
        }
        let mut text = Vec::new();
        for row in values.chunks_exact(classes * self.size) {
            let mut ranks = (self.ranks)(row);
            if k < ranks.len() {
                ranks.select_nth_unstable(k);
                ranks.truncate(k);
            }
            ranks.sort_unstable();
            for (_, index) in ranks {
                let index = index as usize;
                text.clear();
                (self.print)(row.get(index * self.size..).unwrap_or_default(), &mut text);
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
    fn p096_the_best_of_every_datatype_is_its_largest_value() {
        fn best_first<S: Score + PartialEq + std::fmt::Debug>(values: &[S]) {
            assert!(values.windows(2).all(|pair| pair[0].rank() < pair[1].rank()), "{values:?}");
        }
        best_first(&[u64::MAX, u64::MAX - 1, 1 << 63, 1, 0]);
        best_first(&[i64::MAX, 1, 0, -1, i64::MIN + 1, i64::MIN]);
        best_first(&[u8::MAX, 128, 127, 0]);
        best_first(&[i8::MAX, 0, -1, i8::MIN]);
        let large = [f64::INFINITY, f64::MAX, 1.0, f64::MIN_POSITIVE, 5e-324, 0.0];
        let small = large.map(|x| -x).into_iter().rev().skip(1);
        best_first(&large.into_iter().chain(small).chain([f64::NAN]).collect::<Vec<_>>());
        best_first(&[f32::INFINITY, f32::MAX, 1e-45, 0.0, -1e-45, f32::MIN, f32::NEG_INFINITY, f32::NAN]);
        assert_eq!((0.0f32).rank(), (-0.0f32).rank());
        assert_eq!((-f64::NAN).rank(), f64::NAN.rank());
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
