//! Entry point of the fuzzer: texts of models, in pieces. Public for the fuzz package only.

use super::{Forced, Parsed, ToolParser, ToolStream};
use serde::de::IgnoredAny;

/// Divides a text whole and in pieces. The first byte chooses the parser, the second the pieces, the third the longest
/// call. Returns whether there were calls.
///
/// # Panics
/// If arguments of a whole text are no JSON, a text without calls is not its content, other pieces give another
/// result, or pieces and the whole differ although all calls are well-formed.
pub fn tools(data: &[u8]) -> bool {
    let [choice, cuts, max, text @ ..] = data else { return false };
    let text = &*String::from_utf8_lossy(text);
    let any = Forced { schema: String::new(), function: None };
    let parser = ToolParser::ALL.get(usize::from(choice % 5));
    let stream = |bytes_max| parser.map_or_else(|| any.stream(bytes_max), |parser| parser.stream(bytes_max));
    let whole = parser.map_or_else(|| any.parse(text), |parser| parser.parse(text));
    for call in &whole.calls {
        assert!(!call.name.is_empty());
        serde_json::from_str::<IgnoredAny>(&call.arguments).unwrap_or_else(|error| panic!("{call:?}: {error}"));
    }
    if whole.calls.is_empty() {
        assert_eq!(whole.content, text);
    }
    for bytes_max in [usize::MAX, usize::from(*max)] {
        let divided = divide(stream(bytes_max), text, text.len());
        for size in [1, usize::from(*cuts) + 1] {
            assert_eq!(divide(stream(bytes_max), text, size), divided, "pieces of {size} bytes");
        }
        if bytes_max == usize::MAX && divided.calls.len() == whole.calls.len() {
            assert_eq!(divided, whole);
        }
        // Sent calls stay, and malformed ones come between.
        let mut sent = divided.calls.iter();
        assert!(bytes_max < usize::MAX || whole.calls.iter().all(|call| sent.any(|other| other == call)));
    }
    !whole.calls.is_empty()
}

/// A text in pieces of `size` bytes, or more up to the end of a character.
fn divide(mut stream: ToolStream, mut text: &str, size: usize) -> Parsed {
    let mut pieces = Vec::new();
    while !text.is_empty() {
        let cut = (size..text.len()).find(|&at| text.is_char_boundary(at)).unwrap_or(text.len());
        let (piece, rest) = text.split_at(cut);
        pieces.extend(stream.push(piece));
        text = rest;
    }
    pieces.extend(stream.end());
    Parsed::of(pieces)
}
