//! Divides a text into content and calls, byte by byte.
//!
//! Text that could belong to a call is held back until the name of the call is known and its arguments begin, or until
//! it can be no call; then it is content. From there the arguments are given as they come. Each byte is looked at a
//! bounded number of times: a text that turns out to be no call is not searched again, except from the byte that
//! showed it, or from the first byte of a marker that did not go on.

use super::call::JsonCall;
use super::held::HeldText;
use super::json::is_space;
use super::parsed::{Parsed, TextPiece};
use super::python::PythonCall;

/// How a format marks calls.
#[derive(Debug)]
pub struct Format {
    /// Name on the command line.
    pub name: &'static str,
    /// Form of the calls, for help texts.
    pub reads: &'static str,
    /// Text before a call or a list of calls; empty if there is none. Its first byte occurs in it once.
    pub marker: &'static str,
    /// Whether the marker may follow content.
    pub is_anywhere: bool,
    /// First byte of a text that is a call without a marker.
    pub bare: Option<u8>,
    /// Form of the calls.
    pub body: Body,
    /// Text after a call: the end of its element, or of the turn.
    pub closing: &'static str,
}

/// Form of the calls behind a marker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Body {
    /// JSON objects with `;` or white space between, and after them perhaps another turn, which is dropped.
    Objects,
    /// A JSON object, and what closes its element.
    Element,
    /// A JSON array of objects; or a name, perhaps `[ARGS]`, and the arguments.
    Array,
    /// A list of calls of Python.
    Python,
}

/// Between the name of a function and its arguments, in newer models of Mistral.
const ARGUMENTS_MARKER: &str = "[ARGS]";

#[derive(Debug, Clone, Copy)]
enum TextState {
    /// White space, at the beginning or after a call; then that many bytes of the marker.
    Lead(usize),
    /// Content; then that many bytes of the marker.
    Content(usize),
    /// Behind the marker.
    Open,
    /// Behind the `[` of a list or a `,` in it.
    Item,
    /// In a name without quotes, which begins at the first number; then that many bytes of `[ARGS]`.
    Name(usize, usize),
    /// In a call.
    Call,
    /// After a call; then that many bytes of the closing text.
    After(usize),
    /// All that follows is content.
    Pass,
    /// All that follows is dropped.
    Drop,
}

#[derive(Debug)]
enum CallReader {
    Json(JsonCall),
    Python(PythonCall),
}

/// A text of which a part was read.
#[derive(Debug)]
pub struct Machine {
    format: &'static Format,
    /// Whether a call is given when it is complete, instead of as it comes.
    is_whole: bool,
    bytes_max: usize,
    held: HeldText,
    state: TextState,
    /// The call at hand, in `TextState::Call`.
    call: CallReader,
    /// Whether the call at hand was given, in part.
    is_begun: bool,
    /// Place of the byte that is looked at next.
    at: usize,
    /// Place up to which the text was given or dropped.
    given: usize,
    /// Place where what may be a call begins.
    since: usize,
    /// Calls that have begun.
    calls: usize,
    is_exceeded: bool,
    pieces: Vec<TextPiece>,
}

impl Machine {
    /// Begins at the start of a text.
    pub fn new(format: &'static Format, is_whole: bool, bytes_max: usize) -> Self {
        Self {
            format,
            is_whole,
            bytes_max,
            held: HeldText::default(),
            state: TextState::Lead(0),
            call: CallReader::Json(JsonCall::object()),
            is_begun: false,
            at: 0,
            given: 0,
            since: 0,
            calls: 0,
            is_exceeded: false,
            pieces: Vec::new(),
        }
    }

    /// Divides a whole text.
    pub fn parse(format: &'static Format, text: &str) -> Parsed {
        let mut machine = Self::new(format, true, usize::MAX);
        let mut pieces = machine.push(text);
        pieces.extend(machine.end());
        Parsed::of(pieces)
    }

    /// Whether a call was longer than `bytes_max`.
    pub fn is_exceeded(&self) -> bool {
        self.is_exceeded
    }

