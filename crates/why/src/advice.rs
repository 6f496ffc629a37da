//! Changes, and what the replay expects of them. A change is advised if it gains at least
//! [`WORTH`](crate::worth::WORTH) of the rate or of the 99th percentile, compared with a replay without it, and costs
//! nothing else.

use crate::history::{History, Ran};
use crate::load::Traffic;
use crate::machine::{Cores, Usage};
use crate::replay::{Scene, Share};
use crate::service::{self, Service, at_once, quickest};
use crate::worth::{gain, is_worth};
use crate::{Speed, quantile};
use scheduler::{Cause, Config, Dynamic};

/// A smaller change is taken if it has this share of the gain of the best one.
const ENOUGH: f64 = 0.9;
/// A replay without changes may differ from the measured rate by this factor. Otherwise it says nothing.
const BELIEVED: f64 = 1.6;
/// Fewest requests that say something.
const REQUESTS_MIN: usize = 50;
/// An execution this much longer than the median, and at least this long, hung.
const HANG: u64 = 20;
const HANG_NS_MIN: u64 = 100_000_000;
/// One that still runs hangs from here. What it costs is not known yet.
const HANG_OPEN_NS_MIN: u64 = 1_000_000_000;
/// Most executions that may hang: more are the usual case.
const HANG_SHARE_MAX: f64 = 0.1;
/// Share of a run's time without a core from which the cores are to blame.
const DELAY_MIN: f64 = 0.13;
/// Cores used by other processes from which they are neighbours.
const OTHERS_MIN: f64 = 0.2;
/// Speedup of each further core. High, since it is applied to the shortest durations.
const EFFICIENCY: f64 = 0.9;
/// Steps of the search for a limit of durations.
const CUTS: usize = 20;
/// Advice about a model that hangs, which no setting mends.
const HANGS: &str = "hang";
/// An instance takes memory: another change comes first unless instances gain so many times as much.
const INSTANCES: &str = "instances";
const INSTANCES_COST: f64 = 1.6;
/// Share of the latency in the queue from which more instances are tried.
const QUEUED_MIN: f64 = 0.2;
/// Median latency in mean durations of an execution from which requests do not wait.
const NEAR: f64 = 1.15;
/// CPU time of runs whose threads fight over the time that they need: the rest is spent waiting for each other. Seen
/// with ONNX Runtime on two cores: 1.4 to 1.9.
const SPINS: f64 = 1.6;
/// Part of a model in the work of all models from which the use of the cores says something about it, and from which it
/// is the only one that matters.
const PART_MIN: f64 = 0.5;
const ALL: f64 = 0.9;
/// Most instances that are tried.
const INSTANCES_MAX: u32 = 64;

/// How a model is set up.
#[derive(Debug, Clone)]
pub struct Setup {
    /// Scheduling of the model.
    pub config: Config,
    /// Number of instances.
    pub instances: u32,
    /// False for sequences, whose scheduler is not replayed.
    pub is_replayed: bool,
    /// `intra_op_thread_count`, if it is set.
    pub threads: Option<u32>,
    /// Shortest duration of an execution by the binary logarithm of its rows, since the model was loaded.
    pub fastest: [u64; 16],
    /// Learned cost of an execution, in ns: its fixed part, and that of each row.
    pub learned: Option<(f64, f64)>,
    /// Readings of the use of cores, oldest first.
    pub usage: Vec<Usage>,
    /// Cores that the process may run on.
    pub allowed: f64,
    /// The same, or its quota of CPU time if that is less.
    pub cores: f64,
}

/// A change to replay.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Change {
    /// Instances.
    pub instances: Option<u32>,
    /// `max_queue_delay_microseconds`.
    pub delay_us: Option<u64>,
    /// `max_batch_size`.
    pub max_batch_size: Option<u32>,
    /// `intra_op_thread_count`.
    pub threads: Option<u32>,
}

