//! The table of models of an engine, and the callbacks that run when it changes.
//!
//! The engine owns it. Versions and graphs have weak references, because the table owns them.

use crate::table::Table;
use crate::version::ModelVersion;
use arc_swap::{ArcSwap, Guard};
use parking_lot::Mutex;
use std::sync::Arc;

#[derive(Default)]
pub(crate) struct Directory {
    table: ArcSwap<Table>,
    /// Locked while the table is replaced, so that no change is lost. Readers do not lock.
    changes: Mutex<()>,
    on_change: Mutex<Vec<Box<dyn Fn() + Send>>>,
}

impl Directory {
    /// The current table, for a short access.
    pub(crate) fn load(&self) -> Guard<Arc<Table>> {
        self.table.load()
    }

    /// The current table, to keep.
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

    pub(crate) fn on_change(&self, f: Box<dyn Fn() + Send>) {
        self.on_change.lock().push(f);
    }

    /// Runs the callbacks, after the table or the readiness of a version changed.
    pub(crate) fn changed(&self) {
        self.on_change.lock().iter().for_each(|f| f());
    }

    /// Versions whose models have open calls to other models.
    pub(crate) fn callers(&self) -> Vec<Arc<ModelVersion>> {
        self.load().may_be_unready().iter().filter(|version| version.calls_open() > 0).cloned().collect()
    }

    /// True if a model has an open call to another one.
    pub(crate) fn calls_open(&self) -> bool {
        self.load().may_be_unready().iter().any(|version| version.calls_open() > 0)
    }
}
