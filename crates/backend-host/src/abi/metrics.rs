//! Metrics of a backend: families, and the metrics in them. The server holds the values.
//!
//! A family belongs to the connection that made it, and its metrics to the same one. When that connection has ended,
//! the next use makes them again on another one and restores what this process counted; histograms begin anew. Without
//! any connection a metric only remembers. An update never fails for such a reason.

#![allow(unsafe_code)] // pointers of a C API

use super::exports::{Out, exports, objects};
use super::parameter::{Parameter, ParameterValue};
use super::{Err, object};
use crate::json::{add_text, add_texts};
use crate::link::{Link, Way};
use frames::generated::{Frame, MetricOperation, MetricUpdate};
use frames::{InstanceId, write};
use parking_lot::Mutex;
use protocol::json::{Value, write_f64};
use std::collections::BTreeMap;
use std::ptr::null;
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

/// `TRITONSERVER_MetricFamily`.
pub(crate) struct MetricFamily {
    kind: MetricKind,
    name: String,
    description: String,
    remote: Mutex<Remote>,
    /// Number of live metrics of this object, by their labels.
    metrics: Mutex<BTreeMap<Labels, usize>>,
}

impl MetricFamily {
    /// The connection that has the family, and its number there; `None` without any connection.
    fn bind(&self) -> Result<Option<(Arc<Link>, u64)>> {
        let mut remote = self.remote.lock();
        if let Some(link) = remote.open() {
            return Ok(Some((link, remote.number)));
        }
        let Some(link) = Link::current() else { return Ok(None) };
        let family = ask_number(&link, "family_new", "family", |json| {
            add_text(json, "name", &self.name);
            add_text(json, "description", &self.description);
            add_text(json, "kind", self.kind.name());
        });
        let Some(number) = family? else { return Ok(None) };
        *remote = Remote { link: Arc::downgrade(&link), number };
        Ok(Some((link, number)))
    }
}

