//! Tensors as text.

use std::fmt::Write;
use tensor::strings::Strings;
use tensor::{DataType, f32_of_half};

/// Joins the elements by commas, in the form of [`RecordedTensor::text`](crate::RecordedTensor::text); leaves out a
/// string that is cut.
pub(crate) fn elements(datatype: DataType, data: &[u8]) -> String {
    let mut out = String::with_capacity(data.len());
    match datatype {
        DataType::Bool | DataType::Uint8 => numbers(&mut out, data, |[b]| b),
        DataType::Uint16 => numbers(&mut out, data, u16::from_le_bytes),
        DataType::Uint32 => numbers(&mut out, data, u32::from_le_bytes),
        DataType::Uint64 => numbers(&mut out, data, u64::from_le_bytes),
        DataType::Int8 => numbers(&mut out, data, i8::from_le_bytes),
        DataType::Int16 => numbers(&mut out, data, i16::from_le_bytes),
        DataType::Int32 => numbers(&mut out, data, i32::from_le_bytes),
        DataType::Int64 => numbers(&mut out, data, i64::from_le_bytes),
        DataType::Fp16 => numbers(&mut out, data, |b| Float(f32_of_half(u16::from_le_bytes(b)))),
        DataType::Bf16 => {
            numbers(&mut out, data, |b| Float(f32::from_bits(u32::from(u16::from_le_bytes(b)) << 16)));
        }
        DataType::Fp32 => numbers(&mut out, data, |b| Float(f32::from_le_bytes(b))),
        DataType::Fp64 => numbers(&mut out, data, |b| Float(f64::from_le_bytes(b))),
        DataType::Bytes => strings(&mut out, data),
    }
    out
}

fn numbers<const N: usize, T: std::fmt::Display>(out: &mut String, data: &[u8], read: impl Fn([u8; N]) -> T) {
    for element in data.as_chunks::<N>().0 {
        if !out.is_empty() {
            out.push(',');
        }
        // Writing to a string does not fail.
        let _ = write!(out, "{}", read(*element));
    }
}

/// A float that is printed with an exponent if it would have many zeros.
struct Float<T>(T);

impl<T: Copy + Into<f64> + std::fmt::Display + std::fmt::LowerExp> std::fmt::Display for Float<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let magnitude: f64 = self.0.into().abs();
        let is_plain = magnitude == 0.0 || (1e-5..1e16).contains(&magnitude) || !magnitude.is_finite();
        if is_plain { write!(f, "{}", self.0) } else { write!(f, "{:e}", self.0) }
    }
}

fn strings(out: &mut String, data: &[u8]) {
    for element in Strings::new(data) {
        // The last string may be cut.
        let Ok(element) = element else { return };
        if !out.is_empty() {
            out.push(',');
        }
        quoted(out, &String::from_utf8_lossy(element));
    }
}

/// Appends a JSON string.
pub(crate) fn quoted(out: &mut String, text: &str) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            // Writing to a string does not fail.
            '\0'..' ' => _ = write!(out, "\\u{:04x}", u32::from(c)),
            c => out.push(c),
        }
    }
    out.push('"');
}
