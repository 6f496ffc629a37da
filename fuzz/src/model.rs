//! The model every target asks: an input of every datatype, `I1` to `I14`, all optional, and outputs to match.

use protocol::{Checked, InferRequest, InferResponse, InputSpec, OutputSpec, OutputTensor, Regions, Signature};
use smallvec::smallvec;
use tensor::{Data, DataType, Error, Name, RegionRef, Result};

/// No region is ever registered: what is looked at is how requests name them.
pub struct NoRegions;

impl Regions for NoRegions {
    fn resolve(&self, name: &str, _: u64, _: u64) -> Result<RegionRef, Error> {
        Err(Error::not_found(format!("Unable to find shared memory region: '{name}'")))
    }
}

pub fn signature(max_batch_size: u32) -> Signature {
    let name = |prefix: &str, t: DataType| Name::from(format!("{prefix}{}", t as u8));
    Signature {
        model: Name::from_static("fuzz"),
        version: Name::from_static("1"),
        max_batch_size,
        inputs: DataType::ALL
            .map(|datatype| InputSpec {
                name: name("I", datatype),
                datatype,
                dims: smallvec![-1],
                reshape: None,
                optional: true,
                allow_ragged_batch: false,
            })
            .to_vec(),
        outputs: DataType::ALL
            .map(|datatype| OutputSpec {
                name: name("O", datatype),
                datatype,
                dims: smallvec![-1],
                reshape: None,
                labels: vec!["a".to_owned()],
            })
            .to_vec(),
        decoupled: false,
    }
}

/// The answer of a model that returns its inputs.
pub fn echo(request: &InferRequest, checked: &Checked, signature: &Signature) -> InferResponse {
    let outputs = checked.outputs.iter().filter_map(|&(index, wanted)| {
        let position = checked.inputs.iter().position(|&i| i == index)?;
        let input = request.inputs.get(position)?;
        let form = wanted.map_or(request.default_form, |w| request.outputs[usize::from(w)].form);
        Some(OutputTensor {
            name: signature.outputs[usize::from(index)].name.clone(),
            index,
            datatype: input.datatype?,
            shape: input.shape.clone(),
            data: input.data.clone(),
            form,
        })
    });
    InferResponse { id: request.id.clone(), outputs: outputs.collect(), ..InferResponse::default() }
}

/// Two readings of one request must be the same, tensors included.
pub fn same(a: &Result<InferRequest>, b: &Result<InferRequest>, what: &str) {
    match (a, b) {
        (Ok(a), Ok(b)) => {
            assert_eq!(format!("{a:?}"), format!("{b:?}"), "{what}");
            for (a, b) in a.inputs.iter().zip(&b.inputs) {
                assert_eq!(bytes(&a.data), bytes(&b.data), "{what}: data of {}", a.name);
            }
        }
        (a, b) => assert_eq!(a.is_ok(), b.is_ok(), "{what}: {:?}, {:?}", a.as_ref().err(), b.as_ref().err()),
    }
}

/// Without regions every tensor is bytes.
pub fn bytes(data: &Data) -> &[u8] {
    match data {
        Data::Bytes(bytes) => bytes,
        Data::Region(_) => panic!("a region out of nowhere"),
    }
}
