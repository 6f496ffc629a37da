//! The effect of `TRITONBACKEND_ModelSetConfig` on a configuration. Pure.
//!
//! Triton parses the text as `inference.ModelConfig` and takes over five members; reading the configuration again gives
//! all defaults. Here the members are filled from templates, so that a library finds what it expects in either.

use crate::json;
use serde_json::{Map, Value, json};
use tensor::{DataType, Error, Result};

/// Members that are taken over, with their value if the new configuration has none; without one they are left out.
const TAKEN: [(&str, &str); 6] = [
    ("max_batch_size", "0"),
    ("input", "[]"),
    ("output", "[]"),
    ("model_transaction_policy", ""),
    ("dynamic_batching", ""),
    ("sequence_batching", ""),
];

const INPUT: &[(&str, &str)] = &[
    ("name", r#""""#),
    ("data_type", r#""TYPE_INVALID""#),
    ("format", r#""FORMAT_NONE""#),
    ("dims", "[]"),
    ("reshape", ""),
    ("is_shape_tensor", "false"),
    ("allow_ragged_batch", "false"),
    ("optional", "false"),
    ("is_non_linear_format_io", "false"),
];
const OUTPUT: &[(&str, &str)] = &[
    ("name", r#""""#),
    ("data_type", r#""TYPE_INVALID""#),
    ("dims", "[]"),
    ("reshape", ""),
    ("label_filename", r#""""#),
    ("is_shape_tensor", "false"),
    ("is_non_linear_format_io", "false"),
];
const DYNAMIC: &[(&str, &str)] = &[
    ("preferred_batch_size", "[]"),
    ("max_queue_delay_microseconds", "0"),
    ("preserve_ordering", "false"),
    ("priority_levels", "0"),
    ("default_priority_level", "0"),
    ("default_queue_policy", ""),
    ("priority_queue_policy", "{}"),
];

/// The configuration `current` with what `new` sets.
///
/// # Errors
/// INTERNAL if `new` cannot be read as JSON, INVALID_ARG if it is not a configuration.
pub(crate) fn merge(current: &str, new: &str) -> Result<String> {
    let mut config: Map<String, Value> = json::read(current)?;
    let new: Value = serde_json::from_str(new).map_err(|error| Error::internal(error.to_string()))?;
    let new = new.as_object().ok_or_else(|| Error::invalid("a model configuration is a JSON object"))?;
    // As the parser of protobuf does.
    let is_known =
        |key: &str| config.keys().map(String::as_str).chain(OTHERS).any(|name| name == key || camel(name) == key);
    if let Some(key) = new.keys().find(|key| !is_known(key)) {
        return Err(Error::invalid(format!("{key}: Cannot find field.")));
    }
    for (name, default) in TAKEN {
        config.remove(name);
        let value = match get(new, name) {
            Some(value) => Some(taken(name, value, new)?),
            None => serde_json::from_str(default).ok(),
        };
        config.extend(value.map(|value| (name.to_owned(), value)));
    }
    Ok(json::text(&config))
}

/// Members that a configuration may have besides those that are always printed.
const OTHERS: [&str; 12] = [
    "dynamic_batching",
    "sequence_batching",
    "ensemble_scheduling",
    "model_transaction_policy",
    "model_operations",
    "model_repository_agents",
    "response_cache",
    "model_metrics",
    "metric_tags",
    "parameters",
    "model_warmup",
    "cc_model_filenames",
];

fn camel(name: &str) -> String {
    let mut camel = String::new();
    let mut is_upper = false;
    for c in name.chars() {
        if c == '_' {
            is_upper = true;
        } else {
            camel.push(if is_upper { c.to_ascii_uppercase() } else { c });
            is_upper = false;
        }
    }
    camel
}

/// A member of `new` with its defaults.
fn taken(name: &str, value: &Value, new: &Map<String, Value>) -> Result<Value> {
    let list = |template: &[(&str, &str)]| -> Result<Value> {
        let elements = value.as_array().ok_or_else(|| Error::invalid(format!("{name} must be a list")))?;
        elements.iter().map(|element| filled(element, template)).collect()
    };
    match name {
        "max_batch_size" => number(value).map(Value::from),
        "input" => list(INPUT),
        "output" => list(OUTPUT),
        "dynamic_batching" => preferred(filled(value, DYNAMIC)?, new),
        "model_transaction_policy" => filled(value, &[("decoupled", "false")]),
        _ => match value.get("oldest") {
            Some(oldest) => {
                let mut value = value.clone();
                value["oldest"] = preferred(oldest.clone(), new)?;
                Ok(value)
            }
            None => Ok(value.clone()),
        },
    }
}

/// A batcher of `new` in which empty preferred sizes are the largest batch, as everywhere in Triton.
fn preferred(mut batcher: Value, new: &Map<String, Value>) -> Result<Value> {
    let most = get(new, "max_batch_size").map(number).transpose()?.filter(|most| *most != 0);
    if let (Some(most), Some(sizes)) = (most, batcher.get_mut("preferred_batch_size"))
        && sizes.as_array().is_some_and(Vec::is_empty)
    {
        *sizes = json!([most]);
    }
    Ok(batcher)
}

/// A member by its name in the protocol, or in camel case, which JSON of protobuf may have.
fn get<'a>(of: &'a Map<String, Value>, name: &str) -> Option<&'a Value> {
    of.get(name).or_else(|| of.get(&camel(name)))
}

/// An int32, which JSON of protobuf may have as a text.
fn number(value: &Value) -> Result<i32> {
    let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let invalid = |_| Error::invalid(format!("(max_batch_size): invalid value \"{text}\" for type TYPE_INT32"));
    text.parse().map_err(invalid)
}

/// The members of an object that its template knows.
fn filled(value: &Value, template: &[(&str, &str)]) -> Result<Value> {
    let object = value.as_object();
    let object = object.ok_or_else(|| Error::invalid("a model configuration has a value where an object belongs"))?;
    let mut all = Map::new();
    for (name, default) in template {
        let value = match get(object, name) {
            Some(found) if *name == "dims" => Some(dims(found)?),
            Some(found) if *name == "data_type" => Some(datatype(found)?),
            Some(found) => Some(found.clone()),
            None => serde_json::from_str(default).ok(),
        };
        all.extend(value.map(|value| ((*name).to_owned(), value)));
    }
    Ok(all.into())
}

fn datatype(value: &Value) -> Result<Value> {
    let name = value.as_str().unwrap_or_default();
    let known = name.strip_prefix("TYPE_").is_some_and(|name| {
        matches!(name, "STRING" | "INVALID") || (name != "BYTES" && DataType::from_name(name).is_some())
    });
    let invalid = || Error::invalid(format!("(data_type): invalid value \"{name}\" for type TYPE_ENUM"));
    known.then(|| value.clone()).ok_or_else(invalid)
}

/// Dimensions as numbers: JSON of protobuf has int64 as texts.
fn dims(value: &Value) -> Result<Value> {
    let one = |dim: &Value| {
        let number = dim.as_i64().or_else(|| dim.as_str()?.parse().ok());
        number.map(Value::from).ok_or_else(|| Error::invalid(format!("dimension '{dim}' must be a number")))
    };
    let all = value.as_array().ok_or_else(|| Error::invalid("dims must be a list"))?;
    all.iter().map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const CURRENT: &str =
        r#"{"name":"m","backend":"b","max_batch_size":2,"input":[{"name":"A"}],"output":[],"parameters":{}}"#;

    #[test]
    fn only_what_a_backend_may_set_is_taken_and_defaults_are_filled_in() {
        let merged = merge(
            CURRENT,
            r#"{"name":"x","maxBatchSize":"8","input":[{"name":"X","data_type":"TYPE_FP32","dims":["2",-1]}],
               "dynamic_batching":{},"parameters":{"a":{}}}"#,
        );
        let merged = merged.expect("merged");
        let merged: Value = json::read(&merged).expect("JSON");
        let input = json!({
            "name": "X", "data_type": "TYPE_FP32", "format": "FORMAT_NONE", "dims": [2, -1], "is_shape_tensor": false,
            "allow_ragged_batch": false, "optional": false, "is_non_linear_format_io": false,
        });
        let dynamic = json!({
            "preferred_batch_size": [8], "max_queue_delay_microseconds": 0, "preserve_ordering": false,
            "priority_levels": 0, "default_priority_level": 0, "priority_queue_policy": {},
        });
        let expected = json!({
            "name": "m", "backend": "b", "max_batch_size": 8, "input": [input], "output": [], "parameters": {},
            "dynamic_batching": dynamic,
        });
        assert_eq!(merged, expected);
        for (most, expected) in [(0, json!([])), (8, json!([8]))] {
            let new =
                json!({ "max_batch_size": most, "sequence_batching": { "oldest": { "preferred_batch_size": [] } } });
            let merged: Value = json::read(&merge(CURRENT, &new.to_string()).expect("merged")).expect("JSON");
            assert_eq!(merged["sequence_batching"]["oldest"]["preferred_batch_size"], expected);
        }
    }

    #[test]
    fn a_configuration_without_inputs_empties_them_and_garbage_is_refused() {
        let merged = merge(CURRENT, "{}").expect("merged");
        let merged: Value = json::read(&merged).expect("JSON");
        assert_eq!((&merged["input"], &merged["output"]), (&json!([]), &json!([])));
        for bad in [
            "[]",
            "",
            "{\"a\":",
            r#"{"max_batch_size":"many"}"#,
            r#"{"input":7}"#,
            r#"{"input":[7]}"#,
            r#"{"unknown":1}"#,
        ] {
            assert!(merge(CURRENT, bad).is_err(), "{bad}");
        }
    }
}
