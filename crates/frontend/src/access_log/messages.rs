//! What messages of gRPC name: the models and regions that lines are about.

use super::line::Line;
use crate::limits::LOG_NAME_BYTES_MAX;
use crate::table::Operation;
use prost::Message;
use protocol::pb::inference as pb;

/// Names in a message; empty ones are not there.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Names {
    /// Model.
    pub model: String,
    /// Its version.
    pub version: String,
    /// Region of shared memory.
    pub region: String,
}

/// Those of a small message; none of what cannot be read.
pub fn names(operation: Operation, message: &[u8]) -> Names {
    read(operation, message).unwrap_or_default()
}

/// Those of a message that is too long to be read here and now.
#[derive(Debug, Clone, Copy)]
pub struct LazyNames(Option<Operation>);

impl LazyNames {
    /// Of a call.
    pub fn of(operation: Operation) -> Self {
        Self(Some(operation))
    }

    /// What is asked for has said its names already.
    pub fn none() -> Self {
        Self(None)
    }

    /// Writes them.
    pub fn put(self, message: &[u8], line: &mut Line<'_>) {
        if let Some(operation) = self.0 {
            names(operation, message).put(line);
        }
    }
}

impl Names {
    /// Writes those that are there.
    pub fn put(&self, line: &mut Line<'_>) {
        for (key, name) in [("model", &self.model), ("version", &self.version), ("region", &self.region)] {
            if !name.is_empty() {
                line.text(key, name.as_bytes(), LOG_NAME_BYTES_MAX);
            }
        }
    }
}

fn read(operation: Operation, message: &[u8]) -> Result<Names, prost::DecodeError> {
    let model = |model: String, version: String| Names { model, version, region: String::new() };
    let region = |region: String| Names { region, ..Names::default() };
    Ok(match operation {
        Operation::ModelReady => pb::ModelReadyRequest::decode(message).map(|r| model(r.name, r.version))?,
        Operation::ModelMetadata => pb::ModelMetadataRequest::decode(message).map(|r| model(r.name, r.version))?,
        Operation::ModelConfig => pb::ModelConfigRequest::decode(message).map(|r| model(r.name, r.version))?,
        Operation::ModelStatistics => pb::ModelStatisticsRequest::decode(message).map(|r| model(r.name, r.version))?,
        Operation::Load => {
            pb::RepositoryModelLoadRequest::decode(message).map(|r| model(r.model_name, String::new()))?
        }
        Operation::Unload => {
            pb::RepositoryModelUnloadRequest::decode(message).map(|r| model(r.model_name, String::new()))?
        }
        Operation::TraceSettings => {
            pb::TraceSettingRequest::decode(message).map(|r| model(r.model_name, String::new()))?
        }
        Operation::SystemRegionStatus => {
            pb::SystemSharedMemoryStatusRequest::decode(message).map(|r| region(r.name))?
        }
        Operation::SystemRegionRegister => {
            pb::SystemSharedMemoryRegisterRequest::decode(message).map(|r| region(r.name))?
        }
        Operation::SystemRegionUnregister => {
            pb::SystemSharedMemoryUnregisterRequest::decode(message).map(|r| region(r.name))?
        }
        Operation::CudaRegionStatus => pb::CudaSharedMemoryStatusRequest::decode(message).map(|r| region(r.name))?,
        Operation::CudaRegionRegister => {
            pb::CudaSharedMemoryRegisterRequest::decode(message).map(|r| region(r.name))?
        }
        Operation::CudaRegionUnregister => {
            pb::CudaSharedMemoryUnregisterRequest::decode(message).map(|r| region(r.name))?
        }
        _ => Names::default(),
    })
}
