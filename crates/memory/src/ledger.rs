//! Memory that models need, by location: a load that does not fit is rejected before it allocates anything.
//!
//! There is one row for the host, the `Budget` that requests are charged to (`--memory-limit`), and one for each device
//! that a load has named. Backends state what a model needs; only the free memory of a device is measured.
//!
//! Invariant: a row's promised bytes are the sum of its live promises, and within its limit unless that was lowered.

use crate::budget::{Budget, Charge, Kind, Short};
use device::MemoryInfo;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, OnceLock};
use tensor::{Error, Result};

/// Location of memory that a load needs.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum MemoryLocation {
    /// Memory of the host, within `--memory-limit`.
    Host,
    /// Device with this ordinal of this process.
    Device(u32),
}

impl fmt::Display for MemoryLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Host => f.write_str("the host"),
            Self::Device(device) => write!(f, "device {device}"),
        }
    }
}

/// Memory that a model needs in one location.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs)]
pub struct Need {
    pub place: MemoryLocation,
    pub bytes: u64,
}

/// A row, for metrics.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct RowUse {
    /// Ordinal of the device.
    pub device: u32,
    /// Bytes that models may need of it together.
    pub limit_bytes: u64,
    /// Bytes that loaded models need.
    pub promised_bytes: u64,
}

/// Reads the memory of a device.
type Measure = Box<dyn Fn(u32) -> Result<MemoryInfo> + Send + Sync>;

/// The rows. Clones share them.
#[derive(Clone)]
pub struct Ledger(Arc<SharedLedger>);

struct SharedLedger {
    host: Budget,
    measure: Measure,
    rows: Mutex<Rows>,
}

#[derive(Default)]
struct Rows {
    devices: BTreeMap<u32, Row>,
    /// `--model-load-gpu-limit`: fraction of each device's memory that may be in use.
    fractions: BTreeMap<u32, f64>,
}

#[derive(Default)]
struct Row {
    total: u64,
    promised: u64,
    /// Part of `promised` that loads in progress may not have allocated yet.
    loading: u64,
}

impl Rows {
    fn limit(&self, device: u32, total: u64) -> u64 {
        self.fractions.get(&device).map_or(total, |fraction| (total as f64 * fraction) as u64)
    }
}

impl Ledger {
    /// A ledger with `host` as its host row; `measure` reads the memory of devices.
    pub fn new(host: Budget, measure: impl Fn(u32) -> Result<MemoryInfo> + Send + Sync + 'static) -> Self {
        Self(Arc::new(SharedLedger { host, measure: Box::new(measure), rows: Mutex::default() }))
    }

