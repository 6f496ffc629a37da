//! The cache of heads: a known head must give the same request as parsing it again, and the same text of a response as
//! printing it again.

mod support;

use bytes::Bytes;
use protocol::http::{HeadCache, Limits, encode_infer, parse_infer};
use protocol::{InferResponse, OutputForm, OutputTensor, Parameter};
use support::{NoRegions, addsub};
use tensor::{Data, DataType, Name, Shape};

fn body(head: &str, tail: &[u8]) -> (Bytes, Option<usize>) {
    let mut all = head.as_bytes().to_vec();
    all.extend_from_slice(tail);
    (all.into(), Some(head.len()))
}

fn head(extra: &str) -> String {
    let input =
        |n| format!(r#"{{"name":"{n}","shape":[1,16],"datatype":"INT32","parameters":{{"binary_data_size":64}}}}"#);
    let output = r#"{"name":"OUTPUT0","parameters":{"binary_data":true}}"#;
    format!(r#"{{{extra}"inputs":[{},{}],"outputs":[{output}]}}"#, input("INPUT0"), input("INPUT1"))
}

#[test]
fn a_known_head_gives_the_parsed_request_with_new_data() {
    let (mut cache, limits, signature) = (HeadCache::default(), Limits::default(), addsub(8));
    for extra in ["", r#""id":"a\u0062","parameters":{"priority":2,"k":"v","n":1.5},"#] {
        for round in 0..4u8 {
            let (body, length) = body(&head(extra), &[round; 128]);
            let cached = cache.parse_infer(&body, length, &signature, &NoRegions, &limits).unwrap();
            let read = parse_infer(&body, length, &signature, &NoRegions, &limits).unwrap();
            assert_eq!(format!("{cached:?}"), format!("{read:?}"), "{extra} round {round}");
            for (a, b) in cached.inputs.iter().zip(&read.inputs) {
                assert_eq!(a.data.to_vec(), b.data.to_vec());
            }
        }
    }
    assert_eq!(cache.len(), 2);
}

#[test]
fn heads_that_differ_only_in_their_id_are_one_entry() {
    let (mut cache, limits, signature) = (HeadCache::default(), Limits::default(), addsub(8));
    for id in ["a", "b", "request-17", "", "\u{fc}", "a longer one", r"\u0061", "x"] {
        for colon in [":", ": "] {
            let text = head(&format!(r#""id"{colon}"{id}","id":"second","#));
            let (body, length) = body(&text, &[7; 128]);
            let cached = cache.parse_infer(&body, length, &signature, &NoRegions, &limits).unwrap();
            let read = parse_infer(&body, length, &signature, &NoRegions, &limits).unwrap();
            assert_eq!(format!("{cached:?}"), format!("{read:?}"), "{text}");
        }
    }
    assert_eq!(cache.len(), 1);
}

#[test]
fn a_known_head_with_a_wrong_length_of_data_is_rejected_as_before() {
    let (mut cache, limits, signature) = (HeadCache::default(), Limits::default(), addsub(8));
    for _ in 0..3 {
        let (whole, length) = body(&head(""), &[1; 128]);
        cache.parse_infer(&whole, length, &signature, &NoRegions, &limits).unwrap();
    }
    for n in [0, 127, 129] {
        let (wrong, length) = body(&head(""), &vec![1; n]);
        let cached = cache.parse_infer(&wrong, length, &signature, &NoRegions, &limits).unwrap_err();
        let read = parse_infer(&wrong, length, &signature, &NoRegions, &limits).unwrap_err();
        assert_eq!(cached, read);
    }
}

#[test]
fn heads_with_tensor_data_are_not_kept() {
    let (mut cache, limits, signature) = (HeadCache::default(), Limits::default(), addsub(8));
    let text = r#"{"inputs":[{"name":"INPUT0","shape":[2],"datatype":"INT32","data":[1,2]}]}"#;
    for _ in 0..3 {
        let (whole, length) = body(text, &[]);
        cache.parse_infer(&whole, length, &signature, &NoRegions, &limits).unwrap();
    }
    assert_eq!(cache.len(), 0);
}

/// Outputs that differ from each other in one thing or in several.
fn outputs() -> [Vec<OutputTensor>; 13] {
    let output = |name: &'static str, datatype, shape: &[i64], bytes: usize, form| OutputTensor {
        name: Name::from_static(name),
        index: 0,
        datatype,
        shape: Shape::from_slice(shape),
        data: Data::from(Bytes::from(vec![bytes as u8; bytes])),
        form,
    };
    let binary = OutputForm { binary: true, ..OutputForm::default() };
    let int = DataType::Int32;
    [
        vec![output("OUTPUT0", int, &[1, 16], 64, binary)],
        vec![output("OUTPUT1", int, &[1, 16], 64, binary)],
        vec![output("OUTPUT0", DataType::Fp32, &[1, 16], 64, binary)],
        vec![output("OUTPUT0", int, &[16], 64, binary)],
        vec![output("OUTPUT0", int, &[1, 8, 2], 64, binary)],
        vec![output("OUTPUT0", int, &[2, 16], 128, binary), output("OUTPUT1", int, &[2, 16], 128, binary)],
        vec![output("OUTPUT1", int, &[2, 16], 128, binary), output("OUTPUT0", int, &[2, 16], 128, binary)],
        vec![output("OUTPUT0", int, &[1, 2], 8, OutputForm::default())],
        vec![output("OUTPUT0", int, &[1, 2], 8, binary), output("OUTPUT1", int, &[1, 2], 8, OutputForm::default())],
        vec![output("OUTPUT0", int, &[1, 2], 8, OutputForm { classification: 1, ..binary })],
        vec![output("OUTPUT0", int, &[0, 16], 0, binary)],
        vec![output("OUTPUT0", int, &[1, 256], 1024, binary), output("OUTPUT1", int, &[1, 257], 1028, binary)],
        vec![],
    ]
}

/// Responses with them, of different models and with different parameters.
fn responses() -> Vec<InferResponse> {
    let name = Name::from_static;
    let parameters = |list: &[(&'static str, Parameter)]| list.iter().map(|(k, v)| (name(k), v.clone())).collect();
    let parameters: [Vec<_>; 7] = [
        Vec::new(),
        parameters(&[("a", Parameter::Int(1)), ("b", Parameter::Bool(true))]),
        parameters(&[("a", Parameter::Int(2)), ("b", Parameter::Bool(true))]),
        parameters(&[("a", Parameter::Double(0.0))]),
        parameters(&[("a", Parameter::Double(-0.0))]),
        parameters(&[("a", Parameter::Double(f64::NAN))]),
        parameters(&[("a", Parameter::String(name("text \"quoted\"")))]),
    ];
    let mut all = Vec::new();
    for (model, version) in [("m", "1"), ("m", "2"), ("n", "1"), ("a \"b\"", "1")] {
        for parameters in &parameters {
            all.extend(outputs().map(|outputs| InferResponse {
                model_name: name(model),
                model_version: name(version),
                id: Name::new(),
                parameters: parameters.clone(),
                outputs: outputs.into(),
            }));
        }
    }
    all
}

#[test]
fn a_known_response_is_printed_as_an_unknown_one() {
    let (mut cache, signature, mut all) = (HeadCache::default(), addsub(8), responses());
    let mut compare = |response: &mut InferResponse, id: &str| {
        response.id = id.into();
        let (cached, printed) = (cache.encode_infer(response, &signature), encode_infer(response, &signature));
        assert_eq!(format!("{cached:?}"), format!("{printed:?}"));
        let body = cached.expect("a response");
        let data: Vec<u8> = response.outputs.iter().flat_map(|o| o.data.to_vec().unwrap()).collect();
        if let Some(length) = body.inference_header_length
            && response.outputs.iter().all(|o| o.form == OutputForm { binary: true, ..OutputForm::default() })
        {
            let rest: Vec<u8> = body.binary.iter().flat_map(|part| part.to_vec().unwrap()).collect();
            assert_eq!([&body.json[length..], &rest].concat(), data);
        }
    };
    // Each three times in a row: unknown, kept, known. Then all in turn, where entries evict each other.
    for response in &mut all {
        for id in ["", "request-7", "\u{fc}\n\"", ""] {
            compare(response, id);
        }
    }
    for round in 0..3 {
        all.iter_mut().for_each(|response| compare(response, ["a", "bb", ""][round]));
    }
}
