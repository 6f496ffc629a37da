//! Owners whose drop can be observed.

use std::sync::mpsc::Sender;
use std::thread::{ThreadId, current};

/// Sends the id of the thread that drops it.
pub struct DropProbe(pub Sender<ThreadId>);

impl Drop for DropProbe {
    fn drop(&mut self) {
        self.0.send(current().id()).unwrap();
    }
}

pub struct Panics;

impl Drop for Panics {
    fn drop(&mut self) {
        panic!("on purpose");
    }
}
