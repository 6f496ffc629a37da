//! Reads the use of the cores every few seconds, and lets each version note its counters, so that sums of the last
//! minutes need nothing of requests.

use crate::directory::Directory;
use crate::pool::Pool;
use crate::timer::{Timed, Timer};
use crate::usage::{INTERVAL_NS, Models};
use crate::version::{EngineContext, ModelVersion, Work};
use backend::now_ns;
use std::collections::HashMap;
use std::sync::{Arc, Weak};

/// The work of these versions, by their loads.
pub(crate) fn models(versions: &HashMap<u64, Arc<ModelVersion>>) -> Models {
    let busy = |(load, version): (&u64, &Arc<ModelVersion>)| (*load, version.serving.dispatch.lock().recent.busy_ns());
    let has_runners = versions.values().any(|version| version.serving.remote.is_some());
    Models { has_runners, busy_ns: versions.iter().map(busy).collect() }
}

/// Takes the readings.
pub(crate) struct UsageWatch {
    shared: Weak<EngineContext>,
    directory: Weak<Directory>,
    pool: Arc<Pool<Work>>,
    timer: Arc<Timer>,
    me: Weak<Self>,
}

impl UsageWatch {
    pub(crate) fn new(shared: &Arc<EngineContext>, directory: &Arc<Directory>) -> Arc<Self> {
        let (pool, timer) = (shared.pool.clone(), shared.timer.clone());
        let (shared, directory) = (Arc::downgrade(shared), Arc::downgrade(directory));
        let watch = Arc::new_cyclic(|me| Self { shared, directory, pool, timer, me: Weak::clone(me) });
        watch.wake(0);
        watch
    }

    fn look(&self) {
        let (Some(shared), Some(directory)) = (self.shared.upgrade(), self.directory.upgrade()) else { return };
        let versions = directory.alive();
        shared.usage.add_now(models(&versions));
        let now = now_ns();
        versions.values().for_each(|version| version.statistics.log.add(now, version.statistics.all_executions()));
    }
}

impl Timed for UsageWatch {
    fn wake(&self, _: u64) {
        self.timer.arm(now_ns().saturating_add(INTERVAL_NS), self.me.clone());
        let me = self.me.clone();
        self.pool.submit(Work::of(move || {
            if let Some(watch) = me.upgrade() {
                watch.look();
            }
        }));
    }
}
