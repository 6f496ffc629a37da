//! The cache of heads: a known head must give the same request as parsing it again.

mod support;

use bytes::Bytes;
use protocol::http::{HeadCache, Limits, parse_infer};
use support::{NoRegions, addsub};

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
