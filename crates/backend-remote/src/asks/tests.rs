//! What a runner asks, against a server that a test plays and segments that are numbers.

use super::*;
use crate::frames::write::{self, Put};
use crate::frames::{Block, CallRef, Contents, LogRef, MetricChange, RequestRef, TensorRef};
use crate::generated::{Answer, AnswerHead, CallId, Frame, Header, LogLevel, MetricOperation, RequestHead};
use crate::memory::{Refused, Room};
use backend::metrics::{CustomMetrics, Value as MetricValue};
use backend::{Call, CallAnswers, ControlAnswer, Host, ModelCall, ModelControl, ModelOperation};
use bytes::Bytes;
use parking_lot::Mutex;
use protocol::{CorrelationId, InferResponse, OutputForm, OutputTensor, Parameter};
use std::collections::HashSet;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use tensor::{Code, Data, DataType, Error, Result, Shape};

type Job = Box<dyn FnOnce() + Send>;
type Respond = Box<dyn FnOnce(ModelCall, Arc<dyn CallAnswers>) -> Result<()> + Send>;

/// The server: what it is asked is kept, or done at once.
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
    fn control(&self, control: ModelControl, answer: ControlAnswer) {
        self.controls.lock().push((control, answer));
    }
    fn metrics(&self) -> &Arc<CustomMetrics> {
        &self.metrics
    }
}

struct Link {
    server: Arc<Server>,
    has_server: bool,
    sent: Mutex<Vec<(Way, Vec<u8>)>>,
    /// Blocks of requests that were written into frames and not forgotten.
    written: Mutex<HashSet<u64>>,
    room: AtomicUsize,
    given_back: AtomicUsize,
    is_short: bool,
    /// What is left to another thread, which does not come to it.
    left: Option<Mutex<Vec<Job>>>,
    condemned: Mutex<Option<String>>,
}

