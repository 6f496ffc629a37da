//! Generated from shm/include by scripts/generate-triton-stubs.mjs: not to be edited.
//!
//! Functions of Triton's C API that this host does not have. They take no arguments: in the C ABI of x86-64 and arm64
//! the caller passes and removes them, and a function that reads none can be called with any.

#![allow(unsafe_code)] // exported names

use crate::abi::{Err, missing};

macro_rules! failing {
    ($($name:ident)*) => {
        $(
            #[unsafe(no_mangle)]
            pub extern "C" fn $name() -> Err {
                missing(stringify!($name))
            }
        )*
    };
}

failing! {
    TRITONSERVER_InferenceTraceNew
    TRITONSERVER_InferenceTraceTensorNew
    TRITONSERVER_InferenceTraceSetContext
    TRITONSERVER_InferenceRequestAddRawInput
    TRITONSERVER_InferenceResponseOutputClassificationLabel
}
