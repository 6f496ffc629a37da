//! Calls of a library, with a server and a library that are tests.

use super::fields::*;
use super::*;
use crate::abi::allocator::{TRITONSERVER_ResponseAllocatorDelete, TRITONSERVER_ResponseAllocatorNew};
use crate::abi::error::ServerError;
use crate::abi::inference_response::{
    TRITONSERVER_InferenceResponseDelete, TRITONSERVER_InferenceResponseError, TRITONSERVER_InferenceResponseOutput,
    TRITONSERVER_InferenceResponseOutputCount,
};
use crate::abi::{Err, guard};
use crate::testing::{FakeServer, connection};
use frames::generated::Answer;
use frames::{AnswerRef, Contents, FromRunner, TensorRef};
use std::ffi::CStr;
use std::ffi::c_char;
use std::ptr::null;
use std::sync::mpsc::{Receiver, Sender, channel};
use tensor::{Code, DataType, Shape};

/// Notes what a library's functions are called with.
struct Library {
    seen: Sender<String>,
    refuses: bool,
}

fn note(userp: *mut c_void, what: String) {
    // SAFETY: the tests pass a `Library` that lives until the end.
    unsafe { (*userp.cast::<Library>()).seen.send(what).expect("the test listens") };
}

unsafe extern "C" fn allocate(
    _: *const ResponseAllocator,
    name: *const c_char,
    bytes: usize,
    _: u32,
    _: i64,
    userp: *mut c_void,
    buffer: *mut *mut c_void,
    buffer_userp: *mut *mut c_void,
    _: *mut u32,
    _: *mut i64,
) -> Err {
    // SAFETY: what the server passes, and a `Library`.
    unsafe {
        note(userp, format!("allocate {} {bytes}", CStr::from_ptr(name).to_string_lossy()));
        if (*userp.cast::<Library>()).refuses {
            return ServerError::raw(&Error::unavailable("no memory"));
        }
        *buffer = Box::into_raw(vec![0u8; bytes].into_boxed_slice()).cast();
        *buffer_userp = userp;
    }
    null_mut()
}

unsafe extern "C" fn free(
    _: *const ResponseAllocator,
    buffer: *mut c_void,
    buffer_userp: *mut c_void,
    bytes: usize,
    _: u32,
    _: i64,
) -> Err {
    note(buffer_userp, format!("free {bytes}"));
    // SAFETY: made by `allocate`.
    drop(unsafe { Box::from_raw(std::ptr::slice_from_raw_parts_mut(buffer.cast::<u8>(), bytes)) });
    null_mut()
}

unsafe extern "C" fn respond(response: *mut InferenceResponse, flags: u32, userp: *mut c_void) {
    let mut said = format!("response {flags}");
    // SAFETY: what the server passes.
    unsafe {
        if response.is_null() {
            return note(userp, format!("{said} null"));
        }
        if let Some(error) = ServerError::take(TRITONSERVER_InferenceResponseError(response)) {
            said += &format!(" {}: {}", error.code().name(), error.message());
        }
        let mut count = 0;
        TRITONSERVER_InferenceResponseOutputCount(response, &raw mut count);
        for at in 0..count {
            let (mut name, mut base, mut bytes) = (null(), null(), 0);
            let nowhere = (null_mut(), null_mut(), null_mut(), null_mut(), null_mut(), null_mut());
            TRITONSERVER_InferenceResponseOutput(
                response,
                at,
                &raw mut name,
                nowhere.0,
                nowhere.1,
                nowhere.2,
                &raw mut base,
                &raw mut bytes,
                nowhere.3,
                nowhere.4,
                nowhere.5,
            );
            let name = CStr::from_ptr(name).to_string_lossy();
            let contents: &[u8] = if base.is_null() { &[] } else { std::slice::from_raw_parts(base.cast(), bytes) };
            said += &format!(" {name}={contents:?}");
        }
        note(userp, said);
        TRITONSERVER_InferenceResponseDelete(response);
    }
}

unsafe extern "C" fn release(_: *mut InferenceRequest, flags: u32, userp: *mut c_void) {
    note(userp, format!("release {flags}"));
}

