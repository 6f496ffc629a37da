//! Lines that libraries write to the server's log.

use super::exports::exports;
use crate::link::{Link, Way, short_frame};
use frames::generated::{Frame, LogHead, LogLevel};
use tensor::Error;

/// Longest text of a line in bytes: more than the server shows, so that it marks the line as cut.
const TEXT_BYTES_MAX: usize = 64 << 10;
const FILE_BYTES_MAX: usize = 256;

/// The level of a number of the C API.
fn level_of(level: u32) -> Option<LogLevel> {
    Some(match level {
        0 => LogLevel::Info,
        1 => LogLevel::Warning,
        2 => LogLevel::Error,
        3 => LogLevel::Verbose,
        _ => return None,
    })
}

exports! {
    /// Whether lines of a level reach the log.
    "attr" fn TRITONSERVER_LogIsEnabled(level: u32) -> bool { level_of(level).is_some_and(is_enabled) }

    "attr" fn TRITONSERVER_LogMessage(level: u32, filename: String, line: i32, msg: String) {
        let known = level_of(level).ok_or_else(|| Error::invalid(format!("unknown logging level '{level}'")))?;
        if is_enabled(known) {
            send(known, &filename, u32::try_from(line).unwrap_or(0), &msg);
        }
    }
}

/// INFO, WARN and ERROR are always sent, and the server filters them; verbose lines never are.
fn is_enabled(level: LogLevel) -> bool {
    level != LogLevel::Verbose
}

/// Writes an error that no caller gets.
#[track_caller]
pub(crate) fn error(text: &str) {
    let place = std::panic::Location::caller();
    send(LogLevel::Error, place.file(), place.line(), text);
}

/// Sends a line over the connection whose code runs, or writes it to stderr if there is none.
fn send(level: LogLevel, file: &str, line: u32, text: &str) {
    // As Triton shows it: without its directory.
    let file = cut(file.rsplit('/').next().unwrap_or_default(), FILE_BYTES_MAX);
    let text = cut(text, TEXT_BYTES_MAX);
    match Link::current() {
        Some(link) => link.send(Way::Side, &frame(level, file, line, text)),
        None => eprintln!("{file}:{line}: {text}"),
    }
}

fn frame(level: LogLevel, file: &str, line: u32, text: &str) -> Vec<u8> {
    let (file_bytes, text_bytes) = (file.len() as u16, text.len() as u32);
    short_frame(Frame::Log, |to| {
        LogHead { level: level as u8, reserved: 0, file_bytes, line, text_bytes }.write(to);
        to.extend_from_slice(file.as_bytes());
        to.extend_from_slice(text.as_bytes());
    })
}

/// The first `most` bytes of a text at most, in whole characters.
fn cut(text: &str, most: usize) -> &str {
    let end = (0..=most.min(text.len())).rev().find(|&at| text.is_char_boundary(at)).unwrap_or(0);
    text.get(..end).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::abi::exports::library::{failed, pass};
    use frames::{FromRunner, LogRef};

    #[test]
    fn a_line_reaches_the_server_with_file_and_line() {
        let sent = frame(LogLevel::Warning, "a.cc", 7, "with {braces} é");
        let (header, body, rest) = frames::split(&sent).expect("valid").expect("whole");
        assert!(rest.is_empty());
        let line = LogRef { level: LogLevel::Warning, file: "a.cc", line: 7, text: "with {braces} é" };
        assert_eq!(frames::read(&header, body), Ok(FromRunner::Log(line)));
    }

    #[test]
    fn levels_are_those_of_triton() {
        assert_eq!([0, 1, 2, 3, 4].map(|level| TRITONSERVER_LogIsEnabled(level)), [true, true, true, false, false]);
        let error = failed(TRITONSERVER_LogMessage(9, pass(c"a".as_ptr()), 1, pass(c"b".as_ptr())));
        assert_eq!(error, Some(Error::invalid("unknown logging level '9'")));
        assert_eq!(cut("aé", 2), "a");
    }
}
