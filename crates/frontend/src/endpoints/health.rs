//! Health of the server and of models.

use crate::access::Category;
use crate::exchange::{Endpoint, GrpcAnswer, GrpcExchange, HttpAnswer, HttpExchange, Later};
use crate::gate_error::Result;
use crate::grpc::context::{Call, GrpcContext};
use crate::grpc::decode::decode;
use crate::grpc::message::frame;
use crate::grpc::status::Status;
use crate::grpc::{load, watch};
use crate::http::body::RequestBody;
use crate::http::reply::{JSON, PLAIN, Reply};
use crate::http::request::RequestHead;
use crate::operation::Context;
use crate::table::facts::{CallForm, Described, Draining, Facts};
use crate::table::paths::PathNames;
use bytes::Bytes;
use engine::{Engine, ReadinessState};
use http2::StreamWriter;
use protocol::pb::health::{HealthCheckResponse, health_check_response::ServingStatus};
use protocol::pb::inference as pb;
use std::time::Duration;
use tensor::Error;

const FACTS: Facts =
    Facts { draining: Draining::Answered, is_for_crowd: true, ..Facts::read("server_live", Category::Health) };

/// A status without a body, as in Triton: scripts print the body before the status and compare with `200`. A request
/// whose `Accept` names JSON gets the body of the Open Inference Protocol.
fn health(head: &RequestHead, what: &str, is_good: bool) -> Reply {
    let status = if is_good { 200 } else { 400 };
    match head.accepts(b"application/json") {
        true => Reply::new(status, JSON, format!(r#"{{"{what}":{is_good}}}"#)),
        false => Reply::new(status, PLAIN, ""),
    }
}

/// The answer once readiness is known, for which models may have to be asked.
fn once<'a>(ready: ReadinessState, answer: impl FnOnce(bool) -> Reply + 'a) -> HttpAnswer<'a> {
    match ready {
        ReadinessState::Known(ready) => HttpAnswer::Ready(answer(ready)),
        ReadinessState::Queried(asking) => HttpAnswer::Later(Box::pin(async move { answer(asking.await) })),
    }
}

fn reject_exiting(engine: &Engine) -> std::result::Result<(), Status> {
    if engine.is_exiting() { Err(Error::unavailable("Server exiting").into()) } else { Ok(()) }
}

/// Whether the process is there.
pub struct ServerLive;

impl Described for ServerLive {
    fn facts(&self) -> Facts {
        FACTS
    }
}

impl Endpoint for ServerLive {
    fn http<'a>(&'a self, exchange: &'a HttpExchange<'a>, _body: RequestBody) -> HttpAnswer<'a> {
        HttpAnswer::Ready(health(exchange.head, "live", exchange.context.engine.is_live()))
    }

    fn grpc<'a>(&'a self, exchange: GrpcExchange<'a>, _message: Bytes) -> GrpcAnswer<'a> {
        Box::pin(async move {
            reject_exiting(exchange.engine())?;
            Ok(frame(&pb::ServerLiveResponse { live: exchange.engine().is_live() }))
        })
    }
}

/// Whether every model can be used.
pub struct ServerReady;

impl Described for ServerReady {
    fn facts(&self) -> Facts {
        Facts { name: "server_ready", ..FACTS }
    }
}

impl Endpoint for ServerReady {
    fn http<'a>(&'a self, exchange: &'a HttpExchange<'a>, _body: RequestBody) -> HttpAnswer<'a> {
        once(exchange.context.engine.readiness(), |ready| health(exchange.head, "ready", ready))
    }

    fn grpc<'a>(&'a self, exchange: GrpcExchange<'a>, _message: Bytes) -> GrpcAnswer<'a> {
        Box::pin(async move {
            reject_exiting(exchange.engine())?;
            Ok(frame(&pb::ServerReadyResponse { ready: exchange.engine().readiness().get().await }))
        })
    }
}

/// `grpc.health.v1.Health/Check`: readiness of the server.
pub struct HealthCheck;

impl Described for HealthCheck {
    fn facts(&self) -> Facts {
        Facts { name: "health_check", ..FACTS }
    }
}

impl Endpoint for HealthCheck {
    fn grpc<'a>(&'a self, exchange: GrpcExchange<'a>, _message: Bytes) -> GrpcAnswer<'a> {
        Box::pin(async move {
            reject_exiting(exchange.engine())?;
            let is_ready = exchange.engine().readiness().get().await;
            let status = if is_ready { ServingStatus::Serving } else { ServingStatus::NotServing };
            Ok(frame(&HealthCheckResponse { status: status.into() }))
        })
    }
}

/// Whether a model can be used.
pub struct ModelReady;

/// Readiness of a model, for which its own code may have to be called.
fn readiness(context: &Context<'_>, name: &str, version: &str) -> Result<ReadinessState> {
    context.admit_model(name)?;
    Ok(context.engine.model_ready(name, version)?)
}

impl Described for ModelReady {
    fn facts(&self) -> Facts {
        Facts { name: "model_ready", draining: Draining::Rejected, ..FACTS }
    }

    fn names(&self) -> &'static [(&'static str, u32)] {
        &[("model", 1), ("version", 2)]
    }
}

impl Endpoint for ModelReady {
    fn http<'a>(&'a self, exchange: &'a HttpExchange<'a>, _body: RequestBody) -> HttpAnswer<'a> {
        let PathNames { model, version, .. } = exchange.names();
        match readiness(&exchange.operations(), model, version) {
            Ok(ready) => once(ready, |ready| match ready {
                true => Reply::empty(PLAIN),
                false => Reply::text_error(400, JSON, "Model version not ready"),
            }),
            Err(error) => HttpAnswer::Ready(Reply::failed(&error)),
        }
    }

    fn grpc<'a>(&'a self, exchange: GrpcExchange<'a>, message: Bytes) -> GrpcAnswer<'a> {
        Box::pin(async move {
            let pb::ModelReadyRequest { name, version } = decode(message)?;
            let ready = readiness(&exchange.operations(), &name, &version)?.get().await;
            Ok(frame(&pb::ModelReadyResponse { ready }))
        })
    }
}

/// `grpc.health.v1.Health/Watch`.
pub struct HealthWatch;

impl Described for HealthWatch {
    fn facts(&self) -> Facts {
        Facts { name: "health_watch", form: CallForm::Stream, is_for_crowd: false, ..FACTS }
    }
}

impl Endpoint for HealthWatch {
    fn serve<'a>(
        &'a self,
        context: &'a GrpcContext,
        call: Call,
        respond: StreamWriter,
        deadline: Option<Duration>,
    ) -> Later<'a, ()> {
        Box::pin(watch::serve(context, call, respond, deadline))
    }
}

/// Reports of the server's load for load balancers.
pub struct LoadReports;

impl Described for LoadReports {
    fn facts(&self) -> Facts {
        Facts { form: CallForm::Stream, ..Facts::read("load_reports", Category::Health) }
    }
}

impl Endpoint for LoadReports {
    fn serve<'a>(
        &'a self,
        context: &'a GrpcContext,
        call: Call,
        respond: StreamWriter,
        deadline: Option<Duration>,
    ) -> Later<'a, ()> {
        Box::pin(load::serve(context, call, respond, deadline))
    }
}
