//! Version of the API, and the names of its numbers.

use super::exports::{Lent, Out, exports};
use std::ffi::{CStr, c_char};
use tensor::DataType;

/// Version of the server API.
const VERSION: (u32, u32) = (1, 34);

/// Functions that name numbers: the names from a number on, and what Triton has for all others.
macro_rules! names {
    ($($function:ident from $first:literal: $($name:literal)*, or $otherwise:literal;)*) => {
        exports! { $(
            "attr" fn $function(number: u32) -> Lent<c_char> {
                const NAMES: &[&CStr] = &[$($name),*];
                NAMES.get(number.wrapping_sub($first) as usize).unwrap_or(&$otherwise).as_ptr()
            }
        )* }
    };
}

names! {
    TRITONSERVER_DataTypeString from 1: c"BOOL" c"UINT8" c"UINT16" c"UINT32" c"UINT64" c"INT8" c"INT16" c"INT32"
        c"INT64" c"FP16" c"FP32" c"FP64" c"BYTES" c"BF16", or c"<invalid>";
    TRITONSERVER_MemoryTypeString from 0: c"CPU" c"CPU_PINNED" c"GPU", or c"<invalid>";
    TRITONSERVER_ParameterTypeString from 0: c"STRING" c"INT" c"BOOL" c"DOUBLE" c"BYTES", or c"<invalid>";
    TRITONSERVER_InstanceGroupKindString from 0: c"AUTO" c"CPU" c"GPU" c"MODEL", or c"<invalid>";
    // A sum of levels has no name.
    TRITONSERVER_InferenceTraceLevelString from 0: c"DISABLED" c"MIN" c"MAX" c"<unknown>" c"TIMESTAMPS" c"<unknown>"
        c"<unknown>" c"<unknown>" c"TENSORS", or c"<unknown>";
    TRITONSERVER_InferenceTraceActivityString from 0: c"REQUEST_START" c"QUEUE_START" c"COMPUTE_START"
        c"COMPUTE_INPUT_END" c"COMPUTE_OUTPUT_START" c"COMPUTE_END" c"REQUEST_END" c"TENSOR_QUEUE_INPUT"
        c"TENSOR_BACKEND_INPUT" c"TENSOR_BACKEND_OUTPUT" c"CUSTOM_ACTIVITY", or c"<unknown>";
}

exports! {
    "attr" fn TRITONSERVER_ApiVersion(major: Out<u32>, minor: Out<u32>) {
        major.put(VERSION.0);
        minor.put(VERSION.1);
    }

    /// The datatype of a name, 0 if there is none.
    "attr" fn TRITONSERVER_StringToDataType(dtype: String) -> u32 {
        DataType::from_name(&dtype).map_or(0, |datatype| datatype as u32)
    }

    /// Bytes of one element, 0 if they vary.
    "attr" fn TRITONSERVER_DataTypeByteSize(datatype: u32) -> u32 {
        let datatype = i32::try_from(datatype).ok().and_then(DataType::from_number);
        datatype.and_then(DataType::byte_size).map_or(0, |bytes| bytes as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::abi::exports::library::{pass, text_at};

    #[test]
    fn datatypes_have_the_names_numbers_and_sizes_of_the_server() {
        for datatype in DataType::ALL {
            let number = datatype as u32;
            assert_eq!(text_at(TRITONSERVER_DataTypeString(number)), datatype.name());
            assert_eq!(TRITONSERVER_DataTypeByteSize(number) as usize, datatype.byte_size().unwrap_or(0));
            assert_eq!(TRITONSERVER_StringToDataType(pass(TRITONSERVER_DataTypeString(number))), number);
        }
        for no in [0, 15, u32::MAX] {
            assert_eq!(text_at(TRITONSERVER_DataTypeString(no)), "<invalid>");
            assert_eq!(TRITONSERVER_DataTypeByteSize(no), 0);
        }
        for no in [c"fp32", c"STRING", c"TYPE_FP32", c""] {
            assert_eq!(TRITONSERVER_StringToDataType(pass(no.as_ptr())), 0);
        }
    }

    #[test]
    fn numbers_beyond_the_last_have_the_words_of_triton() {
        let names = |function: extern "C" fn(u32) -> Lent<c_char>, numbers: &[u32]| {
            numbers.iter().map(|number| text_at(function(*number))).collect::<Vec<_>>()
        };
        let memory = names(TRITONSERVER_MemoryTypeString, &[0, 1, 2, 3]);
        assert_eq!(memory, ["CPU", "CPU_PINNED", "GPU", "<invalid>"]);
        assert_eq!(names(TRITONSERVER_ParameterTypeString, &[5]), ["<invalid>"]);
        assert_eq!(names(TRITONSERVER_InstanceGroupKindString, &[0, 3, 4]), ["AUTO", "MODEL", "<invalid>"]);
        let levels = names(TRITONSERVER_InferenceTraceLevelString, &[0, 3, 4, 8, 12]);
        assert_eq!(levels, ["DISABLED", "<unknown>", "TIMESTAMPS", "TENSORS", "<unknown>"]);
        let activities = names(TRITONSERVER_InferenceTraceActivityString, &[0, 10, 11]);
        assert_eq!(activities, ["REQUEST_START", "CUSTOM_ACTIVITY", "<unknown>"]);
    }
}
