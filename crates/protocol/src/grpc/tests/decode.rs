//! Requests: data, parameters and every error, with the texts of the recorded responses (area ginfer).

use bytes::Bytes;
use prost::Message;
use tensor::{Code, Data};

use super::*;
use crate::grpc::reject_decoupled;
use crate::{CorrelationId, Parameter};
use ParameterChoice::{BoolParam, DoubleParam, Int64Param, StringParam, Uint64Param};

fn text(s: &str) -> ParameterChoice {
    StringParam(s.into())
}

#[track_caller]
fn refused(request: &ModelInferRequest, code: Code, text: &str) {
    let error = read_pb(request).expect_err("must be refused");
    assert_eq!((error.code(), error.message()), (code, text));
}

/// Decodes a request to `addsub` after `change` and expects INVALID_ARG.
#[track_caller]
fn invalid(change: impl FnOnce(&mut ModelInferRequest), text: &str) {
    let mut request = addsub();
    change(&mut request);
    refused(&request, Code::InvalidArg, text);
}

#[track_caller]
fn invalid_typed(contents: InferTensorContents, datatype: &str, text: &str) {
    let mut request = addsub_typed();
    request.inputs[0].contents = Some(contents);
    request.inputs[0].datatype = datatype.into();
    refused(&request, Code::InvalidArg, text);
}

#[track_caller]
fn invalid_parameter(key: &str, choice: Option<ParameterChoice>, text: &str) {
    invalid(|r| drop(r.parameters.insert(key.into(), InferParameter { parameter_choice: choice })), text);
}

fn with_parameters(parameters: &[(&str, ParameterChoice)]) -> ModelInferRequest {
    let mut request = addsub();
    request.parameters = parameters.iter().map(|(k, v)| ((*k).to_owned(), parameter(v.clone()))).collect();
    request
}

#[test]
fn p_2_3_binary_contents_are_slices_of_the_message() {
    let message: Bytes = addsub().encode_to_vec().into();
    let request = read(&message).unwrap();
    let inside = message.as_ptr_range();
    for (input, value) in request.inputs.iter().zip([1u8, 2]) {
        let Data::Bytes(data) = &input.data else { panic!("not bytes") };
        assert_eq!(**data, [value; 64]);
        assert!(inside.contains(&data.as_ptr()) && inside.contains(&input.name.as_bytes().as_ptr()));
    }
}

#[test]
fn p_2_3_the_head_names_the_model_before_anything_else_is_read() {
    let mut request = addsub();
    request.model_version = "7".into();
    request.id = "abc".into();
    let head = peek(&request.encode_to_vec().into()).unwrap();
    assert_eq!((&*head.model_name, &*head.model_version, &*head.id), ("addsub", "7", "abc"));
    assert_eq!(&*head.into_request(&signature(), &OneRegion::default()).unwrap().id, "abc");
}

#[test]
fn p_2_3_mixed_and_missing_data_are_rejected() {
    invalid(
        |r| r.inputs[0].contents = Some(InferTensorContents::default()),
        "contents field must not be specified when using raw_input_contents for 'INPUT0' for model 'addsub'",
    );
    let missing = |n| format!("unable to find data for input tensor 'INPUT{n}' for model 'addsub' in request.");
    invalid(|r| drop(r.raw_input_contents.pop()), &missing(1));
    invalid(|r| r.raw_input_contents.clear(), &missing(0));
    let mut partial = addsub_typed();
    partial.inputs[1].contents = None;
    refused(&partial, Code::InvalidArg, &missing(1));
    // More raw entries than inputs are ignored.
    let mut surplus = addsub();
    surplus.raw_input_contents.push(Bytes::from_static(b"zzz"));
    assert_eq!(read_pb(&surplus).unwrap().inputs.len(), 2);
}

