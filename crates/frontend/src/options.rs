//! Options of the front ends, deserialized from those of TypeScript: an option that src/cli/flags.ts passes on as
//! `grpc.keepaliveTimeMs` is the field `keepalive_time_ms` of [`GrpcOptions`].

pub use crate::access::Restriction;
use crate::access_log::Logs;
pub use crate::gate::GateOptions;
pub use crate::tls::TlsOptions;
use memory::Budget;
use serde::Deserialize;
use std::sync::Arc;

/// The HTTP listener.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct HttpOptions {
    /// Address to bind.
    pub address: String,
    /// Port to bind; 0 picks a free one.
    pub port: u16,
    /// Share the port with other processes that also ask for it.
    pub reuse_port: bool,
    /// A socket to take over instead of binding one (`given`); `None` = bind.
    pub given_fd: Option<i32>,
    /// `None` = plain text.
    pub tls: Option<TlsOptions>,
    /// Regular expression searched in header names, case-insensitive; empty = none.
    pub header_forward_pattern: String,
    /// Restricted APIs.
    pub restrictions: Vec<Restriction>,
    /// Origins of web pages that may send requests, or `*`; empty = none.
    pub cors_origins: Vec<String>,
}

/// The gRPC listener.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct GrpcOptions {
    /// Address to bind.
    pub address: String,
    /// Port to bind; 0 picks a free one.
    pub port: u16,
    /// Share the port with other processes that also ask for it.
    pub reuse_port: bool,
    /// A socket to take over instead of binding one (`given`); `None` = bind.
    pub given_fd: Option<i32>,
    /// `None` = plain text.
    pub tls: Option<TlsOptions>,
    /// Regular expression searched in metadata keys, case-insensitive; empty = none.
    pub header_forward_pattern: String,
    /// Restricted protocols; keys are whole metadata keys, `triton-grpc-protocol-…`.
    pub restrictions: Vec<Restriction>,
    /// `none`, `low`, `medium`, `high`; anything else is `none`.
    pub infer_response_compression_level: String,
    /// Idle time after which the server pings the client.
    pub keepalive_time_ms: u64,
    /// Time that the client has to answer the ping.
    pub keepalive_timeout_ms: u64,
    /// Ping even if no call is open.
    pub keepalive_permit_without_calls: bool,
    /// Pings that are sent without headers or data between them; 0 = any number.
    pub http2_max_pings_without_data: u32,
    /// A ping of the client sooner after its last one, with nothing sent to it in between, is a strike; 0 = never.
    pub http2_min_recv_ping_interval_without_data_ms: u64,
    /// Strikes beyond which the connection is closed; 0 = any number.
    pub http2_max_ping_strikes: u32,
    /// 0 = unlimited.
    pub max_connection_age_ms: u64,
    /// 0 = unlimited.
    pub max_connection_age_grace_ms: u64,
}

/// The listener of `--control-address`.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ControlOptions {
    /// Address to bind, or `unix:` and a path.
    pub address: String,
    /// Port to bind; 0 picks a free one.
    pub port: u16,
    /// `None` = plain text.
    pub tls: Option<TlsOptions>,
}

/// All listeners and the threads behind them.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct FrontendOptions {
    /// `None` = off.
    pub http: Option<HttpOptions>,
    /// `None` = off.
    pub grpc: Option<GrpcOptions>,
    /// Listener for operations that manage the server; `None` = the other two answer them.
    pub control: Option<ControlOptions>,
    /// Mode of the files of Unix sockets; 0 = 660.
    pub unix_socket_mode: u32,
    /// Checks of all front ends.
    pub gate: GateOptions,
    /// 0 = one up to 4 cores, then one per 4 cores.
    pub reactor_threads: usize,
    /// Connections of all reactors together; 0 = as many as the descriptors of the process allow.
    #[serde(skip)]
    pub connections_max: usize,
    /// Memory budget of inflight requests and responses; `None` = the budget of the process.
    #[serde(skip)]
    pub budget: Option<Budget>,
    /// Logs of requests and of control calls; the caller closes them.
    #[serde(skip)]
    pub logs: Option<Arc<Logs>>,
}

impl FrontendOptions {
    /// The number of reactor threads to run.
    pub fn reactors(&self) -> usize {
        reactors(self.reactor_threads)
    }
}

/// The number of reactor threads to run for a configured number; 0 = as many as suit the machine.
pub fn reactors(configured: usize) -> usize {
    match configured {
        0 => std::thread::available_parallelism().map_or(1, |n| n.get() / 4).max(1),
        n => n,
    }
}
