//! Health of the server and of models.

use super::*;
use crate::grpc::load;
use crate::grpc::status::Status;
use crate::grpc::watch;
use crate::http::reply::PLAIN;
use crate::http::request::RequestHead;
use engine::ReadinessState;
use protocol::pb::health::HealthCheckResponse;
use protocol::pb::health::health_check_response::ServingStatus;

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

impl Endpoint for ServerLive {
    fn facts(&self) -> &'static Facts {
        const { &FACTS }
    }

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

impl Endpoint for ServerReady {
    fn facts(&self) -> &'static Facts {
        const { &Facts { name: "server_ready", ..FACTS } }
    }

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

/// `/health/ready` of Triton's OpenAI front end.
pub struct OpenAiReady;

impl Endpoint for OpenAiReady {
    fn facts(&self) -> &'static Facts {
        const { &Facts { name: "server_ready", text: Some(ErrorForm::OpenAi), ..FACTS } }
    }

    fn http<'a>(&'a self, exchange: &'a HttpExchange<'a>, _body: RequestBody) -> HttpAnswer<'a> {
        once(exchange.context.engine.readiness(), |ready| match ready {
            true => Reply::empty(PLAIN),
            false => Reply::text_error(400, JSON, "Attached inference engine is not ready for inference requests."),
        })
    }
}

/// `grpc.health.v1.Health/Check`: readiness of the server.
pub struct HealthCheck;

impl Endpoint for HealthCheck {
    fn facts(&self) -> &'static Facts {
        const { &Facts { name: "health_check", ..FACTS } }
    }

    fn grpc<'a>(&'a self, exchange: GrpcExchange<'a>, _message: Bytes) -> GrpcAnswer<'a> {
        Box::pin(async move {
            reject_exiting(exchange.engine())?;
            let is_ready = exchange.engine().readiness().get().await;
            let status = if is_ready { ServingStatus::Serving } else { ServingStatus::NotServing };
            Ok(frame(&HealthCheckResponse { status: status.into() }))
        })
    }
}

/// Whether a model is ready: status 200 if it is.
pub struct ModelReady;

/// Readiness of a model, for which its own code may have to be called.
fn readiness(context: &Context<'_>, name: &str, version: &str) -> Result<ReadinessState> {
    context.admit_model(name)?;
    Ok(context.engine.model_ready(name, version)?)
}

impl Endpoint for ModelReady {
    fn facts(&self) -> &'static Facts {
        const { &Facts { name: "model_ready", draining: Draining::Rejected, names: MODEL_NAMES, ..FACTS } }
    }

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

impl Endpoint for HealthWatch {
    fn facts(&self) -> &'static Facts {
        const { &Facts { name: "health_watch", form: CallForm::Stream, is_for_crowd: false, ..FACTS } }
    }

    fn serve<'a>(&'a self, stream: GrpcStream<'a>) -> Later<'a, ()> {
        Box::pin(watch::serve(stream))
    }
}

/// Reports of the server's load for load balancers.
pub struct LoadReports;

impl Endpoint for LoadReports {
    fn facts(&self) -> &'static Facts {
        const { &Facts { form: CallForm::Stream, ..Facts::read("load_reports", Category::Health) } }
    }

    fn serve<'a>(&'a self, stream: GrpcStream<'a>) -> Later<'a, ()> {
        Box::pin(load::serve(stream))
    }
}
