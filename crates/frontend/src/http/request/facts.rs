//! What the fields of a head mean for its connection: framing, host, and whether it stays open. Both readers of heads ask
//! this module.

use super::{BadRequest, Framing, RequestHead, bad, is_host, parse_length};

/// Facts of the fields noted so far.
#[derive(Default)]
pub(super) struct FieldFacts {
    length: Option<u64>,
    chunked: bool,
    closes: bool,
    has_host: bool,
}

impl FieldFacts {
    /// Notes a field, whose value has no blanks around it.
    ///
    /// # Errors
    /// The mistake in the field.
    #[inline]
    pub(super) fn note(&mut self, head: &mut RequestHead, name: &[u8], value: &[u8]) -> Result<(), BadRequest> {
        // Compares the length first: most fields are none of these.
        match name.len() {
            4 if name.eq_ignore_ascii_case(b"host") => {
                if std::mem::replace(&mut self.has_host, true) {
                    return Err(bad("more than one Host header field"));
                }
                if !value.is_empty() && !is_host(value) {
                    let text = format!("invalid Host header field: '{}'", String::from_utf8_lossy(value));
                    return Err(BadRequest(text));
                }
            }
            6 if name.eq_ignore_ascii_case(b"expect") => head.expect = head.http11,
            10 if name.eq_ignore_ascii_case(b"connection") => {
                for option in value.split(|&b| b == b',').map(<[u8]>::trim_ascii) {
                    if option.eq_ignore_ascii_case(b"close") {
                        self.closes = true;
                    } else if option.eq_ignore_ascii_case(b"keep-alive") && !head.http11 {
                        head.keep_alive = true;
                    }
                }
            }
            14 if name.eq_ignore_ascii_case(b"content-length") => {
                let n = parse_length(value)?;
                if self.length.is_some_and(|l| l != n) {
                    return Err(bad("differing Content-Length header fields"));
                }
                self.length = Some(n);
            }
            17 if name.eq_ignore_ascii_case(b"transfer-encoding") => {
                if self.chunked || !head.http11 || !value.eq_ignore_ascii_case(b"chunked") {
                    return Err(bad("unsupported Transfer-Encoding"));
                }
                self.chunked = true;
            }
            _ => {}
        }
        Ok(())
    }

    /// Decides the framing after the last field.
    ///
    /// # Errors
    /// What is missing.
    pub(super) fn finish(self, head: &mut RequestHead) -> Result<(), BadRequest> {
        if head.http11 && !self.has_host {
            return Err(bad("missing Host header field"));
        }
        if self.closes || (self.chunked && self.length.is_some()) {
            head.keep_alive = false;
        }
        head.framing = if self.chunked { Framing::Chunked } else { Framing::Length(self.length.unwrap_or(0)) };
        Ok(())
    }
}
