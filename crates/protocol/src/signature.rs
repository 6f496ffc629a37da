//! The signature of a loaded model version: its configuration, compiled for the check of requests.

use bytes::Bytes;
use smallvec::SmallVec;
use tensor::{DataType, Name, Shape};

/// Inputs, outputs and limits of one model version. Compiled once at load; shared by every request.
#[derive(Debug, Clone, Default)]
pub struct Signature {
    /// Model name.
    pub model: Name,
    /// Version in decimal, as responses print it.
    pub version: Name,
    /// 0 = the model does not batch: shapes have no batch dimension.
    pub max_batch_size: u32,
    /// Inputs in configuration order.
    pub inputs: Vec<InputSpec>,
    /// Outputs in configuration order.
    pub outputs: Vec<OutputSpec>,
    /// True if a request may have any number of responses.
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
    /// Dims of the model if they differ from `dims`; may be empty (a scalar per row).
    pub reshape: Option<Shape>,
    /// True if a request may omit it.
    pub optional: bool,
    /// True if requests with different shapes may be batched.
    pub allow_ragged_batch: bool,
}

/// The lines of a label file, as bytes: clients receive a label unchanged, even if it is not UTF-8.
#[derive(Debug, Clone, Default)]
pub struct Labels {
    text: Bytes,
    /// End of each line in `text`. Four bytes per label, because a file may have millions of empty ones.
    ends: Box<[u32]>,
}

impl Labels {
    /// Splits `text` at newlines only: a carriage return belongs to the label. The last line needs no newline, but is
    /// no label if it is empty. Text beyond 4 GiB is ignored.
    pub fn read(text: Bytes) -> Self {
        let mut ends: Vec<u32> = memchr::memchr_iter(b'\n', &text).map_while(|at| u32::try_from(at).ok()).collect();
        let last = ends.last().map_or(0, |&end| end as usize + 1);
        if last < text.len() {
            ends.extend(u32::try_from(text.len()));
        }
        Self { ends: ends.into(), text }
    }

    /// The label of a class; `None` if there is none or it is empty.
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
    /// Dims of the model if they differ from `dims`.
    pub reshape: Option<Shape>,
    /// Class labels by index; empty without a label file.
    pub labels: Labels,
}

/// Result of the check of a request: later steps use its indices instead of names.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Checked {
    /// The common first dimension, or 0 for a model that does not batch. Batch arithmetic uses `max(1, rows)`.
    pub rows: u32,
    /// Index in `Signature::inputs` of each input of the request.
    pub inputs: SmallVec<[u16; 4]>,
    /// The selected outputs in configuration order: the index in `Signature::outputs` and, if the request names
    /// outputs, the index in `InferRequest::outputs`.
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
