//! Counters of one version. A request adds everything from one [`Timings`] under one lock, so that statistics, metrics
//! and histograms agree exactly (S-43, S-46).

use crate::executions::{Duration, Executions};
use crate::histograms::{HistogramShape, Histograms, Time, VersionHistogram};
use crate::limits::{BATCH_SIZES_MAX, RESPONSE_STATISTICS_MAX};
use crate::on_devices::OnDevices;
use crate::response_statistics::{ResponseEnd, ResponseStatistics};
use crate::sketch::{Histogram, Sketch};
use crate::times::{Timings, believable, marks};
use crate::usage::CounterLog;
use backend::{BatchEntry, Reported, ReportedEnd, ReportedTimes};
use cache::Counters as CacheCounters;
use options::{MetricsOptions, Quantile};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::time::{SystemTime, UNIX_EPOCH};
use tensor::Code;
use trace::Trace;

/// Reason of a failed request, for the failure metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(usize)]
pub enum FailureReason {
    /// Timeout of a queue policy.
    Rejected = 0,
    /// The client cancelled it.
    Cancelled = 1,
    /// The model failed.
    Backend = 2,
    /// Anything else.
    Other = 3,
}

/// Counters of executions of one batch size.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct BatchDurations {
    pub(crate) input: Duration,
    pub(crate) infer: Duration,
    pub(crate) output: Duration,
}

/// Totals of a version, from which its load is computed.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Totals {
    /// Successful requests.
    pub(crate) requests: u64,
    pub(crate) failures: u64,
    /// See [`VersionStatistics::execution_ns`].
    pub(crate) execution_ns: u64,
}

#[derive(Default)]
struct Counters {
    /// All executions, on any device. `failures` stays 0: see `executions`.
    all: Executions,
    last_inference_ms: u64,
    fail: Duration,
    /// By [`FailureReason`].
    failures: [u64; 4],
    batches: BTreeMap<u64, BatchDurations>,
    responses: Vec<ResponseStatistics>,
    histograms: Histograms,
    /// `nv_inference_first_response_histogram_ms`.
    histogram: Option<Histogram>,
    sketches: Option<Box<[Sketch; 7]>>,
    cache_hit: Duration,
    cache_miss: Duration,
    /// Devices of the instances.
    places: OnDevices,
    /// Indexed like `places`.
    on_devices: Vec<Executions>,
}

impl Counters {
    fn executions(&self) -> Executions {
        Executions { failures: self.failures[FailureReason::Backend as usize], ..self.all }
    }

    /// Time of instances in executions, each counted once.
    fn execution_ns(&self) -> u64 {
        self.batches.values().map(|b| b.input.ns + b.infer.ns + b.output.ns).sum()
    }

    fn summarise(&mut self, family: usize, end: u64, ns: u64) {
        if let Some(sketch) = self.sketches.as_mut().and_then(|s| s.get_mut(family)) {
            sketch.observe(end, ns / 1000);
        }
    }

    #[inline]
    fn fail(&mut self, ns: u64, reason: FailureReason) {
        self.fail.add(ns);
        self.failures[reason as usize] += 1;
    }

    /// Adds a request with its share of the `phases` of its execution. Inlined, because every request needs it.
    #[inline(always)]
    fn succeed(&mut self, t: &Timings, phases: [u64; 3], accepted: u64, rows: u64) {
        let request_ns = t.end.saturating_sub(accepted);
        let queue = t.start.saturating_sub(accepted);
        let [input, infer, output] = phases;
        self.all.success.add(request_ns);
        self.all.queue.add(queue);
        self.all.compute_input.add(input);
        self.all.compute_infer.add(infer);
        self.all.compute_output.add(output);
        self.all.inference_count += rows.max(1);
        self.histograms.observe(Time::Request, request_ns);
        self.histograms.observe(Time::Queue, queue);
        self.histograms.observe(Time::Compute, infer);
        if let Some(sketches) = &mut self.sketches {
            for (s, ns) in sketches.iter_mut().zip([request_ns, queue, input, infer, output]) {
                s.observe(t.end, ns / 1000);
            }
        }
    }
}

/// The summary families in output order: the first without a response cache, the last two only with it.
const SUMMARIES: [&str; 7] =
    ["request", "queue", "compute_input", "compute_infer", "compute_output", "cache_hit", "cache_miss"];
