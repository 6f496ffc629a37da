//! Values of the process that a thread of their own serves.

use std::sync::OnceLock;

/// A value and its thread, both made by the first use. The thread never ends.
pub struct Served<T> {
    value: OnceLock<T>,
    runs: OnceLock<bool>,
}

impl<T> Served<T> {
    /// Nothing is made yet.
    #[expect(clippy::new_without_default, reason = "only for statics")]
    pub const fn new() -> Self {
        Self { value: OnceLock::new(), runs: OnceLock::new() }
    }

    /// The value; `None` if `start` could not start the thread. The first call makes both.
    pub fn get(&'static self, make: impl FnOnce() -> T, start: impl FnOnce(&'static T) -> bool) -> Option<&'static T> {
        // The thread may use the value by the time `start` returns, and others may then get it.
        let value = self.value.get_or_init(make);
        self.runs.get_or_init(|| start(value)).then_some(value)
    }

    /// The value if it is made, whether its thread runs or not.
    pub fn made(&self) -> Option<&T> {
        self.value.get()
    }
}
