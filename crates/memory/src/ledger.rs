//! What models need of memory, place by place: a load that does not fit is refused before it takes anything, with the numbers.
//!
//! There is one row for the host, which is the `Budget` that requests are charged to (`--memory-limit`), and one for each device that a
//! load named. What a model needs its backend says; nothing is measured here but the memory that a device has free.
//!
//! Invariant: a row's promised bytes are the sum of the admissions that live, and within its limit unless that was lowered since.

use crate::budget::{Budget, Charge, Kind, Short};
use device::MemoryInfo;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, OnceLock};
use tensor::{Error, Result};

/// Where memory is that a load needs.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Where {
    /// The memory of the host, within `--memory-limit`.
    Host,
    /// The device with this ordinal of this process.
    Device(u32),
}

impl fmt::Display for Where {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Host => f.write_str("the host"),
            Self::Device(device) => write!(f, "device {device}"),
        }
    }
}

/// What a model needs in one place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs)]
pub struct Need {
    pub place: Where,
    pub bytes: u64,
}

/// A row, for metrics.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct RowUse {
    /// Ordinal of the device.
    pub device: u32,
    /// Bytes that models may need of it together.
    pub limit_bytes: u64,
    /// Bytes that admitted models need.
    pub promised_bytes: u64,
}

/// Asks a device for its memory.
type Measure = Box<dyn Fn(u32) -> Result<MemoryInfo> + Send + Sync>;

/// The rows. Clones are the same ledger.
#[derive(Clone)]
pub struct Ledger(Arc<Inner>);

struct Inner {
    host: Budget,
    measure: Measure,
    rows: Mutex<Rows>,
}

#[derive(Default)]
struct Rows {
    devices: BTreeMap<u32, Row>,
    /// `--model-load-gpu-limit`: the part of a device's memory that may be in use.
    fractions: BTreeMap<u32, f64>,
}

#[derive(Default)]
struct Row {
    total: u64,
    promised: u64,
    /// Of `promised`, what loads in progress have perhaps not taken yet.
    loading: u64,
}

impl Rows {
    fn limit(&self, device: u32, total: u64) -> u64 {
        self.fractions.get(&device).map_or(total, |fraction| (total as f64 * fraction) as u64)
    }
}

impl Ledger {
    /// A ledger whose host row is `host`, and whose devices are asked by `measure`.
    pub fn new(host: Budget, measure: impl Fn(u32) -> Result<MemoryInfo> + Send + Sync + 'static) -> Self {
        Self(Arc::new(Inner { host, measure: Box::new(measure), rows: Mutex::default() }))
    }

