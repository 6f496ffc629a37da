//! JSON text: values read where they stand, and the two ways a `data` array becomes a tensor.

use crate::model::{NoRegions, bytes, same, signature};
use bytes::Bytes;
use protocol::InferRequest;
use protocol::http::{Limits, parse_infer};
use protocol::json::{DATA_DEPTH_MAX, Value, read_tensor, write_f64, write_string, write_tensor};
use tensor::{DataType, Result};

/// Deeper values are not walked: each level reads its text again, and that is this walk's doing, not the reader's.
const WALK_DEPTH_MAX: usize = 6;

/// The first byte chooses a datatype; the rest is JSON text, and the `data` of a tensor of that type.
pub fn json(data: &[u8]) -> bool {
    let Some((&mode, text)) = data.split_first() else { return false };
    let Ok(value) = Value::parse(text) else { return false };
    let again = Value::parse(value.text()).expect("the text of a value is a document");
    assert_eq!(again.text(), value.text());
    walk(value, 0);
    tensor(value, DataType::ALL[usize::from(mode) % DataType::ALL.len()]);
    true
}

/// Asks a value everything; what it says must survive being printed.
fn walk(value: Value<'_>, depth: usize) {
    if let Ok(text) = value.as_text() {
        let decoded = text.decode();
        let mut printed = Vec::new();
        write_string(&mut printed, &decoded);
        let read = Value::parse(&printed).expect("our own string");
        assert_eq!(read.as_text().unwrap().decode(), decoded);
        let body = Bytes::copy_from_slice(value.text());
        let _ = Value::parse(&body).unwrap().as_name(&body);
        let _ = value.as_string();
    }
    if let Some(number) = value.number() {
        let exact = number.as_f64();
        let mut printed = Vec::new();
        write_f64(&mut printed, exact);
        let read = Value::parse(&printed).expect("our own number").as_f64().unwrap();
        assert!(read == exact || read.is_nan() && exact.is_nan(), "{exact} printed as {}", printed.escape_ascii());
        if let (Ok(u), Ok(i)) = (value.as_u64(), value.as_i64()) {
            assert_eq!(u, i as u64);
        }
    }
    let kinds = [value.is_object(), value.is_array(), value.is_string(), value.is_null(), value.as_bool().is_ok()];
    assert_eq!(kinds.into_iter().filter(|&k| k).count() + usize::from(value.number().is_some()), 1);
    if depth >= WALK_DEPTH_MAX {
        return;
    }
    if let Ok(members) = value.members() {
        for (i, (key, member)) in members.enumerate() {
            // Lookups walk the object again; a few are enough.
            if i < 8 {
                let key = String::from_utf8_lossy(&key.decode()).into_owned();
                let _ = value.get(&key);
                let _ = value.member(&key);
            }
            walk(member, depth + 1);
        }
    }
    if let Ok(elements) = value.elements() {
        elements.for_each(|e| walk(e, depth + 1));
    }
}

/// How many scalars `data` has; `None` when it is nested too deep to be data.
fn scalars(value: Value<'_>, depth: usize) -> Option<usize> {
    if !value.is_array() {
        return Some(1);
    }
    if depth + 1 >= DATA_DEPTH_MAX {
        return None;
    }
    value.elements().ok()?.map(|e| scalars(e, depth + 1)).sum()
}

/// Data named before its datatype is read on another path than data named after it: both must say the same.
fn tensor(value: Value<'_>, datatype: DataType) {
    let Some(count) = scalars(value, 0) else { return };
    let known = format!(r#""name":"I","shape":[{count}],"datatype":"{}""#, datatype.name()).into_bytes();
    let data = [b"\"data\":", value.text()].concat();
    let (ahead, behind) = (ask(&[&known, b",", &data]), ask(&[&data, b" , ", &known]));
    same(&ahead, &behind, "data before and after the datatype");
    if let (Err(a), Err(b)) = (&ahead, &behind) {
        assert_eq!(a.to_string(), b.to_string());
    }
    let Ok(request) = ahead else { return };
    let raw = bytes(&request.inputs[0].data);
    if count > 0 && datatype != DataType::Bytes {
        assert_eq!(read_tensor(value, datatype, count).expect("read by the other path"), raw);
        assert!(read_tensor(value, datatype, count + 1).is_err() && read_tensor(value, datatype, count - 1).is_err());
    }
    let mut printed = Vec::new();
    write_tensor(&mut printed, datatype, &[count as i64], raw, false).expect("what was read has a form");
    let again = ask(&[&known, b",\"data\":", &printed]).expect("what was printed");
    assert_eq!(bytes(&again.inputs[0].data), raw, "printed as {}", printed.escape_ascii());
}

fn ask(input: &[&[u8]]) -> Result<InferRequest> {
    let body = Bytes::from([b"{\"inputs\":[{", &input.concat()[..], b"}]}"].concat());
    parse_infer(&body, None, &signature(0), &NoRegions, &Limits::default())
}
