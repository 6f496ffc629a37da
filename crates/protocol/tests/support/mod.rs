//! Signatures and outputs for the tests of this crate.

#![allow(dead_code)] // each test file uses its part

use bytes::Bytes;
use protocol::{InputSpec, OutputForm, OutputSpec, OutputTensor, Regions, Signature};
use tensor::{DataType, Error, Name, RegionRef, Shape};

/// A signature from `(name, datatype, dims)` lists.
pub fn signature(
    model: &'static str,
    max_batch_size: u32,
    inputs: &[(&'static str, DataType, &[i64])],
    outputs: &[(&'static str, DataType, &[i64])],
) -> Signature {
    Signature {
        model: Name::from_static(model),
        version: Name::from_static("1"),
        max_batch_size,
        inputs: inputs
            .iter()
            .map(|&(name, datatype, dims)| InputSpec {
                name: Name::from_static(name),
                datatype,
                dims: Shape::from_slice(dims),
                reshape: None,
                optional: false,
                allow_ragged_batch: false,
            })
            .collect(),
        outputs: outputs
            .iter()
            .map(|&(name, datatype, dims)| OutputSpec {
                name: Name::from_static(name),
                datatype,
                dims: Shape::from_slice(dims),
                reshape: None,
                labels: Default::default(),
            })
            .collect(),
        decoupled: false,
    }
}

/// A signature with two INT32 inputs and outputs of 16 elements.
pub fn addsub(max_batch_size: u32) -> Signature {
    let tensors = |a, b| [(a, DataType::Int32, &[16][..]), (b, DataType::Int32, &[16][..])];
    signature("addsub", max_batch_size, &tensors("INPUT0", "INPUT1"), &tensors("OUTPUT0", "OUTPUT1"))
}

/// A signature with one input and output, with any number of elements per row.
pub fn identity(model: &'static str, max_batch_size: u32, datatype: DataType) -> Signature {
    signature(model, max_batch_size, &[("INPUT0", datatype, &[-1])], &[("OUTPUT0", datatype, &[-1])])
}

/// An output tensor as JSON.
pub fn output(name: &'static str, datatype: DataType, shape: &[i64], data: Bytes) -> OutputTensor {
    OutputTensor {
        name: Name::from_static(name),
        index: 0,
        datatype,
        shape: Shape::from_slice(shape),
        data: data.into(),
        form: OutputForm::default(),
    }
}

/// A registry without regions.
pub struct NoRegions;

impl Regions for NoRegions {
    fn resolve(&self, name: &str, _offset: u64, _byte_size: u64) -> Result<RegionRef, Error> {
        Err(Error::not_found(format!("Unable to find shared memory region: '{name}'")))
    }
}
