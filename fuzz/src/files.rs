//! Bodies of files and forms: contents that are taken are in the request, in order, and JSON is never a file.

use crate::model::{NoRegions, signature};
use bytes::Bytes;
use protocol::files::{Media, parse_files};
use protocol::http::{Limits, parse_infer};
use tensor::DataType;

const LIMITS: Limits = Limits { input_bytes_max: 1 << 20, entries_max: 16_384, dims_max: 1024 };

/// The first byte chooses whether the model batches and whether BYTES is its only input; then the content type up to a
/// line end, and the body.
pub fn files(data: &[u8]) -> bool {
    let Some((&mode, rest)) = data.split_first() else { return false };
    let end = memchr::memchr(b'\n', rest).unwrap_or(rest.len());
    let (content_type, body) = rest.split_at(end);
    let body = Bytes::copy_from_slice(body.get(1..).unwrap_or_default());
    let mut signature = signature(u32::from(mode & 1) * 4);
    if mode & 2 != 0 {
        signature.inputs.retain(|i| i.datatype == DataType::Bytes);
    }
    let Ok(Some(media)) = Media::of(&body, || Some(content_type)) else { return false };
    let json = parse_infer(&body, None, &signature, &NoRegions, &LIMITS);
    assert!(json.is_err(), "a body that is JSON was taken as a file");
    let Ok(mut request) = parse_files(&body, &media, mode & 4 != 0, &signature, &LIMITS) else { return false };
    let bytes: usize = request.inputs.iter().map(|input| input.data.len()).sum();
    // Numbers as text take at most eight bytes for two of the body, an element four more than its file.
    assert!(bytes <= body.len() * 5 + 4, "{bytes} bytes of a body of {}", body.len());
    if media == Media::File && signature.inputs.len() == 1 {
        assert_eq!(&request.inputs[0].data.to_bytes().expect("in memory")[4..], &body[..]);
    }
    signature.check(&mut request).is_ok()
}
