//! Checks a configuration's tensors against those that a backend expects, with Triton's texts (backends-native.md 11).

use protocol::pb::inference::{ModelConfig, model_instance_group::Kind};
use tensor::{DataType, Error, Result, ShapeDisplay};

pub(crate) struct ConfigTensor<'a> {
    pub(crate) name: &'a str,
    datatype: i32,
    pub(crate) dims: &'a [i64],
}

impl ConfigTensor<'_> {
    pub(crate) fn is(&self, datatype: DataType) -> bool {
        self.datatype == datatype as i32
    }
}

const ORDINALS: [&str; 3] = ["first", "second", "third"];

pub(crate) fn inputs(config: &ModelConfig) -> Vec<ConfigTensor<'_>> {
    config.input.iter().map(|t| ConfigTensor { name: &t.name, datatype: t.data_type, dims: &t.dims }).collect()
}

pub(crate) fn outputs(config: &ModelConfig) -> Vec<ConfigTensor<'_>> {
    config.output.iter().map(|t| ConfigTensor { name: &t.name, datatype: t.data_type, dims: &t.dims }).collect()
}

/// Checks number and names; `what` is `input` or `output`.
pub(crate) fn check_names(what: &str, given: &[ConfigTensor<'_>], expected: &[&str]) -> Result<()> {
    if given.len() != expected.len() {
        let plural = if expected.len() == 1 { "" } else { "s" };
        return Err(Error::invalid(format!("expected {} {what}{plural}, got {}", expected.len(), given.len())));
    }
    for ((tensor, name), ordinal) in given.iter().zip(expected).zip(ORDINALS) {
        if tensor.name != *name {
            return Err(Error::invalid(format!(
                "expected {ordinal} {what} tensor name to be {name}, got {}",
                tensor.name
            )));
        }
    }
    Ok(())
}

pub(crate) fn check_scalar(tensor: &ConfigTensor<'_>) -> Result<()> {
    if *tensor.dims == [1] {
        return Ok(());
    }
    Err(Error::invalid(format!("expected {} shape to be [1], got {}", tensor.name, ShapeDisplay(tensor.dims))))
}

pub(crate) fn check_datatype(tensor: &ConfigTensor<'_>, expected: DataType) -> Result<()> {
    if tensor.datatype == expected as i32 {
        return Ok(());
    }
    let got = DataType::from_number(tensor.datatype).map_or("TYPE_INVALID", DataType::config_name);
    Err(Error::invalid(format!("expected {} datatype to be {}, got {got}", tensor.name, expected.name())))
}

pub(crate) fn check_cpu(backend: &str, config: &ModelConfig) -> Result<()> {
    if config.instance_group.iter().any(|g| matches!(g.kind(), Kind::Gpu | Kind::Model)) {
        return Err(Error::invalid(format!("'{backend}' backend only supports CPU instances")));
    }
    Ok(())
}