    /// The ledger of the process.
    pub fn global() -> &'static Self {
        static LEDGER: OnceLock<Ledger> = OnceLock::new();
        LEDGER.get_or_init(|| {
            Self::new(Budget::global().clone(), |device| {
                device::driver().map_err(|why| Error::environment(format!("no GPU: {why}")))?.memory(device)
            })
        })
    }

    /// Sets the fraction, 0 to 1, of a device's memory that may be in use when another model loads; else 1.
    pub fn limit_devices(&self, fractions: &[(u32, f64)]) {
        self.0.rows.lock().fractions = fractions.iter().map(|&(device, part)| (device, part.clamp(0.0, 1.0))).collect();
    }

    /// Promises a load its memory, in all locations or in none. `what` is the model, as in `model 'm' version 1`.
    ///
    /// # Errors
    /// UNAVAILABLE with the numbers if it does not fit, or if a device cannot be read.
    pub fn admit(&self, what: &str, needs: &[Need]) -> Result<MemoryPromise> {
        let mut admitted = MemoryPromise { ledger: self.clone(), host: None, devices: Vec::new(), is_loading: true };
        let mut sums: BTreeMap<MemoryLocation, u64> = BTreeMap::new();
        for need in needs.iter().filter(|need| need.bytes > 0) {
            let sum = sums.entry(need.place).or_default();
            *sum = sum.saturating_add(need.bytes);
        }
        for (place, bytes) in sums {
            match place {
                MemoryLocation::Host => admitted.host = Some(self.charge_host(what, bytes)?),
                MemoryLocation::Device(device) => {
                    self.promise(what, device, bytes)?;
                    admitted.devices.push((device, bytes));
                }
            }
        }
        Ok(admitted)
    }

    fn charge_host(&self, what: &str, bytes: u64) -> Result<Charge> {
        let host = &self.0.host;
        let charged = usize::try_from(bytes).ok().map(|n| host.common().charge(Kind::Model, false, n));
        if let Some(Ok(charge)) = charged {
            return Ok(charge);
        }
        let counters = host.counters();
        let used: usize = counters.used_bytes.iter().sum();
        if !matches!(charged, Some(Err(Short::Now { .. }))) {
            log::debug!("{what} needs more memory of the host than the limits permit");
        }
        Err(Error::environment(format!(
            "{what} does not fit: it needs {bytes} bytes of the host, where requests and models hold {used} of the {} \
             bytes of --memory-limit, and an eighth is reserved for small requests",
            counters.limit_bytes
        )))
    }

    fn promise(&self, what: &str, device: u32, bytes: u64) -> Result<()> {
        let MemoryInfo { free, total } = (self.0.measure)(device).map_err(|e| {
            Error::environment(format!(
                "{what} cannot be loaded: device {device} does not report its memory: {}",
                e.message()
            ))
        })?;
        let mut rows = self.0.rows.lock();
        let limit = rows.limit(device, total);
        let row = rows.devices.entry(device).or_default();
        row.total = total;
        let (promised, loading) = (row.promised, row.loading);
        let fits = promised.checked_add(bytes).is_some_and(|sum| sum <= limit)
            && loading.checked_add(bytes).is_some_and(|sum| sum <= free);
        if !fits {
            return Err(Error::environment(format!(
                "{what} does not fit: it needs {bytes} bytes of device {device}, which has {free} of its {total} \
                 bytes free; loaded models need {promised} of the {limit} bytes that models may use, {loading} bytes \
                 of them for models that are being loaded"
            )));
        }
        row.promised += bytes;
        row.loading += bytes;
        Ok(())
    }

    /// Checks whether the used part of a device (`--model-load-gpu-limit`) permits another instance.
    ///
    /// # Errors
    /// UNAVAILABLE with Triton's text.
    pub fn check_limit(&self, instance: &str, device: u32) -> Result<()> {
        let Some(fraction) = self.0.rows.lock().fractions.get(&device).copied() else { return Ok(()) };
        let MemoryInfo { free, total } = (self.0.measure)(device)?;
        if total.saturating_sub(free) as f64 <= fraction * total as f64 {
            return Ok(());
        }
        Err(Error::environment(format!(
            "can not create model '{instance}': memory limit set for GPU {device} has exceeded, model \
             loading is rejected."
        )))
    }

    /// The row of a device with `total` bytes.
    pub fn device(&self, device: u32, total: u64) -> RowUse {
        let rows = self.0.rows.lock();
        let promised_bytes = rows.devices.get(&device).map_or(0, |row| row.promised);
        RowUse { device, limit_bytes: rows.limit(device, total), promised_bytes }
    }

    /// The rows of devices that loads have named, by ordinal.
    pub fn devices(&self) -> Vec<RowUse> {
        let rows = self.0.rows.lock();
        let of_row = |(&device, row): (&u32, &Row)| RowUse {
            device,
            limit_bytes: rows.limit(device, row.total),
            promised_bytes: row.promised,
        };
        rows.devices.iter().map(of_row).collect()
    }
}

/// Memory promised to a model while this lives.
pub struct MemoryPromise {
    ledger: Ledger,
    host: Option<Charge>,
    devices: Vec<(u32, u64)>,
    is_loading: bool,
}

impl MemoryPromise {
    /// Bytes on devices.
    pub fn device_bytes(&self) -> u64 {
        self.devices.iter().map(|(_, bytes)| bytes).sum()
    }

    /// Marks the memory as allocated: from now on the devices report it as used.
    pub fn loaded(&mut self) {
        if std::mem::take(&mut self.is_loading) {
            let mut rows = self.ledger.0.rows.lock();
            for (device, bytes) in &self.devices {
                if let Some(row) = rows.devices.get_mut(device) {
                    row.loading = row.loading.saturating_sub(*bytes);
                }
            }
        }
    }

    /// Promised bytes of the host.
    pub fn host_bytes(&self) -> usize {
        self.host.as_ref().map_or(0, Charge::bytes)
    }
}

