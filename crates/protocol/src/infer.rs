//! One inference as both front ends, the in-process API and every backend see it.

use smallvec::SmallVec;
use tensor::{Data, DataType, Error, Name, RegionRef, Shape};
use trace::Trace;

/// A parsed inference request. Tensor data are views into the request body or into shared memory.
#[derive(Debug, Default)]
pub struct InferRequest {
    /// Client's id, empty when it gave none; echoed in the response and printed in errors.
    pub id: Name,
    /// Input tensors in request order.
    pub inputs: SmallVec<[InputTensor; 2]>,
    /// Outputs asked for, in request order; empty means all.
    pub outputs: SmallVec<[RequestedOutput; 2]>,
    /// How outputs are returned when `outputs` is empty.
    pub default_form: OutputForm,
    /// Custom parameters, handed to the model unchanged, in request order.
    pub parameters: Vec<(Name, Parameter)>,
    /// Correlation id, and where in its sequence the request stands.
    pub sequence: Sequence,
    /// 0 = the model's default level, 1 = highest.
    pub priority: u64,
    /// The `timeout` parameter in microseconds, 0 = none.
    pub timeout_us: u64,
    /// What is noted of it, if it is traced.
    pub trace: Option<Trace>,
    /// Models that called one another for it; 0 for a client's.
    pub depth: u32,
}

/// One input tensor of a request.
#[derive(Debug)]
pub struct InputTensor {
    /// Name as the client wrote it.
    pub name: Name,
    /// `None` when the client wrote a datatype that does not exist; printed `<invalid>`.
    pub datatype: Option<DataType>,
    /// Full shape, batch dimension included.
    pub shape: Shape,
    /// Row-major little-endian contents; BYTES in its raw form. Checked against the shape by `Signature::check`, not before.
    pub data: Data,
}

/// One output the client asked for.
#[derive(Clone)]
pub struct RequestedOutput {
    /// Name as the client wrote it.
    pub name: Name,
    /// How it is to be returned.
    pub form: OutputForm,
    /// Where to put it instead of into the response.
    pub region: Option<RegionRef>,
}

impl std::fmt::Debug for RequestedOutput {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RequestedOutput")
            .field("name", &self.name)
            .field("form", &self.form)
            .field("region", &self.region.as_ref().map(|r| r.region_name().to_owned()))
            .finish()
    }
}

/// How one output is returned.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct OutputForm {
    /// HTTP only: raw bytes after the JSON head instead of JSON values.
    pub binary: bool,
    /// Top-k classes instead of the tensor; 0 = the tensor.
    pub classification: u32,
    /// Whoever asked takes it where the model left it, in memory of a device, too. Never what a client asks for. A region beside it is an
    /// offer: where the bytes go in the end, if they fit, and may be written to already.
    pub anywhere: bool,
}

impl OutputForm {
    /// For the server itself: the tensor, wherever it lies.
    pub const ANYWHERE: Self = Self { binary: true, classification: 0, anywhere: true };
}

/// A custom request or response parameter.
#[derive(Clone, PartialEq, Debug)]
#[allow(missing_docs)]
pub enum Parameter {
    Bool(bool),
    Int(i64),
    String(Name),
    Double(f64),
}

/// Sequence fields of a request; all default when the client sent none.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Sequence {
    /// `sequence_id`.
    pub id: CorrelationId,
    /// `sequence_start`.
    pub start: bool,
    /// `sequence_end`.
    pub end: bool,
}

/// Correlation ids are numbers or strings, in two distinct spaces; 0 and "" mean none.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
#[allow(missing_docs)]
pub enum CorrelationId {
    Number(u64),
    String(Name),
}

impl CorrelationId {
    /// Whether there is one.
    pub fn is_some(&self) -> bool {
        match self {
            Self::Number(number) => *number != 0,
            Self::String(text) => !text.is_empty(),
        }
    }
}

impl Default for CorrelationId {
    fn default() -> Self {
        Self::Number(0)
    }
}

/// One complete response.
#[derive(Debug, Default)]
pub struct InferResponse {
    /// Model that ran.
    pub model_name: Name,
    /// Version that ran, decimal.
    pub model_version: Name,
    /// The request's id.
    pub id: Name,
    /// What the model wants to tell besides tensors.
    pub parameters: Vec<(Name, Parameter)>,
    /// Outputs in the order of the model's configuration.
    pub outputs: SmallVec<[OutputTensor; 2]>,
}

/// One output tensor of a response.
#[derive(Debug)]
pub struct OutputTensor {
    /// Name from the configuration.
    pub name: Name,
    /// Index in `Signature::outputs`; labels are found through it.
    pub index: u16,
    /// Element type.
    pub datatype: DataType,
    /// Full shape, batch dimension included.
    pub shape: Shape,
    /// Contents. `Data::Region` means: already written in place to where the client wanted it, nothing goes into the response.
    pub data: Data,
    /// How the client wants it.
    pub form: OutputForm,
}

impl InferResponse {
    /// The sum of [`OutputTensor::answered_bytes`] over all outputs.
    pub fn answered_bytes(&self) -> usize {
        self.outputs.iter().map(OutputTensor::answered_bytes).sum()
    }
}

impl OutputTensor {
    /// Bytes of the tensor that a front end reads to make an answer: none if the tensor already lies in the client's region, unless classes are
    /// ranked from it.
    pub fn answered_bytes(&self) -> usize {
        match self.data {
            Data::Region(_) if self.form.classification == 0 => 0,
            _ => self.data.len(),
        }
    }
}

/// Finds shared memory for a tensor while a request is parsed. Implemented by `memory`'s registry.
pub trait Regions {
    /// A pinned window of `byte_size` bytes at `offset` inside the region.
    ///
    /// # Errors
    /// The four refusals of memory.md §1.7, exact texts.
    fn resolve(&self, name: &str, offset: u64, byte_size: u64) -> Result<RegionRef, Error>;
}
