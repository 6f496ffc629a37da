//! Metrics that the code of a model makes (B-PY-20). They end with the process that made them.

use super::peer::Peer;
use crate::frames::MetricChange;
use crate::generated::MetricOperation;
use backend::metrics::{Holder, Kind, Labels, Update};
use parking_lot::Mutex;
use protocol::json::{Value, write_f64};
use std::sync::Arc;
use tensor::{Error, Result};

/// Metrics of one process.
#[derive(Default)]
pub(crate) struct Metrics {
    /// Created with the first family.
    holder: Mutex<Option<Arc<Holder>>>,
}

impl Metrics {
    /// Executes an operation on metrics. Returns the members of its result, each after a comma, or `None` if it is
    /// another operation.
    pub(super) fn operate(&self, peer: &dyn Peer, operation: &str, asked: Value<'_>) -> Result<Option<String>> {
        let text = |name| asked.member(name)?.as_string();
        let id = |name| asked.member(name)?.as_u64();
        Ok(Some(match operation {
            "family_new" => {
                let kind = text("kind")?;
                let kind =
                    Kind::from_name(&kind).ok_or_else(|| Error::invalid(format!("there is no kind '{kind}'")))?;
                let family = self.holder_or_new(peer)?.family_new(&text("name")?, &text("description")?, kind)?;
                format!(r#","family":{family}"#)
            }
            "family_delete" => {
                let family = id("family")?;
                if let Some(holder) = self.holder() {
                    holder.family_delete(family);
                }
                String::new()
            }
            "metric_new" => {
                let labels = asked.get("labels").map_or(Ok(Labels::new()), labels)?;
                let buckets = asked.get("buckets").filter(|b| !b.is_null()).map(buckets).transpose()?;
                let metric = self.existing_holder()?.metric_new(id("family")?, labels, buckets)?;
                format!(r#","metric":{metric}"#)
            }
            "metric_delete" => {
                let metric = id("metric")?;
                let with_series = asked.get("series").map_or(Ok(false), Value::as_bool)?;
                match self.holder() {
                    Some(holder) if with_series => holder.metric_delete_with_series(metric),
                    Some(holder) => holder.metric_delete(metric),
                    None => {}
                }
                String::new()
            }
            "metric_value" => format!(r#","value":{}"#, number(self.existing_holder()?.value(id("metric")?)?)),
            _ => return Ok(None),
        }))
    }

    /// Changes a metric. Invalid changes are ignored: the runner has already rejected them.
    pub(crate) fn update(&self, MetricChange { metric, value, operation }: MetricChange) {
        let update = match operation {
            MetricOperation::Increment => Update::Increment,
            MetricOperation::Set => Update::Set,
            MetricOperation::Observe => Update::Observe,
        };
        if let Some(holder) = self.holder() {
            let _ = holder.update(metric, update, value);
        }
    }

    /// Deletes all metrics because the process has ended.
    pub(crate) fn closed(&self) {
        let holder = self.holder.lock().take();
        drop(holder);
    }

    fn holder(&self) -> Option<Arc<Holder>> {
        self.holder.lock().clone()
    }

    fn existing_holder(&self) -> Result<Arc<Holder>> {
        self.holder().ok_or_else(|| Error::internal("this instance has no family of metrics"))
    }

    fn holder_or_new(&self, peer: &dyn Peer) -> Result<Arc<Holder>> {
        if let Some(holder) = self.holder() {
            return Ok(holder);
        }
        let host = peer.host().ok_or_else(|| Error::unavailable("there is no server for this call"))?;
        Ok(self.holder.lock().get_or_insert_with(|| Arc::new(Holder::new(host.metrics()))).clone())
    }
}

fn labels(value: Value<'_>) -> Result<Labels> {
    let label = |(name, value): (protocol::json::Text<'_>, Value<'_>)| {
        Ok((String::from_utf8_lossy(&name.decode()).into_owned(), value.as_string()?))
    };
    value.members()?.map(label).collect()
}

/// Bounds of buckets. One that is no JSON number comes as its name, such as `inf`.
fn buckets(value: Value<'_>) -> Result<Vec<f64>> {
    let bound = |bound: Value<'_>| {
        let named = bound.is_string().then(|| bound.as_string()).transpose()?;
        named.and_then(|name| name.parse().ok()).map_or_else(|| bound.as_f64(), Ok)
    };
    value.elements()?.map(bound).collect()
}

/// JSON of a double. NaN becomes null, and infinities become their names, because JSON has no numbers for them.
fn number(value: f64) -> String {
    if value.is_nan() {
        return "null".into();
    }
    if value.is_infinite() {
        return if value > 0.0 { r#""Infinity""#.into() } else { r#""-Infinity""#.into() };
    }
    let mut text = Vec::new();
    write_f64(&mut text, value);
    String::from_utf8_lossy(&text).into_owned()
}
