//! A strict JSON scanner. Errors have the reason and the byte offset of the reference's parser.
//!
//! It does not recurse: nesting costs one bit per level, so a body full of brackets cannot exhaust the stack.

use smallvec::SmallVec;
use std::borrow::Cow;
use std::fmt;
use std::ops::Range;
use tensor::Error;

/// Reason why a text is not JSON.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs)]
pub enum Reason {
    Empty,
    RootNotSingular,
    InvalidValue,
    MissingName,
    MissingColon,
    MissingCommaOrBrace,
    MissingCommaOrBracket,
    UnicodeEscape,
    Surrogate,
    Escape,
    UnterminatedString,
    NumberTooBig,
    MissingFraction,
    MissingExponent,
}

impl Reason {
    /// The text after `failed to parse the request JSON buffer: `.
    pub fn text(self) -> &'static str {
        match self {
            Self::Empty => "The document is empty.",
            Self::RootNotSingular => "The document root must not be followed by other values.",
            Self::InvalidValue => "Invalid value.",
            Self::MissingName => "Missing a name for object member.",
            Self::MissingColon => "Missing a colon after a name of object member.",
            Self::MissingCommaOrBrace => "Missing a comma or '}' after an object member.",
            Self::MissingCommaOrBracket => "Missing a comma or ']' after an array element.",
            Self::UnicodeEscape => "Incorrect hex digit after \\u escape in string.",
            Self::Surrogate => "The surrogate pair in string is invalid.",
            Self::Escape => "Invalid escape character in string.",
            Self::UnterminatedString => "Missing a closing quotation mark in string.",
            Self::NumberTooBig => "Number too big to be stored in double.",
            Self::MissingFraction => "Miss fraction part in number.",
            Self::MissingExponent => "Miss exponent in number.",
        }
    }
}

/// A syntax error and its offset.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SyntaxError {
    /// Reason of the error.
    pub reason: Reason,
    /// Bytes from the start of the text.
    pub offset: usize,
}

impl fmt::Display for SyntaxError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "failed to parse the request JSON buffer: {} at {}", self.reason.text(), self.offset)
    }
}

impl From<SyntaxError> for Error {
    fn from(e: SyntaxError) -> Self {
        Self::malformed(e.to_string())
    }
}

/// A number, classified as in the reference: an integer that fits 64 bits stays an integer, any other is a double.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Number {
    /// A non-negative integer, or `-0`.
    Unsigned(u64),
    /// A negative integer.
    Negative(i64),
    /// A number with a fraction or an exponent, an integer of more than 64 bits, or one of the literals.
    Double(f64),
}

impl Number {
    /// The value as a double, rounded to nearest.
    pub fn as_f64(self) -> f64 {
        match self {
            Self::Unsigned(n) => n as f64,
            Self::Negative(n) => n as f64,
            Self::Double(n) => n,
        }
    }

    /// The value as `u64`, if it is an integer in that range.
    pub fn as_u64(self) -> Option<u64> {
        match self {
            Self::Unsigned(n) => Some(n),
            _ => None,
        }
    }

    /// The value as `i64`, if it is an integer in that range.
    pub fn as_i64(self) -> Option<i64> {
        match self {
            Self::Unsigned(n) => i64::try_from(n).ok(),
            Self::Negative(n) => Some(n),
            Self::Double(_) => None,
        }
    }
}

/// The contents of a string, still escaped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Text<'a> {
    /// Bytes between the quotation marks.
    pub raw: &'a [u8],
    /// True if they contain a backslash.
    pub escaped: bool,
}

impl<'a> Text<'a> {
    /// The unescaped bytes of the string; borrowed unless something is escaped.
    pub fn decode(self) -> Cow<'a, [u8]> {
        if !self.escaped {
            return Cow::Borrowed(self.raw);
        }
        let mut out = Vec::with_capacity(self.raw.len());
        self.decode_into(&mut out);
        Cow::Owned(out)
    }

    /// Appends the unescaped bytes of the string.
    pub fn decode_into(self, out: &mut Vec<u8>) {
        if !self.escaped {
            out.extend_from_slice(self.raw);
            return;
        }
        let mut rest = self.raw;
        while let Some(i) = memchr::memchr(b'\\', rest) {
            out.extend_from_slice(&rest[..i]);
            // The scan checked the escapes; anything else here is skipped.
            let mut c = Cursor::new(&rest[i + 1..]);
            match c.bump() {
                b'b' => out.push(8),
                b'f' => out.push(12),
                b'n' => out.push(b'\n'),
                b'r' => out.push(b'\r'),
                b't' => out.push(b'\t'),
                b'u' => {
                    let c = c.unicode(0).ok().and_then(char::from_u32).unwrap_or(char::REPLACEMENT_CHARACTER);
                    out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
                }
                other => out.push(other),
            }
            rest = c.rest();
        }
        out.extend_from_slice(rest);
    }
}

