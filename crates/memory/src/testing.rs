//! Owners whose end can be observed.

use std::sync::mpsc::Sender;
use std::thread::{ThreadId, current};

/// Says which thread dropped it.
pub struct Told(pub Sender<ThreadId>);

impl Drop for Told {
    fn drop(&mut self) {
        self.0.send(current().id()).unwrap();
    }
}

/// Panics when it is dropped.
pub struct Panics;

impl Drop for Panics {
    fn drop(&mut self) {
        panic!("on purpose");
    }
}
