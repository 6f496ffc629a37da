//! Responses that servers send to the load generator, over HTTP/1.1 and gRPC.

use load::body::Head;
use load::events::{Events, StreamEvent};
use load::messages::{message_bytes, stream_response, unescaped};

/// Payload of a response and events in it, read in pieces of `piece` bytes; `None` if it is malformed.
fn read(data: &[u8], piece: usize) -> Option<(Vec<u8>, Vec<String>, bool)> {
    let head = Head::read(data).ok()??;
    let (mut body, mut payload, mut events, mut seen) = (head.body, Vec::new(), Events::default(), Vec::new());
    for part in data.get(head.bytes..)?.chunks(piece) {
        let mut failed = false;
        let taken = body.take(part, |bytes| {
            payload.extend_from_slice(bytes);
            let each = |event: StreamEvent<'_>| seen.push(format!("{event:?}"));
            failed |= events.take(bytes, each).is_err();
        });
        assert!(taken.ok()? <= part.len());
        if failed {
            return None;
        }
    }
    Some((payload, seen, body.is_over()))
}

/// Reads a response.
///
/// # Panics
/// A response in small pieces is another response, or has more payload than bytes.
pub fn load_response(data: &[u8]) -> bool {
    let whole = read(data, data.len().max(1));
    assert_eq!(whole, read(data, 1));
    assert!(whole.as_ref().is_none_or(|(payload, ..)| payload.len() <= data.len()));
    let _ = (unescaped(data), message_bytes(data));
    stream_response(data).is_ok() || whole.is_some()
}
