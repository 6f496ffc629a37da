//! The calls of gRPC, by their paths.

use crate::endpoints::{
    config, health, index, infer, load, metadata, reflection, regions, settings, statistics, unload,
};
use crate::exchange::EndpointRef;
use memory::RegionKind;

/// A call of gRPC.
#[derive(Clone, Copy)]
pub struct CallRow {
    /// `/package.Service/Method`.
    pub path: &'static str,
    pub endpoint: EndpointRef,
}

const fn call(path: &'static str, endpoint: EndpointRef) -> CallRow {
    CallRow { path, endpoint }
}

/// All calls; the usual ones first.
pub const CALLS: [CallRow; 25] = [
    call("/inference.GRPCInferenceService/ModelInfer", &infer::Infer),
    call("/inference.GRPCInferenceService/ModelStreamInfer", &infer::StreamInfer),
    call("/inference.GRPCInferenceService/ServerLive", &health::ServerLive),
    call("/inference.GRPCInferenceService/ServerReady", &health::ServerReady),
    call("/inference.GRPCInferenceService/ModelReady", &health::ModelReady),
    call("/inference.GRPCInferenceService/ServerMetadata", &metadata::ServerMetadata),
    call("/inference.GRPCInferenceService/ModelMetadata", &metadata::ModelMetadata),
    call("/inference.GRPCInferenceService/ModelConfig", &config::ModelConfig),
    call("/inference.GRPCInferenceService/ModelStatistics", &statistics::Statistics),
    call("/inference.GRPCInferenceService/RepositoryIndex", &index::Index),
    call("/inference.GRPCInferenceService/RepositoryModelLoad", &load::Load),
    call("/inference.GRPCInferenceService/RepositoryModelUnload", &unload::Unload),
    call("/inference.GRPCInferenceService/SystemSharedMemoryStatus", &regions::Status(RegionKind::System)),
    call("/inference.GRPCInferenceService/SystemSharedMemoryRegister", &regions::Register(RegionKind::System)),
    call("/inference.GRPCInferenceService/SystemSharedMemoryUnregister", &regions::Unregister(RegionKind::System)),
    call("/inference.GRPCInferenceService/CudaSharedMemoryStatus", &regions::Status(RegionKind::Cuda)),
    call("/inference.GRPCInferenceService/CudaSharedMemoryRegister", &regions::Register(RegionKind::Cuda)),
    call("/inference.GRPCInferenceService/CudaSharedMemoryUnregister", &regions::Unregister(RegionKind::Cuda)),
    call("/inference.GRPCInferenceService/TraceSetting", &settings::TraceSettings { changes: false }),
    call("/inference.GRPCInferenceService/LogSettings", &settings::LogSettings { changes: false }),
    call("/grpc.health.v1.Health/Check", &health::HealthCheck),
    call("/grpc.health.v1.Health/Watch", &health::HealthWatch),
    call("/grpc.reflection.v1.ServerReflection/ServerReflectionInfo", &reflection::Reflection),
    call("/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", &reflection::Reflection),
    call("/xds.service.orca.v3.OpenRcaService/StreamCoreMetrics", &health::LoadReports),
];

/// Endpoint of the call with this path; a query is ignored.
pub fn find(path: &[u8]) -> Option<EndpointRef> {
    let path = path.split(|b| matches!(b, b'?' | b'#')).next()?;
    CALLS.iter().find(|call| call.path.as_bytes() == path).map(|call| call.endpoint)
}
