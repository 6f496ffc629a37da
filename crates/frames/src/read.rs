//! Decodes all frames that a runner may send. A frame is decoded as a whole before any part of it takes effect. A
//! decoded frame is valid except for what depends on the runner's state (slots, segments, blocks, calls).

use super::id::InstanceId;
use super::reader::{Ids, ProtocolError, Reader};
use super::tensor::TensorRef;
use crate::generated::{
    ALL_OUTPUTS, ANSWER_FLAG_FAILED, ANSWER_FLAG_FINAL, Answer, AnswerHead, CALL_FLAG_ACKNOWLEDGED, CALL_FLAG_CHECKED,
    CALL_FLAG_DECOUPLED, CALL_FLAG_DEVICES, CALL_FLAG_TRACED, CallHead, CallId, FRAME_BYTES_MAX, Frame, Header,
    IsReadyResult, LogHead, LogLevel, MetricOperation, MetricUpdate, NeedSegment, Question, REQUESTS_MAX,
    RESULT_FLAG_FAILED, Report, ReportKind, RequestHead, RespondHead, ResultHead, TENSORS_MAX, VERSION,
};
use smallvec::SmallVec;

/// One response of a request.
#[derive(Debug, Clone, PartialEq)]
pub struct AnswerRef<'a> {
    /// Kind of the response.
    pub kind: Answer,
    /// No response of the request follows.
    pub is_final: bool,
    /// The model failed: this error is not its own response.
    pub is_failed: bool,
    /// Code, if this is an error.
    pub code: tensor::Code,
    /// JSON object, or "".
    pub parameters: &'a str,
    /// Error text, if this is an error.
    pub error: &'a str,
    /// Outputs, if this is not an error.
    pub outputs: SmallVec<[TensorRef<'a>; 2]>,
}

/// A request of one model to another.
#[derive(Debug, Clone, PartialEq)]
pub struct RequestRef<'a> {
    /// Fixed fields.
    pub head: RequestHead,
    /// Request id.
    pub id: &'a str,
    /// Correlation id if it is a string, otherwise "".
    pub correlation: &'a str,
    /// JSON object, or "".
    pub parameters: &'a str,
    /// JSON object, or "".
    pub trace: &'a str,
    /// Requested outputs; `None` for all.
    pub outputs: Option<SmallVec<[&'a str; 2]>>,
    /// Input tensors.
    pub inputs: SmallVec<[TensorRef<'a>; 2]>,
}

/// A call: inference by another model.
#[derive(Debug, Clone, PartialEq)]
pub struct CallRef<'a> {
    /// Number of the call in the runner.
    pub call: u64,
    /// Version; -1 to apply the version policy.
    pub version: i64,
    /// Slot and generation of the request that the call is made for.
    pub parent: (u32, u32),
    /// The caller accepts any number of responses.
    pub is_decoupled: bool,
    /// The call is traced as a child of its parent's trace.
    pub is_traced: bool,
    /// The caller accepts outputs on a device.
    pub takes_devices: bool,
    /// The caller is told whether the call is accepted, and why not.
    pub is_acknowledged: bool,
    /// The request is checked, and does not run.
    pub is_only_checked: bool,
    /// Priority of the request, 0 for none.
    pub priority: u32,
    /// Name of the called model.
    pub model: &'a str,
    /// Request to the called model.
    pub request: RequestRef<'a>,
}

/// The end of a batch.
#[derive(Debug, Clone, PartialEq)]
pub struct ResultRef<'a> {
    /// Number of the batch.
    pub batch: u64,
    /// Request blocks that the runner returns.
    pub releases: Ids<'a>,
    /// Error text, if the batch failed.
    pub failed: Option<&'a str>,
    /// Responses in the order of the requests; empty if the batch failed.
    pub answers: SmallVec<[AnswerRef<'a>; 1]>,
}

/// A line for the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct LogRef<'a> {
    pub level: LogLevel,
    pub file: &'a str,
    pub line: u32,
    pub text: &'a str,
}

/// A change of a metric that a model made.
#[derive(Debug, Clone, Copy, PartialEq)]
#[allow(missing_docs)]
pub struct MetricChange {
    pub metric: u64,
    pub value: f64,
    pub operation: MetricOperation,
}

