//! Server-sent events out of a body that comes in pieces. Pure.

use crate::plan::AnyError;

/// Bytes of the longest event.
const EVENT_BYTES_MAX: usize = 16 << 20;

/// Meaning of an event.
#[derive(Debug, PartialEq, Eq)]
pub enum StreamEvent<'a> {
    /// One response.
    Data,
    /// The request failed.
    Error(&'a str),
    /// `[DONE]`: no response follows.
    Done,
}

/// A reader of a body.
#[derive(Default)]
pub struct Events {
    /// The line that is incomplete, and data of the event that is.
    line: Vec<u8>,
    data: Vec<u8>,
}

impl Events {
    /// Takes a piece of the body, and tells of events that it completes.
    pub fn take(&mut self, mut bytes: &[u8], mut each: impl FnMut(StreamEvent<'_>)) -> Result<(), AnyError> {
        while let Some(end) = bytes.iter().position(|&b| b == b'\n') {
            self.line.extend_from_slice(&bytes[..end]);
            bytes = &bytes[end + 1..];
            self.line(&mut each);
        }
        self.line.extend_from_slice(bytes);
        match self.line.len() + self.data.len() > EVENT_BYTES_MAX {
            true => Err(format!("an event is longer than {EVENT_BYTES_MAX} bytes").into()),
            false => Ok(()),
        }
    }

    fn line(&mut self, each: &mut impl FnMut(StreamEvent<'_>)) {
        let line = self.line.strip_suffix(b"\r").unwrap_or(&self.line);
        if let Some(data) = line.strip_prefix(b"data:") {
            self.data.extend_from_slice(data.trim_ascii());
        } else if line.is_empty() && !self.data.is_empty() {
            let text = std::str::from_utf8(&self.data).unwrap_or_default();
            each(match text {
                "[DONE]" => StreamEvent::Done,
                _ => error_of(text).map_or(StreamEvent::Data, StreamEvent::Error),
            });
            self.data.clear();
        }
        self.line.clear();
    }
}

/// The text in `{"error": …}`.
fn error_of(text: &str) -> Option<&str> {
    let rest = text.strip_prefix('{')?.trim_start().strip_prefix("\"error\"")?;
    Some(rest.trim_start().strip_prefix(':')?.trim().trim_end_matches('}').trim_matches('"'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(body: &str, expected: &[&str]) {
        for size in [1, 7, 1000] {
            let (mut events, mut found) = (Events::default(), Vec::new());
            for piece in body.as_bytes().chunks(size) {
                events.take(piece, |event| found.push(format!("{event:?}"))).expect("events");
            }
            assert_eq!(found, expected, "{body:?} in pieces of {size}");
        }
    }

    #[test]
    fn events_are_found_in_any_pieces() {
        check("data: {\"a\":1}\n\ndata: {\"a\":2}\n\n", &["Data", "Data"]);
        check("event: x\r\ndata: {}\r\n\r\n: comment\n\ndata: [DONE]\n\n", &["Data", "Done"]);
        check("data: {\"error\": \"no model\"}\n\n", &["Error(\"no model\")"]);
        check("data: one\ndata: event\n\ndata: incomplete\n", &["Data"]);
    }

    #[test]
    fn an_endless_event_is_an_error() {
        let mut events = Events::default();
        let endless = (0..17).map(|_| events.take(&vec![b'x'; 1 << 20], |_| {})).find_map(Result::err);
        assert!(endless.is_some_and(|e| e.to_string().contains("longer than 16777216")));
    }
}
