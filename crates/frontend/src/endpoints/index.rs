//! The repository index: models and their states.

use super::*;

/// The repository index.
pub struct Index;

/// # Errors
/// UNSUPPORTED for a repository by name.
pub fn reject_named(repository: &str) -> tensor::Result<()> {
    if repository.is_empty() {
        return Ok(());
    }
    Err(Error::unsupported("'repository_name' specification is not supported"))
}

/// The models, or those that are ready, as the JSON of the native contract.
async fn index(with: &Context<'_>, ready: bool) -> Result<String> {
    let mut argument = Text::begin(b'{');
    argument.key("ready").boolean(ready).close(b'}');
    with.control(ControlOperation::RepositoryIndex, argument).await
}

impl Endpoint for Index {
    fn facts(&self) -> &'static Facts {
        const { &Facts::read("index", Category::ModelRepository) }
    }

    // A repository in the path means the same as none.
    fn http<'a>(&'a self, exchange: &'a HttpExchange<'a>, body: RequestBody) -> HttpAnswer<'a> {
        later(async move {
            let ready = read(body.bytes, |body| match optional(body)?.and_then(|v| v.get("ready")) {
                None => Ok(false),
                Some(ready) => {
                    ready.as_bool().map_err(|_| Error::invalid("Invalid value for 'ready': expected a boolean"))
                }
            });
            index(&exchange.operations(), ready.await?).await.map(Bytes::from)
        })
    }

    fn grpc<'a>(&'a self, exchange: GrpcExchange<'a>, message: Bytes) -> GrpcAnswer<'a> {
        Box::pin(async move {
            let pb::RepositoryIndexRequest { repository_name, ready } = decode(message)?;
            reject_named(&repository_name)?;
            let json = index(&exchange.operations(), ready).await?;
            let length = json.len();
            Ok(offload::run_if(length > JSON_BYTES_ON_REACTOR_MAX, length, move || index_frame(&json)).await??)
        })
    }
}

fn index_frame(json: &str) -> tensor::Result<Rope> {
    let text = |value: Option<Value<'_>>| value.map_or(Ok(String::new()), Value::as_string);
    let mut response = pb::RepositoryIndexResponse::default();
    for model in Value::parse(json.as_bytes())?.elements()? {
        response.models.push(pb::repository_index_response::ModelIndex {
            name: text(model.get("name"))?,
            version: text(model.get("version"))?,
            state: text(model.get("state"))?,
            reason: text(model.get("reason"))?,
        });
    }
    Ok(frame(&response))
}
