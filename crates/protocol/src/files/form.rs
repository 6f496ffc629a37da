//! Reads `multipart/form-data` (RFC 7578) from a whole body. Time is linear in the body, and nothing is copied but
//! names.

use bytes::Bytes;
use memchr::memmem;
use tensor::{Error, Result};

/// Most bytes of a boundary (RFC 2046 5.1.1).
const BOUNDARY_BYTES_MAX: usize = 70;
/// Most bytes of the head of one field.
const HEAD_BYTES_MAX: usize = 4096;

/// One field of a form.
#[derive(Debug, PartialEq, Eq)]
pub struct FormField {
    /// Name of the field, unescaped.
    pub name: Vec<u8>,
    /// Whether the field has a file name, as `curl -F a=@file` sends it.
    pub is_file: bool,
    /// A slice of the body.
    pub contents: Bytes,
}

/// The boundary that a content type names.
///
/// # Errors
/// INVALID_ARG if there is none, or it is longer than RFC 2046 allows.
pub fn boundary(content_type: &[u8]) -> Result<Box<[u8]>> {
    let mut found = None;
    let parameters = content_type.splitn(2, |&b| b == b';').nth(1).unwrap_or_default();
    for_parameters(parameters, |name, value| {
        if name.eq_ignore_ascii_case(b"boundary") && found.is_none() {
            found = Some(value);
        }
    });
    let found = found.unwrap_or_default();
    if (1..=BOUNDARY_BYTES_MAX).contains(&found.len()) && found.iter().all(|b| (b' '..=b'~').contains(b)) {
        return Ok(found.into());
    }
    Err(Error::invalid(format!(
        "Content-Type multipart/form-data needs a boundary of 1 to {BOUNDARY_BYTES_MAX} characters, got: '{}'. \
         Clients that build the form themselves must not set the header",
        String::from_utf8_lossy(content_type.get(..200).unwrap_or(content_type))
    )))
}

/// The fields of a form, in order; ends after the first error.
pub struct Parts<'a> {
    body: &'a Bytes,
    /// CRLF, two dashes and the boundary.
    delimiter: memmem::Finder<'static>,
    /// Start of the next field's head; `None` at the end.
    at: Option<usize>,
    is_started: bool,
}

impl<'a> Parts<'a> {
    pub fn new(body: &'a Bytes, boundary: &[u8]) -> Self {
        let delimiter = [b"\r\n--", boundary].concat();
        Self { body, delimiter: memmem::Finder::new(&delimiter).into_owned(), at: Some(0), is_started: false }
    }

    /// Place behind a delimiter that ends at `end`: the next field's head, or `None` behind the last delimiter.
    fn behind(&self, end: usize) -> Result<Option<usize>> {
        let rest = self.body.get(end..).unwrap_or_default();
        if rest.starts_with(b"--") {
            return Ok(None);
        }
        let padding = rest.iter().take_while(|b| matches!(b, b' ' | b'\t')).count();
        if rest.get(padding..padding + 2) == Some(b"\r\n") {
            return Ok(Some(end + padding + 2));
        }
        Err(broken(format_args!("byte {end} follows a boundary but does not end its line")))
    }

    fn start(&self) -> Result<Option<usize>> {
        // The first delimiter may stand at the start, where no line ends before it.
        let first = self.delimiter.needle().get(2..).unwrap_or_default();
        let end = if self.body.starts_with(first) {
            first.len()
        } else {
            let at = self.delimiter.find(self.body).ok_or_else(|| broken(format_args!("its boundary is nowhere")))?;
            at + self.delimiter.needle().len()
        };
        self.behind(end)
    }

