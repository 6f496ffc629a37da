//! `TRITONSERVER_Parameter`, and the parameters of requests and responses.

#![allow(unsafe_code)] // pointers of a C API

use super::{c_text, text, value};
#[cfg(test)]
use frames::write;
use protocol::json::{Number, Value};
use std::ffi::{CString, c_char, c_void};
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
    Bytes(*const c_void, u64),
}

// SAFETY: bytes are only an address here; the maker of the parameter keeps them, on whatever thread it is read.
unsafe impl Send for ParameterValue {}
// SAFETY: as above.
unsafe impl Sync for ParameterValue {}

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
            Self::Bytes(base, _) => *base,
        }
    }
}

impl Parameter {
    pub(crate) fn new(name: &str, value: ParameterValue) -> Self {
        Self { name: c_text(name), value }
    }

    /// The parameters of a frame, in their order: a JSON object, or "".
    ///
    /// # Errors
    /// If it is neither.
    pub(crate) fn list(json: &str) -> Result<Box<[Self]>> {
        if json.is_empty() {
            return Ok(Box::default());
        }
        let parameter = |(name, value): (protocol::json::Text<'_>, Value<'_>)| {
            let name = c_text(&String::from_utf8_lossy(&name.decode()));
            let value = match value.number() {
                Some(Number::Double(number)) => ParameterValue::Double(number),
                Some(number) => number.as_i64().map_or(ParameterValue::Double(number.as_f64()), ParameterValue::Int),
                None if value.is_string() => ParameterValue::String(c_text(&value.as_string()?)),
                None => ParameterValue::Bool(value.as_bool()?),
            };
            Ok(Self { name, value })
        };
        Value::parse(json.as_bytes())?.members()?.map(parameter).collect()
    }
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

/// A parameter with a copy of name and value; null for type BYTES, as in Triton.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_ParameterNew(
    name: *const c_char,
    kind: u32,
    value: *const c_void,
) -> *mut Parameter {
    if value.is_null() && kind != 0 {
        return null_mut();
    }
    // SAFETY: the caller promises a value of the type that `kind` says.
    let value = unsafe {
        match kind {
            0 => ParameterValue::String(c_text(&text(value.cast()))),
            1 => ParameterValue::Int(value.cast::<i64>().read()),
            2 => ParameterValue::Bool(value.cast::<u8>().read() != 0),
            3 => ParameterValue::Double(value.cast::<f64>().read()),
            _ => return null_mut(),
        }
    };
    // SAFETY: the caller's promise.
    Box::into_raw(Box::new(Parameter::new(&unsafe { text(name) }, value)))
}

/// A parameter of bytes, which are not copied.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_ParameterBytesNew(
    name: *const c_char,
    byte_ptr: *const c_void,
    size: u64,
) -> *mut Parameter {
    // SAFETY: the caller's promise.
    let name = unsafe { text(name) };
    Box::into_raw(Box::new(Parameter::new(&name, ParameterValue::Bytes(byte_ptr, size))))
}

/// Deletes a parameter.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_ParameterDelete(parameter: *mut Parameter) {
    value(|| {
        if !parameter.is_null() {
            // SAFETY: made by one of the functions above, and the caller's.
            drop(unsafe { Box::from_raw(parameter) });
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;
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
        // SAFETY: values of the types that are said.
        unsafe {
            let made = TRITONSERVER_ParameterNew(c"i".as_ptr(), 1, (&raw const number).cast());
            assert_eq!(*(*made).value.pointer().cast::<i64>(), -5);
            assert_ne!((*made).value.pointer(), (&raw const number).cast());
            TRITONSERVER_ParameterDelete(made);
            let made = TRITONSERVER_ParameterNew(c"s".as_ptr(), 0, c"v".as_ptr().cast());
            assert_eq!((*made).value, ParameterValue::String(c"v".into()));
            TRITONSERVER_ParameterDelete(made);
            assert!(TRITONSERVER_ParameterNew(c"y".as_ptr(), 4, c"x".as_ptr().cast()).is_null());
            assert!(TRITONSERVER_ParameterNew(c"i".as_ptr(), 1, null()).is_null());
            let made = TRITONSERVER_ParameterBytesNew(c"y".as_ptr(), c"xy".as_ptr().cast(), 2);
            assert_eq!(((*made).value.kind(), (*made).value.pointer()), (4, c"xy".as_ptr().cast()));
            TRITONSERVER_ParameterDelete(made);
            TRITONSERVER_ParameterDelete(null_mut());
        }
    }
}
