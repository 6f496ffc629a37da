//! The W3C trace context of a caller: a line is `traceparent`, each further one a `tracestate`.

use trace::Context;
use trace::limits::TRACE_TEXT_BYTES_MAX;

/// Reads the headers.
///
/// # Panics
/// What is accepted is not of the form that spans are made of, or is read otherwise when it is read again.
pub fn trace_context(data: &[u8]) -> bool {
    let mut lines = data.split(|&b| b == b'\n');
    let parent = lines.next().unwrap_or_default();
    let Some(context) = Context::parse(parent, lines) else { return false };
    let Context { traceparent, tracestate } = &context;
    let fields: Vec<_> = traceparent.split('-').collect();
    assert_eq!(fields.iter().map(|f| f.len()).collect::<Vec<_>>(), [2, 32, 16, 2], "{traceparent}");
    assert!(fields.concat().bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f')), "{traceparent}");
    assert!(fields[0] != "ff" && fields[1..3].iter().all(|id| id.bytes().any(|b| b != b'0')), "{traceparent}");
    assert!(tracestate.len() <= TRACE_TEXT_BYTES_MAX && tracestate.is_ascii());
    let again = Context::parse(traceparent.as_bytes(), std::iter::once(tracestate.as_bytes()));
    assert_eq!(again.as_ref(), Some(&context));
    true
}
