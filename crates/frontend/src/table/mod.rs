//! The operations of the server, over any protocol.
//!
//! This module has the name, category and needs of each [`Operation`]; [`routes`] and [`calls`] list its paths over
//! HTTP and gRPC. Routing, permissions, names in logs, the OpenAPI document and the suite `exposed` derive from these
//! three tables: a new route is a row there and an arm in `http::control`.

pub mod calls;
pub mod routes;

use crate::access::{Act, Ask, Category};

/// One thing that the server does for a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Operation {
    Infer,
    Generate,
    GenerateStream,
    StreamInfer,
    ServerLive,
    ServerReady,
    ModelReady,
    HealthCheck,
    HealthWatch,
    LoadReports,
    Reflection,
    ServerMetadata,
    ModelMetadata,
    OpenApi,
    Docs,
    DocsScript,
    DocsStyle,
    Home,
    Models,
    Index,
    Load,
    Unload,
    ModelConfig,
    AllStatistics,
    ModelStatistics,
    TraceSettings,
    TraceUpdate,
    LogSettings,
    LogUpdate,
    SystemRegionStatus,
    SystemRegionRegister,
    SystemRegionUnregister,
    CudaRegionStatus,
    CudaRegionRegister,
    CudaRegionUnregister,
}

impl Operation {
    /// Name in logs, category, and whether it changes the server.
    ///
    /// Reflection has no category: it returns the published proto files, which need no protection. Over gRPC one call
    /// reads and changes settings; its message decides.
    const fn facts(self) -> (&'static str, Option<Category>, Act) {
        use Act::{Read, Write};
        use Category::{
            Health, Inference, Logging, Metadata, ModelConfig, ModelRepository, SharedMemory, Statistics, Trace,
        };
        match self {
            Self::Infer => ("infer", Some(Inference), Read),
            Self::Generate => ("generate", Some(Inference), Read),
            Self::GenerateStream => ("generate_stream", Some(Inference), Read),
            Self::StreamInfer => ("stream", Some(Inference), Read),
            Self::ServerLive => ("server_live", Some(Health), Read),
            Self::ServerReady => ("server_ready", Some(Health), Read),
            Self::ModelReady => ("model_ready", Some(Health), Read),
            Self::HealthCheck => ("health_check", Some(Health), Read),
            Self::HealthWatch => ("health_watch", Some(Health), Read),
            Self::LoadReports => ("load_reports", Some(Health), Read),
            Self::Reflection => ("reflection", None, Read),
            Self::ServerMetadata => ("server_metadata", Some(Metadata), Read),
            Self::ModelMetadata => ("model_metadata", Some(Metadata), Read),
            Self::OpenApi => ("openapi", Some(Metadata), Read),
            // Files that are the same on every server.
            Self::Docs | Self::DocsScript | Self::DocsStyle => ("page", Some(Metadata), Read),
            Self::Home => ("page", Some(ModelRepository), Read),
            Self::Models => ("models", Some(ModelRepository), Read),
            Self::Index => ("index", Some(ModelRepository), Read),
            Self::Load => ("load", Some(ModelRepository), Write),
            Self::Unload => ("unload", Some(ModelRepository), Write),
            Self::ModelConfig => ("model_config", Some(ModelConfig), Read),
            Self::AllStatistics | Self::ModelStatistics => ("statistics", Some(Statistics), Read),
            Self::TraceSettings => ("trace_settings", Some(Trace), Read),
            Self::TraceUpdate => ("trace_update", Some(Trace), Write),
            Self::LogSettings => ("log_settings", Some(Logging), Read),
            Self::LogUpdate => ("log_update", Some(Logging), Write),
            Self::SystemRegionStatus => ("system_region_status", Some(SharedMemory), Read),
            Self::SystemRegionRegister => ("system_region_register", Some(SharedMemory), Write),
            Self::SystemRegionUnregister => ("system_region_unregister", Some(SharedMemory), Write),
            Self::CudaRegionStatus => ("cuda_region_status", Some(SharedMemory), Read),
            Self::CudaRegionRegister => ("cuda_region_register", Some(SharedMemory), Write),
            Self::CudaRegionUnregister => ("cuda_region_unregister", Some(SharedMemory), Write),
        }
    }

    /// Name in logs, the same for both protocols.
    pub const fn name(self) -> &'static str {
        self.facts().0
    }

    /// Whether it is a question about health with one answer.
    pub fn is_health_check(self) -> bool {
        matches!(self, Self::ServerLive | Self::ServerReady | Self::ModelReady | Self::HealthCheck)
    }

    /// Whether it changes the server. Those operations are in the audit log.
    pub fn is_change(self) -> bool {
        self.facts().2 == Act::Write
    }

    /// The operation as the gate checks it; `None` if it needs no permission.
    #[inline]
    pub fn ask(self, model: Option<&str>) -> Option<Ask<'_>> {
        let (_, category, act) = self.facts();
        Some(Ask { category: category?, act, model })
    }
}

/// Requirement of an operation in addition to configured keys and restricted APIs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Needs {
    Nothing,
    /// The server was started with this flag, which is off by default. The operation checks it, not the gate.
    Flag(&'static str),
    /// The request has a secret for this category, or the server was started with this flag.
    SecretOr(&'static str),
}

/// Requirements of an operation by the origin of the request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wants {
    /// For a process of this machine: over loopback or a Unix socket, and not through a proxy.
    pub near: Needs,
    /// For all others.
    pub far: Needs,
}

/// Requirements of the operations of a category. A category that is not listed with [`Act::Write`] has those of
/// settings: a new one is closed to the network until a row opens it.
pub fn wants(category: Category, act: Act) -> Wants {
    let both = |needs| Wants { near: needs, far: needs };
    match (category, act) {
        (_, Act::Read) => both(Needs::Nothing),
        (Category::ModelRepository, Act::Write) => both(Needs::Flag("--model-control-mode=explicit")),
        (Category::SharedMemory, Act::Write) => both(Needs::Flag("--allow-client-shm=true")),
        (_, Act::Write) => Wants { near: Needs::Nothing, far: Needs::SecretOr("--allow-remote-settings") },
    }
}
