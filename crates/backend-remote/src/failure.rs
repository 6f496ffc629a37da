//! Contents of the frames READY and FAILED, which a runner sends when it has started or cannot start.

use crate::frames::ProtocolError;
use protocol::json::Value;
use tensor::{Code, Error};

/// Line of the model's code that failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Source {
    /// Absolute path.
    pub file: String,
    /// Line number, from 1.
    pub line: u64,
    /// Text of the line.
    pub text: String,
}

/// Why a model could not be started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// Error for the client.
    pub error: Error,
    /// Place of the failure, if the runner knows it.
    pub source: Option<Source>,
    /// Name of the package that the code imports and that is not installed.
    pub missing: Option<String>,
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self { error, source: None, missing: None }
    }
}

/// Contents of a READY frame.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct ReadyFrame {
    pub(crate) runner: String,
    pub(crate) asks_ready: bool,
    /// The runner can open device memory.
    pub(crate) devices: bool,
    pub(crate) config: Option<String>,
    /// JSON of the instance groups that the code prefers.
    pub(crate) groups: Option<String>,
}

const BROKEN: ProtocolError = ProtocolError("its report of the start is not the expected JSON");

impl ReadyFrame {
    pub(crate) fn read(text: &str) -> Result<Self, ProtocolError> {
        let value = Value::parse(text.as_bytes()).map_err(|_| BROKEN)?;
        let text_of = |key: &str| match value.get(key).filter(|v| !v.is_null()) {
            None => Ok(None),
            Some(v) => v.as_string().map(Some).map_err(|_| BROKEN),
        };
        let truth = |key: &str| value.get(key).map_or(Ok(false), Value::as_bool).map_err(|_| BROKEN);
        let (asks_ready, devices) = (truth("asks_ready")?, truth("devices")?);
        let config = match value.get("config").filter(|v| !v.is_null()) {
            Some(object) if object.is_object() => Some(String::from_utf8_lossy(object.text()).into_owned()),
            _ => text_of("config")?,
        };
        let groups = value.get("groups").filter(|v| !v.is_null());
        let groups = groups.map(|groups| String::from_utf8_lossy(groups.text()).into_owned());
        Ok(Self { runner: text_of("runner")?.unwrap_or_default(), asks_ready, devices, config, groups })
    }
}

impl Failure {
    pub(crate) fn read(text: &str) -> Result<Self, ProtocolError> {
        let value = Value::parse(text.as_bytes()).map_err(|_| BROKEN)?;
        let message = value.member("text").and_then(Value::as_string).map_err(|_| BROKEN)?;
        let part = |key: &str| value.get(key).filter(|v| !v.is_null());
        let source = part("source").and_then(|source| {
            Some(Source {
                file: source.get("file")?.as_string().ok()?,
                line: source.get("line")?.as_u64().ok()?,
                text: source.get("text")?.as_string().ok()?,
            })
        });
        let missing = part("missing").and_then(|name| name.as_string().ok());
        let code = part("code").and_then(|name| name.as_string().ok());
        let code = code.and_then(|name| Code::ALL.into_iter().find(|code| code.constant() == name));
        Ok(Self { error: Error::new(code.unwrap_or(Code::Internal), message).by_model(), source, missing })
    }
}