#[test]
fn p_2_3_only_the_list_of_the_datatype_may_be_used() {
    let wrong = |got: &str, wanted: &str| {
        format!(
            "unexpected explicit tensor data for input tensor 'INPUT0' for model 'addsub' of type '{got}', expected \
             datatype '{wanted}'"
        )
    };
    type C = InferTensorContents;
    invalid_typed(C { int64_contents: vec![1], ..C::default() }, "INT32", &wrong("INT64", "INT32"));
    invalid_typed(C { fp32_contents: vec![1.0], ..C::default() }, "INT32", &wrong("FP32", "INT32"));
    invalid_typed(C { bytes_contents: vec![Bytes::new()], ..C::default() }, "INT32", &wrong("BYTES", "INT32"));
    invalid_typed(C { int_contents: vec![1], ..C::default() }, "BYTES", &wrong("INT32", "BYTES"));
    invalid_typed(C { int_contents: vec![1], ..C::default() }, "INT33", &wrong("INT32", "<invalid>"));
    invalid_typed(C { fp32_contents: vec![1.0], ..C::default() }, "FP16", &wrong("FP32", "FP16"));
    invalid_typed(C { fp32_contents: vec![1.0], ..C::default() }, "BF16", &wrong("FP32", "BF16"));
    invalid_typed(
        C { int_contents: vec![1], fp32_contents: vec![1.0], ..C::default() },
        "INT32",
        "unexpected explicit tensor data for input tensor 'INPUT0' for model 'addsub', binary data was already \
         supplied.",
    );
}

#[test]
fn p_2_3_typed_contents_are_converted_and_keep_the_low_bytes() {
    #[track_caller]
    fn check(datatype: &str, contents: InferTensorContents, raw: &[u8]) {
        let mut request = addsub_typed();
        request.inputs.truncate(1);
        request.inputs[0].datatype = datatype.into();
        request.inputs[0].contents = Some(contents);
        assert_eq!(read_pb(&request).unwrap().inputs[0].data.to_vec().expect("in memory"), raw);
    }
    type C = InferTensorContents;
    check("BOOL", C { bool_contents: vec![true, false], ..C::default() }, &[1, 0]);
    check("INT8", C { int_contents: vec![128, -129, 300], ..C::default() }, &[128, 127, 44]);
    check("INT16", C { int_contents: vec![-1, 65536], ..C::default() }, &[255, 255, 0, 0]);
    check("INT32", C { int_contents: vec![-2], ..C::default() }, &[254, 255, 255, 255]);
    check("INT64", C { int64_contents: vec![-1], ..C::default() }, &[255; 8]);
    check("UINT8", C { uint_contents: vec![257], ..C::default() }, &[1]);
    check("UINT16", C { uint_contents: vec![65536, 65537], ..C::default() }, &[0, 0, 1, 0]);
    check("UINT32", C { uint_contents: vec![u32::MAX], ..C::default() }, &[255; 4]);
    check("UINT64", C { uint64_contents: vec![u64::MAX], ..C::default() }, &[255; 8]);
    check("FP32", C { fp32_contents: vec![1.0], ..C::default() }, &1f32.to_le_bytes());
    check("FP64", C { fp64_contents: vec![1.0], ..C::default() }, &1f64.to_le_bytes());
    let strings = vec![Bytes::from_static(b"a\0"), Bytes::new()];
    check("BYTES", C { bytes_contents: strings, ..C::default() }, b"\x02\0\0\0a\0\0\0\0\0");
    // Contents without values are an empty tensor, even for datatypes that have no list.
    check("FP16", C::default(), b"");
}

