//! The parameters `nereid.padding.TENSOR` of a configuration. A value is the tensor's `dims` with a name in place of
//! each padded `-1`, and for an input the padding value, 0 by default:
//!
//! ```text
//! parameters { key: "nereid.padding.input_ids"         value { string_value: "[tokens] value=1" } }
//! parameters { key: "nereid.padding.attention_mask"    value { string_value: "[tokens]" } }
//! parameters { key: "nereid.padding.last_hidden_state" value { string_value: "[tokens,384]" } }
//! ```
//!
//! Triton passes parameters to backends without reading them, so such a file loads there as well. An output with a
//! variable dimension must have a parameter, perhaps `[-1]`, because an output left out by mistake would stay padded.

use super::grammar::{element, names, parse};
use super::{PREFIX, Padded, Padding};
use protocol::Signature;
use protocol::pb::inference::ModelConfig;
use protocol::pb::inference::model_config::SchedulingChoice;
use scheduler::padding::PaddedTensor;
use smallvec::SmallVec;
use tensor::{Error, Result, ShapeDisplay};

/// Maximum number of named dimensions of a model, because the lengths of requests are compared with each other.
const PADDED_NAMES_MAX: usize = 8;

impl Padding {
    /// Reads a configuration; `None` if it has no such parameter.
    ///
    /// # Errors
    /// INVALID_ARG with the parameter, what was found and what to write.
    pub(crate) fn of(config: &ModelConfig, signature: &Signature) -> Result<Option<Self>> {
        let mut given: Vec<(&str, &str)> = config
            .parameters
            .iter()
            .filter(|(key, _)| key.starts_with(PREFIX))
            .map(|(key, value)| (key.as_str(), value.string_value.as_str()))
            .collect();
        given.sort_unstable();
        let Some(&(first, _)) = given.first() else { return Ok(None) };
        let model = &signature.model;
        may_be_padded(config, signature)
            .map_err(|why| Error::invalid(format!("model '{model}' has parameter '{first}', but {why}")))?;

        let mut padding = Self {
            inputs: signature.inputs.iter().map(|_| None).collect(),
            outputs: signature.outputs.iter().map(|_| None).collect(),
            schedule: scheduler::padding::Padding::default(),
            names: Vec::new(),
        };
        // Inputs name the dimensions that outputs refer to.
        for is_input in [true, false] {
            for &(key, text) in &given {
                let wrong =
                    |why: String| Error::invalid(format!("parameter '{key}' of model '{model}' is '{text}': {why}"));
                let tensor = key.strip_prefix(PREFIX).and_then(|rest| rest.strip_prefix('.')).unwrap_or("");
                let input = signature.inputs.iter().position(|i| &*i.name == tensor);
                let output = signature.outputs.iter().position(|o| &*o.name == tensor);
                if is_input {
                    if input.is_none() && output.is_none() {
                        return Err(wrong(unknown(tensor, signature)));
                    }
                    if let Some(at) = input {
                        padding.add_input(signature, at, text).map_err(wrong)?;
                    }
                } else if let Some(at) = output {
                    padding.add_output(signature, at, text, input.is_some()).map_err(wrong)?;
                }
            }
        }
        if padding.names.is_empty() {
            return Err(Error::invalid(format!(
                "the parameters '{PREFIX}.…' of model '{model}' name no dimension of an input: write the dims of each \
                 input that is padded with a name for each -1, for instance '[tokens]'"
            )));
        }
        for (spec, padded) in signature.outputs.iter().zip(&padding.outputs) {
            if padded.is_none() && spec.dims.contains(&-1) {
                return Err(Error::invalid(format!(
                    "output '{name}' of model '{model}' has dims {dims} and no parameter '{PREFIX}.{name}': write \
                     them with the name of each padded dimension in the place of its -1, for instance '{example}', or \
                     '{same}' when none of them is",
                    name = spec.name,
                    dims = ShapeDisplay(&spec.dims),
                    example = with_name(&spec.dims, padding.names.first().map_or("tokens", |n| n)),
                    same = ShapeDisplay(&spec.dims),
                )));
            }
        }
        Ok(Some(padding))
    }

    fn add_input(&mut self, signature: &Signature, at: usize, text: &str) -> Result<(), String> {
        let Some(spec) = signature.inputs.get(at) else { return Ok(()) };
        let parsed = parse(text).ok_or_else(|| form(&spec.dims))?;
        let named = names(&parsed, &spec.dims).ok_or_else(|| mismatch("input", &spec.name, &spec.dims))?;
        if named.iter().zip(&spec.dims).any(|(name, dim)| name.is_none() && *dim == -1) {
            return Err(format!(
                "each -1 of a padded input needs a name, for instance '{}'",
                with_name(&spec.dims, "tokens")
            ));
        }
        if spec.reshape.is_some() {
            return Err(format!("input '{}' has a reshape, and cannot be padded", spec.name));
        }
        if spec.allow_ragged_batch {
            return Err(format!(
                "input '{}' has allow_ragged_batch: requests of different lengths are either put behind each other or \
                 padded; remove one of the two",
                spec.name
            ));
        }
        let Some(size) = spec.datatype.byte_size() else {
            return Err(format!("input '{}' has data_type TYPE_STRING, and cannot be padded", spec.name));
        };
        let value = parsed.value.unwrap_or("0");
        let element = element(spec.datatype, value)
            .ok_or_else(|| format!("'{value}' is no value of data_type {}", spec.datatype.config_name()))?;
        let mut dims = SmallVec::new();
        for name in &named {
            let index = match name {
                None => None,
                Some(name) => {
                    let index = self.names.iter().position(|n| n == name).unwrap_or_else(|| {
                        self.names.push((*name).to_owned());
                        self.names.len() - 1
                    });
                    if index >= PADDED_NAMES_MAX {
                        return Err(format!("a model may have at most {PADDED_NAMES_MAX} names of padded dimensions"));
                    }
                    u8::try_from(index).ok()
                }
            };
            dims.push(index);
        }
        let fixed = spec.dims.iter().filter(|d| **d >= 0).map(|d| d.unsigned_abs());
        let tensor = PaddedTensor {
            bytes: fixed.fold(size as u64, u64::saturating_mul),
            dims: dims.iter().copied().flatten().collect(),
        };
        if !tensor.dims.is_empty() {
            self.schedule.tensors.push(tensor);
            set(&mut self.inputs, at, Padded { dims, element });
        }
        Ok(())
    }

