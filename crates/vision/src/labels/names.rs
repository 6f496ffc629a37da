//! Names of classes: a text with one name per line, or the dictionary that Ultralytics writes into the metadata `names`
//! of its ONNX files, `{0: 'person', 1: 'bicycle'}`.

use tensor::{Error, Result};

/// Most names.
pub const NAMES_MAX: usize = 65_536;

/// Most bytes of one name.
pub const NAME_BYTES_MAX: usize = 1024;

/// Most bytes of a text of names.
pub const NAMES_BYTES_MAX: usize = 4 << 20;

/// Names of classes by id.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Names(Vec<Box<str>>);

impl Names {
    /// The name of a class; `None` if it has none.
    pub fn get(&self, class: u32) -> Option<&str> {
        self.0.get(class as usize).map(|name| &**name).filter(|name| !name.is_empty())
    }

    /// Number of ids: one more than the greatest.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are no names.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Reads either form: a text that begins with `{` is a dictionary.
    ///
    /// # Errors
    /// INVALID_ARG, as from [`from_lines`](Self::from_lines) and [`from_dict`](Self::from_dict).
    pub fn read(text: &str) -> Result<Self> {
        if text.trim_start().starts_with('{') { Self::from_dict(text) } else { Self::from_lines(text) }
    }

    /// Reads one name per line. The line's number, from 0, is the class; space around names is dropped, and an empty
    /// line is a class without a name.
    ///
    /// # Errors
    /// INVALID_ARG if there are more than [`NAMES_MAX`] names, or a name or the text is too long.
    pub fn from_lines(text: &str) -> Result<Self> {
        check_bytes(text)?;
        let mut names = Self::default();
        for (line, name) in text.strip_prefix('\u{feff}').unwrap_or(text).lines().enumerate() {
            names.set(line, name.trim()).map_err(|e| e.prefixed(format_args!("line {}: ", line + 1)))?;
        }
        Ok(names)
    }

    /// Reads a dictionary as Python prints it: keys are ids, with or without quotes; values are strings in single or
    /// double quotes with Python's escapes (except names of characters, `\N{…}`). Of values with the same key, the last
    /// counts.
    ///
    /// # Errors
    /// INVALID_ARG with the position in bytes if the text is not such a dictionary, an id is [`NAMES_MAX`] or more, or
    /// a name or the text is too long.
    pub fn from_dict(text: &str) -> Result<Self> {
        check_bytes(text)?;
        let mut dict = Dict { text, at: 0 };
        let mut names = Self::default();
        dict.expect('{')?;
        while !dict.skip('}') {
            let at = dict.place();
            let class = dict.id()?;
            dict.expect(':')?;
            let name = dict.string()?;
            names.set(class, &name).map_err(|e| e.prefixed(format_args!("byte {at}: ")))?;
            if !dict.skip(',') {
                dict.expect('}')?;
                break;
            }
        }
        dict.space();
        if dict.at == text.len() { Ok(names) } else { Err(dict.unexpected("the end")) }
    }

    fn set(&mut self, class: usize, name: &str) -> Result<()> {
        if class >= NAMES_MAX {
            return Err(Error::invalid(format!("class {class} cannot have a name: the greatest is {}", NAMES_MAX - 1)));
        }
        if name.len() > NAME_BYTES_MAX {
            let bytes = name.len();
            return Err(Error::invalid(format!("the name has {bytes} bytes, at most {NAME_BYTES_MAX} are read")));
        }
        if class >= self.0.len() {
            self.0.resize(class + 1, Box::default());
        }
        self.0[class] = name.into();
        Ok(())
    }
}

fn check_bytes(text: &str) -> Result<()> {
    let bytes = text.len();
    let error = || Error::invalid(format!("the names have {bytes} bytes, at most {NAMES_BYTES_MAX} are read"));
    if bytes > NAMES_BYTES_MAX { Err(error()) } else { Ok(()) }
}

/// A position in the text of a dictionary.
struct Dict<'a> {
    text: &'a str,
    at: usize,
}