/// The open brackets, one bit each: set for an object.
#[derive(Default)]
struct Nest {
    depth: usize,
    bits: SmallVec<[u64; 4]>,
}

impl Nest {
    fn push(&mut self, object: bool) {
        let (word, bit) = (self.depth / 64, self.depth % 64);
        if word == self.bits.len() {
            self.bits.push(0);
        }
        if let Some(w) = self.bits.get_mut(word) {
            *w = (*w & !(1 << bit)) | (u64::from(object) << bit);
        }
        self.depth += 1;
    }

    fn pop(&mut self) {
        self.depth = self.depth.saturating_sub(1);
    }

    fn top(&self) -> Option<bool> {
        let i = self.depth.checked_sub(1)?;
        self.bits.get(i / 64).map(|w| w >> (i % 64) & 1 == 1)
    }
}

/// A position in JSON text.
#[derive(Clone, Copy, Debug)]
pub struct Cursor<'a> {
    text: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    /// Starts at the first byte.
    pub fn new(text: &'a [u8]) -> Self {
        Self { text, at: 0 }
    }

    /// Starts behind a byte order mark and white space. Offsets still count from the first byte.
    ///
    /// # Errors
    /// `Empty` when nothing follows.
    pub fn document(text: &'a [u8]) -> Result<Self, SyntaxError> {
        let mut c = Self { text, at: if text.starts_with(b"\xef\xbb\xbf") { 3 } else { 0 } };
        c.white();
        if c.peek() == 0 { Err(c.error(Reason::Empty)) } else { Ok(c) }
    }

    /// Checks that only white space is left.
    ///
    /// # Errors
    /// `RootNotSingular` otherwise.
    pub fn end(&mut self) -> Result<(), SyntaxError> {
        self.white();
        if self.peek() == 0 { Ok(()) } else { Err(self.error(Reason::RootNotSingular)) }
    }

    /// Bytes from the start of the text.
    pub fn offset(&self) -> usize {
        self.at
    }

    /// The text from here to its end.
    #[inline]
    pub fn rest(&self) -> &'a [u8] {
        self.text.get(self.at..).unwrap_or_default()
    }

    /// A part of the text.
    pub fn slice(&self, range: Range<usize>) -> &'a [u8] {
        self.text.get(range).unwrap_or_default()
    }

    /// The next byte; 0 at the end, so that a zero byte ends the text.
    #[inline]
    pub fn peek(&self) -> u8 {
        self.text.get(self.at).copied().unwrap_or(0)
    }

    /// Skips `n` bytes.
    #[inline]
    pub(crate) fn advance(&mut self, n: usize) {
        self.at += n;
    }

    fn bump(&mut self) -> u8 {
        let b = self.peek();
        self.at += 1;
        b
    }

    /// Takes the next byte if it is `byte`.
    #[inline]
    pub fn eat(&mut self, byte: u8) -> bool {
        let hit = self.peek() == byte;
        self.at += usize::from(hit);
        hit
    }

    /// Skips white space.
    #[inline]
    pub fn white(&mut self) {
        while matches!(self.peek(), b' ' | b'\n' | b'\r' | b'\t') {
            self.at += 1;
        }
    }

    fn error(&self, reason: Reason) -> SyntaxError {
        SyntaxError { reason, offset: self.at }
    }

    /// Takes `word` or fails at the first byte that differs.
    fn literal(&mut self, word: &[u8]) -> Result<(), SyntaxError> {
        for &b in word {
            if !self.eat(b) {
                return Err(self.error(Reason::InvalidValue));
            }
        }
        Ok(())
    }

    /// Takes a member's name and its colon.
    ///
    /// # Errors
    /// The name or the colon is missing.
    pub fn key(&mut self) -> Result<Text<'a>, SyntaxError> {
        if self.peek() != b'"' {
            return Err(self.error(Reason::MissingName));
        }
        let key = self.string()?;
        self.white();
        if !self.eat(b':') {
            return Err(self.error(Reason::MissingColon));
        }
        self.white();
        Ok(key)
    }

    /// Takes the comma or bracket after a member or element; true if another one follows.
    ///
    /// # Errors
    /// Neither a comma nor the bracket follows.
    pub fn another(&mut self, object: bool) -> Result<bool, SyntaxError> {
        self.white();
        match (self.peek(), object) {
            (b',', _) => {
                self.at += 1;
                self.white();
                Ok(true)
            }
            (b'}', true) | (b']', false) => {
                self.at += 1;
                Ok(false)
            }
            (_, true) => Err(self.error(Reason::MissingCommaOrBrace)),
            (_, false) => Err(self.error(Reason::MissingCommaOrBracket)),
        }
    }

    /// Takes a `{` or `[`; also takes the bracket that closes an empty one, and then returns false.
    pub fn open(&mut self, object: bool) -> bool {
        self.at += 1;
        self.white();
        !self.eat(if object { b'}' } else { b']' })
    }

    /// Takes and checks any value.
    ///
    /// # Errors
    /// The first syntax error.
    pub fn value(&mut self) -> Result<Range<usize>, SyntaxError> {
        let start = self.at;
        let mut nest = Nest::default();
        loop {
            match self.peek() {
                b'{' => {
                    if self.open(true) {
                        nest.push(true);
                        self.key()?;
                        continue;
                    }
                }
                b'[' => {
                    if self.open(false) {
                        nest.push(false);
                        continue;
                    }
                }
                b'"' => drop(self.string()?),
                b't' => self.literal(b"true")?,
                b'f' => self.literal(b"false")?,
                b'n' => self.literal(b"null")?,
                _ => drop(self.number_text()?),
            }
            loop {
                let Some(object) = nest.top() else { return Ok(start..self.at) };
                if self.another(object)? {
                    if object {
                        self.key()?;
                    }
                    break;
                }
                nest.pop();
            }
        }
    }

    /// Takes a string; the next byte is its quotation mark.
    ///
    /// # Errors
    /// A bad escape, a control character, or no end.
    pub fn string(&mut self) -> Result<Text<'a>, SyntaxError> {
        self.at += 1;
        let start = self.at;
        let mut escaped = false;
        loop {
            self.at += special(self.rest());
            match self.peek() {
                b'"' => {
                    let raw = self.slice(start..self.at);
                    self.at += 1;
                    return Ok(Text { raw, escaped });
                }
                b'\\' => {
                    escaped = true;
                    let escape = self.at;
                    self.at += 1;
                    match self.peek() {
                        b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => self.at += 1,
                        b'u' => {
                            self.at += 1;
                            self.unicode(escape)?;
                        }
                        _ => return Err(SyntaxError { reason: Reason::Escape, offset: escape }),
                    }
                }
                0 => return Err(self.error(Reason::UnterminatedString)),
                // A raw control character.
                _ => return Err(self.error(Reason::Escape)),
            }
        }
    }

    /// Takes the code point behind `\u`, including both halves of a surrogate pair.
    fn unicode(&mut self, escape: usize) -> Result<u32, SyntaxError> {
        let surrogate = SyntaxError { reason: Reason::Surrogate, offset: escape };
        let high = self.hex4(escape)?;
        match high {
            0xd800..=0xdbff => {
                if !(self.eat(b'\\') && self.eat(b'u')) {
                    return Err(surrogate);
                }
                match self.hex4(escape)? {
                    low @ 0xdc00..=0xdfff => Ok((((high - 0xd800) << 10) | (low - 0xdc00)) + 0x10000),
                    _ => Err(surrogate),
                }
            }
            0xdc00..=0xdfff => Err(surrogate),
            _ => Ok(high),
        }
    }

    fn hex4(&mut self, escape: usize) -> Result<u32, SyntaxError> {
        let mut n = 0;
        for _ in 0..4 {
            let Some(digit) = char::from(self.peek()).to_digit(16) else {
                return Err(SyntaxError { reason: Reason::UnicodeEscape, offset: escape });
            };
            self.at += 1;
            n = n * 16 + digit;
        }
        Ok(n)
    }

    /// Takes a number.
    ///
    /// # Errors
    /// The text is not a number, or is too big for a double.
    pub fn number(&mut self) -> Result<Number, SyntaxError> {
        let (text, whole) = self.number_text()?;
        if whole && let Some(n) = integer(text) {
            return Ok(n);
        }
        Ok(Number::Double(match text {
            b"NaN" | b"-NaN" => f64::NAN,
            b"Inf" | b"Infinity" => f64::INFINITY,
            b"-Inf" | b"-Infinity" => f64::NEG_INFINITY,
            _ => fast_float2::parse(text).unwrap_or(f64::NAN),
        }))
    }

    fn digits(&mut self) -> bool {
        let start = self.at;
        while self.peek().is_ascii_digit() {
            self.at += 1;
        }
        self.at > start
    }

    /// Takes a number's text; true if it has neither fraction nor exponent.
    fn number_text(&mut self) -> Result<(&'a [u8], bool), SyntaxError> {
        let start = self.at;
        self.eat(b'-');
        match self.peek() {
            b'0' => self.at += 1,
            b'1'..=b'9' => drop(self.digits()),
            b'N' => {
                self.literal(b"NaN")?;
                return Ok((self.slice(start..self.at), false));
            }
            b'I' => {
                self.literal(b"Inf")?;
                if self.peek() == b'i' {
                    self.literal(b"inity")?;
                }
                return Ok((self.slice(start..self.at), false));
            }
            _ => return Err(self.error(Reason::InvalidValue)),
        }
        let mut whole = true;
        let mut exponent = false;
        if self.eat(b'.') {
            whole = false;
            if !self.digits() {
                return Err(self.error(Reason::MissingFraction));
            }
        }
        if matches!(self.peek(), b'e' | b'E') {
            whole = false;
            exponent = true;
            self.at += 1;
            if matches!(self.peek(), b'+' | b'-') {
                self.at += 1;
            }
            if !self.digits() {
                return Err(self.error(Reason::MissingExponent));
            }
        }
        let text = self.slice(start..self.at);
        // Only an exponent or some three hundred digits can exceed the range.
        if (exponent || text.len() > 300) && fast_float2::parse::<f64, _>(text).is_ok_and(f64::is_infinite) {
            return Err(SyntaxError { reason: Reason::NumberTooBig, offset: start });
        }
        Ok((text, whole))
    }
}

