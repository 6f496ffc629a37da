//! What a loaded model version accepts and returns: its configuration compiled into the form requests are checked against.

use smallvec::SmallVec;
use tensor::{DataType, Name, Shape};

/// Inputs, outputs and limits of one model version. Built once at load; shared by every request.
#[derive(Debug, Clone, Default)]
pub struct Signature {
    /// Model name.
    pub model: Name,
    /// Version, decimal, as responses print it.
    pub version: Name,
    /// 0 = the model does not batch: shapes have no batch dimension.
    pub max_batch_size: u32,
    /// Inputs in configuration order.
    pub inputs: Vec<InputSpec>,
    /// Outputs in configuration order.
    pub outputs: Vec<OutputSpec>,
    /// Whether requests may be answered with any number of responses.
    pub decoupled: bool,
}

/// One configured input.
#[derive(Debug, Clone)]
pub struct InputSpec {
    /// Name.
    pub name: Name,
    /// Element type.
    pub datatype: DataType,
    /// Dims without the batch dimension; -1 = variable.
    pub dims: Shape,
    /// What the model sees instead of `dims`; may be empty (a scalar per row).
    pub reshape: Option<Shape>,
    /// May be left out of a request.
    pub optional: bool,
    /// Requests whose shapes differ may be batched.
    pub allow_ragged_batch: bool,
}

/// One configured output.
#[derive(Debug, Clone)]
pub struct OutputSpec {
    /// Name.
    pub name: Name,
    /// Element type.
    pub datatype: DataType,
    /// Dims without the batch dimension; -1 = variable.
    pub dims: Shape,
    /// What the model produces instead of `dims`.
    pub reshape: Option<Shape>,
    /// Class labels by index; empty without a label file.
    pub labels: Vec<String>,
}

/// What the check of a request found out; later steps use the indices instead of names.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Checked {
    /// Rows: the common leading dimension, or 0 for a model that does not batch. Batch arithmetic uses `max(1, rows)`.
    pub rows: u32,
    /// For each input of the request its index in `Signature::inputs`.
    pub inputs: SmallVec<[u16; 4]>,
    /// For each wanted output, in configuration order: its index in `Signature::outputs` and, unless all outputs are wanted by
    /// default, its index in `InferRequest::outputs`.
    pub outputs: SmallVec<[(u16, Option<u16>); 4]>,
}
