/** Files that `nereid new backend` writes: the same backend in C and in Rust, and a model and a test for either. */

import type { ModelFile } from '../init/place.js'

const C_SOURCE = (name: string): string => `// Backend ${name}: copies INPUT0 of each request to OUTPUT0.
#define _POSIX_C_SOURCE 200809L
#include <string.h>
#include <time.h>
#include "triton/core/tritonbackend.h"

// Returns the error of a call to its caller, who owns it then.
#define TRY(call)                       \\
  do {                                  \\
    TRITONSERVER_Error* failed = call;  \\
    if (failed != NULL) return failed;  \\
  } while (0)

static uint64_t now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static TRITONSERVER_Error* require_host_memory(TRITONSERVER_MemoryType type) {
  if (type != TRITONSERVER_MEMORY_GPU) return NULL;
  return TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_UNSUPPORTED, "${name} reads and writes host memory only");
}

// Writes the outputs of one request. The first dimension is the batch: adds its size to rows.
static TRITONSERVER_Error* respond(TRITONBACKEND_Request* request, TRITONBACKEND_Response* response, uint64_t* rows) {
  TRITONBACKEND_Input* input;
  TRITONSERVER_DataType datatype;
  const int64_t* shape;
  uint32_t dims, buffers;
  uint64_t bytes;
  TRY(TRITONBACKEND_RequestInput(request, "INPUT0", &input));
  TRY(TRITONBACKEND_InputProperties(input, NULL, &datatype, &shape, &dims, &bytes, &buffers));
  *rows += dims > 0 ? (uint64_t)shape[0] : 1;

  TRITONBACKEND_Output* output;
  void* to;
  TRITONSERVER_MemoryType type = TRITONSERVER_MEMORY_CPU;
  int64_t id = 0;
  TRY(TRITONBACKEND_ResponseOutput(response, &output, "OUTPUT0", datatype, shape, dims));
  TRY(TRITONBACKEND_OutputBuffer(output, &to, bytes, &type, &id));
  TRY(require_host_memory(type));

  // An input may come in several buffers.
  char* next = to;
  for (uint32_t i = 0; i < buffers; i++) {
    const void* from;
    uint64_t part;
    type = TRITONSERVER_MEMORY_CPU;
    TRY(TRITONBACKEND_InputBuffer(input, i, &from, &part, &type, &id));
    TRY(require_host_memory(type));
    memcpy(next, from, part);  // your code
    next += part;
  }
  return NULL;
}

// Rejects servers whose API is older than the one this was compiled for.
TRITONBACKEND_ISPEC TRITONSERVER_Error* TRITONBACKEND_Initialize(TRITONBACKEND_Backend* backend) {
  (void)backend;
  uint32_t major, minor;
  TRY(TRITONBACKEND_ApiVersion(&major, &minor));
  if (major == TRITONBACKEND_API_VERSION_MAJOR && minor >= TRITONBACKEND_API_VERSION_MINOR) return NULL;
  return TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_UNSUPPORTED, "${name} needs a newer version of the backend API");
}

// Runs one batch. Returning no error means that every request gets its response and its release from here.
TRITONBACKEND_ISPEC TRITONSERVER_Error* TRITONBACKEND_ModelInstanceExecute(
    TRITONBACKEND_ModelInstance* instance, TRITONBACKEND_Request** requests, const uint32_t count) {
  const uint64_t start = now_ns();
  uint64_t rows = 0;
  for (uint32_t i = 0; i < count; i++) {
    TRITONBACKEND_Response* response = NULL;
    TRITONSERVER_Error* error = TRITONBACKEND_ResponseNew(&response, requests[i]);
    if (error == NULL) error = respond(requests[i], response, &rows);
    const bool success = error == NULL;
    // The response is the server's from here on, also if sending fails.
    if (response != NULL)
      TRITONSERVER_ErrorDelete(TRITONBACKEND_ResponseSend(response, TRITONSERVER_RESPONSE_COMPLETE_FINAL, error));
    TRITONSERVER_ErrorDelete(error);
    const uint64_t end = now_ns();
    TRITONSERVER_ErrorDelete(
        TRITONBACKEND_ModelInstanceReportStatistics(instance, requests[i], success, start, start, end, end));
    TRITONSERVER_ErrorDelete(TRITONBACKEND_RequestRelease(requests[i], TRITONSERVER_REQUEST_RELEASE_ALL));
  }
  const uint64_t end = now_ns();
  return TRITONBACKEND_ModelInstanceReportBatchStatistics(instance, rows, start, start, end, end);
}
`

