//! Damages inputs: bits, bytes, numbers at their edges, pieces moved, repeated, or taken from another input. Seeded.

/// SplitMix64: small, and the same on every machine.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `n`, or 0 when there is none.
    pub fn below(&mut self, n: usize) -> usize {
        if n == 0 { 0 } else { (self.next() % n as u64) as usize }
    }

    fn pick<'a, T: ?Sized>(&mut self, items: &[&'a T]) -> &'a T {
        items[self.below(items.len())]
    }
}

/// Pieces of the syntax that readers accept, and numbers on both sides of every limit.
const PIECES: [&[u8]; 56] = [
    b"{",
    b"}",
    b"[",
    b"]",
    b",",
    b":",
    b"\"",
    b"\\",
    b"\\u",
    b"\\ud800",
    b"\\ud83d\\ude00",
    b"\0",
    b"\xff",
    b"\xef\xbb\xbf",
    b"0",
    b"-1",
    b"-0",
    b"1e999",
    b"1e-999",
    b"0.1",
    b".5",
    b"1.",
    b"127",
    b"128",
    b"255",
    b"256",
    b"65535",
    b"65536",
    b"2147483647",
    b"2147483648",
    b"4294967295",
    b"4294967296",
    b"9223372036854775807",
    b"9223372036854775808",
    b"-9223372036854775808",
    b"18446744073709551615",
    b"18446744073709551616",
    b"NaN",
    b"-Infinity",
    b"null",
    b"true",
    b"\r\n",
    b"\n",
    b"\r\n\r\n",
    b" ",
    b"\t",
    b";",
    b"Content-Length: 5\r\n",
    b"Transfer-Encoding: chunked\r\n",
    b"Expect: 100-continue\r\n",
    b"ffffffffffffffff",
    b"\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01",
    b"\x0b",
    b"\x0c",
    b"\"binary_data_size\":8",
    b"\"shape\":[",
];

/// One to four changes to an input of `pool`, half of the time one of its first `seeds`; now and then a piece repeated
/// up to `bytes_max`, which is how slow readers show.
pub fn mutate(random: &mut Random, pool: &[Vec<u8>], seeds: usize, bytes_max: usize) -> Vec<u8> {
    // Most of the pool has been changed before. One change to something good is what finds a wrong limit.
    let from = if random.below(2) == 0 { seeds } else { pool.len() };
    let mut data = pool[random.below(from)].clone();
    let more = random.below(4) * random.below(2);
    for _ in 0..=more {
        change(random, &mut data, pool);
    }
    if random.below(2000) == 0 {
        repeat(random, &mut data, bytes_max);
    }
    data.truncate(bytes_max);
    data
}

fn change(random: &mut Random, data: &mut Vec<u8>, pool: &[Vec<u8>]) {
    let at = random.below(data.len() + 1);
    let end = (at + 1 + random.below(16)).min(data.len());
    match random.below(11) {
        0 => {
            if let Some(byte) = data.get_mut(at) {
                *byte ^= 1 << random.below(8);
            }
        }
        1 | 2 => {
            if let Some(byte) = data.get_mut(at) {
                let other = random.next() as u8;
                *byte = [other, 0, 0x7f, 0x80, 0xff, byte.wrapping_add(1), byte.wrapping_sub(1)][random.below(7)];
            }
        }
        3 => drop(data.drain(at..end)),
        4 => data.truncate(at),
        5 => {
            let piece = data[at..end].to_vec();
            let to = random.below(data.len() + 1);
            data.splice(to..to, piece);
        }
        6 => {
            let piece = random.pick(&PIECES);
            data.splice(at..at, piece.iter().copied());
        }
        7 => {
            let piece = random.pick(&PIECES);
            data.splice(at..end, piece.iter().copied());
        }
        8 => number(random, data, at),
        9 => {
            // A little-endian count or length.
            let value = [0, 1, 0x7fff_ffff, 0x8000_0000, 0xffff_ffff, random.next() as u32][random.below(6)];
            if let Some(place) = data.get_mut(at..at + 4) {
                place.copy_from_slice(&value.to_le_bytes());
            }
        }
        _ => {
            let other = &pool[random.below(pool.len())];
            let from = random.below(other.len() + 1);
            let to = (from + random.below(256)).min(other.len());
            let end = if random.below(2) == 0 { at } else { data.len() };
            data.splice(at..end, other[from..to].iter().copied());
        }
    }
}

/// Puts another number in the place of the next one that is written in digits.
fn number(random: &mut Random, data: &mut Vec<u8>, at: usize) {
    let Some(start) = data[at..].iter().position(u8::is_ascii_digit).map(|i| at + i) else { return };
    let length = data[start..].iter().take_while(|b| b.is_ascii_digit()).count();
    let piece = random.pick(&PIECES[14..37]);
    data.splice(start..start + length, piece.iter().copied());
}

/// Repeats a piece until the input is long.
fn repeat(random: &mut Random, data: &mut Vec<u8>, bytes_max: usize) {
    let at = random.below(data.len());
    let end = (at + 1 + random.below(64)).min(data.len());
    let piece = data[at..end].to_vec();
    if piece.is_empty() {
        return;
    }
    let room = bytes_max.saturating_sub(data.len()) >> random.below(6);
    let times = room / piece.len();
    data.splice(at..at, piece.repeat(times));
}