    fn part(&self, at: usize) -> Result<(FormField, Option<usize>)> {
        let rest = self.body.get(at..).unwrap_or_default();
        // A field without a head begins with the empty line.
        let (head, contents) = if rest.starts_with(b"\r\n") {
            (&[][..], at + 2)
        } else {
            let window = rest.get(..HEAD_BYTES_MAX).unwrap_or(rest);
            let end = memmem::find(window, b"\r\n\r\n").ok_or_else(|| {
                broken(format_args!("the head of the field at byte {at} does not end within {HEAD_BYTES_MAX} bytes"))
            })?;
            (rest.get(..end).unwrap_or_default(), at + end + 4)
        };
        // The delimiter of an empty field shares the line end of its head.
        let from = contents - 2;
        let found = self.delimiter.find(self.body.get(from..).unwrap_or_default());
        let end =
            from + found.ok_or_else(|| broken(format_args!("the field at byte {at} has no boundary after it")))?;
        let next = self.behind(end + self.delimiter.needle().len())?;
        let contents = self.body.slice(contents.min(end.max(contents))..end.max(contents));
        let (name, is_file) = disposition(head)
            .ok_or_else(|| broken(format_args!("the field at byte {at} has no Content-Disposition with a name")))?;
        Ok((FormField { name, is_file, contents }, next))
    }
}

impl Iterator for Parts<'_> {
    type Item = Result<FormField>;

    fn next(&mut self) -> Option<Self::Item> {
        if !self.is_started {
            self.is_started = true;
            match self.start() {
                Ok(at) => self.at = at,
                Err(error) => {
                    self.at = None;
                    return Some(Err(error));
                }
            }
        }
        let at = self.at.take()?;
        let read = self.part(at);
        Some(read.map(|(part, next)| {
            self.at = next;
            part
        }))
    }
}

fn broken(what: std::fmt::Arguments<'_>) -> Error {
    Error::invalid(format!("the body is not multipart/form-data: {what}"))
}

/// Name of a field, and whether it has a file name, by its `Content-Disposition`.
fn disposition(head: &[u8]) -> Option<(Vec<u8>, bool)> {
    const FIELD: &[u8] = b"content-disposition";
    let (mut name, mut is_file) = (None, false);
    for line in head.split(|&b| b == b'\n') {
        let colon = memchr::memchr(b':', line)?;
        let (key, value) = line.split_at(colon);
        if !key.eq_ignore_ascii_case(FIELD) {
            continue;
        }
        let parameters = value.splitn(2, |&b| b == b';').nth(1).unwrap_or_default();
        for_parameters(parameters, |key, value| {
            if key.eq_ignore_ascii_case(b"name") {
                name.get_or_insert(value);
            } else if key.eq_ignore_ascii_case(b"filename") || key.eq_ignore_ascii_case(b"filename*") {
                is_file = true;
            }
        });
        break;
    }
    Some((name?, is_file))
}

/// Calls `each` with the parameters of a header: `; name=value; name="quoted"`.
fn for_parameters(mut rest: &[u8], mut each: impl FnMut(&[u8], Vec<u8>)) {
    while let Some(equals) = memchr::memchr(b'=', rest) {
        let (key, value) = rest.split_at(equals);
        let value = value.get(1..).unwrap_or_default();
        let key = key.trim_ascii();
        let (value, used) = match value.strip_prefix(b"\"") {
            Some(quoted) => {
                let (text, used) = unquote(quoted);
                (text, used + 1)
            }
            None => {
                let used = memchr::memchr(b';', value).unwrap_or(value.len());
                (value.get(..used).unwrap_or_default().trim_ascii().to_vec(), used)
            }
        };
        each(key, value);
        let after = rest.get(equals + 1 + used..).unwrap_or_default();
        let next = memchr::memchr(b';', after).map_or(after.len(), |at| at + 1);
        rest = after.get(next..).unwrap_or_default();
    }
}

