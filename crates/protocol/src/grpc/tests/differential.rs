//! The hand-written reader and writer against prost, with generated messages: whole, shuffled and damaged.

use bytes::{BufMut, Bytes};
use proptest::collection::{btree_map, vec};
use proptest::prelude::*;
use prost::Message;
use tensor::{Code, Data, DataType};

use super::*;
use crate::pb::inference::ModelInferResponse;
use crate::{CorrelationId, InferResponse, OutputForm, OutputTensor, Parameter};

fn choice() -> impl Strategy<Value = ParameterChoice> {
    prop_oneof![
        any::<bool>().prop_map(ParameterChoice::BoolParam),
        any::<i64>().prop_map(ParameterChoice::Int64Param),
        "[a-zé]{0,5}".prop_map(ParameterChoice::StringParam),
        (-1e9..1e9f64).prop_map(ParameterChoice::DoubleParam),
    ]
}

/// A datatype with matching contents.
fn typed() -> impl Strategy<Value = (DataType, InferTensorContents)> {
    type C = InferTensorContents;
    let small = |t: &'static [DataType]| proptest::sample::select(t);
    prop_oneof![
        vec(any::<bool>(), 0..5).prop_map(|v| (DataType::Bool, C { bool_contents: v, ..C::default() })),
        (small(&[DataType::Int8, DataType::Int16, DataType::Int32]), vec(any::<i32>(), 0..5))
            .prop_map(|(t, v)| (t, C { int_contents: v, ..C::default() })),
        vec(any::<i64>(), 0..5).prop_map(|v| (DataType::Int64, C { int64_contents: v, ..C::default() })),
        (small(&[DataType::Uint8, DataType::Uint16, DataType::Uint32]), vec(any::<u32>(), 0..5))
            .prop_map(|(t, v)| (t, C { uint_contents: v, ..C::default() })),
        vec(any::<u64>(), 0..5).prop_map(|v| (DataType::Uint64, C { uint64_contents: v, ..C::default() })),
        vec(-1e9..1e9f32, 0..5).prop_map(|v| (DataType::Fp32, C { fp32_contents: v, ..C::default() })),
        vec(-1e9..1e9f64, 0..5).prop_map(|v| (DataType::Fp64, C { fp64_contents: v, ..C::default() })),
        vec(vec(any::<u8>(), 0..4).prop_map(Bytes::from), 0..5)
            .prop_map(|v| (DataType::Bytes, C { bytes_contents: v, ..C::default() })),
    ]
}

fn request() -> impl Strategy<Value = ModelInferRequest> {
    let tensor = (vec(any::<i64>(), 0..4), btree_map("[a-d]{1,2}", choice().prop_map(parameter), 0..2), typed());
    let texts = ("[a-zé]{0,6}", "[0-9]{0,2}", "[a-z]{0,3}");
    let outputs = vec((0u8..9, 0i64..4), 0..3);
    (
        texts,
        btree_map("[a-c]{0,2}", choice(), 0..20),
        vec(tensor, 0..4),
        outputs,
        any::<bool>(),
        vec(vec(any::<u8>(), 0..9), 4),
    )
        .prop_map(|((model_name, model_version, id), parameters, inputs, outputs, is_raw, raw)| {
            ModelInferRequest {
                model_name,
                model_version,
                id,
                parameters: parameters.into_iter().map(|(k, v)| (k, parameter(v))).collect(),
                inputs: inputs
                    .into_iter()
                    .enumerate()
                    .map(|(i, (shape, parameters, (datatype, contents)))| InferInputTensor {
                        parameters,
                        contents: (!is_raw).then_some(contents),
                        ..input(&format!("I{i}"), datatype.name(), &shape)
                    })
                    .collect(),
                outputs: outputs
                    .into_iter()
                    .enumerate()
                    .map(|(i, (_, k))| {
                        let mut out = output(&format!("O{i}"));
                        if k > 0 {
                            out.parameters.insert("classification".into(), parameter(ParameterChoice::Int64Param(k)));
                        }
                        out
                    })
                    .collect(),
                raw_input_contents: if is_raw { raw.into_iter().map(Bytes::from).collect() } else { Vec::new() },
            }
        })
}

