//! What a loaded model version accepts and returns: its configuration compiled into the form requests are checked against.

use bytes::Bytes;
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

/// The lines of a label file, as bytes: a label goes to clients as it stands in the file, be it UTF-8 or not.
#[derive(Debug, Clone, Default)]
pub struct Labels {
    text: Bytes,
    /// Where each line ends in `text`. Four bytes a label, since a file may hold millions of empty ones.
    ends: Box<[u32]>,
}

impl Labels {
    /// Lines end at newlines only: a carriage return belongs to the label. An end without a newline is a line, an empty one is
    /// not. What lies beyond 4 GiB is left out.
    pub fn read(text: Bytes) -> Self {
        let mut ends: Vec<u32> = memchr::memchr_iter(b'\n', &text).map_while(|at| u32::try_from(at).ok()).collect();
        let last = ends.last().map_or(0, |&end| end as usize + 1);
        if last < text.len() {
            ends.extend(u32::try_from(text.len()));
        }
        Self { ends: ends.into(), text }
    }

    /// The label of a class; `None` where there is none or it is empty.
    pub fn get(&self, class: usize) -> Option<&[u8]> {
        let end = *self.ends.get(class)? as usize;
        let start = class.checked_sub(1).and_then(|before| self.ends.get(before)).map_or(0, |&end| end as usize + 1);
        self.text.get(start..end).filter(|label| !label.is_empty())
    }
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
    pub labels: Labels,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_lines_of_bytes() {
        let check = |text: &'static [u8], expected: &[Option<&[u8]>]| {
            let labels = Labels::read(Bytes::from_static(text));
            let got: Vec<_> = (0..expected.len()).map(|class| labels.get(class)).collect();
            assert_eq!(got, expected, "{text:?}");
        };
        check(b"", &[None, None]);
        check(
            b"zero\none\r\n\nthree with space\n",
            &[Some(b"zero"), Some(b"one\r"), None, Some(b"three with space"), None],
        );
        check(b"caf\xe9\nx", &[Some(b"caf\xe9"), Some(b"x"), None]);
        check(b"\n\nx", &[None, None, Some(b"x"), None]);
    }
}
