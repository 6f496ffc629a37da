//! One output of a network, the checks of its shape, and outputs that are final.

use super::candidates::Candidates;
use tensor::{Error, Result, ShapeDisplay, element_count};

/// One output for one picture. The caller owns the memory.
#[derive(Clone, Copy, Debug)]
pub struct RowOutput<'a> {
    /// Name of the output, for errors.
    pub name: &'a str,
    /// Shape without the batch dimension.
    pub shape: &'a [i64],
    /// The values, as many as the shape says.
    pub data: &'a [f32],
}

impl<'a> RowOutput<'a> {
    /// The dimensions, if there are as many as expected.
    pub fn dims<const N: usize>(&self, expected: &str) -> Result<[usize; N]> {
        let count = element_count(self.shape).and_then(|count| usize::try_from(count).ok());
        let dims = <[i64; N]>::try_from(self.shape).map_err(|_| self.unexpected(expected))?;
        if count != Some(self.data.len()) {
            let (name, shape, values) = (self.name, ShapeDisplay(self.shape), self.data.len());
            return Err(Error::internal(format!("output '{name}' has shape {shape} and {values} values")).by_model());
        }
        // An empty tensor may have any other dimension.
        dims.iter().all(|&dim| dim <= i64::from(u32::MAX)).then(|| dims.map(|dim| dim as usize)).ok_or_else(|| {
            let most = format!("{expected} with dimensions of at most {}", u32::MAX);
            self.unexpected(&most)
        })
    }

    /// The error for another shape than the expected one.
    pub fn unexpected(&self, expected: &str) -> Error {
        let (name, found) = (self.name, ShapeDisplay(self.shape));
        Error::internal(format!("unexpected shape of output '{name}': expected {expected}, got {found}")).by_model()
    }

    /// The values as rows of `N`.
    pub fn rows<const N: usize>(&self) -> &'a [[f32; N]] {
        self.data.as_chunks().0
    }
}

/// Boxes that the network has selected.
pub fn torchvision(
    boxes: &RowOutput<'_>,
    labels: &RowOutput<'_>,
    scores: &RowOutput<'_>,
    candidates: &mut Candidates,
) -> Result<()> {
    let [count, coordinates] = boxes.dims("[boxes, 4]")?;
    if coordinates != 4 {
        return Err(boxes.unexpected("[boxes, 4]"));
    }
    for output in [labels, scores] {
        if output.dims::<1>("[boxes]")? != [count] {
            return Err(output.unexpected(&format!("[{count}], as many as boxes")));
        }
    }
    for ((corners, &label), &score) in boxes.rows::<4>().iter().zip(labels.data).zip(scores.data) {
        candidates.push_final(*corners, score, label);
    }
    Ok(())
}