impl Drop for MemoryPromise {
    fn drop(&mut self) {
        self.loaded();
        let mut rows = self.ledger.0.rows.lock();
        for (device, bytes) in &self.devices {
            if let Some(row) = rows.devices.get_mut(device) {
                row.promised = row.promised.saturating_sub(*bytes);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

    const TOTAL: u64 = 10_000;

    /// A ledger with 8000 bytes of the host and two devices, whose free bytes the test sets.
    fn ledger() -> (Ledger, Arc<[AtomicU64; 2]>) {
        let free = Arc::new([AtomicU64::new(TOTAL), AtomicU64::new(TOTAL)]);
        let of = free.clone();
        let measure = move |device: u32| match of.get(device as usize) {
            Some(free) => Ok(MemoryInfo { free: free.load(Relaxed), total: TOTAL }),
            None => Err(Error::internal("there is none")),
        };
        (Ledger::new(Budget::new(8000), measure), free)
    }

    fn need(place: MemoryLocation, bytes: u64) -> Need {
        Need { place, bytes }
    }

    fn refused(result: Result<MemoryPromise>) -> String {
        result.err().map(|e| format!("{:?}: {}", e.code(), e.message())).unwrap_or_default()
    }

    #[test]
    fn a_load_that_does_not_fit_is_rejected_with_the_numbers() {
        let (ledger, free) = ledger();
        let (host, device) = (MemoryLocation::Host, MemoryLocation::Device(1));
        let first = ledger.admit("model 'a' version 1", &[need(host, 3000), need(device, 2500), need(device, 2500)]);
        let mut first = first.expect("it fits");
        assert_eq!(
            (first.host_bytes(), ledger.devices()),
            (3000, vec![RowUse { device: 1, limit_bytes: TOTAL, promised_bytes: 5000 }])
        );
        // The load has not allocated its memory yet: the device reports all of it as free.
        assert_eq!(
            refused(ledger.admit("model 'b' version 2", &[need(host, 1000), need(device, 5001)])),
            "Unavailable: model 'b' version 2 does not fit: it needs 5001 bytes of device 1, which has 10000 of its \
             10000 bytes free; loaded models need 5000 of the 10000 bytes that models may use, 5000 bytes of them \
             for models that are being loaded"
        );
        assert_eq!(ledger.0.host.counters().used_bytes.iter().sum::<usize>(), 3000, "what it had of the host is back");
        free[1].store(5000, Relaxed);
        first.loaded();
        let second = ledger.admit("b", &[need(device, 5000)]).expect("exactly");
        drop(second);
        // Other processes use the device, too.
        free[1].store(100, Relaxed);
        assert!(refused(ledger.admit("b", &[need(device, 101)])).contains("has 100 of its 10000 bytes free"));
        assert_eq!(
            refused(ledger.admit("b", &[need(host, 4001)])),
            "Unavailable: b does not fit: it needs 4001 bytes of the host, where requests and models hold 3000 of the \
             8000 bytes of --memory-limit, and an eighth is reserved for small requests"
        );
        assert!(refused(ledger.admit("b", &[need(host, u64::MAX)])).contains("needs 18446744073709551615 bytes"));
        assert!(refused(ledger.admit("b", &[need(device, u64::MAX), need(device, 2)])).contains("does not fit"));
        assert!(
            refused(ledger.admit("b", &[need(MemoryLocation::Device(2), 1)]))
                .contains("device 2 does not report its memory: there is none")
        );
        drop(first);
        assert!(ledger.devices().iter().all(|row| row.promised_bytes == 0));
        assert_eq!(ledger.0.host.counters().used_bytes.iter().sum::<usize>(), 0);
        assert!(ledger.admit("nothing", &[]).is_ok(), "a model without stated needs is loaded");
    }

    #[test]
    fn a_device_limit_applies_to_promises_and_to_memory_in_use() {
        let (ledger, free) = ledger();
        ledger.limit_devices(&[(0, 0.9), (0, 0.25)]);
        let device = MemoryLocation::Device(0);
        let admitted = ledger.admit("a", &[need(device, 2500)]).expect("a quarter");
        assert!(
            refused(ledger.admit("b", &[need(device, 1)])).contains("need 2500 of the 2500 bytes that models may use")
        );
        assert_eq!(ledger.check_limit("a_0", 0), Ok(()));
        free[0].store(7500, Relaxed);
        assert_eq!(ledger.check_limit("a_0", 0), Ok(()), "not more than the limit");
        free[0].store(7499, Relaxed);
        let text = "can not create model 'a_0': memory limit set for GPU 0 has exceeded, model loading is rejected.";
        assert_eq!(ledger.check_limit("a_0", 0), Err(Error::environment(text)));
        free[1].store(0, Relaxed);
        assert_eq!(ledger.check_limit("a_0", 1), Ok(()), "no limit was set for it");
        drop(admitted);
    }

    #[test]
    fn threads_together_never_exceed_the_limit() {
        let (ledger, _) = ledger();
        std::thread::scope(|s| {
            for i in 0..4u64 {
                let ledger = &ledger;
                s.spawn(move || {
                    for n in 0..if cfg!(miri) { 5 } else { 500u64 } {
                        let bytes = (n * 37 + i * 11) % 6000 + 1;
                        let got = ledger.admit(
                            "m",
                            &[need(MemoryLocation::Device(0), bytes), need(MemoryLocation::Host, bytes / 2)],
                        );
                        assert!(ledger.devices().iter().all(|row| row.promised_bytes <= TOTAL));
                        drop(got);
                    }
                });
            }
        });
        assert!(ledger.devices().iter().all(|row| row.promised_bytes == 0));
    }
}
