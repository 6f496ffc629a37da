//! Requests as clients send them: one input of shape [1, n], one requested output.

use crate::tensors::elements;
use crate::{response, support};
use bytes::Bytes;
use prost::Message;
use protocol::http::encode_infer;
use protocol::pb::inference::model_infer_request::{InferInputTensor, InferRequestedOutputTensor};
use protocol::pb::inference::{InferTensorContents, ModelInferRequest};
use tensor::DataType;
use tensor::strings::Strings;

/// A request's bytes.
pub struct Body {
    pub bytes: Bytes,
    /// Length of the JSON head, if binary data follow it.
    pub header_length: Option<usize>,
}

/// A JSON head and binary data, as Triton's client writes it.
pub fn http_binary(datatype: DataType, raw: &Bytes) -> Option<Body> {
    let (name, shape, size) = (datatype.name(), elements(datatype, raw), raw.len());
    let input = format!(
        r#"{{"name":"INPUT0","shape":[1,{shape}],"datatype":"{name}","parameters":{{"binary_data_size":{size}}}}}"#
    );
    let output = r#"{"name":"OUTPUT0","parameters":{"binary_data":true}}"#;
    let head = format!(r#"{{"id":"42","inputs":[{input}],"outputs":[{output}]}}"#);
    Some(Body { bytes: [head.as_bytes(), raw].concat().into(), header_length: Some(head.len()) })
}

/// The tensor as JSON. FP32 is printed as the widened double, as by `numpy.tolist` and the server's own responses.
pub fn http_json(datatype: DataType, raw: &Bytes) -> Option<Body> {
    let signature = support::identity("identity", 1, datatype);
    let text = encode_infer(&response(datatype, raw, false), &signature).ok()?.json;
    // Outputs of a response have the form of inputs of a request.
    let text = std::str::from_utf8(&text).ok()?;
    let (_, outputs) = text.split_once(r#""outputs":"#)?;
    Some(json(&format!(r#"{{"id":"42","inputs":{}"#, outputs.replace("OUTPUT0", "INPUT0"))))
}

/// A body without binary data.
pub fn json(text: &str) -> Body {
    Body { bytes: Bytes::copy_from_slice(text.as_bytes()), header_length: None }
}

/// `raw_input_contents`.
pub fn grpc_raw(datatype: DataType, raw: &Bytes) -> Option<Body> {
    let request = ModelInferRequest { raw_input_contents: vec![raw.clone()], ..message(datatype, raw, None) };
    Some(Body { bytes: request.encode_to_vec().into(), header_length: None })
}

/// Packed typed lists; FP16 has none.
pub fn grpc_typed(datatype: DataType, raw: &Bytes) -> Option<Body> {
    let mut contents = InferTensorContents::default();
    match datatype {
        DataType::Fp32 => {
            contents.fp32_contents = raw.as_chunks::<4>().0.iter().map(|&b| f32::from_le_bytes(b)).collect();
        }
        DataType::Int64 => {
            contents.int64_contents = raw.as_chunks::<8>().0.iter().map(|&b| i64::from_le_bytes(b)).collect();
        }
        DataType::Bool => contents.bool_contents = raw.iter().map(|&b| b != 0).collect(),
        DataType::Bytes => {
            contents.bytes_contents = Strings::new(raw).flatten().map(Bytes::copy_from_slice).collect();
        }
        _ => return None,
    }
    Some(Body { bytes: message(datatype, raw, Some(contents)).encode_to_vec().into(), header_length: None })
}

fn message(datatype: DataType, raw: &[u8], contents: Option<InferTensorContents>) -> ModelInferRequest {
    ModelInferRequest {
        model_name: "identity".into(),
        id: "42".into(),
        inputs: vec![InferInputTensor {
            name: "INPUT0".into(),
            datatype: datatype.name().into(),
            shape: vec![1, elements(datatype, raw)],
            contents,
            ..InferInputTensor::default()
        }],
        outputs: vec![InferRequestedOutputTensor { name: "OUTPUT0".into(), ..InferRequestedOutputTensor::default() }],
        ..ModelInferRequest::default()
    }
}
