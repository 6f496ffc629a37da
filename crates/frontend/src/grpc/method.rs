//! The calls we answer, by their path.

use crate::access::Category;
use crate::gate::{Act, Ask};

/// A call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Rpc {
    ServerLive,
    ServerReady,
    ModelReady,
    ServerMetadata,
    ModelMetadata,
    ModelInfer,
    ModelStreamInfer,
    ModelConfig,
    ModelStatistics,
    RepositoryIndex,
    RepositoryModelLoad,
    RepositoryModelUnload,
    SystemSharedMemoryStatus,
    SystemSharedMemoryRegister,
    SystemSharedMemoryUnregister,
    CudaSharedMemoryStatus,
    CudaSharedMemoryRegister,
    CudaSharedMemoryUnregister,
    TraceSetting,
    LogSettings,
    HealthCheck,
    HealthWatch,
    Reflection,
    LoadReports,
}

impl Rpc {
    /// Reads a method path; a query is not part of it.
    pub fn parse(path: &[u8]) -> Option<Self> {
        let path = std::str::from_utf8(path).ok()?.split(['?', '#']).next()?;
        if let Some(name) = path.strip_prefix("/inference.GRPCInferenceService/") {
            return Some(match name {
                "ModelInfer" => Self::ModelInfer,
                "ModelStreamInfer" => Self::ModelStreamInfer,
                "ServerLive" => Self::ServerLive,
                "ServerReady" => Self::ServerReady,
                "ModelReady" => Self::ModelReady,
                "ServerMetadata" => Self::ServerMetadata,
                "ModelMetadata" => Self::ModelMetadata,
                "ModelConfig" => Self::ModelConfig,
                "ModelStatistics" => Self::ModelStatistics,
                "RepositoryIndex" => Self::RepositoryIndex,
                "RepositoryModelLoad" => Self::RepositoryModelLoad,
                "RepositoryModelUnload" => Self::RepositoryModelUnload,
                "SystemSharedMemoryStatus" => Self::SystemSharedMemoryStatus,
                "SystemSharedMemoryRegister" => Self::SystemSharedMemoryRegister,
                "SystemSharedMemoryUnregister" => Self::SystemSharedMemoryUnregister,
                "CudaSharedMemoryStatus" => Self::CudaSharedMemoryStatus,
                "CudaSharedMemoryRegister" => Self::CudaSharedMemoryRegister,
                "CudaSharedMemoryUnregister" => Self::CudaSharedMemoryUnregister,
                "TraceSetting" => Self::TraceSetting,
                "LogSettings" => Self::LogSettings,
                _ => return None,
            });
        }
        match path {
            "/grpc.health.v1.Health/Check" => Some(Self::HealthCheck),
            "/grpc.health.v1.Health/Watch" => Some(Self::HealthWatch),
            "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo"
            | "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo" => Some(Self::Reflection),
            "/xds.service.orca.v3.OpenRcaService/StreamCoreMetrics" => Some(Self::LoadReports),
            _ => None,
        }
    }

    /// Whether it may go on for ever, and counts by its requests, if at all, instead of as one.
    pub fn is_stream(self) -> bool {
        matches!(self, Self::ModelStreamInfer | Self::HealthWatch | Self::Reflection | Self::LoadReports)
    }

    /// What the gate is asked; nothing for reflection. Settings are read and written by one call: its message says which.
    pub fn ask(self) -> Option<Ask<'static>> {
        let act = match self {
            Self::RepositoryModelLoad
            | Self::RepositoryModelUnload
            | Self::SystemSharedMemoryRegister
            | Self::SystemSharedMemoryUnregister
            | Self::CudaSharedMemoryRegister
            | Self::CudaSharedMemoryUnregister => Act::Write,
            _ => Act::Read,
        };
        self.category().map(|category| Ask { category, act, model: None })
    }

    /// What has to be unlocked for it; reflection tells nothing that is not in the published proto files.
    pub fn category(self) -> Option<Category> {
        Some(match self {
            Self::ServerLive
            | Self::ServerReady
            | Self::ModelReady
            | Self::HealthCheck
            | Self::HealthWatch
            | Self::LoadReports => Category::Health,
            Self::ServerMetadata | Self::ModelMetadata => Category::Metadata,
            Self::ModelInfer | Self::ModelStreamInfer => Category::Inference,
            Self::ModelConfig => Category::ModelConfig,
            Self::ModelStatistics => Category::Statistics,
            Self::RepositoryIndex | Self::RepositoryModelLoad | Self::RepositoryModelUnload => {
                Category::ModelRepository
            }
            Self::SystemSharedMemoryStatus
            | Self::SystemSharedMemoryRegister
            | Self::SystemSharedMemoryUnregister
            | Self::CudaSharedMemoryStatus
            | Self::CudaSharedMemoryRegister
            | Self::CudaSharedMemoryUnregister => Category::SharedMemory,
            Self::TraceSetting => Category::Trace,
            Self::LogSettings => Category::Logging,
            Self::Reflection => return None,
        })
    }
}