/// `TRITONSERVER_Metric`.
pub(crate) struct Metric {
    family: Arc<MetricFamily>,
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
    /// The connection that has the metric, and its number there; `None` without any connection.
    fn bind(&self, state: &mut MetricState) -> Result<Option<(Arc<Link>, u64)>> {
        if let Some(link) = state.remote.open() {
            return Ok(Some((link, state.remote.number)));
        }
        let Some((link, family)) = self.family.bind()? else { return Ok(None) };
        let metric = ask_number(&link, "metric_new", "metric", |json| {
            json.extend_from_slice(format!(r#","family":{family}"#).as_bytes());
            add_texts(json, "labels", &self.labels);
            if self.family.kind == MetricKind::Histogram {
                json.extend_from_slice(br#","buckets":["#);
                for (at, bound) in self.buckets.iter().enumerate() {
                    json.extend_from_slice(if at == 0 { b"" } else { b"," });
                    write_f64(json, *bound);
                }
                json.push(b']');
            }
        });
        let Some(number) = metric? else { return Ok(None) };
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
fn ask_number(
    link: &Arc<Link>,
    operation: &str,
    result: &str,
    members: impl FnOnce(&mut Vec<u8>),
) -> Result<Option<u64>> {
    match link.ask(operation, members) {
        Ok(answer) => Ok(Some(Value::parse(answer.as_bytes())?.member(result)?.as_u64()?)),
        Err(_) if !link.is_open() => Ok(None),
        Err(error) => Err(error),
    }
}

/// The value of a metric. JSON has no numbers for some values, so they come as null and as texts.
fn value_of(link: &Arc<Link>, metric: u64) -> Result<f64> {
    let answer =
        link.ask("metric_value", |json| json.extend_from_slice(format!(r#","metric":{metric}"#).as_bytes()))?;
    let value = Value::parse(answer.as_bytes())?.member("value")?;
    if value.is_null() {
        return Ok(f64::NAN);
    }
    if value.is_string() {
        return Ok(if value.as_string()? == "Infinity" { f64::INFINITY } else { f64::NEG_INFINITY });
    }
    value.as_f64()
}

fn send(link: &Arc<Link>, metric: u64, operation: MetricOperation, value: f64) {
    let mut frame = Vec::new();
    let writing = write::begin(&mut frame, InstanceId::ONLY, Frame::MetricUpdate);
    MetricUpdate { metric, value, operation: operation as u8 }.write(&mut frame);
    // It has a fixed length.
    let _ = writing.end(&mut frame);
    link.send(Way::Side, &frame);
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
    /// A new family.
    fn TRITONSERVER_MetricFamilyNew(family: Out<*const MetricFamily>, kind: u32, name: String, description: String) {
        let kind = MetricKind::from_number(kind)
            .ok_or_else(|| Error::invalid("Unsupported kind passed to MetricFamily constructor."))?;
        let made = MetricFamily { kind, name, description, remote: Mutex::default(), metrics: Mutex::default() };
        made.bind()?;
        family.put(Arc::into_raw(Arc::new(made)));
    }

    /// Deletes a family that has no metrics.
    fn TRITONSERVER_MetricFamilyDelete(family: *const MetricFamily) {
        // SAFETY: null, or a family that the library has.
        let live = unsafe { object(family, "metric family") }?;
        if !live.metrics.lock().is_empty() {
            return Err(Error::internal(
                "Must call MetricDelete on all dependent metrics before calling MetricFamilyDelete.",
            ));
        }
        // SAFETY: made by `Arc::into_raw`, and the caller's.
        let family = unsafe { Arc::from_raw(family) };
        let remote = family.remote.lock();
        if let Some(link) = remote.open() {
            let number = remote.number;
            // Waits, so that the next scrape does not find it. An error says that its connection has ended.
            let _ =
                link.ask("family_delete", |json| json.extend_from_slice(format!(r#","family":{number}"#).as_bytes()));
        }
    }

    /// Gives the kind of a family.
    fn TRITONSERVER_GetMetricFamilyKind(family: &MetricFamily, kind: Out<u32>) {
        kind.put(family.kind as u32);
    }

    /// New arguments, which are of no kind yet.
    fn TRITONSERVER_MetricArgsNew(args: Out<*mut MetricArgs>) {
        args.give(MetricArgs::default());
    }

    /// Makes them arguments of a histogram, with copies of the upper bounds of its buckets.
    fn TRITONSERVER_MetricArgsSetHistogram(args: &mut MetricArgs, buckets: *const f64, buckets_count: u64) {
        let count = if buckets.is_null() { 0 } else { buckets_count as usize };
        // SAFETY: the caller promises so many numbers; a null pointer has none.
        args.buckets = Some((0..count).map(|at| unsafe { *buckets.add(at) }).collect());
    }

    /// Deletes arguments.
    fn TRITONSERVER_MetricArgsDelete(args: Option<Box<MetricArgs>>) {
        drop(args);
    }
}

/// A new metric that needs no arguments.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_MetricNew(
    metric: *mut *mut Metric,
    family: *const MetricFamily,
    labels: *const *const Parameter,
    label_count: u64,
) -> Err {
    // SAFETY: the caller's promise.
    unsafe { TRITONSERVER_MetricNewWithArgs(metric, family, labels, label_count, null()) }
}

exports! {
    /// A new metric. One with equal labels in an equal family has the same value.
    fn TRITONSERVER_MetricNewWithArgs(
        metric: Out<*mut Metric>,
        family: *const MetricFamily,
        labels: *const *const Parameter,
        label_count: u64,
        args: Option<&MetricArgs>,
    ) {
        // SAFETY: null, or a family that the library has.
        let known = unsafe { object(family, "metric family") }?;
        // SAFETY: the caller promises so many labels; a null pointer has none.
        let labels = unsafe { labels_of(labels, label_count) }?;
        let buckets = match (known.kind, args) {
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
        // SAFETY: made by `Arc::into_raw` and live, so one more may own it.
        let family = unsafe {
            Arc::increment_strong_count(family);
            Arc::from_raw(family)
        };
        let made = Metric { family, labels, buckets, state: Mutex::default() };
        made.bind(&mut made.state.lock())?;
        *made.family.metrics.lock().entry(made.labels.clone()).or_default() += 1;
        metric.give(made);
    }
}

/// # Safety
/// `labels` is null or has `count` pointers at live parameters.
unsafe fn labels_of(labels: *const *const Parameter, count: u64) -> Result<Labels> {
    let count = if labels.is_null() { 0 } else { count as usize };
    let label = |at| {
        // SAFETY: the caller's promise.
        let Parameter { name, value } = unsafe { object(*labels.add(at), "metric label") }?;
        let name = name.to_string_lossy().into_owned();
        let ParameterValue::String(value) = value else {
            return Err(Error::invalid(format!(
                "Parameter [{name}] must have a type of TRITONSERVER_PARAMETER_STRING to be added as a label."
            )));
        };
        Ok((name, value.to_string_lossy().into_owned()))
    };
    (0..count).map(label).collect()
}

exports! {
    /// Deletes a metric; the last one of a family with these labels takes its series along.
    fn TRITONSERVER_MetricDelete(metric: Box<Metric>) {
        let mut metrics = metric.family.metrics.lock();
        let left = metrics.remove(&metric.labels).unwrap_or(1) - 1;
        if left > 0 {
            metrics.insert(metric.labels.clone(), left);
        }
        drop(metrics);
        let state = metric.state.lock();
        if let Some(link) = state.remote.open() {
            let (number, with_series) = (state.remote.number, left == 0);
            // Waits, as above.
            let _ = link.ask("metric_delete", |json| {
                json.extend_from_slice(format!(r#","metric":{number},"series":{with_series}"#).as_bytes());
            });
        }
    }

    /// Gives the value of a counter or a gauge.
    fn TRITONSERVER_MetricValue(metric: &Metric, value: Out<f64>) {
        value.put(metric.value()?);
    }

    /// Adds to a counter or a gauge.
    fn TRITONSERVER_MetricIncrement(metric: &Metric, value: f64) {
        metric.update(MetricOperation::Increment, value)
    }

    /// Sets a gauge.
    fn TRITONSERVER_MetricSet(metric: &Metric, value: f64) {
        metric.update(MetricOperation::Set, value)
    }

    /// Counts a value in a histogram.
    fn TRITONSERVER_MetricObserve(metric: &Metric, value: f64) {
        metric.update(MetricOperation::Observe, value)
    }

    /// Gives the kind of a metric.
    fn TRITONSERVER_GetMetricKind(metric: &Metric, kind: Out<u32>) {
        kind.put(metric.family.kind as u32);
    }
}

#[cfg(test)]
mod tests;
