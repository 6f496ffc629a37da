//! Calls of a library, with a server and a library that are tests.

use super::fields::*;
use super::*;
use crate::abi::Err;
use crate::abi::allocator::{
    TRITONSERVER_ResponseAllocatorDelete, TRITONSERVER_ResponseAllocatorNew,
    TRITONSERVER_ResponseAllocatorSetBufferAttributesFunction,
};
use crate::abi::error::ServerError;
use crate::abi::exports::Passed;
use crate::abi::exports::library::{at, bytes_at, failed, nothing, pass, text_at, to};
use crate::abi::inference_response::{
    TRITONSERVER_InferenceResponseDelete, TRITONSERVER_InferenceResponseError, TRITONSERVER_InferenceResponseOutput,
    TRITONSERVER_InferenceResponseOutputCount,
};
use crate::abi::server::TRITONSERVER_ServerInferAsync;
use crate::library::Start;
use crate::testing::{FakeServer, connection};
use frames::generated::Answer;
use frames::{AnswerRef, Contents, FromRunner, TensorRef};
use std::ffi::{CStr, c_char};
use std::ptr::null;
use std::sync::mpsc::{Receiver, Sender, channel};
use tensor::{Code, DataType, Shape};

/// Notes what a library's functions are called with.
struct Library {
    seen: Sender<String>,
    refuses: bool,
}

/// The `Library` that the tests pass.
fn library_at(userp: *mut c_void) -> &'static Library {
    at(userp.cast_const().cast())
}

fn note(userp: *mut c_void, what: String) {
    library_at(userp).seen.send(what).expect("the test listens");
}

extern "C" fn allocate(
    _: *const ResponseAllocator,
    name: Start<'_, c_char>,
    bytes: usize,
    _: u32,
    _: i64,
    userp: *mut c_void,
    buffer: &mut *mut c_void,
    buffer_userp: &mut *mut c_void,
    _: &mut u32,
    _: &mut i64,
) -> Err {
    note(userp, format!("allocate {} {bytes}", text_at(name.address())));
    if library_at(userp).refuses {
        return ServerError::raw(&Error::unavailable("no memory"));
    }
    *buffer = Box::into_raw(vec![0u8; bytes].into_boxed_slice()).cast();
    *buffer_userp = userp;
    null_mut()
}

/// Keeps the buffer: a test ends soon.
extern "C" fn free(
    _: *const ResponseAllocator,
    _: *mut c_void,
    buffer_userp: *mut c_void,
    bytes: usize,
    _: u32,
    _: i64,
) -> Err {
    note(buffer_userp, format!("free {bytes}"));
    null_mut()
}

extern "C" fn describe_buffer(
    _: *const ResponseAllocator,
    _: Start<'_, c_char>,
    attributes: &mut BufferAttributes,
    userp: *mut c_void,
    _: *mut c_void,
) -> Err {
    note(userp, format!("describe {}", attributes.bytes));
    null_mut()
}

extern "C" fn respond(response: *mut InferenceResponse, flags: u32, userp: *mut c_void) {
    let mut said = format!("response {flags}");
    if response.is_null() {
        return note(userp, format!("{said} null"));
    }
    let response = pass(response);
    if let Some(error) = failed(TRITONSERVER_InferenceResponseError(response)) {
        said += &format!(" {}: {}", error.code().name(), error.message());
    }
    let mut count = 0;
    TRITONSERVER_InferenceResponseOutputCount(response, to(&mut count));
    for index in 0..count {
        let (mut name, mut base, mut bytes) = (null(), null(), 0);
        TRITONSERVER_InferenceResponseOutput(
            response,
            index,
            to(&mut name),
            nothing(),
            nothing(),
            nothing(),
            to(&mut base),
            to(&mut bytes),
            nothing(),
            nothing(),
            nothing(),
        );
        let contents = if base.is_null() { &[] } else { bytes_at(base.cast(), bytes) };
        said += &format!(" {}={contents:?}", text_at(name));
    }
    note(userp, said);
    TRITONSERVER_InferenceResponseDelete(response);
}

extern "C" fn release(_: *mut InferenceRequest, flags: u32, userp: *mut c_void) {
    note(userp, format!("release {flags}"));
}

/// A new request to the model `m`.
fn new_request() -> Passed<InferenceRequest> {
    let mut request = null_mut();
    let new = TRITONSERVER_InferenceRequestNew(to(&mut request), null_mut(), pass(c"m".as_ptr()), -1);
    assert_eq!(failed(new), None);
    pass(request)
}

fn request_at(request: Passed<InferenceRequest>) -> &'static InferenceRequest {
    at(request.address())
}