#[test]
fn p_2_4_request_parameters_have_fixed_types() {
    let request = read_pb(&with_parameters(&[
        ("a", text("x")),
        ("b", Int64Param(1)),
        ("c", BoolParam(true)),
        ("d", DoubleParam(1.5)),
        ("headers", text("1")),
        ("priority", Uint64Param(2)),
        ("sequence_end", BoolParam(true)),
        ("sequence_id", Int64Param(-5)),
        ("sequence_start", BoolParam(true)),
        ("timeout", Int64Param(-1)),
    ]))
    .unwrap();
    let own = |k: &'static str, v| (Name::from_static(k), v);
    assert_eq!(
        request.parameters,
        [
            own("a", Parameter::String("x".into())),
            own("b", Parameter::Int(1)),
            own("c", Parameter::Bool(true)),
            own("d", Parameter::Double(1.5)),
            own("headers", Parameter::String("1".into())),
        ]
    );
    assert_eq!((request.priority, request.timeout_us), (2, u64::MAX));
    assert_eq!(request.sequence.id, CorrelationId::Number(-5i64 as u64));
    assert!(request.sequence.start && request.sequence.end);

    let id = "x".repeat(128);
    let request = read_pb(&with_parameters(&[("sequence_id", text(&id))])).unwrap();
    assert_eq!(request.sequence.id, CorrelationId::String(id.as_str().into()));
    refused(
        &with_parameters(&[("sequence_id", text(&"x".repeat(129)))]),
        Code::Unsupported,
        "string correlation ID cannot be longer than 128 characters",
    );

    let wrong = |key: &str, choice: ParameterChoice, expected: &str| {
        let text = format!("invalid value type for '{key}' parameter, expected {expected}.");
        invalid_parameter(key, Some(choice), &text);
    };
    wrong("sequence_id", BoolParam(true), "int64_param or string_param");
    wrong("sequence_id", Uint64Param(5), "int64_param or string_param");
    wrong("sequence_start", Int64Param(1), "bool_param");
    wrong("sequence_end", text("1"), "bool_param");
    wrong("priority", text("2"), "int64_param or uint64_param");
    wrong("timeout", text("1"), "int64_param");
    wrong("timeout", Uint64Param(1000), "int64_param");
    wrong("triton_enable_empty_final_response", Int64Param(1), "bool_param");
    wrong("a", Uint64Param(1), "int64_param, bool_param, or string_param");
    invalid_parameter(
        "a",
        None,
        "invalid value type for 'a' parameter, expected int64_param, bool_param, or string_param.",
    );
    invalid_parameter("priority", Some(Int64Param(-1)), "invalid value for 'priority', expected value >= 0.");
    invalid_parameter(
        "triton_x",
        Some(Int64Param(1)),
        "parameter keys starting with 'triton_' are reserved for Triton usage. Only the following keys starting with \
         'triton_' are allowed: triton_enable_empty_final_response",
    );
}

#[test]
fn p_2_5_the_parameter_for_an_empty_final_response_is_not_passed_to_the_model() {
    let ask = |value| {
        let message = with_parameters(&[("triton_enable_empty_final_response", value)]).encode_to_vec().into();
        let head = peek(&message).unwrap();
        (head.wants_empty_final_response(), read(&message).map(|r| r.parameters.len()).ok())
    };
    assert_eq!(ask(BoolParam(true)), (true, Some(0)));
    assert_eq!(ask(BoolParam(false)), (false, Some(0)));
    assert_eq!(ask(Int64Param(1)), (false, None));
    assert!(!peek(&addsub().encode_to_vec().into()).unwrap().wants_empty_final_response());
}

#[test]
fn the_last_value_of_equal_keys_wins_for_few_and_many_keys() {
    for others in [0, 40] {
        let mut message = with_parameters(&[("a", Int64Param(1))]).encode_to_vec();
        for i in 0..others {
            message.extend(with_parameters(&[(&format!("k{i}"), Int64Param(i))]).encode_to_vec());
        }
        message.extend(with_parameters(&[("a", text("last"))]).encode_to_vec());
        // Each part repeats the tensors; the check against the signature rejects the duplicates.
        let request = peek(&message.into()).unwrap().into_request(&signature(), &OneRegion::default()).unwrap();
        assert_eq!(request.parameters.len() as i64, others + 1);
        assert_eq!(request.parameters[0], (Name::from_static("a"), Parameter::String("last".into())));
    }
}

/// Checks shared memory parameters of an input and of an output, which have the same texts (M 1.7).
#[track_caller]
fn invalid_window(parameters: &[(&str, ParameterChoice)], text: &str) {
    let map: std::collections::BTreeMap<_, _> =
        parameters.iter().map(|(k, v)| ((*k).to_owned(), parameter(v.clone()))).collect();
    let as_input = map.clone();
    invalid(
        |r| {
            r.inputs[0].parameters = as_input;
            drop(r.raw_input_contents.pop());
        },
        &text.replace("<t>", "INPUT0"),
    );
    invalid(
        |r| r.outputs = vec![InferRequestedOutputTensor { name: "OUTPUT0".into(), parameters: map }],
        &text.replace("<t>", "OUTPUT0"),
    );
}

