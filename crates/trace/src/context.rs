//! The W3C trace context of a caller, from the headers `traceparent` and `tracestate`.

use crate::limits::TRACE_TEXT_BYTES_MAX;

/// Bytes of version, trace id, parent id and flags, with their dashes.
const LENGTH: usize = 55;

/// A valid context of a caller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Context {
    /// The header's 55 characters; for versions above 00 its first 55.
    pub traceparent: String,
    /// The header as received; empty if it is missing or too long.
    pub tracestate: String,
}

impl Context {
    /// The trace id, 32 hexadecimal digits.
    pub(crate) fn trace_id(&self) -> &str {
        self.traceparent.split('-').nth(1).unwrap_or_default()
    }

    /// Reads the headers; `None` if `traceparent` is invalid, which counts as no context.
    pub fn parse<'a>(traceparent: &[u8], tracestates: impl Iterator<Item = &'a [u8]>) -> Option<Self> {
        let text = traceparent.trim_ascii();
        let head = text.get(..LENGTH)?;
        let fields: Vec<&[u8]> = head.split(|b| *b == b'-').collect();
        let [version, trace, parent, flags] = fields[..] else { return None };
        let is_hex = |field: &[u8], length: usize| {
            field.len() == length && field.iter().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
        };
        let is_none = |id: &[u8]| id.iter().all(|b| *b == b'0');
        let is_well_formed = is_hex(version, 2) && is_hex(trace, 32) && is_hex(parent, 16) && is_hex(flags, 2);
        // Unknown versions may have more fields; version 00 has none, and ff is invalid.
        let is_known = match version {
            b"ff" => false,
            b"00" => text.len() == LENGTH,
            _ => text.get(LENGTH).is_none_or(|b| *b == b'-'),
        };
        if !is_well_formed || !is_known || is_none(trace) || is_none(parent) {
            return None;
        }
        let traceparent = String::from_utf8_lossy(head).into_owned();
        let mut tracestate = String::new();
        for part in tracestates {
            let part = part.trim_ascii();
            if part.is_empty() {
                continue;
            }
            if !part.is_ascii() || tracestate.len() + part.len() >= TRACE_TEXT_BYTES_MAX {
                // A partial state is invalid.
                tracestate.clear();
                break;
            }
            if !tracestate.is_empty() {
                tracestate.push(',');
            }
            tracestate.push_str(&String::from_utf8_lossy(part));
        }
        Some(Self { traceparent, tracestate })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    fn check(traceparent: &str, expected: Option<&str>) {
        let found = Context::parse(traceparent.as_bytes(), std::iter::empty());
        assert_eq!(found.as_ref().map(|c| &*c.traceparent), expected, "{traceparent}");
    }

    #[test]
    fn p119_o45_only_a_valid_context_counts() {
        check(GOOD, Some(GOOD));
        check(&format!(" {GOOD}\t"), Some(GOOD));
        check(&GOOD.replace("-01", "-00"), Some(&GOOD.replace("-01", "-00")));
        check(&format!("{GOOD}-more"), None);
        let newer = GOOD.replacen("00", "cc", 1);
        check(&newer, Some(&newer));
        check(&format!("{newer}-more"), Some(&newer));
        check(&format!("{newer}more"), None);
        check(&GOOD.replacen("00", "ff", 1), None);
        check(&GOOD.to_uppercase(), None);
        check(&GOOD.replace("0af7651916cd43dd8448eb211c80319c", &"0".repeat(32)), None);
        check(&GOOD.replace("b7ad6b7169203331", &"0".repeat(16)), None);
        for end in 0..GOOD.len() {
            check(&GOOD[..end], None);
        }
        check("", None);
        check(&"-".repeat(55), None);
    }

    #[test]
    fn p119_states_are_joined_and_dropped_if_they_are_too_long() {
        let state = |parts: &[&str]| {
            Context::parse(GOOD.as_bytes(), parts.iter().map(|p| p.as_bytes())).expect("valid").tracestate
        };
        assert_eq!(state(&["a=1", " b=2 ", ""]), "a=1,b=2");
        assert_eq!(state(&["a=1", &"x".repeat(TRACE_TEXT_BYTES_MAX)]), "");
        assert_eq!(state(&["a=ü"]), "");
    }
}
