//! Lines of the audit log: who requested which change of the server, with which parameters, and the result. Contents of
//! files and configurations are logged as their size and SHA-256, which `sha256sum` prints for the original file.

use super::Logs;
use super::entry::RequestLine;
use super::json_line::JsonLine;
use super::messages;
use crate::grpc::control::log_changes;
use crate::limits::{AUDIT_BYTES_ON_REACTOR_MAX, AUDIT_ITEMS_MAX, LOG_NAME_BYTES_MAX};
use crate::origin::Face;
use crate::record::RequestName;
use crate::table::Operation;
use crate::text::decode_base64;
use bytes::Bytes;
use prost::Message;
use protocol::json::Value;
use protocol::pb::inference as pb;
use ring::digest::{SHA256, digest};
use std::fmt::Write;

impl RequestLine<'_> {
    /// Writes the line of a request that changed the server. `body`: its body or message, if it was kept.
    pub(super) fn audit(&self, logs: &Logs, body: Option<Bytes>) {
        let source = match &self.noted.name {
            RequestName::Grpc(operation, _) => operation.map(ParameterSource::Message),
            name => name.route().and_then(|route| ParameterSource::of(route.operation)),
        };
        let source = source.zip(body);
        // One call both reads and writes settings; a call that only reads is not logged.
        if let Some((ParameterSource::Message(operation), message)) = &source
            && message.len() <= AUDIT_BYTES_ON_REACTOR_MAX
            && is_only_read(*operation, message)
        {
            return;
        }
        let facts = |line: &mut JsonLine<'_>, body: Option<&Bytes>| {
            line.time("time", self.facts.times.begun);
            self.who(line);
            line.word("origin", self.origin());
            if self.noted.caller.face == Face::Control {
                line.flag("control_address");
            }
            line.word("protocol", self.protocol()).word("verb", self.verb());
            self.put_target(line, body);
            self.result(line);
            line.micros("duration_us", self.duration());
        };
        let Some((what, body)) = source else {
            return logs.audit(|line| facts(line, None));
        };
        if body.len() <= AUDIT_BYTES_ON_REACTOR_MAX {
            return logs.audit(|line| {
                facts(line, Some(&body));
                line.object("parameters", |line| what.parameters(&body, line));
            });
        }
        // Decoding and hashing many files takes long.
        logs.audit_later(
            |line| facts(line, None),
            move |line| {
                if let ParameterSource::Message(operation) = what {
                    messages::put_names(operation, &body, line);
                }
                line.object("parameters", |line| what.parameters(&body, line));
            },
        );
    }
}

/// Where the parameters of a call are.
#[derive(Debug, Clone, Copy)]
enum ParameterSource {
    Load,
    Unload,
    /// In the members of the body, for regions and settings.
    Members,
    Message(Operation),
}

impl ParameterSource {
    fn of(operation: Operation) -> Option<Self> {
        Some(match operation {
            Operation::Load => Self::Load,
            Operation::Unload => Self::Unload,
            operation if operation.is_change() => Self::Members,
            _ => return None,
        })
    }

    /// Writes the parameters that can be read.
    fn parameters(self, body: &[u8], line: &mut JsonLine<'_>) {
        match self {
            Self::Message(operation) => _ = of_message(operation, body, line),
            _ => {
                let Ok(body) = Value::parse(body) else { return };
                match self {
                    Self::Load => of_load(body, line),
                    Self::Unload => of_members(body.get("parameters"), line),
                    _ => of_members(Some(body), line),
                }
            }
        }
    }
}

fn of_load(body: Value<'_>, line: &mut JsonLine<'_>) {
    let Some(members) = body.get("parameters").and_then(|p| p.members().ok()) else { return };
    let (mut files, mut more) = (Vec::new(), 0u64);
    for (name, value) in members {
        let name = name.decode();
        let contents = || value.as_text().map(|text| text.decode().into_owned()).unwrap_or_default();
        if name.starts_with(b"file:") {
            if files.len() < AUDIT_ITEMS_MAX {
                files.push(File::of(&name, &decode_base64(&contents()).unwrap_or_default()));
            } else {
                more += 1;
            }
        } else if &*name == b"config" {
            config(&contents(), line);
        }
    }
    put_files(&files, more, line);
}

