//! Responses, decoded by prost.

use bytes::{Buf, Bytes};
use prost::Message;
use smallvec::smallvec;
use tensor::{Code, Data, DataType, Name};

use super::*;
use crate::grpc::{Encoded, StreamFailure, encode, encode_stream_error, encode_stream_response};
use crate::pb::inference::{ModelInferResponse, ModelStreamInferResponse};
use crate::{InferResponse, OutputForm, OutputTensor, Parameter};

fn tensor(name: &'static str, data: impl Into<Bytes>) -> OutputTensor {
    let data = data.into();
    OutputTensor {
        name: Name::from_static(name),
        index: 0,
        datatype: DataType::Uint8,
        shape: smallvec![1, data.len() as i64],
        data: Data::Bytes(data),
        form: OutputForm::default(),
    }
}

fn response(outputs: Vec<OutputTensor>) -> InferResponse {
    InferResponse {
        model_name: "addsub".into(),
        model_version: "1".into(),
        id: "abc".into(),
        parameters: Vec::new(),
        outputs: outputs.into(),
    }
}

/// The message that the client receives; checks its frame header.
fn message(encoded: Encoded) -> Bytes {
    let len = encoded.len();
    let mut frame: Bytes = encoded.into_frame().concat().into();
    assert_eq!((frame.get_u8(), frame.get_u32() as usize, frame.len()), (0, len, len));
    frame
}

fn decoded(response: &InferResponse) -> ModelInferResponse {
    ModelInferResponse::decode(message(encode(response, &signature()).unwrap())).unwrap()
}

#[test]
fn p_2_3_every_output_has_its_raw_entry() {
    let mut in_region = tensor("R", Bytes::new());
    in_region.shape = smallvec![1, 16];
    in_region.data = Data::Region(Arc::new(Window(64)));
    let back =
        decoded(&response(vec![tensor("A", vec![1, 2]), in_region, tensor("Z", Bytes::new()), tensor("B", vec![3])]));
    assert_eq!((&*back.model_name, &*back.model_version, &*back.id), ("addsub", "1", "abc"));
    assert_eq!(back.raw_output_contents, [&[1u8, 2][..], &[], &[], &[3]]);
    let shapes: Vec<_> = back.outputs.iter().map(|o| (o.name.as_str(), o.datatype.as_str(), &o.shape[..])).collect();
    assert_eq!(
        shapes,
        [("A", "UINT8", &[1, 2][..]), ("R", "UINT8", &[1, 16]), ("Z", "UINT8", &[1, 0]), ("B", "UINT8", &[1, 1])]
    );
    assert!(back.outputs.iter().all(|o| o.parameters.is_empty() && o.contents.is_none()));
}

#[test]
fn large_tensors_are_not_copied_and_small_ones_share_a_piece() {
    let (small, large) = (Bytes::from(vec![1; 4095]), Bytes::from(vec![2; 4096]));
    let outputs = vec![tensor("A", small.clone()), tensor("B", large.clone()), tensor("C", small.clone())];
    let response = response(outputs);
    let pieces = encode(&response, &signature()).unwrap().into_frame();
    assert_eq!(pieces.len(), 3);
    assert_eq!(pieces[1].as_ptr(), large.as_ptr());
    assert_eq!(decoded(&response).raw_output_contents, [small.clone(), large, small]);
    let message = encode(&response, &signature()).unwrap().into_message().concat();
    assert_eq!(message.len(), encode(&response, &signature()).unwrap().len());
    assert!(ModelInferResponse::decode(&message[..]).is_ok());
}

#[test]
fn p_2_3_response_parameters_keep_their_types() {
    let mut response = response(Vec::new());
    response.parameters = vec![
        ("param0".into(), Parameter::String("an example string parameter".into())),
        ("param1".into(), Parameter::Int(-42)),
        ("param2".into(), Parameter::Bool(false)),
        ("param3".into(), Parameter::Double(123.123)),
    ];
    use ParameterChoice::{BoolParam, DoubleParam, Int64Param, StringParam};
    let expected = [
        ("param0".to_owned(), parameter(StringParam("an example string parameter".into()))),
        ("param1".to_owned(), parameter(Int64Param(-42))),
        ("param2".to_owned(), parameter(BoolParam(false))),
        ("param3".to_owned(), parameter(DoubleParam(123.123))),
    ];
    assert_eq!(decoded(&response).parameters, expected.into());
}

