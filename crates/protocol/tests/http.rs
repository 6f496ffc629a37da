//! HTTP bodies against recorded responses: requests, error texts, responses.

mod support;

use bytes::Bytes;
use protocol::http::{Limits, encode_infer, parse_infer};
use protocol::{InferRequest, InferResponse, OutputTensor, Parameter, Signature};
use support::{NoRegions, addsub, identity, signature};
use tensor::{Data, DataType, Error, Name, Result};

const A: &str = "[0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15]";

/// `I0`, `I1` and `A` in `text` stand for valid inputs and sixteen numbers.
fn expand(text: &str) -> Bytes {
    let input = |name: &str| format!(r#"{{"name":"{name}","shape":[1,16],"datatype":"INT32","data":{A}}}"#);
    let text = text.replace("<I0>", &input("INPUT0")).replace("<I1>", &input("INPUT1")).replace("<A>", A);
    Bytes::from(text)
}

fn ask(sig: &Signature, body: &Bytes, header_length: Option<usize>) -> Result<InferRequest> {
    let mut request = parse_infer(body, header_length, sig, &NoRegions, &Limits::default())?;
    sig.check(&mut request)?;
    Ok(request)
}

/// Code and text of the error of `addsub` (batches up to 8).
fn refused(text: &str, status: u16, message: &str) {
    let e = ask(&addsub(8), &expand(text), None).expect_err(text);
    assert_eq!((e.code().http_status(), e.message()), (status, message), "{text}");
}

fn accepted(text: &str) -> InferRequest {
    ask(&addsub(8), &expand(text), None).unwrap_or_else(|e| panic!("{text}: {e}"))
}

#[test]
fn p105_missing_members_and_wrong_types_have_their_texts() {
    for body in ["null", "true", "{}", "[]"] {
        refused(body, 500, "Unable to parse 'inputs': attempt to access non-existing object member 'inputs'");
    }
    refused(r#"{"inputs":"x"}"#, 500, "Unable to parse 'inputs': attempt to access JSON non-array as array");
    refused(r#"{"id":5,"inputs":[]}"#, 500, "Unable to parse 'id': attempt to access JSON non-string as string");
    let input = |members: &str| format!(r#"{{"inputs":[{{{members}}},<I1>]}}"#);
    for (key, kind) in [("name", "string"), ("datatype", "string"), ("shape", "array"), ("data", "array")] {
        let all = [("name", r#""INPUT0""#), ("datatype", r#""INT32""#), ("shape", "[1,16]"), ("data", "<A>")];
        let with = |value: Option<&str>| {
            let members = all.iter().filter_map(|(k, v)| {
                let v = if *k == key { value? } else { v };
                Some(format!(r#""{k}":{v}"#))
            });
            input(&members.collect::<Vec<_>>().join(","))
        };
        for wrong in ["null", "5", "{}"] {
            let text = format!("Unable to parse '{key}': attempt to access JSON non-{kind} as {kind}");
            refused(&with(Some(wrong)), 500, &text);
        }
        if key != "data" {
            let text = format!("Unable to parse '{key}': attempt to access non-existing object member '{key}'");
            refused(&with(None), 500, &text);
        }
    }
}

#[test]
fn p074_an_input_has_exactly_one_data_source() {
    let text = "Input must set only one of the following fields: 'data', 'binary_data_size' in 'parameters', \
                'shared_memory_region' in 'parameters'. But";
    let input =
        |rest: &str| format!(r#"{{"inputs":[{{"name":"INPUT0","shape":[1,16],"datatype":"INT32"{rest}}},<I1>]}}"#);
    refused(&input(""), 400, &format!("{text} no field is set"));
    refused(
        &input(r#","data":<A>,"parameters":{"binary_data_size":64}"#),
        400,
        &format!("{text} set 'data' 'binary_data_size'"),
    );
    refused(
        &input(r#","data":<A>,"parameters":{"shared_memory_region":"x","binary_data_size":64}"#),
        400,
        &format!("{text} set 'data' 'binary_data_size' 'shared_memory_region'"),
    );
    refused(&input(r#","parameters":{"shared_memory_region":"x"}"#), 404, "Unable to find shared memory region: 'x'");
    refused(
        &input(r#","parameters":{"shared_memory_region":5}"#),
        500,
        "Unable to parse 'shared_memory_region': attempt to access JSON non-string as string",
    );
    refused(
        &input(r#","parameters":{"shared_memory_region":"x","shared_memory_offset":-1}"#),
        500,
        "Unable to parse 'shared_memory_offset': attempt to access JSON non-unsigned-integer as unsigned-integer",
    );
    accepted(r#"{"inputs":[{"name":"INPUT0","shape":[1,16],"datatype":"INT32","data":<A>,"parameters":[1]},<I1>]}"#);
}

/// Parses one input with this datatype, shape and data for a model of that datatype, in both member orders.
fn data(datatype: DataType, shape: &str, data: &str) -> Result<Vec<u8>> {
    let sig = identity("id", 8, datatype);
    let known = format!(r#""name":"INPUT0","shape":{shape},"datatype":"{}""#, datatype.name());
    let data = format!(r#""data":{data}"#);
    let ask = |members: String| {
        let request = ask(&sig, &Bytes::from(format!(r#"{{"inputs":[{{{members}}}]}}"#)), None)?;
        Ok(request.inputs[0].data.to_vec().expect("in memory"))
    };
    let first = ask(format!("{data},{known}"));
    let last = ask(format!("{known},{data}"));
    assert_eq!(first, last, "the order of members must not matter");
    last
}

#[test]
fn p105_the_first_error_is_reported_also_for_data_that_are_read_late() {
    let sig = identity("id", 8, DataType::Fp32);
    let error = |text: &str| ask(&sig, &Bytes::from(text.to_owned()), None).map(drop).expect_err(text).to_string();
    let whole = error(r#"{"inputs":[{"data":[1,,2],"name":"INPUT0","shape":[1,2],"datatype":"FP32"}]}"#);
    assert_eq!(error(r#"{"inputs":[{"data":[1,,2],"name":"INPUT0","shape":[1,2],"datatype":"FP32",}]}"#), whole);
    assert_eq!(error(r#"{"inputs":[{"data":[1,,2],"name":"INPUT0","shape":[1,2],"datatype":FP32}]}"#), whole);
    let later = error(r#"{"inputs":[{"data":[1.5,2.5],"name":"INPUT0","shape":[1,2],"datatype":FP32}]}"#);
    assert_ne!(later, whole);
}

#[test]
fn p066_p067_numbers_become_tensor_bytes() {
    let check = |datatype, shape: &str, text: &str, expected: &[u8]| {
        assert_eq!(data(datatype, shape, text).unwrap_or_else(|e| panic!("{text}: {e}")), expected, "{text}");
    };
    check(DataType::Bool, "[1,3]", "[true,false, true]", &[1, 0, 1]);
    check(DataType::Uint8, "[1,2]", "[256,300]", &[0, 44]);
    check(DataType::Int8, "[1,2]", "[128,-129]", &[128, 127]);
    check(DataType::Uint64, "[1,1]", "[18446744073709551615]", &[255; 8]);
    check(DataType::Int64, "[1,1]", "[-9223372036854775808]", &[0, 0, 0, 0, 0, 0, 0, 128]);
    check(DataType::Int16, "[2,2]", "[[1,[2]],[3],[[4]],[]]", &[1, 0, 2, 0, 3, 0, 4, 0]);
    let f32s = |v: &[f32]| v.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<_>>();
    check(DataType::Fp32, "[1,4]", "[1e39,-1e39,0.1,1e2]", &f32s(&[f32::INFINITY, f32::NEG_INFINITY, 0.1, 100.0]));
    check(DataType::Fp32, "[1,4]", "[NaN,Inf,-Infinity,-0]", &f32s(&[f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 0.0]));
    check(DataType::Fp32, "[1,2]", "[-0.0,18446744073709551616]", &f32s(&[-0.0, 18446744073709551616.0]));
    check(DataType::Fp64, "[1,1]", "[9007199254740993]", &9007199254740992f64.to_le_bytes());
    check(DataType::Bytes, "[1,2]", r#"["a\u00fc","\u0000"]"#, b"\x03\0\0\0a\xc3\xbc\x01\0\0\0\0");
    check(DataType::Int32, "[1,0]", "[1,2]", &[]);
}

#[test]
fn p066_p073_data_that_do_not_match_are_rejected() {
    let check = |datatype, shape: &str, text: &str, status: u16, message: &str| {
        let e = data(datatype, shape, text).expect_err(text);
        assert_eq!((e.code().http_status(), e.message()), (status, message), "{text}");
    };
    let short = "Failed to parse 'data' field: shape does not match true shape";
    check(DataType::Int32, "[1,2]", "[1]", 500, short);
    check(DataType::Int32, "[1,2]", "[]", 500, short);
    check(
        DataType::Int32,
        "[1,2]",
        "[1,2,3]",
        500,
        "Unable to parse 'data': Shape does not match true shape of 'data' field",
    );
    let element = |kind: &str| format!("Unable to parse 'data': attempt to access JSON non-{kind}");
    check(DataType::Bool, "[1,1]", "[1]", 500, &element("boolean as boolean"));
    check(DataType::Uint8, "[1,1]", "[-1]", 500, &element("unsigned-integer as unsigned-integer"));
    check(DataType::Uint16, "[1,2]", "[1.0,2]", 500, &element("unsigned-integer as unsigned-integer"));
    check(DataType::Int64, "[1,1]", "[9223372036854775808]", 500, &element("signed-integer as signed-integer"));
    check(DataType::Int32, "[1,1]", r#"[{"x":[1]}]"#, 500, &element("signed-integer as signed-integer"));
    check(DataType::Fp32, "[1,1]", r#"["NaN"]"#, 500, &element("number as double"));
    let strings = "Unable to parse JSON bytes array: attempt to access JSON non-string as string";
    check(DataType::Bytes, "[1,1]", "[null]", 500, strings);
    check(DataType::Bytes, "[1,1]", "[]", 500, "Failed to parse 'data' field: output buffer unavailable");
    check(DataType::Bytes, "[1,1]", "\"abc\"", 500, &element("array as array"));
    let deep = |n: usize, inside: &str| format!("{}{inside}{}", "[".repeat(n), "]".repeat(n));
    let too_deep = "JSON nesting depth exceeds maximum allowed limit (100)";
    assert!(data(DataType::Int32, "[1,1]", &deep(99, "1")).is_ok());
    check(DataType::Int32, "[1,1]", &deep(100, "1"), 400, &format!("Unable to parse 'data': {too_deep}"));
    check(DataType::Int32, "[1,1]", &deep(5000, "1"), 400, &format!("Unable to parse 'data': {too_deep}"));
    check(DataType::Bytes, "[1,1]", &deep(100, "\"a\""), 400, too_deep);
    for t in [DataType::Fp16, DataType::Bf16] {
        let text = format!(
            "receiving {} data via JSON is not supported. Please use the binary data format for input INPUT0",
            t.name()
        );
        check(t, "[1,1]", "[1]", 400, &text);
    }
}

#[test]
fn p072_shapes_that_overflow_are_rejected() {
    let input = |shape: &str| {
        format!(r#"{{"inputs":[{{"name":"INPUT0","shape":{shape},"datatype":"INT32","data":<A>}},<I1>]}}"#)
    };
    refused(
        &input("[1,9223372036854775807]"),
        400,
        "byte size overflow for input 'INPUT0': element count (9223372036854775807) * data type size (4) exceeds \
         maximum allowed size (9223372036854775807)",
    );
    refused(
        &input("[4294967296,4294967296]"),
        400,
        "invalid shape for input 'INPUT0': shape [4294967296,4294967296] causes total element count to exceed maximum \
         size of 9223372036854775807",
    );
    refused(
        &input("[1,9223372036854775808]"),
        400,
        "invalid shape for input 'INPUT0': shape [1,-9223372036854775808] contains one or more invalid dimensions",
    );
    refused(
        &input("[1,-16]"),
        500,
        "Unable to parse 'shape': attempt to access JSON non-unsigned-integer as unsigned-integer",
    );
    refused(
        &input("[1,99999999]"),
        400,
        "JSON input 'INPUT0' has a byte_size (399999996 bytes) that exceeds the maximum allowed value of 67108864 \
         bytes. Use --http-max-input-size to increase the limit.",
    );
}

#[test]
fn p086_a_syntax_error_at_the_end_wins_over_other_errors() {
    refused(
        r#"{"id":5,"inputs":[],}"#,
        500,
        "failed to parse the request JSON buffer: Missing a name for object member. at 20",
    );
    refused(
        r#"{"parameters":{"a":null},"id":5,"inputs":"x"}"#,
        500,
        "Unable to parse 'id': attempt to access JSON non-string as string",
    );
    refused(
        r#"{"inputs":"x","parameters":{"a":null}}"#,
        400,
        "parameter 'a' has invalid type. It should be either 'int', 'bool', or 'string'.",
    );
}

#[test]
fn p081_to_p084_request_parameters_are_read() {
    let with = |parameters: &str| format!(r#"{{"parameters":{parameters},"inputs":[<I0>,<I1>]}}"#);
    let r = accepted(&with(concat!(
        r#"{"a":"s","b":1,"c":true,"d":1.5,"e":9223372036854775808,"#,
        r#""sequence_id":5,"sequence_start":true,"priority":2,"timeout":9}"#
    )));
    let custom: Vec<_> = r.parameters.iter().map(|(k, v)| (&**k, v.clone())).collect();
    let expected = [
        ("a", Parameter::String(Name::from_static("s"))),
        ("b", Parameter::Int(1)),
        ("c", Parameter::Bool(true)),
        ("d", Parameter::Double(1.5)),
        ("e", Parameter::Double(9223372036854775808.0)),
    ];
    assert_eq!(custom, expected);
    assert_eq!((r.priority, r.timeout_us, r.sequence.start, r.sequence.end), (2, 9, true, false));
    assert_eq!(r.sequence.id, protocol::CorrelationId::Number(5));
    let id = accepted(&with(r#"{"sequence_id":"abc"}"#)).sequence.id;
    assert_eq!(id, protocol::CorrelationId::String(Name::from_static("abc")));

    let twice = accepted(&with(r#"{"a":1,"a":"x","priority":3,"priority":4}"#));
    assert_eq!((twice.parameters, twice.priority), (vec![(Name::from_static("a"), Parameter::Int(1))], 3));

    for wrong in ["\"x\"", "null", "[1]"] {
        refused(&with(wrong), 500, "failed to get request params.: attempt to get members for non-object");
    }
    refused(
        &with(&format!(r#"{{"sequence_id":"{}"}}"#, "x".repeat(129))),
        501,
        "string correlation ID cannot be longer than 128 characters",
    );
    let unable =
        |key: &str, kind: &str| format!("Unable to parse '{key}': attempt to access JSON non-{kind} as {kind}");
    refused(&with(r#"{"sequence_id":1.5}"#), 500, &unable("sequence_id", "string"));
    refused(&with(r#"{"sequence_start":"true"}"#), 500, &unable("sequence_start", "boolean"));
    refused(&with(r#"{"priority":"1"}"#), 500, &unable("priority", "unsigned-integer"));
    refused(&with(r#"{"timeout":1.5}"#), 500, &unable("timeout", "unsigned-integer"));
    refused(
        &with(r#"{"triton_x":1}"#),
        400,
        "parameter keys starting with 'triton_' are reserved for Triton usage and should not be specified.",
    );
}

#[test]
fn c08_requests_are_checked_against_the_configuration() {
    let p = "[request id: <id_unknown>] ";
    let missing = |got: &str, missing: &str, n| {
        format!(
            "{p}expected 2 inputs but got {n} inputs for model 'addsub'. Got input(s) [{got}], but missing required \
             input(s) {missing}]. Please provide all required input(s)."
        )
    };
    refused(r#"{"inputs":[]}"#, 400, &missing("", "['INPUT0','INPUT1'", 0));
    refused(r#"{"inputs":[<I0>]}"#, 400, &missing("'INPUT0'", "['INPUT1'", 1));
    let third = r#"{"inputs":[<I0>,<I1>,{"name":"INPUT2","shape":[1,16],"datatype":"INT32","data":<A>}]}"#;
    refused(third, 400, &missing("'INPUT2','INPUT1','INPUT0'", "", 3));
    refused(r#"{"inputs":[<I0>,<I0>]}"#, 400, &format!("{p}input 'INPUT0' already exists in request"));
    refused(r#"{"id":"d","inputs":[<I0>,<I1>,<I0>]}"#, 400, "[request id: d] input 'INPUT0' already exists in request");
    let second = |rest: &str| format!(r#"{{"inputs":[<I0>,{{"name":"INPUT1",{rest}}}]}}"#);
    refused(
        r#"{"inputs":[<I0>,{"name":"NOPE","shape":[1,16],"datatype":"INT32","data":<A>}]}"#,
        400,
        "unexpected inference input 'NOPE' for model 'addsub'",
    );
    refused(
        &second(r#""shape":[2,8],"datatype":"INT32","data":<A>"#),
        400,
        &format!("{p}input 'INPUT0' batch size does not match other inputs for 'addsub'"),
    );
    refused(
        &second(r#""shape":[],"datatype":"INT32","data":<A>"#),
        400,
        &format!("{p}input 'INPUT1' has no shape but model requires batch dimension for 'addsub'"),
    );
    refused(
        &second(r#""shape":[1,16],"datatype":"UINT32","data":<A>"#),
        400,
        &format!("{p}inference input 'INPUT1' data-type is 'UINT32', but model 'addsub' expects 'INT32'"),
    );
    let e = ask(&addsub(8), &expand(&second(r#""shape":[1,4,4],"datatype":"INT32","data":<A>"#)), None).unwrap_err();
    let text = "unexpected shape for input 'INPUT1' for model 'addsub'. Expected [-1,16], got [1,4,4]. NOTE: Setting \
        a non-zero";
    assert!(e.message().starts_with(&format!("{p}{text}")), "{e}");
    let e = ask(&addsub(0), &expand(r#"{"inputs":[<I0>,<I1>]}"#), None).unwrap_err();
    let text = "unexpected shape for input 'INPUT1' for model 'addsub'. Expected [16], got [1,16]. ";
    assert_eq!(e.message(), format!("{p}{text}"));
    refused(
        concat!(
            r#"{"inputs":[{"name":"INPUT0","shape":[0,16],"datatype":"INT32","data":[]},"#,
            r#"{"name":"INPUT1","shape":[0,16],"datatype":"INT32","data":[]}]}"#
        ),
        400,
        &format!("{p}input byte size mismatch for input 'INPUT1' for model 'addsub'. Expected 64, got 0"),
    );
    let mut small = addsub(8);
    small.max_batch_size = 1;
    let two = expand(r#"{"inputs":[<I0>,<I1>]}"#);
    let two = Bytes::from(String::from_utf8_lossy(&two).replace("[1,16]", "[4,4]"));
    let e = ask(&small, &two, None).unwrap_err();
    assert_eq!(e.message(), format!("{p}inference request batch-size must be <= 1 for 'addsub'"));
}

#[test]
fn c09_optional_inputs_may_be_omitted() {
    let mut sig = addsub(8);
    sig.inputs[1].optional = true;
    assert_eq!(ask(&sig, &expand(r#"{"inputs":[<I0>]}"#), None).unwrap().inputs.len(), 1);
    let e = ask(&sig, &expand(r#"{"inputs":[]}"#), None).unwrap_err();
    assert_eq!(
        e.message(),
        "[request id: <id_unknown>] expected number of inputs between 1 and 2 but got 0 inputs for model 'addsub'. \
         Got input(s) [], but missing required input(s) ['INPUT0']. Please provide all required input(s)."
    );
}

/// Parses a binary BYTES input for a model called `id_string`.
fn strings(shape: &str, raw: &[u8]) -> Result<InferRequest> {
    let parameters = format!(r#"{{"binary_data_size":{}}}"#, raw.len());
    let head =
        format!(r#"{{"inputs":[{{"name":"INPUT0","shape":{shape},"datatype":"BYTES","parameters":{parameters}}}]}}"#);
    let body = Bytes::from([head.as_bytes(), raw].concat());
    ask(&identity("id_string", 8, DataType::Bytes), &body, Some(head.len()))
}

#[test]
fn p076_lengths_of_binary_strings_are_checked() {
    let p = "[request id: <id_unknown>] ";
    let check = |shape: &str, raw: &[u8], text: String| {
        assert_eq!(strings(shape, raw).unwrap_err().message(), text);
    };
    assert!(strings("[1,2]", b"\x01\0\0\0a\0\0\0\0").is_ok());
    check(
        "[1,2]",
        b"\x01\0\0\0a",
        format!("{p}expected 2 string elements for inference input 'INPUT0' for model 'id_string', got 1"),
    );
    check(
        "[1,1]",
        b"\x01\0\0\0a\x01\0\0\0b",
        format!(
            "{p}unexpected number of string elements 2 for inference input 'INPUT0' for model 'id_string', expecting 1"
        ),
    );
    check(
        "[1,2]",
        b"\x01\0\0\0a\x01\0",
        format!(
            "{p}incomplete string length indicator for inference input 'INPUT0' for model 'id_string', expecting 4 \
             bytes but only 2 bytes available. Please make sure the string length indicator is in one buffer."
        ),
    );
    check(
        "[1,1]",
        b"\x09\0\0\0ab",
        "incomplete string data for inference input 'INPUT0', expecting string of length 9 but only 2 bytes available"
            .to_owned(),
    );
}

#[test]
fn p075_p078_binary_inputs_are_slices_of_the_body() {
    let head = |sizes: [u64; 2]| {
        let input = |i: usize| {
            format!(
                r#"{{"name":"INPUT{i}","shape":[1,16],"datatype":"INT32","parameters":{{"binary_data_size":{}}}}}"#,
                sizes[i]
            )
        };
        format!(r#"{{"inputs":[{},{}]}}"#, input(0), input(1))
    };
    let ask = |sizes, bytes: usize| {
        let head = head(sizes);
        let body = Bytes::from([head.as_bytes(), &vec![7; bytes]].concat());
        ask(&addsub(8), &body, Some(head.len())).map(|r| (r, body))
    };
    let (request, body) = ask([64, 64], 128).unwrap();
    for input in &request.inputs {
        assert!(input.data.host().is_some_and(|data| body.as_ptr_range().contains(&data.as_ptr())), "copied");
        assert!(body.as_ptr_range().contains(&input.name.as_bytes().as_ptr()), "copied");
    }
    let refused = |sizes, bytes, text: &str| assert_eq!(ask(sizes, bytes).unwrap_err().message(), text);
    refused([64, 64], 127, "unexpected size for input 'INPUT1', expecting 1 additional bytes for model 'addsub'");
    refused([64, 64], 129, "unexpected additional input data for model 'addsub'");
    refused(
        [u64::MAX, 64],
        128,
        "unexpected size for input 'INPUT0', expecting 18446744073709551487 additional bytes for model 'addsub'",
    );
    refused(
        [60, 68],
        128,
        "[request id: <id_unknown>] input byte size mismatch for input 'INPUT1' for model 'addsub'. Expected 64, got \
         68",
    );
    let e = parse_infer(&Bytes::from_static(b"{}"), Some(9), &addsub(8), &NoRegions, &Limits::default()).unwrap_err();
    assert_eq!(e.message(), "unexpected size for request JSON, expecting 7 more bytes");
}

#[test]
fn p092_p097_requested_outputs_are_read() {
    let with = |outputs: &str| format!(r#"{{"inputs":[<I0>,<I1>],"outputs":{outputs}}}"#);
    let r = accepted(&with(concat!(
        r#"[{"name":"OUTPUT1","parameters":{"binary_data":true}},"#,
        r#"{"name":"OUTPUT0","parameters":{"classification":3}}]"#
    )));
    assert_eq!((r.outputs[0].form.binary, r.outputs[1].form.classification), (true, 3));
    let mut r = r;
    let checked = addsub(8).check(&mut r).unwrap();
    assert_eq!(&checked.outputs[..], [(0, Some(1)), (1, Some(0))], "configuration order");
    assert_eq!((checked.rows, &checked.inputs[..]), (1, &[0, 1][..]));
    refused(&with(r#"[{"name":"NOPE"}]"#), 400, "unexpected inference output 'NOPE' for model 'addsub'");
    refused(
        &with(r#"[{"name":"OUTPUT0"},{"name":"OUTPUT0"}]"#),
        400,
        "[request id: <id_unknown>] output 'OUTPUT0' already exists in request",
    );
    refused(&with("[{}]"), 500, "Unable to parse 'name': attempt to access non-existing object member 'name'");
    refused(&with("null"), 500, "Unable to parse 'outputs': attempt to access JSON non-array as array");
    let parameters = |p: &str| with(&format!(r#"[{{"name":"OUTPUT0","parameters":{p}}}]"#));
    refused(
        &parameters(r#"{"classification":-1}"#),
        500,
        "Unable to set 'classification': attempt to access JSON non-unsigned-integer as unsigned-integer",
    );
    let both = |with: &str| format!("Output can't set both 'shared_memory_region' and '{with}'");
    refused(&parameters(r#"{"shared_memory_region":"r","classification":2}"#), 400, &both("classification"));
    refused(&parameters(r#"{"shared_memory_region":"r","binary_data":true}"#), 400, &both("binary_data"));
    refused(&parameters(r#"{"shared_memory_region":"r"}"#), 404, "Unable to find shared memory region: 'r'");
}

#[test]
fn p104_long_json_and_long_lists_are_rejected() {
    let ask = |body: &'static str, limits| {
        parse_infer(&Bytes::from_static(body.as_bytes()), None, &addsub(8), &NoRegions, &limits).unwrap_err()
    };
    let limits = Limits { input_bytes_max: 10, entries_max: 2, dims_max: 3 };
    assert_eq!(
        ask(r#"{"inputs":[]}"#, limits).message(),
        "request JSON size of 13 bytes exceeds the maximum allowed input size of 10 bytes. Use --http-max-input-size \
         to increase the limit."
    );
    let limits = Limits { input_bytes_max: 100, entries_max: 2, dims_max: 3 };
    assert_eq!(ask(r#"{"inputs":[1,1,1]}"#, limits).message(), "request names 3 inputs, more than the maximum of 2");
    assert_eq!(
        ask(r#"{"inputs":[{"name":"A","datatype":"FP32","shape":[1,1,1,1],"data":[1]}]}"#, limits).message(),
        "Unable to parse 'shape': an input has more than 3 dimensions"
    );
}

fn response(outputs: Vec<OutputTensor>) -> InferResponse {
    InferResponse {
        model_name: Name::from_static("m"),
        model_version: Name::from_static("1"),
        outputs: outputs.into(),
        ..InferResponse::default()
    }
}

fn encode(r: &InferResponse) -> Result<(String, usize, Option<usize>), Error> {
    let sig = signature("m", 8, &[], &[("O", DataType::Fp32, &[-1])]);
    let body = encode_infer(r, &sig)?;
    let (head, small) = body.json.split_at(body.inference_header_length.unwrap_or(body.json.len()));
    let binary = small.len() + body.binary.iter().map(Data::len).sum::<usize>();
    Ok((String::from_utf8_lossy(head).into_owned(), binary, body.inference_header_length))
}

#[test]
fn p088_to_p095_responses_are_encoded() {
    let out = |t, shape: &[i64], data: Vec<u8>, binary| {
        let mut o = support::output("O", t, shape, Bytes::from(data));
        o.form.binary = binary;
        o
    };
    let check = |o: OutputTensor, tail: &str, binary, header: bool| {
        let (json, bytes, length) = encode(&response(vec![o])).unwrap();
        assert_eq!(json, format!(r#"{{"model_name":"m","model_version":"1","outputs":[{{"name":"O",{tail}}}]}}"#));
        assert_eq!((bytes, length), (binary, header.then_some(json.len())));
    };
    let f = |v: &[f32]| v.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<_>>();
    check(
        out(DataType::Fp32, &[1, 4], f(&[f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 0.1]), false),
        r#""datatype":"FP32","shape":[1,4],"data":[NaN,Infinity,-Infinity,0.10000000149011612]"#,
        0,
        false,
    );
    check(
        out(DataType::Bool, &[1, 3], vec![0, 1, 2], false),
        r#""datatype":"BOOL","shape":[1,3],"data":[false,true,true]"#,
        0,
        false,
    );
    check(out(DataType::Int8, &[1, 0], vec![], false), r#""datatype":"INT8","shape":[1,0],"data":[]"#, 0, false);
    check(
        out(DataType::Bytes, &[1, 2], b"\x02\0\0\0a\"\0\0\0\0".to_vec(), false),
        r#""datatype":"BYTES","shape":[1,2],"data":["a\"",""]"#,
        0,
        false,
    );
    let binary = |n| format!(r#""parameters":{{"binary_data_size":{n}}}"#);
    check(
        out(DataType::Fp16, &[1, 2], vec![1; 4], true),
        &format!(r#""datatype":"FP16","shape":[1,2],{}"#, binary(4)),
        4,
        true,
    );
    check(
        out(DataType::Fp32, &[1, 0], vec![], true),
        &format!(r#""datatype":"FP32","shape":[1,0],{}"#, binary(0)),
        0,
        false,
    );

    let e = encode(&response(vec![out(DataType::Bf16, &[1, 1], vec![0; 2], false)])).unwrap_err();
    assert_eq!(
        e.message(),
        "sending BF16 data via JSON is not supported. Please use the binary data format for output"
    );
    let e = encode(&response(vec![out(DataType::Fp32, &[1, 2], vec![0; 4], false)])).unwrap_err();
    assert_eq!(e.code().http_status(), 500);

    let mut r = response(vec![]);
    r.id = Name::from_static("4\"2");
    r.parameters = vec![
        (Name::from_static("a"), Parameter::String(Name::from_static("s"))),
        (Name::from_static("b"), Parameter::Int(-1)),
        (Name::from_static("c"), Parameter::Bool(false)),
        (Name::from_static("d"), Parameter::Double(123.123)),
    ];
    let golden = concat!(
        r#"{"id":"4\"2","model_name":"m","model_version":"1","#,
        r#""parameters":{"a":"s","b":-1,"c":false,"d":123.123},"outputs":[]}"#
    );
    assert_eq!(encode(&r).unwrap().0, golden);
}