/// A frame of a runner.
#[derive(Debug, Clone, PartialEq)]
#[allow(missing_docs)]
pub enum FromRunner<'a> {
    Ready(&'a str),
    Failed(&'a str),
    Result(ResultRef<'a>),
    Respond { slot: u32, generation: u32, answer: AnswerRef<'a> },
    Call(Box<CallRef<'a>>),
    CallCancel(u64),
    CallClose(u64),
    Control(&'a str),
    MetricUpdate(MetricChange),
    Log(LogRef<'a>),
    Report(ReportKind, Report),
    NeedSegment(u64),
    NoDevices,
    Release(Ids<'a>),
    IsReadyResult { question: u64, is_ready: bool },
    Pong(u64),
}

/// Header and body of a frame, and the bytes that follow it.
pub type Split<'a> = (Header, &'a [u8], &'a [u8]);

/// Splits the first frame off the received bytes. `None` if the frame is incomplete.
///
/// # Errors
/// If a runner must not send a frame with this header.
pub fn split(received: &[u8]) -> Result<Option<Split<'_>>, ProtocolError> {
    let Some((head, rest)) = received.split_first_chunk() else { return Ok(None) };
    let header = Header::read(head);
    if u64::from(header.length) > FRAME_BYTES_MAX {
        return Err(ProtocolError("a frame is too long"));
    }
    // Checked before the body arrives.
    let frame = frame_of(&header)?;
    if is_about_process(frame) != (InstanceId::of(&header) == InstanceId::PROCESS) {
        return Err(ProtocolError("a frame about an instance has no instance, or a frame about the process has one"));
    }
    Ok(rest.split_at_checked(header.length as usize).map(|(body, rest)| (header, body, rest)))
}

/// Protocol version in the runner's first frame, READY or FAILED, if it differs from ours. All versions keep it at the
/// same offset; version 1 sent 0.
pub fn other_version(received: &[u8]) -> Option<u64> {
    let &[_, _, _, _, frame, version, ..] = received else { return None };
    let is_first = matches!(Frame::from_number(frame.into()), Some(Frame::Ready | Frame::Failed));
    (is_first && u64::from(version) != VERSION).then(|| u64::from(version.max(1)))
}

fn is_about_process(frame: Frame) -> bool {
    matches!(frame, Frame::NeedSegment | Frame::NoDevices | Frame::Release | Frame::Pong)
}

fn frame_of(header: &Header) -> Result<Frame, ProtocolError> {
    match Frame::from_number(header.frame.into()) {
        None => Err(ProtocolError("a frame of an unknown kind")),
        Some(
            Frame::Load
            | Frame::Unload
            | Frame::Execute
            | Frame::CallResponse
            | Frame::ControlResult
            | Frame::Segment
            | Frame::CloseHandle
            | Frame::IsReady
            | Frame::Ping,
        ) => Err(ProtocolError("a frame that only the host sends")),
        Some(frame) => Ok(frame),
    }
}

/// Decodes a complete frame.
///
/// # Errors
/// If the frame breaks the protocol.
pub fn read<'a>(header: &Header, body: &'a [u8]) -> Result<FromRunner<'a>, ProtocolError> {
    let mut from = Reader::new(body);
    let frame = match frame_of(header)? {
        Frame::Ready => return Ok(FromRunner::Ready(from.rest()?)),
        Frame::Failed => return Ok(FromRunner::Failed(from.rest()?)),
        Frame::Control => return Ok(FromRunner::Control(from.rest()?)),
        Frame::Result => FromRunner::Result(result(&mut from, header)?),
        Frame::Respond => {
            let head = RespondHead::read(from.head()?);
            FromRunner::Respond { slot: head.slot, generation: head.generation, answer: answer(&mut from)? }
        }
        Frame::Call => FromRunner::Call(Box::new(call(&mut from)?)),
        Frame::CallCancel => FromRunner::CallCancel(CallId::read(from.head()?).call),
        Frame::CallClose => FromRunner::CallClose(CallId::read(from.head()?).call),
        Frame::MetricUpdate => {
            let head = MetricUpdate::read(from.head()?);
            let operation = MetricOperation::from_number(head.operation.into())
                .ok_or(ProtocolError("a metric cannot be changed in this way"))?;
            FromRunner::MetricUpdate(MetricChange { metric: head.metric, value: head.value, operation })
        }
        Frame::Log => {
            let head = LogHead::read(from.head()?);
            let level = LogLevel::from_number(head.level.into())
                .ok_or(ProtocolError("a line of the log has an unknown level"))?;
            let file = from.text(head.file_bytes.into())?;
            FromRunner::Log(LogRef { level, file, line: head.line, text: from.text(head.text_bytes)? })
        }
        Frame::Report => {
            let head = Report::read(from.head()?);
            let kind = ReportKind::from_number(head.kind.into()).ok_or(ProtocolError("a report of an unknown kind"))?;
            FromRunner::Report(kind, head)
        }
        Frame::NeedSegment => FromRunner::NeedSegment(NeedSegment::read(from.head()?).bytes),
        Frame::NoDevices => FromRunner::NoDevices,
        Frame::Release => FromRunner::Release(from.ids(header.count.into())?),
        Frame::IsReadyResult => {
            let head = IsReadyResult::read(from.head()?);
            FromRunner::IsReadyResult { question: head.question, is_ready: head.is_ready == 1 }
        }
        _ => FromRunner::Pong(Question::read(from.head()?).question),
    };
    from.end()?;
    Ok(frame)
}

fn result<'a>(from: &mut Reader<'a>, header: &Header) -> Result<ResultRef<'a>, ProtocolError> {
    let head = ResultHead::read(from.head()?);
    let releases = from.ids(head.releases)?;
    let error = from.text(head.error_bytes)?;
    let failed = (header.flags & RESULT_FLAG_FAILED != 0).then_some(error);
    if failed.is_some() != (header.count == 0) || u64::from(header.count) > REQUESTS_MAX {
        return Err(ProtocolError("a result has an impossible number of responses"));
    }
    let answers = (0..header.count).map(|_| answer(from)).collect::<Result<_, _>>()?;
    Ok(ResultRef { batch: head.batch, releases, failed, answers })
}

pub(super) fn answer<'a>(from: &mut Reader<'a>) -> Result<AnswerRef<'a>, ProtocolError> {
    let head = AnswerHead::read(from.head()?);
    let kind = Answer::from_number(head.kind.into()).ok_or(ProtocolError("a response of an unknown kind"))?;
    let code = code(head.code)?;
    let parameters = from.text(head.parameters_bytes)?;
    let error = from.text(head.error_bytes)?;
    let outputs = tensors(from, head.outputs)?;
    let [is_final, is_failed] = [ANSWER_FLAG_FINAL, ANSWER_FLAG_FAILED].map(|flag| head.flags & flag != 0);
    Ok(AnswerRef { kind, is_final, is_failed, code, parameters, error, outputs })
}

