//! Unloads of models.

use super::index::reject_named;
use super::*;
use crate::access_log::parameters::put_members;
use protocol::pb::inference::model_repository_parameter::ParameterChoice;

/// Unloads a model.
pub struct Unload;

/// Unloads a model and, if `dependents`, awaited after the other checks, is true, the models that only it uses.
async fn unload(
    with: &Context<'_>,
    repository: &str,
    model: &str,
    dependents: impl Future<Output = tensor::Result<bool>>,
) -> Result<()> {
    with.admit_model(model)?;
    reject_named(repository)?;
    let dependents = dependents.await?;
    let mut argument = Text::begin(b'{');
    argument.key("model").string(model).key("unload_dependents").boolean(dependents).close(b'}');
    with.control(ControlOperation::RepositoryUnload, argument).await?;
    Ok(())
}

impl Endpoint for Unload {
    fn facts(&self) -> &'static Facts {
        const {
            &Facts {
                names: &[("model", 2)],
                audit_body,
                audit_message,
                ..Facts::write("unload", Category::ModelRepository)
            }
        }
    }

    fn http<'a>(&'a self, exchange: &'a HttpExchange<'a>, body: RequestBody) -> HttpAnswer<'a> {
        later(async move {
            let PathNames { model, repository, .. } = exchange.names();
            // A value that is not a boolean counts as false, and the model is unloaded (P 1.8).
            let dependents = read(body.bytes, |body| {
                let parameters = optional(body)?.and_then(|v| v.get("parameters"));
                Ok(parameters.and_then(|p| p.get("unload_dependents")?.as_bool().ok()).unwrap_or(false))
            });
            unload(&exchange.operations(), repository, model, dependents).await.map(|()| Bytes::new())
        })
    }

    fn grpc<'a>(&'a self, exchange: GrpcExchange<'a>, message: Bytes) -> GrpcAnswer<'a> {
        Box::pin(async move {
            let request: pb::RepositoryModelUnloadRequest = read_message(message, decode_long).await?;
            let dependents = async { unloads_dependents(&request) };
            unload(&exchange.operations(), &request.repository_name, &request.model_name, dependents).await?;
            Ok(frame(&pb::RepositoryModelUnloadResponse {}))
        })
    }
}

fn unloads_dependents(request: &pb::RepositoryModelUnloadRequest) -> tensor::Result<bool> {
    match request.parameters.get("unload_dependents").map(|p| &p.parameter_choice) {
        None => Ok(false),
        Some(Some(ParameterChoice::BoolParam(value))) => Ok(*value),
        Some(_) => Err(Error::invalid("invalid value type for 'unload_dependents' parameter, expected bool_param.")),
    }
}

fn audit_body(body: Value<'_>, line: &mut JsonLine<'_>) {
    put_members(body.get("parameters"), line);
}

fn audit_message(message: &[u8], line: &mut JsonLine<'_>) -> std::result::Result<(), DecodeError> {
    let request = pb::RepositoryModelUnloadRequest::decode(message)?;
    let dependents = request.parameters.get("unload_dependents").and_then(|p| p.parameter_choice.as_ref());
    if let Some(ParameterChoice::BoolParam(value)) = dependents {
        line.client_key(b"unload_dependents", LOG_NAME_BYTES_MAX);
        line.value(if *value { b"true" } else { b"false" });
    }
    Ok(())
}
