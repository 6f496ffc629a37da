//! Reads the arguments of one call as Python writes them, `a=1, b="x")`, and makes JSON of them byte by byte.

use super::json::{DEPTH_MAX, Json, Place, is_space};

/// A call of which a part was read.
#[derive(Debug)]
pub struct PythonCall {
    name: String,
    state: PythonState,
    /// JSON that was not taken yet.
    made: Vec<u8>,
    /// A name of an argument, a word or an escape at hand.
    word: String,
    number: Json,
    /// Open lists and dicts.
    open: Vec<Container>,
    /// Whether a value stands before the next one, which a comma parts.
    is_next: bool,
    is_confirmed: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Container {
    List,
    Dict,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PythonState {
    /// Before an argument, or the `)`.
    Argument,
    /// In the name of an argument.
    InArgument,
    Equals,
    Value,
    /// Before an element of a list, or its `]`.
    Element,
    /// Before a key of a dict, or its `}`.
    Key,
    Colon,
    /// In a string with this quote.
    Text {
        quote: u8,
        is_key: bool,
    },
    Escape {
        quote: u8,
        is_key: bool,
    },
    /// In the digits of an escape; those that are missing.
    Hex {
        quote: u8,
        is_key: bool,
        left: u8,
    },
    Number,
    Word,
    /// After a value.
    Next,
}

/// Longest word that is a value.
const WORD_BYTES_MAX: usize = "False".len();

impl PythonCall {
    /// Continues behind the `(`.
    pub fn new(name: String) -> Self {
        Self {
            name,
            state: PythonState::Argument,
            made: b"{".to_vec(),
            word: String::new(),
            number: Json::new(),
            open: Vec::new(),
            is_next: false,
            is_confirmed: false,
        }
    }

    /// The name, as soon as a named argument or the `)` shows that this is a call.
    pub fn name(&self) -> Option<&str> {
        self.is_confirmed.then_some(self.name.as_str())
    }

    /// Takes the JSON that was made since the last time. The bytes pushed so far end with a character.
    pub fn take(&mut self) -> String {
        String::from_utf8(std::mem::take(&mut self.made)).expect("texts are pushed in whole characters")
    }

    /// Takes the next byte; whether it is the `)`, or `None` if this is no call.
    pub fn push(&mut self, byte: u8) -> Option<bool> {
        self.state = match self.state {
            PythonState::Text { quote, is_key } => self.text(byte, quote, is_key)?,
            PythonState::Escape { quote, is_key } => self.escape(byte, quote, is_key)?,
            PythonState::Hex { quote, is_key, left } => {
                self.made.push(byte.is_ascii_hexdigit().then_some(byte)?);
                if left == 1 {
                    PythonState::Text { quote, is_key }
                } else {
                    PythonState::Hex { quote, is_key, left: left - 1 }
                }
            }
            PythonState::Number => match self.number.push(byte)? {
                Place::Behind => return self.again(PythonState::Next, byte),
                _ => self.make(byte, PythonState::Number),
            },
            PythonState::Word if byte.is_ascii_alphabetic() => {
                self.word.push(char::from((self.word.len() < WORD_BYTES_MAX).then_some(byte)?));
                PythonState::Word
            }
            PythonState::Word => {
                self.made.extend_from_slice(match self.word.as_str() {
                    "True" | "true" => b"true",
                    "False" | "false" => b"false",
                    "None" | "null" => b"null",
                    _ => return None,
                });
                return self.again(PythonState::Next, byte);
            }
            PythonState::InArgument if byte.is_ascii_alphanumeric() || byte == b'_' => {
                self.word.push(char::from(byte));
                PythonState::InArgument
            }
            PythonState::InArgument => return self.again(PythonState::Equals, byte),
            state if is_space(byte) => state,
            PythonState::Argument if byte == b')' => return self.close(),
            PythonState::Argument if byte.is_ascii_alphabetic() || byte == b'_' => {
                self.word = char::from(byte).to_string();
                PythonState::InArgument
            }
            PythonState::Equals if byte == b'=' => {
                self.is_confirmed = true;
                self.part();
                // A name has no character that JSON escapes.
                self.made.extend([b"\"", self.word.as_bytes(), b"\":"].concat());
                PythonState::Value
            }
            PythonState::Element if byte == b']' => self.leave(byte),
            PythonState::Key if byte == b'}' => self.leave(byte),
            PythonState::Value | PythonState::Element => self.value(byte)?,
            PythonState::Key if matches!(byte, b'"' | b'\'') => {
                self.part();
                self.make(b'"', PythonState::Text { quote: byte, is_key: true })
            }
            PythonState::Colon if byte == b':' => self.make(byte, PythonState::Value),
            PythonState::Next => match (self.open.last(), byte) {
                (None, b')') => return self.close(),
                (None, b',') => PythonState::Argument,
                (Some(Container::List), b',') => PythonState::Element,
                (Some(Container::Dict), b',') => PythonState::Key,
                (Some(Container::List), b']') | (Some(Container::Dict), b'}') => self.leave(byte),
                _ => return None,
            },
            _ => return None,
        };
        Some(false)
    }

    fn again(&mut self, state: PythonState, byte: u8) -> Option<bool> {
        if state == PythonState::Next {
            self.is_next = true;
        }
        self.state = state;
        self.push(byte)
    }

    fn make(&mut self, byte: u8, state: PythonState) -> PythonState {
        self.made.push(byte);
        state
    }

    /// Python allows a comma after the last value, JSON does not: it is written before the next value.
    fn part(&mut self) {
        if std::mem::take(&mut self.is_next) {
            self.made.push(b',');
        }
    }

    fn close(&mut self) -> Option<bool> {
        self.is_confirmed = true;
        self.made.push(b'}');
        Some(true)
    }

    fn leave(&mut self, byte: u8) -> PythonState {
        self.open.pop();
        self.is_next = true;
        self.make(byte, PythonState::Next)
    }

    fn value(&mut self, byte: u8) -> Option<PythonState> {
        if self.state == PythonState::Element {
            self.part();
        }
        self.is_next = false;
        Some(match byte {
            b'"' | b'\'' => self.make(b'"', PythonState::Text { quote: byte, is_key: false }),
            b'[' | b'{' => {
                // The arguments are an object themselves.
                if self.open.len() + 1 >= DEPTH_MAX as usize {
                    return None;
                }
                let is_list = byte == b'[';
                self.open.push(if is_list { Container::List } else { Container::Dict });
                self.make(byte, if is_list { PythonState::Element } else { PythonState::Key })
            }
            b'-' | b'0'..=b'9' => {
                self.number = Json::new();
                self.number.push(byte)?;
                self.make(byte, PythonState::Number)
            }
            _ if byte.is_ascii_alphabetic() => {
                self.word = char::from(byte).to_string();
                PythonState::Word
            }
            _ => return None,
        })
    }

    fn text(&mut self, byte: u8, quote: u8, is_key: bool) -> Option<PythonState> {
        let same = PythonState::Text { quote, is_key };
        Some(match byte {
            _ if byte == quote => {
                self.is_next = !is_key;
                self.make(b'"', if is_key { PythonState::Colon } else { PythonState::Next })
            }
            b'\\' => PythonState::Escape { quote, is_key },
            b'"' => {
                self.made.extend(br#"\""#);
                same
            }
            // Python allows a tab in a string.
            b'\t' => {
                self.made.extend(br"\t");
                same
            }
            0..0x20 => return None,
            _ => self.make(byte, same),
        })
    }

    fn escape(&mut self, byte: u8, quote: u8, is_key: bool) -> Option<PythonState> {
        self.made.extend_from_slice(match byte {
            b'n' => br"\n",
            b't' => br"\t",
            b'r' => br"\r",
            b'b' => br"\b",
            b'f' => br"\f",
            b'\\' => br"\\",
            b'"' => br#"\""#,
            b'\'' => b"'",
            b'x' | b'u' => {
                self.made.extend_from_slice(if byte == b'x' { br"\u00" } else { br"\u" });
                return Some(PythonState::Hex { quote, is_key, left: if byte == b'x' { 2 } else { 4 } });
            }
            // Others are rare, and two of them mean more than one character.
            _ => return None,
        });
        Some(PythonState::Text { quote, is_key })
    }
}
