//! Recognizes one JSON value byte by byte, so that a value which arrives in pieces is checked once. It keeps no text.

/// Deepest nesting of arrays and objects: the deepest that `serde_json` reads.
pub const DEPTH_MAX: u32 = 127;

/// Where a byte lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// In the value, or in the white space before it.
    Inside,
    /// The last byte of the value.
    Last,
    /// Behind the value: only a number ends without a byte of its own.
    Behind,
}

/// A value of which a part was read.
#[derive(Debug, Clone)]
pub struct Json {
    state: JsonState,
    depth: u32,
    /// A bit per open container, the innermost lowest: set for an object.
    objects: u128,
}

#[derive(Debug, Clone, Copy)]
enum JsonState {
    Value,
    FirstElement,
    FirstKey,
    Key,
    Colon,
    /// After a value in a container.
    Next,
    Text(IsKey),
    Escape(IsKey),
    /// Digits of `\u` that are missing.
    Hex(IsKey, u8),
    /// Bytes of `true`, `false` or `null` that are missing.
    Literal(&'static [u8]),
    Minus,
    Zero,
    Integer,
    Point,
    Fraction,
    ExponentMark,
    ExponentSign,
    Exponent,
}

/// Whether a string is the key of a member.
type IsKey = bool;

/// White space between the tokens of JSON.
pub fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\n' | b'\r' | b'\t')
}

impl Json {
    /// Expects the beginning of a value.
    pub fn new() -> Self {
        Self { state: JsonState::Value, depth: 0, objects: 0 }
    }

    /// Takes the next byte; `None` if no JSON value continues like this, or one that is nested too deep.
    pub fn push(&mut self, byte: u8) -> Option<Place> {
        use JsonState::*;
        self.state = match self.state {
            Text(is_key) => match byte {
                b'"' if is_key => Colon,
                b'"' => return Some(self.end_value()),
                b'\\' => Escape(is_key),
                0..0x20 => return None,
                _ => return Some(Place::Inside),
            },
            Escape(is_key) => match byte {
                b'u' => Hex(is_key, 4),
                b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => Text(is_key),
                _ => return None,
            },
            Hex(is_key, left) => match left {
                _ if !byte.is_ascii_hexdigit() => return None,
                1 => Text(is_key),
                _ => Hex(is_key, left - 1),
            },
            Literal(missing) => match missing.strip_prefix(&[byte])? {
                [] => return Some(self.end_value()),
                rest => Literal(rest),
            },
            Minus | Zero | Integer | Point | Fraction | ExponentMark | ExponentSign | Exponent => {
                return self.number(byte);
            }
            _ if is_space(byte) => return Some(Place::Inside),
            FirstElement if byte == b']' => return Some(self.close()),
            Value | FirstElement => self.begin(byte)?,
            FirstKey if byte == b'}' => return Some(self.close()),
            FirstKey | Key if byte == b'"' => Text(true),
            Colon if byte == b':' => Value,
            Next => match (byte, self.objects & 1) {
                (b',', 0) => Value,
                (b',', _) => Key,
                (b']', 0) | (b'}', 1) => return Some(self.close()),
                _ => return None,
            },
            _ => return None,
        };
        Some(Place::Inside)
    }

    fn begin(&mut self, byte: u8) -> Option<JsonState> {
        Some(match byte {
            b'{' | b'[' => {
                if self.depth == DEPTH_MAX {
                    return None;
                }
                let is_object = byte == b'{';
                self.depth += 1;
                self.objects = self.objects << 1 | u128::from(is_object);
                if is_object { JsonState::FirstKey } else { JsonState::FirstElement }
            }
            b'"' => JsonState::Text(false),
            b't' => JsonState::Literal(b"rue"),
            b'f' => JsonState::Literal(b"alse"),
            b'n' => JsonState::Literal(b"ull"),
            b'-' => JsonState::Minus,
            b'0' => JsonState::Zero,
            b'1'..=b'9' => JsonState::Integer,
            _ => return None,
        })
    }

    fn number(&mut self, byte: u8) -> Option<Place> {
        use JsonState::*;
        self.state = match (self.state, byte) {
            (Minus, b'0') => Zero,
            (Minus, b'1'..=b'9') | (Integer, b'0'..=b'9') => Integer,
            (Zero | Integer, b'.') => Point,
            (Point | Fraction, b'0'..=b'9') => Fraction,
            (Zero | Integer | Fraction, b'e' | b'E') => ExponentMark,
            (ExponentMark, b'+' | b'-') => ExponentSign,
            (ExponentMark | ExponentSign | Exponent, b'0'..=b'9') => Exponent,
            (Zero | Integer | Fraction | Exponent, _) => {
                if self.end_value() == Place::Last {
                    return Some(Place::Behind);
                }
                return self.push(byte);
            }
            _ => return None,
        };
        Some(Place::Inside)
    }

    fn close(&mut self) -> Place {
        self.depth -= 1;
        self.objects >>= 1;
        self.end_value()
    }

    fn end_value(&mut self) -> Place {
        self.state = JsonState::Next;
        if self.depth == 0 { Place::Last } else { Place::Inside }
    }
}