    /// Adds a piece of the text. Returns what became known by it.
    pub fn push(&mut self, text: &str) -> Vec<TextPiece> {
        self.held.push(text);
        while self.at < self.held.end() {
            let byte = self.held.byte(self.at);
            let may_be_call = !matches!(self.state, TextState::Content(_) | TextState::Pass | TextState::Drop);
            let is_character = !(0x80..0xC0).contains(&byte);
            if may_be_call && is_character && self.at - self.since >= self.bytes_max {
                self.is_exceeded = true;
                self.give_call(false);
                self.state = TextState::Pass;
            }
            self.step(byte);
        }
        match self.state {
            TextState::Content(seen) => self.give_content(self.at - seen),
            TextState::Pass => self.give_content(self.at),
            TextState::Drop => self.given = self.at,
            TextState::Call => self.give_call(false),
            _ => {}
        }
        self.held.forget(self.given);
        std::mem::take(&mut self.pieces)
    }

    /// The text is over. Returns what was held back.
    pub fn end(&mut self) -> Vec<TextPiece> {
        let is_dropped = match self.state {
            TextState::Lead(0) | TextState::After(0) => self.calls > 0,
            TextState::Call => self.is_begun,
            _ => false,
        };
        if !is_dropped {
            self.give_content(self.at);
        }
        self.given = self.at;
        self.held.forget(self.given);
        self.state = TextState::Pass;
        std::mem::take(&mut self.pieces)
    }

    /// Takes the byte at `at`, or leaves it to a state that takes it.
    fn step(&mut self, byte: u8) {
        match self.state {
            TextState::Lead(seen) => self.lead(byte, seen),
            TextState::Content(seen) => self.content(byte, seen),
            TextState::Open => self.open(byte),
            TextState::Item => self.item(byte),
            TextState::Name(from, seen) => self.name(byte, from, seen),
            TextState::Call => self.call(byte),
            TextState::After(seen) => self.after(byte, seen),
            TextState::Pass | TextState::Drop => self.at += 1,
        }
    }

    fn advance(&mut self, state: TextState) {
        self.at += 1;
        self.state = state;
    }

    fn begin(&mut self, call: CallReader) {
        self.call = call;
        self.state = TextState::Call;
    }

    /// Makes content of what was held back, and goes on at `to`.
    fn fail(&mut self, to: usize) {
        self.state = if self.format.is_anywhere { TextState::Content(0) } else { TextState::Pass };
        self.is_begun = false;
        self.at = to;
        self.since = to;
    }

    fn lead(&mut self, byte: u8, seen: usize) {
        let marker = self.format.marker.as_bytes();
        // Only a text that begins with it is a call without a marker.
        let bare = self.format.bare.filter(|_| self.calls == 0);
        if seen == 0 && is_space(byte) {
            self.at += 1;
        } else if marker.get(seen) == Some(&byte) {
            let is_all = seen + 1 == marker.len();
            self.advance(if is_all { TextState::Open } else { TextState::Lead(seen + 1) });
        } else if seen == 1 && bare == marker.first().copied() {
            // The `[` was no marker, but begins a list.
            self.state = TextState::Item;
        } else if seen == 0 && bare == Some(byte) {
            self.state = TextState::Open;
        } else {
            self.fail(self.at - seen);
        }
    }

    fn content(&mut self, byte: u8, seen: usize) {
        let marker = self.format.marker.as_bytes();
        if marker.get(seen) != Some(&byte) {
            if seen == 0 {
                self.at += 1;
            }
            self.state = TextState::Content(0);
        } else if seen + 1 < marker.len() {
            self.advance(TextState::Content(seen + 1));
        } else {
            self.since = self.at - seen;
            self.give_content(self.since);
            self.advance(TextState::Open);
        }
    }

    fn open(&mut self, byte: u8) {
        match (self.format.body, byte) {
            _ if is_space(byte) => self.at += 1,
            (Body::Objects | Body::Element, b'{') => {
                self.at += 1;
                self.begin(CallReader::Json(JsonCall::object()));
            }
            (Body::Array | Body::Python, b'[') => self.advance(TextState::Item),
            (Body::Array, _) if is_of_name(byte) => self.state = TextState::Name(self.at, 0),
            _ => self.fail(self.at),
        }
    }

