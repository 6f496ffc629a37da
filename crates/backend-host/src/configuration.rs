//! The effect of `TRITONBACKEND_ModelSetConfig` on a configuration. Pure.
//!
//! Triton parses the text as `inference.ModelConfig` and takes over five members; reading the configuration again gives
//! all defaults. Here the members are filled from templates, so that a library finds what it expects in either.

use protocol::json::{Value, write_string};
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
/// If `new` is no configuration.
pub(crate) fn merge(current: &str, new: &str) -> Result<String> {
    let current = Value::parse(current.as_bytes())?;
    let new = Value::parse(new.as_bytes()).map_err(|error| Error::internal(error.message().to_owned()))?;
    check(current, new)?;
    let mut json = vec![b'{'];
    let mut taken = [false; TAKEN.len()];
    for member in current.members()? {
        let (key, value) = member;
        let key = String::from_utf8_lossy(&key.decode()).into_owned();
        match TAKEN.iter().position(|(name, _)| *name == key) {
            Some(at) => {
                taken[at] = true;
                write(&mut json, new, at)?;
            }
            None => put(&mut json, &key, value.text()),
        }
    }
    for at in (0..TAKEN.len()).filter(|at| !taken[*at]) {
        write(&mut json, new, at)?;
    }
    json.push(b'}');
    String::from_utf8(json).map_err(|_| Error::internal("a model configuration is not UTF-8"))
}

