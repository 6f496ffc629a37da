//! What is noted of one request of a client: data, complete and on its way out.

use crate::activity::Activity;
use crate::context::Context;
use crate::setting::Mode;
use crate::text::elements;
use tensor::{Code, DataType};

/// One traced request: the call of the model that the client asked for, and what was called for that.
#[derive(Debug)]
pub struct Record {
    /// Where it goes.
    pub mode: Mode,
    /// Number of the setting that sampled it.
    pub setting: u32,
    /// Id of the client's call.
    pub id: u64,
    /// The caller's, in mode OpenTelemetry.
    pub context: Option<Context>,
    /// 32 hexadecimal digits that a model was told; empty = none was told any, or the caller's are it.
    pub trace_id: String,
    /// Of the front end.
    pub activities: Vec<Stamp>,
    /// The client's first; parents before their children. None of a body that was no JSON.
    pub calls: Vec<Call>,
    /// Of texts and tensors.
    pub(crate) bytes: usize,
}

impl Record {
    /// What it holds, roughly.
    pub fn bytes(&self) -> usize {
        const EACH: usize = 256;
        let stamps = self.activities.len() + self.calls.iter().map(|c| c.activities.len()).sum::<usize>();
        self.bytes + EACH * (1 + self.calls.len()) + stamps * size_of::<Stamp>()
    }
}

/// When something happened, on the engine's clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Stamp {
    pub activity: Activity,
    pub ns: u64,
}

/// One call of a model or an ensemble.
#[derive(Debug, Default)]
pub struct Call {
    /// From 1.
    pub id: u64,
    /// Of the call it was made for; 0 = none.
    pub parent: u64,
    /// Model.
    pub model: String,
    /// Its version.
    pub version: i64,
    /// The client's; empty = none.
    pub request_id: String,
    /// In the order in which they were noted: what a backend reports stands before the phases of its run.
    pub activities: Vec<Stamp>,
    /// Level TENSORS.
    pub tensors: Vec<Tensor>,
    /// Why it failed.
    pub error: Option<(Code, String)>,
    /// 16 hexadecimal digits that its model was told; empty = none.
    pub span_id: String,
    pub(crate) is_accepted: bool,
}

/// On which side of a model a tensor was seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Of a request that was queued.
    QueueInput,
    /// Of a response.
    BackendOutput,
}

impl Kind {
    /// As traces name it.
    pub fn name(self) -> &'static str {
        match self {
            Self::QueueInput => "TENSOR_QUEUE_INPUT",
            Self::BackendOutput => "TENSOR_BACKEND_OUTPUT",
        }
    }
}

/// A tensor of a call.
#[derive(Debug)]
pub struct Tensor {
    /// Where it was seen.
    pub kind: Kind,
    /// Name.
    pub name: String,
    /// Element type.
    pub datatype: DataType,
    /// Full shape.
    pub shape: Vec<i64>,
    /// Its first bytes.
    pub(crate) data: Vec<u8>,
    /// There are more.
    pub(crate) is_cut: bool,
}

impl Tensor {
    /// The elements, joined by commas: numbers in their shortest form that reads back the same, booleans as 0 and 1, strings quoted as
    /// JSON quotes them. Of a tensor that was cut, those that are whole, and `...` behind them.
    pub fn text(&self) -> String {
        let mut out = elements(self.datatype, &self.data);
        if self.is_cut {
            out.push_str(if out.is_empty() { "..." } else { ",..." });
        }
        out
    }
}
