//! Requests of a runner to the server, with a fake server and fake segments.

use super::*;
use crate::frames::write::{self, Put};
use crate::frames::{Block, CallRef, Contents, LogRef, MetricChange, RequestRef, TensorRef};
use crate::generated::{Answer, AnswerHead, CallId, Frame, Header, LogLevel, MetricOperation, RequestHead};
use crate::memory::{Room, SegmentError};
use backend::metrics::{CustomMetrics, SeriesValue as MetricValue};
use backend::{Call, CallAnswers, CallableModel, ControlAnswer, Host, ModelCall, ModelControl, ModelOperation};
use bytes::Bytes;
use parking_lot::Mutex;
use protocol::{CorrelationId, InferResponse, OutputForm, OutputTensor, Parameter};
use std::collections::HashSet;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use tensor::{Code, Data, DataType, Error, Result, Shape};

type Job = Box<dyn FnOnce() + Send>;
type Respond = Box<dyn FnOnce(ModelCall, Arc<dyn CallAnswers>) -> Result<()> + Send>;

/// A server that keeps each request, or answers it with `respond`.
struct Server {
    metrics: Arc<CustomMetrics>,
    respond: Mutex<Option<Respond>>,
    calls: Mutex<Vec<(ModelCall, Arc<dyn CallAnswers>)>>,
    controls: Mutex<Vec<(ModelControl, ControlAnswer)>>,
    cancelled: Arc<AtomicUsize>,
}

struct Handle(Arc<AtomicUsize>);

impl Call for Handle {
    fn cancel(&self) {
        self.0.fetch_add(1, SeqCst);
    }
}

impl Host for Server {
    fn call(&self, call: ModelCall, answers: Arc<dyn CallAnswers>) -> Result<Box<dyn Call>> {
        let respond = self.respond.lock().take();
        match respond {
            Some(respond) => respond(call, answers)?,
            None => self.calls.lock().push((call, answers)),
        }
        Ok(Box::new(Handle(self.cancelled.clone())))
    }
    fn describe(&self, model: &str, version: i64) -> Result<CallableModel> {
        if model != "other" {
            return Err(Error::not_found(format!("Request for unknown model: '{model}' is not found")));
        }
        let version = if version == -1 { 3 } else { version };
        Ok(CallableModel { version, is_decoupled: false, batches: true, priority_levels: 2, default_priority: 1 })
    }
    fn control(&self, control: ModelControl, answer: ControlAnswer) {
        self.controls.lock().push((control, answer));
    }
    fn metrics(&self) -> &Arc<CustomMetrics> {
        &self.metrics
    }
}

struct FakePeer {
    server: Arc<Server>,
    has_server: bool,
    sent: Mutex<Vec<(Way, Vec<u8>)>>,
    /// Blocks of requests that were written into frames and not forgotten.
    written: Mutex<HashSet<u64>>,
    room: AtomicUsize,
    given_back: AtomicUsize,
    is_short: bool,
    /// If set, keeps jobs for another thread instead of running them.
    left: Option<Mutex<Vec<Job>>>,
    condemned: Mutex<Option<String>>,
}

impl Peer for FakePeer {
    fn host(&self) -> Option<Arc<dyn Host>> {
        self.has_server.then(|| self.server.clone() as Arc<dyn Host>)
    }
    fn model(&self) -> Name {
        "caller".into()
    }
    fn parent(&self, named: Key) -> Parent {
        if named == (3, 9) { Parent { key: Some(named), depth: 4, ..Parent::default() } } else { Parent::default() }
    }
    fn send(&self, way: Way, frames: &[u8]) {
        self.sent.lock().push((way, frames.to_vec()));
    }
    fn takes_devices(&self) -> bool {
        false
    }