#[test]
fn m_1_7_shared_memory_parameters_are_checked_in_order() {
    let (region, offset, size) = ("shared_memory_region", "shared_memory_offset", "shared_memory_byte_size");
    let wrong = |key: &str, expected: &str| {
        format!("invalid value type for '{key}' parameter for tensor '<t>', expected {expected}.")
    };
    let alone =
        |key: &str| format!("'{key}' can not be specified without 'shared_memory_region' parameter for tensor '<t>'");
    invalid_window(&[(region, Int64Param(2))], &wrong(region, "string_param"));
    invalid_window(&[(region, Int64Param(2)), (offset, text("x"))], &wrong(region, "string_param"));
    invalid_window(&[(offset, Int64Param(2))], &alone(offset));
    invalid_window(&[(offset, text("2")), (size, text("2"))], &alone(offset));
    invalid_window(&[(size, text("2"))], &alone(size));
    invalid_window(&[(region, text("x")), (size, Uint64Param(2))], &wrong(size, "int64_param"));
    invalid_window(&[(region, text("x")), (size, Uint64Param(2)), (offset, text("2"))], &wrong(offset, "int64_param"));
    invalid_window(
        &[(region, text("x"))],
        "'shared_memory_byte_size' must be specified along with 'shared_memory_region' parameter for tensor '<t>'",
    );
}

#[test]
fn m_1_7_a_tensor_in_shared_memory_uses_no_raw_entry() {
    let mut request = addsub();
    let place = |offset: i64, byte_size: i64| {
        [
            ("shared_memory_region".to_owned(), parameter(text("in"))),
            ("shared_memory_offset".to_owned(), parameter(Int64Param(offset))),
            ("shared_memory_byte_size".to_owned(), parameter(Int64Param(byte_size))),
        ]
        .into()
    };
    request.inputs[0].parameters = place(-1, 64);
    request.raw_input_contents.remove(0);
    request.outputs = vec![InferRequestedOutputTensor { name: "OUTPUT1".into(), parameters: place(32, -1) }];
    let regions = OneRegion::default();
    let parsed = peek(&request.encode_to_vec().into()).unwrap().into_request(&signature(), &regions).unwrap();
    assert!(matches!(parsed.inputs[0].data, Data::Region(_)));
    assert_eq!(parsed.inputs[1].data.to_vec().expect("in memory"), [2; 64]);
    assert_eq!(parsed.outputs[0].region.as_ref().map(|r| r.region_name()), Some("in"));
    // Negative numbers reach the registry as huge ones, which it rejects.
    let asked = [("in".to_owned(), u64::MAX, 64), ("in".to_owned(), 32, u64::MAX)];
    assert_eq!(*regions.asked.borrow(), asked);

    request.inputs[0].contents = Some(InferTensorContents::default());
    refused(
        &request,
        Code::InvalidArg,
        "unexpected 'content' provided when using shared memory for input tensor 'INPUT0' for model 'addsub'",
    );
    request.inputs[0].contents = None;
    request.inputs[0].parameters.insert("shared_memory_region".into(), parameter(text("x")));
    refused(&request, Code::NotFound, "Unable to find shared memory region: 'x'");
}

#[test]
fn p_2_3_classes_of_outputs_are_requested_by_a_parameter() {
    let with = |choice: ParameterChoice, region: bool| {
        let mut request = addsub();
        request.outputs = vec![output("OUTPUT0")];
        let parameters = &mut request.outputs[0].parameters;
        parameters.insert("classification".into(), parameter(choice));
        parameters.insert("binary_data".into(), parameter(BoolParam(false)));
        if region {
            parameters.insert("shared_memory_region".into(), parameter(text("nowhere")));
            parameters.insert("shared_memory_byte_size".into(), parameter(Int64Param(64)));
        }
        request
    };
    assert_eq!(read_pb(&with(Int64Param(2), false)).unwrap().outputs[0].form.classification, 2);
    assert_eq!(read_pb(&with(Int64Param(i64::MAX), false)).unwrap().outputs[0].form.classification, u32::MAX);
    let wrong_type = "invalid value type for 'classification' parameter, expected int64_param";
    let low = "invalid value for 'classification' parameter, expected >= 0";
    refused(&with(text("2"), false), Code::InvalidArg, wrong_type);
    refused(&with(Uint64Param(2), false), Code::InvalidArg, wrong_type);
    refused(&with(Int64Param(0), false), Code::InvalidArg, low);
    refused(&with(Int64Param(-1), false), Code::InvalidArg, low);
    // The check is before the look-up of the region.
    let both = "output can't set both 'shared_memory_region' and 'classification'";
    refused(&with(Int64Param(1), true), Code::InvalidArg, both);
}