    /// The ledger of the process.
    pub fn global() -> &'static Self {
        static LEDGER: OnceLock<Ledger> = OnceLock::new();
        LEDGER.get_or_init(|| {
            Self::new(Budget::global().clone(), |device| {
                device::driver().map_err(|why| Error::unavailable(format!("no GPU: {why}")))?.memory(device)
            })
        })
    }

    /// Sets what part of a device's memory, from 0 to 1, may be in use for another model to load; of devices that are not named all of it.
    pub fn limit_devices(&self, fractions: &[(u32, f64)]) {
        self.0.rows.lock().fractions = fractions.iter().map(|&(device, part)| (device, part.clamp(0.0, 1.0))).collect();
    }

    /// Promises a load what it needs, in all places or in none. `what` is the model, as in `model 'm' version 1`.
    ///
    /// # Errors
    /// UNAVAILABLE with the numbers where it does not fit, or when a device does not answer.
    pub fn admit(&self, what: &str, needs: &[Need]) -> Result<Admitted> {
        let mut admitted = Admitted { ledger: self.clone(), host: None, devices: Vec::new(), is_loading: true };
        let mut sums: BTreeMap<Where, u64> = BTreeMap::new();
        for need in needs.iter().filter(|need| need.bytes > 0) {
            let sum = sums.entry(need.place).or_default();
            *sum = sum.saturating_add(need.bytes);
        }
        for (place, bytes) in sums {
            match place {
                Where::Host => admitted.host = Some(self.charge_host(what, bytes)?),
                Where::Device(device) => {
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
            log::debug!("{what} needs more of the host than there may ever be");
        }
        Err(Error::unavailable(format!(
            "{what} does not fit: it needs {bytes} bytes of the host, where requests and models hold {used} of the {} bytes of --memory-limit, \
             and an eighth is left to small requests",
            counters.limit_bytes
        )))
    }

    fn promise(&self, what: &str, device: u32, bytes: u64) -> Result<()> {
        let MemoryInfo { free, total } = (self.0.measure)(device).map_err(|e| {
            Error::unavailable(format!(
                "{what} cannot be loaded: device {device} does not say what memory it has: {}",
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
            return Err(Error::unavailable(format!(
                "{what} does not fit: it needs {bytes} bytes of device {device}, which has {free} of its {total} bytes free; models that are \
                 loaded need {promised} of the {limit} bytes that models may need, and {loading} bytes of these are being loaded"
            )));
        }
        row.promised += bytes;
        row.loading += bytes;
        Ok(())
    }

    /// Whether another instance may be made on a device, after one was: nothing but its part of the device's memory is looked at
    /// (`--model-load-gpu-limit`).
    ///
    /// # Errors
    /// UNAVAILABLE with Triton's text.
    pub fn check_limit(&self, instance: &str, device: u32) -> Result<()> {
        let Some(fraction) = self.0.rows.lock().fractions.get(&device).copied() else { return Ok(()) };
        let MemoryInfo { free, total } = (self.0.measure)(device)?;
        if total.saturating_sub(free) as f64 <= fraction * total as f64 {
            return Ok(());
        }
        Err(Error::unavailable(format!(
            "can not create model '{instance}': memory limit set for GPU {device} has exceeded, model loading is rejected."
        )))
    }

    /// The row of a device with so many bytes.
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

/// What a model was promised, for as long as this lives.
pub struct Admitted {
    ledger: Ledger,
    host: Option<Charge>,
    devices: Vec<(u32, u64)>,
    is_loading: bool,
}

impl Admitted {
    /// The model has taken what it needs: devices say so themselves from now on.
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

    /// Bytes of the host that were promised.
    pub fn host_bytes(&self) -> usize {
        self.host.as_ref().map_or(0, Charge::bytes)
    }
}

impl Drop for Admitted {
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

    /// A ledger of 8000 bytes of the host, and of two devices, whose free bytes the test sets.
    fn ledger() -> (Ledger, Arc<[AtomicU64; 2]>) {
        let free = Arc::new([AtomicU64::new(TOTAL), AtomicU64::new(TOTAL)]);
        let of = free.clone();
        let measure = move |device: u32| match of.get(device as usize) {
            Some(free) => Ok(MemoryInfo { free: free.load(Relaxed), total: TOTAL }),
            None => Err(Error::internal("there is none")),
        };
        (Ledger::new(Budget::new(8000), measure), free)
    }

    fn need(place: Where, bytes: u64) -> Need {
        Need { place, bytes }
    }

    fn refused(result: Result<Admitted>) -> String {
        result.err().map(|e| format!("{:?}: {}", e.code(), e.message())).unwrap_or_default()
    }

    #[test]
    fn a_load_that_does_not_fit_is_refused_with_the_numbers_and_keeps_nothing() {
        let (ledger, free) = ledger();
        let (host, device) = (Where::Host, Where::Device(1));
        let first = ledger.admit("model 'a' version 1", &[need(host, 3000), need(device, 2500), need(device, 2500)]);
        let mut first = first.expect("it fits");
        assert_eq!(
            (first.host_bytes(), ledger.devices()),
            (3000, vec![RowUse { device: 1, limit_bytes: TOTAL, promised_bytes: 5000 }])
        );
        // It has not taken its memory yet: the device says that all is free.
        assert_eq!(
            refused(ledger.admit("model 'b' version 2", &[need(host, 1000), need(device, 5001)])),
            "Unavailable: model 'b' version 2 does not fit: it needs 5001 bytes of device 1, which has 10000 of its 10000 bytes free; \
             models that are loaded need 5000 of the 10000 bytes that models may need, and 5000 bytes of these are being loaded"
        );
        assert_eq!(ledger.0.host.counters().used_bytes.iter().sum::<usize>(), 3000, "what it had of the host is back");
        free[1].store(5000, Relaxed);
        first.loaded();
        let second = ledger.admit("b", &[need(device, 5000)]).expect("exactly");
        drop(second);
        // Others of the machine use the device, too.
        free[1].store(100, Relaxed);
        assert!(refused(ledger.admit("b", &[need(device, 101)])).contains("has 100 of its 10000 bytes free"));
        assert_eq!(
            refused(ledger.admit("b", &[need(host, 4001)])),
            "Unavailable: b does not fit: it needs 4001 bytes of the host, where requests and models hold 3000 of the 8000 bytes of \
             --memory-limit, and an eighth is left to small requests"
        );
        assert!(refused(ledger.admit("b", &[need(host, u64::MAX)])).contains("needs 18446744073709551615 bytes"));
        assert!(refused(ledger.admit("b", &[need(device, u64::MAX), need(device, 2)])).contains("does not fit"));
        assert!(
            refused(ledger.admit("b", &[need(Where::Device(2), 1)]))
                .contains("device 2 does not say what memory it has: there is none")
        );
        drop(first);
        assert!(ledger.devices().iter().all(|row| row.promised_bytes == 0));
        assert_eq!(ledger.0.host.counters().used_bytes.iter().sum::<usize>(), 0);
        assert!(ledger.admit("nothing", &[]).is_ok(), "a model that says nothing is loaded");
    }

    #[test]
    fn a_part_of_a_device_is_the_limit_of_its_row_and_of_what_may_be_in_use() {
        let (ledger, free) = ledger();
        ledger.limit_devices(&[(0, 0.9), (0, 0.25)]);
        let device = Where::Device(0);
        let admitted = ledger.admit("a", &[need(device, 2500)]).expect("a quarter");
        assert!(
            refused(ledger.admit("b", &[need(device, 1)])).contains("need 2500 of the 2500 bytes that models may need")
        );
        assert_eq!(ledger.check_limit("a_0", 0), Ok(()));
        free[0].store(7500, Relaxed);
        assert_eq!(ledger.check_limit("a_0", 0), Ok(()), "not more than the limit");
        free[0].store(7499, Relaxed);
        let text = "can not create model 'a_0': memory limit set for GPU 0 has exceeded, model loading is rejected.";
        assert_eq!(ledger.check_limit("a_0", 0), Err(Error::unavailable(text)));
        free[1].store(0, Relaxed);
        assert_eq!(ledger.check_limit("a_0", 1), Ok(()), "no limit was set for it");
        drop(admitted);
    }

    #[test]
    fn threads_never_get_more_than_there_is() {
        let (ledger, _) = ledger();
        std::thread::scope(|s| {
            for i in 0..4u64 {
                let ledger = &ledger;
                s.spawn(move || {
                    for n in 0..if cfg!(miri) { 5 } else { 500u64 } {
                        let bytes = (n * 37 + i * 11) % 6000 + 1;
                        let got = ledger.admit("m", &[need(Where::Device(0), bytes), need(Where::Host, bytes / 2)]);
                        assert!(ledger.devices().iter().all(|row| row.promised_bytes <= TOTAL));
                        drop(got);
                    }
                });
            }
        });
        assert!(ledger.devices().iter().all(|row| row.promised_bytes == 0));
    }
}
