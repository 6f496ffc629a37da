//! `TRITONSERVER_Parameter`, and the parameters of requests and responses.

#![allow(unsafe_code)] // values whose type is another argument

use super::c_text;
use super::exports::{Lent, Out, exports, objects};
use crate::json;
use crate::library::Address;
#[cfg(test)]
use frames::write;
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use std::ffi::{CStr, CString, c_char, c_void};
use std::fmt::Formatter;
use std::ptr::null_mut;
use tensor::{Name, Result};

/// The value of a parameter.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum ParameterValue {
    String(CString),
    Int(i64),
    Bool(bool),
    Double(f64),
    /// Address and length of bytes that the maker of the parameter owns.
    Bytes(Address<u8>, u64),
}

/// A name and a value.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Parameter {
    pub(crate) name: CString,
    pub(crate) value: ParameterValue,
}

impl ParameterValue {
    /// `TRITONSERVER_ParameterType`.
    pub(crate) fn kind(&self) -> u32 {
        match self {
            Self::String(_) => 0,
            Self::Int(_) => 1,
            Self::Bool(_) => 2,
            Self::Double(_) => 3,
            Self::Bytes(..) => 4,
        }
    }

    /// Where libraries read the value; valid while the value is neither moved nor dropped.
    pub(crate) fn pointer(&self) -> *const c_void {
        match self {
            Self::String(text) => text.as_ptr().cast(),
            Self::Int(number) => (&raw const *number).cast(),
            Self::Bool(is) => (&raw const *is).cast(),
            Self::Double(number) => (&raw const *number).cast(),
            Self::Bytes(base, _) => base.0.cast_const().cast(),
        }
    }
}

impl Parameter {
    /// Gives name, type and value to a library.
    pub(crate) fn put(&self, name: &Out<Lent<c_char>>, kind: &Out<u32>, value: &Out<Lent<c_void>>) {
        name.put(self.name.as_ptr());
        kind.put(self.value.kind());
        value.put(self.value.pointer());
    }

    /// The bytes of a parameter; `None` if it is of another type.
    pub(crate) fn bytes(&self) -> Option<&[u8]> {
        let ParameterValue::Bytes(base, bytes) = self.value else { return None };
        // SAFETY: the maker of the parameter keeps so many bytes there, as `TRITONSERVER_ParameterBytesNew` asks.
        Some(unsafe { std::slice::from_raw_parts(base.0, bytes as usize) })
    }

    /// The parameters of a frame, in their order: a JSON object, or "".
    ///
    /// # Errors
    /// If it is neither.
    pub(crate) fn list(json: &str) -> Result<Box<[Self]>> {
        if json.is_empty() {
            return Ok(Box::default());
        }
        Ok(json::read::<Members>(json)?.0.into_boxed_slice())
    }
}

/// The parameters of a JSON object, in their order.
struct Members(Vec<Parameter>);

impl<'de> Deserialize<'de> for Members {
    fn deserialize<D: Deserializer<'de>>(from: D) -> std::result::Result<Self, D::Error> {
        struct Object;
        impl<'de> Visitor<'de> for Object {
            type Value = Members;

