//! Members of LOAD.

use protocol::json::Value;
use tensor::Result;

/// A member of LOAD.
pub(crate) fn member(load: Value<'_>, name: &str) -> Result<String> {
    load.member(name)?.as_string()
}

/// A member of LOAD; "" if it has none.
pub(crate) fn optional(load: Value<'_>, name: &str) -> Result<String> {
    load.get(name).filter(|value| !value.is_null()).map_or(Ok(String::new()), Value::as_string)
}