/// Binary form of `contents`, by a simple implementation.
fn plain(contents: &InferTensorContents, datatype: &str) -> Vec<u8> {
    let c = contents;
    let low = |bytes: [u8; 4]| match datatype {
        "INT8" | "UINT8" => bytes[..1].to_vec(),
        "INT16" | "UINT16" => bytes[..2].to_vec(),
        _ => bytes.to_vec(),
    };
    let mut raw: Vec<u8> = c.bool_contents.iter().map(|&b| b as u8).collect();
    raw.extend(c.int_contents.iter().flat_map(|v| low(v.to_le_bytes())));
    raw.extend(c.int64_contents.iter().flat_map(|v| v.to_le_bytes()));
    raw.extend(c.uint_contents.iter().flat_map(|v| low(v.to_le_bytes())));
    raw.extend(c.uint64_contents.iter().flat_map(|v| v.to_le_bytes()));
    raw.extend(c.fp32_contents.iter().flat_map(|v| v.to_le_bytes()));
    raw.extend(c.fp64_contents.iter().flat_map(|v| v.to_le_bytes()));
    for s in &c.bytes_contents {
        raw.extend((s.len() as u32).to_le_bytes());
        raw.extend(&s[..]);
    }
    raw
}

/// Compares a decoded request with prost's for the same bytes.
fn compare(ours: &InferRequest, theirs: &ModelInferRequest) {
    assert_eq!(&*ours.id, theirs.id);
    assert_eq!(ours.inputs.len(), theirs.inputs.len());
    let mut raw = theirs.raw_input_contents.iter();
    for (a, b) in ours.inputs.iter().zip(&theirs.inputs) {
        assert_eq!(
            (&*a.name, a.datatype, &a.shape[..]),
            (b.name.as_str(), DataType::from_name(&b.datatype), &b.shape[..])
        );
        match (&a.data, &b.contents) {
            (Data::Region(_), _) => assert!(b.parameters.contains_key("shared_memory_region")),
            (Data::Bytes(data), Some(contents)) => assert_eq!(**data, plain(contents, &b.datatype)),
            (Data::Bytes(data), None) => assert_eq!(Some(data), raw.next()),
        }
    }
    assert_eq!(ours.outputs.len(), theirs.outputs.len());
    for (a, b) in ours.outputs.iter().zip(&theirs.outputs) {
        let classes = match b.parameters.get("classification").and_then(|p| p.parameter_choice.as_ref()) {
            Some(ParameterChoice::Int64Param(k)) => u32::try_from(*k).unwrap_or(u32::MAX),
            _ => 0,
        };
        assert_eq!((&*a.name, a.form.classification), (b.name.as_str(), classes));
    }
    // Only damage makes reserved keys; the custom ones must still be right.
    let mut custom = 0;
    for (key, value) in &theirs.parameters {
        let expected = match value.parameter_choice.clone() {
            Some(ParameterChoice::BoolParam(v)) => Parameter::Bool(v),
            Some(ParameterChoice::Int64Param(v)) => Parameter::Int(v),
            Some(ParameterChoice::StringParam(v)) => Parameter::String(v.into()),
            Some(ParameterChoice::DoubleParam(v)) => Parameter::Double(v),
            _ => continue,
        };
        let Some((_, ours)) = ours.parameters.iter().find(|(k, _)| *k == key.as_str()) else { continue };
        // Damage may make NaN, which does not equal itself.
        assert_eq!(format!("{ours:?}"), format!("{expected:?}"));
        custom += 1;
    }
    assert_eq!(custom, ours.parameters.len());
    if theirs.parameters.keys().all(|k| !["sequence_id", "priority", "timeout"].contains(&k.as_str())) {
        assert_eq!((ours.priority, ours.timeout_us, &ours.sequence.id), (0, 0, &CorrelationId::Number(0)));
    }
}

