//! Bodies of `infer` and `generate`: JSON heads with binary parts, packed or not, with and without known heads.

use crate::encoding::decompress;
use crate::model::{NoRegions, echo, same, signature};
use bytes::Bytes;
use memory::Memfd;
use protocol::generate::{encode_generate, parse_generate};
use protocol::http::{DIMS_MAX, HeadCache, Limits, encode_infer, parse_header_length, parse_infer, parse_infer_apart};
use protocol::json::Value;
use protocol::{InferRequest, Signature};
use std::cell::RefCell;
use std::sync::Arc;
use tensor::part::part;
use tensor::{DataType, RegionRef, Result};

// As many entries as the server takes by default: work that grows with their square must show.
const LIMITS: Limits = Limits { input_bytes_max: 1 << 20, entries_max: 16_384, dims_max: DIMS_MAX };

thread_local! {
    // Lives as long as on a reactor: every input meets the heads of the ones before it.
    static CACHE: RefCell<HeadCache> = RefCell::default();
    static MEMORY: Arc<Memfd> = Arc::new(Memfd::new(LIMITS.input_bytes_max).expect("memory"));
}

/// The first byte chooses whether the model batches, how the rest is cut, whether it is packed, whether the model has a
/// single input (which may come without any head), and whether it is a body of `generate`.
pub fn http_body(data: &[u8]) -> bool {
    protocol::fuzz_http(data);
    let Some((&mode, body)) = data.split_first() else { return false };
    let body = if mode & 8 == 0 {
        Bytes::copy_from_slice(body)
    } else {
        let Ok(body) = decompress(body, LIMITS.input_bytes_max, || false) else { return false };
        assert!(body.len() <= LIMITS.input_bytes_max);
        body
    };
    let mut signature = signature(u32::from(mode & 1) * 4);
    if mode & 32 != 0 {
        return generate(&body, &signature);
    }
    if mode & 16 != 0 {
        signature.inputs.retain(|i| i.datatype == DataType::Fp32);
    }
    let head = match mode >> 1 & 3 {
        0 => None,
        1 => match parse_header_length(&body[..body.len().min(8)], body.len()) {
            Ok(n) => Some(n),
            Err(_) => return false,
        },
        _ => memchr::memrchr(b'}', &body).map(|i| i + 1),
    };
    let read = parse_infer(&body, head, &signature, &NoRegions, &LIMITS);
    // Three times: a head is kept when it comes the second time and used the third.
    for _ in 0..3 {
        let cached = CACHE
            .with_borrow_mut(|c| c.parse_infer(&body, head, &signature, &NoRegions, &LIMITS))
            .map(|request| *request);
        same(&read, &cached, "a remembered head");
        if let (Err(a), Err(b)) = (&read, &cached) {
            assert_eq!(a.to_string(), b.to_string());
        }
    }
    if let Some(n) = head.filter(|n| (1..body.len()).contains(n)) {
        in_a_region(&read, &body, n, &signature);
    }
    answer(read, &signature)
}

/// A body whose binary part lies in a region is read and checked as one in a single piece.
fn in_a_region(read: &Result<InferRequest>, body: &Bytes, head: usize, signature: &Signature) {
    let parse = || {
        let tail = region_of(&body[head..]);
        parse_infer_apart(&body.slice(..head), tail, signature, &NoRegions, &LIMITS)
    };
    let copied = parse().map(|mut request| {
        for input in &mut request.inputs {
            input.data = input.data.to_bytes().expect("in memory").into();
        }
        request
    });
    same(read, &copied, "a binary part in a region");
    if let (Err(a), Err(b)) = (read, &copied) {
        assert_eq!(a.to_string(), b.to_string());
    }
    let check = |mut request: InferRequest| signature.check(&mut request).err().map(|error| error.to_string());
    assert_eq!(copied.ok().map(check), parse().ok().map(check));
}

/// Shared memory with these bytes.
fn region_of(bytes: &[u8]) -> RegionRef {
    let region: RegionRef = MEMORY.with(|memory| memory.clone());
    region.copy_from(0, bytes).expect("room");
    part(&region, 0, bytes.len()).expect("inside")
}

/// A good request is answered with its own inputs, and the answer is JSON.
fn answer(request: Result<InferRequest>, signature: &Signature) -> bool {
    let Ok(mut request) = request else { return false };
    let Ok(checked) = signature.check(&mut request) else { return false };
    assert_eq!(checked.inputs.len(), request.inputs.len());
    let response = echo(&request, &checked, signature);
    let encoded = encode_infer(&response, signature);
    CACHE.with_borrow_mut(|cache| {
        // The first prints, the second keeps, the third is known.
        for _ in 0..3 {
            let known = cache.encode_infer(&response, signature);
            assert_eq!(format!("{known:?}"), format!("{encoded:?}"));
        }
    });
    if let Ok(body) = encoded {
        let head =
            Value::parse(&body.json[..body.inference_header_length.unwrap_or(body.json.len())]).expect("our own JSON");
        assert_eq!(head.get("outputs").map_or(0, |o| o.elements().unwrap().count()), response.outputs.len());
    }
    true
}

fn generate(body: &Bytes, signature: &Signature) -> bool {
    let Ok(mut request) = parse_generate(body, signature, &LIMITS) else { return false };
    let Ok(checked) = signature.check(&mut request) else { return false };
    if let Ok(body) = encode_generate(&echo(&request, &checked, signature), signature) {
        assert!(Value::parse(&body).expect("our own JSON").is_object());
    }
    true
}
