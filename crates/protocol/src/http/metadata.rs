//! Bodies of GET /v2 and GET /v2/models/{M} (P 1.4, 1.5).

use crate::json::write_string;
use crate::signature::Signature;
use bytes::Bytes;
use tensor::{DataType, Name};

/// Server metadata (P-018).
pub fn server_metadata_json<S: AsRef<str>>(name: &str, version: &str, extensions: &[S]) -> Bytes {
    let mut out = Vec::with_capacity(320);
    out.extend_from_slice(b"{\"name\":");
    write_string(&mut out, name.as_bytes());
    out.extend_from_slice(b",\"version\":");
    write_string(&mut out, version.as_bytes());
    out.extend_from_slice(b",\"extensions\":[");
    list(&mut out, extensions, |out, e| write_string(out, e.as_ref().as_bytes()));
    out.extend_from_slice(b"]}");
    out.into()
}

/// Model metadata (P-020, P-021). `versions` has the version of the URL, or all ready ones.
pub fn model_metadata_json(signature: &Signature, versions: &[i64], platform: &str) -> Bytes {
    let mut out = Vec::with_capacity(256);
    out.extend_from_slice(b"{\"name\":");
    write_string(&mut out, signature.model.as_bytes());
    out.extend_from_slice(b",\"versions\":[");
    list(&mut out, versions, |out, v| {
        out.push(b'"');
        out.extend_from_slice(itoa::Buffer::new().format(*v).as_bytes());
        out.push(b'"');
    });
    out.extend_from_slice(b"],\"platform\":");
    write_string(&mut out, platform.as_bytes());
    out.extend_from_slice(b",\"inputs\":[");
    list(&mut out, &signature.inputs, |out, i| tensor(out, signature, &i.name, i.datatype, &i.dims));
    out.extend_from_slice(b"],\"outputs\":[");
    list(&mut out, &signature.outputs, |out, o| tensor(out, signature, &o.name, o.datatype, &o.dims));
    out.extend_from_slice(b"]}");
    out.into()
}

fn tensor(out: &mut Vec<u8>, signature: &Signature, name: &Name, datatype: DataType, dims: &[i64]) {
    head(out, name, datatype, &signature.full_shape(dims));
    out.push(b'}');
}

/// Appends `{"name":…,"datatype":…,"shape":[…]` without the closing brace.
pub(super) fn head(out: &mut Vec<u8>, name: &Name, datatype: DataType, shape: &[i64]) {
    out.extend_from_slice(b"{\"name\":");
    write_string(out, name.as_bytes());
    out.extend_from_slice(b",\"datatype\":\"");
    out.extend_from_slice(datatype.name().as_bytes());
    out.extend_from_slice(b"\",\"shape\":[");
    list(out, shape, |out, d| out.extend_from_slice(itoa::Buffer::new().format(*d).as_bytes()));
    out.push(b']');
}

pub(super) fn list<T>(out: &mut Vec<u8>, items: &[T], mut item: impl FnMut(&mut Vec<u8>, &T)) {
    for (i, t) in items.iter().enumerate() {
        if i > 0 {
            out.push(b',');
        }
        item(out, t);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::addsub;

    #[test]
    fn p018_server_metadata() {
        let body = server_metadata_json("triton", "2.73.0", &["classification", "model_repository(unload_dependents)"]);
        assert_eq!(
            &body[..],
            concat!(
                r#"{"name":"triton","version":"2.73.0","#,
                r#""extensions":["classification","model_repository(unload_dependents)"]}"#
            )
            .as_bytes()
        );
    }

    #[test]
    fn p021_model_metadata_has_a_leading_batch_dimension() {
        let body = model_metadata_json(&addsub(8), &[1], "onnxruntime_onnx");
        let golden = concat!(
            r#"{"name":"addsub","versions":["1"],"platform":"onnxruntime_onnx","#,
            r#""inputs":[{"name":"INPUT0","datatype":"INT32","shape":[-1,16]},"#,
            r#"{"name":"INPUT1","datatype":"INT32","shape":[-1,16]}],"#,
            r#""outputs":[{"name":"OUTPUT0","datatype":"INT32","shape":[-1,16]},"#,
            r#"{"name":"OUTPUT1","datatype":"INT32","shape":[-1,16]}]}"#
        );
        assert_eq!(std::str::from_utf8(&body).unwrap(), golden);
        let unbatched = model_metadata_json(&addsub(0), &[1, 3], "x");
        assert!(std::str::from_utf8(&unbatched).unwrap().contains(r#""versions":["1","3"],"platform":"x""#));
        assert!(std::str::from_utf8(&unbatched).unwrap().contains(r#""shape":[16]"#));
    }
}