#[test]
fn p_2_9_row_10_a_tensor_named_twice_is_reported_before_its_data() {
    let mut request = addsub();
    request.inputs[1].name = "INPUT0".into();
    request.raw_input_contents.clear();
    refused(&request, Code::InvalidArg, "[request id: <id_unknown>] input 'INPUT0' already exists in request");
    request.id = "i".into();
    refused(&request, Code::InvalidArg, "[request id: i] input 'INPUT0' already exists in request");
    let mut request = addsub();
    request.outputs = vec![output("A"), output("A")];
    request.raw_input_contents.clear();
    refused(&request, Code::InvalidArg, "[request id: <id_unknown>] output 'A' already exists in request");
}

#[test]
fn p_2_3_unary_calls_reject_decoupled_models() {
    let error = reject_decoupled(&Signature { decoupled: true, ..signature() }).unwrap_err();
    let text = "ModelInfer RPC doesn't support models with decoupled transaction policy";
    assert_eq!((error.code(), error.message()), (Code::Unsupported, text));
    assert!(reject_decoupled(&signature()).is_ok());
}

#[test]
fn bytes_that_are_not_protobuf_are_an_internal_error_with_the_offset() {
    #[track_caller]
    fn check(message: &[u8], what: &str) {
        let error = read(&Bytes::copy_from_slice(message)).expect_err("must be refused");
        assert_eq!(
            (error.code(), error.message()),
            (Code::Internal, format!("failed to parse ModelInferRequest: {what}").as_str())
        );
    }
    check(b"\x0a", "an integer is cut off, at byte 1");
    check(b"\x0a\x05ab", "a field reaches past the end, at byte 2");
    check(b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", "a field reaches past the end, at byte 11");
    check(b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02", "an integer of more than 64 bits, at byte 1");
    check(&[0xff; 12], "an integer of more than 64 bits, at byte 0");
    check(b"\x02\x00", "a field number is 0, at byte 0");
    check(b"\x0f", "an unknown wire type, at byte 1");
    check(b"\x0c", "a group ends that did not begin, at byte 1");
    check(b"\x7b\x84\x01", "a group ends that did not begin, at byte 3");
    check(b"\x7d\x00", "a number is cut off, at byte 1");
    check(b"\x0a\x02\xff\xfe", "a string is not UTF-8, at byte 2");
    check(&[0x7b; 200], "groups are nested too deep, at byte 101");
    // Inside an input offsets are still those of the message.
    check(b"\x0a\x01m\x2a\x02\x0a\x05", "a field reaches past the end, at byte 7");
}

#[test]
fn unknown_fields_and_groups_are_skipped_and_repeated_messages_are_merged() {
    let mut message = Vec::new();
    message.extend(b"\x78\x05\x7a\x01x\x7d\0\0\0\0\x79\0\0\0\0\0\0\0\0"); // field 15, four wire types
    message.extend(b"\x7b\x08\x01\x83\x01\x84\x01\x7c"); // group 15 with a field and an empty group 16 in it
    message.extend(b"\x08\x05"); // model_name as an integer
    message.extend(b"\x0a\x01a\x0a\x01b"); // model_name twice
    // An input: INT32, shape [2] once packed and [3] once not, contents in two messages of one number each.
    let contents = b"\x2a\x02\x10\x07\x2a\x03\x12\x01\x08";
    let mut input = Vec::from(*b"\x0a\x01X\x12\x05INT32\x1a\x01\x02\x18\x03");
    input.extend(contents);
    message.extend([0x2a, input.len() as u8]);
    message.extend(input);
    let message = Bytes::from(message);
    assert_eq!(&*peek(&message).unwrap().model_name, "b");
    let request = read(&message).unwrap();
    assert_eq!(request.inputs[0].shape[..], [2, 3]);
    assert_eq!(request.inputs[0].data.to_vec().expect("in memory"), [7, 0, 0, 0, 8, 0, 0, 0]);
}

#[test]
fn limits_of_tensors_and_parameters_are_checked_before_they_are_stored() {
    #[track_caller]
    fn check(message: Vec<u8>, text: &str) {
        let error = read(&message.into()).expect_err("must be refused");
        assert_eq!((error.code(), error.message()), (Code::InvalidArg, text));
    }
    check(b"\x2a\0".repeat(65536), "request has more than 65535 inputs");
    check(b"\x32\0".repeat(65536), "request has more than 65535 outputs");
    check(b"\x22\0".repeat(65536), "request has more than 65535 parameters");
    let mut request = addsub();
    request.inputs[0].shape = vec![1; 1025];
    refused(&request, Code::InvalidArg, "an input has more than 1024 dimensions");
}
