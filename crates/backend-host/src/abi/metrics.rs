//! Metrics of a backend: families, and the metrics in them. The server holds the values.
//!
//! A family belongs to the connection that made it, and its metrics to the same one. When that connection has ended,
//! the next use makes them again on another one and restores what this process counted; histograms begin anew. Without
//! any connection a metric only remembers. An update never fails for such a reason.

use super::exports::{Count, Items, Out, Passed, exports, objects};
use super::parameter::{Parameter, ParameterValue};
use crate::link::{Link, Way, short_frame};
use frames::generated::{Frame, MetricOperation, MetricUpdate};
use parking_lot::Mutex;
use serde_json::{Number, Value, json};
use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use tensor::{Error, Result};

/// `TRITONSERVER_MetricKind`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum MetricKind {
    Counter = 0,
    Gauge = 1,
    Histogram = 2,
}

impl MetricKind {
    fn from_number(number: u32) -> Option<Self> {
        [Self::Counter, Self::Gauge, Self::Histogram].into_iter().find(|kind| *kind as u32 == number)
    }

    fn name(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        }
    }
}

type Labels = BTreeMap<String, String>;

/// An object of the server, by the connection that it belongs to and its number there.
#[derive(Default)]
struct Remote {
    link: Weak<Link>,
    number: u64,
}

impl Remote {
    fn open(&self) -> Option<Arc<Link>> {
        self.link.upgrade().filter(|link| link.is_open())
    }
}

/// `TRITONSERVER_MetricFamily`. Its metrics share it.
pub(crate) struct MetricFamily(Arc<Family>);

struct Family {
    kind: MetricKind,
    name: String,
    description: String,
    remote: Mutex<Remote>,
    /// Number of live metrics of this object, by their labels.
    metrics: Mutex<BTreeMap<Labels, usize>>,
}

impl Family {
    /// The connection that has the family, and its number there; `None` without any connection.
    fn bind(&self) -> Result<Option<(Arc<Link>, u64)>> {
        let mut remote = self.remote.lock();
        if let Some(link) = remote.open() {
            return Ok(Some((link, remote.number)));
        }
        let Some(link) = Link::current() else { return Ok(None) };
        let (name, description, kind) = (&self.name, &self.description, self.kind.name());
        let made = json!({ "name": name, "description": description, "kind": kind });
        let Some(number) = ask_number(&link, "family_new", "family", made)? else { return Ok(None) };
        *remote = Remote { link: Arc::downgrade(&link), number };
        Ok(Some((link, number)))
    }
}

/// `TRITONSERVER_Metric`.
pub(crate) struct Metric {
    family: Arc<Family>,
    labels: Labels,
    buckets: Vec<f64>,
    state: Mutex<MetricState>,
}

#[derive(Default)]
struct MetricState {
    remote: Remote,
    /// Value that this process gave to a counter or a gauge.
    value: f64,
}

impl Metric {
    /// A metric; one with equal labels in an equal family has the same value.
    fn new(family: &MetricFamily, labels: Labels, args: Option<&MetricArgs>) -> Result<Self> {
        let family = Arc::clone(&family.0);
        let buckets = match (family.kind, args) {
            (MetricKind::Histogram, None) => {
                return Err(Error::invalid("Bucket boundaries not found in Metric args."));
            }
            (MetricKind::Histogram, Some(args)) => {
                args.buckets.clone().ok_or_else(|| Error::invalid("Metric args not set to histogram kind."))?
            }
            (kind, Some(_)) => {
                return Err(Error::invalid(format!("Unexpected args found in {} Metric constructor.", kind.name())));
            }
            (_, None) => Vec::new(),
        };
        let made = Self { family, labels, buckets, state: Mutex::default() };
        made.bind(&mut made.state.lock())?;
        *made.family.metrics.lock().entry(made.labels.clone()).or_default() += 1;
        Ok(made)
    }

