//! Requests and responses as both front ends, the in-process API and every backend use them.

use smallvec::SmallVec;
use tensor::{Data, DataType, Error, Name, RegionRef, Shape};
use trace::Trace;

/// A parsed inference request. Contents of tensors are views of the request body or of shared memory.
#[derive(Clone, Debug, Default)]
pub struct InferRequest {
    /// Request id of the client, or empty; copied to the response and printed in errors.
    pub id: Name,
    /// Input tensors in request order.
    pub inputs: SmallVec<[InputTensor; 2]>,
    /// Requested outputs, in request order; empty means all.
    pub outputs: SmallVec<[RequestedOutput; 2]>,
    /// How outputs are returned when `outputs` is empty.
    pub default_form: OutputForm,
    /// Custom parameters, passed to the model unchanged, in request order.
    pub parameters: Vec<(Name, Parameter)>,
    /// Correlation id, and the flags for start and end of the sequence.
    pub sequence: Sequence,
    /// 0 = the model's default level, 1 = highest.
    pub priority: u64,
    /// The `timeout` parameter in microseconds, 0 = none.
    pub timeout_us: u64,
    /// Trace of the request, if it is traced or measured.
    pub trace: Option<Trace>,
    /// Nesting depth of calls; 0 for a request of a client.
    pub depth: u32,
    /// Large binary outputs may stay where the model's process left them: the front end sends them from there. See
    /// `RegionMemory::is_lent`.
    pub sends_regions: bool,
}

/// One input tensor of a request.
#[derive(Clone, Debug)]
pub struct InputTensor {
    /// Name as the client wrote it.
    pub name: Name,
    /// `None` for an unknown datatype, which is printed as `<invalid>`.
    pub datatype: Option<DataType>,
    /// Full shape, batch dimension included.
    pub shape: Shape,
    /// Row-major little-endian contents; BYTES in its binary form. Only `Signature::check` compares it with the shape.
    pub data: Data,
}

/// One output that the client requested.
#[derive(Clone)]
pub struct RequestedOutput {
    /// Name as the client wrote it.
    pub name: Name,
    /// Form in which it is returned.
    pub form: OutputForm,
    /// Shared memory that receives it instead of the response.
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

/// Form in which one output is returned.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct OutputForm {
    /// HTTP only: binary data after the JSON head instead of JSON values.
    pub binary: bool,
    /// Top-k classes instead of the tensor; 0 = the tensor.
    pub classification: u32,
    /// The caller, never a client, accepts the tensor in any location, device memory included.
    /// `RequestedOutput::region` is then optional for the backend: the final destination of the contents, if they fit.
    pub anywhere: bool,
}

impl OutputForm {
    /// The tensor in any location, for calls by the server itself.
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

/// Sequence fields of a request; all default if the client sent none.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Sequence {
    /// `sequence_id`.
    pub id: CorrelationId,
    /// `sequence_start`.
    pub start: bool,
    /// `sequence_end`.
    pub end: bool,
}

/// Correlation id: a number or a string, in two distinct spaces; 0 and "" mean none.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
#[allow(missing_docs)]
pub enum CorrelationId {
    Number(u64),
    String(Name),
}

impl CorrelationId {
    /// True if there is an id.
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
    /// Parameters that the model returns besides its tensors.
    pub parameters: Vec<(Name, Parameter)>,
    /// Outputs in the order of the model's configuration.
    pub outputs: SmallVec<[OutputTensor; 2]>,
}

/// One output tensor of a response.
#[derive(Debug)]
pub struct OutputTensor {
    /// Name from the configuration.
    pub name: Name,
    /// Index in `Signature::outputs`, where its labels are.
    pub index: u16,
    /// Datatype.
    pub datatype: DataType,
    /// Full shape, batch dimension included.
    pub shape: Shape,
    /// Contents. `Data::Region` means that they are already in the client's region and not part of the response, unless
    /// `RegionMemory::is_lent`.
    pub data: Data,
    /// Form that the client requested.
    pub form: OutputForm,
}

impl InferResponse {
    /// The sum of [`OutputTensor::answered_bytes`] over all outputs.
    pub fn answered_bytes(&self) -> usize {
        self.outputs.iter().map(OutputTensor::answered_bytes).sum()
    }
}

impl OutputTensor {
    /// Bytes of the tensor that a front end reads to encode the response: 0 if it is in the client's region, unless its
    /// classes are requested.
    pub fn answered_bytes(&self) -> usize {
        match &self.data {
            Data::Region(region) if self.form.classification == 0 && !region.is_lent() => 0,
            _ => self.data.len(),
        }
    }
}

/// Finds shared memory for a tensor while a request is parsed. Implemented by the registry of `memory`.
pub trait Regions {
    /// Returns `byte_size` bytes at `offset` in the region, kept mapped while the value lives.
    ///
    /// # Errors
    /// The four errors of memory.md §1.7, with their exact texts.
    fn resolve(&self, name: &str, offset: u64, byte_size: u64) -> Result<RegionRef, Error>;
}