/// Indices in `SUMMARIES`.
const QUEUE: usize = 1;
const CACHE_HIT: usize = 5;
const CACHE_MISS: usize = 6;

pub(crate) struct Statistics {
    counters: Mutex<Counters>,
    /// The counters at moments of the last minutes.
    pub(crate) log: CounterLog,
    /// Batch size under which executions are counted; `None` = the rows of the batch.
    batch_size: Option<u64>,
    /// First responses are counted.
    has_first_response: bool,
    /// The version has a response cache.
    cached: bool,
    /// Milliseconds since the epoch at time 0 of `backend::now_ns`, so that one clock per execution is enough.
    epoch_ms: u64,
}

/// One executed request, for [`Statistics::executed`].
pub(crate) struct Executed {
    /// A and B: when it was accepted and queued.
    pub accepted: u64,
    pub rows: u64,
    pub failure: Option<FailureReason>,
    /// A text, whose request is counted when all its texts ran.
    pub is_text: bool,
}

impl Executed {
    /// Counters of an entry that has its result.
    pub(crate) fn of(entry: &BatchEntry, accepted: u64) -> Self {
        let failure = match &entry.result {
            Some(Err(e)) if e.code() == Code::Cancelled => Some(FailureReason::Cancelled),
            Some(Err(_)) => Some(FailureReason::Backend),
            _ => None,
        };
        Self { accepted, rows: u64::from(entry.checked.rows), failure, is_text: false }
    }
}