/// A change that is worth it.
#[derive(Debug, Clone, PartialEq)]
pub struct Advice {
    /// Kind of the change, in a word.
    pub change: &'static str,
    /// Text to write, and its place if that is not obvious.
    pub setting: String,
    /// Present value, if it is a number.
    pub from: Option<u64>,
    /// New value, if it is a number.
    pub to: Option<u64>,
    /// Why, and what it does.
    pub text: String,
    /// Rate and latency as measured.
    pub now: Speed,
    /// Rate and latency that the replay expects.
    pub expected: Speed,
}

/// Sums of the last minutes.
#[derive(Debug, Clone)]
pub struct Findings {
    /// Rate and latency.
    pub speed: Speed,
    /// Mean rows of an execution.
    pub batch: f64,
    /// How requests came.
    pub load: Traffic,
    /// Share of the requests by why their batch began.
    pub causes: Vec<(Cause, f64)>,
    /// Share of the requests that waited for an instance.
    pub waited: f64,
    /// Use of the cores in the stretch that was replayed.
    pub cores: Cores,
    /// Whether changes were tried: not for too few requests, and not for all kinds of models.
    pub is_replayed: bool,
    /// Changes that are worth it, the best first.
    pub advice: Vec<Advice>,
    /// Result of the change that was asked for.
    pub simulated: Option<Speed>,
}

/// Sums up a history, and looks for changes. Takes up to a second for a long one.
pub fn report(history: &History, setup: &Setup, asked: Option<&Change>) -> Findings {
    let stretch = history.stretch();
    let load = Traffic::of(&stretch);
    let (cores, part) = cores_of(history, &stretch, setup);
    let study = Study::new(&stretch, setup, &load, cores, part);
    let is_replayed = study.is_enough(history);
    let advice = if is_replayed { study.advice() } else { Vec::new() };
    let simulated = asked.filter(|_| study.is_replayable()).map(|change| study.with(change));
    let (batch, causes, cores) = (mean_rows(history), causes(history), study.cores);
    let waited = causes.iter().filter(|(cause, _)| *cause == Cause::InstanceFreed).map(|(_, share)| share).sum();
    Findings { speed: history.speed(), batch, load, causes, waited, cores, is_replayed, advice, simulated }
}

fn mean_rows(history: &History) -> f64 {
    let rows: f64 = history.runs.iter().map(|ran| f64::from(ran.rows)).sum();
    let inline = history.inline();
    (rows + inline) / (history.runs.len() as f64 + inline).max(1.0)
}

fn causes(history: &History) -> Vec<(Cause, f64)> {
    let mut causes: Vec<(Cause, f64)> = Vec::new();
    let mut add = |cause: Cause, requests: f64| match causes.iter_mut().find(|(known, _)| *known == cause) {
        Some((_, sum)) => *sum += requests,
        None => causes.push((cause, requests)),
    };
    let inline = history.inline();
    if inline > 0.0 {
        add(Cause::IdleInstance, inline);
    }
    for ran in &history.runs {
        add(ran.execution.cause, ran.execution.requests.into());
    }
    let all: f64 = causes.iter().map(|(_, sum)| sum).sum();
    causes.iter_mut().for_each(|(_, sum)| *sum /= all.max(1.0));
    causes.sort_by(|a, b| b.1.total_cmp(&a.1));
    causes
}

/// A stretch, and what it says about the model.
struct Study<'s> {
    stretch: &'s History,
    setup: &'s Setup,
    load: &'s Traffic,
    service: Service,
    cores: Cores,
    share: Share,
    /// Share of a run's time in which it was ready and had no core.
    delayed: f64,
    /// Part of the model in the work of all models, which the use of the cores is of.
    part: f64,
    now: Speed,
    base: Speed,
}

