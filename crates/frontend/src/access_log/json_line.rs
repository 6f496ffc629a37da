//! One line of a log: a JSON object whose fields are written one after the other.

use super::json::{put_text, put_time};

/// An object that is being written.
#[derive(Debug)]
pub struct JsonLine<'a> {
    out: &'a mut Vec<u8>,
    /// Wall clock in µs at time 0 of the engine's clock.
    epoch_us: u64,
}

impl<'a> JsonLine<'a> {
    /// Begins a line at the end of `out`.
    pub(crate) fn begin(out: &'a mut Vec<u8>, epoch_us: u64) -> Self {
        out.push(b'{');
        Self { out, epoch_us }
    }

    /// Continues a line that was begun.
    pub(super) fn resume(out: &'a mut Vec<u8>, epoch_us: u64) -> Self {
        Self { out, epoch_us }
    }

    pub(super) fn end(self) {
        self.out.extend_from_slice(b"}\n");
    }

    fn key(&mut self, key: &str) -> &mut Vec<u8> {
        if !matches!(self.out.last(), Some(b'{')) {
            self.out.push(b',');
        }
        self.out.push(b'"');
        self.out.extend_from_slice(key.as_bytes());
        self.out.extend_from_slice(b"\":");
        self.out
    }

    /// Writes a time of the engine's clock, given in ns.
    pub fn time(&mut self, key: &str, ns: u64) -> &mut Self {
        let at = self.epoch_us + ns / 1000;
        put_time(self.key(key), at);
        self
    }

    /// Writes at most `most` bytes of a client's text.
    pub fn text(&mut self, key: &str, text: &[u8], most: usize) -> &mut Self {
        put_text(self.key(key), text, most);
        self
    }

    /// Writes text of the server, without a limit.
    pub fn word(&mut self, key: &str, text: &str) -> &mut Self {
        self.text(key, text.as_bytes(), text.len())
    }

    /// Writes an integer.
    pub fn number(&mut self, key: &str, number: impl itoa::Integer) -> &mut Self {
        let mut digits = itoa::Buffer::new();
        let digits = digits.format(number).as_bytes();
        self.key(key).extend_from_slice(digits);
        self
    }

    /// Writes `true`. Flags that are false are omitted.
    pub fn flag(&mut self, key: &str) -> &mut Self {
        self.key(key).extend_from_slice(b"true");
        self
    }

    /// Writes a duration, given in ns, in µs with one decimal place.
    pub fn micros(&mut self, key: &str, ns: u64) -> &mut Self {
        let mut digits = itoa::Buffer::new();
        let out = self.key(key);
        let tenths = (ns + 50) / 100;
        out.extend_from_slice(digits.format(tenths / 10).as_bytes());
        out.extend_from_slice(&[b'.', b'0' + (tenths % 10) as u8]);
        self
    }

    /// Writes a key from a client, which a value has to follow.
    pub fn client_key(&mut self, key: &[u8], most: usize) {
        if !matches!(self.out.last(), Some(b'{')) {
            self.out.push(b',');
        }
        put_text(self.out, key, most);
        self.out.push(b':');
    }

    /// Writes a value as it is, which has to be JSON.
    pub fn value(&mut self, json: &[u8]) {
        self.out.extend_from_slice(json);
    }

    /// Writes a number as a value, or as text if it is longer than `most` bytes.
    pub fn value_of_at_most(&mut self, number: &[u8], most: usize) {
        if number.len() <= most { self.value(number) } else { self.text_value(number, most) }
    }

    /// Writes at most `most` bytes of a client's text as a value.
    pub fn text_value(&mut self, text: &[u8], most: usize) {
        put_text(self.out, text, most);
    }

    /// Writes a list of objects.
    pub fn list<T>(&mut self, key: &str, items: &[T], mut fill: impl FnMut(&T, &mut JsonLine<'_>)) -> &mut Self {
        let epoch_us = self.epoch_us;
        let out = self.key(key);
        out.push(b'[');
        for (at, item) in items.iter().enumerate() {
            out.extend_from_slice(if at > 0 { b",{" } else { b"{" });
            fill(item, &mut JsonLine { out, epoch_us });
            out.push(b'}');
        }
        out.push(b']');
        self
    }

    /// Writes an object.
    pub fn object(&mut self, key: &str, fill: impl FnOnce(&mut JsonLine<'_>)) -> &mut Self {
        let epoch_us = self.epoch_us;
        let out = self.key(key);
        out.push(b'{');
        fill(&mut JsonLine { out, epoch_us });
        self.out.push(b'}');
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_an_object_and_a_line_feed() {
        let mut out = b"{}\n".to_vec();
        let mut line = JsonLine::begin(&mut out, 1_735_689_599_000_000);
        line.time("time", 123_456_999).word("verb", "infer").text("id", b"a\"\n", 9).number("status", 200).flag("tls");
        line.object("phases_us", |p| {
            p.micros("read", 1249).micros("write", 1250).micros("queue", 49);
        });
        line.object("none", |_| {}).micros("total_us", 12_345_678);
        line.end();
        let expected = concat!(
            "{}\n",
            r#"{"time":"2024-12-31T23:59:59.123456Z","verb":"infer","id":"a\"\n","status":200,"tls":true,"#,
            r#""phases_us":{"read":1.2,"write":1.3,"queue":0.0},"none":{},"total_us":12345.7}"#,
            "\n"
        );
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }
}
