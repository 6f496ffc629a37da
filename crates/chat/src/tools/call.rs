//! Reads one call byte by byte: an object with a name and arguments, of which only places in the text are kept.

use super::held::HeldText;
use super::json::{Json, Place, is_space};

/// A call of which a part was read.
#[derive(Debug)]
pub struct JsonCall {
    state: CallState,
    /// The key or value at hand.
    json: Json,
    /// Where the key or value at hand begins.
    from: usize,
    member: Member,
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
enum CallState {
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
enum Member {
    Name,
    Arguments,
    Other,
}

impl JsonCall {
    /// Continues behind the `{` of an object.
    pub fn object() -> Self {
        Self {
            state: CallState::FirstKey,
            json: Json::new(),
            from: 0,
            member: Member::Other,
            is_bare: false,
            name: None,
            arguments: None,
        }
    }

    /// Continues behind a name, where an object of arguments begins.
    pub fn bare(name: String) -> Self {
        Self { state: CallState::Value, member: Member::Arguments, is_bare: true, name: Some(name), ..Self::object() }
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
    pub fn push(&mut self, byte: u8, at: usize, held: &HeldText) -> Option<bool> {
        match self.state {
            CallState::InKey => {
                if self.json.push(byte)? == Place::Last {
                    self.member = self.member_of(&text_of(held.slice(self.from, at + 1))?)?;
                    self.state = CallState::Colon;
                }
            }
            CallState::InValue => match self.json.push(byte)? {
                Place::Inside => {}
                Place::Last => return self.end_value(at + 1, held),
                Place::Behind => {
                    self.end_value(at, held)?;
                    return self.push(byte, at, held);
                }
            },
            _ if is_space(byte) => {}
            CallState::FirstKey | CallState::Key if byte == b'"' => self.begin(byte, at, CallState::InKey)?,
            CallState::Colon if byte == b':' => self.state = CallState::Value,
            CallState::Value if !self.is_bare || byte == b'{' => {
                if matches!(self.member, Member::Arguments) {
                    self.arguments = Some(Arguments { from: at, to: None });
                }
                self.begin(byte, at, CallState::InValue)?;
            }
            CallState::Next if byte == b',' => self.state = CallState::Key,
            CallState::Next if byte == b'}' => return self.name().map(|_| true),
            _ => return None,
        }
        Some(false)
    }

    fn begin(&mut self, byte: u8, at: usize, state: CallState) -> Option<()> {
        self.json = Json::new();
        self.json.push(byte)?;
        self.from = at;
        self.state = state;
        Some(())
    }

    /// The meaning of a key; `None` if it comes twice, because the first may have been sent.
    fn member_of(&self, key: &str) -> Option<Member> {
        match key {
            "name" => self.name.is_none().then_some(Member::Name),
            "arguments" | "parameters" => self.arguments.is_none().then_some(Member::Arguments),
            _ => Some(Member::Other),
        }
    }

    fn end_value(&mut self, to: usize, held: &HeldText) -> Option<bool> {
        self.state = CallState::Next;
        match self.member {
            Member::Name => self.name = Some(text_of(held.slice(self.from, to)).filter(|name| !name.is_empty())?),
            Member::Arguments => self.arguments = Some(Arguments { from: self.from, to: Some(to) }),
            Member::Other => {}
        }
        Some(self.is_bare)
    }
}

/// The text of a JSON string; `None` for another value, or for half of a surrogate pair.
fn text_of(json: &str) -> Option<String> {
    serde_json::from_str(json).ok()
}
