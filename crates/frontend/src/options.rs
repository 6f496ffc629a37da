//! What the front ends are told at start. Read from what TypeScript gives, as it is: an option whose row in src/cli/flags.ts is passed on as
//! `grpc.keepaliveTimeMs` is the field `keepalive_time_ms` of [`GrpcOptions`], and is written nowhere else.

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
    /// Origins of web pages that may ask, or `*`; empty = none.
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
    /// As for HTTP, over metadata keys.
    pub header_forward_pattern: String,
    /// Restricted protocols; keys are whole metadata keys, `triton-grpc-protocol-…`.
    pub restrictions: Vec<Restriction>,
    /// `none`, `low`, `medium`, `high`; anything else is `none`.
    pub infer_response_compression_level: String,
    /// Idle time after which we ping the client.
    pub keepalive_time_ms: u64,
    /// Time the client has to answer it.
    pub keepalive_timeout_ms: u64,
    /// Ping even when no call is open.
    pub keepalive_permit_without_calls: bool,
    /// Pings we send with neither headers nor data sent between them; 0 = any number.
    pub http2_max_pings_without_data: u32,
    /// A client's ping that comes sooner after its last one, with nothing sent to it between the two, is a strike; 0 = never.
    pub http2_min_recv_ping_interval_without_data_ms: u64,
    /// More strikes than this end the connection; 0 = they do not.
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
    /// Where operations that manage the server are answered; `None` = on the other two.
    pub control: Option<ControlOptions>,
    /// Mode of the files of Unix sockets; 0 = 660.
    pub unix_socket_mode: u32,
    /// Of all front ends.
    pub gate: GateOptions,
    /// 0 = one up to 4 cores, then one per 4 cores.
    pub reactor_threads: usize,
    /// Connections of all reactors together; 0 = as many as the descriptors of the process allow.
    #[serde(skip)]
    pub connections_max: usize,
    /// What requests and answers in flight may hold; `None` = the budget of the process.
    #[serde(skip)]
    pub budget: Option<Budget>,
    /// Logs of requests and of control calls, which who opened them ends.
    #[serde(skip)]
    pub logs: Option<Arc<Logs>>,
}

impl FrontendOptions {
    /// The number of reactor threads to run.
    pub fn reactors(&self) -> usize {
        reactors(self.reactor_threads)
    }
}

/// The number of reactor threads to run where so many are asked for; 0 = as many as suit the machine.
pub fn reactors(asked: usize) -> usize {
    match asked {
        0 => std::thread::available_parallelism().map_or(1, |n| n.get() / 4).max(1),
        n => n,
    }
}