/// Sends a request with one string as its input, in these buffers. Returns its error.
fn send(library: &Library, buffers: &[&[u8]]) -> Option<Error> {
    let (userp, mut allocator) = ((&raw const *library).cast_mut().cast(), null_mut());
    TRITONSERVER_ResponseAllocatorNew(to(&mut allocator), Some(allocate), Some(free), None);
    let (request, name) = (new_request(), pass(c"S".as_ptr()));
    TRITONSERVER_InferenceRequestSetId(request, pass(c"r".as_ptr()));
    TRITONSERVER_InferenceRequestSetPriority(request, 9);
    TRITONSERVER_InferenceRequestSetIntParameter(request, pass(c"p".as_ptr()), -3);
    TRITONSERVER_InferenceRequestAddInput(request, name, 13, pass([1i64].as_ptr()), 1);
    for buffer in buffers {
        let base = buffer.as_ptr().cast_mut().cast();
        TRITONSERVER_InferenceRequestAppendInputData(request, name, base, buffer.len(), 0, 0);
    }
    TRITONSERVER_InferenceRequestSetReleaseCallback(request, Some(release), userp);
    TRITONSERVER_InferenceRequestSetResponseCallback(request, allocator, userp, Some(respond), userp);
    let error = failed(TRITONSERVER_ServerInferAsync(null_mut(), request, nothing()));
    if error.is_none() {
        assert_eq!(failed(TRITONSERVER_InferenceRequestCancel(request)), None);
    } else {
        // The others keep them: their callbacks come later.
        TRITONSERVER_InferenceRequestDelete(request);
        TRITONSERVER_ResponseAllocatorDelete(pass(allocator));
    }
    error
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
fn fields_inputs_and_outputs_of_a_request_are_set_given_and_removed() {
    let (link, server) = connection();
    let serve = std::thread::spawn(move || {
        describe(&server);
        server
    });
    let request = link.run(new_request);
    drop(serve.join().expect("server"));
    let (mut id, mut flags, name) = (null(), 9, pass(c"S".as_ptr()));
    TRITONSERVER_InferenceRequestId(request, to(&mut id));
    TRITONSERVER_InferenceRequestFlags(request, to(&mut flags));
    assert_eq!((text_at(id), flags), (String::new(), 0));
    TRITONSERVER_InferenceRequestSetId(request, pass(c"r".as_ptr()));
    TRITONSERVER_InferenceRequestSetFlags(request, 3);
    TRITONSERVER_InferenceRequestId(request, to(&mut id));
    TRITONSERVER_InferenceRequestFlags(request, to(&mut flags));
    assert_eq!((text_at(id), flags), ("r".to_owned(), 3));
    let base = c"ab".as_ptr().cast_mut().cast();
    let append = |policy: &CStr| {
        let policy = pass(policy.as_ptr());
        failed(TRITONSERVER_InferenceRequestAppendInputDataWithHostPolicy(request, name, base, 2, 0, 0, policy))
    };
    let absent = Error::invalid("[request id: r] input 'S' does not exist in request");
    assert_eq!(append(c"cpu"), Some(absent.clone()));
    TRITONSERVER_InferenceRequestAddInput(request, name, 2, pass([2i64].as_ptr()), 1);
    assert_eq!(append(c"cpu"), None);
    let mut of = BufferAttributes::cpu(1);
    let described = TRITONSERVER_InferenceRequestAppendInputDataWithBufferAttributes(request, name, base, to(&mut of));
    assert_eq!(failed(described), None);
    assert_eq!(request_at(request).call.inputs[0].buffer_bytes(), [2, 1]);
    assert_eq!(failed(TRITONSERVER_InferenceRequestRemoveAllInputData(request, name)), None);
    assert_eq!(request_at(request).call.inputs[0].buffer_bytes(), [0; 0]);
    TRITONSERVER_InferenceRequestRemoveAllInputs(request);
    assert_eq!(failed(TRITONSERVER_InferenceRequestRemoveAllInputData(request, name)), Some(absent));
    let output = || failed(TRITONSERVER_InferenceRequestAddRequestedOutput(request, name));
    assert_eq!(output(), None);
    assert_eq!(output(), Some(Error::invalid("[request id: r] output 'S' already exists in request")));
    TRITONSERVER_InferenceRequestRemoveAllRequestedOutputs(request);
    assert_eq!(output(), None);
    assert_eq!(failed(TRITONSERVER_InferenceRequestDelete(request)), None);
}

#[test]
fn a_library_describes_the_buffers_that_it_gave() {
    let (library, seen) = library(false);
    let (userp, mut allocator) = ((&raw const *library).cast_mut().cast(), null_mut());
    TRITONSERVER_ResponseAllocatorNew(to(&mut allocator), Some(allocate), Some(free), None);
    TRITONSERVER_ResponseAllocatorSetBufferAttributesFunction(pass(allocator), Some(describe_buffer));
    let mut buffer = Allocation::new(allocator, userp).allocate(c"O", 3).expect("a buffer");
    buffer.fill(&[1, 2, 3]);
    assert_eq!(bytes_at(buffer.base().cast(), 3), [1, 2, 3]);
    drop(buffer);
    assert_eq!(seen.try_iter().collect::<Vec<_>>(), ["allocate O 3", "describe 3", "free 3"]);
    TRITONSERVER_ResponseAllocatorDelete(pass(allocator));
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
