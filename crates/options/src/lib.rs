//! Options that TypeScript passes to the core as JSON. Each is declared here and nowhere else: parts of the core take
//! these records as they are, and scripts/generate.sh writes their TypeScript form with these comments. A flag that
//! src/cli/flags.ts passes on to `grpc.keepaliveTimeMs` is the field `keepalive_time_ms` of [`GrpcOptions`].
//!
//! A property that is missing, unknown or of another type is an error that names it.

mod core;
mod listen;
mod trace;

pub use core::{
    Available, ChatOptions, CoreOptions, DeviceMemoryOptions, DevicePool, EngineOptions, JavaScriptOptions,
    LibraryCacheOptions, LibraryProcess, LibrarySpec, LoadLimit, MetricsOptions, OpenSpec, PythonOptions, Quantile,
    RedisOptions, SEQUENCES_MAX_DEFAULT, ServerMetadata, TextAliasOption,
};
pub use listen::{
    ControlOptions, GateSettings, GrpcOptions, HttpOptions, IssuerOptions, ListenOptions, RequestLogOptions,
    Restriction, TlsOptions,
};
pub use trace::{TraceMode, TraceSetting};
