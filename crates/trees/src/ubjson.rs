//! Reads UBJSON (draft 12): big-endian numbers, and containers with an optional element type and count.

use crate::binary::Bytes;
use crate::document::{Document, push};
use crate::limits::{NESTING_MAX, TEXT_BYTES_MAX};
use tensor::{Error, Result};

pub(crate) struct Ubjson<'a> {
    at: Bytes<'a>,
    /// Type of the next value, if it has no marker of its own.
    marker: Option<u8>,
}

/// The unread part of a container.
#[derive(Clone, Copy)]
struct Container {
    is_object: bool,
    marker: Option<u8>,
    /// Remaining elements if counted; otherwise a bracket ends the container.
    left: Option<u64>,
}

impl<'a> Ubjson<'a> {
    pub(crate) fn new(file: &'a [u8]) -> Self {
        Self { at: Bytes::new(file), marker: None }
    }

    /// Type of the next value.
    fn marker(&mut self) -> Result<u8> {
        if let Some(marker) = self.marker.take() {
            return Ok(marker);
        }
        loop {
            match self.at.u8()? {
                b'N' => {}
                marker => return Ok(marker),
            }
        }
    }

    fn integer(&mut self, marker: u8) -> Result<i64> {
        Ok(match marker {
            b'i' => i64::from(self.at.array().map(i8::from_be_bytes)?),
            b'U' => i64::from(self.at.u8()?),
            b'I' => i64::from(self.at.array().map(i16::from_be_bytes)?),
            b'l' => i64::from(self.at.array().map(i32::from_be_bytes)?),
            b'L' => self.at.array().map(i64::from_be_bytes)?,
            b'T' => 1,
            b'F' => 0,
            _ => return Err(self.unexpected("an integer", marker)),
        })
    }

    fn count(&mut self) -> Result<u64> {
        let marker = self.at.u8()?;
        let count = self.integer(marker)?;
        u64::try_from(count).map_err(|_| self.error(format_args!("a length of {count}")))
    }

    fn unexpected(&self, wanted: &str, marker: u8) -> Error {
        self.error(format_args!("{wanted} was expected, not a value of type '{}'", marker.escape_ascii()))
    }

    fn bytes(&mut self) -> Result<&'a [u8]> {
        let count = self.count()?;
        self.at.take(count, 1)
    }

    /// Reads the start of a container after its opening bracket.
    fn open(&mut self, is_object: bool) -> Result<Container> {
        let mut marker = None;
        if self.at.peek() == Some(b'$') {
            self.at.u8()?;
            let of_all = self.at.u8()?;
            // An element without bytes would allow an arbitrary count.
            if matches!(of_all, b'Z' | b'N' | b'T' | b'F') {
                return Err(self.error("a container whose elements have no bytes"));
            }
            marker = Some(of_all);
        }
        if self.at.peek() == Some(b'#') {
            self.at.u8()?;
            return Ok(Container { is_object, marker, left: Some(self.count()?) });
        }
        if marker.is_some() {
            return Err(self.error("a container with a type and without a count"));
        }
        Ok(Container { is_object, marker: None, left: None })
    }

    /// Whether a container has another element; sets its type.
    fn another(&mut self, container: &mut Container) -> Result<bool> {
        match &mut container.left {
            Some(0) => return Ok(false),
            Some(left) => *left -= 1,
            None => {
                while self.at.peek() == Some(b'N') {
                    self.at.u8()?;
                }
                if self.at.peek() == Some(if container.is_object { b'}' } else { b']' }) {
                    self.at.u8()?;
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }

    fn numbers(&mut self, mut number: impl FnMut(&mut Self, u8) -> Result<()>) -> Result<()> {
        self.array(|document| {
            let marker = document.marker()?;
            number(document, marker)
        })
    }

    /// Skips a value that is not a container.
    fn skip_scalar(&mut self, marker: u8) -> Result<()> {
        let size = match marker {
            b'Z' | b'T' | b'F' => 0,
            b'i' | b'U' | b'C' => 1,
            b'I' => 2,
            b'l' | b'd' => 4,
            b'L' | b'D' => 8,
            b'S' | b'H' => return self.bytes().map(drop),
            _ => return Err(self.unexpected("a value", marker)),
        };
        self.at.take(1, size).map(drop)
    }
}

impl Document for Ubjson<'_> {
    fn offset(&self) -> usize {
        self.at.offset()
    }

    fn object(&mut self, mut member: impl FnMut(&mut Self, &str) -> Result<()>) -> Result<()> {
        let marker = self.marker()?;
        if marker != b'{' {
            return Err(self.unexpected("an object", marker));
        }
        let mut container = self.open(true)?;
        while self.another(&mut container)? {
            let key = self.bytes()?;
            self.marker = container.marker;
            member(self, &String::from_utf8_lossy(key))?;
        }
        Ok(())
    }

    fn array(&mut self, mut element: impl FnMut(&mut Self) -> Result<()>) -> Result<()> {
        let marker = self.marker()?;
        if marker != b'[' {
            return Err(self.unexpected("an array", marker));
        }
        let mut container = self.open(false)?;
        while self.another(&mut container)? {
            self.marker = container.marker;
            element(self)?;
        }
        Ok(())
    }

    fn text(&mut self) -> Result<String> {
        let marker = self.marker()?;
        if !matches!(marker, b'S' | b'H') {
            return Err(self.unexpected("a text", marker));
        }
        let bytes = self.bytes()?;
        if bytes.len() > TEXT_BYTES_MAX {
            return Err(self.error(format_args!("a text of more than {TEXT_BYTES_MAX} bytes")));
        }
        Ok(String::from_utf8_lossy(bytes).into_owned())
    }

    fn floats(&mut self, to: &mut Vec<f32>) -> Result<()> {
        self.numbers(|document, marker| {
            let value = match marker {
                b'd' => document.at.array().map(f32::from_be_bytes)?,
                b'D' => document.at.array().map(f64::from_be_bytes)? as f32,
                _ => document.integer(marker)? as f32,
            };
            push(document, to, value)
        })
    }

    fn integers(&mut self, to: &mut Vec<i64>) -> Result<()> {
        self.numbers(|document, marker| {
            let value = document.integer(marker)?;
            push(document, to, value)
        })
    }

    fn skip(&mut self) -> Result<()> {
        let mut open: Vec<Container> = Vec::new();
        loop {
            match self.marker()? {
                b @ (b'{' | b'[') => {
                    if open.len() == NESTING_MAX {
                        return Err(self.error(format_args!("more than {NESTING_MAX} containers inside each other")));
                    }
                    let container = self.open(b == b'{')?;
                    open.push(container);
                }
                marker => self.skip_scalar(marker)?,
            }
            loop {
                let Some(container) = open.last_mut() else { return Ok(()) };
                if self.another(container)? {
                    if container.is_object {
                        let marker = container.marker;
                        self.bytes()?;
                        self.marker = marker;
                    } else {
                        self.marker = container.marker;
                    }
                    break;
                }
                open.pop();
            }
        }
    }

    fn end(&mut self) -> Result<()> {
        while self.at.peek() == Some(b'N') {
            self.at.u8()?;
        }
        if self.at.is_at_end() { Ok(()) } else { Err(self.error("something follows the model")) }
    }
}