/// The integer in `text`; `None` if it needs more than 64 bits.
fn integer(text: &[u8]) -> Option<Number> {
    let (negative, digits) = match text {
        [b'-', rest @ ..] => (true, rest),
        _ => (false, text),
    };
    let n = digits.iter().try_fold(0u64, |n, d| n.checked_mul(10)?.checked_add(u64::from(d.wrapping_sub(b'0'))))?;
    match (negative, n) {
        (false, _) | (_, 0) => Some(Number::Unsigned(n)),
        _ => 0i64.checked_sub_unsigned(n).map(Number::Negative),
    }
}

/// Number of bytes before the first quotation mark, backslash or control character.
// Inlined because most texts are names of a few bytes, for which a call is a third of the work.
#[inline(always)]
pub(crate) fn special(text: &[u8]) -> usize {
    const ONES: u64 = u64::MAX / 255;
    const HIGH: u64 = ONES * 128;
    // Sets the high bit of every zero byte. False hits are only above a true one, so the first (little-endian) is
    // right.
    let zero = |x: u64| x.wrapping_sub(ONES) & !x & HIGH;
    let hits = |x: u64| {
        let control = x.wrapping_sub(ONES * 0x20) & !x & HIGH;
        zero(x ^ (ONES * u64::from(b'"'))) | zero(x ^ (ONES * u64::from(b'\\'))) | control
    };
    let first = |hits: u64| (hits.trailing_zeros() / 8) as usize;
    let mut i = 0;
    while let Some(chunk) = text.get(i..).and_then(<[u8]>::first_chunk::<8>) {
        let hit = hits(u64::from_le_bytes(*chunk));
        if hit != 0 {
            return i + first(hit);
        }
        i += 8;
    }
    let tail = text.get(i..).unwrap_or_default();
    match (tail, text.last_chunk::<8>()) {
        ([], _) => i,
        // The last eight bytes, some of which are checked already.
        (_, Some(last)) => match hits(u64::from_le_bytes(*last)) >> (8 * (8 - tail.len())) {
            0 => text.len(),
            hit => i + first(hit),
        },
        // Short, as most keys and values are: one word; the zero padding ends it.
        ([a], None) => first(hits(u64::from(*a))),
        ([a, b], None) => first(hits(u64::from(u16::from_le_bytes([*a, *b])))),
        ([a, b, c], None) => first(hits(u64::from(u32::from_le_bytes([*a, *b, *c, 0])))),
        ([a, b, c, d, ..], None) => {
            let start = u32::from_le_bytes([*a, *b, *c, *d]);
            let end = tail.last_chunk::<4>().map_or(0, |last| u32::from_le_bytes(*last));
            first(hits(u64::from(start) | u64::from(end) << (8 * (tail.len() - 4))))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &[u8], expected: &str) {
        let got = Cursor::document(text).and_then(|mut c| {
            c.value()?;
            c.end()
        });
        let got = got.map_or_else(|e| format!("{} at {}", e.reason.text(), e.offset), |()| "ok".to_owned());
        assert_eq!(got, expected, "{}", String::from_utf8_lossy(text));
    }

    #[test]
    fn p105_reasons_and_offsets_are_the_references() {
        check(b"", "The document is empty. at 0");
        check(b" ", "The document is empty. at 1");
        check(b"{", "Missing a name for object member. at 1");
        check(b"{'inputs':[]}", "Missing a name for object member. at 1");
        check(b"{\"inputs\":NaN,}", "Missing a name for object member. at 14");
        check(b"/* c */ {}", "Invalid value. at 0");
        check(b"{\"id\":\"a\nb\"}", "Invalid escape character in string. at 8");
        check(br#"{"id":"\q"}"#, "Invalid escape character in string. at 7");
        check(br#"{"id":"\u12"}"#, "Incorrect hex digit after \\u escape in string. at 7");
        check(br#"{"id":"\ud800"}"#, "The surrogate pair in string is invalid. at 7");
        check(br#"{"id" 1}"#, "Missing a colon after a name of object member. at 6");
        check(br#"{"id":1 "x":2}"#, "Missing a comma or '}' after an object member. at 8");
        check(br#"{"id":[1 2]}"#, "Missing a comma or ']' after an array element. at 9");
        check(br#"{"id":1e999}"#, "Number too big to be stored in double. at 6");
        check(br#"{"id":1.}"#, "Miss fraction part in number. at 8");
        check(br#"{"id":1e}"#, "Miss exponent in number. at 8");
        check(br#"{"id":01}"#, "Missing a comma or '}' after an object member. at 7");
        check(br#"{"id":"abc"#, "Missing a closing quotation mark in string. at 10");
        check(br#"{"INPUT0":"a"} x"#, "The document root must not be followed by other values. at 15");
        check(b"[nan]", "Invalid value. at 2");
        check(b"[1,]", "Invalid value. at 3");
        check(b"[Infinite]", "Invalid value. at 8");
        check(b"hello", "Invalid value. at 0");
        check(b"5x", "The document root must not be followed by other values. at 1");
    }

    #[test]
    fn p105_extensions_of_json_that_clients_send_are_accepted() {
        check(b"\xef\xbb\xbf{}", "ok");
        check(b"{}\0garbage", "ok");
        check(b"{\"id\":\"\xff\xfe\"}", "ok");
        check(b"[NaN,-NaN,Inf,-Inf,Infinity,-Infinity]", "ok");
        check(b"  \r\n\t[1 , 2]\n", "ok");
        let deep = [vec![b'['; 100_000], vec![b']'; 100_000]].concat();
        check(&deep, "ok");
    }

    #[test]
    fn numbers_keep_their_class() {
        let number = |t: &str| Cursor::new(t.as_bytes()).number().unwrap();
        assert_eq!(number("18446744073709551615"), Number::Unsigned(u64::MAX));
        assert_eq!(number("18446744073709551616"), Number::Double(18446744073709551616.0));
        assert_eq!(number("-9223372036854775808"), Number::Negative(i64::MIN));
        assert_eq!(number("-9223372036854775809"), Number::Double(-9223372036854775809.0));
        assert_eq!(number("-0"), Number::Unsigned(0));
        assert_eq!(number("1.0"), Number::Double(1.0));
        assert_eq!(number("9223372036854775808").as_i64(), None);
    }

    #[test]
    fn strings_are_decoded() {
        let mut c = Cursor::new(br#""a\u00fc\n\ud83d\ude00\/\u0000z""#);
        assert_eq!(&*c.string().unwrap().decode(), "aü\n😀/\0z".as_bytes());
    }

    #[test]
    fn special_finds_the_first_special_byte() {
        for n in 0..40 {
            for b in [b'"', b'\\', 0, 0x1f, b'\n'] {
                let mut t = vec![0xffu8; n];
                t.push(b);
                for more in [b'"', 0x1f, b'a', b'a', b'a', b'a', b'a', b'a', b'a'] {
                    assert_eq!(special(&t), n, "{t:?}");
                    t.push(more);
                }
            }
            assert_eq!(special(&vec![b'#'; n]), n);
        }
    }
}
