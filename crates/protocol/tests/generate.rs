//! The generate extension against recorded responses.

mod support;

use bytes::Bytes;
use protocol::generate::{encode_generate, parse_generate};
use protocol::http::Limits;
use protocol::{InferRequest, InferResponse, OutputForm, OutputTensor, Parameter, Signature};
use std::cell::Cell;
use std::rc::Rc;
use support::{identity, signature};
use tensor::{DataType, Error, Name, Result, allowance};

fn generate_text() -> Signature {
    let tensors =
        |a, b, c| [(a, DataType::Bytes, &[1][..]), (b, DataType::Fp32, &[-1][..]), (c, DataType::Bool, &[1][..])];
    signature("generate_text", 0, &tensors("INPUT0", "INPUT1", "INPUT2"), &tensors("OUTPUT0", "OUTPUT1", "OUTPUT2"))
}

fn ask(sig: &Signature, body: &str) -> Result<InferRequest> {
    let mut request = parse_generate(&Bytes::copy_from_slice(body.as_bytes()), sig, &Limits::default())?;
    sig.check(&mut request)?;
    Ok(request)
}

fn refused(sig: &Signature, body: &str, status: u16, text: &str) {
    let e = ask(sig, body).expect_err(body);
    assert_eq!((e.code().http_status(), e.message()), (status, text), "{body}");
}

/// The response of a model that returns its inputs.
fn echo(sig: &Signature, body: &str) -> String {
    let request = ask(sig, body).unwrap_or_else(|e| panic!("{body}: {e}"));
    let output = |(i, spec): (usize, &protocol::OutputSpec)| {
        let input = request.inputs.iter().find(|t| t.name == sig.inputs[i].name).unwrap();
        OutputTensor {
            name: spec.name.clone(),
            index: i as u16,
            datatype: spec.datatype,
            shape: input.shape.clone(),
            data: input.data.clone(),
            form: OutputForm::default(),
        }
    };
    let response = InferResponse {
        model_name: sig.model.clone(),
        model_version: Name::from_static("1"),
        id: request.id.clone(),
        parameters: vec![(Name::from_static("param0"), Parameter::Double(123.123))],
        outputs: sig.outputs.iter().enumerate().map(output).collect(),
    };
    String::from_utf8(encode_generate(&response, sig).unwrap().to_vec()).unwrap()
}

