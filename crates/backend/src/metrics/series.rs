//! The value of one series. Any thread can update it without the lock of the families.

use parking_lot::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use tensor::{Error, Result};

/// Kind of a family.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Kind {
    Counter,
    Gauge,
    Histogram,
}

impl Kind {
    /// The kind's name in configurations and in the exposition format.
    pub fn name(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        }
    }

    /// Parses [`name`](Self::name).
    pub fn from_name(name: &str) -> Option<Self> {
        [Self::Counter, Self::Gauge, Self::Histogram].into_iter().find(|kind| kind.name() == name)
    }

    /// The kind's name in Triton's error texts.
    pub(super) fn constant(self) -> &'static str {
        match self {
            Self::Counter => "TRITONSERVER_METRIC_KIND_COUNTER",
            Self::Gauge => "TRITONSERVER_METRIC_KIND_GAUGE",
            Self::Histogram => "TRITONSERVER_METRIC_KIND_HISTOGRAM",
        }
    }
}

/// Operation that changes a metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Update {
    Increment,
    Set,
    Observe,
}

/// The value of a series.
#[derive(Debug, Clone, PartialEq)]
pub enum SeriesValue {
    /// Value of a counter or a gauge.
    Number(f64),
    /// Value of a histogram.
    Histogram(HistogramSnapshot),
}

/// A histogram at one moment.
#[derive(Debug, Clone, PartialEq)]
pub struct HistogramSnapshot {
    /// Ascending upper bounds of the finite buckets.
    pub bounds: Vec<f64>,
    /// Number of values in each bucket alone, including the infinite one.
    pub counts: Vec<u64>,
    /// Sum of all values.
    pub sum: f64,
}

pub(super) struct Series {
    number: SeriesNumber,
    /// Deleted by one of those that hold it, and not updated since.
    is_hidden: AtomicBool,
}

enum SeriesNumber {
    /// Bits of an `f64`.
    Counter(AtomicU64),
    Gauge(AtomicU64),
    Histogram(Mutex<HistogramSnapshot>),
}

pub(super) fn unsupported(kind: Kind, what: &str) -> Error {
    Error::unsupported(format!("{} does not support {what}", kind.constant()))
}

fn add(bits: &AtomicU64, value: f64) {
    let sum = |bits| Some((f64::from_bits(bits) + value).to_bits());
    // `sum` always returns `Some`, so the update cannot fail.
    let _ = bits.fetch_update(Ordering::Relaxed, Ordering::Relaxed, sum);
}

impl Series {
    pub(super) fn new(kind: Kind, bounds: Vec<f64>) -> Self {
        let number = match kind {
            Kind::Counter => SeriesNumber::Counter(AtomicU64::new(0)),
            Kind::Gauge => SeriesNumber::Gauge(AtomicU64::new(0)),
            Kind::Histogram => {
                let counts = vec![0; bounds.len() + 1];
                SeriesNumber::Histogram(Mutex::new(HistogramSnapshot { bounds, counts, sum: 0.0 }))
            }
        };
        Self { number, is_hidden: AtomicBool::new(false) }
    }

    /// Hides the series until its next update.
    pub(super) fn hide(&self) {
        self.is_hidden.store(true, Ordering::Relaxed);
    }

    /// Number of the finite buckets of a histogram.
    pub(super) fn bucket_count(&self) -> usize {
        if let SeriesNumber::Histogram(histogram) = &self.number { histogram.lock().bounds.len() } else { 0 }
    }

    pub(super) fn is_hidden(&self) -> bool {
        self.is_hidden.load(Ordering::Relaxed)
    }

    pub(super) fn value(&self) -> SeriesValue {
        match &self.number {
            SeriesNumber::Counter(bits) | SeriesNumber::Gauge(bits) => {
                SeriesValue::Number(f64::from_bits(bits.load(Ordering::Relaxed)))
            }
            SeriesNumber::Histogram(histogram) => SeriesValue::Histogram(histogram.lock().clone()),
        }
    }

    pub(super) fn update(&self, update: Update, value: f64) -> Result<()> {
        match (&self.number, update) {
            (SeriesNumber::Counter(_), Update::Increment) if value < 0.0 => {
                return Err(Error::invalid(format!(
                    "{} can only be incremented monotonically by non-negative values.",
                    Kind::Counter.constant()
                )));
            }
            (SeriesNumber::Counter(bits) | SeriesNumber::Gauge(bits), Update::Increment) => add(bits, value),
            (SeriesNumber::Gauge(bits), Update::Set) => bits.store(value.to_bits(), Ordering::Relaxed),
            (SeriesNumber::Histogram(histogram), Update::Observe) => {
                let HistogramSnapshot { bounds, counts, sum } = &mut *histogram.lock();
                // NaN falls into the infinite bucket.
                let at = bounds.iter().position(|bound| value <= *bound).unwrap_or(bounds.len());
                if let Some(count) = counts.get_mut(at) {
                    *count += 1;
                }
                *sum += value;
            }
            (_, update) => {
                let kind = match &self.number {
                    SeriesNumber::Counter(_) => Kind::Counter,
                    SeriesNumber::Gauge(_) => Kind::Gauge,
                    SeriesNumber::Histogram(_) => Kind::Histogram,
                };
                let what = match update {
                    Update::Increment => "Increment",
                    Update::Set => "Set",
                    Update::Observe => "Observe",
                };
                return Err(unsupported(kind, what));
            }
        }
        self.is_hidden.store(false, Ordering::Relaxed);
        Ok(())
    }
}