impl<'s> Study<'s> {
    fn new(stretch: &'s History, setup: &'s Setup, load: &'s Traffic, cores: Cores, part: f64) -> Self {
        let service = Service::of(stretch, setup.learned);
        let busy = cores.busy;
        let known = cores.seconds > 0.0 && busy > 0.0;
        let wanted = cores.used + cores.waiting;
        let free = setup.cores.min(setup.allowed - cores.others);
        let share = Share {
            each: if known { wanted / busy } else { 1.0 },
            cores: (free - (1.0 - part) * cores.used).max(setup.cores.min(0.5)),
            measured: at_once(&stretch.runs),
            front: 0.0,
        };
        let delayed = if known { (cores.waiting / busy).min(cores.waiting / wanted.max(1e-9)) } else { 0.0 };
        let now = stretch.speed();
        let front = if known { cores.front / now.rate.max(1.0) } else { 0.0 };
        let share = Share { front, ..share };
        let base = Speed::default();
        let mut study = Self { stretch, setup, load, service, cores, share, delayed, part, now, base };
        if study.is_replayable() {
            study.base = study.play(&setup.config, setup.instances, &study.service, share);
        }
        study
    }

    fn is_replayable(&self) -> bool {
        self.setup.is_replayed && !self.service.is_empty() && self.stretch.requests.len() >= REQUESTS_MIN
    }

    /// True if the replay says something about most of the requests.
    fn is_enough(&self, history: &History) -> bool {
        let ratio = self.base.rate / self.now.rate.max(1e-9);
        self.is_replayable() && history.inline_share() < 0.5 && ratio < BELIEVED && ratio * BELIEVED > 1.0
    }

    fn play(&self, config: &Config, instances: u32, service: &Service, share: Share) -> Speed {
        let (history, load, config) = (self.stretch, self.load, config.clone());
        Scene { config, instances, service, load, history, share }.play()
    }

    /// Plays the change that was asked for.
    fn with(&self, change: &Change) -> Speed {
        let mut config = self.setup.config.clone();
        if let Some(size) = change.max_batch_size {
            sized(&mut config, size);
        }
        if let Some(delay) = change.delay_us {
            config.dynamic.get_or_insert_default().max_queue_delay_us = delay;
        }
        let instances = change.instances.unwrap_or(self.setup.instances).clamp(1, 4096);
        match change.threads {
            Some(threads) => {
                let (service, share) = self.with_threads(threads);
                self.play(&config, instances, &service, share)
            }
            None => self.play(&config, instances, &self.service, self.share),
        }
    }

    fn advice(&self) -> Vec<Advice> {
        let mut all: Vec<Advice> = Vec::new();
        all.extend(self.hang());
        all.extend(self.neighbour());
        all.extend(self.throttled());
        all.extend(self.threads());
        all.extend(self.delay());
        all.extend(self.batch());
        all.extend(self.tokens());
        all.extend(self.instances());
        let hangs_now = |advice: &Advice| advice.change == HANGS && self.is_stuck();
        // A replay on a busy machine may draw everything slower than it was: nobody takes an advice to lose.
        let is_gain = |advice: &Advice| gain(&advice.now, &advice.expected) > 0.0;
        all.retain(|advice| hangs_now(advice) || (is_worth(&self.before(advice), &advice.expected) && is_gain(advice)));
        let worth = |advice: &Advice| {
            if hangs_now(advice) {
                return f64::INFINITY;
            }
            let cost = if advice.change == INSTANCES { INSTANCES_COST } else { 1.0 };
            gain(&self.before(advice), &advice.expected) / cost
        };
        all.sort_by(|a, b| worth(b).total_cmp(&worth(a)));
        all
    }

    /// The figures with which those of an advice are compared. A replay may draw fewer hangs than there were.
    fn before(&self, advice: &Advice) -> Speed {
        let Speed { rate, p50_us, p99_us } = self.base;
        if advice.change != HANGS {
            return self.base;
        }
        Speed {
            rate: rate.min(self.now.rate),
            p50_us: p50_us.max(self.now.p50_us),
            p99_us: p99_us.max(self.now.p99_us),
        }
    }

    fn gain(&self, expected: &Speed) -> f64 {
        gain(&self.base, expected)
    }