/// Splits a message into its top-level fields, as (number, bytes of key and value). A malformed rest is one field.
fn fields(message: &[u8]) -> Vec<(u32, &[u8])> {
    let mut fields = Vec::new();
    let mut rest = message;
    while !rest.is_empty() {
        let before = rest;
        let Ok((tag, wire_type)) = prost::encoding::decode_key(&mut rest) else { break };
        let context = prost::encoding::DecodeContext::default();
        if prost::encoding::skip_field(wire_type, tag, &mut rest, context).is_err() {
            rest = &[];
        }
        fields.push((tag, &before[..before.len() - rest.len()]));
    }
    fields
}

/// True if a map has a wrong wire type, which prost ignores.
fn has_strange_map(message: &[u8]) -> bool {
    let strange = |field: &[u8]| field[0] & 7 != 2;
    fields(message).into_iter().any(|(number, field)| match number {
        4 => strange(field),
        5 | 6 if !strange(field) => {
            let mut inside = &field[1..];
            let map = if number == 5 { 4 } else { 2 };
            prost::encoding::decode_varint(&mut inside).is_ok()
                && fields(inside).into_iter().any(|(n, f)| n == map && strange(f))
        }
        _ => false,
    })
}

/// Shuffles fields, but keeps the order of fields with the same number, which has a meaning.
fn shuffle(message: &[u8], mut seed: u64) -> Vec<u8> {
    let mut by_number: Vec<std::collections::VecDeque<&[u8]>> = vec![Default::default(); 16];
    for (number, bytes) in fields(message) {
        by_number[number as usize].push_back(bytes);
    }
    let mut out = Vec::new();
    loop {
        by_number.retain(|list| !list.is_empty());
        if by_number.is_empty() {
            return out;
        }
        seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        let pick = (seed >> 33) as usize % by_number.len();
        out.extend(by_number[pick].pop_front().unwrap());
    }
}

/// Rewrites the packed lists of an input (shape and contents) as unpacked elements in several messages.
fn unpack(input: &InferInputTensor, seed: u64) -> Vec<u8> {
    use prost::encoding::{bool, bytes, double, float, int32, int64, uint32, uint64};
    let mut out = InferInputTensor { shape: Vec::new(), contents: None, ..input.clone() }.encode_to_vec();
    for dim in &input.shape {
        int64::encode(3, dim, &mut out);
    }
    if let Some(c) = &input.contents {
        let mut parts: Vec<Vec<u8>> = Vec::new();
        macro_rules! each {
            ($kind:ident, $number:literal, $list:expr) => {
                for element in &$list {
                    let mut part = Vec::new();
                    $kind::encode($number, element, &mut part);
                    parts.push(part);
                }
            };
        }
        each!(bool, 1, c.bool_contents);
        each!(int32, 2, c.int_contents);
        each!(int64, 3, c.int64_contents);
        each!(uint32, 4, c.uint_contents);
        each!(uint64, 5, c.uint64_contents);
        each!(float, 6, c.fp32_contents);
        each!(double, 7, c.fp64_contents);
        each!(bytes, 8, c.bytes_contents);
        let cut = if parts.is_empty() { 0 } else { seed as usize % (parts.len() + 1) };
        for part in [parts[..cut].concat(), parts[cut..].concat()] {
            out.extend([0x2a, part.len() as u8]);
            assert!(part.len() < 128);
            out.extend(part);
        }
    }
    shuffle(&out, seed)
}

