//! The access log: a line of JSON for each request. The audit log: one for each call that changes the server.
//!
//! A reactor encodes a line into a bounded buffer, and a thread of each log writes the buffer. Without room a line is
//! dropped and counted, so no request waits for a disk. The logs share nothing, so lines of one never displace those of
//! the other.
//!
//! Not here: notes about a request while it is in progress (`frontend::record`).

mod file;
mod json;
mod queue;
mod sampler;
mod writer;

pub(crate) mod json_line;
pub(crate) mod parameters;

pub use queue::LogCounts;
pub(crate) use writer::wall_clock_us;

use crate::limits::{ACCESS_LOG_BYTES_MAX, AUDIT_LOG_BYTES_MAX};
use json_line::JsonLine;
use options::RequestLogOptions;
use sampler::Sampler;
use std::time::{Duration, Instant};
use tensor::Result;
use trace::Measuring;
use writer::LineLog;

/// How long the shutdown waits for lines to be written: the reader of a pipe may not read.
const FINISH_TIME_MAX: Duration = Duration::from_secs(1);

/// The logs of a server, for its listeners and for embedded requests.
#[derive(Debug)]
pub struct Logs {
    access: Option<(LineLog, Sampler)>,
    audit: Option<LineLog>,
    files: Vec<String>,
    /// Makes the engine measure each request while there is a log.
    _measuring: Measuring,
}

impl Logs {
    /// Opens the logs; `None` if there are none.
    ///
    /// # Errors
    /// INVALID_ARG for a file that cannot be opened; INTERNAL if the system cannot start a thread.
    pub fn open(options: &RequestLogOptions, reactors: usize) -> Result<Option<Self>> {
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

    pub(crate) fn has_access(&self) -> bool {
        self.access.is_some()
    }

    pub(crate) fn has_audit(&self) -> bool {
        self.audit.is_some()
    }

    /// Writes the line of a request to the access log, if the request failed or is sampled.
    pub(crate) fn access(&self, failed: bool, fill: impl FnOnce(&mut JsonLine<'_>)) {
        if let Some((log, sampler)) = &self.access
            && (failed || sampler.takes())
        {
            log.put(fill);
        }
    }

    /// Writes a line to the audit log.
    pub(crate) fn audit(&self, fill: impl FnOnce(&mut JsonLine<'_>)) {
        if let Some(log) = &self.audit {
            log.put(fill);
        }
    }

    /// Like `audit`, with a last part that the thread of the log makes. It is omitted if too many such lines wait.
    pub(crate) fn audit_later(
        &self,
        fill: impl Fn(&mut JsonLine<'_>),
        rest: impl FnOnce(&mut JsonLine<'_>) + Send + 'static,
    ) {
        if let Some(log) = &self.audit {
            log.put_later(fill, Box::new(rest));
        }
    }

    /// Counts of lines for each log that is on, with its name.
    pub fn counts(&self) -> impl Iterator<Item = (&'static str, LogCounts)> {
        let counts = [
            ("access", self.access.as_ref().map(|(log, _)| log.counts())),
            ("audit", self.audit.as_ref().map(LineLog::counts)),
        ];
        counts.into_iter().filter_map(|(name, counts)| Some((name, counts?)))
    }

    /// Reopens files that were moved; returns the paths of all files. On failure it logs a warning and keeps the file.
    pub fn reopen(&self) -> Vec<String> {
        let logs = self.access.iter().map(|(log, _)| log).chain(&self.audit);
        logs.for_each(LineLog::reopen);
        self.files.clone()
    }

    /// Writes the lines that wait; later lines are lost. Blocks for at most a second.
    pub fn finish(&self) {
        let logs = self.access.iter().map(|(log, _)| log).chain(&self.audit);
        let end = Instant::now() + FINISH_TIME_MAX;
        logs.for_each(|log| log.finish(end));
    }
}