    /// The smallest of these values, in the order given, that has nearly the gain of the best.
    fn best<T: Copy>(&self, tried: &[(T, Speed)]) -> Option<(T, Speed)> {
        let most = tried.iter().map(|(_, speed)| self.gain(speed)).fold(0.0, f64::max);
        tried.iter().find(|(_, speed)| is_worth(&self.base, speed) && self.gain(speed) >= ENOUGH * most).copied()
    }

    fn made(&self, change: &'static str, values: (Option<u64>, Option<u64>), expected: Speed) -> Advice {
        let (from, to) = values;
        Advice { change, setting: String::new(), from, to, text: String::new(), now: self.now, expected }
    }

    fn instances(&self) -> Option<Advice> {
        let Setup { config, instances, .. } = self.setup;
        // A model that divides the cores chooses the number of its runs.
        if config.cores.is_some() || self.queued() < QUEUED_MIN {
            return None;
        }
        let most = instances.saturating_mul(4).max(instances.saturating_add(8)).min(INSTANCES_MAX);
        let play = |count: u32| (count, self.play(config, count, &self.service, self.share));
        // Each is replayed when it is looked at.
        let mut tried = (instances + 1..=most).map(play).skip_while(|(_, speed)| !is_worth(&self.base, speed));
        let mut found = tried.next()?;
        for next in tried {
            // The slowest of a burst gain by any number of instances.
            if found.1.p50_us * 1e3 < NEAR * self.service.mean() {
                break;
            }
            if is_worth(&found.1, &next.1) {
                found = next;
            }
        }
        let (count, expected) = found;
        let made = self.made(INSTANCES, (Some(u64::from(*instances)), Some(count.into())), expected);
        let text = format!(
            "{} busy when {:.0} % of the requests came. With {count}, fewer wait; each needs the memory of the model \
             again if the model is in processes of its own.",
            if *instances == 1 { "The only instance was".into() } else { format!("All {instances} instances were") },
            100.0 * self.waited(),
        );
        Some(Advice { setting: format!("instance_group [ {{ count: {count} }} ]"), text, ..made })
    }

    /// Share of the latency that is spent in the queue.
    fn queued(&self) -> f64 {
        let (queue, all) = self.stretch.requests.iter().fold((0, 0), |(queue, all), answered| {
            let arrived = answered.request.arrived;
            (queue + answered.start.saturating_sub(arrived), all + answered.end.saturating_sub(arrived))
        });
        queue as f64 / all.max(1) as f64
    }

    fn waited(&self) -> f64 {
        let waited = self.stretch.runs.iter().filter(|ran| ran.execution.cause == Cause::InstanceFreed);
        let waited: u32 = waited.map(|ran| u32::from(ran.execution.requests)).sum();
        f64::from(waited) / self.stretch.requests.len().max(1) as f64
    }

    fn delay(&self) -> Option<Advice> {
        let dynamic = self.setup.config.dynamic.as_ref()?;
        let now = dynamic.max_queue_delay_us;
        let others: &[u64] = if now > 0 { &[0, now / 16, now / 4, now / 2] } else { &[100, 500, 2000] };
        let play = |&delay: &u64| {
            let mut config = self.setup.config.clone();
            config.dynamic.get_or_insert_default().max_queue_delay_us = delay;
            (delay, self.play(&config, self.setup.instances, &self.service, self.share))
        };
        let tried: Vec<_> = others.iter().map(play).collect();
        let (delay, expected) = self.best(&tried)?;
        let made = self.made("delay", (Some(now), Some(delay)), expected);
        let text = match delay < now {
            true => {
                format!("Requests wait up to {now} µs for others, which arrive too rarely to make up for it.")
            }
            false => {
                format!(
                    "Batches begin before more requests arrive that could share them; a delay of {delay} µs is long \
                     enough for these."
                )
            }
        };
        let setting = format!("dynamic_batching {{ max_queue_delay_microseconds: {delay} }}");
        Some(Advice { setting, text, ..made })
    }

