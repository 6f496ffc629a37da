//! Rows of a response: from the tensors of a model, and as JSON, in numbers or in base64 of them.

use crate::OutputTensor;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde::{Serialize, Serializer};
use tensor::{DataType, Error, Result, allowance, f32_of_half};

/// Rows of one width, in the order of their texts.
#[derive(Debug, Default)]
pub struct Rows {
    /// FP32, little-endian: whole rows each.
    parts: Vec<Bytes>,
    /// Bytes of a row.
    row_bytes: usize,
}

impl Rows {
    /// Adds an output that has `rows` rows.
    ///
    /// # Errors
    /// INTERNAL, by the model, for an output that has not as many rows, or of another width, or no numbers.
    pub fn add(&mut self, output: &OutputTensor, rows: usize) -> Result<()> {
        let data = output.data.to_bytes()?;
        let converted = match output.datatype {
            DataType::Fp32 => data,
            DataType::Fp64 => converted(&data, |bytes| f64::from_le_bytes(bytes) as f32)?,
            DataType::Fp16 => converted(&data, |bytes| f32_of_half(u16::from_le_bytes(bytes)))?,
            DataType::Bf16 => converted(&data, |[low, high]: [u8; 2]| f32::from_le_bytes([0, 0, low, high]))?,
            _ => Bytes::new(),
        };
        let row_bytes = converted.len().checked_div(rows).unwrap_or_default();
        let is_whole = row_bytes > 0 && row_bytes.is_multiple_of(4) && row_bytes * rows == converted.len();
        if !is_whole || !(self.row_bytes == 0 || self.row_bytes == row_bytes) {
            let (name, datatype, shape) = (&output.name, output.datatype.name(), &output.shape);
            let text = format!(
                "output '{name}' is {datatype} {shape:?}, which is not a row of floats for each of {rows} texts"
            );
            return Err(Error::internal(text).by_model());
        }
        self.row_bytes = row_bytes;
        self.parts.push(converted);
        Ok(())
    }

    /// The rows.
    pub fn iter(&self) -> impl Iterator<Item = RowValues<'_>> {
        self.parts.iter().flat_map(|part| part.chunks_exact(self.row_bytes.max(4)).map(RowValues))
    }

    /// All rows.
    ///
    /// # Errors
    /// INTERNAL, by the model, for values that are not finite: JSON has none.
    pub fn finite(&self) -> Result<Vec<RowValues<'_>>> {
        let rows: Vec<_> = self.iter().collect();
        match rows.iter().position(|row| !row.is_finite()) {
            None => Ok(rows),
            Some(at) => Err(Error::internal(format!("the model returned NaN or infinity for text {at}")).by_model()),
        }
    }

    /// All rows as lists of JSON, about `bytes` bytes.
    ///
    /// # Errors
    /// INTERNAL, by the model, for values that are not finite; RESOURCE_EXHAUSTED without memory.
    pub fn print(&self, bytes: usize) -> Result<Vec<u8>> {
        super::print(&self.finite()?, bytes)
    }

    /// Bytes of all values.
    pub fn bytes(&self) -> usize {
        self.parts.iter().map(Bytes::len).sum()
    }
}

/// The values as FP32.
fn converted<const N: usize>(data: &[u8], value: impl Fn([u8; N]) -> f32) -> Result<Bytes> {
    let values = data.as_chunks::<N>().0;
    let mut out = Vec::new();
    allowance::reserve(&mut out, values.len() * 4)?;
    values.iter().for_each(|bytes| out.extend_from_slice(&value(*bytes).to_le_bytes()));
    Ok(out.into())
}

/// Values of one row: FP32, little-endian.
#[derive(Debug, Clone, Copy)]
pub struct RowValues<'a>(pub &'a [u8]);

impl RowValues<'_> {
    /// The values.
    pub fn values(self) -> impl ExactSizeIterator<Item = f32> {
        self.0.as_chunks::<4>().0.iter().map(|bytes| f32::from_le_bytes(*bytes))
    }

    /// Whether all values are numbers.
    pub fn is_finite(self) -> bool {
        self.values().all(f32::is_finite)
    }

    /// The cosine of the angle between two rows of equal length; 0 for a row of zeros.
    pub fn cosine(self, other: Self) -> f32 {
        let (mut dot, mut left, mut right) = (0.0f64, 0.0f64, 0.0f64);
        for (a, b) in self.values().zip(other.values()) {
            let (a, b) = (f64::from(a), f64::from(b));
            dot += a * b;
            left += a * a;
            right += b * b;
        }
        let length = (left * right).sqrt();
        if length == 0.0 { 0.0 } else { (dot / length) as f32 }
    }
}

