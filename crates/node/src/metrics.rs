//! Metrics, as they cross to TypeScript.

use crate::core::NativeCore;
use crate::{convert, objects as js};
use backend::metrics::{FamilySnapshot, HistogramSnapshot, Labels, SeriesValue};
use napi_derive::napi;

#[napi]
impl NativeCore {
    #[napi]
    pub fn snapshot(&self) -> js::Snapshot {
        let snapshot = self.server.snapshot();
        js::Snapshot {
            versions: snapshot.versions.into_iter().map(convert::version_statistics).collect(),
            triton: families(snapshot.triton),
            families: families(snapshot.families),
            gpu_uuids: snapshot.gpu_uuids.into_iter().map(Option::unwrap_or_default).collect(),
            log_records_dropped: snapshot.log_records_dropped as f64,
            trace_records_dropped: snapshot.traces_dropped as f64,
        }
    }

    /// The two families of `snapshot` that routers read many times a second.
    #[napi]
    pub fn requests(&self) -> Vec<js::Family> {
        families(self.server.requests())
    }

    /// The GPUs and their use; values that one does not report are 0.
    #[napi]
    pub fn devices(&self) -> Vec<js::DeviceUse> {
        let status = self.server.gpus();
        let of = |usage: &device::Usage| js::DeviceUse {
            uuid: usage.uuid.clone(),
            used_bytes: usage.memory_used_bytes.unwrap_or_default() as f64,
            total_bytes: usage.memory_total_bytes.unwrap_or_default() as f64,
            utilization: usage.utilization.unwrap_or_default(),
        };
        status.map(|status| status.usage.iter().map(of).collect()).unwrap_or_default()
    }
}

fn families(list: Vec<FamilySnapshot>) -> Vec<js::Family> {
    list.into_iter().map(family).collect()
}

fn family(family: FamilySnapshot) -> js::Family {
    let series = |(labels, value): (Labels, SeriesValue)| {
        let (value, histogram) = match value {
            SeriesValue::Number(value) => (value, None),
            SeriesValue::Histogram(HistogramSnapshot { bounds, counts, sum }) => {
                (0.0, Some(js::Histogram { bounds, counts, sum }))
            }
        };
        js::Series { labels: labels.into_iter().collect(), value, histogram }
    };
    js::Family {
        name: family.name,
        help: family.description,
        kind: family.kind.name(),
        series: family.series.into_iter().map(series).collect(),
    }
}