proptest! {
    #[test]
    fn requests_are_read_as_prost_reads_them_in_any_order_and_packing(request in request(), seed in any::<u64>()) {
        let whole = request.encode_to_vec();
        compare(&read_pb(&request).unwrap(), &request);

        let mut other = ModelInferRequest { inputs: Vec::new(), ..request.clone() }.encode_to_vec();
        for input in &request.inputs {
            let input = unpack(input, seed);
            prost::encoding::encode_key(5, prost::encoding::WireType::LengthDelimited, &mut other);
            prost::encoding::encode_varint(input.len() as u64, &mut other);
            other.put_slice(&input);
        }
        for message in [shuffle(&whole, seed), shuffle(&other, seed)] {
            // Shuffling must not change the result of prost.
            let theirs = ModelInferRequest::decode(&message[..]).unwrap();
            prop_assert_eq!(&theirs, &request);
            let message = Bytes::from(message);
            let head = peek(&message).unwrap();
            prop_assert_eq!((&*head.model_name, &*head.model_version), (&*request.model_name, &*request.model_version));
            compare(&read(&message).unwrap(), &theirs);
        }
    }

    /// The reader and prost accept the same messages, except for wrong wire types, which are skipped as in the C++
    /// library.
    #[test]
    fn damaged_requests_are_judged_as_prost_judges_them(
        request in request(),
        damage in vec((any::<prop::sample::Index>(), any::<u8>(), 0..3), 1..4),
    ) {
        let mut message = request.encode_to_vec();
        for (at, byte, kind) in damage {
            if message.is_empty() { break }
            let at = at.index(message.len());
            match kind {
                0 => message[at] = byte,
                1 => message.truncate(at),
                _ => message.insert(at, byte),
            }
        }
        prop_assume!(!has_strange_map(&message));
        let message = Bytes::from(message);
        let ours = read(&message);
        match (&ours, ModelInferRequest::decode(message.clone())) {
            (Ok(ours), Ok(theirs)) => compare(ours, &theirs),
            (Err(e), Ok(_)) => prop_assert!(e.code() != Code::Internal, "only the reader rejects: {e}"),
            (Ok(_), Err(e)) => {
                let is_wire_type = e.to_string().contains("invalid wire type");
                prop_assert!(is_wire_type, "only prost rejects: {e}: {:02x?}", &message[..]);
            }
            (Err(_), Err(_)) => {}
        }
    }

    #[test]
    fn arbitrary_bytes_do_no_harm(data in vec(any::<u8>(), 0..300)) {
        crate::grpc::fuzz_grpc(&data);
    }

    #[test]
    fn responses_are_what_prost_would_have_written(
        texts in ("[a-zé]{0,200}", "[0-9]{0,2}", "[a-z]{0,3}"),
        parameters in btree_map("[a-z]{1,3}", choice(), 0..4),
        outputs in vec((vec(any::<i64>(), 0..4), prop_oneof![0usize..300, 4090usize..4100]), 0..4),
    ) {
        let (model_name, model_version, id) = texts;
        let ours = InferResponse {
            model_name: model_name.as_str().into(),
            model_version: model_version.as_str().into(),
            id: id.as_str().into(),
            parameters: parameters.iter().map(|(k, v)| (k.as_str().into(), match v.clone() {
                ParameterChoice::BoolParam(v) => Parameter::Bool(v),
                ParameterChoice::Int64Param(v) => Parameter::Int(v),
                ParameterChoice::StringParam(v) => Parameter::String(v.into()),
                ParameterChoice::DoubleParam(v) => Parameter::Double(v),
                ParameterChoice::Uint64Param(_) => unreachable!("not generated"),
            })).collect(),
            outputs: outputs.iter().enumerate().map(|(i, (shape, len))| OutputTensor {
                name: format!("O{i}").into(),
                index: i as u16,
                datatype: DataType::ALL[i],
                shape: shape.iter().copied().collect(),
                data: Data::Bytes(vec![i as u8; *len].into()),
                form: OutputForm::default(),
            }).collect(),
        };
        use crate::pb::inference::model_infer_response::InferOutputTensor;
        let theirs = ModelInferResponse {
            model_name, model_version, id,
            parameters: parameters.into_iter().map(|(k, v)| (k, parameter(v))).collect(),
            outputs: outputs.iter().enumerate().map(|(i, (shape, _))| InferOutputTensor {
                name: format!("O{i}"),
                datatype: DataType::ALL[i].name().into(),
                shape: shape.clone(),
                ..Default::default()
            }).collect(),
            raw_output_contents: outputs.iter().enumerate().map(|(i, (_, len))| vec![i as u8; *len].into()).collect(),
        };
        let encoded = crate::grpc::encode(&ours, &signature()).unwrap();
        prop_assert_eq!(encoded.len(), theirs.encoded_len());
        let message = encoded.into_message().concat();
        prop_assert_eq!(ModelInferResponse::decode(&message[..]).unwrap(), theirs);
    }
}
