//! The table of models of an engine, and the callbacks that run when it changes.
//!
//! The engine owns it. Versions and graphs hold it weakly: the table owns them.

use crate::table::Table;
use crate::version::ModelVersion;
use arc_swap::{ArcSwap, Guard};
use parking_lot::Mutex;
use std::sync::Arc;

#[derive(Default)]
pub(crate) struct Directory {
    table: ArcSwap<Table>,
    /// Locked while the table is replaced, so that no change is lost. Readers never wait for it.
    changes: Mutex<()>,
    on_change: Mutex<Vec<Box<dyn Fn() + Send>>>,
}

impl Directory {
    /// The table as it is now, for a short look.
    pub(crate) fn load(&self) -> Guard<Arc<Table>> {
        self.table.load()
    }

    /// The table as it is now, to keep.
    pub(crate) fn table(&self) -> Arc<Table> {
        self.table.load_full()
    }

    /// Replaces the table by a changed copy, and runs the callbacks.
    pub(crate) fn change(&self, f: impl FnOnce(&mut Table)) {
        let _one_at_a_time = self.changes.lock();
        let mut table = Table::clone(&self.load());
        let epoch = table.epoch + 1;
        f(&mut table);
        table.epoch = epoch;
        self.table.store(Arc::new(table));
        self.changed();
    }

    /// Adds a callback.
    pub(crate) fn on_change(&self, f: Box<dyn Fn() + Send>) {
        self.on_change.lock().push(f);
    }

    /// Runs the callbacks: the table changed, or the readiness of what is in it.
    pub(crate) fn changed(&self) {
        self.on_change.lock().iter().for_each(|f| f());
    }

    /// Versions whose models have called others that did not answer yet.
    pub(crate) fn callers(&self) -> Vec<Arc<ModelVersion>> {
        self.load().doubtful().iter().filter(|version| version.calls_open() > 0).cloned().collect()
    }

    /// Whether a model has called another one that did not answer yet.
    pub(crate) fn calls_open(&self) -> bool {
        self.load().doubtful().iter().any(|version| version.calls_open() > 0)
    }
}
