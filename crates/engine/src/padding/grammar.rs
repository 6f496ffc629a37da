//! Parser of parameter values: `[dim,dim] value=V`. Pure; bounded by the text. `config` defines their meaning.

use smallvec::SmallVec;
use tensor::DataType;

/// A parsed value.
#[derive(Debug, PartialEq)]
pub(crate) struct Parsed<'t> {
    pub(crate) dims: Vec<Dim<'t>>,
    pub(crate) value: Option<&'t str>,
}

#[derive(Debug, PartialEq)]
pub(crate) enum Dim<'t> {
    Fixed(i64),
    Named(&'t str),
}

/// Returns `None` if the text is not of the form `[dim,dim] value=V`.
pub(crate) fn parse(text: &str) -> Option<Parsed<'_>> {
    let (dims, rest) = text.trim().strip_prefix('[')?.split_once(']')?;
    let dims = dims.split(',').map(str::trim).map(|item| match item.parse() {
        Ok(number) => Some(Dim::Fixed(number)),
        Err(_) => is_name(item).then_some(Dim::Named(item)),
    });
    let rest = rest.trim();
    let value = match rest.strip_prefix("value") {
        None if rest.is_empty() => None,
        None => return None,
        Some(value) => Some(value.trim_start().strip_prefix('=')?.trim()),
    };
    Some(Parsed { dims: dims.collect::<Option<_>>()?, value })
}

fn is_name(text: &str) -> bool {
    let mut bytes = text.bytes();
    bytes.next().is_some_and(|b| b.is_ascii_alphabetic() || b == b'_')
        && bytes.all(|b| b.is_ascii_alphanumeric() || b == b'_')
}

/// The bytes of an element; `None` if the datatype has no such value.
pub(crate) fn element(datatype: DataType, text: &str) -> Option<SmallVec<[u8; 8]>> {
    macro_rules! bytes {
        ($number:ty) => {
            SmallVec::from_slice(&text.parse::<$number>().ok()?.to_le_bytes())
        };
    }
    Some(match datatype {
        DataType::Bool => match text {
            "0" | "false" => SmallVec::from_slice(&[0]),
            "1" | "true" => SmallVec::from_slice(&[1]),
            _ => return None,
        },
        DataType::Uint8 => bytes!(u8),
        DataType::Uint16 => bytes!(u16),
        DataType::Uint32 => bytes!(u32),
        DataType::Uint64 => bytes!(u64),
        DataType::Int8 => bytes!(i8),
        DataType::Int16 => bytes!(i16),
        DataType::Int32 => bytes!(i32),
        DataType::Int64 => bytes!(i64),
        DataType::Fp32 => bytes!(f32),
        DataType::Fp64 => bytes!(f64),
        DataType::Fp16 => SmallVec::from_slice(&half(text.parse().ok()?)?.to_le_bytes()),
        DataType::Bf16 => {
            let bits = text.parse::<f32>().ok()?.to_bits();
            let upper = u16::try_from(bits >> 16).ok().filter(|_| bits.trailing_zeros() >= 16)?;
            SmallVec::from_slice(&upper.to_le_bytes())
        }
        DataType::Bytes => return None,
    })
}

/// A number as IEEE half, if that is exact and not subnormal.
fn half(number: f32) -> Option<u16> {
    let bits = number.to_bits();
    let sign = u16::try_from(bits >> 31).ok()? << 15;
    let (exponent, mantissa) = ((bits >> 23 & 0xff) as i32 - 127, bits & 0x7f_ffff);
    match exponent {
        -127 if mantissa == 0 => Some(sign),
        128 if mantissa == 0 => Some(sign | 0x7c00),
        -14..=15 if mantissa.trailing_zeros() >= 13 => {
            Some(sign | (u16::try_from(exponent + 15).ok()? << 10) | u16::try_from(mantissa >> 13).ok()?)
        }
        _ => None,
    }
}

/// The name of each dimension, if it has one; `None` if the parameter does not fit the configured dims.
pub(crate) fn names<'t>(parsed: &Parsed<'t>, dims: &[i64]) -> Option<Vec<Option<&'t str>>> {
    if parsed.dims.len() != dims.len() {
        return None;
    }
    let named = parsed.dims.iter().zip(dims).map(|(written, dim)| match written {
        Dim::Fixed(number) => (number == dim).then_some(None),
        Dim::Named(name) => (*dim == -1).then_some(Some(*name)),
    });
    named.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_parameter_is_dims_with_names_and_an_optional_value() {
        let named = |text| parse(text).map(|p| (format!("{:?}", p.dims), p.value));
        assert_eq!(named("[tokens]"), Some(("[Named(\"tokens\")]".into(), None)));
        assert_eq!(
            named(" [ tokens , 384 ] value = -1 "),
            Some(("[Named(\"tokens\"), Fixed(384)]".into(), Some("-1")))
        );
        assert_eq!(named("[-1]"), Some(("[Fixed(-1)]".into(), None)));
        for wrong in
            ["", "tokens", "[]", "[tokens", "[to kens]", "[tokens,]", "[9x]", "[a] 0", "[a] value", "[a] val=0"]
        {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_padding_value_must_fit_its_datatype() {
        let check = |datatype, text, expected: Option<&[u8]>| {
            assert_eq!(element(datatype, text).as_deref(), expected, "{datatype:?} {text}");
        };
        check(DataType::Int64, "-1", Some(&[255; 8]));
        check(DataType::Uint8, "256", None);
        check(DataType::Bool, "true", Some(&[1]));
        check(DataType::Bool, "2", None);
        check(DataType::Fp32, "1.5", Some(&1.5f32.to_le_bytes()));
        check(DataType::Fp16, "1", Some(&[0, 0x3c]));
        check(DataType::Fp16, "-0.5", Some(&[0, 0xb8]));
        check(DataType::Fp16, "65504", Some(&[0xff, 0x7b]));
        check(DataType::Fp16, "-inf", Some(&[0, 0xfc]));
        check(DataType::Fp16, "0.1", None);
        check(DataType::Bf16, "-10000", None);
        check(DataType::Bf16, "-2", Some(&[0, 0xc0]));
        check(DataType::Int32, "1.0", None);
        check(DataType::Bytes, "x", None);
    }
}
