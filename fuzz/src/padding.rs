//! Values of the parameters `nereid.padding.TENSOR`: the first byte is the datatype, the rest the text.

use crate::grammar::{Dim, element, names, parse};
use tensor::DataType;

/// Takes a value.
///
/// # Panics
/// It is read otherwise when it is printed and read again, or an element has not the size of its type.
pub fn padding(data: &[u8]) -> bool {
    let Some((first, text)) = data.split_first() else { return false };
    let (Ok(text), Some(datatype)) = (std::str::from_utf8(text), DataType::from_number(i32::from(first % 14) + 1))
    else {
        return false;
    };
    let Some(parsed) = parse(text) else { return false };
    let printed = parsed.dims.iter().map(|dim| match dim {
        Dim::Fixed(number) => number.to_string(),
        Dim::Named(name) => (*name).to_owned(),
    });
    let value = parsed.value.map_or(String::new(), |value| format!(" value={value}"));
    let again = format!("[{}]{value}", printed.collect::<Vec<_>>().join(","));
    assert_eq!(parse(&again).as_ref(), Some(&parsed), "{again}");
    let dims: Vec<i64> = parsed.dims.iter().map(|dim| if let Dim::Fixed(n) = dim { *n } else { -1 }).collect();
    assert_eq!(names(&parsed, &dims).map(|named| named.len()), Some(dims.len()), "its own dims fit");
    if let Some(bytes) = parsed.value.and_then(|value| element(datatype, value)) {
        assert_eq!(Some(bytes.len()), datatype.byte_size());
    }
    true
}
