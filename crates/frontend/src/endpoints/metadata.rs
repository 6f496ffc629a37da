//! Metadata of the server and of models.

use super::*;
use crate::limits::ENTRIES_ON_REACTOR_MAX;
use engine::ModelVersion;
use protocol::http::model_metadata_json;
use protocol::http::server_metadata_json;
use std::sync::Arc;
use tensor::DataType;
use tensor::Name;

/// Name, version and extensions of the server.
pub struct ServerMetadata;

impl Endpoint for ServerMetadata {
    fn facts(&self) -> &'static Facts {
        const { &Facts::read("server_metadata", Category::Metadata) }
    }

    fn http<'a>(&'a self, exchange: &'a HttpExchange<'a>, _body: RequestBody) -> HttpAnswer<'a> {
        let m = exchange.context.engine.server_metadata();
        HttpAnswer::Ready(Reply::json(server_metadata_json(&m.name, &m.version, &m.extensions)))
    }

    fn grpc<'a>(&'a self, exchange: GrpcExchange<'a>, _message: Bytes) -> GrpcAnswer<'a> {
        let m = exchange.engine().server_metadata().clone();
        let response = pb::ServerMetadataResponse { name: m.name, version: m.version, extensions: m.extensions };
        Box::pin(std::future::ready(Ok(frame(&response))))
    }
}

/// A version, and the numbers to list with it.
pub struct Metadata {
    /// The version that was named, or the greatest that is ready.
    pub version: Arc<ModelVersion>,
    /// The version that was named, or all that are ready.
    pub versions: Vec<i64>,
}

impl Metadata {
    /// Looks a model up; an empty `version` means the greatest that is ready.
    ///
    /// # Errors
    /// INVALID_ARG, NOT_FOUND or UNAVAILABLE if no version serves under this name and number.
    pub fn find(engine: &Engine, name: &str, version: &str) -> tensor::Result<Self> {
        Ok(Self::of(engine, engine.model(name, version)?, name, version))
    }

    fn of(engine: &Engine, found: Arc<ModelVersion>, name: &str, version: &str) -> Self {
        let versions = if version.is_empty() { engine.ready_versions(name) } else { vec![found.identity.number] };
        Self { version: found, versions }
    }

    /// The body of the HTTP response.
    pub fn json(&self) -> Bytes {
        model_metadata_json(&self.version.signature, &self.versions, &self.version.identity.platform)
    }
}

/// Versions and tensors of a model.
pub struct ModelMetadata;

/// Metadata of a version, encoded; on another thread if it has many tensors.
async fn metadata<T: Send + 'static>(
    with: &Context<'_>,
    [name, version]: [&str; 2],
    found: impl FnOnce() -> tensor::Result<Arc<ModelVersion>>,
    encode: impl FnOnce(&Metadata) -> T + Send + 'static,
) -> Result<T> {
    with.admit_model(name)?;
    let metadata = Metadata::of(with.engine, found()?, name, version);
    let signature = &metadata.version.signature;
    let is_long = signature.inputs.len() + signature.outputs.len() > ENTRIES_ON_REACTOR_MAX;
    Ok(offload::run_if(is_long, 0, move || encode(&metadata)).await?)
}

impl Endpoint for ModelMetadata {
    fn facts(&self) -> &'static Facts {
        const { &Facts { names: MODEL_NAMES, ..Facts::read("model_metadata", Category::Metadata) } }
    }

    fn http<'a>(&'a self, exchange: &'a HttpExchange<'a>, _body: RequestBody) -> HttpAnswer<'a> {
        later(async move {
            let PathNames { model, version, .. } = exchange.names();
            let found = || exchange.version().cloned();
            metadata(&exchange.operations(), [model, version], found, |metadata| metadata.json()).await
        })
    }

    fn grpc<'a>(&'a self, exchange: GrpcExchange<'a>, message: Bytes) -> GrpcAnswer<'a> {
        Box::pin(async move {
            let pb::ModelMetadataRequest { name, version } = decode(message)?;
            let found = || exchange.version(&name, &version).cloned();
            Ok(metadata(&exchange.operations(), [&name, &version], found, metadata_frame).await?)
        })
    }
}

fn metadata_frame(metadata: &Metadata) -> Rope {
    let signature = &metadata.version.signature;
    let tensor = |name: &Name, datatype: DataType, dims: &[i64]| {
        let batch = (signature.max_batch_size > 0).then_some(-1);
        pb::model_metadata_response::TensorMetadata {
            name: name.to_string(),
            datatype: datatype.name().to_owned(),
            shape: batch.into_iter().chain(dims.iter().copied()).collect(),
        }
    };
    frame(&pb::ModelMetadataResponse {
        name: signature.model.to_string(),
        versions: metadata.versions.iter().map(ToString::to_string).collect(),
        platform: metadata.version.identity.platform.clone(),
        inputs: signature.inputs.iter().map(|i| tensor(&i.name, i.datatype, &i.dims)).collect(),
        outputs: signature.outputs.iter().map(|o| tensor(&o.name, o.datatype, &o.dims)).collect(),
    })
}
