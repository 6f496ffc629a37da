//! What the code of a model asks of the server through its runner: calls of other models, control, metrics, lines for the log.
//!
//! One [`Asks`] per process. Frames arrive on the hub's thread (or the one for large copies), one at a time, and must not block it; answers may be sent from any thread,
//! through the [`Link`], on the socket the question came on.

use crate::frames::write;
use crate::frames::{FromRunner, Lie, LogRef};
use crate::generated::{Frame, LogLevel};
use crate::link::Way;
use crate::runner::Runner;
use std::sync::Arc;

/// What one process has asked and not been answered yet.
#[derive(Default)]
pub(crate) struct Asks {}

impl Asks {
    /// Takes a frame that is not about the runner's batches.
    ///
    /// # Errors
    /// It breaks a rule; the runner is killed.
    pub(crate) fn frame(&self, runner: &Arc<Runner>, way: Way, frame: FromRunner<'_>) -> Result<(), Lie> {
        match frame {
            FromRunner::Log(line) => log_line(runner, line),
            FromRunner::Control(_) => {
                let mut out = Vec::new();
                let answer = r#"{"id":0,"error":{"code":"UNSUPPORTED","message":"not yet"}}"#;
                let _ = write::json(&mut out, Frame::ControlResult, answer);
                runner.link.send(way, &out);
            }
            _ => {}
        }
        Ok(())
    }

    /// The process is gone: its calls are not wanted any more.
    pub(crate) fn closed(&self) {}
}

fn log_line(runner: &Runner, line: LogRef<'_>) {
    let level = match line.level {
        LogLevel::Verbose => log::Level::Debug,
        LogLevel::Info => log::Level::Info,
        LogLevel::Warning => log::Level::Warn,
        LogLevel::Error => log::Level::Error,
    };
    log::log!(level, "{}: {}:{} {}", runner.name, line.file, line.line, line.text);
}