    fn batch(&self) -> Option<Advice> {
        let Setup { config, instances, .. } = self.setup;
        if config.tokens_max.is_some() || config.max_batch_size == 0 {
            return None;
        }
        let (now, is_dynamic) = (config.max_batch_size, config.dynamic.is_some());
        let sizes: Vec<u32> = match is_dynamic {
            true => [2, 4, 8].iter().map(|times| now.saturating_mul(*times)).collect(),
            false => vec![now],
        };
        let play = |size: u32| {
            let mut changed = config.clone();
            changed.dynamic.get_or_insert_default();
            if is_dynamic {
                sized(&mut changed, size);
            }
            (size, self.play(&changed, *instances, &self.service, self.share))
        };
        let known = sizes.into_iter().filter(|size| *size > 1 && self.service.knows(*size));
        let tried: Vec<_> = known.map(play).collect();
        let (size, expected) = self.best(&tried)?;
        let made = self.made("batch size", (Some(now.into()), Some(size.into())), expected);
        if !is_dynamic {
            let text = "Each request runs alone, and a batch costs less than its requests one by one.".to_owned();
            let made = self.made("batching", (None, None), expected);
            return Some(Advice { setting: "dynamic_batching { }".to_owned(), text, ..made });
        }
        let text = format!(
            "Batches are full at {now} rows while more requests wait, and a larger batch costs less per row, as far \
             as the measured sizes can predict. The model has to accept {size} rows."
        );
        Some(Advice { setting: format!("max_batch_size: {size}"), text, ..made })
    }

    fn tokens(&self) -> Option<Advice> {
        let now = self.setup.config.tokens_max?;
        let play = |tokens: u32| {
            let config = Config { tokens_max: Some(tokens), ..self.setup.config.clone() };
            (tokens, self.play(&config, self.setup.instances, &self.service, self.share))
        };
        let tried: Vec<_> =
            [now / 2, now / 4, now.saturating_mul(2)].into_iter().filter(|t| *t > 0).map(play).collect();
        let (tokens, expected) = self.best(&tried)?;
        let made = self.made("token budget", (Some(now.into()), Some(tokens.into())), expected);
        let text = format!("Batches of {now} tokens are not the best size for texts of these lengths.");
        let setting = format!("parameters {{ key: \"max_batch_tokens\" value {{ string_value: \"{tokens}\" }} }}");
        Some(Advice { setting, text, ..made })
    }

    /// Durations with this number of threads, and the share of the cores: known are the shortest durations, of runs
    /// that had the cores for themselves.
    fn with_threads(&self, threads: u32) -> (Service, Share) {
        let cores = self.setup.cores.max(1.0);
        let speedup = |threads: u32| 1.0 + EFFICIENCY * (f64::from(threads).min(cores) - 1.0).max(0.0);
        let now = self.setup.threads.unwrap_or(cores as u32).max(1);
        let slower = speedup(now) / speedup(threads.max(1));
        let fights = f64::from(now) * f64::from(self.setup.instances) >= 2.0 * cores && self.delayed >= DELAY_MIN;
        let Cores { used, busy, .. } = self.cores;
        let computing = if fights && busy > 0.0 { used / busy / SPINS } else { f64::INFINITY };
        // The shortest durations are known by rows, and the size of a text is its tokens.
        let is_text = self.stretch.requests.iter().any(|answered| answered.request.tokens > 0);
        let service = self.service.map(|size, all| {
            let known = self.setup.fastest.get(size.max(1).ilog2() as usize).filter(|_| !is_text).copied().unwrap_or(0);
            let fast = if known > 0 { known } else { quantile(all, 0.02) };
            let kept = quickest(all, fast as f64 * 1.2);
            let mean = service::mean(&kept);
            // The shortest run may have been disturbed as well. It computed no longer than its threads had cores.
            let cpu = service::mean(all) * computing / speedup(threads.max(1));
            kept.iter().map(|ns| (*ns as f64 / mean * (fast as f64 * slower).min(cpu)) as u64).collect()
        });
        (service, Share { each: f64::from(threads), measured: 1.0, ..self.share })
    }