    fn put(
        &self,
        to: &mut Vec<u8>,
        room: &mut Room<'_>,
        (name, datatype, shape): (&str, DataType, &[i64]),
        data: &Data,
    ) -> Result<()> {
        if data.len() <= *room.inline_left {
            *room.inline_left -= data.len();
            write::tensor(to, name, datatype, shape, Put::Inline(&data.to_vec().expect("in memory")));
            return Ok(());
        }
        if self.room.fetch_update(SeqCst, SeqCst, |room| room.checked_sub(1)).is_err() {
            return Err(Error::unavailable("full"));
        }
        let mut written = self.written.lock();
        let block =
            Block { of_requests: true, segment: 0, offset: written.len() as u64 * 64, bytes: data.len() as u64 };
        written.insert(block.id());
        room.blocks.push(block.id());
        write::tensor(to, name, datatype, shape, Put::Block(block));
        Ok(())
    }
    fn forget(&self, blocks: &[u64]) {
        blocks.iter().for_each(|block| assert!(self.written.lock().remove(block)));
    }
    fn take(&self, tensor: &TensorRef<'_>) -> std::result::Result<Data, SegmentError> {
        match tensor.contents {
            Contents::Inline(bytes) => Ok(Data::Bytes(Bytes::copy_from_slice(bytes))),
            Contents::Device(_) => Err(SegmentError::ProtocolError(ProtocolError("no such lease"))),
            Contents::Block(block) if block.segment > 0 => {
                Err(SegmentError::ProtocolError(ProtocolError("no such segment")))
            }
            Contents::Block(_) if self.is_short => {
                self.given_back.fetch_add(1, SeqCst);
                Err(SegmentError::Short(Error::unavailable("no memory")))
            }
            Contents::Block(block) => {
                self.given_back.fetch_add(1, SeqCst);
                Ok(Data::Bytes(Bytes::from(vec![7; block.bytes as usize])))
            }
        }
    }
    fn done_with(&self, _: &TensorRef<'_>) {
        self.given_back.fetch_add(1, SeqCst);
    }
    fn later(&self, job: Job) {
        match &self.left {
            Some(left) => left.lock().push(job),
            None => job(),
        }
    }
    fn condemn(&self, why: &str) {
        *self.condemned.lock() = Some(why.to_owned());
    }
}

struct Runner {
    asks: Asks,
    link: Arc<FakePeer>,
    peer: Arc<dyn Peer>,
}

fn runner_with(change: impl FnOnce(&mut FakePeer)) -> Runner {
    let server = Arc::new(Server {
        metrics: CustomMetrics::new(true),
        respond: Mutex::default(),
        calls: Mutex::default(),
        controls: Mutex::default(),
        cancelled: Arc::default(),
    });
    let mut link = FakePeer {
        server,
        has_server: true,
        sent: Mutex::default(),
        written: Mutex::default(),
        room: AtomicUsize::new(8),
        given_back: AtomicUsize::new(0),
        is_short: false,
        left: None,
        condemned: Mutex::default(),
    };
    change(&mut link);
    let link = Arc::new(link);
    Runner { asks: Asks::default(), peer: link.clone(), link }
}

fn runner() -> Runner {
    runner_with(|_| {})
}

fn large(segment: u16) -> TensorRef<'static> {
    let block = Block { of_requests: false, segment, offset: 0, bytes: 8192 };
    TensorRef {
        name: "L",
        datatype: DataType::Uint8,
        shape: Shape::from_slice(&[8192]),
        contents: Contents::Block(block),
    }
}

fn call(number: u64) -> CallRef<'static> {
    let bytes: &[u8] = &[1, 0, 0, 0];
    let small = TensorRef {
        name: "A",
        datatype: DataType::Int32,
        shape: Shape::from_slice(&[1]),
        contents: Contents::Inline(bytes),
    };
    let head = RequestHead { correlation: 77, timeout_us: 5, flags: 3, ..RequestHead::default() };
    CallRef {
        call: number,
        version: -1,
        parent: (3, 9),
        is_decoupled: false,
        is_traced: false,
        takes_devices: false,
        is_acknowledged: false,
        is_only_checked: false,
        priority: 0,
        model: "other",
        request: RequestRef {
            head,
            id: "id",
            correlation: "",
            parameters: r#"{"i":5,"s":"x","b":true,"d":2.0}"#,
            trace: "",
            outputs: None,
            inputs: [small, large(0)].into_iter().collect(),
        },
    }
}

fn response(bytes: usize) -> Box<InferResponse> {
    let output = |name: &str| OutputTensor {
        name: name.into(),
        index: 0,
        datatype: DataType::Uint8,
        shape: Shape::from_slice(&[bytes as i64]),
        data: Data::Bytes(Bytes::from(vec![1; bytes])),
        form: OutputForm::default(),
    };
    let parameters = vec![("a".into(), Parameter::Int(1))];
    Box::new(InferResponse {
        outputs: [output("X"), output("Y")].into_iter().collect(),
        parameters,
        ..Default::default()
    })
}

/// A decoded CALL_RESPONSE: call, kind, final, code, parameters, error text, outputs.
type CallResponse = (u64, Answer, bool, Code, String, String, u16);