    /// The connection that has the metric, and its number there; `None` without any connection.
    fn bind(&self, state: &mut MetricState) -> Result<Option<(Arc<Link>, u64)>> {
        if let Some(link) = state.remote.open() {
            return Ok(Some((link, state.remote.number)));
        }
        let Some((link, family)) = self.family.bind()? else { return Ok(None) };
        let mut made = json!({ "family": family, "labels": self.labels });
        if self.family.kind == MetricKind::Histogram {
            made["buckets"] = self.buckets.iter().copied().map(number).collect();
        }
        let Some(number) = ask_number(&link, "metric_new", "metric", made)? else { return Ok(None) };
        state.remote = Remote { link: Arc::downgrade(&link), number };
        // Other processes may have kept the series; then its value is still there.
        if state.value != 0.0 && value_of(&link, number)? == 0.0 {
            send(&link, number, MetricOperation::Increment, state.value);
        }
        Ok(Some((link, number)))
    }

    fn update(&self, operation: MetricOperation, value: f64) -> Result<()> {
        let kind = self.family.kind;
        let constant = format!("TRITONSERVER_METRIC_KIND_{}", kind.name().to_ascii_uppercase());
        let what = match (operation, kind) {
            (MetricOperation::Increment, MetricKind::Counter) if value < 0.0 => {
                return Err(Error::invalid(format!(
                    "{constant} can only be incremented monotonically by non-negative values."
                )));
            }
            (MetricOperation::Increment, MetricKind::Histogram) => Some("Increment"),
            (MetricOperation::Set, MetricKind::Counter | MetricKind::Histogram) => Some("Set"),
            (MetricOperation::Observe, MetricKind::Counter | MetricKind::Gauge) => Some("Observe"),
            _ => None,
        };
        if let Some(what) = what {
            return Err(Error::unsupported(format!("{constant} does not support {what}")));
        }
        let mut state = self.state.lock();
        // The model did nothing wrong if the server cannot make the metric again.
        let remote = self.bind(&mut state).unwrap_or_default();
        match operation {
            MetricOperation::Increment => state.value += value,
            MetricOperation::Set => state.value = value,
            MetricOperation::Observe => {}
        }
        if let Some((link, number)) = remote {
            send(&link, number, operation, value);
        }
        Ok(())
    }

    fn value(&self) -> Result<f64> {
        if self.family.kind == MetricKind::Histogram {
            return Err(Error::unsupported("TRITONSERVER_METRIC_KIND_HISTOGRAM does not support Value"));
        }
        let mut state = self.state.lock();
        match self.bind(&mut state)? {
            Some((link, number)) => value_of(&link, number),
            None => Ok(state.value),
        }
    }
}

/// Makes an object of the server and returns its number; `None` if the connection ended meanwhile.
fn ask_number(link: &Arc<Link>, operation: &str, result: &str, members: Value) -> Result<Option<u64>> {
    match link.ask::<Value>(operation, members) {
        Ok(answer) => Ok(answer[result].as_u64()),
        Err(_) if !link.is_open() => Ok(None),
        Err(error) => Err(error),
    }
}

/// The value of a metric. JSON has no numbers for some values, so they come as null and as texts.
fn value_of(link: &Arc<Link>, metric: u64) -> Result<f64> {
    let answer: Value = link.ask("metric_value", json!({ "metric": metric }))?;
    Ok(match &answer["value"] {
        Value::String(text) => text.parse().unwrap_or(f64::NAN),
        value => value.as_f64().unwrap_or(f64::NAN),
    })
}

/// A number as JSON, or its name as a text if JSON has none for it.
fn number(value: f64) -> Value {
    Number::from_f64(value).map_or_else(|| value.to_string().into(), Value::Number)
}

fn send(link: &Arc<Link>, metric: u64, operation: MetricOperation, value: f64) {
    let update = MetricUpdate { metric, value, operation: operation as u8 };
    link.send(Way::Side, &short_frame(Frame::MetricUpdate, |to| update.write(to)));
}

/// `TRITONSERVER_MetricArgs`: what a metric needs beside its labels.
#[derive(Default)]
pub(crate) struct MetricArgs {
    buckets: Option<Vec<f64>>,
}

objects! {
    Metric: "metric";
    MetricArgs: "metric args";
    MetricFamily: "metric family";
}

