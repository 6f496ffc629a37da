//! Properties of HTTP bodies: printed tensors read back the same, both forms of a tensor are equal, nothing panics.

mod support;

use bytes::Bytes;
use proptest::prelude::*;
use protocol::http::{Limits, encode_infer, parse_infer};
use protocol::{InferRequest, InferResponse};
use support::{NoRegions, identity, output};
use tensor::{DataType, Result, strings};

/// The datatypes with a JSON form.
fn datatype() -> impl Strategy<Value = DataType> {
    let carried = DataType::ALL.into_iter().filter(|t| !matches!(t, DataType::Fp16 | DataType::Bf16));
    prop::sample::select(carried.collect::<Vec<_>>())
}

/// Number of elements and contents; NaN is canonical and booleans are 0 or 1, because JSON preserves no more of them.
fn tensor() -> impl Strategy<Value = (DataType, usize, Vec<u8>)> {
    let words = prop::collection::vec(any::<[u8; 8]>(), 1..40);
    let texts =
        prop::collection::vec(prop_oneof![any::<String>().prop_map(String::into_bytes), any::<Vec<u8>>()], 1..8);
    (datatype(), words, texts).prop_map(|(datatype, words, texts)| match datatype.byte_size() {
        None => {
            let mut raw = Vec::new();
            texts.iter().for_each(|t| strings::push(&mut raw, t));
            (datatype, texts.len(), raw)
        }
        Some(size) => {
            let element = |w: &[u8; 8]| match datatype {
                DataType::Bool => vec![w[0] & 1],
                DataType::Fp32 => {
                    let v = f32::from_le_bytes([w[0], w[1], w[2], w[3]]);
                    if v.is_nan() { f32::NAN } else { v }.to_le_bytes().to_vec()
                }
                DataType::Fp64 => {
                    let v = f64::from_le_bytes(*w);
                    if v.is_nan() { f64::NAN } else { v }.to_le_bytes().to_vec()
                }
                _ => w[..size].to_vec(),
            };
            (datatype, words.len(), words.iter().flat_map(element).collect())
        }
    })
}

/// Prints a tensor as an output and returns the text of its `data`.
fn printed(datatype: DataType, count: usize, raw: &[u8]) -> Vec<u8> {
    let response = InferResponse {
        outputs: [output("O", datatype, &[1, count as i64], Bytes::copy_from_slice(raw))].into_iter().collect(),
        ..InferResponse::default()
    };
    let json = encode_infer(&response, &identity("m", 8, datatype)).unwrap().json;
    let start = memchr::memmem::find(&json, b"\"data\":").unwrap() + 7;
    json[start..json.len() - 3].to_vec()
}

fn ask(datatype: DataType, head: &[&[u8]], tail: &[u8]) -> Result<InferRequest> {
    let head = head.concat();
    let sig = identity("m", 8, datatype);
    let body = Bytes::from([&head, tail].concat());
    let mut request = parse_infer(&body, Some(head.len()), &sig, &NoRegions, &Limits::default())?;
    sig.check(&mut request)?;
    Ok(request)
}

proptest! {
    #[test]
    fn p067_p090_what_is_printed_reads_back((datatype, count, raw) in tensor(), data_first in any::<bool>()) {
        let data = [b"\"data\":", &printed(datatype, count, &raw)[..]].concat();
        let known = format!(r#""name":"INPUT0","shape":[1,{count}],"datatype":"{}""#, datatype.name()).into_bytes();
        let (a, b) = if data_first { (&data, &known) } else { (&known, &data) };
        let request = ask(datatype, &[b"{\"inputs\":[{", a, b",", b, b"}]}"], b"").unwrap();
        prop_assert_eq!(request.inputs[0].data.to_vec().expect("in memory"), &raw[..]);
        let again = printed(datatype, count, &request.inputs[0].data.to_vec().expect("in memory"));
        prop_assert_eq!(again, &data[7..]);
    }

    #[test]
    fn p075_json_and_binary_mean_the_same((datatype, count, raw) in tensor()) {
        let known = format!(r#""name":"INPUT0","shape":[1,{count}],"datatype":"{}""#, datatype.name()).into_bytes();
        let data = printed(datatype, count, &raw);
        let json = ask(datatype, &[b"{\"inputs\":[{", &known, b",\"data\":", &data, b"}]}"], b"");
        let size = format!(r#","parameters":{{"binary_data_size":{}}}}}]}}"#, raw.len()).into_bytes();
        let binary = ask(datatype, &[b"{\"inputs\":[{", &known, &size], &raw);
        let (json, binary) = (json.unwrap(), binary.unwrap());
        prop_assert_eq!(format!("{json:?}"), format!("{binary:?}"));
        let contents = |request: &protocol::InferRequest| request.inputs[0].data.to_vec().expect("in memory");
        prop_assert_eq!(contents(&json), contents(&binary));
    }

    #[test]
    fn arbitrary_bytes_never_panic(data in any::<Vec<u8>>()) {
        protocol::fuzz_http(&data);
    }

    /// A valid body with a few bytes replaced, which reaches more code than noise does.
    #[test]
    fn damaged_bodies_never_panic(
        mode in any::<u8>(),
        text in prop::sample::select(vec![
            concat!(
                r#"{"id":"\u00fc1","inputs":[{"name":"I11","shape":[1,2],"datatype":"FP32","data":[1.5,[-2e3]]}],"#,
                r#""outputs":[{"name":"O11","parameters":{"classification":1}}]}"#
            ),
            concat!(
                r#"{"parameters":{"sequence_id":"a","x":1.5},"#,
                r#""inputs":[{"data":["a","\n"],"name":"I13","shape":[1,2],"datatype":"BYTES"}]}"#
            ),
            concat!(
                r#"{"inputs":[{"name":"I7","shape":[1,4],"datatype":"INT16","#,
                r#""parameters":{"binary_data_size":8}}]}12345678"#
            ),
            r#"{"I11":[1,2],"I13":"text","id":"1","parameters":{"I1":true,"p":-1}}"#,
        ]),
        edits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        cut in any::<prop::sample::Index>(),
        cuts in any::<bool>(),
    ) {
        let mut data = [&[mode], text.as_bytes()].concat();
        for (at, byte) in edits {
            let at = at.index(data.len());
            data[at] = byte;
        }
        if cuts {
            data.truncate(cut.index(data.len()));
        }
        protocol::fuzz_http(&data);
    }
}
