//! Metrics that models create (B-PY-20): families, and the series in them.
//!
//! Equal names and kinds share one family, which keeps the first description; equal labels share one series of it. A
//! family is removed, with its series, when every process that created it has deleted it, as in Triton. Dropping a
//! [`Holder`] deletes everything of its process, so nothing remains of a process that died.
//!
//! Updates lock only the holder; creating and deleting also lock all families, as a scrape does while it copies.
//!
//! Texts are Triton's, without the prefix that its Python backend adds.

mod series;
#[cfg(test)]
mod tests;

pub use series::{HistogramSnapshot, Kind, SeriesValue, Update};

use parking_lot::Mutex;
use series::Series;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use tensor::{Error, Result};

/// Maximum number of families, over all models.
pub const FAMILIES_MAX: usize = 1024;
/// Maximum number of series, over all families. A scrape has one line for each, a histogram one for each bucket.
pub const SERIES_MAX: usize = 16_384;
/// Maximum number of labels of one series.
pub const LABELS_MAX: usize = 64;
/// Maximum number of finite buckets of one histogram.
pub const BUCKETS_MAX: usize = 512;
/// Maximum bytes of the names, descriptions, labels and buckets of all families together.
pub const BYTES_MAX: usize = 16 << 20;
/// Maximum bytes of a name or a description, and of all labels of one series.
pub const TEXT_BYTES_MAX: usize = 16 << 10;
/// Maximum number of families and metrics that one process may hold; it may hold the same series many times.
pub const HANDLES_MAX: usize = 65_536;

/// Label names and values, sorted by name.
pub type Labels = BTreeMap<String, String>;

/// All families of a server.
pub struct CustomMetrics {
    /// False when the server has metrics turned off.
    is_on: bool,
    registry: Mutex<Registry>,
}

#[derive(Default)]
struct Registry {
    families: HashMap<String, Family>,
    /// Number of families created so far.
    made: u64,
    series: usize,
    bytes: usize,
}

struct Family {
    /// Position in the order of creation, in which families are shown.
    number: u64,
    description: String,
    kind: Kind,
    /// Number of holders that created the family and have not deleted it.
    holders: usize,
    series: BTreeMap<Labels, Arc<Series>>,
    /// This family's part of `Registry::bytes`.
    bytes: usize,
}

/// A family at one moment.
#[derive(Debug, Clone, PartialEq)]
#[allow(missing_docs)]
pub struct FamilySnapshot {
    pub name: String,
    pub description: String,
    pub kind: Kind,
    /// Sorted by labels.
    pub series: Vec<(Labels, SeriesValue)>,
}

fn limit(what: &str, limit: usize) -> Error {
    Error::unavailable(format!("metrics of models are limited to {limit} {what}"))
}

fn starts_well(name: &str) -> bool {
    !name.is_empty() && !name.starts_with(|c: char| c.is_ascii_digit()) && !name.starts_with("__")
}

fn is_metric_name(name: &str) -> bool {
    starts_well(name) && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b':')
}

fn is_label_name(name: &str, kind: Kind) -> bool {
    let taken = kind == Kind::Histogram && name == "le";
    starts_well(name) && !taken && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
}

impl CustomMetrics {
    /// With `is_on` false, nothing can be created.
    pub fn new(is_on: bool) -> Arc<Self> {
        Arc::new(Self { is_on, registry: Mutex::default() })
    }

    /// All families, in the order of their creation.
    pub fn snapshot(&self) -> Vec<FamilySnapshot> {
        let registry = self.registry.lock();
        let mut families: Vec<_> = registry.families.iter().collect();
        families.sort_by_key(|(_, family)| family.number);
        let snapshot = |(name, family): (&String, &Family)| FamilySnapshot {
            name: name.clone(),
            description: family.description.clone(),
            kind: family.kind,
            series: family
                .series
                .iter()
                .filter(|(_, series)| !series.is_hidden())
                .map(|(labels, series)| (labels.clone(), series.value()))
                .collect(),
        };
        families.into_iter().map(snapshot).collect()
    }

    /// Current number of families, series and bytes.
    pub fn used(&self) -> [usize; 3] {
        let registry = self.registry.lock();
        [registry.families.len(), registry.series, registry.bytes]
    }

