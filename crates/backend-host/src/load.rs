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

/// True if the library is one that forms batches, for a model that has another backend in another process.
pub(crate) fn is_batching(load: Value<'_>) -> Result<bool> {
    Ok(optional(load, "strategy")? == member(load, "library")?)
}
