//! State that all HTTP connections share.

use crate::access::Restrictions;
use crate::control::Control;
use crate::cors::Cors;
use crate::forward::HeaderForward;
use crate::gate::{Gate, GateOptions};
use crate::grpc::context::GrpcContext;
use crate::shared::Shared;
use engine::Engine;
use options::HttpOptions;
use protocol::http::Limits;
use std::sync::Arc;
use tensor::Result;

/// State that all HTTP connections share.
pub struct HttpContext {
    pub engine: Arc<Engine>,
    pub control: Arc<dyn Control>,
    pub shared: Arc<Shared>,
    pub gate: Gate,
    /// Web pages that may read responses; `None`: none.
    pub cors: Option<Arc<Cors>>,
    pub forward: HeaderForward,
    /// Answers gRPC calls over HTTP/2, on the control address only.
    pub grpc: Option<Arc<GrpcContext>>,
    pub limits: Limits,
    /// Errors of text endpoints have the statuses and the form of Triton's OpenAI front end.
    pub openai_errors_as_triton: bool,
    /// Whether this is the listener of `--openai-port`, which answers `/metrics` and has Triton's text for a header
    /// that is missing.
    pub is_openai: bool,
    /// Loads and unloads over the paths of OpenAI's form, one at a time as in Triton.
    pub managing: tokio::sync::Mutex<()>,
}

impl HttpContext {
    /// Compiles the options.
    ///
    /// # Errors
    /// INVALID_ARG for invalid options.
    pub fn new(
        engine: Arc<Engine>,
        control: Arc<dyn Control>,
        shared: Arc<Shared>,
        options: &HttpOptions,
        gate: GateOptions,
        openai_errors_as_triton: bool,
    ) -> Result<Self> {
        let cors = Cors::new(&options.cors_origins)?.map(Arc::new);
        let limits = Limits { input_bytes_max: engine.options().http_input_bytes_max, ..Limits::default() };
        Ok(Self {
            engine,
            control,
            shared,
            gate: Gate::new(
                "API",
                Restrictions::new("api", &options.restrictions)?,
                GateOptions { cors: cors.clone(), ..gate },
            ),
            cors,
            forward: HeaderForward::new(&options.header_forward_pattern)?,
            grpc: None,
            limits,
            openai_errors_as_triton,
            is_openai: false,
            managing: tokio::sync::Mutex::default(),
        })
    }
}
