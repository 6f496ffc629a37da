//! Rows of versions for a page that shows the server live.

use crate::registry::Engine;
use crate::version::ModelVersion;
use crate::wire;
use std::path::Path;
use std::sync::Arc;

/// Files of a version that are added up, at most.
const FILES_MAX: usize = 4096;
/// Depth of directories in a version's directory whose files are added up.
const DEPTH_MAX: usize = 4;

/// A version that serves.
#[derive(Debug)]
pub struct LiveRow {
    /// Name as clients write it.
    pub model: String,
    /// Version number.
    pub version: i64,
    /// Requests that were answered since it was loaded, with or without success.
    pub answered: u64,
    /// Accepted requests without a final response.
    pub open: u64,
    /// The row of the statistics, with the members of [`Engine::live_rows`].
    pub json: String,
}

impl Engine {
    /// Rows of the versions that serve and whose model `covers`, in the order of their names. Their members besides
    /// those of the statistics: `waiting` and `running` requests; `instances`; `oldest_ms`, for which the oldest
    /// execution has gone on without a response; and bytes: `process_bytes` of the processes of the model,
    /// `device_bytes` promised to it on GPUs, `file_bytes` of its files. Reads directories once for a version.
    pub fn live_rows(&self, covers: impl Fn(&str) -> bool) -> Vec<LiveRow> {
        let table = self.directory.load();
        let mut models: Vec<_> = table.models.iter().filter(|(name, _)| covers(name)).collect();
        models.sort_unstable_by_key(|(name, _)| name.as_str());
        models.into_iter().flat_map(|(_, entry)| entry.ready().map(|version| version.live_row())).collect()
    }
}

impl ModelVersion {
    fn live_row(self: &Arc<Self>) -> LiveRow {
        let statistics = self.statistics();
        let gauge = |name: &str| statistics.custom.iter().find(|(own, ..)| *own == name).map_or(0.0, |(.., n)| *n);
        let instances = match self.graph() {
            Some(_) => 0,
            None => self.serving.dispatch.lock().members.len() as u64,
        };
        let files = self.identity.file_bytes.get_or_init(|| {
            let (mut left, number) = (FILES_MAX, self.identity.number.to_string());
            bytes_below(&self.identity.model_directory.join(number), DEPTH_MAX, &mut left)
        });
        let more = [
            ("waiting", statistics.pending),
            ("running", statistics.inflight.saturating_sub(statistics.pending)),
            ("instances", instances),
            ("oldest_ms", (gauge("nereid_oldest_execution_seconds") * 1e3) as u64),
            ("process_bytes", gauge("nereid_runner_resident_bytes") as u64),
            ("device_bytes", self._admitted.as_ref().map_or(0, |admitted| admitted.device_bytes())),
            ("file_bytes", *files),
        ];
        let json = wire::statistics_row(&statistics, &more);
        let (answered, open) = (statistics.success.count + statistics.fail.count, statistics.inflight);
        LiveRow { model: statistics.name, version: statistics.version, answered, open, json }
    }
}

/// Bytes of the files in a directory and the directories in it; what cannot be read counts as nothing.
fn bytes_below(directory: &Path, depth: usize, left: &mut usize) -> u64 {
    let Ok(entries) = std::fs::read_dir(directory) else { return 0 };
    let mut bytes = 0;
    for entry in entries.flatten() {
        if *left == 0 {
            break;
        }
        *left -= 1;
        match std::fs::metadata(entry.path()) {
            Ok(file) if file.is_dir() && depth > 0 => bytes += bytes_below(&entry.path(), depth - 1, left),
            Ok(file) if file.is_file() => bytes += file.len(),
            _ => {}
        }
    }
    bytes
}
