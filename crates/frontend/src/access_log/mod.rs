//! The access log: a line of JSON for each request. The audit log: one for each call that changes the server.
//!
//! A reactor encodes a line, leaves it in a bounded buffer and goes on; a thread of each log writes what lies there. Without room a line
//! is dropped and counted: no request waits for a disk, a full one loses lines and never a request. The logs share nothing, so lines of
//! the one cannot drive out those of the other.
//!
//! Not here: what is noted of a request while it is on its way (`traced`).

mod audit;
pub(crate) mod entry;
mod file;
mod json;
mod messages;
mod queue;
mod sampler;
mod writer;

pub(crate) mod json_line;

pub use queue::LogCounts;

use crate::limits::{ACCESS_LOG_BYTES_MAX, AUDIT_LOG_BYTES_MAX};
use json_line::JsonLine;
use sampler::Sampler;
use serde::Deserialize;
use std::time::{Duration, Instant};
use tensor::Result;
use trace::Measuring;
use writer::LineLog;

/// How long the end waits for lines to be written: a pipe may have a reader that does not read.
const FINISH_TIME_MAX: Duration = Duration::from_secs(1);

/// What is logged, and where.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct LogOptions {
    /// A file, or `-` for standard output; empty = no access log.
    pub access: String,
    /// The part of the requests that succeed which is logged, from 0 to 1. Those that fail always are.
    pub access_rate: f64,
    /// As `access`, for the audit log.
    pub audit: String,
}

impl Default for LogOptions {
    fn default() -> Self {
        Self { access: String::new(), access_rate: 1.0, audit: String::new() }
    }
}

/// The logs of a server: one of each, for its listeners and for what other servers of this process receive.
#[derive(Debug)]
pub struct Logs {
    access: Option<(LineLog, Sampler)>,
    audit: Option<LineLog>,
    /// What was opened.
    files: Vec<String>,
    /// Each request is measured as long as there is a log.
    _measuring: Measuring,
}

impl Logs {
    /// Opens what is asked for; `None` when that is nothing.
    ///
    /// # Errors
    /// INVALID_ARG for a file that cannot be opened; INTERNAL when the machine refuses a thread.
    pub fn open(options: &LogOptions, reactors: usize) -> Result<Option<Self>> {
        let open = |flag: &'static str, path: &str, shards: usize, bytes_max: usize| match path {
            "" => Ok(None),
            path => LineLog::open(flag, path, shards, bytes_max).map(Some),
        };
        let access = open("access-log", &options.access, reactors, ACCESS_LOG_BYTES_MAX)?;
        let audit = open("audit-log", &options.audit, 1, AUDIT_LOG_BYTES_MAX)?;
        if access.is_none() && audit.is_none() {
            return Ok(None);
        }
        let access = access.map(|log| (log, Sampler::new(options.access_rate)));
        let files = [&options.access, &options.audit].into_iter().filter(|path| !["", "-"].contains(&path.as_str()));
        Ok(Some(Self { access, audit, files: files.cloned().collect(), _measuring: Measuring::begin() }))
    }

    /// Whether there is an access log.
    pub(crate) fn has_access(&self) -> bool {
        self.access.is_some()
    }

    /// Whether there is an audit log.
    pub(crate) fn has_audit(&self) -> bool {
        self.audit.is_some()
    }

    /// Writes a line of a request to the access log, if it is one of those that are written.
    pub(crate) fn access(&self, failed: bool, fill: impl FnOnce(&mut JsonLine<'_>)) {
        if let Some((log, sampler)) = &self.access
            && (failed || sampler.takes())
        {
            log.put(fill);
        }
    }

    /// Writes a line of a control call.
    pub(crate) fn audit(&self, fill: impl FnOnce(&mut JsonLine<'_>)) {
        if let Some(log) = &self.audit {
            log.put(fill);
        }
    }

    /// Likewise, of which the thread of the log makes the last part. Where too many such wait, it is left out.
    pub(crate) fn audit_later(
        &self,
        fill: impl Fn(&mut JsonLine<'_>),
        rest: impl FnOnce(&mut JsonLine<'_>) + Send + 'static,
    ) {
        if let Some(log) = &self.audit {
            log.put_later(fill, Box::new(rest));
        }
    }

    /// What became of the lines of the logs of requests and of control calls, by their names; none of one that is off.
    pub fn counts(&self) -> impl Iterator<Item = (&'static str, LogCounts)> {
        let counts = [
            ("access", self.access.as_ref().map(|(log, _)| log.counts())),
            ("audit", self.audit.as_ref().map(LineLog::counts)),
        ];
        counts.into_iter().filter_map(|(name, counts)| Some((name, counts?)))
    }

    /// Opens files again that were moved away; returns all there are. What cannot be opened is logged, and lines go on to the old one.
    pub fn reopen(&self) -> Vec<String> {
        let logs = self.access.iter().map(|(log, _)| log).chain(&self.audit);
        logs.for_each(LineLog::reopen);
        self.files.clone()
    }

    /// Writes what waits, once nothing comes any more: later lines are lost. Blocks for as long as that takes, and at most a second.
    pub fn finish(&self) {
        let logs = self.access.iter().map(|(log, _)| log).chain(&self.audit);
        let end = Instant::now() + FINISH_TIME_MAX;
        logs.for_each(|log| log.finish(end));
    }
}