fn failed(error: Err) -> Option<Error> {
    // SAFETY: made by the functions above.
    unsafe { ServerError::take(error) }
}

/// Sends a request with one string as its input, in these buffers. Returns its error.
fn send(library: &Library, buffers: &[&[u8]]) -> Option<Error> {
    let userp = (&raw const *library).cast_mut().cast();
    let (mut request, mut allocator) = (null_mut(), null_mut());
    // SAFETY: objects that live, and functions of the types that are asked for.
    unsafe {
        TRITONSERVER_ResponseAllocatorNew(&raw mut allocator, Some(allocate), Some(free), None);
        let new = TRITONSERVER_InferenceRequestNew(&raw mut request, null_mut(), c"m".as_ptr(), -1);
        assert_eq!(failed(new), None);
        TRITONSERVER_InferenceRequestSetId(request, c"r".as_ptr());
        TRITONSERVER_InferenceRequestSetPriority(request, 9);
        TRITONSERVER_InferenceRequestSetIntParameter(request, c"p".as_ptr(), -3);
        TRITONSERVER_InferenceRequestAddInput(request, c"S".as_ptr(), 13, [1i64].as_ptr(), 1);
        for buffer in buffers {
            let base = buffer.as_ptr().cast();
            TRITONSERVER_InferenceRequestAppendInputData(request, c"S".as_ptr(), base, buffer.len(), 0, 0);
        }
        TRITONSERVER_InferenceRequestSetReleaseCallback(request, Some(release), userp);
        TRITONSERVER_InferenceRequestSetResponseCallback(request, allocator, userp, Some(respond), userp);
        let error = failed(infer_async(request));
        if error.is_none() {
            assert_eq!(failed(TRITONSERVER_InferenceRequestCancel(request)), None);
        }
        // The others keep them: their callbacks come later.
        if error.is_some() {
            TRITONSERVER_InferenceRequestDelete(request);
            TRITONSERVER_ResponseAllocatorDelete(allocator);
        }
        error
    }
}

unsafe fn infer_async(request: *mut InferenceRequest) -> Err {
    // SAFETY: a live request.
    guard(|| unsafe { infer(&server(std::ptr::null())?, request, false) })
}