    fn hold(&self, name: &str, description: &str, kind: Kind) -> Result<()> {
        if !self.is_on {
            // The vLLM backend matches this text and then continues without metrics.
            return Err(Error::unsupported("metrics not supported"));
        }
        if !is_metric_name(name) {
            return Err(Error::invalid("Invalid metric name"));
        }
        let mut registry = self.registry.lock();
        let bytes = registry.bytes;
        if let Some(family) = registry.families.get_mut(name) {
            if family.kind != kind {
                return Err(Error::invalid("Family name already exists with different type"));
            }
            family.holders += 1;
            return Ok(());
        }
        if registry.families.len() >= FAMILIES_MAX {
            return Err(limit("families", FAMILIES_MAX));
        }
        if name.len().max(description.len()) > TEXT_BYTES_MAX {
            return Err(limit("bytes of a name or a description", TEXT_BYTES_MAX));
        }
        let own = name.len() + description.len();
        if bytes + own > BYTES_MAX {
            return Err(limit("bytes of text", BYTES_MAX));
        }
        registry.bytes += own;
        registry.made += 1;
        let (number, description, series) = (registry.made, description.to_owned(), BTreeMap::new());
        registry.families.insert(name.to_owned(), Family { number, description, kind, holders: 1, series, bytes: own });
        Ok(())
    }

    fn release(&self, name: &str) {
        let mut registry = self.registry.lock();
        let Some(family) = registry.families.get_mut(name) else { return };
        family.holders -= 1;
        if family.holders > 0 {
            return;
        }
        if let Some(family) = registry.families.remove(name) {
            registry.series -= family.series.len();
            registry.bytes -= family.bytes;
        }
    }

    fn series(&self, family: &str, labels: Labels, buckets: Option<Vec<f64>>) -> Result<Arc<Series>> {
        let mut registry = self.registry.lock();
        let Registry { families, series, bytes, .. } = &mut *registry;
        let family = families.get_mut(family).ok_or_else(deleted)?;
        let bounds = bounds(family.kind, buckets)?;
        if labels.keys().any(|name| !is_label_name(name, family.kind)) {
            return Err(Error::invalid("Invalid label name"));
        }
        // An existing series keeps its buckets.
        if let Some(known) = family.series.get(&labels) {
            return Ok(known.clone());
        }
        if labels.len() > LABELS_MAX {
            return Err(limit("labels of a metric", LABELS_MAX));
        }
        if *series >= SERIES_MAX {
            return Err(limit("labelled series", SERIES_MAX));
        }
        let text: usize = labels.iter().map(|(name, value)| name.len() + value.len()).sum();
        if text > TEXT_BYTES_MAX {
            return Err(limit("bytes of the labels of a metric", TEXT_BYTES_MAX));
        }
        let own = series_bytes(&labels, bounds.len());
        if *bytes + own > BYTES_MAX {
            return Err(limit("bytes of text", BYTES_MAX));
        }
        *bytes += own;
        *series += 1;
        family.bytes += own;
        let made = Arc::new(Series::new(family.kind, bounds));
        family.series.insert(labels, made.clone());
        Ok(made)
    }

    /// Removes a series that `gone` was the last to hold. Others that hold it show it again with their next update.
    fn delete_series(&self, family: &str, gone: Arc<Series>) {
        let mut registry = self.registry.lock();
        let Some(family) = registry.families.get_mut(family) else { return };
        // The family and `gone` hold it.
        if Arc::strong_count(&gone) > 2 {
            return gone.hide();
        }
        let Some(labels) = family.series.iter().find(|(_, series)| Arc::ptr_eq(series, &gone)).map(|(l, _)| l.clone())
        else {
            return;
        };
        family.series.remove(&labels);
        let own = series_bytes(&labels, gone.bucket_count());
        family.bytes -= own;
        registry.bytes -= own;
        registry.series -= 1;
    }
}

/// Bytes that one series counts: its labels, and a bound and a count of each bucket.
fn series_bytes(labels: &Labels, buckets: usize) -> usize {
    labels.iter().map(|(name, value)| name.len() + value.len()).sum::<usize>() + buckets * 16
}

/// Checks the buckets of a metric: a histogram's bounds must be finite and ascending. The infinite last one is implied.
fn bounds(kind: Kind, buckets: Option<Vec<f64>>) -> Result<Vec<f64>> {
    match (kind, buckets) {
        (Kind::Histogram, None) => Err(Error::invalid("Failed to create metric. Missing required buckets.")),
        (Kind::Histogram, Some(mut bounds)) => {
            if bounds.last() == Some(&f64::INFINITY) {
                bounds.pop();
            }
            if bounds.len() > BUCKETS_MAX {
                return Err(limit("buckets of a histogram", BUCKETS_MAX));
            }
            // Triton does not check this, and some bounds crash it.
            if bounds.iter().any(|b| b.is_nan() || *b == f64::INFINITY)
                || !bounds.windows(2).all(|pair| matches!(pair, [a, b] if a < b))
            {
                return Err(Error::invalid("Bucket Boundaries must be strictly sorted"));
            }
            Ok(bounds)
        }
        (_, Some(bounds)) if !bounds.is_empty() => {
            Err(Error::invalid("Failed to create metric. Unexpected buckets found."))
        }
        (..) => Ok(Vec::new()),
    }
}

