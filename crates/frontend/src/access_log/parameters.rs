//! Parameters of changes in lines of the audit log. Contents of files and configurations are logged as their size and
//! SHA-256, which `sha256sum` prints for the original file.

use super::json_line::JsonLine;
use crate::limits::{AUDIT_ITEMS_MAX, LOG_NAME_BYTES_MAX};
use protocol::json::Value;
use ring::digest::{SHA256, digest};
use std::fmt::Write;

/// Writes small values unchanged, in the order of the request.
pub fn put_members(object: Option<Value<'_>>, line: &mut JsonLine<'_>) {
    let Some(members) = object.and_then(|object| object.members().ok()) else { return };
    for (name, value) in members.take(AUDIT_ITEMS_MAX) {
        let name = name.decode();
        // Not logged: any process that has the handle of device memory can open it.
        if &*name != b"raw_handle" {
            line.client_key(&name, LOG_NAME_BYTES_MAX);
            put_value(value, line);
        }
    }
}

fn put_value(value: Value<'_>, line: &mut JsonLine<'_>) {
    match value.text() {
        word @ (b"true" | b"false" | b"null") => line.value(word),
        // Triton accepts `NaN`, which is not JSON and must not be copied to the line.
        number if number.iter().all(|b| matches!(b, b'0'..=b'9' | b'-' | b'+' | b'.' | b'e' | b'E')) => {
            line.value_of_at_most(number, 64)
        }
        _ if value.is_string() => {
            let text = value.as_text().map(|text| text.decode().into_owned()).unwrap_or_default();
            line.text_value(&text, LOG_NAME_BYTES_MAX);
        }
        // Lists of settings are logged as text.
        other => line.text_value(other, LOG_NAME_BYTES_MAX),
    }
}

/// Name, size and hash of a file.
struct File {
    name: Vec<u8>,
    bytes: usize,
    hash: String,
}

impl File {
    fn of(name: &[u8], contents: &[u8]) -> Self {
        let name = name.strip_prefix(b"file:").unwrap_or(name);
        Self {
            name: name.get(..2 * LOG_NAME_BYTES_MAX).unwrap_or(name).to_vec(),
            bytes: contents.len(),
            hash: hash(contents),
        }
    }
}

/// Files of a change, as its line shows them.
#[derive(Default)]
pub struct LoggedFiles {
    files: Vec<File>,
    /// Number of files beyond the limit.
    more: u64,
}

impl LoggedFiles {
    pub fn add(&mut self, name: &[u8], contents: impl FnOnce() -> Vec<u8>) {
        if self.files.len() < AUDIT_ITEMS_MAX {
            self.files.push(File::of(name, &contents()));
        } else {
            self.more += 1;
        }
    }

    pub fn put(&self, line: &mut JsonLine<'_>) {
        if !self.files.is_empty() {
            line.list("files", &self.files, |file, line| {
                line.text("name", &file.name, LOG_NAME_BYTES_MAX)
                    .number("bytes", file.bytes)
                    .word("sha256", &file.hash);
            });
        }
        if self.more > 0 {
            line.number("files_not_listed", self.more);
        }
    }
}

fn hash(contents: &[u8]) -> String {
    digest(&SHA256, contents).as_ref().iter().fold(String::with_capacity(64), |mut hex, byte| {
        // Writing to a string cannot fail.
        let _ = write!(hex, "{byte:02x}");
        hex
    })
}

/// Writes size and hash of a configuration.
pub fn put_config(contents: &[u8], line: &mut JsonLine<'_>) {
    line.object("config", |line| _ = line.number("bytes", contents.len()).word("sha256", &hash(contents)));
}
