//! Runs a model's `model_warmup` samples on every instance before it serves.
//!
//! Samples run on their instance without the scheduler, and count like ordinary executions.

use crate::data_file::{self, Want};
use crate::limits::{WARMUP_BATCH_SIZE_MAX, WARMUP_BYTES_MAX, WARMUP_ERRORS_MAX, WARMUP_MEMORY_WAIT};
use crate::version::ModelVersion;
use bytes::Bytes;
use memory::{Budget, Charge, Kind};
use protocol::check::IdPrefix;
use protocol::pb::inference::model_warmup::Input;
use protocol::pb::inference::model_warmup::input::InputDataType;
use protocol::pb::inference::{ModelConfig, ModelWarmup};
use protocol::{InferRequest, InputSpec, InputTensor, Signature};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tensor::{DataType, Error, Name, Result, Shape, ShapeDisplay, element_count};

/// Runs every sample in the order of the configuration, `count` times on each of these instances.
///
/// # Errors
/// INVALID_ARG with the first sample that cannot be made or run; later ones do not run.
pub(crate) fn run(
    version: &ModelVersion,
    config: &ModelConfig,
    model_directory: &Path,
    instances: &[(u32, String)],
) -> Result<()> {
    let signature = match &version.scheduling.sequencing {
        Some(sequencing) => &Arc::new(sequencing.seen_by_warmup(&version.signature)),
        None => &version.signature,
    };
    // The last instance first: Triton's loader names it when all of them fail alike.
    for &(instance, ref instance_name) in instances.iter().rev() {
        for sample in &config.model_warmup {
            if sample.batch_size == 0 {
                log::debug!("skipping batch 0 warmup sample '{}'", sample.name);
                continue;
            }
            let rows_max = version.signature.max_batch_size.max(1);
            let failed =
                |errors: &str| Error::invalid(format!("failed to run warmup sample '{}': {errors}", sample.name));
            if sample.batch_size > rows_max {
                let one =
                    format!("batch size {} for '{instance_name}', max allowed is {rows_max}; ", sample.batch_size);
                return Err(failed(&joined(sample.batch_size as usize, std::iter::repeat(one))));
            }
            let bytes = check_size(version, sample)?;
            let mut charge = Budget::global().account().empty(Kind::Body, false);
            grow(&mut charge, version, sample, bytes)?;
            let inputs = sample
                .inputs
                .iter()
                .map(|(name, input)| tensor(signature, name, input, model_directory))
                .collect::<Result<Vec<_>>>()?;
            // Files of strings have any length.
            let one: usize = inputs.iter().map(|(.., data)| data.len()).sum();
            grow(&mut charge, version, sample, (one as u64).saturating_mul(sample.batch_size.into()))?;
            for iteration in 0..sample.count.max(1) {
                log::debug!(
                    "model '{}' instance {instance_name} is running warmup sample '{}' for iteration {iteration}",
                    version.signature.model,
                    sample.name
                );
                if version.is_stopping() {
                    return Err(Error::unavailable("Server exiting"));
                }
                // `batch_size` is the number of separate requests of one row, executed together.
                let requests = (0..sample.batch_size).map(|_| request(&inputs)).collect();
                let errors = version.execute_now(instance, signature, requests)?;
                if !errors.is_empty() {
                    let texts = errors.iter().map(|e| format!("{}; ", e.message()));
                    return Err(failed(&joined(errors.len(), texts)));
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
    let size = byte_size(name, input, datatype)? as usize;
    let data = match &input.input_data_type {
        Some(InputDataType::ZeroData(_)) => zeros(name, size)?,
        Some(InputDataType::RandomData(_)) if datatype == DataType::Bytes => zeros(name, size)?,
        Some(InputDataType::RandomData(_)) => random(zeros(name, size)?),
        Some(InputDataType::InputDataFile(file)) => from_file(directory, file, size, datatype)?,
        None => {
            return Err(Error::invalid(format!(
                "{}warmup setting expects input '{name}' to have input_data_type set",
                IdPrefix("")
            )));
        }
    };
    let mut shape = Shape::from_slice(&input.dims);
    if signature.batches() {
        // Triton adds the batch dimension to controls and states, too; a sample with its own one means the same.
        let given = |spec: &InputSpec| spec.optional && shape.len() == spec.dims.len() + 1;
        if signature.inputs.iter().find(|i| i.name == *name).is_some_and(|spec| !given(spec)) {
            shape.insert(0, 1);
        }
    }
    Ok((Name::from(name), datatype, shape, data.into()))
}

/// Bytes of the tensor of one request; for a file of strings the minimum.
fn byte_size(name: &str, input: &Input, datatype: DataType) -> Result<u64> {
    if input.dims.iter().any(|&d| d < 0) {
        return Err(Error::invalid(format!(
            "warmup setting expects all variable-size dimensions are specified for input '{name}'"
        )));
    }
    // An empty string has four bytes.
    let of_element = datatype.byte_size().unwrap_or(4) as u64;
    let bytes = element_count(&input.dims).and_then(|n| (n as u64).checked_mul(of_element));
    bytes.filter(|&n| n <= WARMUP_BYTES_MAX).ok_or_else(|| {
        Error::invalid(format!(
            "warmup setting for input '{name}' has {} elements of {}: at most {WARMUP_BYTES_MAX} bytes are \
             supported",
            ShapeDisplay(&input.dims),
            datatype.config_name()
        ))
    })
}

/// Interval of attempts to get memory that requests use.
const ASK_INTERVAL: Duration = Duration::from_millis(20);

/// Charges the memory of all requests of the sample; waits for a while if requests use that memory.
#[expect(clippy::disallowed_methods, reason = "warm-up is not a request, which could wait in line for memory")]
fn grow(charge: &mut Charge, version: &ModelVersion, sample: &ModelWarmup, bytes: u64) -> Result<()> {
    let (model, name) = (&version.signature.model, &sample.name);
    let most = charge.account().most() as u64;
    if bytes > most {
        return Err(Error::invalid(format!(
            "warmup sample '{name}' of model '{model}' needs {bytes} bytes: at most {most} bytes are supported, a \
             quarter of --memory-limit, {}",
            Budget::global().limit()
        )));
    }
    let more = bytes.saturating_sub(charge.bytes() as u64) as usize;
    let until = Instant::now() + WARMUP_MEMORY_WAIT;
    while let Err(short) = charge.grow(more) {
        if Instant::now() >= until {
            charge.account().count_refusal();
            return Err(Error::environment(format!(
                "warmup sample '{name}' of model '{model}' needs {bytes} bytes: {short}"
            )));
        }
        std::thread::sleep(ASK_INTERVAL);
    }
    Ok(())
}

/// Checks the size of a sample. Returns the bytes of all its requests; for files of strings the minimum.
fn check_size(version: &ModelVersion, sample: &ModelWarmup) -> Result<u64> {
    let (model, name, batch) = (&version.signature.model, &sample.name, sample.batch_size);
    if batch > WARMUP_BATCH_SIZE_MAX {
        return Err(Error::invalid(format!(
            "the batch_size of warmup sample '{name}' of model '{model}' is {batch}: at most {WARMUP_BATCH_SIZE_MAX} \
             is supported"
        )));
    }
    let mut bytes = 0u64;
    for (input_name, input) in &sample.inputs {
        let Some(datatype) = DataType::from_number(input.data_type) else { continue };
        bytes = bytes.saturating_add(byte_size(input_name, input, datatype)?);
    }
    let all = bytes.saturating_mul(batch.into());
    if all > WARMUP_BYTES_MAX {
        return Err(Error::invalid(format!(
            "warmup sample '{name}' of model '{model}' needs {all} bytes, {batch} times {bytes}: at most \
             {WARMUP_BYTES_MAX} are supported"
        )));
    }
    Ok(all)
}

/// The first errors, and the number of further ones.
fn joined(count: usize, errors: impl Iterator<Item = String>) -> String {
    let mut all: String = errors.take(count.min(WARMUP_ERRORS_MAX)).collect();
    if count > WARMUP_ERRORS_MAX {
        all.push_str(&format!("and {} more; ", count - WARMUP_ERRORS_MAX));
    }
    all
}

fn from_file(directory: &Path, file: &str, size: usize, datatype: DataType) -> Result<Vec<u8>> {
    // Strings use the whole file; other datatypes as much as the shape needs.
    let want = match datatype {
        DataType::Bytes => Want::All { bytes_max: WARMUP_BYTES_MAX.min(Budget::global().account().most() as u64) },
        _ => Want::AtMost(size),
    };
    let data = data_file::read(directory, "warmup", file, want)?;
    if data.len() < size {
        return Err(Error::invalid(format!(
            "{}warmup setting expects {size} bytes, but the data provided from {}only has {} bytes",
            IdPrefix(""),
            data_file::path(directory, "warmup", file).display(),
            data.len()
        )));
    }
    Ok(data)
}

fn zeros(name: &str, size: usize) -> Result<Vec<u8>> {
    let mut data = Vec::new();
    data_file::reserve(&mut data, size, || format!("warmup input '{name}'"))?;
    data.resize(size, 0);
    Ok(data)
}

/// Any bytes are fine; the same ones each time make loads repeatable.
fn random(mut data: Vec<u8>) -> Vec<u8> {
    let mut state = 0x9E37_79B9_7F4A_7C15u64;
    for byte in &mut data {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        *byte = (state >> 32) as u8;
    }
    data
}