#[cold]
fn deleted() -> Error {
    Error::internal(
        "Invalid metric operation as the corresponding 'MetricFamily' has been deleted. The 'MetricFamily' object \
         should be deleted AFTER its corresponding 'Metric' objects have been deleted.",
    )
}

/// Families and metrics of one process, by its own numbers from 1, which are never reused. Dropping deletes them all.
pub struct Holder {
    metrics: Arc<CustomMetrics>,
    held: Mutex<HolderMetrics>,
}

#[derive(Default)]
struct HolderMetrics {
    numbers: u64,
    /// Names of families by number.
    families: HashMap<u64, Arc<str>>,
    metrics: HashMap<u64, Metric>,
}

struct Metric {
    family: u64,
    series: Arc<Series>,
}

impl HolderMetrics {
    fn number(&mut self) -> Result<u64> {
        if self.families.len() + self.metrics.len() >= HANDLES_MAX {
            return Err(limit("objects of one process", HANDLES_MAX));
        }
        self.numbers += 1;
        Ok(self.numbers)
    }

    fn metric(&self, metric: u64) -> Result<&Series> {
        let metric =
            self.metrics.get(&metric).ok_or_else(|| Error::internal(format!("there is no metric {metric}")))?;
        if self.families.contains_key(&metric.family) { Ok(&metric.series) } else { Err(deleted()) }
    }
}

impl Holder {
    /// A holder for a process that has no metrics yet.
    pub fn new(metrics: &Arc<CustomMetrics>) -> Self {
        Self { metrics: metrics.clone(), held: Mutex::default() }
    }

    /// Creates a family, or joins the one of this name.
    ///
    /// # Errors
    /// Metrics are off, the name is not a Prometheus name, the family exists with another kind, or a limit is reached.
    pub fn family_new(&self, name: &str, description: &str, kind: Kind) -> Result<u64> {
        let mut held = self.held.lock();
        let number = held.number()?;
        self.metrics.hold(name, description, kind)?;
        held.families.insert(number, name.into());
        Ok(number)
    }

    /// Deletes a family; this process cannot use its metrics any more. An unknown family is ignored.
    pub fn family_delete(&self, family: u64) {
        if let Some(name) = self.held.lock().families.remove(&family) {
            self.metrics.release(&name);
        }
    }

    /// Creates a metric in a family, or joins the one with these labels. `buckets`: ascending, histograms only.
    ///
    /// # Errors
    /// The family was deleted; a label or the buckets (missing, unexpected, unsorted) are invalid; a limit is reached.
    pub fn metric_new(&self, family: u64, labels: Labels, buckets: Option<Vec<f64>>) -> Result<u64> {
        let mut held = self.held.lock();
        let name = held.families.get(&family).cloned().ok_or_else(deleted)?;
        let number = held.number()?;
        let series = self.metrics.series(&name, labels, buckets)?;
        held.metrics.insert(number, Metric { family, series });
        Ok(number)
    }

    /// Deletes a metric; its value stays in the family.
    pub fn metric_delete(&self, metric: u64) {
        self.held.lock().metrics.remove(&metric);
    }

    /// Deletes a metric and its series. If other metrics have the series, it is hidden until one of them is updated.
    pub fn metric_delete_with_series(&self, metric: u64) {
        let mut held = self.held.lock();
        let Some(Metric { family, series }) = held.metrics.remove(&metric) else { return };
        if let Some(name) = held.families.get(&family) {
            self.metrics.delete_series(name, series);
        }
    }

    /// Changes the value of a metric. NaN is accepted.
    ///
    /// # Errors
    /// The metric is unknown, its family was deleted, or its kind does not support this update.
    pub fn update(&self, metric: u64, update: Update, value: f64) -> Result<()> {
        self.held.lock().metric(metric)?.update(update, value)
    }

    /// The value of a counter or a gauge.
    ///
    /// # Errors
    /// The metric is unknown, its family was deleted, or it is a histogram.
    pub fn value(&self, metric: u64) -> Result<f64> {
        match self.held.lock().metric(metric)?.value() {
            SeriesValue::Number(value) => Ok(value),
            SeriesValue::Histogram(_) => Err(series::unsupported(Kind::Histogram, "Value")),
        }
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        for (_, name) in self.held.get_mut().families.drain() {
            self.metrics.release(&name);
        }
    }
}
