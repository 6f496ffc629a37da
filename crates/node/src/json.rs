//! Arguments that cross as JSON: the records of the crate `options`.

use napi::bindgen_prelude::{FromNapiValue, Function, JsObjectValue, Object, Unknown};
use napi::{Env, Result, sys};
use serde::de::DeserializeOwned;

/// A JavaScript value that was read as `T`. An error names the property that is missing, unknown or of another type.
pub struct Json<T>(pub T);

impl<T: DeserializeOwned> FromNapiValue for Json<T> {
    unsafe fn from_napi_value(env: sys::napi_env, value: sys::napi_value) -> Result<Self> {
        // SAFETY: the caller passes a value of this environment, and is on its thread.
        let value = unsafe { Unknown::from_napi_value(env, value)? };
        // As text: napi passes numbers above 2^32 as fractions, which are no integers for `T`.
        let json: Object<'_> = Env::from_raw(env).get_global()?.get_named_property("JSON")?;
        let stringify: Function<'_, Unknown<'_>, String> = json.get_named_property("stringify")?;
        let text = stringify.call(value)?;
        let mut reader = serde_json::Deserializer::from_str(&text);
        let read = serde_path_to_error::deserialize(&mut reader);
        read.map(Self).map_err(|e| napi::Error::from_reason(format!("options of the core: {e}")))
    }
}
