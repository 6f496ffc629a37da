//! Rows of a response as JSON: numbers, or base64 of them.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::{Serialize, Serializer};

/// Values of one row: FP32, little-endian.
#[derive(Debug, Clone, Copy)]
pub struct Row<'a>(pub &'a [u8]);

impl Row<'_> {
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

impl Serialize for Row<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq(self.values())
    }
}

/// One embedding in the form that the request wants.
#[derive(Debug, Clone, Copy)]
pub enum Embedding<'a> {
    /// A list of numbers.
    Float(Row<'a>),
    /// Base64 of the little-endian values.
    Base64(Row<'a>),
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
        let row = Row(&bytes);
        assert_eq!(serde_json::to_string(&Embedding::Float(row)).unwrap(), "[0.1,-1.0,1e-9,16777216.0]");
        assert_eq!(serde_json::to_string(&Embedding::Base64(row)).unwrap(), r#""zczMPQAAgL9fcIkwAACASw==""#);
        assert!(row.is_finite() && !Row(&f32::NAN.to_le_bytes()).is_finite());
    }

    #[test]
    fn cosines_do_not_depend_on_lengths() {
        let cosine = |a: &[f32], b: &[f32]| Row(&row(a)).cosine(Row(&row(b)));
        assert_eq!(cosine(&[3.0, 4.0], &[6.0, 8.0]), 1.0);
        assert_eq!(cosine(&[1.0, 0.0], &[0.0, 2.0]), 0.0);
        assert_eq!(cosine(&[1e30, 0.0], &[-1e30, 0.0]), -1.0);
        assert_eq!(cosine(&[0.0], &[1.0]), 0.0);
    }
}
