//! What messages of gRPC name: the models and regions that lines are about.

use super::line::Line;
use crate::grpc::Rpc;
use crate::limits::LOG_NAME_BYTES_MAX;
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
pub fn names(rpc: Rpc, message: &[u8]) -> Names {
    read(rpc, message).unwrap_or_default()
}

/// Those of a message that is too long to be read here and now.
#[derive(Debug, Clone, Copy)]
pub struct LazyNames(Option<Rpc>);

impl LazyNames {
    /// Of a call.
    pub fn of(rpc: Rpc) -> Self {
        Self(Some(rpc))
    }

    /// What is asked for has said its names already.
    pub fn none() -> Self {
        Self(None)
    }

    /// Writes them.
    pub fn put(self, message: &[u8], line: &mut Line<'_>) {
        if let Some(rpc) = self.0 {
            names(rpc, message).put(line);
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

fn read(rpc: Rpc, message: &[u8]) -> Result<Names, prost::DecodeError> {
    let model = |model: String, version: String| Names { model, version, region: String::new() };
    let region = |region: String| Names { region, ..Names::default() };
    Ok(match rpc {
        Rpc::ModelReady => pb::ModelReadyRequest::decode(message).map(|r| model(r.name, r.version))?,
        Rpc::ModelMetadata => pb::ModelMetadataRequest::decode(message).map(|r| model(r.name, r.version))?,
        Rpc::ModelConfig => pb::ModelConfigRequest::decode(message).map(|r| model(r.name, r.version))?,
        Rpc::ModelStatistics => pb::ModelStatisticsRequest::decode(message).map(|r| model(r.name, r.version))?,
        Rpc::RepositoryModelLoad => {
            pb::RepositoryModelLoadRequest::decode(message).map(|r| model(r.model_name, String::new()))?
        }
        Rpc::RepositoryModelUnload => {
            pb::RepositoryModelUnloadRequest::decode(message).map(|r| model(r.model_name, String::new()))?
        }
        Rpc::TraceSetting => pb::TraceSettingRequest::decode(message).map(|r| model(r.model_name, String::new()))?,
        Rpc::SystemSharedMemoryStatus => {
            pb::SystemSharedMemoryStatusRequest::decode(message).map(|r| region(r.name))?
        }
        Rpc::SystemSharedMemoryRegister => {
            pb::SystemSharedMemoryRegisterRequest::decode(message).map(|r| region(r.name))?
        }
        Rpc::SystemSharedMemoryUnregister => {
            pb::SystemSharedMemoryUnregisterRequest::decode(message).map(|r| region(r.name))?
        }
        Rpc::CudaSharedMemoryStatus => pb::CudaSharedMemoryStatusRequest::decode(message).map(|r| region(r.name))?,
        Rpc::CudaSharedMemoryRegister => {
            pb::CudaSharedMemoryRegisterRequest::decode(message).map(|r| region(r.name))?
        }
        Rpc::CudaSharedMemoryUnregister => {
            pb::CudaSharedMemoryUnregisterRequest::decode(message).map(|r| region(r.name))?
        }
        _ => Names::default(),
    })
}
