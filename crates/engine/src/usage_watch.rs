//! Reads the use of the cores every few seconds, and lets each version note its counters, so that sums of the last
//! minutes need nothing of requests.

use crate::directory::Directory;
use crate::pool::Pool;
use crate::timer::{Timed, Timer};
use crate::usage::{INTERVAL_NS, Models};
use crate::version::{EngineContext, ModelVersion, Work};
use backend::now_ns;
use std::sync::{Arc, Weak};

/// The work of the versions that are alive, by their loads. `look` is called with each of them.
pub(crate) fn models(directory: &Directory, mut look: impl FnMut(&ModelVersion)) -> Models {
    let mut models = Models::default();
    directory.each_alive(|version| {
        models.busy_ns.insert(version.identity.load, version.serving.dispatch.lock().recent.busy_ns());
        models.has_runners |= version.serving.remote.is_some();
        look(version);
    });
    models
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
        // The first reading is made here, and not by a thread that the pool would start for it.
        watch.look();
        watch.arm();
        watch
    }

    fn arm(&self) {
        self.timer.arm(now_ns().saturating_add(INTERVAL_NS), self.me.clone());
    }

    fn look(&self) {
        let (Some(shared), Some(directory)) = (self.shared.upgrade(), self.directory.upgrade()) else { return };
        let now = now_ns();
        let models = models(&directory, |version| version.statistics.log.add(now, version.statistics.all_executions()));
        // No version is held while the threads are read: one that is unloaded meanwhile has to give its memory back.
        shared.usage.add_now(models);
    }
}

impl Timed for UsageWatch {
    fn wake(&self, _: u64) {
        self.arm();
        let me = self.me.clone();
        self.pool.submit(Work::of(move || {
            if let Some(watch) = me.upgrade() {
                watch.look();
            }
        }));
    }
}