fn describe(server: &FakeServer) {
    let question = server.question();
    assert!(question.ends_with(r#""operation":"describe","model":"m","version":-1}"#), "{question}");
    let facts = r#""version":3,"decoupled":false,"batches":false,"priority_levels":2,"default_priority":1"#;
    server.result(&question, facts);
}

/// Waits for a CALL; returns its number.
fn call(server: &FakeServer, look: impl FnOnce(&frames::CallRef<'_>)) -> u64 {
    server.side_frame(|frame| match frame {
        FromRunner::Call(call) => {
            look(&call);
            call.call
        }
        other => panic!("{other:?}"),
    })
}

const NONE: AnswerRef<'_> = AnswerRef {
    kind: Answer::None,
    is_final: false,
    is_failed: false,
    code: Code::Unknown,
    parameters: "",
    error: "",
    outputs: smallvec::SmallVec::new_const(),
};

/// Kept for ever: the last callback may still use it when its note arrives.
fn library(refuses: bool) -> (&'static Library, Receiver<String>) {
    let (seen, listen) = channel();
    (Box::leak(Box::new(Library { seen, refuses })), listen)
}

fn output(contents: &[u8]) -> TensorRef<'_> {
    let shape = Shape::from_slice(&[contents.len() as i64]);
    TensorRef { name: "O", datatype: DataType::Uint8, shape, contents: Contents::Inline(contents) }
}

#[test]
fn responses_reach_the_library_in_order_and_then_its_request_is_released() {
    let (link, server) = connection();
    let (library, seen) = library(false);
    let serve = std::thread::spawn(move || {
        describe(&server);
        let number = call(&server, |call| {
            assert_eq!((call.model, call.version, call.priority), ("m", -1, 1), "priority 9 becomes the default");
            assert!(call.is_acknowledged && call.is_decoupled && !call.is_only_checked);
            assert_eq!((call.request.id, call.request.parameters), ("r", r#"{"p":-3}"#));
            assert_eq!(call.request.inputs[0].contents, Contents::Inline(b"\x02\0\0\0ab"));
        });
        server.respond(number, &NONE);
        let response = AnswerRef { kind: Answer::Response, outputs: vec![output(&[1, 2])].into(), ..NONE };
        server.respond(number, &response);
        let error = AnswerRef { kind: Answer::Error, code: Code::Internal, error: "no", ..NONE };
        server.respond(number, &error);
        server.respond(number, &AnswerRef { is_final: true, ..NONE });
        assert!(server.side_frame(|frame| frame == FromRunner::CallCancel(number)));
        server
    });
    assert_eq!(link.run(|| send(library, &[b"\x02\0\0\0a", b"b"])), None);
    let all: Vec<_> = (0..6).map(|_| seen.recv().expect("callbacks")).collect();
    let expected =
        ["allocate O 2", "response 0 O=[1, 2]", "free 2", "response 0 Internal: no", "response 1 null", "release 1"];
    assert_eq!(all, expected);
    drop(serve.join().expect("server"));
}

#[test]
fn a_refusing_allocator_gives_its_error_with_empty_outputs() {
    let (link, server) = connection();
    let (library, seen) = library(true);
    let serve = std::thread::spawn(move || {
        describe(&server);
        let number = call(&server, |_| {});
        // Without an acknowledgment: a response may come first.
        let outputs = vec![output(&[1, 2]), output(&[])].into();
        server.respond(number, &AnswerRef { kind: Answer::Response, is_final: true, outputs, ..NONE });
        server
    });
    assert_eq!(link.run(|| send(library, &[b"\0\0\0\0"])), None);
    let all: Vec<_> = (0..4).map(|_| seen.recv().expect("callbacks")).collect();
    let response = "response 1 Unavailable: no memory O=[] O=[]";
    assert_eq!(all, ["allocate O 2", "allocate O 0", response, "release 1"]);
    drop(serve.join().expect("server"));
}

#[test]
fn a_refused_request_stays_with_the_library() {
    let (link, server) = connection();
    let (library, seen) = library(false);
    let serve = std::thread::spawn(move || {
        describe(&server);
        let number = call(&server, |_| {});
        let (kind, code, error) = (Answer::Error, Code::InvalidArg, "unexpected inference output 'x'");
        server.respond(number, &AnswerRef { kind, code, error, is_final: true, is_failed: true, ..NONE });
        server
    });
    let error = link.run(|| send(library, &[b"\0\0\0\0"]));
    assert_eq!(error, Some(Error::invalid("unexpected inference output 'x'")));
    assert!(seen.try_recv().is_err(), "nothing was called");
    drop(serve.join().expect("server"));
}

#[test]
fn an_input_that_no_frame_can_have_is_checked_by_the_server_first() {
    let (link, server) = connection();
    let (library, seen) = library(false);
    let serve = std::thread::spawn(move || {
        describe(&server);
        let number = call(&server, |call| {
            assert!(call.is_only_checked);
            assert_eq!(call.request.inputs[0].contents, Contents::Inline(&[0; 4]));
        });
        server.respond(number, &AnswerRef { is_final: true, ..NONE });
        server
    });
    let error = link.run(|| send(library, &[b"\x02\0\0", b"\0ab"])).expect("an error");
    assert!(error.message().starts_with("[request id: r] incomplete string length indicator"), "{error:?}");
    assert!(seen.try_recv().is_err());
    drop(serve.join().expect("server"));
}

#[test]
fn the_end_of_the_connection_ends_a_call() {
    let (link, server) = connection();
    let (library, seen) = library(false);
    let serve = std::thread::spawn(move || {
        describe(&server);
        let number = call(&server, |_| {});
        server.respond(number, &NONE);
        server.side_frame(|frame| assert_eq!(frame, FromRunner::CallCancel(number)));
        server.link.close();
    });
    assert_eq!(link.run(|| send(library, &[b"\0\0\0\0"])), None);
    serve.join().expect("server");
    let all: Vec<_> = (0..2).map(|_| seen.recv().expect("callbacks")).collect();
    assert_eq!(all, ["response 1 Unavailable: the server has ended the connection", "release 1"]);
}
