//! Reads the JSON parameters that a runner sends.

use crate::frames::ProtocolError;
use protocol::Parameter;
use protocol::json::Value;
use tensor::Name;

/// Parameters of a response or of a call.
pub(crate) fn parameters(text: &str) -> Result<Vec<(Name, Parameter)>, ProtocolError> {
    if text.is_empty() {
        return Ok(Vec::new());
    }
    const BROKEN: ProtocolError = ProtocolError("parameters are not a JSON object of texts, numbers and booleans");
    let value = Value::parse(text.as_bytes()).map_err(|_| BROKEN)?;
    let read = |value: Value<'_>| {
        if value.is_string() {
            return value.as_string().map(|text| Parameter::String(text.into())).ok();
        }
        // A double stays a double even if it is a whole number.
        let is_double = value.text().iter().any(|c| matches!(c, b'.' | b'e' | b'E' | b'N' | b'I'));
        let number = || if is_double { None } else { value.as_i64().ok().map(Parameter::Int) };
        number()
            .or_else(|| value.as_bool().ok().map(Parameter::Bool))
            .or_else(|| value.as_f64().ok().map(Parameter::Double))
    };
    let members = value.members().map_err(|_| BROKEN)?;
    members
        .map(|(key, value)| {
            let name = Name::from_utf8_lossy(key.decode().into_owned().into());
            Ok((name, read(value).ok_or(BROKEN)?))
        })
        .collect()
}