fn decode_response(frame: &[u8]) -> CallResponse {
    let (head, rest) = frame.split_first_chunk().expect("a head");
    let header = Header::read(head);
    assert_eq!((header.frame, header.length as usize), (Frame::CallResponse as u8, rest.len()));
    let (id, rest) = rest.split_first_chunk().expect("an id");
    let (answer, rest) = rest.split_first_chunk().expect("an answer");
    let answer = AnswerHead::read(answer);
    let (parameters, rest) = rest.split_at(answer.parameters_bytes as usize);
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("UTF-8");
    let kind = Answer::from_number(answer.kind.into()).expect("a kind");
    let code = Code::ALL[answer.code as usize];
    let error = text(&rest[..answer.error_bytes as usize]);
    (CallId::read(id).call, kind, answer.flags == 1, code, text(parameters), error, answer.outputs)
}

impl Runner {
    fn receive(&self, frame: FromRunner<'_>) -> std::result::Result<(), ProtocolError> {
        self.asks.frame(&self.peer, Way::Side, frame)
    }

    fn start_call(&self, call: CallRef<'static>) {
        self.receive(FromRunner::Call(Box::new(call))).expect("a valid frame");
    }

    fn answers(&self) -> Vec<CallResponse> {
        std::mem::take(&mut *self.link.sent.lock()).iter().map(|(_, frame)| decode_response(frame)).collect()
    }

    /// The next call that the server received.
    fn next_call(&self) -> (ModelCall, Arc<dyn CallAnswers>) {
        self.link.server.calls.lock().remove(0)
    }

    fn cancelled(&self) -> usize {
        self.link.server.cancelled.load(SeqCst)
    }

    fn operate(&self, json: &str) -> String {
        self.receive(FromRunner::Control(json)).expect("a valid frame");
        self.next_result()
    }

    fn next_result(&self) -> String {
        let (_, frame) = self.link.sent.lock().remove(0);
        let (head, rest) = frame.split_first_chunk().expect("a head");
        assert_eq!(Header::read(head).frame, Frame::ControlResult as u8);
        String::from_utf8(rest.to_vec()).expect("UTF-8")
    }
}

fn rejection(reason: &str) -> CallResponse {
    let text = format!("Model other - Error when running inference: {reason}");
    (1, Answer::Error, true, Code::Internal, String::new(), text, 0)
}

