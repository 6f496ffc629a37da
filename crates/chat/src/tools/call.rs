//! Reads one call byte by byte: an object with a name and arguments, of which only places in the text are kept.

use super::json::{Json, Place, is_space};
use super::source::Source;

/// A call of which a part was read.
#[derive(Debug)]
pub struct JsonCall {
    step: Step,
    /// The key or value at hand.
    json: Json,
    /// Where the key or value at hand begins.
    from: usize,
    key: Key,
    /// Whether the arguments stand alone behind the name, instead of in an object with it.
    is_bare: bool,
    name: Option<String>,
    arguments: Option<Arguments>,
}

#[derive(Debug, Clone, Copy)]
struct Arguments {
    from: usize,
    to: Option<usize>,
}

#[derive(Debug, Clone, Copy)]
enum Step {
    FirstKey,
    Key,
    InKey,
    Colon,
    Value,
    InValue,
    /// After a value.
    Next,
}

#[derive(Debug, Clone, Copy)]
enum Key {
    Name,
    Arguments,
    Other,
}

impl JsonCall {
    /// Continues behind the `{` of an object.
    pub fn object() -> Self {
        Self {
            step: Step::FirstKey,
            json: Json::new(),
            from: 0,
            key: Key::Other,
            is_bare: false,
            name: None,
            arguments: None,
        }
    }

    /// Continues behind a name, where an object of arguments begins.
    pub fn bare(name: String) -> Self {
        Self { step: Step::Value, key: Key::Arguments, is_bare: true, name: Some(name), ..Self::object() }
    }

    /// Whether the arguments stand alone behind the name.
    pub fn is_bare(&self) -> bool {
        self.is_bare
    }

    /// The name, as soon as the beginning of the arguments is known too: an object that has a name only is no call.
    pub fn name(&self) -> Option<&str> {
        self.arguments.and(self.name.as_deref())
    }

    /// Where the arguments begin, and where they end or, as long as they do not, `at`.
    pub fn arguments(&self, at: usize) -> Option<(usize, usize)> {
        self.arguments.map(|arguments| (arguments.from, arguments.to.unwrap_or(at)))
    }

    /// Takes the byte at the place `at`; whether it is the last of the call, or `None` if this is no call.
    pub fn push(&mut self, byte: u8, at: usize, source: &Source) -> Option<bool> {
        match self.step {
            Step::InKey => {
                if self.json.push(byte)? == Place::Last {
                    self.key = self.key_of(&text_of(source.slice(self.from, at + 1))?)?;
                    self.step = Step::Colon;
                }
            }
            Step::InValue => match self.json.push(byte)? {
                Place::Inside => {}
                Place::Last => return self.end_value(at + 1, source),
                Place::Behind => {
                    self.end_value(at, source)?;
                    return self.push(byte, at, source);
                }
            },
            _ if is_space(byte) => {}
            Step::FirstKey | Step::Key if byte == b'"' => self.begin(byte, at, Step::InKey)?,
            Step::Colon if byte == b':' => self.step = Step::Value,
            Step::Value if !self.is_bare || byte == b'{' => {
                if matches!(self.key, Key::Arguments) {
                    self.arguments = Some(Arguments { from: at, to: None });
                }
                self.begin(byte, at, Step::InValue)?;
            }
            Step::Next if byte == b',' => self.step = Step::Key,
            Step::Next if byte == b'}' => return self.name().map(|_| true),
            _ => return None,
        }
        Some(false)
    }

    fn begin(&mut self, byte: u8, at: usize, step: Step) -> Option<()> {
        self.json = Json::new();
        self.json.push(byte)?;
        self.from = at;
        self.step = step;
        Some(())
    }

    /// The meaning of a key; `None` if it comes twice, because the first may have been sent.
    fn key_of(&self, key: &str) -> Option<Key> {
        match key {
            "name" => self.name.is_none().then_some(Key::Name),
            "arguments" | "parameters" => self.arguments.is_none().then_some(Key::Arguments),
            _ => Some(Key::Other),
        }
    }

    fn end_value(&mut self, to: usize, source: &Source) -> Option<bool> {
        self.step = Step::Next;
        match self.key {
            Key::Name => self.name = Some(text_of(source.slice(self.from, to))?).filter(|name| !name.is_empty()),
            Key::Arguments => self.arguments = Some(Arguments { from: self.from, to: Some(to) }),
            Key::Other => {}
        }
        if matches!(self.key, Key::Name) {
            self.name.as_ref()?;
        }
        Some(self.is_bare)
    }
}

/// The text of a JSON string; `None` for another value, or for half of a surrogate pair.
fn text_of(json: &str) -> Option<String> {
    serde_json::from_str(json).ok()
}
