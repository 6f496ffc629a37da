//! `ModelInferRequest` as it stands in a message, read by hand; judged against the generated reader.

use crate::model::{NoRegions, bytes, echo, signature};
use bytes::Bytes;
use prost::Message;
use prost::encoding::{DecodeContext, WireType, decode_key, decode_varint, skip_field};
use protocol::grpc::{encode, encode_stream_response, peek};
use protocol::pb::inference::{ModelInferRequest, ModelInferResponse, ModelStreamInferResponse};
use tensor::Code;

/// The whole input is the message; its length chooses whether the model batches.
pub fn grpc(data: &[u8]) -> bool {
    protocol::grpc::fuzz_grpc(data);
    let message = Bytes::copy_from_slice(data);
    let signature = signature(data.len() as u32 % 2 * 4);
    let head = peek(&message);
    let read = head.as_ref().map_err(Clone::clone).and_then(|head| head.into_request(&signature, &NoRegions));
    if let Ok(head) = &head {
        let _ = head.wants_empty_final_response();
    }
    if !has_strange_map(data) {
        match (&read, ModelInferRequest::decode(data)) {
            (Err(e), Ok(_)) => assert_ne!(e.code(), Code::Internal, "only we refuse: {e}"),
            // We skip fields of a wrong wire type, as Triton's library does.
            (Ok(_), Err(e)) => {
                let text = e.to_string();
                assert!(text.contains("invalid wire type") || text.contains("recursion limit"), "only prost: {text}");
            }
            (Ok(ours), Ok(theirs)) => {
                assert_eq!((&*ours.id, ours.inputs.len()), (&*theirs.id, theirs.inputs.len()));
                for (a, b) in ours.inputs.iter().zip(&theirs.inputs) {
                    assert_eq!((&*a.name, &a.shape[..]), (&*b.name, &b.shape[..]));
                }
                if theirs.inputs.iter().all(|i| i.contents.is_none()) {
                    let raw = theirs.raw_input_contents.iter();
                    ours.inputs.iter().zip(raw).for_each(|(a, b)| assert_eq!(bytes(&a.data), &b[..]));
                }
            }
            (Err(_), Err(_)) => {}
        }
    }
    let Ok(mut request) = read else { return false };
    let Ok(checked) = signature.check(&mut request) else { return false };
    let response = echo(&request, &checked, &signature);
    if let Ok(encoded) = encode(&response, &signature) {
        let theirs = ModelInferResponse::decode(&encoded.into_message().concat()[..]).expect("our own message");
        assert_eq!(theirs.outputs.len(), response.outputs.len());
    }
    if let Ok(encoded) = encode_stream_response(&response, &signature, true) {
        let theirs = ModelStreamInferResponse::decode(&encoded.into_message().concat()[..]);
        assert!(theirs.expect("our own message").infer_response.is_some());
    }
    true
}

/// Whether a map has a wire type that is not its own: prost reads it as a map, so nothing can be compared.
fn has_strange_map(message: &[u8]) -> bool {
    let mut strange = false;
    fields(message, |number, wire_type, inside| match (number, wire_type) {
        (4, WireType::LengthDelimited) => {}
        (4, _) => strange = true,
        (5 | 6, WireType::LengthDelimited) => {
            let map = if number == 5 { 4 } else { 2 };
            fields(inside, |n, w, _| strange |= n == map && w != WireType::LengthDelimited);
        }
        _ => {}
    });
    strange
}

/// Visits fields, the first broken one last: number, wire type, contents.
fn fields<'a>(mut message: &'a [u8], mut visit: impl FnMut(u32, WireType, &'a [u8])) {
    while !message.is_empty() {
        let Ok((number, wire_type)) = decode_key(&mut message) else { return };
        let mut inside = message;
        let skipped = skip_field(wire_type, number, &mut message, DecodeContext::default()).is_ok();
        let whole = skipped && wire_type == WireType::LengthDelimited && decode_varint(&mut inside).is_ok();
        visit(number, wire_type, if whole { &inside[..inside.len() - message.len()] } else { &[] });
        if !skipped {
            return;
        }
    }
}