/// Checks the names of all members, as the parser of protobuf does.
fn check(current: Value<'_>, new: Value<'_>) -> Result<()> {
    if !new.is_object() {
        return Err(Error::invalid("a model configuration is a JSON object"));
    }
    for (key, _) in new.members()? {
        let key = String::from_utf8_lossy(&key.decode()).into_owned();
        let is_known = |name: &str| name == key || camel(name) == key;
        let mut known = current.members()?.map(|(name, _)| String::from_utf8_lossy(&name.decode()).into_owned());
        if !known.any(|name| is_known(&name)) && !OTHERS.iter().any(|name| is_known(name)) {
            return Err(Error::invalid(format!("{key}: Cannot find field.")));
        }
    }
    Ok(())
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

fn put(json: &mut Vec<u8>, key: &str, value: &[u8]) {
    if json.last() != Some(&b'{') {
        json.push(b',');
    }
    write_string(json, key.as_bytes());
    json.push(b':');
    json.extend_from_slice(value);
}

/// Writes a member of `new` with its defaults.
fn write(json: &mut Vec<u8>, new: Value<'_>, at: usize) -> Result<()> {
    let (name, default) = TAKEN[at];
    let Some(value) = get(new, name) else {
        if !default.is_empty() {
            put(json, name, default.as_bytes());
        }
        return Ok(());
    };
    let text = match name {
        "max_batch_size" => number(value)?,
        "input" => list(value, INPUT)?,
        "output" => list(value, OUTPUT)?,
        "dynamic_batching" => preferred(&filled(value, DYNAMIC)?, new)?,
        "model_transaction_policy" => filled(value, &[("decoupled", "false")])?,
        _ => preferred(&String::from_utf8_lossy(value.text()), new)?,
    };
    put(json, name, text.as_bytes());
    Ok(())
}

/// A batcher of `new` in which empty preferred sizes are the largest batch, as everywhere in Triton.
fn preferred(batcher: &str, new: Value<'_>) -> Result<String> {
    let most = get(new, "max_batch_size").map(number).transpose()?.filter(|most| most != "0").unwrap_or_default();
    Ok(batcher.replacen(r#""preferred_batch_size":[]"#, &format!(r#""preferred_batch_size":[{most}]"#), 1))
}

/// A member by its name in the protocol, or in camel case, which JSON of protobuf may have.
fn get<'a>(of: Value<'a>, name: &str) -> Option<Value<'a>> {
    of.get(name).or_else(|| of.get(&camel(name)))
}

/// An int32, which JSON of protobuf may have as a text.
fn number(value: Value<'_>) -> Result<String> {
    let text = if value.is_string() { value.as_string()? } else { value.as_i64()?.to_string() };
    let number: i32 = text
        .parse()
        .map_err(|_| Error::invalid(format!("(max_batch_size): invalid value \"{text}\" for type TYPE_INT32")))?;
    Ok(number.to_string())
}

fn list(value: Value<'_>, template: &[(&str, &str)]) -> Result<String> {
    let mut json = String::from("[");
    for element in value.elements()? {
        if json.len() > 1 {
            json.push(',');
        }
        json.push_str(&filled(element, template)?);
    }
    json.push(']');
    Ok(json)
}

/// The members of an object that its template knows, in the template's order.
fn filled(value: Value<'_>, template: &[(&str, &str)]) -> Result<String> {
    if !value.is_object() {
        return Err(Error::invalid("a model configuration has a value where an object belongs"));
    }
    let mut json = vec![b'{'];
    for (name, default) in template {
        match get(value, name) {
            Some(found) if *name == "dims" => put(&mut json, name, dims(found)?.as_bytes()),
            Some(found) if *name == "data_type" => {
                check_datatype(found)?;
                put(&mut json, name, found.text());
            }
            Some(found) => put(&mut json, name, found.text()),
            None if default.is_empty() => {}
            None => put(&mut json, name, default.as_bytes()),
        }
    }
    json.push(b'}');
    String::from_utf8(json).map_err(|_| Error::internal("a model configuration is not UTF-8"))
}

fn check_datatype(value: Value<'_>) -> Result<()> {
    let name = value.as_string()?;
    let known = name.strip_prefix("TYPE_").is_some_and(|name| {
        matches!(name, "STRING" | "INVALID") || (name != "BYTES" && DataType::from_name(name).is_some())
    });
    if known {
        Ok(())
    } else {
        Err(Error::invalid(format!("(data_type): invalid value \"{name}\" for type TYPE_ENUM")))
    }
}

/// Dimensions as numbers: JSON of protobuf has int64 as texts.
fn dims(value: Value<'_>) -> Result<String> {
    let one = |dim: Value<'_>| {
        if !dim.is_string() {
            return dim.as_i64();
        }
        let text = dim.as_string()?;
        text.parse::<i64>().map_err(|_| Error::invalid(format!("dimension '{text}' is no number")))
    };
    let all: Vec<i64> = value.elements()?.map(one).collect::<Result<_>>()?;
    Ok(format!("{all:?}").replace(' ', ""))
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
        assert!(
            merged.starts_with(r#"{"name":"m","backend":"b","max_batch_size":8,"input":[{"name":"X","#),
            "{merged}"
        );
        let kept = r#""dims":[2,-1],"is_shape_tensor":false,"allow_ragged_batch":false,"optional":false"#;
        let filled = r#""dynamic_batching":{"preferred_batch_size":[8],"max_queue_delay_microseconds":0,"#;
        for part in [kept, filled, r#""output":[],"parameters":{}"#] {
            assert!(merged.contains(part), "{part} in {merged}");
        }
        assert!(!merged.contains("model_transaction_policy"), "{merged}");
        let sequences = r#""sequence_batching":{"oldest":{"preferred_batch_size":[]}}"#;
        for (most, expected) in [(0, "[]"), (8, "[8]")] {
            let merged = merge(CURRENT, &format!(r#"{{"max_batch_size":{most},{sequences}}}"#)).expect("merged");
            assert!(merged.contains(&sequences.replace("[]", expected)), "{merged}");
        }
    }

    #[test]
    fn a_configuration_without_inputs_empties_them_and_garbage_is_refused() {
        let merged = merge(CURRENT, "{}").expect("merged");
        assert!(merged.contains(r#""input":[],"output":[]"#), "{merged}");
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
