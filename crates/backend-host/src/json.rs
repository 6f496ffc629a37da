//! Members of JSON objects that go to the server.

use protocol::json::write_string;

/// Adds a member that is a text, after a comma.
pub(crate) fn add_text(json: &mut Vec<u8>, name: &str, value: &str) {
    json.push(b',');
    pair(json, name, value);
}

/// Adds a member that is an object of texts, after a comma.
pub(crate) fn add_texts<'a>(
    json: &mut Vec<u8>,
    name: &str,
    members: impl IntoIterator<Item = (&'a String, &'a String)>,
) {
    json.push(b',');
    write_string(json, name.as_bytes());
    json.extend_from_slice(b":{");
    for (at, (name, value)) in members.into_iter().enumerate() {
        json.extend_from_slice(if at == 0 { b"" } else { b"," });
        pair(json, name, value);
    }
    json.push(b'}');
}

fn pair(json: &mut Vec<u8>, name: &str, value: &str) {
    write_string(json, name.as_bytes());
    json.push(b':');
    write_string(json, value.as_bytes());
}