impl Dict<'_> {
    fn rest(&self) -> &str {
        &self.text[self.at..]
    }

    fn space(&mut self) {
        let rest = self.rest();
        self.at += rest.len() - rest.trim_start().len();
    }

    /// Position of what comes next.
    fn place(&mut self) -> usize {
        self.space();
        self.at
    }

    fn next(&mut self) -> Option<char> {
        let next = self.rest().chars().next()?;
        self.at += next.len_utf8();
        Some(next)
    }

    /// Whether this character came, which is then behind.
    fn skip(&mut self, character: char) -> bool {
        self.space();
        let is_next = self.rest().starts_with(character);
        self.at += if is_next { character.len_utf8() } else { 0 };
        is_next
    }

    fn expect(&mut self, character: char) -> Result<()> {
        if self.skip(character) { Ok(()) } else { Err(self.unexpected(&format!("'{character}'"))) }
    }

    fn unexpected(&self, expected: &str) -> Error {
        let (at, rest) = (self.at, self.rest());
        let found = rest.chars().take(16).collect::<String>();
        let found = if found.is_empty() { "the end".to_owned() } else { format!("{found:?}") };
        Error::invalid(format!("names of classes: byte {at}: expected {expected}, found {found}"))
    }

    fn id(&mut self) -> Result<usize> {
        let begin = self.place();
        let is_quoted = self.rest().starts_with(['\'', '"']);
        let digits = if is_quoted { self.string()? } else { self.digits().to_owned() };
        // A number may begin with '+', an id may not.
        let id = digits.parse().ok().filter(|_| digits.bytes().all(|digit| digit.is_ascii_digit()));
        id.ok_or_else(|| {
            self.at = begin;
            self.unexpected("the id of a class")
        })
    }

    fn digits(&mut self) -> &str {
        let begin = self.at;
        self.at += self.rest().bytes().take_while(u8::is_ascii_digit).count();
        &self.text[begin..self.at]
    }

    fn string(&mut self) -> Result<String> {
        self.space();
        let quote = match self.rest().chars().next() {
            Some(quote @ ('\'' | '"')) => quote,
            _ => return Err(self.unexpected("a name in quotes")),
        };
        self.next();
        let mut name = String::new();
        loop {
            let at = self.at;
            match self.next() {
                Some('\\') => name.extend(self.escape(at)?),
                Some(end) if end == quote => return Ok(name),
                // Three quotes are an empty name and an error behind it, as there is no comma.
                Some('\n') | None => {
                    self.at = at;
                    return Err(self.unexpected(&format!("the end of the name, {quote}")));
                }
                Some(character) => name.push(character),
            }
        }
    }

    /// The character behind a backslash; none for the end of a line.
    fn escape(&mut self, begin: usize) -> Result<Option<char>> {
        let escape = self.next();
        let character = match escape {
            Some('\n') => return Ok(None),
            Some(same @ ('\\' | '\'' | '"')) => Some(same),
            Some('a') => Some('\x07'),
            Some('b') => Some('\x08'),
            Some('f') => Some('\x0C'),
            Some('n') => Some('\n'),
            Some('r') => Some('\r'),
            Some('t') => Some('\t'),
            Some('v') => Some('\x0B'),
            Some('x') => self.code(16, 2, 2),
            Some('u') => self.code(16, 4, 4),
            Some('U') => self.code(16, 8, 8),
            Some('0'..='7') => {
                self.at -= 1;
                self.code(8, 1, 3)
            }
            _ => None,
        };
        if character.is_none() {
            self.at = begin;
            return Err(self.unexpected("a character or an escape of Python"));
        }
        Ok(character)
    }

    /// The character whose code has `least` to `most` digits of this base.
    fn code(&mut self, base: u32, least: usize, most: usize) -> Option<char> {
        let digits = self.rest().chars().take(most).take_while(|digit| digit.is_digit(base)).count();
        let code = u32::from_str_radix(self.rest().get(..digits)?, base).ok()?;
        self.at += digits;
        if digits < least { None } else { char::from_u32(code) }
    }
}