impl Statistics {
    #[expect(clippy::disallowed_methods, reason = "statistics tell the time of day of the last inference")]
    pub(crate) fn new(
        options: &MetricsOptions,
        buckets_ms: Option<Vec<f64>>,
        batch_size: Option<u64>,
        cached: bool,
        places: OnDevices,
        shape: HistogramShape,
    ) -> Self {
        let mut counters = Counters { histograms: Histograms::new(shape), ..Counters::default() };
        counters.on_devices.resize(places.ordinals().len(), Executions::default());
        counters.places = places;
        if options.histogram_latencies {
            counters.histogram = Some(Histogram::new(buckets_ms.unwrap_or_else(|| vec![100.0, 500.0, 2000.0, 5000.0])));
        }
        if options.summary_latencies {
            counters.sketches = Some(Box::new(std::array::from_fn(|_| Sketch::new())));
        }
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_millis() as u64);
        let has_first_response = options.histogram_latencies || shape.is_decoupled;
        Self {
            counters: Mutex::new(counters),
            log: CounterLog::new(backend::now_ns()),
            batch_size,
            has_first_response,
            cached,
            epoch_ms: now.saturating_sub(backend::now_ns() / 1_000_000),
        }
    }

    /// Counts one inline execution, which is not on a device, and its request.
    // Inlined: for a single request the loop has one iteration.
    #[inline]
    pub(crate) fn executed(&self, t: &Timings, requests: impl Iterator<Item = Executed>) {
        self.count(&mut self.counters.lock(), (0, 0), t, requests);
    }

    /// Counts one execution of an instance, whose batch has this many null rows and tokens, and each of its requests.
    pub(crate) fn executed_by(
        &self,
        instance: u32,
        null_rows_and_tokens: (u64, u64),
        t: &Timings,
        requests: impl Iterator<Item = Executed>,
    ) {
        self.counted_by(instance, |c| self.count(c, null_rows_and_tokens, t, requests));
    }

    /// Sets the device of an instance. Counts of its former device stay.
    pub(crate) fn place(&self, instance: u32, device: Option<u32>) {
        let mut c = self.counters.lock();
        c.places.place(instance, device);
        let devices = c.places.ordinals().len();
        c.on_devices.resize(devices, Executions::default());
    }

    pub(crate) fn device_of(&self, instance: u32) -> Option<u32> {
        self.counters.lock().places.device(instance)
    }

    /// The instances on a device, including removed ones.
    pub(crate) fn instances_on(&self, device: u32) -> Vec<u32> {
        self.counters.lock().places.instances_on(device).collect()
    }

    /// The devices of all current and former instances.
    pub(crate) fn devices(&self) -> Vec<u32> {
        self.counters.lock().places.ordinals().to_vec()
    }

    /// Applies `count` in total and for the instance's device.
    fn counted_by(&self, instance: u32, count: impl FnOnce(&mut Counters)) {
        let mut c = self.counters.lock();
        let Some(at) = c.places.at(instance) else { return count(&mut c) };
        let before = c.executions();
        count(&mut c);
        let now = c.executions();
        if let Some(device) = c.on_devices.get_mut(at) {
            device.add_between(&before, &now);
        }
    }

    #[inline(always)]
    fn count(
        &self,
        c: &mut Counters,
        (null_rows, tokens): (u64, u64),
        t: &Timings,
        requests: impl Iterator<Item = Executed>,
    ) {
        let phases = t.phases();
        let (mut rows, mut any) = (null_rows, false);
        for r in requests {
            rows += r.rows.max(1);
            if r.is_text {
                any |= r.failure.is_none();
                continue;
            }
            let request_ns = t.end.saturating_sub(r.accepted);
            if let Some(h) = &mut c.histogram {
                h.observe(request_ns / 1_000_000);
            }
            if let Some(reason) = r.failure {
                c.fail(request_ns, reason);
                continue;
            }
            any = true;
            c.succeed(t, phases, r.accepted, r.rows);
        }
        if any {
            self.count_execution(c, t.end, phases, rows);
            if tokens > 0 {
                c.histograms.batch_of_tokens(tokens);
            }
        }
    }

    #[inline]
    fn count_execution(&self, c: &mut Counters, end: u64, [input, infer, output]: [u64; 3], rows: u64) {
        c.all.execution_count += 1;
        c.last_inference_ms = c.last_inference_ms.max(self.epoch_ms + end / 1_000_000);
        let b = c.batches.entry(self.batch_size.unwrap_or(rows)).or_default();
        b.input.add(input);
        b.infer.add(infer);
        b.output.add(output);
    }

    /// Counts a request with a cached response, which was looked up from the beginning and sent at `end`.
    pub(crate) fn hit(&self, accepted: u64, end: u64) {
        let ns = end.saturating_sub(accepted);
        let mut c = self.counters.lock();
        c.all.success.add(ns);
        c.all.queue.add(0);
        c.histograms.observe(Time::Request, ns);
        c.histograms.observe(Time::Queue, 0);
        c.cache_hit.add(ns);
        if let Some(h) = &mut c.histogram {
            h.observe(ns / 1_000_000);
        }
        c.summarise(QUEUE, end, 0);
        c.summarise(CACHE_HIT, end, ns);
    }

    /// Counts a cache miss on top of its execution: lookup and insertion, successful or not, took `ns`.
    pub(crate) fn missed(&self, ns: u64, end: u64) {
        let mut c = self.counters.lock();
        c.all.success.ns += ns;
        c.cache_miss.add(ns);
        c.summarise(CACHE_MISS, end, ns);
    }

    /// Counts an accepted request that failed without running.
    pub(crate) fn failed(&self, accepted: u64, now: u64, reason: FailureReason) {
        let mut c = self.counters.lock();
        let ns = now.saturating_sub(accepted);
        c.fail(ns, reason);
        if let Some(h) = &mut c.histogram {
            h.observe(ns / 1_000_000);
        }
    }

    /// Counts the first response of a request that may have many. `ended` or `failed_late` counts the end.
    pub(crate) fn first_response(&self, accepted: u64, now: u64, trace: Option<&Trace>) {
        if !self.has_first_response {
            return;
        }
        let ns = now.saturating_sub(accepted);
        let mut c = self.counters.lock();
        c.histograms.first_response(ns);
        if let Some(h) = &mut c.histogram {
            h.observe(ns / 1_000_000);
        }
        if let Some(id) = trace.and_then(Trace::id) {
            c.histograms.exemplify(Time::FirstResponse, ns, &id, now);
        }
    }

    /// Counts the time that the texts of a request took to be tokenised.
    pub(crate) fn tokenized(&self, ns: u64) {
        self.counters.lock().histograms.tokenized(ns);
    }

    /// Keeps a traced request, which was counted, as the example of its buckets.
    #[cold]
    pub(crate) fn exemplify(&self, trace: &Trace, t: &Timings) {
        let Some(id) = trace.id() else { return };
        let accepted = trace.phases().measured().accepted;
        let [_, infer, _] = t.phases();
        let times = [
            (Time::Request, t.end.saturating_sub(accepted)),
            (Time::Queue, t.start.saturating_sub(accepted)),
            (Time::Compute, infer),
        ];
        let histograms = &mut self.counters.lock().histograms;
        times.into_iter().for_each(|(time, ns)| histograms.exemplify(time, ns, &id, t.end));
    }

    /// Counts one response of such a request, by its index.
    pub(crate) fn response(&self, index: usize, end: ResponseEnd, times: (u64, Option<u64>, u64)) {
        if index >= RESPONSE_STATISTICS_MAX {
            return;
        }
        let responses = &mut self.counters.lock().responses;
        if responses.len() <= index {
            responses.resize(index + 1, ResponseStatistics::default());
        }
        if let Some(response) = responses.get_mut(index) {
            response.add(end, times);
        }
    }

    /// Counts the end of such a request and, if `execution` has the rows, its execution.
    pub(crate) fn ended(&self, instance: u32, t: &Timings, accepted: u64, rows: u32, execution: Option<u64>) {
        let phases = t.phases();
        self.counted_by(instance, |c| {
            c.succeed(t, phases, accepted, rows.into());
            if let Some(rows) = execution {
                self.count_execution(c, t.end, phases, rows);
            }
        });
    }

    /// Counts what a model reports of its own work, of a request or rows that it has no more.
    pub(crate) fn reported(&self, instance: u32, report: Reported, times: ReportedTimes) {
        let times = believable(times);
        match report {
            Reported::Request { is_success } => {
                let _ = self.request_reported(instance, is_success, times, times.start, 1);
            }
            Reported::Batch { rows } => {
                let phases = Timings { start: times.start, marks: marks(times), end: times.end }.phases();
                self.counted_by(instance, |c| {
                    if c.batches.len() < BATCH_SIZES_MAX || c.batches.contains_key(&rows) {
                        self.count_execution(c, times.end, phases, rows);
                    }
                });
            }
            Reported::Response { index, end } => {
                let end = match end {
                    ReportedEnd::Success => ResponseEnd::Success,
                    ReportedEnd::Failed => ResponseEnd::Failed,
                    ReportedEnd::Empty => ResponseEnd::Empty,
                    ReportedEnd::Cancelled => ResponseEnd::Cancelled,
                };
                let output = (times.compute_end > 0).then_some(times.compute_end);
                self.response(index, end, (times.start, output, times.end));
            }
        }
    }

    /// Counts a request whose model reports its times. Returns them.
    pub(crate) fn request_reported(
        &self,
        instance: u32,
        is_success: bool,
        times: ReportedTimes,
        accepted: u64,
        rows: u32,
    ) -> Timings {
        let times = believable(times);
        let timings = Timings { start: times.start, marks: marks(times), end: backend::now_ns() };
        if is_success {
            self.ended(instance, &timings, accepted, rows, None);
        } else {
            self.failed_late(instance, accepted, timings.end, FailureReason::Backend);
        }
        timings
    }

    /// Like `ended`, for one that failed.
    pub(crate) fn failed_late(&self, instance: u32, accepted: u64, now: u64, reason: FailureReason) {
        self.counted_by(instance, |c| c.fail(now.saturating_sub(accepted), reason));
    }

    /// Counts an execution of which every request may have failed.
    pub(crate) fn execution_failed(&self, instance: u32, t: &Timings, rows: u64) {
        self.counted_by(instance, |c| self.count_execution(c, t.end, t.phases(), rows));
    }

    /// Counters of all executions, with all failures.
    pub(crate) fn all_executions(&self) -> Executions {
        let c = self.counters.lock();
        Executions { failures: c.fail.count, ..c.all }
    }

    pub(crate) fn totals(&self) -> Totals {
        let c = self.counters.lock();
        Totals { requests: c.all.success.count, failures: c.fail.count, execution_ns: c.execution_ns() }
    }

    pub(crate) fn read(&self, now: u64, quantiles: &[Quantile]) -> VersionStatistics {
        let c = self.counters.lock();
        VersionStatistics {
            inference_count: c.all.inference_count,
            execution_count: c.all.execution_count,
            last_inference_ms: c.last_inference_ms,
            success: c.all.success,
            fail: c.fail,
            queue: c.all.queue,
            compute_input: c.all.compute_input,
            compute_infer: c.all.compute_infer,
            compute_output: c.all.compute_output,
            cache_hit: c.cache_hit,
            cache_miss: c.cache_miss,
            cached: self.cached,
            failures: c.failures,
            on_devices: c.places.ordinals().iter().copied().zip(c.on_devices.iter().copied()).collect(),
            execution_ns: c.execution_ns(),
            batches: c.batches.iter().map(|(&n, b)| (n, b.input, b.infer, b.output)).collect(),
            responses: c.responses.clone(),
            histograms: c.histograms.read(
                [c.all.success.ns, c.all.queue.ns, c.all.compute_infer.ns],
                c.batches.iter().map(|(&rows, b)| (rows, b.infer.count)),
                self.epoch_ms,
            ),
            first_response: c.histogram.as_ref().map(|h| (h.bounds.clone(), h.counts.clone(), h.sum)),
            summaries: c.sketches.as_ref().map(|s| {
                s.iter()
                    .zip(SUMMARIES)
                    .filter(|(_, family)| match *family {
                        "request" => !self.cached,
                        "cache_hit" | "cache_miss" => self.cached,
                        _ => true,
                    })
                    .map(|(s, family)| Summary {
                        family,
                        values: quantiles.iter().map(|q| (q.quantile, s.quantile(now, q.quantile))).collect(),
                        count: s.count,
                        sum_us: s.sum_us,
                    })
                    .collect()
            }),
            ..VersionStatistics::default()
        }
    }
}

