//! The explanation of a request for its client.

use super::line::{RequestLine, TextLimits, put_behind};
use crate::access_log::json_line::JsonLine;
use crate::access_log::wall_clock_us;
use crate::limits::{LOG_ERROR_BYTES_MAX, LOG_NAME_BYTES_MAX, WHY_BYTES_MAX};
use std::fmt::Write as _;

/// Limits of explanations: the first that make the line short enough.
const OF_WHY: [TextLimits; 3] = [
    TextLimits { name: LOG_NAME_BYTES_MAX, error: LOG_ERROR_BYTES_MAX / 2 },
    TextLimits { name: 96, error: 128 },
    TextLimits { name: 24, error: 24 },
];

impl RequestLine<'_> {
    /// The explanation of the request as JSON in ASCII. `is_over`: the request ended; otherwise its response is about
    /// to be sent. `covers`: whether its reader may see a model.
    pub(super) fn explained(&self, is_over: bool, covers: impl Fn(&str) -> bool) -> String {
        let epoch_us = wall_clock_us();
        let mut text = String::new();
        for texts in OF_WHY {
            let mut out = Vec::with_capacity(512);
            let mut line = JsonLine::begin(&mut out, epoch_us);
            let of_texts = Self { texts, ..*self };
            line.time("time", self.facts.times.begun).word("protocol", self.protocol());
            of_texts.put_request(&mut line, is_over);
            if let Some(behind) = self.behind() {
                put_behind(&mut line, behind, covers(&behind.model));
            }
            out.push(b'}');
            text = ascii(out);
            if text.len() <= WHY_BYTES_MAX {
                break;
            }
        }
        text
    }
}

/// JSON in ASCII: other characters are escaped, as header fields need it.
fn ascii(json: Vec<u8>) -> String {
    let json = String::from_utf8_lossy(&json);
    if json.is_ascii() {
        return json.into_owned();
    }
    let mut out = String::with_capacity(json.len() * 2);
    for c in json.chars() {
        if c.is_ascii() {
            out.push(c);
        } else {
            // Writing to a string does not fail.
            c.encode_utf16(&mut [0; 2]).iter().for_each(|unit| _ = write!(out, "\\u{unit:04x}"));
        }
    }
    out
}
