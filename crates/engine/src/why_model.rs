//! Why a model is slow and what to change, from what its ring and its counters keep of the last minutes.

use crate::executions::{Duration, Executions};
use crate::registry::Engine;
use crate::schedule::Schedule;
use crate::version::ModelVersion;
use crate::{usage, usage_watch};
use backend::now_ns;
use protocol::json::write_string;
use protocol::pb::inference::ModelConfig;
use std::fmt::Write;
use tensor::Result;
use why::{Change, Findings, History, Setup, Speed, Traffic, Usage, WINDOW_NS, report};

impl Engine {
    /// Sums and advice of a version as JSON, with the replay of a change if one is given. Takes up to seconds.
    ///
    /// # Errors
    /// INVALID_ARG, NOT_FOUND or UNAVAILABLE if no version serves under this name and number.
    pub fn why(&self, name: &str, version: &str, change: Option<&Change>) -> Result<String> {
        let version = self.model(name, version)?;
        let usage = self.shared.usage.with_now(usage_watch::models(&self.directory, |_| {}));
        Ok(version.why(usage, change))
    }
}

impl ModelVersion {
    fn why(&self, usage: Vec<Usage>, change: Option<&Change>) -> String {
        let now = now_ns();
        let (since, counts) = self.statistics.log.until(now, &self.statistics.all_executions());
        let seconds = now.saturating_sub(since) as f64 / 1e9;
        let (snapshot, setup) = self.setup(usage);
        let history = History::new(&snapshot, now.saturating_sub(WINDOW_NS), now);
        let report = report(&history, &setup, change);
        let mut out = self.print(seconds, &counts, &report);
        if let Some(change) = change {
            simulated(&mut out, change, report.simulated.as_ref());
        }
        out.push('}');
        out
    }

    fn setup(&self, readings: Vec<Usage>) -> (why::Snapshot, Setup) {
        let config = ModelConfig::parse(&self.identity.config.load().pb).unwrap_or_default();
        let threads = config.parameters.get("intra_op_thread_count");
        let dispatch = self.serving.dispatch.lock();
        let cores = self.scheduling.capabilities.cores.filter(|_| dispatch.schedule.shares_cores());
        let is_plain = matches!(dispatch.schedule, Schedule::Batcher(_)) && self.scheduling.limited.is_none();
        let (allowed, quota) = usage::cores();
        let setup = Setup {
            config: scheduler::Config { cores, ..self.scheduling.config.clone() },
            instances: dispatch.members.len() as u32,
            is_replayed: is_plain && !self.signature.decoupled && self.graph().is_none(),
            threads: threads.and_then(|threads| threads.string_value.trim().parse().ok()).filter(|n| *n > 0),
            learned: dispatch.schedule.profile().usual_line(),
            fastest: dispatch.recent.fastest(),
            usage: readings,
            allowed,
            cores: quota,
        };
        (dispatch.recent.snapshot(), setup)
    }

    fn print(&self, seconds: f64, counts: &Executions, report: &Findings) -> String {
        let mean = |sum: Duration| sum.ns as f64 / sum.count.max(1) as f64 / 1e3;
        let requests = counts.success.count;
        let model = text(&self.signature.model);
        let mut out = format!(
            "{{\"model\":{model},\"version\":{},\"seconds\":{seconds:.1},\"requests\":{requests},\"failures\":{},\
             \"rate\":{:.1},\"p50_us\":{:.0},\"p99_us\":{:.0},\"mean_us\":{{\"queue\":{:.1},\"input\":{:.1},\
             \"infer\":{:.1},\"output\":{:.1}}},\"batch\":{:.2}",
            text(&self.signature.version),
            counts.failures,
            requests as f64 / seconds.max(0.1),
            report.speed.p50_us,
            report.speed.p99_us,
            mean(counts.queue),
            mean(counts.compute_input),
            mean(counts.compute_infer),
            mean(counts.compute_output),
            report.batch,
        );
        // Writing to a String cannot fail.
        let _ = match &report.load {
            Traffic::Open => write!(out, ",\"arrivals\":\"open\""),
            Traffic::Closed { clients, .. } => write!(out, ",\"arrivals\":\"closed\",\"clients\":{clients}"),
        };
        out.push_str(",\"causes\":");
        shares(&mut out, report.causes.iter().map(|(cause, share)| (cause.name(), *share)));
        out.push_str(",\"behind\":");
        // Other models may have the resources of limited executions.
        let is_own = report.waited > 0.0 && self.scheduling.limited.is_none();
        let behind = is_own.then_some((&*self.signature.model, report.waited));
        shares(&mut out, behind.into_iter());
        let _ = write!(out, ",\"replayed\":{},\"advice\":[", report.is_replayed);
        for (at, advice) in report.advice.iter().enumerate() {
            let number = |number: Option<u64>| number.map_or("null".to_owned(), |number| number.to_string());
            let _ = write!(
                out,
                "{}{{\"change\":{},\"setting\":{},\"from\":{},\"to\":{},\"text\":{},\"now\":{},\"expected\":{}}}",
                if at > 0 { "," } else { "" },
                text(advice.change),
                text(&advice.setting),
                number(advice.from),
                number(advice.to),
                text(&advice.text),
                speed(&advice.now),
                speed(&advice.expected),
            );
        }
        out.push(']');
        out
    }
}

/// The result of a replay, or why there is none.
fn simulated(out: &mut String, change: &Change, found: Option<&Speed>) {
    let Some(found) = found else {
        let why = "Nothing was replayed: too few requests waited or ran on worker threads lately, or the model has \
                   sequences, steps, limited rates or several responses for a request.";
        let _ = write!(out, ",\"text\":{}", text(why));
        return;
    };
    let Change { instances, delay_us, max_batch_size, threads } = *change;
    let counts = [("instances", instances), ("max_batch_size", max_batch_size), ("threads", threads)];
    let counts = counts.into_iter().filter_map(|(name, value)| Some((name, u64::from(value?))));
    let changes = counts.chain(delay_us.map(|delay| ("delay_us", delay)));
    let changes: Vec<_> = changes.map(|(name, value)| format!("\"{name}\":{value}")).collect();
    let speed = speed(found);
    let _ = write!(out, ",\"simulated\":{{\"changes\":{{{}}},{}", changes.join(","), speed.trim_start_matches('{'));
}

fn text(text: &str) -> String {
    let mut out = Vec::new();
    write_string(&mut out, text.as_bytes());
    String::from_utf8_lossy(&out).into_owned()
}

fn speed(Speed { rate, p50_us, p99_us }: &Speed) -> String {
    format!("{{\"rate\":{rate:.1},\"p50_us\":{p50_us:.0},\"p99_us\":{p99_us:.0}}}")
}

fn shares<'a>(out: &mut String, all: impl Iterator<Item = (&'a str, f64)>) {
    out.push('{');
    for (at, (name, share)) in all.enumerate() {
        let _ = write!(out, "{}{}:{share:.3}", if at > 0 { "," } else { "" }, text(name));
    }
    out.push('}');
}