#[test]
fn p_2_3_a_response_over_2_gib_is_an_error() {
    // One small allocation, referenced many times: no buffer of this size is ever allocated.
    let part = Bytes::from(vec![0; 1 << 20]);
    let with = |parts: usize| response((0..parts).map(|_| tensor("A", part.clone())).collect());
    assert!(encode(&with(2047), &signature()).is_ok());
    let error = encode(&with(2048), &signature()).unwrap_err();
    let n = error.message().split(' ').nth(4).and_then(|n| n.parse::<usize>().ok()).unwrap();
    assert!(n > 2048 << 20 && n < (2048 << 20) + 2048 * 32);
    let text = format!("Response has byte size {n} which exceeds gRPC's byte size limit 2147483647.");
    assert_eq!((error.code(), error.message()), (Code::InvalidArg, text.as_str()));
    assert!(encode_stream_response(&with(2048), &signature(), true).is_err());
}

#[test]
fn p_2_3_an_empty_response_is_an_empty_message() {
    let encoded = encode(&InferResponse::default(), &signature()).unwrap();
    assert!(encoded.is_empty());
    assert_eq!(message(encoded), Bytes::new());
}

fn stream(encoded: Encoded) -> ModelStreamInferResponse {
    ModelStreamInferResponse::decode(message(encoded)).unwrap()
}

#[test]
fn p_2_5_stream_responses_have_the_final_flag() {
    for is_final in [true, false] {
        let response = response(vec![tensor("A", vec![7; 5000])]);
        let back = stream(encode_stream_response(&response, &signature(), is_final).unwrap());
        assert_eq!(back.error_message, "");
        let inner = back.infer_response.unwrap();
        let flag = parameter(ParameterChoice::BoolParam(is_final));
        assert_eq!(inner.parameters, [("triton_final_response".to_owned(), flag)].into());
        assert_eq!(inner.raw_output_contents, [vec![7u8; 5000]]);
    }
}

#[test]
fn p_2_5_stream_errors_have_only_the_known_fields() {
    let error = Error::not_found("Request for unknown model: 'nope' is not found");
    let id = Name::from_static("u");
    let back = stream(encode_stream_error(&error, &id, StreamFailure::BeforeEnqueue));
    assert_eq!(back.error_message, error.message());
    assert_eq!(back.infer_response, Some(ModelInferResponse { id: "u".into(), ..Default::default() }));

    let (model_name, model_version) = (&Name::from_static("ort_fail"), &Name::new());
    let late = StreamFailure::AfterEnqueue { model_name, model_version, is_final: true };
    let back = stream(encode_stream_error(&error, &Name::new(), late));
    let flag = [("triton_final_response".to_owned(), parameter(ParameterChoice::BoolParam(true)))].into();
    let inner = ModelInferResponse { model_name: "ort_fail".into(), parameters: flag, ..Default::default() };
    assert_eq!((back.error_message.as_str(), back.infer_response), (error.message(), Some(inner)));

    // The inner response is present even without an id.
    let back = stream(encode_stream_error(&error, &Name::new(), StreamFailure::BeforeEnqueue));
    assert_eq!(back.infer_response, Some(ModelInferResponse::default()));
}

#[test]
fn p_1_12_7_classes_replace_the_tensor() {
    let mut wanted = tensor("OUTPUT1", Bytes::new());
    wanted.datatype = DataType::Int32;
    wanted.shape = smallvec![1, 16];
    wanted.data = Data::Bytes((-1i32..15).flat_map(i32::to_le_bytes).collect::<Vec<u8>>().into());
    wanted.form.classification = 2;
    let batching = Signature { max_batch_size: 8, ..signature() };
    let mut response = response(vec![wanted]);
    // As recorded in stream.class.
    let back = stream(encode_stream_response(&response, &batching, true).unwrap()).infer_response.unwrap();
    assert_eq!((back.outputs[0].datatype.as_str(), &back.outputs[0].shape[..]), ("BYTES", &[1, 2][..]));
    assert_eq!(back.raw_output_contents, [&b"\x05\x00\x00\x0014:15\x05\x00\x00\x0013:14"[..]]);

    response.outputs[0].datatype = DataType::Bool;
    let error = encode(&response, &batching).unwrap_err();
    let text = "class result not available for output due to unsupported type 'BOOL'";
    assert_eq!((error.code(), error.message()), (Code::InvalidArg, text));
}
