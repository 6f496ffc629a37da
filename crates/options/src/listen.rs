//! Options of the front ends.

use serde::Deserialize;
use std::path::PathBuf;
#[cfg(feature = "typescript")]
use ts_rs::TS;

/// The HTTP listener.
#[derive(Debug, Clone, Default, Deserialize)]
#[cfg_attr(feature = "typescript", derive(TS))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct HttpOptions {
    /// Address to bind.
    pub address: String,
    /// Port to bind; 0 picks a free one.
    pub port: u16,
    /// Share the port with other processes that also ask for it.
    pub reuse_port: bool,
    /// Descriptor of a socket to take over, which the core owns from `bind` on; `None` = bind one.
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
#[cfg_attr(feature = "typescript", derive(TS))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct GrpcOptions {
    /// Address to bind.
    pub address: String,
    /// Port to bind; 0 picks a free one.
    pub port: u16,
    /// Share the port with other processes that also ask for it.
    pub reuse_port: bool,
    /// Descriptor of a socket to take over, which the core owns from `bind` on; `None` = bind one.
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
#[cfg_attr(feature = "typescript", derive(TS))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ControlOptions {
    /// Address to bind, or `unix:` and a path.
    pub address: String,
    /// Port to bind; 0 picks a free one.
    pub port: u16,
    /// `None` = plain text.
    pub tls: Option<TlsOptions>,
}

/// TLS options of a listener.
#[derive(Debug, Clone, Default, Deserialize)]
#[cfg_attr(feature = "typescript", derive(TS))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TlsOptions {
    /// PEM file with the server's certificate and its intermediates. With several such files, separated by commas, a
    /// client gets the first that is valid for the name it requests, or else the first of all.
    pub certificate: PathBuf,
    /// PEM file with the private key, or as many files as certificates, in the same order.
    pub key: PathBuf,
    /// PEM file with the roots of client certificates. Empty = none.
    pub roots: PathBuf,
    /// Clients must have a certificate of one of the roots.
    pub mutual: bool,
}

/// One `--http-restricted-api` or `--grpc-restricted-protocol` group.
#[derive(Debug, Clone, Default, Deserialize)]
#[cfg_attr(feature = "typescript", derive(TS))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Restriction {
    /// Category names of P 2.1: `health`, `metadata`, `inference`, ….
    pub apis: Vec<String>,
    /// Header that must be present.
    pub key: String,
    /// Required value of the header.
    pub value: String,
}

/// All listeners and the threads behind them.
#[derive(Debug, Clone, Default, Deserialize)]
#[cfg_attr(feature = "typescript", derive(TS))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ListenOptions {
    /// `None` = off.
    pub http: Option<HttpOptions>,
    /// `None` = off.
    pub grpc: Option<GrpcOptions>,
    /// `--openai-port`: a second HTTP listener, where clients of Triton's OpenAI front end look; `None` = off.
    pub openai: Option<HttpOptions>,
    /// Listener for operations that manage the server; `None` = the other two answer them.
    pub control: Option<ControlOptions>,
    /// Mode of the files of Unix sockets, up to 0o777; 0 = 660.
    pub unix_socket_mode: u32,
    /// Smallest rate of a body or of an unread response while connections or memory run short; 0 = none.
    pub slow_client_bytes_per_sec: u64,
    /// Checks of all front ends.
    pub gate: GateSettings,
    /// 0 = one up to 4 cores, then one per 4 cores.
    pub reactor_threads: usize,
    /// `--openai-errors=triton`: text endpoints answer with Triton's statuses and bodies.
    pub openai_errors_as_triton: bool,
}

/// Settings of the operator for all front ends.
#[derive(Debug, Clone, Default, Deserialize)]
#[cfg_attr(feature = "typescript", derive(TS))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct GateSettings {
    /// Accept changes of settings from any machine, as Triton does; else only from this machine or with a secret.
    pub allow_remote_settings: bool,
}

/// Logs of requests and of control operations.
#[derive(Debug, Clone, Deserialize)]
#[cfg_attr(feature = "typescript", derive(TS))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RequestLogOptions {
    /// A file, or `-` for standard output; empty = no access log.
    pub access: String,
    /// Share of the successful requests that is logged, from 0 to 1. Failed requests are always logged.
    pub access_rate: f64,
    /// Like `access`, for the audit log.
    pub audit: String,
}

impl Default for RequestLogOptions {
    fn default() -> Self {
        Self { access: String::new(), access_rate: 1.0, audit: String::new() }
    }
}

/// Issuer of tokens that are accepted in addition to keys.
#[derive(Debug, Clone, Deserialize)]
#[cfg_attr(feature = "typescript", derive(TS))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct IssuerOptions {
    /// `iss` of its tokens.
    pub issuer: String,
    /// Audience that `aud` of its tokens must include.
    pub audience: String,
    /// Claim of the rules that name none.
    pub claim: String,
    /// File with the issuer's keys, a JWK set, read again when it changes; `None`: `setIssuerKeys` provides them.
    pub keys_file: Option<PathBuf>,
}