exports! {
    "metrics" fn TRITONSERVER_MetricFamilyNew(
        family: Out<*mut MetricFamily>,
        kind: u32,
        name: String,
        description: String,
    ) {
        let kind = MetricKind::from_number(kind)
            .ok_or_else(|| Error::invalid("Unsupported kind passed to MetricFamily constructor."))?;
        let made = Family { kind, name, description, remote: Mutex::default(), metrics: Mutex::default() };
        made.bind()?;
        family.give(MetricFamily(Arc::new(made)));
    }

    /// Deletes a family that has no metrics; another one stays the library's.
    "metrics" fn TRITONSERVER_MetricFamilyDelete(family: Box<MetricFamily>) {
        if !family.0.metrics.lock().is_empty() {
            Box::leak(family);
            let text = "Must call MetricDelete on all dependent metrics before calling MetricFamilyDelete.";
            return Err(Error::internal(text));
        }
        let remote = family.0.remote.lock();
        if let Some(link) = remote.open() {
            // Waits, so that the next scrape does not find it. An error says that its connection has ended.
            let _ = link.ask::<Value>("family_delete", json!({ "family": remote.number }));
        }
    }

    "metrics" get TRITONSERVER_GetMetricFamilyKind(family: &MetricFamily) -> u32 = family.0.kind as u32;

    /// Arguments that are of no kind yet.
    "metrics" fn TRITONSERVER_MetricArgsNew(args: Out<*mut MetricArgs>) => args.give(MetricArgs::default());

    /// Makes them arguments of a histogram, with copies of the upper bounds of its buckets.
    "metrics" fn TRITONSERVER_MetricArgsSetHistogram(
        args: &mut MetricArgs,
        buckets: Items<f64>,
        buckets_count: Count<u64>,
    ) => args.buckets = Some(buckets.of(buckets_count).to_vec());

    "metrics" delete TRITONSERVER_MetricArgsDelete(MetricArgs);

    "metrics" fn TRITONSERVER_MetricNew(
        metric: Out<*mut Metric>,
        family: &MetricFamily,
        labels: Items<Passed<Parameter>>,
        label_count: Count<u64>,
    ) => metric.give(Metric::new(family, labels_of(&labels, label_count)?, None)?);

    "metrics" fn TRITONSERVER_MetricNewWithArgs(
        metric: Out<*mut Metric>,
        family: &MetricFamily,
        labels: Items<Passed<Parameter>>,
        label_count: Count<u64>,
        args: Option<&MetricArgs>,
    ) => metric.give(Metric::new(family, labels_of(&labels, label_count)?, args)?);

    /// Deletes a metric; the last one of a family with these labels takes its series along.
    "metrics" fn TRITONSERVER_MetricDelete(metric: Box<Metric>) {
        let mut metrics = metric.family.metrics.lock();
        let left = metrics.remove(&metric.labels).unwrap_or(1) - 1;
        if left > 0 {
            metrics.insert(metric.labels.clone(), left);
        }
        drop(metrics);
        let state = metric.state.lock();
        if let Some(link) = state.remote.open() {
            // Waits, as above.
            let members = json!({ "metric": state.remote.number, "series": left == 0 });
            let _ = link.ask::<Value>("metric_delete", members);
        }
    }

    /// The value of a counter or a gauge.
    "metrics" get TRITONSERVER_MetricValue(metric: &Metric) -> f64 = metric.value()?;
    /// Adds to a counter or a gauge.
    "metrics" fn TRITONSERVER_MetricIncrement(metric: &Metric, value: f64) =>
        metric.update(MetricOperation::Increment, value)?;
    /// Sets a gauge.
    "metrics" fn TRITONSERVER_MetricSet(metric: &Metric, value: f64) => metric.update(MetricOperation::Set, value)?;
    /// Counts a value in a histogram.
    "metrics" fn TRITONSERVER_MetricObserve(metric: &Metric, value: f64) =>
        metric.update(MetricOperation::Observe, value)?;
    "metrics" get TRITONSERVER_GetMetricKind(metric: &Metric) -> u32 = metric.family.kind as u32;
}

fn labels_of(labels: &Items<Passed<Parameter>>, count: Count<u64>) -> Result<Labels> {
    let label = |label: Result<&Parameter>| {
        let Parameter { name, value } = label?;
        let name = name.to_string_lossy().into_owned();
        let ParameterValue::String(value) = value else {
            return Err(Error::invalid(format!(
                "Parameter [{name}] must have a type of TRITONSERVER_PARAMETER_STRING to be added as a label."
            )));
        };
        Ok((name, value.to_string_lossy().into_owned()))
    };
    labels.objects(count, "metric label").map(label).collect()
}

#[cfg(test)]
mod tests;
