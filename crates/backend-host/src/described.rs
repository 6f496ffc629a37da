//! Descriptions of the versions that requests are made for.

use crate::link::Link;
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::json;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tensor::Result;

/// A version of a model, as the server describes it.
#[derive(Debug, Clone, Copy, Deserialize)]
pub(crate) struct Described {
    pub(crate) version: i64,
    #[serde(rename = "decoupled")]
    pub(crate) is_decoupled: bool,
    pub(crate) batches: bool,
    pub(crate) priority_levels: u64,
    pub(crate) default_priority: u64,
}

/// Time for which a program that embeds a server uses a description again: half of the time of a small request would
/// be spent on asking for it. A model that leaves meanwhile refuses the request.
const DESCRIBED_TIME: Duration = Duration::from_millis(10);

/// Descriptions that a server gave lately, and when, by model and version.
#[derive(Default)]
pub(crate) struct Descriptions(Mutex<HashMap<(String, i64), (Instant, Described)>>);

impl Descriptions {
    /// A recent description, or else the one that the server gives now.
    ///
    /// # Errors
    /// NOT_FOUND or UNAVAILABLE, with the texts for requests to unknown models.
    pub(crate) fn recent(&self, link: &Arc<Link>, model: &str, version: i64) -> Result<Described> {
        let now = Instant::now();
        let key = (model.to_owned(), version);
        if let Some((at, described)) = self.0.lock().get(&key)
            && now.duration_since(*at) < DESCRIBED_TIME
        {
            return Ok(*described);
        }
        let described = Described::ask(link, model, version)?;
        let mut all = self.0.lock();
        all.retain(|_, (at, _)| now.duration_since(*at) < DESCRIBED_TIME);
        all.insert(key, (now, described));
        Ok(described)
    }

    /// Forgets all: models are loaded or unloaded.
    pub(crate) fn clear(&self) {
        self.0.lock().clear();
    }
}

impl Described {
    /// Asks for the version that a call would reach.
    ///
    /// # Errors
    /// NOT_FOUND or UNAVAILABLE, with the texts for requests to unknown models.
    pub(crate) fn ask(link: &Arc<Link>, model: &str, version: i64) -> Result<Self> {
        link.ask("describe", json!({ "model": model, "version": version }))
    }
}
