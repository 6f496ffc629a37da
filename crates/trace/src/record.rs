//! The complete record of one traced request.

use crate::activity::Activity;
use crate::context::Context;
use crate::text::elements;
use options::TraceMode;
use tensor::{Code, DataType};

/// One traced request: the client's call, and the calls that were made for it.
#[derive(Debug)]
pub struct Record {
    /// Destination of the record.
    pub mode: TraceMode,
    /// Number of the setting that sampled it.
    pub setting: u32,
    /// Id of the client's call.
    pub id: u64,
    /// Context of the caller, in mode OpenTelemetry.
    pub context: Option<Context>,
    /// Trace id that models received, 32 hexadecimal digits; empty if none did or the caller's id applies.
    pub trace_id: String,
    /// Activities of the front end.
    pub activities: Vec<Stamp>,
    /// The client's call first, parents before their children. Empty if the body was not JSON.
    pub calls: Vec<Call>,
    /// Bytes of texts and tensors.
    pub(crate) bytes: usize,
}

impl Record {
    /// Approximate size in bytes.
    pub fn bytes(&self) -> usize {
        const EACH: usize = 256;
        let stamps = self.activities.len() + self.calls.iter().map(|c| c.activities.len()).sum::<usize>();
        self.bytes + EACH * (1 + self.calls.len()) + stamps * size_of::<Stamp>()
    }
}

/// An activity and its time on the engine's clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Stamp {
    pub activity: Activity,
    pub ns: u64,
}

/// One call of a model or an ensemble.
#[derive(Debug, Default)]
pub struct Call {
    /// Id of the call, from 1.
    pub id: u64,
    /// Id of the call for which it was made; 0 = none.
    pub parent: u64,
    /// Name of the model.
    pub model: String,
    /// Version of the model.
    pub version: i64,
    /// Request id of the client, or empty.
    pub request_id: String,
    /// Activities in the order of their reports: those of a backend are before the phases of its execution.
    pub activities: Vec<Stamp>,
    /// Tensors, at level TENSORS.
    pub tensors: Vec<RecordedTensor>,
    /// Code and text, if the call failed.
    pub error: Option<(Code, String)>,
    /// Span id that the model received, 16 hexadecimal digits; empty if it received none.
    pub span_id: String,
    pub(crate) is_accepted: bool,
}

/// Side of a model on which a tensor was recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TensorSide {
    /// Input of a queued request.
    QueueInput,
    /// Output of a response.
    BackendOutput,
}

impl TensorSide {
    /// Name in traces.
    pub fn name(self) -> &'static str {
        match self {
            Self::QueueInput => "TENSOR_QUEUE_INPUT",
            Self::BackendOutput => "TENSOR_BACKEND_OUTPUT",
        }
    }
}

/// A tensor of a call.
#[derive(Debug)]
pub struct RecordedTensor {
    /// Side of the model.
    pub kind: TensorSide,
    /// Name.
    pub name: String,
    /// Datatype.
    pub datatype: DataType,
    /// Full shape.
    pub shape: Vec<i64>,
    /// First bytes of the contents.
    pub(crate) data: Vec<u8>,
    /// True if the contents have more bytes.
    pub(crate) is_cut: bool,
}

impl RecordedTensor {
    /// The elements, joined by commas: numbers in the shortest form that reads back the same, booleans as 0 and 1,
    /// strings as in JSON. The text of a cut tensor has the complete elements and ends with `...`.
    pub fn text(&self) -> String {
        let mut out = elements(self.datatype, &self.data);
        if self.is_cut {
            out.push_str(if out.is_empty() { "..." } else { ",..." });
        }
        out
    }
}