    fn threads(&self) -> Option<Advice> {
        let Setup { config, instances, threads, cores, .. } = self.setup;
        let now = (*threads)?;
        let wanted = u64::from(now) * u64::from(*instances);
        if wanted as f64 <= *cores || self.delayed < DELAY_MIN || config.cores.is_some() {
            return None;
        }
        let fewer = (*cores as u32 / instances).max(1);
        if fewer >= now || self.part < PART_MIN {
            return None;
        }
        let (service, share) = self.with_threads(fewer);
        let expected = self.play(config, *instances, &service, share);
        let made = self.made("threads", (Some(now.into()), Some(fewer.into())), expected);
        let text = format!(
            "{} of {now} threads need {wanted} cores, but there are {}: for {:.0} % of their time, threads that have \
             work wait for a core, and the others of the run wait for them.",
            plural(*instances, "instance"),
            (cores * 10.0).round() / 10.0,
            100.0 * self.delayed,
        );
        let setting = format!("parameters {{ key: \"intra_op_thread_count\" value {{ string_value: \"{fewer}\" }} }}");
        Some(Advice { setting, text, ..made })
    }

    fn neighbour(&self) -> Option<Advice> {
        let Cores { used, waiting, others, .. } = self.cores;
        // A quota may leave the others cores enough.
        if self.part < PART_MIN
            || others - (self.setup.allowed - self.setup.cores) < OTHERS_MIN
            || self.delayed < DELAY_MIN
        {
            return None;
        }
        // Without the neighbour, a run takes its own CPU time, and slows others down if all want more than the cores.
        let service = self.undelayed(1.0 - self.delayed);
        let each = self.share.each * used / (used + waiting).max(1e-9) / (1.0 - self.delayed);
        // Clients on this machine are among the other processes, and stay. They take about as much as the front end.
        let share = Share { each, cores: self.setup.cores, measured: 1.0, front: 2.0 * self.share.front };
        let expected = self.play(&self.setup.config, self.setup.instances, &service, share);
        let made = self.made("neighbour", (None, None), expected);
        let text = format!(
            "Other processes use {others:.1} of {:.0} cores. For {:.0} % of its time {} ready to run \
             and has no core.",
            self.setup.allowed,
            100.0 * self.delayed,
            if self.part < ALL { "a model of this server is" } else { "this model is" },
        );
        let setting = "cores of its own for the server (cpuset, --cpuset-cpus, taskset), or another machine for the \
                       other processes";
        Some(Advice { setting: setting.to_owned(), text, ..made })
    }

    fn throttled(&self) -> Option<Advice> {
        let throttled = self.cores.throttled;
        if throttled < DELAY_MIN / 2.0 {
            return None;
        }
        let service = self.undelayed(1.0 - throttled);
        let share = Share { cores: (self.setup.allowed - self.cores.others).max(self.share.cores), ..self.share };
        let expected = self.play(&self.setup.config, self.setup.instances, &service, share);
        let made = self.made("cpu quota", (None, None), expected);
        let text =
            format!("The CPU quota of the container stops the server for {:.0} % of the time.", 100.0 * throttled);
        let setting = "a higher CPU limit of the container (cpu.max, resources.limits.cpu, --cpus)".to_owned();
        Some(Advice { setting, text, ..made })
    }

