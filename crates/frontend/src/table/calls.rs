//! The calls of gRPC, by their paths.

use super::Operation;
use Operation as Op;

/// A call of gRPC.
#[derive(Debug, Clone, Copy)]
pub struct CallRow {
    /// `/package.Service/Method`.
    pub path: &'static str,
    pub operation: Operation,
}

const fn call(path: &'static str, operation: Operation) -> CallRow {
    CallRow { path, operation }
}

/// All calls; the usual ones first.
pub const CALLS: [CallRow; 25] = [
    call("/inference.GRPCInferenceService/ModelInfer", Op::Infer),
    call("/inference.GRPCInferenceService/ModelStreamInfer", Op::StreamInfer),
    call("/inference.GRPCInferenceService/ServerLive", Op::ServerLive),
    call("/inference.GRPCInferenceService/ServerReady", Op::ServerReady),
    call("/inference.GRPCInferenceService/ModelReady", Op::ModelReady),
    call("/inference.GRPCInferenceService/ServerMetadata", Op::ServerMetadata),
    call("/inference.GRPCInferenceService/ModelMetadata", Op::ModelMetadata),
    call("/inference.GRPCInferenceService/ModelConfig", Op::ModelConfig),
    call("/inference.GRPCInferenceService/ModelStatistics", Op::ModelStatistics),
    call("/inference.GRPCInferenceService/RepositoryIndex", Op::Index),
    call("/inference.GRPCInferenceService/RepositoryModelLoad", Op::Load),
    call("/inference.GRPCInferenceService/RepositoryModelUnload", Op::Unload),
    call("/inference.GRPCInferenceService/SystemSharedMemoryStatus", Op::SystemRegionStatus),
    call("/inference.GRPCInferenceService/SystemSharedMemoryRegister", Op::SystemRegionRegister),
    call("/inference.GRPCInferenceService/SystemSharedMemoryUnregister", Op::SystemRegionUnregister),
    call("/inference.GRPCInferenceService/CudaSharedMemoryStatus", Op::CudaRegionStatus),
    call("/inference.GRPCInferenceService/CudaSharedMemoryRegister", Op::CudaRegionRegister),
    call("/inference.GRPCInferenceService/CudaSharedMemoryUnregister", Op::CudaRegionUnregister),
    call("/inference.GRPCInferenceService/TraceSetting", Op::TraceSettings),
    call("/inference.GRPCInferenceService/LogSettings", Op::LogSettings),
    call("/grpc.health.v1.Health/Check", Op::HealthCheck),
    call("/grpc.health.v1.Health/Watch", Op::HealthWatch),
    call("/grpc.reflection.v1.ServerReflection/ServerReflectionInfo", Op::Reflection),
    call("/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", Op::Reflection),
    call("/xds.service.orca.v3.OpenRcaService/StreamCoreMetrics", Op::LoadReports),
];

/// Operation of the call with this path; a query is ignored.
pub fn find(path: &[u8]) -> Option<Operation> {
    let path = path.split(|b| matches!(b, b'?' | b'#')).next()?;
    CALLS.iter().find(|call| call.path.as_bytes() == path).map(|call| call.operation)
}

impl Operation {
    /// Whether the call may last indefinitely. Its requests are counted, if at all, instead of the call.
    pub fn is_stream(self) -> bool {
        matches!(self, Self::StreamInfer | Self::HealthWatch | Self::Reflection | Self::LoadReports)
    }

    /// Whether the call may change the server; for settings the message decides.
    pub fn may_change(self) -> bool {
        self.is_change() || matches!(self, Self::TraceSettings | Self::LogSettings)
    }
}