/** Recipes of make begin with a tab. */
const C_MAKEFILE = (name: string): string => `# Makes the backend where --backend-directory=backends finds it.
LIBRARY = backends/${name}/libtriton_${name}.so
CFLAGS ?= -O2

$(LIBRARY): src/${name}.c build/libtritonserver.so
\tmkdir -p $(@D)
\t$(CC) -std=c11 -Wall -Wextra $(CFLAGS) -Iinclude -fPIC -shared -fvisibility=hidden -o $@ $< \\
\t  -Wl,--no-as-needed build/libtritonserver.so

# Linking needs the name of the server's library only. The real one is in the process that loads the backend.
build/libtritonserver.so:
\tmkdir -p $(@D)
\techo 'typedef int unused;' | $(CC) -shared -Wl,-soname,libtritonserver.so -x c - -o $@

clean:
\trm -rf build backends

.PHONY: clean
`

const RUST_MANIFEST = (name: string): string => `[package]
name = "${name}"
version = "0.1.0"
edition = "2021"

# Cargo writes libtriton_${name}.so.
[lib]
name = "triton_${name}"
crate-type = ["cdylib"]

# Not a part of a workspace above it.
[workspace]
`

const RUST_FORMAT = 'max_width = 120\nuse_small_heuristics = "Max"\nfn_params_layout = "Compressed"\n'

const RUST_BUILD = `//! Links the backend with the name of the server's library. The real one is in the process that
//! loads the backend.

use std::path::Path;
use std::process::Command;
use std::{env, fs};

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    let directory = env::var("OUT_DIR").expect("Cargo sets it");
    let source = Path::new(&directory).join("unused.c");
    let library = Path::new(&directory).join("libtritonserver.so");
    fs::write(&source, "typedef int unused;\\n").expect("the build directory can be written");
    let compiler = env::var("CC").unwrap_or_else(|_| "cc".to_owned());
    let status = Command::new(compiler)
        .args(["-shared", "-Wl,-soname,libtritonserver.so", "-o"])
        .args([&library, &source])
        .status()
        .expect("a C compiler, which Rust needs for linking too");
    assert!(status.success(), "libtritonserver.so could not be linked");
    println!("cargo:rustc-cdylib-link-arg=-Wl,--no-as-needed");
    println!("cargo:rustc-cdylib-link-arg={}", library.display());
}
`

const RUST_BINDINGS = `//! What this backend uses of Triton's C API, and the clock of its statistics.
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

/// \`struct timespec\` of 64-bit Linux.
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
`

