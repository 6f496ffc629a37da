//! Writes header blocks. Fields that repeat are declared as `Options::fixed`: they enter the client's table on first
//! use and take one byte from then on. Other fields are literals, which in the table would evict those that repeat.
//!
//! Invariant: the client's table contains only fixed fields, and all of them fit, or none is used.

use super::{ENTRY_BYTES, TABLE_BYTES_DEFAULT};

/// A field of a response.
#[derive(Debug, Clone, Copy)]
pub enum Field<'a> {
    /// An index into `Options::fixed`.
    Fixed(u8),
    /// A name in lower case and its value.
    Literal(&'a str, &'a [u8]),
}

type Fixed = &'static [(&'static str, &'static str)];

/// Encoder of a connection.
pub struct Encoder {
    fixed: Fixed,
    /// Insertion number of each fixed field, from 1; 0 = not in the table.
    inserted: Vec<u32>,
    count: u32,
    /// True if the client's table has room for all fixed fields.
    fits: bool,
    size_max: usize,
    /// The client changed its table size: the next block begins with the update.
    resized: bool,
}

impl Encoder {
    /// An encoder with an empty table.
    pub fn new(fixed: Fixed) -> Self {
        let mut encoder = Self {
            fixed,
            inserted: vec![0; fixed.len()],
            count: 0,
            fits: false,
            size_max: TABLE_BYTES_DEFAULT,
            resized: false,
        };
        encoder.fits = encoder.has_room();
        encoder
    }

    fn has_room(&self) -> bool {
        let size: usize = self.fixed.iter().map(|(n, v)| n.len() + v.len() + ENTRY_BYTES).sum();
        size <= self.size_max
    }

    /// Sets the table size that the client allows.
    pub fn resize(&mut self, size_max: usize) {
        let size_max = size_max.min(TABLE_BYTES_DEFAULT);
        if size_max != self.size_max {
            self.size_max = size_max;
            self.fits = self.has_room();
            self.resized = true;
            self.inserted.fill(0);
            self.count = 0;
        }
    }

    /// Writes a pending size update. Must be called at the start of every block.
    pub fn begin(&mut self, out: &mut Vec<u8>) {
        if std::mem::take(&mut self.resized) {
            // Emptied first, so that both sides forget the inserted fields.
            out.push(0x20);
            if self.size_max > 0 {
                integer(out, 0x20, 5, self.size_max);
            }
        }
    }

    /// Writes `:status`.
    pub fn status(out: &mut Vec<u8>, status: u16) {
        let index = match status {
            200 => 8,
            204 => 9,
            206 => 10,
            304 => 11,
            400 => 12,
            404 => 13,
            500 => 14,
            other => {
                let digit = |d: u16| b'0' + (d % 10) as u8;
                out.extend_from_slice(&[0x08, 3, digit(other / 100), digit(other / 10), digit(other)]);
                return;
            }
        };
        out.push(0x80 | index);
    }

    /// Writes a field. Blocks must be sent in the order they are written.
    pub fn field(&mut self, out: &mut Vec<u8>, field: Field<'_>) {
        let Field::Fixed(i) = field else { return self.literal(out, field) };
        let Some(&(name, value)) = self.fixed.get(usize::from(i)) else { return };
        let Some(inserted) = self.inserted.get_mut(usize::from(i)).filter(|_| self.fits) else {
            return self.literal(out, field);
        };
        if *inserted > 0 {
            return integer(out, 0x80, 7, 62 + (self.count - *inserted) as usize);
        }
        self.count += 1;
        *inserted = self.count;
        out.push(0x40);
        string(out, name.as_bytes());
        string(out, value.as_bytes());
    }

    /// Writes a field without using the table, so that its block may be sent at any time.
    pub fn literal(&self, out: &mut Vec<u8>, field: Field<'_>) {
        let (name, value) = match field {
            Field::Literal(name, value) => (name, value),
            Field::Fixed(i) => match self.fixed.get(usize::from(i)) {
                Some((name, value)) => (*name, value.as_bytes()),
                None => return,
            },
        };
        out.push(0);
        string(out, name.as_bytes());
        string(out, value);
    }
}

