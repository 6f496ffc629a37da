//! Why a model is slow and what to change: sums of the last minutes, and replays of its requests.

use super::*;
use crate::http::decode::query_value;
use crate::limits::{EXPLANATIONS_MAX, HEAVY_BYTES_MIN};
use engine::Change;

/// Sums and advice of a model. `?simulate=instances:2,delay_us:100` replays a change.
pub struct ModelWhy;

impl Endpoint for ModelWhy {
    fn facts(&self) -> &'static Facts {
        const { &Facts::read("model_why", Category::Statistics) }
    }

    fn http<'a>(&'a self, exchange: &'a HttpExchange<'a>, _body: RequestBody) -> HttpAnswer<'a> {
        let change = change(&query_value(exchange.head.query(), "simulate"));
        later(async move {
            let PathNames { model, version, .. } = exchange.names();
            let change = change?;
            let explanation = exchange.context.shared.begin_explanation().ok_or_else(|| {
                Error::unavailable(format!(
                    "{EXPLANATIONS_MAX} requests for explanations of models are being processed, which is the maximum; \
                     try again later"
                ))
            })?;
            let (engine, model, version) = (exchange.context.engine.clone(), model.to_owned(), version.to_owned());
            let work = move || {
                let _explanation = explanation;
                engine.why(&model, &version, change.as_ref()).map(|json| offload::disposed(json.into()))
            };
            Ok(offload::run(HEAVY_BYTES_MIN, move |_| work()).await??)
        })
    }
}

/// Reads a change; `None` if the text is empty.
fn change(text: &str) -> tensor::Result<Option<Change>> {
    let mut change = Change::default();
    let wrong = |part: &str| {
        Error::invalid(format!(
            "'simulate' has '{part}': expected instances, delay_us, max_batch_size or threads, a colon and a number \
             from 1 (delay_us: 0) to 1000000, separated by commas, as in simulate=instances:2,delay_us:100"
        ))
    };
    for part in text.split(',').filter(|part| !part.is_empty()) {
        let (name, number) = part.split_once([':', '=']).ok_or_else(|| wrong(part))?;
        let number = number.parse().ok().filter(|number| *number <= 1_000_000u32).ok_or_else(|| wrong(part))?;
        let count = Some(number).filter(|number| *number > 0);
        match (name, count) {
            ("instances", Some(_)) => change.instances = count,
            ("max_batch_size", Some(_)) => change.max_batch_size = count,
            ("threads", Some(_)) => change.threads = count,
            ("delay_us", _) => change.delay_us = Some(number.into()),
            _ => return Err(wrong(part)),
        }
    }
    Ok(Some(change).filter(|_| !text.is_empty()))
}
