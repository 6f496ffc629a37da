//! Statistics of a model, or of all.

use super::*;
use crate::limits::MODELS_ON_REACTOR_MAX;
use engine::VersionStatistics;
use engine::statistics_json;

/// Statistics of the model that is named, or of all.
pub struct Statistics;

/// Statistics of a model, or of all if `name` is empty, encoded; on another thread if they are many.
async fn statistics<T: Send + 'static>(
    with: &Context<'_>,
    name: &str,
    version: &str,
    encode: impl FnOnce(&[VersionStatistics]) -> T + Send + 'static,
) -> Result<T> {
    with.admit_model(name)?;
    let engine = with.engine.clone();
    let models = if name.is_empty() { engine.models() } else { engine.ready_versions(name).len() };
    let (name, version) = (name.to_owned(), version.to_owned());
    let work = move || engine.statistics(&name, &version).map(|statistics| encode(&statistics));
    Ok(offload::run_if(models > MODELS_ON_REACTOR_MAX, 0, work).await??)
}

impl Endpoint for Statistics {
    fn facts(&self) -> &'static Facts {
        const { &Facts { names: MODEL_NAMES, ..Facts::read("statistics", Category::Statistics) } }
    }

    fn http<'a>(&'a self, exchange: &'a HttpExchange<'a>, _body: RequestBody) -> HttpAnswer<'a> {
        later(async move {
            let PathNames { model, version, .. } = exchange.names();
            let encode = |statistics: &[_]| offload::disposed(statistics_json(statistics).into());
            statistics(&exchange.operations(), model, version, encode).await
        })
    }

    fn grpc<'a>(&'a self, exchange: GrpcExchange<'a>, message: Bytes) -> GrpcAnswer<'a> {
        Box::pin(async move {
            let pb::ModelStatisticsRequest { name, version } = decode(message)?;
            let encode = |statistics: &[VersionStatistics]| {
                frame(&pb::ModelStatisticsResponse { model_stats: statistics.iter().map(Into::into).collect() })
            };
            Ok(statistics(&exchange.operations(), &name, &version, encode).await?)
        })
    }
}
