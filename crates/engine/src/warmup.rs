//! Runs a model's `model_warmup` samples on every instance before it serves.
//!
//! Samples go straight to the instance, past the scheduler; they are counted like ordinary executions.

use crate::version::ModelVersion;
use bytes::Bytes;
use protocol::check::IdPrefix;
use protocol::pb::inference::ModelConfig;
use protocol::pb::inference::model_warmup::Input;
use protocol::pb::inference::model_warmup::input::InputDataType;
use protocol::{InferRequest, InputTensor, Signature};
use std::path::Path;
use tensor::{DataType, Error, Name, Result, Shape, element_count};

/// Runs every sample in the order of the configuration, `count` times on each instance.
///
/// # Errors
/// INVALID_ARG with the first sample that cannot be made or run; later ones are not tried.
pub(crate) fn run(
    version: &ModelVersion,
    config: &ModelConfig,
    model_directory: &Path,
    instances: &[String],
) -> Result<()> {
    // The last instance first: it is the one Triton's loader names when all of them fail alike.
    for (instance, instance_name) in instances.iter().enumerate().rev() {
        let instance = instance as u32;
        for sample in &config.model_warmup {
            if sample.batch_size == 0 {
                log::debug!("skipping batch 0 warmup sample '{}'", sample.name);
                continue;
            }
            let inputs = sample
                .inputs
                .iter()
                .map(|(name, input)| tensor(&version.signature, name, input, model_directory))
                .collect::<Result<Vec<_>>>()?;
            let rows_max = version.signature.max_batch_size.max(1);
            if sample.batch_size > rows_max {
                let one =
                    format!("batch size {} for '{instance_name}', max allowed is {rows_max}; ", sample.batch_size);
                let all = one.repeat(sample.batch_size as usize);
                return Err(Error::invalid(format!("failed to run warmup sample '{}': {all}", sample.name)));
            }
            for iteration in 0..sample.count.max(1) {
                log::debug!(
                    "model '{}' instance {instance_name} is running warmup sample '{}' for iteration {iteration}",
                    version.signature.model,
                    sample.name
                );
                // `batch_size` is the number of separate requests of one row, executed together.
                let requests = (0..sample.batch_size).map(|_| request(&inputs)).collect();
                let errors = version.execute_now(instance, requests)?;
                if !errors.is_empty() {
                    let all: String = errors.iter().map(|e| format!("{}; ", e.message())).collect();
                    return Err(Error::invalid(format!("failed to run warmup sample '{}': {all}", sample.name)));
                }
            }
        }
    }
    Ok(())
}

fn request(inputs: &[(Name, DataType, Shape, Bytes)]) -> InferRequest {
    let tensor = |(name, datatype, shape, data): &(Name, DataType, Shape, Bytes)| InputTensor {
        name: name.clone(),
        datatype: Some(*datatype),
        shape: shape.clone(),
        data: data.clone().into(),
    };
    InferRequest { inputs: inputs.iter().map(tensor).collect(), ..InferRequest::default() }
}

fn tensor(
    signature: &Signature,
    name: &str,
    input: &Input,
    directory: &Path,
) -> Result<(Name, DataType, Shape, Bytes)> {
    let datatype = DataType::from_number(input.data_type)
        .ok_or_else(|| Error::invalid(format!("warmup setting expects input '{name}' to have data_type set")))?;
    let elements = element_count(&input.dims).ok_or_else(|| {
        Error::invalid(format!("warmup setting expects all variable-size dimensions are specified for input '{name}'"))
    })? as usize;
    // Strings of zero length are four bytes each.
    let size = elements.saturating_mul(datatype.byte_size().unwrap_or(4));
    let data = match &input.input_data_type {
        Some(InputDataType::ZeroData(_)) => vec![0; size],
        Some(InputDataType::RandomData(_)) if datatype == DataType::Bytes => vec![0; size],
        Some(InputDataType::RandomData(_)) => random(size),
        Some(InputDataType::InputDataFile(file)) => from_file(&directory.join("warmup").join(file), size, datatype)?,
        None => {
            return Err(Error::invalid(format!(
                "{}warmup setting expects input '{name}' to have input_data_type set",
                IdPrefix("")
            )));
        }
    };
    let mut shape = Shape::from_slice(&input.dims);
    if signature.max_batch_size > 0 && signature.inputs.iter().any(|i| i.name == *name) {
        shape.insert(0, 1);
    }
    Ok((Name::from(name), datatype, shape, data.into()))
}

fn from_file(path: &Path, size: usize, datatype: DataType) -> Result<Vec<u8>> {
    let data = std::fs::read(path).map_err(|_| {
        Error::internal(format!("failed to open text file for read {}: No such file or directory", path.display()))
    })?;
    if data.len() < size {
        return Err(Error::invalid(format!(
            "{}warmup setting expects {size} bytes, but the data provided from {}only has {} bytes",
            IdPrefix(""),
            path.display(),
            data.len()
        )));
    }
    // Strings use the whole file; anything else as much as the shape holds.
    Ok(if datatype == DataType::Bytes { data } else { data[..size].to_vec() })
}

/// Any bytes will do; the same ones every time make a load repeatable.
fn random(size: usize) -> Vec<u8> {
    let mut state = 0x9E37_79B9_7F4A_7C15u64;
    (0..size)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 32) as u8
        })
        .collect()
}