    /// `is_both`: an input has the same name, and the value belongs to it.
    fn add_output(&mut self, signature: &Signature, at: usize, text: &str, is_both: bool) -> Result<(), String> {
        let Some(spec) = signature.outputs.get(at) else { return Ok(()) };
        let parsed = parse(text).ok_or_else(|| form(&spec.dims))?;
        let named = names(&parsed, &spec.dims).ok_or_else(|| mismatch("output", &spec.name, &spec.dims))?;
        if parsed.value.is_some() && !is_both {
            return Err(format!("output '{}' is not padded: remove 'value'", spec.name));
        }
        let mut dims = SmallVec::new();
        for name in named {
            let index = name.map(|name| {
                self.names.iter().position(|n| n == name).and_then(|i| u8::try_from(i).ok()).ok_or_else(|| {
                    format!("no padded input has a dimension '{name}'; names of inputs: {}", listed(&self.names))
                })
            });
            dims.push(index.transpose()?);
        }
        let is_padded = dims.iter().any(Option::is_some);
        if is_padded && spec.reshape.is_some() {
            return Err(format!("output '{}' has a reshape, and cannot be padded", spec.name));
        }
        if is_padded && spec.datatype.byte_size().is_none() {
            return Err(format!("output '{}' has data_type TYPE_STRING, and cannot be padded", spec.name));
        }
        set(&mut self.outputs, at, Padded { dims, element: SmallVec::new() });
        Ok(())
    }
}

fn set(all: &mut [Option<Padded>], at: usize, padded: Padded) {
    if let Some(place) = all.get_mut(at) {
        *place = Some(padded);
    }
}

/// Why requests of such a model cannot be padded.
fn may_be_padded(config: &ModelConfig, signature: &Signature) -> Result<(), String> {
    match &config.scheduling_choice {
        Some(SchedulingChoice::EnsembleScheduling(_)) => {
            return Err(
                "it is an ensemble, which runs nothing itself: give the parameter to the models it is made of".into()
            );
        }
        Some(SchedulingChoice::SequenceBatching(_)) => {
            return Err("it has sequence_batching, whose requests cannot be padded: remove one of the two".into());
        }
        Some(SchedulingChoice::DynamicBatching(_)) => {}
        None => return Err("its requests are not batched: add 'dynamic_batching { }', or remove the parameter".into()),
    }
    if signature.max_batch_size < 2 {
        return Err(format!(
            "its max_batch_size is {}: only requests that run together are padded, so it must be 2 or more",
            signature.max_batch_size
        ));
    }
    if signature.decoupled {
        return Err("it is decoupled: answers of such models cannot be un-padded".into());
    }
    if !config.batch_input.is_empty() || !config.batch_output.is_empty() {
        return Err("it has batch_input or batch_output, which belong to ragged batches: remove one of the two".into());
    }
    Ok(())
}

fn with_name(dims: &[i64], name: &str) -> String {
    let all: Vec<_> = dims.iter().map(|d| if *d == -1 { name.to_owned() } else { d.to_string() }).collect();
    format!("[{}]", all.join(","))
}

fn form(dims: &[i64]) -> String {
    format!(
        "expected the dims with a name for each that is padded, and perhaps a value, as in '{} value=0'",
        with_name(dims, "tokens")
    )
}

fn mismatch(what: &str, name: &str, dims: &[i64]) -> String {
    format!(
        "{what} '{name}' has dims {}: write them as they are, with names only in the place of -1, as in '{}'",
        ShapeDisplay(dims),
        with_name(dims, "tokens")
    )
}

fn unknown(tensor: &str, signature: &Signature) -> String {
    let inputs: Vec<_> = signature.inputs.iter().map(|i| i.name.to_string()).collect();
    let outputs: Vec<_> = signature.outputs.iter().map(|o| o.name.to_string()).collect();
    format!(
        "the model has no input or output '{tensor}'; the key is '{PREFIX}.' and the name of a tensor; inputs: {}; \
         outputs: {}",
        listed(&inputs),
        listed(&outputs)
    )
}

fn listed(names: &[String]) -> String {
    names.iter().map(|name| format!("'{name}'")).collect::<Vec<_>>().join(",")
}
