//! Current usage of this process's devices, for metrics: polled regularly by one thread for each device.
//!
//! A query may block, on a hanging device forever. So no serving thread queries: a scrape takes the last values
//! ([`Monitor::status`]), and a device that does not respond lacks only its own values.
//!
//! Invariant: a value is shown only if its device returned it at most `KEPT_INTERVALS` intervals ago.

use crate::devices::{Device, devices};
use crate::driver::driver;
use crate::failure;
use crate::nvml::{Nvml, NvmlDevice, NvmlError, nvml};
use parking_lot::{Condvar, Mutex};
use std::sync::Arc;
use std::thread::Builder;
use std::time::{Duration, Instant};

/// Number of consecutive failures of a value after which the log reports it.
const FAILURES_LOGGED: u32 = 3;
/// Number of intervals for which a value is shown, but at least `KEPT_MIN`.
const KEPT_INTERVALS: u32 = 3;
const KEPT_MIN: Duration = Duration::from_secs(5);
/// Minimum pause between two queries.
const PAUSE_MIN: Duration = Duration::from_millis(10);
/// Maximum wait for the end of threads; one that is blocked by a device is left behind.
const END_MAX: Duration = Duration::from_millis(200);

/// Usage of a device. Values that it does not report are missing.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Usage {
    /// For example `GPU-…`, or `MIG-…` for an instance.
    pub uuid: String,
    /// Share of time during which kernels run, from 0 to 1.
    pub utilization: Option<f64>,
    /// Size of its memory.
    pub memory_total_bytes: Option<u64>,
    /// Memory in use, by all processes.
    pub memory_used_bytes: Option<u64>,
    /// Current power, in W.
    pub power_watts: Option<f64>,
    /// Power limit, in W.
    pub power_limit_watts: Option<f64>,
    /// Energy since the first query, in J.
    pub energy_joules: Option<f64>,
}

/// The latest values.
#[derive(Clone, PartialEq, Debug)]
pub struct Status {
    /// Reason why this process has no GPU; `None` if it has one.
    pub unavailable: Option<String>,
    /// Usage of each device that returned a value recently, in the order of ordinals.
    pub usage: Vec<Usage>,
    /// Uuids by ordinal of all devices, whether or not they respond now.
    pub uuids: Vec<Option<String>>,
}

/// Polls until it is dropped.
pub struct Monitor {
    shared: Arc<MonitorState>,
}

struct MonitorState {
    interval: Duration,
    known: Mutex<Known>,
    /// Notified when the monitor is dropped or a thread ends.
    changed: Condvar,
}

struct Known {
    unavailable: Option<String>,
    devices: usize,
    /// Values by ordinal, with the time of the response.
    usage: Vec<Option<(Instant, Usage)>>,
    uuids: Vec<Option<String>>,
    is_over: bool,
    threads: usize,
}

impl Monitor {
    /// Searches devices on a separate thread and polls them twice per interval, so that changes show within 1.2.
    pub fn start(interval: Option<Duration>) -> Self {
        let looking = Some("the search for it has not ended".to_owned());
        let known = Known {
            unavailable: looking,
            devices: 0,
            usage: Vec::new(),
            uuids: Vec::new(),
            is_over: false,
            threads: 0,
        };
        let shared = Arc::new(MonitorState {
            interval: interval.unwrap_or_default(),
            known: Mutex::new(known),
            changed: Condvar::new(),
        });
        let of = shared.clone();
        shared.spawn("gpu".into(), move || of.find_devices(interval.is_some()));
        Self { shared }
    }

    /// The latest values, without waiting for a device.
    pub fn status(&self) -> Status {
        let kept = KEPT_MIN.max(self.shared.interval * KEPT_INTERVALS);
        let known = self.shared.known.lock();
        // A process whose last device failed has none until a restart.
        let last = failure::failed(0).filter(|_| failure::failures() >= known.devices);
        let failed = last.map(|why| why.to_string());
        let lately = |(at, usage): &(Instant, Usage)| (at.elapsed() <= kept).then(|| usage.clone());
        Status {
            unavailable: known.unavailable.clone().or(failed),
            usage: known.usage.iter().flatten().filter_map(lately).collect(),
            uuids: known.uuids.clone(),
        }
    }
}

impl Drop for Monitor {
    fn drop(&mut self) {
        let mut known = self.shared.known.lock();
        known.is_over = true;
        self.shared.changed.notify_all();
        let end = Instant::now() + END_MAX;
        while known.threads > 0 && !self.shared.changed.wait_until(&mut known, end).timed_out() {}
    }
}

impl MonitorState {
    /// Without the thread there are no values; a log line reports that.
    fn spawn(self: &Arc<Self>, name: String, work: impl FnOnce() + Send + 'static) {
        self.known.lock().threads += 1;
        let shared = self.clone();
        // Dropped when the thread ends, also after a panic, or cannot be started.
        let counted = ThreadCount(shared);
        let started = Builder::new().name(name).spawn(move || {
            let _counted = counted;
            work();
        });
        if let Err(e) = started {
            log::warn!("GPU metrics are not available: no thread can be started: {e}");
        }
    }

