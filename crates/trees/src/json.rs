//! Reads JSON with the cursor for requests. Accepts NaN and Infinity, which XGBoost writes.

use crate::document::{Document, push};
use crate::limits::TEXT_BYTES_MAX;
use protocol::json::{Cursor, SyntaxError};
use tensor::{Error, Result};

pub(crate) struct Json<'a> {
    at: Cursor<'a>,
}

impl<'a> Json<'a> {
    pub(crate) fn new(text: &'a [u8]) -> Self {
        let mut at = Cursor::new(text);
        at.white();
        Self { at }
    }

    /// The text of a number, a literal or null.
    fn scalar(&mut self) -> Result<&'a str> {
        if matches!(self.at.peek(), b'{' | b'[' | b'"') {
            return Err(self.error("a number was expected"));
        }
        let range = self.at.value().map_err(syntax)?;
        Ok(std::str::from_utf8(self.at.slice(range)).unwrap_or_default())
    }
}

fn syntax(error: SyntaxError) -> Error {
    let SyntaxError { reason, offset } = error;
    Error::invalid(format!("byte {offset}: {}", reason.text().trim_end_matches('.')))
}

impl Document for Json<'_> {
    fn offset(&self) -> usize {
        self.at.offset()
    }

    fn object(&mut self, mut member: impl FnMut(&mut Self, &str) -> Result<()>) -> Result<()> {
        if self.at.peek() != b'{' {
            return Err(self.error("an object was expected"));
        }
        if !self.at.open(true) {
            return Ok(());
        }
        loop {
            let key = self.at.key().map_err(syntax)?.decode();
            member(self, &String::from_utf8_lossy(&key))?;
            if !self.at.another(true).map_err(syntax)? {
                return Ok(());
            }
        }
    }

    fn array(&mut self, mut element: impl FnMut(&mut Self) -> Result<()>) -> Result<()> {
        if self.at.peek() != b'[' {
            return Err(self.error("an array was expected"));
        }
        if !self.at.open(false) {
            return Ok(());
        }
        loop {
            element(self)?;
            if !self.at.another(false).map_err(syntax)? {
                return Ok(());
            }
        }
    }

    fn text(&mut self) -> Result<String> {
        if self.at.peek() != b'"' {
            return Err(self.error("a text was expected"));
        }
        let text = self.at.string().map_err(syntax)?;
        if text.raw.len() > TEXT_BYTES_MAX {
            return Err(self.error(format_args!("a text of more than {TEXT_BYTES_MAX} bytes")));
        }
        Ok(String::from_utf8_lossy(&text.decode()).into_owned())
    }

    fn floats(&mut self, to: &mut Vec<f32>) -> Result<()> {
        self.array(|json| {
            let text = json.scalar()?;
            // Parsed as a float, because a double would be rounded twice.
            let value = text.parse().map_err(|_| json.error(format_args!("'{text}' is not a number")))?;
            push(json, to, value)
        })
    }

    fn integers(&mut self, to: &mut Vec<i64>) -> Result<()> {
        self.array(|json| {
            let text = json.scalar()?;
            let value = match text {
                "true" => 1,
                "false" => 0,
                _ => text.parse().map_err(|_| json.error(format_args!("'{text}' is not an integer")))?,
            };
            push(json, to, value)
        })
    }

    fn skip(&mut self) -> Result<()> {
        self.at.value().map(drop).map_err(syntax)
    }

    fn end(&mut self) -> Result<()> {
        self.at.end().map_err(syntax)
    }
}
