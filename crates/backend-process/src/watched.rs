//! Events of the hub for a process.

use crate::hub::Watched;
use crate::process::Process;
use crate::reader;
use backend_remote::Way;
use std::sync::Arc;

impl Watched for Process {
    fn writable(&self, way: Way) {
        self.link.flush(way);
    }

    fn readable(self: Arc<Self>, way: Way, scratch: &mut [u8]) {
        Self::readable(&self, way, scratch);
    }

    fn check(self: Arc<Self>) {
        Self::check(&self);
    }

    fn ended(self: Arc<Self>) {
        Self::ended(&self);
    }

    fn offer_to_reactor(self: Arc<Self>) {
        reader::pass_to_reactor(&self);
    }

    fn fail(&self, why: &str) {
        Self::fail(self, why);
    }
}
