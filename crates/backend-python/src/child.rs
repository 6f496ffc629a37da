//! Helper programs with a time limit.

use std::io;
use std::process::{Child, ExitStatus};
use std::time::{Duration, Instant};

const LOOK_INTERVAL: Duration = Duration::from_millis(2);

/// Waits for a program to end; kills it and returns `None` after `limit`.
#[expect(clippy::disallowed_methods, reason = "the standard library has no wait with a limit")]
pub(crate) fn wait_at_most(child: &mut Child, limit: Duration) -> io::Result<Option<ExitStatus>> {
    let end = Instant::now() + limit;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if Instant::now() >= end {
            let _ = child.kill();
            let _ = child.wait();
            return Ok(None);
        }
        std::thread::sleep(LOOK_INTERVAL);
    }
}
