//! Records of past inferences: the slowest ones, and those that failed.

use super::*;
use crate::http::decode::query_value;
use crate::limits::{WHY_FAILED_MAX, WHY_MINUTES, WHY_SLOWEST_MAX};

/// The records of one id, or all of them by cause.
pub struct PastRequests;

impl Endpoint for PastRequests {
    fn facts(&self) -> &'static Facts {
        const { &Facts { is_filtered: true, ..Facts::read("why", Category::Statistics) } }
    }

    fn http<'a>(&'a self, exchange: &'a HttpExchange<'a>, _body: RequestBody) -> HttpAnswer<'a> {
        later(async move {
            let value = |name: &str| query_value(exchange.head.query(), name).into_owned();
            let (id, model) = (value("id"), value("model"));
            if !model.is_empty() {
                exchange.with.grant.admit_model(&model)?;
            }
            let (kept, grant) = (exchange.context.shared.kept().clone(), exchange.with.grant.clone());
            let work = move || {
                let covers = |model: &str| grant.covers(model);
                if id.is_empty() {
                    return Ok(kept.listed(&model, covers));
                }
                let records = kept.of_id(id.as_bytes(), &model, covers);
                if records.is_empty() {
                    return Err(unknown(&id));
                }
                Ok(format!(r#"{{"requests":[{}]}}"#, records.join(",")))
            };
            Ok(offload::run(0, move |_| work()).await??.into())
        })
    }
}

fn unknown(id: &str) -> Error {
    Error::not_found(format!(
        "no record of a request with the id '{id}' is kept: the server keeps the {WHY_SLOWEST_MAX} slowest inferences \
         of the last {WHY_MINUTES} minutes and the last {WHY_FAILED_MAX} that failed; a request with the field \
         'nereid-why: 1' gets its record with its response"
    ))
}
