//! The functions of Triton's C API that this backend uses, and the clock of its statistics.
//! The whole API is in include/triton/core.

use std::ffi::{c_char, c_int, c_void};

macro_rules! opaque {
    ($($name:ident)*) => { $(#[repr(C)] pub struct $name { _private: [u8; 0] })* };
}

opaque! { Backend Input Instance Output Request Response ServerError }

/// Null, or an error that its receiver owns.
pub type Err = *mut ServerError;

pub const API_MAJOR: u32 = 1;
pub const API_MINOR: u32 = 19;
pub const ERROR_INTERNAL: u32 = 1;
pub const ERROR_UNSUPPORTED: u32 = 5;
pub const MEMORY_CPU: u32 = 0;
pub const MEMORY_GPU: u32 = 2;
pub const RELEASE_ALL: u32 = 1;
pub const RESPONSE_FINAL: u32 = 1;

pub const CLOCK_MONOTONIC: c_int = 1;

/// `struct timespec` of 64-bit Linux.
#[repr(C)]
pub struct Timespec {
    pub seconds: i64,
    pub nanoseconds: i64,
}

extern "C" {
    pub fn clock_gettime(clock: c_int, time: *mut Timespec) -> c_int;
    #[link_name = "TRITONSERVER_ErrorNew"]
    pub fn error_new(code: u32, message: *const c_char) -> Err;
    #[link_name = "TRITONSERVER_ErrorDelete"]
    pub fn error_delete(error: Err);
    #[link_name = "TRITONBACKEND_ApiVersion"]
    pub fn api_version(major: *mut u32, minor: *mut u32) -> Err;
    #[link_name = "TRITONBACKEND_RequestInput"]
    pub fn request_input(request: *mut Request, name: *const c_char, input: *mut *mut Input) -> Err;
    #[link_name = "TRITONBACKEND_InputProperties"]
    pub fn input_properties(
        input: *mut Input, name: *mut *const c_char, datatype: *mut u32, shape: *mut *const i64, dims: *mut u32,
        bytes: *mut u64, buffers: *mut u32,
    ) -> Err;
    #[link_name = "TRITONBACKEND_InputBuffer"]
    pub fn input_buffer(
        input: *mut Input, index: u32, buffer: *mut *const c_void, bytes: *mut u64, memory_type: *mut u32,
        memory_id: *mut i64,
    ) -> Err;
    #[link_name = "TRITONBACKEND_ResponseNew"]
    pub fn response_new(response: *mut *mut Response, request: *mut Request) -> Err;
    #[link_name = "TRITONBACKEND_ResponseOutput"]
    pub fn response_output(
        response: *mut Response, output: *mut *mut Output, name: *const c_char, datatype: u32, shape: *const i64,
        dims: u32,
    ) -> Err;
    #[link_name = "TRITONBACKEND_OutputBuffer"]
    pub fn output_buffer(
        output: *mut Output, buffer: *mut *mut c_void, bytes: u64, memory_type: *mut u32, memory_id: *mut i64,
    ) -> Err;
    #[link_name = "TRITONBACKEND_ResponseSend"]
    pub fn response_send(response: *mut Response, flags: u32, error: Err) -> Err;
    #[link_name = "TRITONBACKEND_RequestRelease"]
    pub fn request_release(request: *mut Request, flags: u32) -> Err;
    #[link_name = "TRITONBACKEND_ModelInstanceReportStatistics"]
    pub fn report_statistics(
        instance: *mut Instance, request: *mut Request, success: bool, start: u64, compute_start: u64,
        compute_end: u64, end: u64,
    ) -> Err;
    #[link_name = "TRITONBACKEND_ModelInstanceReportBatchStatistics"]
    pub fn report_batch_statistics(
        instance: *mut Instance, rows: u64, start: u64, compute_start: u64, compute_end: u64, end: u64,
    ) -> Err;
}