fn string(out: &mut Vec<u8>, text: &[u8]) {
    integer(out, 0, 7, text.len());
    out.extend_from_slice(text);
}

fn integer(out: &mut Vec<u8>, pattern: u8, bits: u32, number: usize) {
    let mask = (1usize << bits) - 1;
    if number < mask {
        return out.push(pattern | number as u8);
    }
    out.push(pattern | mask as u8);
    let mut rest = number - mask;
    while rest >= 0x80 {
        out.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    out.push(rest as u8);
}

#[cfg(test)]
mod tests {
    use super::super::Decoder;
    use super::*;

    const FIXED: Fixed = &[("content-type", "application/grpc"), ("grpc-status", "0"), ("grpc-encoding", "gzip")];

    /// Encodes `fields` and decodes them again; returns the length of the block.
    fn check(encoder: &mut Encoder, decoder: &mut Decoder, fields: &[Field<'_>]) -> usize {
        let mut out = Vec::new();
        encoder.begin(&mut out);
        Encoder::status(&mut out, 200);
        fields.iter().for_each(|f| encoder.field(&mut out, *f));
        let mut read = Vec::new();
        decoder.decode(&out, |n, v| read.push((n.to_vec(), v.to_vec()))).unwrap();
        let expected = fields.iter().map(|f| match f {
            Field::Fixed(i) => {
                (FIXED[usize::from(*i)].0.as_bytes().to_vec(), FIXED[usize::from(*i)].1.as_bytes().to_vec())
            }
            Field::Literal(n, v) => (n.as_bytes().to_vec(), v.to_vec()),
        });
        let all: Vec<_> = std::iter::once((b":status".to_vec(), b"200".to_vec())).chain(expected).collect();
        assert_eq!(read, all);
        out.len()
    }

    #[test]
    fn fixed_fields_take_one_byte_from_the_second_use_on_in_any_order() {
        let (mut encoder, mut decoder) = (Encoder::new(FIXED), Decoder::new());
        let [a, b, c] = [0, 1, 2].map(Field::Fixed);
        let long = vec![b'x'; 300];
        assert!(check(&mut encoder, &mut decoder, &[a]) > 20);
        assert_eq!(check(&mut encoder, &mut decoder, &[a]), 2);
        assert!(check(&mut encoder, &mut decoder, &[b, a, c]) > 20);
        assert_eq!(check(&mut encoder, &mut decoder, &[c, a, b, a]), 5);
        check(&mut encoder, &mut decoder, &[Field::Literal("grpc-message", &long), a]);
        assert_eq!(check(&mut encoder, &mut decoder, &[c, b, a]), 4);
    }

    #[test]
    fn a_table_that_shrinks_is_announced_and_one_too_small_is_not_used() {
        let (mut encoder, mut decoder) = (Encoder::new(FIXED), Decoder::new());
        let all = [0, 1, 2].map(Field::Fixed);
        check(&mut encoder, &mut decoder, &all);
        encoder.resize(100);
        let literal = check(&mut encoder, &mut decoder, &all);
        assert_eq!(check(&mut encoder, &mut decoder, &all) + 3, literal, "the update was sent once");
        encoder.resize(0);
        check(&mut encoder, &mut decoder, &all);
        encoder.resize(1 << 20);
        check(&mut encoder, &mut decoder, &all);
        assert_eq!(check(&mut encoder, &mut decoder, &all), 4);
    }

    #[test]
    fn every_status_reads_back() {
        for status in [100, 200, 204, 206, 304, 400, 404, 415, 431, 500, 503] {
            let mut out = Vec::new();
            Encoder::status(&mut out, status);
            let mut read = Vec::new();
            Decoder::new().decode(&out, |n, v| read.push((n.to_vec(), v.to_vec()))).unwrap();
            assert_eq!(read, [(b":status".to_vec(), status.to_string().into_bytes())]);
        }
    }
}