impl Peer for Link {
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
    fn take(&self, tensor: &TensorRef<'_>) -> std::result::Result<Data, Refused> {
        match tensor.contents {
            Contents::Inline(bytes) => Ok(Data::Bytes(Bytes::copy_from_slice(bytes))),
            Contents::Device(_) => Err(Refused::Lie(Lie("no such lease"))),
            Contents::Block(block) if block.segment > 0 => Err(Refused::Lie(Lie("no such segment"))),
            Contents::Block(_) if self.is_short => {
                self.given_back.fetch_add(1, SeqCst);
                Err(Refused::Short(Error::unavailable("no memory")))
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
    link: Arc<Link>,
    peer: Arc<dyn Peer>,
}

fn runner_with(change: impl FnOnce(&mut Link)) -> Runner {
    let server = Arc::new(Server {
        metrics: CustomMetrics::new(true),
        respond: Mutex::default(),
        calls: Mutex::default(),
        controls: Mutex::default(),
        cancelled: Arc::default(),
    });
    let mut link = Link {
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

/// A CALL_RESPONSE as a test compares it: call, kind, final, code, parameters, text, outputs.
type Got = (u64, Answer, bool, Code, String, String, u16);

fn got(frame: &[u8]) -> Got {
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
    fn says(&self, frame: FromRunner<'_>) -> std::result::Result<(), Lie> {
        self.asks.frame(&self.peer, Way::Side, frame)
    }

    fn calls(&self, call: CallRef<'static>) {
        self.says(FromRunner::Call(Box::new(call))).expect("no lie");
    }

    fn answers(&self) -> Vec<Got> {
        std::mem::take(&mut *self.link.sent.lock()).iter().map(|(_, frame)| got(frame)).collect()
    }

    /// The call that the server has.
    fn held(&self) -> (ModelCall, Arc<dyn CallAnswers>) {
        self.link.server.calls.lock().remove(0)
    }

    fn cancelled(&self) -> usize {
        self.link.server.cancelled.load(SeqCst)
    }

    fn asked(&self, json: &str) -> String {
        self.says(FromRunner::Control(json)).expect("no lie");
        self.told()
    }

    fn told(&self) -> String {
        let (_, frame) = self.link.sent.lock().remove(0);
        let (head, rest) = frame.split_first_chunk().expect("a head");
        assert_eq!(Header::read(head).frame, Frame::ControlResult as u8);
        String::from_utf8(rest.to_vec()).expect("UTF-8")
    }
}

fn refusal(reason: &str) -> Got {
    let text = format!("Model other - Error when running inference: {reason}");
    (1, Answer::Error, true, Code::Internal, String::new(), text, 0)
}

#[test]
fn b_py_10_a_call_reaches_the_server_as_it_was_made_and_its_answer_the_socket_it_came_on() {
    let runner = runner();
    runner.asks.frame(&runner.peer, Way::Work, FromRunner::Call(Box::new(call(1)))).expect("no lie");
    assert_eq!(runner.link.given_back.load(SeqCst), 1, "its block");
    let (asked, answers) = runner.held();
    let request = &asked.request;
    assert_eq!((&*asked.model, asked.version, asked.decoupled), ("other", -1, false));
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
    assert!(request.outputs.is_empty(), "all");
    answers.answer(Some(Ok(response(4096))), true);
    // The first output fits into the frame, the second does not any more.
    assert_eq!(runner.link.written.lock().len(), 1);
    assert_eq!(runner.link.sent.lock()[0].0, Way::Work);
    assert_eq!(runner.answers(), [(1, Answer::Response, true, Code::Unknown, r#"{"a":1}"#.into(), String::new(), 2)]);
    assert_eq!(runner.asks.calls.open(), 0);
}

#[test]
fn b_py_10_refusals_have_the_prefix_and_are_internal_and_failures_keep_their_own_words() {
    let runner = runner();
    let refuses = |error: Error| *runner.link.server.respond.lock() = Some(Box::new(|_, _| Err(error)));
    refuses(Error::not_found("Request for unknown model: 'other' is not found"));
    runner.calls(call(1));
    assert_eq!(runner.answers(), [refusal("Request for unknown model: 'other' is not found")]);

    let fails = |error: Error| {
        let respond = |_, answers: Arc<dyn CallAnswers>| {
            answers.answer(Some(Err(error)), true);
            Ok(())
        };
        *runner.link.server.respond.lock() = Some(Box::new(respond));
    };
    // Answered before the server has said that it took it.
    for (error, code) in [(Error::not_found("t"), Code::NotFound), (Error::cancelled("t"), Code::Cancelled)] {
        fails(error);
        runner.calls(call(2));
        assert_eq!(runner.answers(), [(2, Answer::Error, true, code, String::new(), "t".into(), 0)]);
    }
    fails(Error::new(Code::ResourceExhausted, "t"));
    runner.calls(call(2));
    assert_eq!(runner.answers()[0].3, Code::ResourceExhausted);
    assert_eq!((runner.asks.calls.open(), runner.cancelled()), (0, 3), "what is over is cancelled in vain");
}

#[test]
fn b_py_12_answers_of_a_decoupled_call_come_in_order_and_the_end_may_come_alone() {
    let runner = runner();
    runner.calls(CallRef { is_decoupled: true, ..call(1) });
    let (asked, answers) = runner.held();
    assert!(asked.decoupled);
    answers.answer(Some(Ok(response(1))), false);
    answers.answer(Some(Err(Error::not_found("mid"))), false);
    answers.answer(None, true);
    // After the end.
    answers.answer(Some(Ok(response(1))), false);
    let kinds: Vec<_> = runner.answers().into_iter().map(|(_, kind, is_final, ..)| (kind, is_final)).collect();
    assert_eq!(kinds, [(Answer::Response, false), (Answer::Error, false), (Answer::None, true)]);
}

#[test]
fn b_py_12_a_cancelled_call_still_has_an_end_and_a_closed_one_has_none() {
    let runner = runner();
    for number in [1, 2] {
        runner.calls(CallRef { is_decoupled: true, ..call(number) });
    }
    let ((_, first), (_, second)) = (runner.held(), runner.held());
    runner.says(FromRunner::CallCancel(1)).expect("no lie");
    runner.says(FromRunner::CallClose(2)).expect("no lie");
    // Over already, or never there.
    runner.says(FromRunner::CallCancel(99)).expect("no lie");
    assert_eq!((runner.cancelled(), runner.asks.calls.open()), (2, 2));
    first.answer(Some(Err(Error::cancelled("stopped"))), true);
    second.answer(Some(Err(Error::cancelled("stopped"))), true);
    assert_eq!(runner.answers(), [(1, Answer::Error, true, Code::Cancelled, String::new(), "stopped".into(), 0)]);
    assert_eq!(runner.asks.calls.open(), 0);
}

#[test]
fn b_py_27_a_request_that_is_cancelled_cancels_its_calls_and_no_others() {
    let runner = runner();
    for (number, parent) in [(1, (3, 9)), (2, (3, 9)), (3, (3, 8))] {
        runner.calls(CallRef { parent, ..call(number) });
    }
    runner.asks.request_cancelled((3, 9));
    assert_eq!(runner.cancelled(), 2);
    assert_eq!(runner.link.server.calls.lock()[2].0.request.depth, 1, "of no request that it has");
}

#[test]
fn b_pyr_07_what_a_process_called_and_made_ends_with_it() {
    let runner = runner();
    runner.calls(call(1));
    runner.asked(r#"{"id":5,"operation":"family_new","name":"n","description":"d","kind":"gauge"}"#);
    runner.asks.closed();
    assert_eq!((runner.cancelled(), runner.asks.calls.open()), (1, 0));
    assert_eq!(runner.link.server.metrics.used(), [0, 0, 0]);
    let (_, answers) = runner.held();
    answers.answer(Some(Ok(response(1))), true);
    assert!(runner.link.sent.lock().is_empty(), "there is nobody to send it to");
}

#[test]
fn b_py_10_a_call_that_is_cancelled_while_the_server_takes_it_is_cancelled_then() {
    let runner = Arc::new(runner());
    let this = runner.clone();
    *runner.link.server.respond.lock() = Some(Box::new(move |_, _| {
        this.asks.request_cancelled((3, 9));
        Ok(())
    }));
    runner.calls(call(1));
    assert_eq!(runner.cancelled(), 1);
}

#[test]
fn b_sec_07_an_instance_has_so_many_calls_at_once_and_no_more() {
    let runner = runner();
    for number in 0..calls::CALLS_MAX as u64 {
        runner.calls(call(number + 10));
    }
    runner.calls(call(1));
    assert_eq!(runner.answers(), [refusal("this instance has 1024 inferences of other models in progress")]);
    // Closing them does not make room: they run until they end.
    runner.says(FromRunner::CallClose(10)).expect("no lie");
    runner.calls(call(1));
    assert_eq!(runner.answers().len(), 1);
    let (_, answers) = runner.held();
    answers.answer(None, true);
    runner.calls(call(1));
    assert_eq!((runner.answers().len(), runner.asks.calls.open()), (0, calls::CALLS_MAX));
}

#[test]
fn b_sec_02_lies_of_a_caller_are_lies_and_a_lack_of_memory_is_none() {
    let runner = runner();
    let mut lies = call(1);
    lies.request.inputs.push(large(9));
    assert_eq!(runner.says(FromRunner::Call(Box::new(lies))), Err(Lie("no such segment")));
    let mut lies = call(1);
    lies.request.parameters = "[]";
    assert!(runner.says(FromRunner::Call(Box::new(lies))).is_err());
    runner.calls(call(1));
    assert_eq!(runner.says(FromRunner::Call(Box::new(call(1)))), Err(Lie("two calls have one number")));

    let short = runner_with(|link| link.is_short = true);
    let mut more = call(1);
    more.request.inputs.push(large(0));
    short.calls(more);
    assert_eq!((short.answers(), short.link.given_back.load(SeqCst)), (vec![refusal("no memory")], 2));

    let alone = runner_with(|link| link.has_server = false);
    alone.calls(call(1));
    assert_eq!(alone.answers(), [refusal("there is no server to ask")]);
    assert!(alone.asked(r#"{"id":1,"operation":"load","model":"m"}"#).contains("there is no server"));
}

#[test]
fn b_sec_07_a_reader_that_is_too_far_behind_has_its_call_ended() {
    let runner = runner_with(|link| link.room = AtomicUsize::new(1));
    runner.calls(CallRef { is_decoupled: true, ..call(1) });
    let (_, answers) = runner.held();
    // One output finds room, the other does not: none of the frame is sent, and its block is free.
    answers.answer(Some(Ok(response(5000))), false);
    assert!(runner.link.written.lock().is_empty());
    assert_eq!(runner.answers(), [(1, Answer::Error, true, Code::Unavailable, String::new(), "full".into(), 0)]);
    assert_eq!(runner.cancelled(), 1);
    answers.answer(Some(Ok(response(1))), false);
    answers.answer(Some(Err(Error::cancelled(""))), true);
    assert_eq!((runner.answers().len(), runner.asks.calls.open()), (0, 0), "it had its end");
}

#[test]
fn b_py_21_loads_and_unloads_go_to_the_server_and_their_ends_come_back() {
    let runner = runner();
    let says = |json: &str| runner.says(FromRunner::Control(json)).expect("no lie");
    says(r#"{"id":1,"operation":"load","model":"m","config":"{}","files":{"file:1/model.py":"eCA9IDE="}}"#);
    says(r#"{"id":2,"operation":"unload","model":"m","dependents":true}"#);
    says(r#"{"id":3,"operation":"is_ready","model":"m","version":"1"}"#);
    assert!(runner.link.sent.lock().is_empty(), "all take time");
    let mut answers = Vec::new();
    for (control, answer) in runner.link.server.controls.lock().drain(..) {
        assert_eq!(&*control.asker, "caller");
        answers.push((format!("{:?}", control.operation), answer));
    }
    assert_eq!(
        answers.iter().map(|(asked, _)| &**asked).collect::<Vec<_>>(),
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
    assert_eq!(runner.told(), r#"{"id":1,"error":{"code":"UNAVAILABLE","message":"say \"no\""}}"#);
    assert_eq!(runner.told(), r#"{"id":2}"#);
    assert_eq!(runner.told(), r#"{"id":3,"ready":true}"#);
}

#[test]
fn b_py_20_metrics_are_made_changed_and_read() {
    let runner = runner();
    let family =
        runner.asked(r#"{"id":1,"operation":"family_new","name":"golden_g","description":"d","kind":"gauge"}"#);
    assert_eq!(family, r#"{"id":1,"family":1}"#);
    let metric = |id: u32, more: &str| {
        runner.asked(&format!(r#"{{"id":{id},"operation":"metric_new","family":1,"labels":{{"a":"1"}}{more}}}"#))
    };
    // Runners send no buckets, or none there are, for what has none.
    assert_eq!(
        (metric(2, ""), metric(3, r#","buckets":[]"#)),
        (r#"{"id":2,"metric":2}"#.into(), r#"{"id":3,"metric":3}"#.into())
    );
    let change = |metric, operation, value| {
        runner.says(FromRunner::MetricUpdate(MetricChange { metric, value, operation })).expect("no lie");
    };
    change(2, MetricOperation::Set, 4.0);
    change(3, MetricOperation::Increment, 0.5);
    // Refused where it was made; here it changes nothing.
    change(2, MetricOperation::Observe, 1.0);
    change(99, MetricOperation::Set, 1.0);
    let value = || runner.asked(r#"{"id":4,"operation":"metric_value","metric":2}"#);
    assert_eq!(value(), r#"{"id":4,"value":4.5}"#);
    for (number, shown) in [(f64::NAN, "null"), (f64::INFINITY, r#""Infinity""#), (-0.0, "-0.0"), (1e300, "1e300")] {
        change(2, MetricOperation::Set, number);
        assert_eq!(value(), format!(r#"{{"id":4,"value":{shown}}}"#));
    }
    // Where objects end nobody waits.
    runner.says(FromRunner::Control(r#"{"id":0,"operation":"metric_delete","metric":3}"#)).expect("no lie");
    assert!(runner.link.sent.lock().is_empty());
    assert!(runner.asked(r#"{"id":5,"operation":"metric_value","metric":3}"#).contains("there is no metric 3"));
    assert_eq!(runner.asked(r#"{"id":6,"operation":"family_delete","family":1}"#), r#"{"id":6}"#);
    assert!(runner.link.server.metrics.snapshot().is_empty());
    assert!(value().contains("has been deleted"));

    let refused =
        runner.asked(r#"{"id":7,"operation":"family_new","name":"1golden","description":"d","kind":"gauge"}"#);
    assert_eq!(refused, r#"{"id":7,"error":{"code":"INVALID_ARG","message":"Invalid metric name"}}"#);
    runner.asked(r#"{"id":8,"operation":"family_new","name":"h","description":"d","kind":"histogram"}"#);
    assert!(
        runner
            .asked(r#"{"id":9,"operation":"metric_new","family":5,"labels":{"a":1},"buckets":[1]}"#)
            .contains("non-string")
    );
    runner.asked(r#"{"id":9,"operation":"metric_new","family":5,"labels":{},"buckets":[1,2.5]}"#);
    change(6, MetricOperation::Observe, 2.0);
    let snapshot = runner.link.server.metrics.snapshot();
    let Some((_, MetricValue::Histogram(histogram))) = snapshot[0].series.first() else { panic!("{snapshot:?}") };
    assert_eq!((&histogram.bounds[..], &histogram.counts[..]), (&[1.0, 2.5][..], &[0, 1, 0][..]));
}

#[test]
fn b_sec_07_questions_are_bounded_and_what_is_no_question_is_a_lie() {
    let runner = runner();
    for json in ["", "{", "[]", "{}", r#"{"id":"1","operation":"load"}"#, r#"{"id":-1}"#] {
        assert!(runner.says(FromRunner::Control(json)).is_err(), "{json}");
    }
    for (json, says) in [
        (r#"{"id":1}"#, "operation"),
        (r#"{"id":1,"operation":"format_disk"}"#, "there is no operation"),
        (r#"{"id":1,"operation":"load"}"#, "model"),
        (r#"{"id":1,"operation":"load","model":5}"#, "non-string"),
        (r#"{"id":1,"operation":"load","model":"m","files":{"file:x":"*"}}"#, "not valid base64"),
        (r#"{"id":1,"operation":"metric_value","metric":1}"#, "made no family"),
        (r#"{"id":1,"operation":"family_new","name":"n","description":"d","kind":"summary"}"#, "no kind"),
    ] {
        assert!(runner.asked(json).contains(says), "{json}");
    }
    // A long one that is none is found out elsewhere.
    runner.says(FromRunner::Control(&"[".repeat(20_000))).expect("later");
    assert_eq!(runner.link.condemned.lock().take().as_deref(), Some("a question is no JSON"));

    let load = |id: usize| {
        runner.says(FromRunner::Control(&format!(r#"{{"id":{id},"operation":"load","model":"m"}}"#))).expect("no lie");
    };
    (1..=control::CONTROLS_MAX).for_each(load);
    assert!(runner.link.sent.lock().is_empty());
    load(1000);
    assert!(runner.told().contains("waits for 64 loads"));
    let (control, answer) = runner.link.server.controls.lock().remove(0);
    assert!(matches!(control.operation, ModelOperation::Load { .. }));
    answer(Ok("{}".into()));
    load(1001);
    assert_eq!(runner.link.sent.lock().len(), 1, "the end of the first alone");
}

#[test]
fn other_frames_are_lies_here_and_lines_are_none() {
    let runner = runner();
    runner.says(FromRunner::Log(LogRef { level: LogLevel::Info, file: "m.py", line: 1, text: "x" })).expect("no lie");
    assert!(runner.says(FromRunner::Pong(1)).is_err());
}

#[test]
fn b_sec_07_long_questions_are_bounded_together() {
    let runner = runner();
    // Two thirds of what there may be, and once more.
    let contents = "eCA9".repeat(176 << 10);
    let load = |id: u32| format!(r#"{{"id":{id},"operation":"load","model":"m","files":{{"file:x":"{contents}"}}}}"#);
    runner.says(FromRunner::Control(&load(1))).expect("no lie");
    assert!(runner.link.sent.lock().is_empty());
    assert!(runner.asked(&load(2)).contains("hold more than"));
    let (_, answer) = runner.link.server.controls.lock().remove(0);
    answer(Ok("{}".into()));
    assert_eq!(runner.told(), r#"{"id":1}"#);
    runner.says(FromRunner::Control(&load(3))).expect("no lie");
    assert!(runner.link.sent.lock().is_empty());
}

#[test]
fn b_sec_07_long_questions_are_bounded_while_none_is_read() {
    let runner = runner_with(|link| link.left = Some(Mutex::default()));
    let contents = "eCA9".repeat(96 << 10);
    for id in 1..100 {
        let load = format!(r#"{{"id":{id},"operation":"load","model":"m","files":{{"file:x":"{contents}"}}}}"#);
        runner.says(FromRunner::Control(&load)).expect("no lie");
    }
    assert_eq!(runner.link.left.as_ref().map(|left| left.lock().len()), Some(2), "1 MiB of them");
    assert_eq!(runner.link.sent.lock().len(), 97, "the others are refused at once");
}

#[test]
fn b_sec_03_whatever_a_runner_and_the_server_do_in_whatever_order_each_call_has_one_end_at_most() {
    let mut state = 88_172_645_463_325_252u64;
    let mut random = move |below: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state % below as u64) as usize
    };
    for round in 0..200 {
        let runner = runner_with(|link| link.room = AtomicUsize::new(round % 5));
        let mut held: Vec<Arc<dyn CallAnswers>> = Vec::new();
        let mut numbers = 0;
        // How often a call of a number was begun: a runner may use one again once it is free.
        let mut begun = vec![0; 102];
        for _ in 0..100 {
            let some = random(numbers + 2) as u64;
            let _ = match random(12) {
                0..=2 => {
                    numbers += 1;
                    begun[numbers] += 1;
                    let parent = if random(2) == 0 { (3, 9) } else { (random(3) as u32, 0) };
                    let new = CallRef { is_decoupled: random(2) == 0, parent, ..call(numbers as u64) };
                    runner.says(FromRunner::Call(Box::new(new)))
                }
                // A number that it has, or had.
                3 => {
                    let said = runner.says(FromRunner::Call(Box::new(call(some))));
                    begun[some as usize] += usize::from(said.is_ok());
                    said
                }
                4 => runner.says(FromRunner::CallCancel(some)),
                5 => runner.says(FromRunner::CallClose(some)),
                6 => {
                    runner.asks.request_cancelled((3, 9));
                    Ok(())
                }
                7 => {
                    let refused = |_, _| Err(Error::invalid("no"));
                    *runner.link.server.respond.lock() = Some(Box::new(refused));
                    Ok(())
                }
                _ if held.is_empty() => Ok(()),
                _ => {
                    let at = random(held.len());
                    let is_final = random(3) == 0;
                    // A server says nothing after the end.
                    let answers = if is_final { held.swap_remove(at) } else { held[at].clone() };
                    let response = match random(3) {
                        0 => None,
                        1 => Some(Err(Error::internal("t"))),
                        _ => Some(Ok(response([1, 5000][random(2)]))),
                    };
                    answers.answer(response, is_final);
                    Ok(())
                }
            };
            held.extend(runner.link.server.calls.lock().drain(..).map(|(_, answers)| answers));
        }
        // Whatever is left ends.
        held.iter().for_each(|answers| answers.answer(None, true));
        assert_eq!(runner.asks.calls.open(), 0, "round {round}");
        let mut ends: std::collections::HashMap<u64, usize> = Default::default();
        for (number, _, is_final, ..) in runner.answers() {
            *ends.entry(number).or_default() += usize::from(is_final);
        }
        for (number, ends) in ends {
            assert!(ends <= begun[number as usize], "round {round}: {ends} ends of call {number}");
        }
    }
}