/// All counters of one version at one moment.
#[derive(Debug, Clone, Default)]
pub struct VersionStatistics {
    /// Name of the model.
    pub name: String,
    /// Repository of the model if repositories are namespaces, otherwise "".
    pub namespace: String,
    /// Version number.
    pub version: i64,
    /// Rows executed; a request of n rows adds n.
    pub inference_count: u64,
    /// Executions with at least one success.
    pub execution_count: u64,
    /// Milliseconds since the epoch of the last such execution; 0 = never.
    pub last_inference_ms: u64,
    /// Successful requests.
    pub success: Duration,
    /// Accepted requests that failed.
    pub fail: Duration,
    /// Waiting for an instance.
    pub queue: Duration,
    /// Gathering inputs.
    pub compute_input: Duration,
    /// Running the model.
    pub compute_infer: Duration,
    /// Splitting outputs.
    pub compute_output: Duration,
    /// Requests with a cached response, and the time of their lookups.
    pub cache_hit: Duration,
    /// Requests without a cached response, and the time of lookups and insertions.
    pub cache_miss: Duration,
    /// The version has a response cache.
    pub cached: bool,
    /// By [`FailureReason`].
    pub failures: [u64; 4],
    /// The counters of executions by device ordinal.
    pub on_devices: Vec<(u32, Executions)>,
    /// Time of instances in executions, each counted once, in ns.
    pub execution_ns: u64,
    /// Batch size, and input, infer and output durations of executions of that size.
    pub batches: Vec<(u64, Duration, Duration, Duration)>,
    /// By the index of a response in its request, for backends that count them.
    pub responses: Vec<ResponseStatistics>,
    /// Accepted and not yet executing.
    pub pending: u64,
    /// Accepted and not yet answered.
    pub inflight: u64,
    /// Cancelled by their client, in the queue or while running.
    pub cancelled: u64,
    /// Bounds in ms, counts per bucket (one more), sum in ms.
    pub first_response: Option<(Vec<f64>, Vec<u64>, u64)>,
    /// Times and sizes of batches.
    pub histograms: Vec<VersionHistogram>,
    /// Quantiles by family.
    pub summaries: Option<Vec<Summary>>,
    /// Counters of the backend: name, help, value.
    pub custom: Vec<(&'static str, &'static str, f64)>,
}