#[test]
fn b_py_10_a_call_reaches_the_server_and_its_response_the_socket_of_the_call() {
    let runner = runner();
    runner.asks.frame(&runner.peer, Way::Work, FromRunner::Call(Box::new(call(1)))).expect("a valid frame");
    assert_eq!(runner.link.given_back.load(SeqCst), 1, "its block is returned");
    let (sent, answers) = runner.next_call();
    let request = &sent.request;
    assert_eq!((&*sent.model, sent.version, sent.decoupled), ("other", -1, false));
    assert_eq!((&*request.id, request.timeout_us, request.depth), ("id", 5, 5));
    assert_eq!(
        (&request.sequence.id, request.sequence.start, request.sequence.end),
        (&CorrelationId::Number(77), true, true)
    );
    assert_eq!(
        request.parameters,
        [
            ("i".into(), Parameter::Int(5)),
            ("s".into(), Parameter::String("x".into())),
            ("b".into(), Parameter::Bool(true)),
            ("d".into(), Parameter::Double(2.0))
        ]
    );
    let sizes: Vec<_> = request.inputs.iter().map(|i| (&*i.name, i.data.len())).collect();
    assert_eq!(sizes, [("A", 4), ("L", 8192)]);
    assert!(request.outputs.is_empty(), "all outputs");
    answers.answer(Some(Ok(response(4096))), true);
    // The first output fits into the frame, the second does not.
    assert_eq!(runner.link.written.lock().len(), 1);
    assert_eq!(runner.link.sent.lock()[0].0, Way::Work);
    assert_eq!(runner.answers(), [(1, Answer::Response, true, Code::Unknown, r#"{"a":1}"#.into(), String::new(), 2)]);
    assert_eq!(runner.asks.calls.open(), 0);
}

#[test]
fn an_acknowledged_call_is_told_whether_it_is_accepted_and_why_not() {
    let runner = runner();
    let acknowledged = |number| CallRef { is_acknowledged: true, is_decoupled: true, priority: 2, ..call(number) };
    let error = Error::invalid("[request id: id] unexpected inference output 'nope' for model 'other'");
    let refused = error.clone();
    *runner.link.server.respond.lock() = Some(Box::new(|_, _| Err(refused)));
    runner.start_call(acknowledged(1));
    let frame = runner.link.sent.lock()[0].1.clone();
    let (header, body, _) = frames::split_request(&frame).expect("valid").expect("whole");
    let frames::ToRunner::CallResponse { call: 1, answer } = frames::read_request(&header, body).expect("a frame")
    else {
        panic!("a response")
    };
    assert_eq!((answer.is_final, answer.is_failed, answer.code), (true, true, Code::InvalidArg));
    assert_eq!(answer.error, error.message(), "without a prefix");
    runner.answers();
    runner.start_call(acknowledged(2));
    assert_eq!(runner.answers(), [(2, Answer::None, false, Code::Unknown, String::new(), String::new(), 0)]);
    let (sent, answers) = runner.next_call();
    assert_eq!((sent.request.priority, sent.is_only_checked), (2, false));
    answers.answer(None, true);
    assert_eq!(runner.answers(), [(2, Answer::None, true, Code::Unknown, String::new(), String::new(), 0)]);
    let checked = CallRef { is_only_checked: true, ..acknowledged(3) };
    runner.start_call(checked);
    assert!(runner.answers().is_empty(), "its end says that it is accepted");
    assert!(runner.next_call().0.is_only_checked);
}

#[test]
fn a_runner_learns_what_it_would_call() {
    let runner = runner();
    let described = runner.operate(r#"{"id":7,"operation":"describe","model":"other","version":-1}"#);
    let facts = r#""version":3,"decoupled":false,"batches":true,"priority_levels":2,"default_priority":1"#;
    assert_eq!(described, format!(r#"{{"id":7,{facts}}}"#));
    let unknown = runner.operate(r#"{"id":8,"operation":"describe","model":"nope"}"#);
    assert!(unknown.contains(r#""error":{"code":"NOT_FOUND""#), "{unknown}");
}

#[test]
fn b_py_10_a_rejected_call_gets_a_prefix_and_internal_a_failed_one_keeps_its_error() {
    let runner = runner();
    let reject_with = |error: Error| *runner.link.server.respond.lock() = Some(Box::new(|_, _| Err(error)));
    reject_with(Error::not_found("Request for unknown model: 'other' is not found"));
    runner.start_call(call(1));
    assert_eq!(runner.answers(), [rejection("Request for unknown model: 'other' is not found")]);

    let fail_with = |error: Error| {
        let respond = |_, answers: Arc<dyn CallAnswers>| {
            answers.answer(Some(Err(error)), true);
            Ok(())
        };
        *runner.link.server.respond.lock() = Some(Box::new(respond));
    };
    // The server responds before its function `call` returns.
    for (error, code) in [(Error::not_found("t"), Code::NotFound), (Error::cancelled("t"), Code::Cancelled)] {
        fail_with(error);
        runner.start_call(call(2));
        assert_eq!(runner.answers(), [(2, Answer::Error, true, code, String::new(), "t".into(), 0)]);
    }
    fail_with(Error::new(Code::ResourceExhausted, "t"));
    runner.start_call(call(2));
    assert_eq!(runner.answers()[0].3, Code::ResourceExhausted);
    assert_eq!((runner.asks.calls.open(), runner.cancelled()), (0, 3), "cancelling a finished call does nothing");
}

#[test]
fn b_py_12_responses_of_a_decoupled_call_stay_in_order_and_the_final_may_be_empty() {
    let runner = runner();
    runner.start_call(CallRef { is_decoupled: true, ..call(1) });
    let (sent, answers) = runner.next_call();
    assert!(sent.decoupled);
    answers.answer(Some(Ok(response(1))), false);
    answers.answer(Some(Err(Error::not_found("mid"))), false);
    answers.answer(None, true);
    // Ignored after the final response.
    answers.answer(Some(Ok(response(1))), false);
    let kinds: Vec<_> = runner.answers().into_iter().map(|(_, kind, is_final, ..)| (kind, is_final)).collect();
    assert_eq!(kinds, [(Answer::Response, false), (Answer::Error, false), (Answer::None, true)]);
}

#[test]
fn b_py_12_a_cancelled_call_gets_a_final_response_and_a_closed_one_gets_none() {
    let runner = runner();
    for number in [1, 2] {
        runner.start_call(CallRef { is_decoupled: true, ..call(number) });
    }
    let ((_, first), (_, second)) = (runner.next_call(), runner.next_call());
    runner.receive(FromRunner::CallCancel(1)).expect("a valid frame");
    runner.receive(FromRunner::CallClose(2)).expect("a valid frame");
    // No such call: ignored.
    runner.receive(FromRunner::CallCancel(99)).expect("a valid frame");
    assert_eq!((runner.cancelled(), runner.asks.calls.open()), (2, 2));
    first.answer(Some(Err(Error::cancelled("stopped"))), true);
    second.answer(Some(Err(Error::cancelled("stopped"))), true);
    assert_eq!(runner.answers(), [(1, Answer::Error, true, Code::Cancelled, String::new(), "stopped".into(), 0)]);
    assert_eq!(runner.asks.calls.open(), 0);
}

#[test]
fn b_py_27_cancelling_a_request_cancels_only_its_calls() {
    let runner = runner();
    for (number, parent) in [(1, (3, 9)), (2, (3, 9)), (3, (3, 8))] {
        runner.start_call(CallRef { parent, ..call(number) });
    }
    runner.asks.request_cancelled((3, 9));
    assert_eq!(runner.cancelled(), 2);
    assert_eq!(runner.link.server.calls.lock()[2].0.request.depth, 1, "the call has no parent");
}

#[test]
fn b_pyr_07_calls_and_metrics_of_a_process_end_with_it() {
    let runner = runner();
    runner.start_call(call(1));
    runner.operate(r#"{"id":5,"operation":"family_new","name":"n","description":"d","kind":"gauge"}"#);
    runner.asks.closed();
    assert_eq!((runner.cancelled(), runner.asks.calls.open()), (1, 0));
    assert_eq!(runner.link.server.metrics.used(), [0, 0, 0]);
    let (_, answers) = runner.next_call();
    answers.answer(Some(Ok(response(1))), true);
    assert!(runner.link.sent.lock().is_empty(), "no response is sent to an ended process");
}

#[test]
fn b_py_10_a_call_can_be_cancelled_while_the_server_accepts_it() {
    let runner = Arc::new(runner());
    let this = runner.clone();
    *runner.link.server.respond.lock() = Some(Box::new(move |_, _| {
        this.asks.request_cancelled((3, 9));
        Ok(())
    }));
    runner.start_call(call(1));
    assert_eq!(runner.cancelled(), 1);
}

#[test]
fn b_sec_07_calls_of_an_instance_are_bounded() {
    let runner = runner();
    for number in 0..calls::CALLS_MAX as u64 {
        runner.start_call(call(number + 10));
    }
    runner.start_call(call(1));
    assert_eq!(runner.answers(), [rejection("this instance has 1024 inferences of other models in progress")]);
    // A closed call counts until it ends.
    runner.receive(FromRunner::CallClose(10)).expect("a valid frame");
    runner.start_call(call(1));
    assert_eq!(runner.answers().len(), 1);
    let (_, answers) = runner.next_call();
    answers.answer(None, true);
    runner.start_call(call(1));
    assert_eq!((runner.answers().len(), runner.asks.calls.open()), (0, calls::CALLS_MAX));
}

#[test]
fn b_sec_02_an_invalid_call_is_a_protocol_error_and_a_lack_of_memory_is_not() {
    let runner = runner();
    let mut invalid = call(1);
    invalid.request.inputs.push(large(9));
    assert_eq!(runner.receive(FromRunner::Call(Box::new(invalid))), Err(ProtocolError("no such segment")));
    let mut invalid = call(1);
    invalid.request.parameters = "[]";
    assert!(runner.receive(FromRunner::Call(Box::new(invalid))).is_err());
    runner.start_call(call(1));
    assert_eq!(
        runner.receive(FromRunner::Call(Box::new(call(1)))),
        Err(ProtocolError("two calls have the same number"))
    );

    let short = runner_with(|link| link.is_short = true);
    let mut more = call(1);
    more.request.inputs.push(large(0));
    short.start_call(more);
    assert_eq!((short.answers(), short.link.given_back.load(SeqCst)), (vec![rejection("no memory")], 2));

    let alone = runner_with(|link| link.has_server = false);
    alone.start_call(call(1));
    assert_eq!(alone.answers(), [rejection("there is no server for this call")]);
    assert!(alone.operate(r#"{"id":1,"operation":"load","model":"m"}"#).contains("there is no server"));
}

#[test]
fn b_sec_07_a_call_fails_if_there_is_no_memory_for_its_response() {
    let runner = runner_with(|link| link.room = AtomicUsize::new(1));
    runner.start_call(CallRef { is_decoupled: true, ..call(1) });
    let (_, answers) = runner.next_call();
    // One output finds space, the other does not: the frame is not sent, and its block is freed.
    answers.answer(Some(Ok(response(5000))), false);
    assert!(runner.link.written.lock().is_empty());
    assert_eq!(runner.answers(), [(1, Answer::Error, true, Code::Unavailable, String::new(), "full".into(), 0)]);
    assert_eq!(runner.cancelled(), 1);
    answers.answer(Some(Ok(response(1))), false);
    answers.answer(Some(Err(Error::cancelled(""))), true);
    assert_eq!((runner.answers().len(), runner.asks.calls.open()), (0, 0), "the final response was sent already");
}

#[test]
fn b_py_21_loads_and_unloads_go_to_the_server_and_their_results_come_back() {
    let runner = runner();
    let receive = |json: &str| runner.receive(FromRunner::Control(json)).expect("a valid frame");
    receive(r#"{"id":1,"operation":"load","model":"m","config":"{}","files":{"file:1/model.py":"eCA9IDE="}}"#);
    receive(r#"{"id":2,"operation":"unload","model":"m","dependents":true}"#);
    receive(r#"{"id":3,"operation":"is_ready","model":"m","version":"1"}"#);
    assert!(runner.link.sent.lock().is_empty(), "no result yet");
    let mut answers = Vec::new();
    for (control, answer) in runner.link.server.controls.lock().drain(..) {
        assert_eq!(&*control.asker, "caller");
        answers.push((format!("{:?}", control.operation), answer));
    }
    assert_eq!(
        answers.iter().map(|(sent, _)| &**sent).collect::<Vec<_>>(),
        [
            r#"Load { model: "m", config: "{}", files: [("file:1/model.py", [120, 32, 61, 32, 49])] }"#,
            r#"Unload { model: "m", dependents: true }"#,
            r#"IsReady { model: "m", version: "1" }"#
        ]
    );
    let results = [Err(Error::unavailable("say \"no\"")), Ok("{}".into()), Ok("true".into())];
    for ((_, answer), result) in answers.into_iter().zip(results) {
        answer(result);
    }
    assert_eq!(runner.next_result(), r#"{"id":1,"error":{"code":"UNAVAILABLE","message":"say \"no\""}}"#);
    assert_eq!(runner.next_result(), r#"{"id":2}"#);
    assert_eq!(runner.next_result(), r#"{"id":3,"ready":true}"#);
}

#[test]
fn b_py_20_metrics_are_made_changed_and_read() {
    let runner = runner();
    let family =
        runner.operate(r#"{"id":1,"operation":"family_new","name":"golden_g","description":"d","kind":"gauge"}"#);
    assert_eq!(family, r#"{"id":1,"family":1}"#);
    let metric = |id: u32, more: &str| {
        runner.operate(&format!(r#"{{"id":{id},"operation":"metric_new","family":1,"labels":{{"a":"1"}}{more}}}"#))
    };
    // A runner sends no buckets or an empty list for a metric without buckets.
    assert_eq!(
        (metric(2, ""), metric(3, r#","buckets":[]"#)),
        (r#"{"id":2,"metric":2}"#.into(), r#"{"id":3,"metric":3}"#.into())
    );
    let change = |metric, operation, value| {
        runner.receive(FromRunner::MetricUpdate(MetricChange { metric, value, operation })).expect("a valid frame");
    };
    change(2, MetricOperation::Set, 4.0);
    change(3, MetricOperation::Increment, 0.5);
    // The runner rejects these itself; here they are ignored.
    change(2, MetricOperation::Observe, 1.0);
    change(99, MetricOperation::Set, 1.0);
    let value = || runner.operate(r#"{"id":4,"operation":"metric_value","metric":2}"#);
    assert_eq!(value(), r#"{"id":4,"value":4.5}"#);
    for (number, shown) in [(f64::NAN, "null"), (f64::INFINITY, r#""Infinity""#), (-0.0, "-0.0"), (1e300, "1e300")] {
        change(2, MetricOperation::Set, number);
        assert_eq!(value(), format!(r#"{{"id":4,"value":{shown}}}"#));
    }
    // Operation 0 gets no result.
    runner.receive(FromRunner::Control(r#"{"id":0,"operation":"metric_delete","metric":3}"#)).expect("a valid frame");
    assert!(runner.link.sent.lock().is_empty());
    assert!(runner.operate(r#"{"id":5,"operation":"metric_value","metric":3}"#).contains("there is no metric 3"));
    assert_eq!(runner.operate(r#"{"id":6,"operation":"family_delete","family":1}"#), r#"{"id":6}"#);
    assert!(runner.link.server.metrics.snapshot().is_empty());
    assert!(value().contains("has been deleted"));

    let rejected =
        runner.operate(r#"{"id":7,"operation":"family_new","name":"1golden","description":"d","kind":"gauge"}"#);
    assert_eq!(rejected, r#"{"id":7,"error":{"code":"INVALID_ARG","message":"Invalid metric name"}}"#);
    runner.operate(r#"{"id":8,"operation":"family_new","name":"h","description":"d","kind":"histogram"}"#);
    assert!(
        runner
            .operate(r#"{"id":9,"operation":"metric_new","family":5,"labels":{"a":1},"buckets":[1]}"#)
            .contains("non-string")
    );
    runner.operate(r#"{"id":9,"operation":"metric_new","family":5,"labels":{},"buckets":[1,"2.5"]}"#);
    change(6, MetricOperation::Observe, 2.0);
    let snapshot = runner.link.server.metrics.snapshot();
    let Some((_, MetricValue::Histogram(histogram))) = snapshot[0].series.first() else { panic!("{snapshot:?}") };
    assert_eq!((&histogram.bounds[..], &histogram.counts[..]), (&[1.0, 2.5][..], &[0, 1, 0][..]));
}

#[test]
fn b_sec_07_operations_are_bounded_and_invalid_ones_are_protocol_errors() {
    let runner = runner();
    for json in ["", "{", "[]", "{}", r#"{"id":"1","operation":"load"}"#, r#"{"id":-1}"#] {
        assert!(runner.receive(FromRunner::Control(json)).is_err(), "{json}");
    }
    for (json, text) in [
        (r#"{"id":1}"#, "operation"),
        (r#"{"id":1,"operation":"format_disk"}"#, "there is no operation"),
        (r#"{"id":1,"operation":"load"}"#, "model"),
        (r#"{"id":1,"operation":"load","model":5}"#, "non-string"),
        (r#"{"id":1,"operation":"load","model":"m","files":{"file:x":"*"}}"#, "not valid base64"),
        (r#"{"id":1,"operation":"metric_value","metric":1}"#, "no family of metrics"),
        (r#"{"id":1,"operation":"family_new","name":"n","description":"d","kind":"summary"}"#, "no kind"),
    ] {
        assert!(runner.operate(json).contains(text), "{json}");
    }
    // A long operation is parsed on another thread.
    runner.receive(FromRunner::Control(&"[".repeat(20_000))).expect("later");
    assert_eq!(runner.link.condemned.lock().take().as_deref(), Some("a question is not JSON"));

    let load = |id: usize| {
        runner
            .receive(FromRunner::Control(&format!(r#"{{"id":{id},"operation":"load","model":"m"}}"#)))
            .expect("a valid frame");
    };
    (1..=control::CONTROLS_MAX).for_each(load);
    assert!(runner.link.sent.lock().is_empty());
    load(1000);
    assert!(runner.next_result().contains("waits for 64 loads"));
    let (control, answer) = runner.link.server.controls.lock().remove(0);
    assert!(matches!(control.operation, ModelOperation::Load { .. }));
    answer(Ok("{}".into()));
    load(1001);
    assert_eq!(runner.link.sent.lock().len(), 1, "only the result of the first");
}

#[test]
fn reports_and_changes_of_repositories_reach_the_server() {
    let runner = runner();
    let operate = |json: &str, result: Result<String>| {
        runner.receive(FromRunner::Control(json)).expect("a valid frame");
        let (control, answer) = runner.link.server.controls.lock().remove(0);
        answer(result);
        (format!("{:?}", control.operation), runner.next_result())
    };
    assert_eq!(
        operate(r#"{"id":7,"operation":"read","report":"model_config","model":"m"}"#, Ok(r#"{"name":"m"}"#.into())),
        (r#"Read { report: ModelConfig, model: "m", version: "" }"#.into(), r#"{"id":7,"report":{"name":"m"}}"#.into())
    );
    assert_eq!(
        operate(r#"{"id":8,"operation":"is_server_ready"}"#, Ok("true".into())),
        ("IsServerReady".into(), r#"{"id":8,"ready":true}"#.into())
    );
    assert_eq!(
        operate(r#"{"id":9,"operation":"register","path":"/x","names":{"m":"d"}}"#, Ok("{}".into())),
        (r#"Repositories(Register { path: "/x", names: [("m", "d")] })"#.into(), r#"{"id":9}"#.into())
    );
    let long = "x".repeat(crate::generated::FRAME_BYTES_MAX as usize);
    let (_, result) = operate(r#"{"id":10,"operation":"read","report":"index"}"#, Ok(long));
    assert!(result.contains("which exceed the limit of a frame"), "a result that is too long still gets an answer");
    assert!(runner.operate(r#"{"id":1,"operation":"read","report":"all"}"#).contains("no report 'all'"));
}

#[test]
fn frames_of_batches_are_rejected_and_log_lines_accepted() {
    let runner = runner();
    runner
        .receive(FromRunner::Log(LogRef { level: LogLevel::Info, file: "m.py", line: 1, text: "x" }))
        .expect("a valid frame");
    assert!(runner.receive(FromRunner::Pong(1)).is_err());
}

#[test]
fn b_sec_07_the_bytes_of_long_operations_are_bounded() {
    let runner = runner();
    // Two thirds of the limit, twice.
    let contents = "eCA9".repeat(176 << 10);
    let load = |id: u32| format!(r#"{{"id":{id},"operation":"load","model":"m","files":{{"file:x":"{contents}"}}}}"#);
    runner.receive(FromRunner::Control(&load(1))).expect("a valid frame");
    assert!(runner.link.sent.lock().is_empty());
    assert!(runner.operate(&load(2)).contains("hold more than"));
    let (_, answer) = runner.link.server.controls.lock().remove(0);
    answer(Ok("{}".into()));
    assert_eq!(runner.next_result(), r#"{"id":1}"#);
    runner.receive(FromRunner::Control(&load(3))).expect("a valid frame");
    assert!(runner.link.sent.lock().is_empty());
}

#[test]
fn b_sec_07_long_operations_are_bounded_before_they_are_parsed() {
    let runner = runner_with(|link| link.left = Some(Mutex::default()));
    let contents = "eCA9".repeat(96 << 10);
    for id in 1..100 {
        let load = format!(r#"{{"id":{id},"operation":"load","model":"m","files":{{"file:x":"{contents}"}}}}"#);
        runner.receive(FromRunner::Control(&load)).expect("a valid frame");
    }
    assert_eq!(runner.link.left.as_ref().map(|left| left.lock().len()), Some(2), "1 MiB");
    assert_eq!(runner.link.sent.lock().len(), 97, "the others are rejected at once");
}

#[test]
fn b_sec_03_each_call_gets_at_most_one_final_response_in_any_order_of_events() {
    let mut state = 88_172_645_463_325_252u64;
    let mut random = move |below: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state % below as u64) as usize
    };
    for round in 0..200 {
        let runner = runner_with(|link| link.room = AtomicUsize::new(round % 5));
        let mut open_calls: Vec<Arc<dyn CallAnswers>> = Vec::new();
        let mut numbers = 0;
        // Calls started per number: a runner may reuse a number after its call has ended.
        let mut started = vec![0; 102];
        for _ in 0..100 {
            let some = random(numbers + 2) as u64;
            let _ = match random(12) {
                0..=2 => {
                    numbers += 1;
                    started[numbers] += 1;
                    let parent = if random(2) == 0 { (3, 9) } else { (random(3) as u32, 0) };
                    let new = CallRef { is_decoupled: random(2) == 0, parent, ..call(numbers as u64) };
                    runner.receive(FromRunner::Call(Box::new(new)))
                }
                // A number in use, or used before.
                3 => {
                    let result = runner.receive(FromRunner::Call(Box::new(call(some))));
                    started[some as usize] += usize::from(result.is_ok());
                    result
                }
                4 => runner.receive(FromRunner::CallCancel(some)),
                5 => runner.receive(FromRunner::CallClose(some)),
                6 => {
                    runner.asks.request_cancelled((3, 9));
                    Ok(())
                }
                7 => {
                    let rejected = |_, _| Err(Error::invalid("no"));
                    *runner.link.server.respond.lock() = Some(Box::new(rejected));
                    Ok(())
                }
                _ if open_calls.is_empty() => Ok(()),
                _ => {
                    let at = random(open_calls.len());
                    let is_final = random(3) == 0;
                    // The server sends nothing after the final response.
                    let answers = if is_final { open_calls.swap_remove(at) } else { open_calls[at].clone() };
                    let response = match random(3) {
                        0 => None,
                        1 => Some(Err(Error::internal("t"))),
                        _ => Some(Ok(response([1, 5000][random(2)]))),
                    };
                    answers.answer(response, is_final);
                    Ok(())
                }
            };
            open_calls.extend(runner.link.server.calls.lock().drain(..).map(|(_, answers)| answers));
        }
        // Ends all calls that are left.
        open_calls.iter().for_each(|answers| answers.answer(None, true));
        assert_eq!(runner.asks.calls.open(), 0, "round {round}");
        let mut ends: std::collections::HashMap<u64, usize> = Default::default();
        for (number, _, is_final, ..) in runner.answers() {
            *ends.entry(number).or_default() += usize::from(is_final);
        }
        for (number, ends) in ends {
            assert!(ends <= started[number as usize], "round {round}: {ends} final responses of call {number}");
        }
    }
}