const RUST_SOURCE = (name: string): string => `//! Backend \`${name}\`: copies INPUT0 of each request to OUTPUT0.
//!
//! A panic in a function that the server calls ends the process that serves the models of this backend.

mod triton;

use std::ffi::{c_void, CString};
use std::ptr::{null, null_mut};
use triton::*;

/// The error of a call, if it made one. The caller owns it: it passes it on or deletes it.
fn check(error: Err) -> Result<(), Err> {
    match error.is_null() {
        true => Ok(()),
        false => Err(error),
    }
}

fn failure(code: u32, text: &str) -> Err {
    let text = CString::new(text).unwrap_or_default();
    // SAFETY: the text ends with a zero, and the server copies it.
    unsafe { error_new(code, text.as_ptr()) }
}

/// Deletes an error that is not returned; does nothing with null.
fn ignore(error: Err) {
    // SAFETY: the error is null or owned by the caller, who gives it away here.
    unsafe { error_delete(error) }
}

/// The clock of statistics, in nanoseconds. Rust's own clock has another start.
fn now_ns() -> u64 {
    let mut now = Timespec { seconds: 0, nanoseconds: 0 };
    // SAFETY: a valid place for the time.
    unsafe { clock_gettime(CLOCK_MONOTONIC, &mut now) };
    now.seconds as u64 * 1_000_000_000 + now.nanoseconds as u64
}

fn require_host_memory(memory_type: u32) -> Result<(), Err> {
    if memory_type != MEMORY_GPU {
        return Ok(());
    }
    Err(failure(ERROR_UNSUPPORTED, "${name} reads and writes host memory only"))
}

/// Writes the outputs of one request and returns its rows: the first dimension is the batch.
fn respond(request: *mut Request, response: *mut Response) -> Result<u64, Err> {
    let (mut input, mut output) = (null_mut(), null_mut());
    let (mut datatype, mut dims, mut buffers, mut bytes) = (0, 0, 0, 0);
    let mut shape = null();
    let mut to: *mut c_void = null_mut();
    let (mut memory_type, mut memory_id) = (MEMORY_CPU, 0);
    // SAFETY: request and response are the server's and live until they are released and sent; all results are valid
    // places, and what they point at belongs to the request.
    unsafe {
        check(request_input(request, c"INPUT0".as_ptr(), &mut input))?;
        check(input_properties(input, null_mut(), &mut datatype, &mut shape, &mut dims, &mut bytes, &mut buffers))?;
        check(response_output(response, &mut output, c"OUTPUT0".as_ptr(), datatype, shape, dims))?;
        check(output_buffer(output, &mut to, bytes, &mut memory_type, &mut memory_id))?;
    }
    require_host_memory(memory_type)?;
    let mut written = 0;
    // An input may come in several buffers.
    for index in 0..buffers {
        let (mut from, mut part) = (null(), 0);
        memory_type = MEMORY_CPU;
        // SAFETY: as above.
        check(unsafe { input_buffer(input, index, &mut from, &mut part, &mut memory_type, &mut memory_id) })?;
        require_host_memory(memory_type)?;
        if part > bytes - written {
            return Err(failure(ERROR_INTERNAL, "the buffers of an input are larger than the input"));
        }
        // SAFETY: the output has room for \`bytes\`, of which \`written\` are used, and does not overlap the input.
        // Your code goes here.
        unsafe { from.cast::<u8>().copy_to_nonoverlapping(to.cast::<u8>().add(written as usize), part as usize) };
        written += part;
    }
    // SAFETY: the shape has \`dims\` elements.
    Ok(if dims == 0 { 1 } else { unsafe { shape.read() as u64 } })
}

/// Rejects servers whose API is older than that of triton.rs.
#[no_mangle]
pub extern "C" fn TRITONBACKEND_Initialize(_backend: *mut Backend) -> Err {
    let (mut major, mut minor) = (0, 0);
    // SAFETY: both are valid places for a result.
    let error = unsafe { api_version(&mut major, &mut minor) };
    if !error.is_null() || (major == API_MAJOR && minor >= API_MINOR) {
        return error;
    }
    failure(ERROR_UNSUPPORTED, "${name} needs a newer version of the backend API")
}

/// Runs one batch. Returning no error means that every request gets its response and its release from here.
///
/// # Safety
/// \`requests\` has \`count\` requests, as the server makes sure.
#[no_mangle]
pub unsafe extern "C" fn TRITONBACKEND_ModelInstanceExecute(
    instance: *mut Instance, requests: *mut *mut Request, count: u32,
) -> Err {
    let start = now_ns();
    let mut rows = 0;
    // SAFETY: the caller's promise.
    for &request in unsafe { std::slice::from_raw_parts(requests, count as usize) } {
        let mut response = null_mut();
        // SAFETY: a valid request, and a valid place for the response.
        let made = check(unsafe { response_new(&mut response, request) });
        let error = match made.and_then(|()| respond(request, response)) {
            Ok(more) => {
                rows += more;
                null_mut()
            }
            Err(error) => error,
        };
        let success = error.is_null();
        // SAFETY: the response is the server's from here on, also if sending fails; the request after its release.
        unsafe {
            if !response.is_null() {
                ignore(response_send(response, RESPONSE_FINAL, error));
            }
            ignore(error);
            let end = now_ns();
            ignore(report_statistics(instance, request, success, start, start, end, end));
            ignore(request_release(request, RELEASE_ALL));
        }
    }
    let end = now_ns();
    // SAFETY: a valid instance.
    unsafe { report_batch_statistics(instance, rows, start, start, end, end) }
}
`