    fn find_devices(self: &Arc<Self>, asks: bool) {
        let found = devices();
        // Logged here, because the driver may be opened before there is a log.
        match driver() {
            Ok(driver) => log::info!("CUDA driver {} with {} device(s)", driver.version(), driver.devices()),
            Err(why) => log::info!("no GPU: {why}"),
        }
        let mut known = self.known.lock();
        known.unavailable = found.err().map(ToString::to_string);
        known.devices = found.map_or(0, <[Device]>::len);
        drop(known);
        let (Ok(found), true) = (found, asks) else { return };
        let nvml = match nvml() {
            Ok(nvml) => nvml,
            Err(why) => return log::info!("GPU metrics are not available: {why}"),
        };
        let mut known = self.known.lock();
        (known.usage, known.uuids) = (vec![None; found.len()], vec![None; found.len()]);
        drop(known);
        for device in found {
            let shared = self.clone();
            self.spawn(format!("gpu {}", device.ordinal), move || shared.watch(nvml, device));
        }
    }

    fn watch(&self, nvml: &Nvml, device: &Device) {
        let mut asked = DeviceQuery::default();
        loop {
            let usage = asked.once(nvml, device);
            let mut known = self.known.lock();
            if let (Some((_, uuid)), Some(kept)) = (&asked.found, known.uuids.get_mut(device.ordinal as usize)) {
                kept.get_or_insert_with(|| uuid.clone());
            }
            if let Some(kept) = known.usage.get_mut(device.ordinal as usize) {
                *kept = usage.map(|usage| (Instant::now(), usage));
            }
            let next = Instant::now() + (self.interval / 2).max(PAUSE_MIN);
            while !known.is_over && !self.changed.wait_until(&mut known, next).timed_out() {}
            if known.is_over {
                return;
            }
        }
    }
}

/// Counts a running thread.
struct ThreadCount(Arc<MonitorState>);

impl Drop for ThreadCount {
    fn drop(&mut self) {
        self.0.known.lock().threads -= 1;
        self.0.changed.notify_all();
    }
}

/// A device and its earlier responses.
#[derive(Default)]
struct DeviceQuery {
    found: Option<(NvmlDevice, String)>,
    finding: ValueQuery,
    utilization: ValueQuery,
    memory: ValueQuery,
    power: ValueQuery,
    power_limit: ValueQuery,
    energy: ValueQuery,
    energy_first: Option<u64>,
}

impl DeviceQuery {
    fn once(&mut self, nvml: &Nvml, device: &Device) -> Option<Usage> {
        if self.found.is_none() {
            let name = format!("device {}", device.ordinal);
            // A permanent error may also come from a device that is being reset.
            self.found = self.finding.ask(&name, || find(nvml, device).map_err(|e| NvmlError { is_final: false, ..e }));
        }
        let (of, uuid) = self.found.clone()?;
        let memory = self.memory.ask(&uuid, || nvml.memory(of));
        let energy = self.energy.ask(&uuid, || nvml.energy(of));
        if self.energy_first.is_none() {
            self.energy_first = energy;
        }
        let first = self.energy_first.unwrap_or_default();
        let watts = |mw: u32| f64::from(mw) / 1000.0;
        Some(Usage {
            utilization: self.utilization.ask(&uuid, || nvml.utilization(of)).map(|percent| f64::from(percent) / 100.0),
            memory_total_bytes: memory.map(|(total, _)| total),
            memory_used_bytes: memory.map(|(_, used)| used),
            power_watts: self.power.ask(&uuid, || nvml.power(of)).map(watts),
            power_limit_watts: self.power_limit.ask(&uuid, || nvml.power_limit(of)).map(watts),
            energy_joules: energy.map(|mj| mj.saturating_sub(first) as f64 / 1000.0),
            uuid,
        })
    }
}

/// NVML's device and uuid: by address, as NVML numbers all devices of the machine; for an instance by uuid.
fn find(nvml: &Nvml, device: &Device) -> Result<(NvmlDevice, String), NvmlError> {
    let by_uuid = |kind: &str| match device.uuid {
        Some(uuid) => nvml.by_uuid(format!("{kind}-{uuid}")),
        None => Err(NvmlError { is_final: false, text: "the driver does not report its uuid".into() }),
    };
    let found = match device.pci.map(|address| nvml.by_pci(address)) {
        Some(Ok(whole)) if nvml.instances(whole)?.is_empty() => whole,
        Some(Ok(_)) => by_uuid("MIG")?,
        _ => by_uuid("GPU").or_else(|_| by_uuid("MIG"))?,
    };
    let known = device.uuid.map(|uuid| format!("GPU-{uuid}"));
    let uuid = nvml.uuid(found).or_else(|e| known.ok_or(e))?;
    Ok((found, uuid))
}

/// One value of one device.
#[derive(Default)]
struct ValueQuery {
    is_over: bool,
    failures: u32,
}

impl ValueQuery {
    fn ask<T>(&mut self, of: &str, answer: impl FnOnce() -> Result<T, NvmlError>) -> Option<T> {
        if self.is_over {
            return None;
        }
        match answer() {
            Ok(value) => {
                if self.failures >= FAILURES_LOGGED {
                    log::info!("{of} responds again");
                }
                self.failures = 0;
                Some(value)
            }
            Err(e) => {
                self.is_over = e.is_final;
                self.failures = self.failures.saturating_add(1);
                if e.is_final {
                    log::info!("a metric of {of} is not available: {}", e.text);
                } else if self.failures == FAILURES_LOGGED {
                    log::warn!("a metric of {of} is not available until it responds: {}", e.text);
                }
                None
            }
        }
    }
}
