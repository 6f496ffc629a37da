//! Version of the API, and the names of its numbers.

#![allow(unsafe_code)] // pointers of a C API

use super::exports::{Out, exports};
use std::ffi::{CStr, c_char};
use tensor::DataType;

/// Version of the server API.
const VERSION: (u32, u32) = (1, 34);

/// Names of datatypes by number, from 1.
const DATATYPES: [&CStr; 14] = [
    c"BOOL", c"UINT8", c"UINT16", c"UINT32", c"UINT64", c"INT8", c"INT16", c"INT32", c"INT64", c"FP16", c"FP32",
    c"FP64", c"BYTES", c"BF16",
];

/// The name with this number, or what Triton has instead of one.
fn name(names: &[&'static CStr], number: u32, otherwise: &'static CStr) -> *const c_char {
    names.get(number as usize).unwrap_or(&otherwise).as_ptr()
}

exports! {
    /// The version of the server API.
    fn TRITONSERVER_ApiVersion(major: Out<u32>, minor: Out<u32>) {
        major.put(VERSION.0);
        minor.put(VERSION.1);
    }
}

/// The name of a datatype.
#[unsafe(no_mangle)]
pub extern "C" fn TRITONSERVER_DataTypeString(datatype: u32) -> *const c_char {
    name(&DATATYPES, datatype.wrapping_sub(1), c"<invalid>")
}

/// The datatype of a name, 0 if there is none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_StringToDataType(dtype: *const c_char) -> u32 {
    if dtype.is_null() {
        return 0;
    }
    // SAFETY: the caller's promise.
    let name = unsafe { CStr::from_ptr(dtype) };
    DataType::from_bytes(name.to_bytes()).map_or(0, |datatype| datatype as u32)
}

/// Bytes of one element, 0 if they vary.
#[unsafe(no_mangle)]
pub extern "C" fn TRITONSERVER_DataTypeByteSize(datatype: u32) -> u32 {
    let datatype = i32::try_from(datatype).ok().and_then(DataType::from_number);
    datatype.and_then(DataType::byte_size).map_or(0, |bytes| bytes as u32)
}

/// The name of a memory type.
#[unsafe(no_mangle)]
pub extern "C" fn TRITONSERVER_MemoryTypeString(memtype: u32) -> *const c_char {
    name(&[c"CPU", c"CPU_PINNED", c"GPU"], memtype, c"<invalid>")
}

/// The name of a type of parameters.
#[unsafe(no_mangle)]
pub extern "C" fn TRITONSERVER_ParameterTypeString(paramtype: u32) -> *const c_char {
    name(&[c"STRING", c"INT", c"BOOL", c"DOUBLE", c"BYTES"], paramtype, c"<invalid>")
}

/// The name of a kind of instance groups.
#[unsafe(no_mangle)]
pub extern "C" fn TRITONSERVER_InstanceGroupKindString(kind: u32) -> *const c_char {
    name(&[c"AUTO", c"CPU", c"GPU", c"MODEL"], kind, c"<invalid>")
}

/// The name of one level of traces; a sum of levels has none.
#[unsafe(no_mangle)]
pub extern "C" fn TRITONSERVER_InferenceTraceLevelString(level: u32) -> *const c_char {
    let found = match level {
        0 => c"DISABLED",
        1 => c"MIN",
        2 => c"MAX",
        4 => c"TIMESTAMPS",
        8 => c"TENSORS",
        _ => c"<unknown>",
    };
    found.as_ptr()
}

/// The name of an activity of traces.
#[unsafe(no_mangle)]
pub extern "C" fn TRITONSERVER_InferenceTraceActivityString(activity: u32) -> *const c_char {
    const NAMES: [&CStr; 11] = [
        c"REQUEST_START",
        c"QUEUE_START",
        c"COMPUTE_START",
        c"COMPUTE_INPUT_END",
        c"COMPUTE_OUTPUT_START",
        c"COMPUTE_END",
        c"REQUEST_END",
        c"TENSOR_QUEUE_INPUT",
        c"TENSOR_BACKEND_INPUT",
        c"TENSOR_BACKEND_OUTPUT",
        c"CUSTOM_ACTIVITY",
    ];
    name(&NAMES, activity, c"<unknown>")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The text at a static pointer.
    fn said(text: *const c_char) -> &'static str {
        // SAFETY: the functions above return static texts.
        unsafe { CStr::from_ptr(text) }.to_str().expect("UTF-8")
    }

    #[test]
    fn datatypes_have_the_names_numbers_and_sizes_of_the_server() {
        for datatype in DataType::ALL {
            let number = datatype as u32;
            assert_eq!(said(TRITONSERVER_DataTypeString(number)), datatype.name());
            assert_eq!(TRITONSERVER_DataTypeByteSize(number) as usize, datatype.byte_size().unwrap_or(0));
            // SAFETY: a static text.
            assert_eq!(unsafe { TRITONSERVER_StringToDataType(TRITONSERVER_DataTypeString(number)) }, number);
        }
        for no in [0, 15, u32::MAX] {
            assert_eq!(said(TRITONSERVER_DataTypeString(no)), "<invalid>");
            assert_eq!(TRITONSERVER_DataTypeByteSize(no), 0);
        }
        for no in [c"fp32", c"STRING", c"TYPE_FP32", c""] {
            // SAFETY: a static text.
            assert_eq!(unsafe { TRITONSERVER_StringToDataType(no.as_ptr()) }, 0);
        }
    }

    #[test]
    fn numbers_beyond_the_last_have_the_words_of_triton() {
        assert_eq!(
            [0, 1, 2, 3].map(|n| said(TRITONSERVER_MemoryTypeString(n))),
            ["CPU", "CPU_PINNED", "GPU", "<invalid>"]
        );
        assert_eq!(said(TRITONSERVER_ParameterTypeString(5)), "<invalid>");
        assert_eq!([0, 3, 4].map(|n| said(TRITONSERVER_InstanceGroupKindString(n))), ["AUTO", "MODEL", "<invalid>"]);
        assert_eq!(
            [0, 4, 12].map(|n| said(TRITONSERVER_InferenceTraceLevelString(n))),
            ["DISABLED", "TIMESTAMPS", "<unknown>"]
        );
        assert_eq!(
            [10, 11].map(|n| said(TRITONSERVER_InferenceTraceActivityString(n))),
            ["CUSTOM_ACTIVITY", "<unknown>"]
        );
    }
}
