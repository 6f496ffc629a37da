//! Metrics that models make for themselves (B-PY-20): families, and series of them.
//!
//! Families of the same name and kind are one, whose description is the first's; so are series with the same labels in one family. A
//! family is gone when all that made it deleted it. A series stays until its family is gone, as in Triton. What a process made is given
//! back when its [`Holder`] is dropped, so nothing of a process that died stays.
//!
//! Updates take the holder's lock only; making and deleting also take the one lock of all families, which a scrape holds while it copies.
//!
//! Texts are Triton's, without what its Python backend puts in front of them.

mod series;
#[cfg(test)]
mod tests;

pub use series::{HistogramSnapshot, Kind, Update, Value};

use parking_lot::Mutex;
use series::Series;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use tensor::{Error, Result};

/// Families of all models.
pub const FAMILIES_MAX: usize = 1024;
/// Series of all families: each is a line of a scrape, a histogram one for each bucket.
pub const SERIES_MAX: usize = 16_384;
/// Labels of one series.
pub const LABELS_MAX: usize = 64;
/// Finite buckets of one histogram.
pub const BUCKETS_MAX: usize = 512;
/// Bytes of the names, descriptions, labels and buckets of all families together.
pub const BYTES_MAX: usize = 16 << 20;
/// Bytes of a name or a description, and of all labels of one series.
pub const TEXT_BYTES_MAX: usize = 16 << 10;
/// What one process may hold, families and metrics together: the same series may be held many times.
pub const HANDLES_MAX: usize = 65_536;

/// Names and values, sorted by name.
pub type Labels = BTreeMap<String, String>;

/// All of them. Empty for most servers.
pub struct CustomMetrics {
    /// False where the server has no metrics at all.
    is_on: bool,
    registry: Mutex<Registry>,
}

#[derive(Default)]
struct Registry {
    families: HashMap<String, Family>,
    /// Families made so far.
    made: u64,
    series: usize,
    bytes: usize,
}

struct Family {
    /// Families are shown in the order in which they were made.
    number: u64,
    description: String,
    kind: Kind,
    /// Those that made it and did not delete it.
    holders: usize,
    series: BTreeMap<Labels, Arc<Series>>,
    /// Its part of `Registry::bytes`.
    bytes: usize,
}

/// A family at one moment.
#[derive(Debug, Clone, PartialEq)]
#[allow(missing_docs)]
pub struct FamilySnapshot {
    pub name: String,
    pub description: String,
    pub kind: Kind,
    /// By labels.
    pub series: Vec<(Labels, Value)>,
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
    /// Of a server whose metrics are on, or off: then nothing can be made.
    pub fn new(is_on: bool) -> Arc<Self> {
        Arc::new(Self { is_on, registry: Mutex::default() })
    }

    /// Everything now, in the order in which families were made.
    pub fn snapshot(&self) -> Vec<FamilySnapshot> {
        let registry = self.registry.lock();
        let mut families: Vec<_> = registry.families.iter().collect();
        families.sort_by_key(|(_, family)| family.number);
        let snapshot = |(name, family): (&String, &Family)| FamilySnapshot {
            name: name.clone(),
            description: family.description.clone(),
            kind: family.kind,
            series: family.series.iter().map(|(labels, series)| (labels.clone(), series.value())).collect(),
        };
        families.into_iter().map(snapshot).collect()
    }

    /// How many families, series and bytes there are.
    pub fn used(&self) -> [usize; 3] {
        let registry = self.registry.lock();
        [registry.families.len(), registry.series, registry.bytes]
    }

    fn hold(&self, name: &str, description: &str, kind: Kind) -> Result<()> {
        if !self.is_on {
            // The vLLM backend looks for these words, and goes on without metrics.
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
        // The first one's buckets are those of the series.
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
        // Each bucket has a bound and a count.
        let own = text + bounds.len() * 16;
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
}

/// Checks the buckets of a metric: of a histogram finite bounds, ascending. The infinite last one is always there.
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
            // Triton does not look, and dies of some.
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
        "Invalid metric operation as the corresponding 'MetricFamily' has been deleted. The 'MetricFamily' object should be deleted \
         AFTER its corresponding 'Metric' objects have been deleted.",
    )
}

/// What one process made. Numbers of families and metrics are its own, from 1, and never used twice. Dropped, it gives everything back.
pub struct Holder {
    metrics: Arc<CustomMetrics>,
    held: Mutex<Held>,
}

#[derive(Default)]
struct Held {
    numbers: u64,
    /// Names of families.
    families: HashMap<u64, Arc<str>>,
    metrics: HashMap<u64, Metric>,
}

struct Metric {
    family: u64,
    series: Arc<Series>,
}

impl Held {
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
    /// For a process that holds nothing yet.
    pub fn new(metrics: &Arc<CustomMetrics>) -> Self {
        Self { metrics: metrics.clone(), held: Mutex::default() }
    }

    /// Makes a family, or joins the one of this name.
    ///
    /// # Errors
    /// Metrics are off; a name that Prometheus does not take; one of another kind; a limit.
    pub fn family_new(&self, name: &str, description: &str, kind: Kind) -> Result<u64> {
        let mut held = self.held.lock();
        let number = held.number()?;
        self.metrics.hold(name, description, kind)?;
        held.families.insert(number, name.into());
        Ok(number)
    }

    /// Deletes a family: its metrics cannot be used by this process any more. One that is not known is deleted already.
    pub fn family_delete(&self, family: u64) {
        if let Some(name) = self.held.lock().families.remove(&family) {
            self.metrics.release(&name);
        }
    }

    /// Makes a metric of a family, or joins the one with these labels. `buckets` are of histograms, ascending.
    ///
    /// # Errors
    /// The family was deleted; a label that Prometheus does not take; missing, unexpected or unsorted buckets; a limit.
    pub fn metric_new(&self, family: u64, labels: Labels, buckets: Option<Vec<f64>>) -> Result<u64> {
        let mut held = self.held.lock();
        let name = held.families.get(&family).cloned().ok_or_else(deleted)?;
        let number = held.number()?;
        let series = self.metrics.series(&name, labels, buckets)?;
        held.metrics.insert(number, Metric { family, series });
        Ok(number)
    }

    /// Deletes a metric; what it counted stays in its family.
    pub fn metric_delete(&self, metric: u64) {
        self.held.lock().metrics.remove(&metric);
    }

    /// Changes a metric. NaN is a number like others.
    ///
    /// # Errors
    /// It is not known, its family was deleted, or its kind does not have this change.
    pub fn update(&self, metric: u64, update: Update, value: f64) -> Result<()> {
        self.held.lock().metric(metric)?.update(update, value)
    }

    /// The value of a counter or a gauge.
    ///
    /// # Errors
    /// It is not known, its family was deleted, or it is a histogram.
    pub fn value(&self, metric: u64) -> Result<f64> {
        match self.held.lock().metric(metric)?.value() {
            Value::Number(value) => Ok(value),
            Value::Histogram(_) => Err(series::unsupported(Kind::Histogram, "Value")),
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