    fn item(&mut self, byte: u8) {
        match (self.format.body, byte) {
            _ if is_space(byte) => self.at += 1,
            (Body::Array, b'{') => {
                self.at += 1;
                self.begin(CallReader::Json(JsonCall::object()));
            }
            (Body::Python, _) if is_of_name(byte) => self.state = TextState::Name(self.at, 0),
            // The `[` before it may begin a marker.
            (Body::Array, _) if self.held.byte(self.at - 1) == b'[' => self.fail(self.at - 1),
            _ => self.fail(self.at),
        }
    }

    fn name(&mut self, byte: u8, from: usize, seen: usize) {
        let name = |to| self.held.slice(from, to).to_owned();
        let is_python = self.format.body == Body::Python;
        if seen == 0 && is_of_name(byte) {
            self.at += 1;
        } else if is_python && byte == b'(' {
            let call = CallReader::Python(PythonCall::new(name(self.at)));
            self.at += 1;
            self.begin(call);
        } else if !is_python && byte == b'{' && (seen == 0 || seen == ARGUMENTS_MARKER.len()) {
            let call = CallReader::Json(JsonCall::bare(name(self.at - seen)));
            self.begin(call);
        } else if !is_python && ARGUMENTS_MARKER.as_bytes().get(seen) == Some(&byte) {
            self.advance(TextState::Name(from, seen + 1));
        } else {
            self.fail(self.at - seen);
        }
    }

    fn call(&mut self, byte: u8) {
        let is_last = match &mut self.call {
            CallReader::Json(call) => call.push(byte, self.at, &self.held),
            CallReader::Python(call) => call.push(byte),
        };
        match is_last {
            None => {
                self.give_call(false);
                self.fail(self.at);
            }
            Some(false) => self.at += 1,
            Some(true) => {
                self.at += 1;
                self.give_call(true);
                self.is_begun = false;
                self.given = self.at;
                self.since = self.at;
                let is_bare = matches!(&self.call, CallReader::Json(call) if call.is_bare());
                self.state = if is_bare { TextState::Lead(0) } else { TextState::After(0) };
            }
        }
    }

    fn after(&mut self, byte: u8, seen: usize) {
        let closing = self.format.closing.as_bytes();
        match (self.format.body, byte) {
            _ if seen == 0 && is_space(byte) => self.at += 1,
            (Body::Objects, b';') if seen == 0 => self.at += 1,
            (Body::Objects, b'{') if seen == 0 => self.state = TextState::Open,
            (Body::Array | Body::Python, b',') => self.advance(TextState::Item),
            (Body::Array | Body::Python, b']') => self.close(TextState::Lead(0)),
            _ if closing.get(seen) != Some(&byte) => self.fail(self.at - seen),
            _ if seen + 1 < closing.len() => self.advance(TextState::After(seen + 1)),
            (Body::Objects, _) => self.close(TextState::Drop),
            _ => self.close(TextState::Lead(0)),
        }
    }

    /// Drops what was held back since a call, up to this byte.
    fn close(&mut self, state: TextState) {
        self.advance(state);
        self.given = self.at;
        self.since = self.at;
    }

    fn give_content(&mut self, to: usize) {
        if self.given < to {
            self.pieces.push(TextPiece::Content(self.held.slice(self.given, to).to_owned()));
            self.given = to;
        }
    }

    /// Gives what is known of the call at hand, if it is one.
    fn give_call(&mut self, is_complete: bool) {
        if !matches!(self.state, TextState::Call) || (self.is_whole && !is_complete) {
            return;
        }
        let name = match &self.call {
            CallReader::Json(call) => call.name(),
            CallReader::Python(call) => call.name(),
        };
        let Some(name) = name else { return };
        if !self.is_begun {
            self.pieces.push(TextPiece::Begin(self.calls, name.to_owned()));
            self.is_begun = true;
            self.calls += 1;
        }
        let arguments = match &mut self.call {
            CallReader::Json(call) => {
                let Some((from, to)) = call.arguments(self.at) else { return };
                let from = from.max(self.given).min(to);
                self.given = to;
                self.held.slice(from, to).to_owned()
            }
            CallReader::Python(call) => {
                self.given = self.at;
                call.take()
            }
        };
        if !arguments.is_empty() {
            self.pieces.push(TextPiece::Arguments(self.calls - 1, arguments));
        }
    }
}

/// Bytes of names without quotes.
fn is_of_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.')
}
