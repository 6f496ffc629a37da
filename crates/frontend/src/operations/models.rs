//! Readiness, metadata, configuration and statistics of models.

use super::{Context, Result};
use crate::exchange::Exchange;
use crate::limits::{ENTRIES_ON_REACTOR_MAX, MODELS_ON_REACTOR_MAX};
use crate::offload;
use bytes::Bytes;
use engine::{Engine, ModelVersion, ReadinessState, VersionStatistics};
use protocol::http::model_metadata_json;
use std::sync::Arc;

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
    /// Those of [`Engine::model`].
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

/// Readiness of a model, for which its own code may have to be called.
pub fn readiness(context: &Context<'_>, name: &str, version: &str) -> Result<ReadinessState> {
    context.admit_model(name)?;
    Ok(context.engine.model_ready(name, version)?)
}

/// The version whose configuration is requested.
pub fn configured<'e>(
    context: &Context<'_>,
    exchange: &'e Exchange,
    name: &str,
    version: &str,
) -> Result<&'e Arc<ModelVersion>> {
    context.admit_model(name)?;
    Ok(exchange.version(context.engine, name, version)?)
}

/// Metadata of a model, encoded; on another thread if it has many tensors.
pub async fn metadata<T: Send + 'static>(
    context: &Context<'_>,
    exchange: &Exchange,
    name: &str,
    version: &str,
    encode: impl FnOnce(&Metadata) -> T + Send + 'static,
) -> Result<T> {
    context.admit_model(name)?;
    let found = exchange.version(context.engine, name, version)?.clone();
    let metadata = Metadata::of(context.engine, found, name, version);
    let signature = &metadata.version.signature;
    let is_long = signature.inputs.len() + signature.outputs.len() > ENTRIES_ON_REACTOR_MAX;
    Ok(offload::run_if(is_long, 0, move || encode(&metadata)).await?)
}

/// Statistics of a model, or of all if `name` is empty, encoded; on another thread if they are many.
pub async fn statistics<T: Send + 'static>(
    context: &Context<'_>,
    name: &str,
    version: &str,
    encode: impl FnOnce(&[VersionStatistics]) -> T + Send + 'static,
) -> Result<T> {
    context.admit_model(name)?;
    let engine = context.engine.clone();
    let models = if name.is_empty() { engine.models() } else { engine.ready_versions(name).len() };
    let (name, version) = (name.to_owned(), version.to_owned());
    let work = move || engine.statistics(&name, &version).map(|statistics| encode(&statistics));
    Ok(offload::run_if(models > MODELS_ON_REACTOR_MAX, 0, work).await??)
}
