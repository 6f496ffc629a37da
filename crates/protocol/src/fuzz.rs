//! Entry points of the fuzzers: arbitrary bytes through every reader of a body, for a model that returns its inputs.
//! No input may cause a panic. Public for the fuzz package only.

use crate::generate::parse_generate;
use crate::http::{Limits, encode_infer, parse_content_length, parse_header_length, parse_infer};
use crate::infer::{InferRequest, InferResponse, OutputTensor, Regions};
use crate::signature::{Checked, InputSpec, Labels, OutputSpec, Signature};
use bytes::Bytes;
use smallvec::smallvec;
use tensor::{DataType, Error, Name, RegionRef, Result};

/// A registry without regions: only the parsing of their names is tested.
pub struct NoRegions;

impl Regions for NoRegions {
    fn resolve(&self, name: &str, _: u64, _: u64) -> Result<RegionRef, Error> {
        Err(Error::not_found(format!("Unable to find shared memory region: '{name}'")))
    }
}

/// A signature with an optional input of every datatype, `I1` to `I14`, and matching outputs.
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
                labels: Labels::read(Bytes::from_static(b"a")),
            })
            .to_vec(),
        decoupled: false,
    }
}

/// The response of a model that returns its inputs.
pub fn echo(request: &InferRequest, checked: &Checked, signature: &Signature) -> InferResponse {
    let outputs = checked.outputs.iter().filter_map(|&(index, wanted)| {
        let position = checked.inputs.iter().position(|&i| i == index)?;
        let input = request.inputs.get(position)?;
        let form = wanted.and_then(|w| request.outputs.get(usize::from(w))).map_or(request.default_form, |o| o.form);
        Some(OutputTensor {
            name: signature.outputs.get(usize::from(index))?.name.clone(),
            index,
            datatype: input.datatype?,
            shape: input.shape.clone(),
            data: input.data.clone(),
            form,
        })
    });
    InferResponse { id: request.id.clone(), outputs: outputs.collect(), ..InferResponse::default() }
}

/// Checks a request and, if it is valid, encodes a response with its inputs.
fn answer(request: Result<InferRequest>, signature: &Signature) {
    let Ok(mut request) = request else { return };
    let Ok(checked) = signature.check(&mut request) else { return };
    let response = echo(&request, &checked, signature);
    let _ = encode_infer(&response, signature);
    let _ = crate::generate::encode_generate(&response, signature);
}

/// HTTP fuzz target. The first byte selects the length of the head and whether the model batches.
pub fn http(data: &[u8]) {
    let Some((&mode, body)) = data.split_first() else { return };
    let signature = signature(u32::from(mode & 1) * 4);
    let limits = Limits { input_bytes_max: 1 << 20, entries_max: 64, ..Limits::default() };
    let text = String::from_utf8_lossy(body.get(..body.len().min(24)).unwrap_or_default());
    let _ = parse_content_length(&text);
    let header_length = match mode >> 1 & 3 {
        0 => None,
        1 => parse_header_length(text.as_bytes(), body.len()).ok(),
        // Behind the last brace, where a head before binary data ends.
        _ => memchr::memrchr(b'}', body).map(|i| i + 1),
    };
    let body = Bytes::copy_from_slice(body);
    answer(parse_infer(&body, header_length, &signature, &NoRegions, &limits), &signature);
    answer(parse_generate(&body, &signature, &limits), &signature);
}