    /// Durations with this share of their mean. The longest ones waited most: what is above a limit becomes the
    /// geometric mean with it, since some of that is the model's own.
    fn undelayed(&self, left: f64) -> Service {
        self.service.map(|_, all| {
            let wanted = left * all.iter().sum::<u64>() as f64;
            let cut = |ns: u64, limit: f64| if ns as f64 <= limit { ns as f64 } else { (ns as f64 * limit).sqrt() };
            let (mut low, mut high) = (0.0, all.last().copied().unwrap_or(0) as f64);
            for _ in 0..CUTS {
                let middle = (low + high) / 2.0;
                let sum: f64 = all.iter().map(|ns| cut(*ns, middle)).sum();
                *(if sum > wanted { &mut high } else { &mut low }) = middle;
            }
            all.iter().map(|ns| cut(*ns, low).max(1.0) as u64).collect()
        })
    }

    /// Sorted durations of executions, and the one from which they hang.
    fn hang_limit(&self) -> (Vec<u64>, u64) {
        let mut all: Vec<u64> = self.stretch.runs.iter().map(|ran| ran.execution.ns).collect();
        all.sort_unstable();
        let limit = HANG.saturating_mul(quantile(&all, 0.5)).max(HANG_NS_MIN);
        (all, limit)
    }

    /// True if an execution hangs now.
    fn is_stuck(&self) -> bool {
        self.stretch.open_ns >= self.hang_limit().1.max(HANG_OPEN_NS_MIN)
    }

    fn hang(&self) -> Option<Advice> {
        let (mut all, limit) = self.hang_limit();
        let is_stuck = self.is_stuck();
        let half = quantile(&all, 0.5);
        all.extend(Some(self.stretch.open_ns).filter(|_| is_stuck));
        let hung = all.iter().filter(|ns| **ns >= limit).count();
        let share = hung as f64 / all.len().max(1) as f64;
        if hung == 0 || share > HANG_SHARE_MAX {
            return None;
        }
        let service = self.service.map(|_, all| all.iter().copied().filter(|ns| *ns < limit).collect());
        let expected = self.play(&self.setup.config, self.setup.instances, &service, self.share);
        let made = self.made(HANGS, (None, None), expected);
        let text = format!(
            "{hung} of {} executions took up to {:.1} s{}, and half of all at most {:.1} ms. The requests after them \
             wait as long. The cause is in the model: a lock, a network call, a first run of a new shape.",
            all.len(),
            all.iter().max().copied().unwrap_or(0) as f64 / 1e9,
            if is_stuck { ", one of which still runs" } else { "" },
            half as f64 / 1e6,
        );
        let setting = "the model itself; until then, instance_group with a higher count lets other requests pass, and \
                       --hang-warning-secs names the executions in the log";
        Some(Advice { setting: setting.to_owned(), text, ..made })
    }
}

fn plural(count: u32, noun: &str) -> String {
    if count == 1 { format!("1 {noun}") } else { format!("{count} {noun}s") }
}

/// Sets the maximum batch size. Preferred sizes below it would end batches early.
fn sized(config: &mut Config, size: u32) {
    config.max_batch_size = size;
    let dynamic = config.dynamic.get_or_insert_with(Dynamic::default);
    dynamic.preferred.clear();
}

/// The use of the cores by all models around a stretch, and this model's part in it.
fn cores_of(history: &History, stretch: &History, setup: &Setup) -> (Cores, f64) {
    let begin = stretch.requests.first().map_or(0, |answered| answered.request.arrived);
    let end = stretch.requests.iter().map(|answered| answered.end).max().unwrap_or(0);
    let before = setup.usage.iter().rev().find(|usage| usage.at <= begin).or(setup.usage.first());
    let after = setup.usage.iter().find(|usage| usage.at >= end).or(setup.usage.last());
    match (before, after) {
        (Some(before), Some(after)) if before.at < after.at => {
            let cores = Cores::between(before, after, setup.allowed);
            let ended = |ran: &&Ran| (before.at..=after.at).contains(&(ran.execution.start + ran.execution.ns));
            let own: u64 = history.runs.iter().filter(ended).map(|ran| ran.execution.ns).sum();
            let all = after.busy_ns.saturating_sub(before.busy_ns).max(1);
            (cores, (own as f64 / all as f64).min(1.0))
        }
        _ => (Cores::default(), 1.0),
    }
}