#[test]
fn p111_responses_are_flat_and_sorted() {
    let sig = generate_text();
    let tail = r#""model_name":"generate_text","model_version":"1","param0":123.123}"#;
    assert_eq!(
        echo(&sig, r#"{"INPUT0":"hello","INPUT1":[1.5,2],"INPUT2":true,"id":"7"}"#),
        format!(r#"{{"OUTPUT0":"hello","OUTPUT1":[1.5,2.0],"OUTPUT2":true,"id":"7",{tail}"#)
    );
    assert_eq!(
        echo(&sig, r#"{"INPUT0":"\u4e2d\"\\\n\u0000x","parameters":{"INPUT1":3,"INPUT2":false}}"#),
        format!(r#"{{"OUTPUT0":"中\"\\\n\u0000x","OUTPUT1":3.0,"OUTPUT2":false,{tail}"#)
    );
}

#[test]
fn long_text_needs_an_allowance() {
    let sig = signature("m", 0, &[], &[("OUT", DataType::Fp32, &[-1]), ("TEXT", DataType::Bytes, &[1])]);
    let output = |name, index, datatype, shape: i64, data: Vec<u8>| OutputTensor {
        name: Name::from_static(name),
        index,
        datatype,
        shape: [shape].into_iter().collect(),
        data: Bytes::from(data).into(),
        form: OutputForm::default(),
    };
    let response = InferResponse {
        outputs: [
            output("OUT", 0, DataType::Fp32, 100_000, 0.1f32.to_le_bytes().repeat(100_000)),
            // Each byte is escaped as six.
            output("TEXT", 1, DataType::Bytes, 1, [&200_000u32.to_le_bytes()[..], &[1; 200_000]].concat()),
        ]
        .into_iter()
        .collect(),
        ..InferResponse::default()
    };
    let print = |allowed: usize| {
        let asked = Rc::new(Cell::new(0));
        let seen = asked.clone();
        let ask = move |bytes| {
            seen.set(seen.get() + bytes);
            if seen.get() > allowed { Err(Error::exhausted("enough")) } else { Ok(()) }
        };
        let printed = allowance::within(
            Box::new(ask),
            |_| Err(Error::exhausted("none to lend")),
            || encode_generate(&response, &sig).map(|text| text.len()),
        );
        (printed, asked.get())
    };
    let (length, asked) = print(usize::MAX);
    let length = length.expect("allowed");
    assert!(length > 3_000_000 && asked >= length, "{asked} bytes for {length}");
    for allowed in [0, length / 2, length] {
        assert_eq!(print(allowed).0, Err(Error::exhausted("enough")), "{allowed} of {length}");
    }
}

#[test]
fn p109_shapes_are_deduced() {
    let shape = |sig: &Signature, body: &str| ask(sig, body).map(|r| r.inputs[0].shape.to_vec());
    let model = |batch, datatype, dims: &[i64]| signature("m", batch, &[("INPUT0", datatype, dims)], &[]);
    assert_eq!(shape(&model(4, DataType::Bytes, &[1]), r#"{"INPUT0":"hi"}"#).unwrap(), [1, 1]);
    assert_eq!(shape(&model(8, DataType::Fp32, &[5]), r#"{"INPUT0":[0,1,2,3,4,5,6,7,8,9]}"#).unwrap(), [2, 5]);
    let twelve = r#"{"INPUT0":[0,1,2,3,4,5,6,7,8,9,10,11]}"#;
    assert_eq!(shape(&model(2, DataType::Int32, &[2, -1, 3]), twelve).unwrap(), [1, 2, 2, 3]);
    let unfit = "The schema can not convert input 'INPUT0' to tensor with proper shape";
    refused(&model(8, DataType::Fp32, &[5]), r#"{"INPUT0":[1,2,3,4,5,6,7]}"#, 400, unfit);
    refused(&generate_text(), r#"{"INPUT0":["a","b"],"INPUT1":[1],"INPUT2":true}"#, 400, unfit);
    refused(
        &generate_text(),
        r#"{"INPUT0":"a","INPUT1":[],"INPUT2":true}"#,
        400,
        "[request id: <id_unknown>] unexpected shape for input 'INPUT1' for model 'generate_text'. Expected [-1], got \
         []. ",
    );
}

#[test]
fn p108_other_members_are_parameters() {
    let body = concat!(
        r#"{"INPUT0":"a","INPUT1":[1],"INPUT2":true,"max_tokens":5,"temperature":0.5,"#,
        r#""stream":false,"stop":"x","triton_x":1,"sequence_id":4}"#
    );
    let request = ask(&generate_text(), body).unwrap();
    let keys: Vec<&str> = request.parameters.iter().map(|(k, _)| &**k).collect();
    assert_eq!(keys, ["max_tokens", "temperature", "stream", "stop", "triton_x", "sequence_id"]);
    assert_eq!(request.sequence, protocol::Sequence::default());
}

#[test]
fn p108_a_setting_that_is_no_parameter_gets_the_input_that_takes_it() {
    let sig = signature(
        "llm",
        0,
        &[("text_input", DataType::Bytes, &[1]), ("sampling_parameters", DataType::Bytes, &[1])],
        &[],
    );
    let way = concat!(
        "Settings that are lists or objects go into the input 'sampling_parameters' of model 'llm', as one text with ",
        r#"JSON: {"sampling_parameters": "{\"stop\": [\"END\"]}"}"#
    );
    let parameter = |k: &str| {
        format!("parameter '{k}' has invalid type. It should be either 'int', 'bool', or 'string' ('{k}'). {way}")
    };
    refused(&sig, r#"{"text_input":"a","stop":["b"]}"#, 400, &parameter("stop"));
    let nested = format!("Converting keyword: 'parameters': {}", parameter("guided"));
    refused(&sig, r#"{"text_input":"a","parameters":{"guided":{"x":1}}}"#, 400, &nested);
    let strings = "Unable to parse JSON bytes array: attempt to access JSON non-string as string";
    for value in [r#"{"stop":["b"]}"#, r#"[{"stop":["b"]}]"#, "1"] {
        let body = format!(r#"{{"text_input":"a","sampling_parameters":{value}}}"#);
        refused(&sig, &body, 400, &format!("{strings} ('sampling_parameters'). {way}"));
    }
    assert!(ask(&sig, r#"{"text_input":"a","sampling_parameters":"{\"stop\":[\"b\"]}"}"#).is_ok());
}

#[test]
fn p108_p110_errors_have_their_texts() {
    let sig = generate_text();
    let ok = r#""INPUT0":"a","INPUT1":[1],"INPUT2":true"#;
    let invalid =
        |k: &str| format!("parameter '{k}' has invalid type. It should be either 'int', 'bool', or 'string'.");
    refused(&sig, "", 500, "failed to parse the request JSON buffer: The document is empty. at 0");
    refused(&sig, "[1]", 500, "attempt to get members for non-object");
    refused(&sig, &format!(r#"{{{ok},"stop":["a"]}}"#), 400, &invalid("stop"));
    refused(
        &sig,
        &format!(r#"{{{ok},"parameters":"x"}}"#),
        500,
        "Expected JSON object for keyword: 'parameters': attempt to access JSON non-object as object",
    );
    let nested = |k: &str| format!("Converting keyword: 'parameters': {}", invalid(k));
    refused(&sig, &format!(r#"{{{ok},"parameters":{{"a":[1]}}}}"#), 400, &nested("a"));
    refused(&sig, &format!(r#"{{{ok},"parameters":{{"parameters":{{"z":1}}}}}}"#), 400, &nested("parameters"));
    refused(
        &sig,
        r#"{"INPUT0":"a","INPUT0":"b","INPUT1":[1],"INPUT2":true}"#,
        400,
        "[request id: <id_unknown>] input 'INPUT0' already exists in request",
    );
    let strings = "Unable to parse JSON bytes array: attempt to access JSON non-string as string";
    refused(&sig, r#"{"INPUT0":null}"#, 500, strings);
    refused(&sig, r#"{"INPUT0":{"a":1}}"#, 500, strings);
    refused(&sig, r#"{"INPUT1":["x"]}"#, 500, "Unable to parse 'data': attempt to access JSON non-number as double");
    refused(
        &sig,
        r#"{"INPUT1":[[1,2],[3]]}"#,
        500,
        "Unable to parse 'data': Shape does not match true shape of 'data' field",
    );
    refused(
        &identity("id_fp16", 8, DataType::Fp16),
        r#"{"INPUT0":[1]}"#,
        400,
        "receiving FP16 data via JSON is not supported. Please use the binary data format for input INPUT0",
    );
    refused(
        &signature("m", 0, &[("parameters", DataType::Int32, &[1])], &[]),
        r#"{"parameters":{}}"#,
        400,
        "Keyword 'parameters' for nested schema also given as input tensor name",
    );
    let limits = Limits { input_bytes_max: 100, ..Limits::default() };
    let body = Bytes::from(format!(r#"{{"INPUT0":[{}1]}}"#, "1,".repeat(30)));
    let e = parse_generate(&body, &identity("id_fp64", 8, DataType::Fp64), &limits).unwrap_err();
    assert_eq!(
        e.message(),
        "request size of 0 bytes with input 'INPUT0' of size 248 bytes exceeds the maximum allowed input size of 100. \
         Use --http-max-input-size to increase the limit."
    );
}