const RUST_MAKEFILE = (name: string): string => `# Makes the backend where --backend-directory=backends finds it.
LIBRARY = backends/${name}/libtriton_${name}.so

$(LIBRARY): Cargo.toml build.rs $(wildcard src/*.rs)
\tcargo build --release --offline --target-dir=target
\tmkdir -p $(@D)
\tcp target/release/libtriton_${name}.so $@.new
\tmv $@.new $@  # a server that has the old file open keeps it

clean:
\trm -rf target backends

.PHONY: clean
`

const CONFIG = (name: string): string => `name: "${name}"
backend: "${name}"
max_batch_size: 8
input [ { name: "INPUT0" data_type: TYPE_FP32 dims: [ -1 ] } ]
output [ { name: "OUTPUT0" data_type: TYPE_FP32 dims: [ -1 ] } ]
instance_group [ { kind: KIND_CPU } ]
dynamic_batching { }
`

const TEST = (name: string): string => `// Serves the model in this process and compares responses.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { Server } from 'nereid'

const here = (path) => fileURLToPath(new URL(path, import.meta.url))

test('values come back, also from requests that run together', async () => {
  // The library may be where only the user of this test can read, even root.
  const options = { modelRepository: here('models'), backendDirectory: here('backends'), hostUser: 'root' }
  const server = await Server.start(options)
  try {
    const rows = [1, 2, 3, 1]
    const requests = rows.map(async (count, i) => {
      const data = Float32Array.from({ length: count * 4 }, (_, at) => at + i)
      const result = await server.model('${name}').infer({ inputs: { INPUT0: { data, shape: [count, 4] } } })
      const output = result.output('OUTPUT0')
      assert.deepEqual([output.shape, output.data], [[count, 4], data])
    })
    await Promise.all(requests)
  } finally {
    await server.stop()
  }
})
`

const README = (name: string, language: string, files: string, command: string): string => `# Backend ${name}

A backend for Triton's C API in ${language}: it copies INPUT0 to OUTPUT0. The library runs in Nereid and in Triton.

    make                   # builds backends/${name}/libtriton_${name}.so
    node --test test.mjs   # serves the model and compares responses
    ${command} --model-repository=models --backend-directory=backends

If root starts the server, the library runs as the user \`nobody\`, who must be able to read it;
\`--host-user=root\` keeps the rights of root.
\`${command} check models --backend-directory=backends\` finds what keeps the library from loading, without loading it.

| file | content |
|---|---|
${files}| \`include/\` | headers of the API |
| \`models/${name}/\` | a model of this backend; a real one has its files in \`1/\` |
| \`test.mjs\` | a test, which needs the npm package \`nereid\` here or in a directory above |
`

const C_FILES = (name: string): string => `| \`src/${name}.c\` | the backend |\n`
const RUST_FILES =
  '| `src/lib.rs` | the backend |\n| `src/triton.rs` | the functions of the API that it uses |\n' +
  '| `build.rs` | links it with the name `libtritonserver.so` |\n'

export type BackendLanguage = 'c' | 'rust'

/** Files of a backend without the headers. `command` is how the user calls this program. */
export function backendFiles(name: string, language: BackendLanguage, command: string): ModelFile[] {
  const own: ModelFile[] =
    language === 'c'
      ? [
          { to: `src/${name}.c`, text: C_SOURCE(name) },
          { to: 'Makefile', text: C_MAKEFILE(name) },
        ]
      : [
          { to: 'src/lib.rs', text: RUST_SOURCE(name) },
          { to: 'src/triton.rs', text: RUST_BINDINGS },
          { to: 'build.rs', text: RUST_BUILD },
          { to: 'Cargo.toml', text: RUST_MANIFEST(name) },
          { to: 'Makefile', text: RUST_MAKEFILE(name) },
          { to: 'rustfmt.toml', text: RUST_FORMAT },
        ]
  const readme =
    language === 'c' ? README(name, 'C', C_FILES(name), command) : README(name, 'Rust', RUST_FILES, command)
  return [
    ...own,
    { to: 'README.md', text: readme },
    { to: 'test.mjs', text: TEST(name) },
    { to: '.gitignore', text: '/backends\n/build\n/target\n' },
    { to: `models/${name}/config.pbtxt`, text: CONFIG(name) },
    // A version is a directory, and most tools do not keep an empty one.
    { to: `models/${name}/1/.keep`, text: '' },
  ]
}
