//! `ModelInfer` as clients see it, byte by byte. Prost is the client.

mod decode;
mod differential;
mod encode;

use std::cell::RefCell;
use std::sync::Arc;

use bytes::Bytes;
use prost::Message;
use tensor::{Base, Error, Extent, Name, RegionMemory, RegionRef, Result};

use super::peek;
use crate::pb::inference::infer_parameter::ParameterChoice;
use crate::pb::inference::model_infer_request::{InferInputTensor, InferRequestedOutputTensor};
use crate::pb::inference::{InferParameter, InferTensorContents, ModelInferRequest};
use crate::{InferRequest, Regions, Signature};

/// A registry with the region `in` of 128 bytes, which records its requests.
#[derive(Default)]
struct OneRegion {
    asked: RefCell<Vec<(String, u64, u64)>>,
}

struct Window(u64);

#[allow(unsafe_code)]
// SAFETY: these tests never read the memory; the pointer is only combined with length 0.
unsafe impl RegionMemory for Window {
    fn base(&self) -> Base<'_> {
        Base::Host(std::ptr::NonNull::<u8>::dangling().as_ptr())
    }
    fn len(&self) -> usize {
        0
    }
    fn is_intact(&self) -> bool {
        self.0 > 0
    }
    fn region_name(&self) -> &'static str {
        "in"
    }
    fn extent(&self) -> Extent {
        Extent { object: (0, 0), start: 0 }
    }
}

impl Regions for OneRegion {
    fn resolve(&self, name: &str, offset: u64, byte_size: u64) -> Result<RegionRef> {
        self.asked.borrow_mut().push((name.to_owned(), offset, byte_size));
        match name {
            "in" => Ok(Arc::new(Window(byte_size))),
            _ => Err(Error::not_found(format!("Unable to find shared memory region: '{name}'"))),
        }
    }
}

fn signature() -> Signature {
    Signature { model: Name::from_static("addsub"), ..Signature::default() }
}

fn read(message: &Bytes) -> Result<Box<InferRequest>> {
    peek(message)?.into_request(&signature(), &OneRegion::default())
}

fn read_pb(request: &ModelInferRequest) -> Result<Box<InferRequest>> {
    read(&request.encode_to_vec().into())
}

fn input(name: &str, datatype: &str, shape: &[i64]) -> InferInputTensor {
    InferInputTensor { name: name.into(), datatype: datatype.into(), shape: shape.into(), ..Default::default() }
}

fn output(name: &str) -> InferRequestedOutputTensor {
    InferRequestedOutputTensor { name: name.into(), ..Default::default() }
}

fn parameter(choice: ParameterChoice) -> InferParameter {
    InferParameter { parameter_choice: Some(choice) }
}

/// A request with two INT32 inputs of [1,16] in binary form, as in most golden cases.
fn addsub() -> ModelInferRequest {
    ModelInferRequest {
        model_name: "addsub".into(),
        inputs: vec![input("INPUT0", "INT32", &[1, 16]), input("INPUT1", "INT32", &[1, 16])],
        raw_input_contents: vec![vec![1; 64].into(), vec![2; 64].into()],
        ..Default::default()
    }
}

/// The request `addsub` with its numbers in `contents`.
fn addsub_typed() -> ModelInferRequest {
    let mut request = addsub();
    request.raw_input_contents.clear();
    for input in &mut request.inputs {
        input.contents = Some(InferTensorContents { int_contents: (0..16).collect(), ..Default::default() });
    }
    request
}