            fn expecting(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
                f.write_str("an object of texts, numbers and truth values")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> std::result::Result<Members, A::Error> {
                let mut all = Vec::new();
                while let Some((name, value)) = map.next_entry::<String, Scalar>()? {
                    let value = match value {
                        Scalar::Bool(is) => ParameterValue::Bool(is),
                        Scalar::Int(number) => ParameterValue::Int(number),
                        Scalar::Double(number) => ParameterValue::Double(number),
                        Scalar::String(text) => ParameterValue::String(c_text(&text)),
                    };
                    all.push(Parameter { name: c_text(&name), value });
                }
                Ok(Members(all))
            }
        }
        from.deserialize_map(Object)
    }
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Scalar {
    Bool(bool),
    Int(i64),
    Double(f64),
    String(String),
}

/// Parameters as they are written into a frame. Bytes cannot be sent and are left out.
pub(crate) fn for_frame(parameters: &[Parameter]) -> Vec<(Name, protocol::Parameter)> {
    let lossy = |text: &CString| Name::from_utf8_lossy(text.as_bytes().to_vec().into());
    let parameter = |Parameter { name, value }: &Parameter| {
        let value = match value {
            ParameterValue::String(text) => protocol::Parameter::String(lossy(text)),
            ParameterValue::Int(number) => protocol::Parameter::Int(*number),
            ParameterValue::Bool(is) => protocol::Parameter::Bool(*is),
            ParameterValue::Double(number) => protocol::Parameter::Double(*number),
            ParameterValue::Bytes(..) => return None,
        };
        Some((lossy(name), value))
    };
    parameters.iter().filter_map(parameter).collect()
}

/// Parameters as a JSON object, or "".
#[cfg(test)]
pub(crate) fn to_json(parameters: &[Parameter]) -> String {
    let mut json = Vec::new();
    write::parameters(&mut json, &for_frame(parameters));
    String::from_utf8(json).unwrap_or_default()
}

objects! {
    Parameter: "parameter";
}

exports! {
    /// A parameter with a copy of name and value; null for type BYTES, as in Triton.
    "attr" fn TRITONSERVER_ParameterNew(name: CString, kind: u32, value: Lent<c_void>) -> *mut Parameter {
        if value.is_null() && kind != 0 {
            return Ok(null_mut());
        }
        // SAFETY: the library passes a value of the type that `kind` says: a NUL-terminated text, or a number.
        let value = unsafe {
            match kind {
                0 if value.is_null() => ParameterValue::String(CString::default()),
                0 => ParameterValue::String(c_text(&CStr::from_ptr(value.cast()).to_string_lossy())),
                1 => ParameterValue::Int(value.cast::<i64>().read()),
                2 => ParameterValue::Bool(value.cast::<u8>().read() != 0),
                3 => ParameterValue::Double(value.cast::<f64>().read()),
                _ => return Ok(null_mut()),
            }
        };
        Box::into_raw(Box::new(Parameter { name, value }))
    }

    /// A parameter of bytes, which are not copied.
    "attr" fn TRITONSERVER_ParameterBytesNew(name: CString, byte_ptr: *mut u8, size: u64) -> *mut Parameter {
        Box::into_raw(Box::new(Parameter { name, value: ParameterValue::Bytes(Address(byte_ptr), size) }))
    }

    "attr" fn TRITONSERVER_ParameterDelete(parameter: Option<Box<Parameter>>) -> () { drop(parameter) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::abi::exports::library::{at, nothing, pass};
    use std::ptr::null;

    #[test]
    fn parameters_of_a_frame_keep_type_and_order() {
        let json = r#"{"i":1,"s":"tw\"o","b":true,"d":1.5,"e":1.0,"n":-9007199254740993}"#;
        let list = Parameter::list(json).expect("parameters");
        assert_eq!(list.iter().map(|p| p.value.kind()).collect::<Vec<_>>(), [1, 0, 2, 3, 3, 1]);
        assert_eq!(list[5].value, ParameterValue::Int(-9_007_199_254_740_993));
        assert_eq!(to_json(&list), json);
        assert!(Parameter::list("").expect("none").is_empty());
        assert_eq!(to_json(&[]), "");
        assert!(Parameter::list("[]").is_err() && Parameter::list(r#"{"a":null}"#).is_err());
    }

    #[test]
    fn a_new_parameter_copies_its_value_and_bytes_need_a_function_of_their_own() {
        let number = -5i64;
        let new = |name: &CStr, kind, value: *const c_void| TRITONSERVER_ParameterNew(pass(name.as_ptr()), kind, value);
        let made = new(c"i", 1, (&raw const number).cast());
        assert_eq!(at(made).value, ParameterValue::Int(-5));
        assert_ne!(at(made).value.pointer(), (&raw const number).cast());
        TRITONSERVER_ParameterDelete(pass(made));
        let made = new(c"s", 0, c"v".as_ptr().cast());
        assert_eq!(at(made).value, ParameterValue::String(c"v".into()));
        TRITONSERVER_ParameterDelete(pass(made));
        assert!(new(c"y", 4, c"x".as_ptr().cast()).is_null());
        assert!(new(c"i", 1, null()).is_null());
        let bytes = c"xy".as_ptr().cast_mut().cast::<u8>();
        let made = TRITONSERVER_ParameterBytesNew(pass(c"y".as_ptr()), bytes, 2);
        assert_eq!((at(made).value.kind(), at(made).value.pointer()), (4, bytes.cast_const().cast()));
        assert_eq!(at(made).bytes(), Some(&b"xy"[..]));
        TRITONSERVER_ParameterDelete(pass(made));
        TRITONSERVER_ParameterDelete(nothing());
    }
}