fn code(number: u32) -> Result<tensor::Code, ProtocolError> {
    tensor::Code::ALL.get(number as usize).copied().ok_or(ProtocolError("an error has an unknown code"))
}

fn tensors<'a>(from: &mut Reader<'a>, count: u16) -> Result<SmallVec<[TensorRef<'a>; 2]>, ProtocolError> {
    if u64::from(count) > TENSORS_MAX {
        return Err(ProtocolError("too many tensors"));
    }
    (0..count).map(|_| TensorRef::read(from)).collect()
}

fn call<'a>(from: &mut Reader<'a>) -> Result<CallRef<'a>, ProtocolError> {
    let head = CallHead::read(from.head()?);
    let model = from.text(head.model_bytes.into())?;
    Ok(CallRef {
        call: head.call,
        version: head.version,
        parent: (head.parent_slot, head.parent_generation),
        is_decoupled: head.flags & CALL_FLAG_DECOUPLED != 0,
        is_traced: head.flags & CALL_FLAG_TRACED != 0,
        takes_devices: head.flags & CALL_FLAG_DEVICES != 0,
        is_acknowledged: head.flags & CALL_FLAG_ACKNOWLEDGED != 0,
        is_only_checked: head.flags & CALL_FLAG_CHECKED != 0,
        priority: head.priority,
        model,
        request: request(from)?,
    })
}

pub(super) fn request<'a>(from: &mut Reader<'a>) -> Result<RequestRef<'a>, ProtocolError> {
    let head = RequestHead::read(from.head()?);
    let id = from.text(head.id_bytes)?;
    let correlation = from.text(head.correlation_bytes)?;
    let parameters = from.text(head.parameters_bytes)?;
    let trace = from.text(head.trace_bytes)?;
    let outputs = match u64::from(head.outputs) {
        ALL_OUTPUTS => None,
        count if count > TENSORS_MAX => return Err(ProtocolError("too many outputs")),
        count => Some(
            (0..count)
                .map(|_| {
                    let length = u16::from_le_bytes(*from.head()?);
                    from.text(length.into())
                })
                .collect::<Result<_, _>>()?,
        ),
    };
    let inputs = tensors(from, head.inputs)?;
    Ok(RequestRef { head, id, correlation, parameters, trace, outputs, inputs })
}