/// Quantiles of one family over the last minute.
#[derive(Debug, Clone)]
pub struct Summary {
    /// `request`, `queue`, `compute_input`, `compute_infer`, `compute_output`, `cache_hit` or `cache_miss`.
    pub family: &'static str,
    /// Quantile and value in µs; NaN without observations.
    pub values: Vec<(f64, f64)>,
    /// Observations since load.
    pub count: u64,
    /// Their sum in µs.
    pub sum_us: u64,
}

/// All values of one scrape.
#[derive(Debug, Clone, Default)]
pub struct Snapshot {
    /// Every version that serves.
    pub versions: Vec<VersionStatistics>,
    /// Limits and their current values: name, help, value.
    pub gauges: Vec<(&'static str, &'static str, f64)>,
    /// Counters of the response cache, if it has any.
    pub cache: Option<CacheCounters>,
    /// Resources of the rate limiter.
    pub resources: Vec<ResourceUse>,
}

/// A resource of the rate limiter (S-35).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResourceUse {
    /// Name of the response.
    pub name: String,
    /// Device of the resource; `None` if it is global.
    pub device: Option<u32>,
    /// Units used by executions.
    pub used: u64,
    /// Units available.
    pub capacity: u64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use backend::Marks;

    /// CPU time per request, in ns, of threads that count single executions: the minimum of several rounds.
    fn cost_ns(threads: u32, options: &MetricsOptions) -> u64 {
        const REQUESTS: u64 = 5000;
        let statistics = Statistics::new(options, None, None, false, OnDevices::default(), HistogramShape::default());
        let work = || {
            let before = memory::thread::cpu_ns();
            for n in 0..REQUESTS {
                let marks = Marks { inputs_ready: n + 1, inference_end: n + 2, outputs_ready: n + 3 };
                let request = Executed { accepted: n, rows: 1, failure: None, is_text: false };
                statistics.executed(&Timings { start: n, marks, end: n + 4 }, std::iter::once(request));
            }
            (memory::thread::cpu_ns() - before) / REQUESTS
        };
        // A round that was interrupted by another program costs more.
        let round = |_| {
            std::thread::scope(|scope| {
                let all: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
                all.into_iter().map(|thread| thread.join().expect("no panic")).max().unwrap_or_default()
            })
        };
        (0..20).map(round).min().unwrap_or_default()
    }

    #[test]
    fn o_17_executions_on_devices_also_count_for_their_device() {
        let places = OnDevices::of([Some(1), None, Some(0), Some(1)].into_iter());
        let statistics =
            Statistics::new(&MetricsOptions::default(), None, None, false, places, HistogramShape::default());
        let marks = Marks { inputs_ready: 11, inference_end: 13, outputs_ready: 14 };
        let t = Timings { start: 10, marks, end: 15 };
        let request = |failure| Executed { accepted: 5, rows: 2, failure, is_text: false };
        for instance in [0, 1, 2, 3] {
            statistics.executed_by(instance, (0, 0), &t, [request(None), request(None)].into_iter());
        }
        statistics.executed_by(2, (0, 0), &t, [request(Some(FailureReason::Backend))].into_iter());
        statistics.ended(3, &t, 5, 7, Some(7));
        // An instance added on a new device, and one that reuses a number.
        statistics.place(4, Some(7));
        statistics.executed_by(4, (0, 0), &t, std::iter::once(request(None)));
        statistics.place(1, Some(7));
        statistics.executed_by(1, (0, 0), &t, std::iter::once(request(None)));
        statistics.failed(0, 5, FailureReason::Rejected);
        let read = statistics.read(0, &[]);
        assert_eq!((read.inference_count, read.execution_count, read.success.count), (27, 7, 11));
        let of =
            |e: &Executions| (e.inference_count, e.execution_count, e.success.count, e.compute_infer.ns, e.failures);
        let seen: Vec<_> = read.on_devices.iter().map(|(device, e)| (*device, of(e))).collect();
        assert_eq!(seen, [(1, (15, 3, 5, 10, 0)), (0, (4, 1, 2, 4, 1)), (7, (4, 2, 2, 4, 0))]);
    }

    #[test]
    fn o62_counting_a_request_takes_less_than_a_microsecond_under_contention() {
        let usual = MetricsOptions::default();
        let histograms = MetricsOptions { histogram_latencies: true, ..MetricsOptions::default() };
        for (threads, options) in [(1, &usual), (2, &usual), (1, &histograms)] {
            let ns = cost_ns(threads, options);
            assert!(ns < 1000, "{ns} ns per request with {threads} threads");
        }
    }
}