impl Serialize for RowValues<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq(self.values())
    }
}

/// One embedding in the form that the request wants.
#[derive(Debug, Clone, Copy)]
pub enum Embedding<'a> {
    /// A list of numbers.
    Float(RowValues<'a>),
    /// Base64 of the little-endian values.
    Base64(RowValues<'a>),
}

impl Serialize for Embedding<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Float(row) => row.serialize(to),
            Self::Base64(row) => to.serialize_str(&STANDARD.encode(row.0)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(values: &[f32]) -> Vec<u8> {
        values.iter().flat_map(|value| value.to_le_bytes()).collect()
    }

    #[test]
    fn rows_are_numbers_or_base64() {
        let bytes = row(&[0.1, -1.0, 1e-9, 16_777_216.0]);
        let row = RowValues(&bytes);
        assert_eq!(serde_json::to_string(&Embedding::Float(row)).unwrap(), "[0.1,-1.0,1e-9,16777216.0]");
        assert_eq!(serde_json::to_string(&Embedding::Base64(row)).unwrap(), r#""zczMPQAAgL9fcIkwAACASw==""#);
        assert!(row.is_finite() && !RowValues(&f32::NAN.to_le_bytes()).is_finite());
    }

    #[test]
    fn halves_are_converted_exactly() {
        let check = |bits: u16, expected: f32| assert_eq!(f32_of_half(bits), expected, "{bits:#x}");
        check(0x3c00, 1.0);
        check(0xc000, -2.0);
        check(0x0001, 2f32.powi(-24));
        check(0x03ff, 1023.0 * 2f32.powi(-24));
        check(0x7bff, 65504.0);
        check(0x8000, -0.0);
        check(0xfc00, f32::NEG_INFINITY);
        assert!(f32_of_half(0x7e00).is_nan() && f32_of_half(0x8000).is_sign_negative());
    }

    #[test]
    fn outputs_become_rows_of_their_texts() {
        let output = |datatype, data: &[u8]| OutputTensor {
            name: "y".into(),
            index: 0,
            datatype,
            shape: [2, 2].into_iter().collect(),
            data: tensor::Data::Bytes(Bytes::copy_from_slice(data)),
            form: crate::OutputForm::default(),
        };
        let check = |datatype, data: &[u8], expected: &str| {
            let mut rows = Rows::default();
            let added = rows.add(&output(datatype, data), 2);
            let found = added.and_then(|()| Ok(serde_json::to_string(&rows.finite()?).unwrap()));
            assert_eq!(found.unwrap_or_else(|error| error.message().to_owned()), expected);
        };
        let nan = row(&[1.0, 2.0, f32::NAN, 0.0]);
        check(DataType::Fp32, &row(&[1.0, 2.0, 3.0, 0.1]), "[[1.0,2.0],[3.0,0.1]]");
        check(DataType::Fp64, &[1.5f64, 2.0].map(f64::to_le_bytes).concat(), "[[1.5],[2.0]]");
        check(DataType::Fp16, &[0, 0x3c, 0, 0xc0], "[[1.0],[-2.0]]");
        check(DataType::Bf16, &[0x80, 0x3f, 0, 0x40], "[[1.0],[2.0]]");
        check(DataType::Fp32, &nan, "the model returned NaN or infinity for text 1");
        let not = |datatype: &str| {
            format!("output 'y' is {datatype} [2, 2], which is not a row of floats for each of 2 texts")
        };
        check(DataType::Fp32, &row(&[1.0, 2.0, 3.0]), &not("FP32"));
        check(DataType::Int32, &row(&[1.0, 2.0]), &not("INT32"));
        let mut rows = Rows::default();
        rows.add(&output(DataType::Fp32, &row(&[1.0, 2.0])), 2).unwrap();
        assert!(rows.add(&output(DataType::Fp32, &row(&[1.0; 4])), 2).is_err(), "another width");
    }

    #[test]
    fn cosines_do_not_depend_on_lengths() {
        let cosine = |a: &[f32], b: &[f32]| RowValues(&row(a)).cosine(RowValues(&row(b)));
        assert_eq!(cosine(&[3.0, 4.0], &[6.0, 8.0]), 1.0);
        assert_eq!(cosine(&[1.0, 0.0], &[0.0, 2.0]), 0.0);
        assert_eq!(cosine(&[1e30, 0.0], &[-1e30, 0.0]), -1.0);
        assert_eq!(cosine(&[0.0], &[1.0]), 0.0);
    }
}
