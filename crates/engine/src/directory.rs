//! The table of models of an engine, and the callbacks that run when it changes.
//!
//! The engine owns it. Graphs have weak references, because the table owns them.

use crate::table::Table;
use crate::version::ModelVersion;
use arc_swap::{ArcSwap, Guard};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::{Arc, Weak};

#[derive(Default)]
pub(crate) struct Directory {
    table: ArcSwap<Table>,
    /// Locked while the table is replaced, so that no change is lost. Readers do not lock.
    changes: Mutex<()>,
    on_change: Mutex<Vec<Box<dyn Fn() + Send>>>,
    /// Every version that is not dropped, also if it does not serve yet, or not any more.
    alive: Mutex<Vec<Weak<ModelVersion>>>,
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
        table.aliases = table.aliases_of_models();
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

    /// Adds a new version to those that are alive.
    pub(crate) fn add(&self, version: &Arc<ModelVersion>) {
        let mut alive = self.alive.lock();
        alive.retain(|version| version.strong_count() > 0);
        alive.push(Arc::downgrade(version));
    }

    /// Calls `look` with every version that is alive, one after the other, so that none is held longer than that.
    pub(crate) fn each_alive(&self, mut look: impl FnMut(&ModelVersion)) {
        let alive = self.alive.lock().clone();
        alive.iter().filter_map(Weak::upgrade).for_each(|version| look(&version));
    }

    /// Every version that is alive, by its load.
    pub(crate) fn alive(&self) -> HashMap<u64, Arc<ModelVersion>> {
        let alive = self.alive.lock();
        alive.iter().filter_map(Weak::upgrade).map(|version| (version.identity.load, version)).collect()
    }
}
