//! Events of the hub for a process.

use crate::hub::Watched;
use crate::process::Process;
use crate::reader;
use backend::now_ns;
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

    fn offer_to_reactor(self: Arc<Self>, way: Way) {
        let may_read = match self.answers_on_side() {
            _ if !self.is_brief() => false,
            true => self.side_rate.lock().is_quiet(now_ns()),
            false => way == Way::Work,
        };
        if may_read {
            reader::pass_to_reactor(&self);
        }
    }

    fn fail(&self, why: &str) {
        Self::fail(self, why);
    }
}