/// Writes small values unchanged, in the order of the request.
fn of_members(object: Option<Value<'_>>, line: &mut JsonLine<'_>) {
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

fn of_message(operation: Operation, message: &[u8], line: &mut JsonLine<'_>) -> Result<(), prost::DecodeError> {
    use pb::model_repository_parameter::ParameterChoice;
    match operation {
        Operation::Load => {
            let request = pb::RepositoryModelLoadRequest::decode(message)?;
            let mut parameters: Vec<_> = request.parameters.iter().collect();
            parameters.sort_unstable_by_key(|(name, _)| *name);
            let (mut files, mut more) = (Vec::new(), 0u64);
            for (name, value) in parameters {
                let contents: &[u8] = match &value.parameter_choice {
                    Some(ParameterChoice::BytesParam(bytes)) => bytes,
                    Some(ParameterChoice::StringParam(text)) => text.as_bytes(),
                    _ => b"",
                };
                if name == "config" {
                    config(contents, line);
                } else if files.len() < AUDIT_ITEMS_MAX {
                    files.push(File::of(name.as_bytes(), contents));
                } else {
                    more += 1;
                }
            }
            put_files(&files, more, line);
        }
        Operation::Unload => {
            let request = pb::RepositoryModelUnloadRequest::decode(message)?;
            let dependents = request.parameters.get("unload_dependents").and_then(|p| p.parameter_choice.as_ref());
            if let Some(ParameterChoice::BoolParam(value)) = dependents {
                line.client_key(b"unload_dependents", LOG_NAME_BYTES_MAX);
                line.value(if *value { b"true" } else { b"false" });
            }
        }
        Operation::SystemRegionRegister => {
            let request = pb::SystemSharedMemoryRegisterRequest::decode(message)?;
            line.text("key", request.key.as_bytes(), LOG_NAME_BYTES_MAX);
            line.number("offset", request.offset).number("byte_size", request.byte_size);
        }
        Operation::CudaRegionRegister => {
            let request = pb::CudaSharedMemoryRegisterRequest::decode(message)?;
            line.number("device_id", request.device_id).number("byte_size", request.byte_size);
        }
        Operation::TraceSettings => {
            let request = pb::TraceSettingRequest::decode(message)?;
            let mut settings: Vec<_> = request.settings.iter().collect();
            settings.sort_unstable_by_key(|(name, _)| *name);
            for (name, setting) in settings.into_iter().take(AUDIT_ITEMS_MAX) {
                line.client_key(name.as_bytes(), LOG_NAME_BYTES_MAX);
                line.text_value(setting.value.join(",").as_bytes(), LOG_NAME_BYTES_MAX);
            }
        }
        Operation::LogSettings => {
            let changes = log_changes(&pb::LogSettingsRequest::decode(message)?).unwrap_or_default();
            of_members(Value::parse(&changes).ok(), line);
        }
        _ => {}
    }
    Ok(())
}

/// Whether a message only reads settings.
fn is_only_read(operation: Operation, message: &[u8]) -> bool {
    match operation {
        Operation::TraceSettings => pb::TraceSettingRequest::decode(message).is_ok_and(|r| r.settings.is_empty()),
        Operation::LogSettings => pb::LogSettingsRequest::decode(message).is_ok_and(|r| r.settings.is_empty()),
        _ => false,
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

fn hash(contents: &[u8]) -> String {
    digest(&SHA256, contents).as_ref().iter().fold(String::with_capacity(64), |mut hex, byte| {
        // Writing to a string cannot fail.
        let _ = write!(hex, "{byte:02x}");
        hex
    })
}

fn config(contents: &[u8], line: &mut JsonLine<'_>) {
    line.object("config", |line| _ = line.number("bytes", contents.len()).word("sha256", &hash(contents)));
}

fn put_files(files: &[File], more: u64, line: &mut JsonLine<'_>) {
    if !files.is_empty() {
        line.list("files", files, |file, line| {
            line.text("name", &file.name, LOG_NAME_BYTES_MAX).number("bytes", file.bytes).word("sha256", &file.hash);
        });
    }
    if more > 0 {
        line.number("files_not_listed", more);
    }
}