/// Text up to the closing quote, and the bytes it took. Browsers and curl write `%22`, `%0D` and `%0A`, older programs
/// a backslash before a quote.
fn unquote(text: &[u8]) -> (Vec<u8>, usize) {
    let mut out = Vec::new();
    let mut at = 0;
    while let Some(&byte) = text.get(at) {
        let ahead = text.get(at + 1..).unwrap_or_default();
        let (byte, used) = match byte {
            b'"' => return (out, at + 1),
            b'\\' if matches!(ahead.first(), Some(b'"' | b'\\')) => (ahead.first().copied().unwrap_or(byte), 2),
            b'%' if ahead.starts_with(b"22") => (b'"', 3),
            b'%' if ahead.starts_with(b"0D") => (b'\r', 3),
            b'%' if ahead.starts_with(b"0A") => (b'\n', 3),
            other => (other, 1),
        };
        out.push(byte);
        at += used;
    }
    (out, at)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(body: &str, boundary: &str) -> Result<Vec<(String, bool, String)>> {
        let body = Bytes::copy_from_slice(body.as_bytes());
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Parts::new(&body, boundary.as_bytes())
            .map(|part| part.map(|p| (text(&p.name), p.is_file, text(&p.contents))))
            .collect()
    }

    #[test]
    fn forms_of_curl_and_browsers_are_read() {
        let body = "--b\r\nContent-Disposition: form-data; name=\"image\"; filename=\"a;\\\"b.jpg\"\r\nContent-Type: \
                    image/jpeg\r\n\r\n\u{1}\r\n--bx\r\n\r\n--b\r\ncontent-disposition:form-data;name=k\r\n\r\n7\r\n\
                    --b  \r\nContent-Disposition: form-data; name=\"a%22b\"\r\n\r\n\r\n--b--\r\nafter";
        let expected = [("image", true, "\u{1}\r\n--bx\r\n"), ("k", false, "7"), ("a\"b", false, "")];
        // The first contents hold the boundary with one more letter, which is no boundary of a line.
        let got = read(&body.replace("--bx", "--cx"), "b").unwrap();
        let expected = expected.map(|(n, f, c)| (n.to_owned(), f, c.replace("--bx", "--cx")));
        assert_eq!(got, expected);
        assert_eq!(read("--b--", "b").unwrap(), []);
        let empty = "before\r\n--b\r\nContent-Disposition: form-data; name=x\r\n\r\n--b--";
        assert_eq!(read(empty, "b").unwrap(), [("x".to_owned(), false, String::new())]);
    }

    #[test]
    fn damaged_forms_say_where() {
        let check = |body: &str, expected: &str| {
            let error = read(body, "b").unwrap_err();
            assert_eq!(error.message(), format!("the body is not multipart/form-data: {expected}"), "{body:?}");
        };
        check("hello", "its boundary is nowhere");
        check("--b", "byte 3 follows a boundary but does not end its line");
        check("--b\r\n", "the head of the field at byte 5 does not end within 4096 bytes");
        check("--b\r\n\r\nx\r\n--b--", "the field at byte 5 has no Content-Disposition with a name");
        let head = "--b\r\nContent-Disposition: form-data; name=x\r\n\r\n";
        check(&format!("{head}abc"), "the field at byte 5 has no boundary after it");
        let long = "a".repeat(HEAD_BYTES_MAX);
        check(&format!("--b\r\nA: {long}\r\n\r\n"), "the head of the field at byte 5 does not end within 4096 bytes");
    }

    #[test]
    fn boundaries_have_limits() {
        let read = |text: &str| boundary(text.as_bytes()).map(|b| String::from_utf8_lossy(&b).into_owned());
        assert_eq!(read("multipart/form-data; boundary=--x").unwrap(), "--x");
        assert_eq!(read("multipart/form-data; charset=utf-8; Boundary=\"a b\"").unwrap(), "a b");
        assert!(read("multipart/form-data").unwrap_err().message().ends_with("must not set the header"));
        assert!(read(&format!("multipart/form-data; boundary={}", "x".repeat(71))).is_err());
        assert!(read("multipart/form-data; boundary=\"\"").is_err());
    }
}
