//! What the hub does with a process.

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

    fn look(self: Arc<Self>) {
        Self::look(&self);
    }

    fn over(self: Arc<Self>) {
        Self::over(&self);
    }

    fn offer(self: Arc<Self>) {
        reader::pass_on(&self);
    }

    fn condemn(&self, why: &str) {
        Self::condemn(self, why);
    }
}
