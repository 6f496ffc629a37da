//! Checks the configuration of an identity model in Triton's order and with its texts (backends-native.md 11.1).

use protocol::pb::inference::{ModelConfig, ModelInput, ModelOutput, model_instance_group::Kind};
use std::time::Duration;
use tensor::{DataType, Error, Result, ShapeDisplay};

/// Delays from the parameters of a model.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Delays {
    /// Delay before the model is ready.
    pub(crate) creation: Duration,
    /// Delay of every execution.
    pub(crate) execute: Duration,
    /// Factor, multiplied by the instance's index, at least 1.
    pub(crate) instance_wise: u32,
}

pub(crate) fn check(config: &ModelConfig) -> Result<()> {
    if config.instance_group.iter().any(|g| matches!(g.kind(), Kind::Gpu | Kind::Model)) {
        return Err(Error::invalid("'identity' backend only supports CPU instances"));
    }
    if config.input.len() != config.output.len() {
        return Err(Error::invalid("model configuration must have equal input/output pairs"));
    }
    for input in &config.input {
        suffix(&input.name, "INPUT").ok_or_else(|| pattern("input", "INPUT", &input.name))?;
    }
    for output in &config.output {
        let index = suffix(&output.name, "OUTPUT").ok_or_else(|| pattern("output", "OUTPUT", &output.name))?;
        let Some(input) = config.input.iter().find(|i| suffix(&i.name, "INPUT") == Some(index)) else {
            return Err(Error::invalid("expected input and output indices to match"));
        };
        check_pair(input, output)?;
    }
    Ok(())
}

fn check_pair(input: &ModelInput, output: &ModelOutput) -> Result<()> {
    if input.data_type != output.data_type {
        let name = |n| DataType::from_number(n).map_or("TYPE_INVALID", DataType::config_name);
        return Err(Error::invalid(format!(
            "expected input and output datatype to match, got {} and {}",
            name(input.data_type),
            name(output.data_type)
        )));
    }
    let seen = |dims: &[i64], reshape: Option<&[i64]>| reshape.unwrap_or(dims).to_vec();
    let from = seen(&input.dims, input.reshape.as_ref().map(|r| &r.shape[..]));
    let to = seen(&output.dims, output.reshape.as_ref().map(|r| &r.shape[..]));
    if from != to {
        return Err(Error::invalid(format!(
            "expected input and output shape to match, got {} and {}",
            ShapeDisplay(&from),
            ShapeDisplay(&to)
        )));
    }
    Ok(())
}

fn pattern(what: &str, prefix: &str, name: &str) -> Error {
    Error::invalid(format!("expected {what} name to follow {prefix}<index> pattern, got '{name}'"))
}

/// The part after the prefix; `INPUT` has an empty suffix and belongs to `OUTPUT`.
pub(crate) fn suffix<'a>(name: &'a str, prefix: &str) -> Option<&'a str> {
    name.strip_prefix(prefix)
}

/// # Errors
/// INVALID_ARG when a parameter is not a number.
pub(crate) fn delays(config: &ModelConfig) -> Result<Delays> {
    let number = |key: &str| match config.parameters.get(key).map(|p| p.string_value.trim()) {
        None => Ok(0),
        Some(text) => text.parse::<u32>().map_err(|_| {
            Error::invalid(format!("failed to convert '{text}' to integral number for parameter '{key}'"))
        }),
    };
    Ok(Delays {
        creation: Duration::from_secs(number("creation_delay_sec")?.into()),
        execute: Duration::from_millis(number("execute_delay_ms")?.into()),
        instance_wise: number("instance_wise_delay_multiplier")?,
    })
}

impl Delays {
    /// Delay of an execution on that instance.
    pub(crate) fn of_instance(&self, instance: u32) -> Duration {
        self.execute.saturating_mul(self.instance_wise.saturating_mul(instance).max(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use protocol::pb::inference::{ModelInstanceGroup, ModelParameter, ModelTensorReshape};

    fn config(inputs: &[(&str, DataType, &[i64])], outputs: &[(&str, DataType, &[i64])]) -> ModelConfig {
        let input = |&(name, t, dims): &(&str, DataType, &[i64])| ModelInput {
            name: name.into(),
            data_type: t as i32,
            dims: dims.to_vec(),
            ..Default::default()
        };
        let output = |&(name, t, dims): &(&str, DataType, &[i64])| ModelOutput {
            name: name.into(),
            data_type: t as i32,
            dims: dims.to_vec(),
            ..Default::default()
        };
        ModelConfig {
            input: inputs.iter().map(input).collect(),
            output: outputs.iter().map(output).collect(),
            ..ModelConfig::default()
        }
    }

    fn refused(config: &ModelConfig, text: &'static str) {
        assert_eq!(check(config), Err(Error::invalid(text)));
    }

    #[test]
    fn invalid_configurations_are_rejected_with_triton_s_texts() {
        const I: DataType = DataType::Int32;
        assert_eq!(
            check(&config(
                &[("INPUT0", I, &[1]), ("INPUT7", I, &[-1])],
                &[("OUTPUT7", I, &[-1]), ("OUTPUT0", I, &[1])]
            )),
            Ok(())
        );
        refused(
            &config(&[("A", I, &[1])], &[("B", I, &[1])]),
            "expected input name to follow INPUT<index> pattern, got 'A'",
        );
        refused(
            &config(&[("INPUT0", I, &[1])], &[("B", I, &[1])]),
            "expected output name to follow OUTPUT<index> pattern, got 'B'",
        );
        refused(&config(&[("INPUT0", I, &[1])], &[]), "model configuration must have equal input/output pairs");
        refused(&config(&[("INPUT0", I, &[1])], &[("OUTPUT1", I, &[1])]), "expected input and output indices to match");
        refused(
            &config(&[("INPUT0", I, &[1])], &[("OUTPUT0", DataType::Fp32, &[1])]),
            "expected input and output datatype to match, got TYPE_INT32 and TYPE_FP32",
        );
        refused(
            &config(&[("INPUT0", I, &[1])], &[("OUTPUT0", I, &[2])]),
            "expected input and output shape to match, got [1] and [2]",
        );
        let mut reshaped = config(&[("INPUT0", I, &[2, 2])], &[("OUTPUT0", I, &[4])]);
        reshaped.input[0].reshape = Some(ModelTensorReshape { shape: vec![4] });
        assert_eq!(check(&reshaped), Ok(()));
        let mut gpu = config(&[], &[]);
        gpu.instance_group.push(ModelInstanceGroup { kind: Kind::Gpu as i32, ..Default::default() });
        refused(&gpu, "'identity' backend only supports CPU instances");
    }

    #[test]
    fn delays_grow_with_the_instance() {
        let mut c = config(&[], &[]);
        let mut set = |k: &str, v: &str| c.parameters.insert(k.into(), ModelParameter { string_value: v.into() });
        set("execute_delay_ms", "100");
        set("instance_wise_delay_multiplier", "3");
        let d = delays(&c).unwrap_or_default();
        assert_eq!([0, 1, 2].map(|i| d.of_instance(i).as_millis()), [100, 300, 600]);
        c.parameters.insert("execute_delay_ms".into(), ModelParameter { string_value: "soon".into() });
        assert!(delays(&c).is_err());
    }
}
