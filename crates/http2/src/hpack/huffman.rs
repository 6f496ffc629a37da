//! The Huffman code of RFC 7541, appendix B. Only decoding: our own strings are short, and packing costs more.
//!
//! The code is canonical: codes of one length are consecutive, in the order of their symbols, and each length begins
//! where the one before it ended. So the lengths define the whole table; the rest is computed at compile time.

const SYMBOLS: usize = 257;
const EOS: u16 = 256;
const LONGEST: usize = 30;
const SHORTEST: usize = 5;

/// Code length of each symbol in bits; the last symbol is the end of a string.
#[rustfmt::skip]
const LENGTHS: [u8; SYMBOLS] = [
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 30, 28, 28, 28, 28, 28, 28,
    28, 28, 28, 6, 10, 10, 12, 13, 6, 8, 11, 10, 10, 8, 11, 8, 6, 6, 6, 5, 5, 5, 6, 6, 6, 6, 6, 6, 6, 7, 8, 15, 6, 12,
    10, 13, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 8, 7, 8, 13, 19, 13, 14, 6, 15, 5, 6,
    5, 6, 5, 6, 6, 6, 5, 7, 7, 6, 6, 6, 5, 6, 7, 6, 5, 5, 6, 7, 7, 7, 7, 7, 15, 11, 14, 13, 28, 20, 22, 20, 20, 22, 22,
    22, 23, 22, 23, 23, 23, 23, 23, 24, 23, 24, 24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24, 22, 21, 20,
    22, 22, 23, 23, 21, 23, 22, 22, 24, 21, 22, 23, 23, 21, 21, 22, 21, 23, 22, 23, 23, 20, 22, 22, 22, 23, 22, 22, 23,
    26, 26, 20, 19, 22, 23, 22, 25, 26, 26, 26, 27, 27, 26, 24, 25, 19, 21, 26, 27, 27, 26, 27, 24, 21, 21, 26, 26, 28,
    27, 27, 27, 20, 24, 20, 21, 22, 21, 21, 23, 22, 22, 25, 25, 24, 24, 26, 23, 26, 27, 26, 26, 27, 27, 27, 27, 27, 28,
    27, 27, 27, 27, 27, 26, 30,
];

struct Code {
    /// Symbols by length, then by value: the order of their codes.
    symbols: [u16; SYMBOLS],
    /// For each length, the first number of 30 bits that begins with a longer code.
    limit: [u32; LONGEST + 1],
    /// For each length, its first code as a number of 30 bits.
    first: [u32; LONGEST + 1],
    /// For each length, the index of its first symbol.
    start: [u16; LONGEST + 1],
}

const fn build() -> Code {
    let mut code =
        Code { symbols: [0; SYMBOLS], limit: [0; LONGEST + 1], first: [0; LONGEST + 1], start: [0; LONGEST + 1] };
    let (mut next, mut at, mut length) = (0u32, 0, 1);
    while length <= LONGEST {
        let unit = 1 << (LONGEST - length);
        code.first[length] = next;
        code.start[length] = at as u16;
        let mut symbol = 0;
        while symbol < SYMBOLS {
            if LENGTHS[symbol] as usize == length {
                code.symbols[at] = symbol as u16;
                at += 1;
                next += unit;
            }
            symbol += 1;
        }
        code.limit[length] = next;
        length += 1;
    }
    code
}

static CODE: Code = build();
/// Symbol and length of the codes of at most eight bits, by the next eight bits.
static SHORT: [(u8, u8); 256] = build_short();

const fn build_short() -> [(u8, u8); 256] {
    let code = build();
    let mut table = [(0, 0); 256];
    let mut byte = 0;
    while byte < 256 {
        let bits = (byte as u32) << (LONGEST - 8);
        let mut length = SHORTEST;
        while length <= 8 {
            if bits < code.limit[length] {
                let nth = (bits - code.first[length]) >> (LONGEST - length);
                table[byte] = (code.symbols[code.start[length] as usize + nth as usize] as u8, length as u8);
                break;
            }
            length += 1;
        }
        byte += 1;
    }
    table
}

/// Unpacks `packed` to the end of `out`; returns false if its padding is invalid or it contains the end symbol.
pub fn unpack(packed: &[u8], out: &mut Vec<u8>) -> bool {
    // The next bits, highest first, and their number.
    let (mut bits, mut count) = (0u64, 0usize);
    let mut rest = packed.iter();
    loop {
        while count <= 56 {
            let Some(&byte) = rest.next() else { break };
            bits |= u64::from(byte) << (56 - count);
            count += 8;
        }
        if count < SHORTEST {
            break;
        }
        let (symbol, length) = SHORT.get((bits >> 56) as usize).copied().unwrap_or_default();
        let (symbol, length) = match length {
            0 => match long((bits >> (64 - LONGEST)) as u32) {
                Some(found) => found,
                None => return false,
            },
            _ => (symbol, usize::from(length)),
        };
        if length > count {
            break;
        }
        out.push(symbol);
        bits <<= length;
        count -= length;
    }
    // The rest is padding: ones, less than a byte.
    count < 8 && (count == 0 || bits >> (64 - count) == (1 << count) - 1)
}

/// The symbol at the start of 30 bits; `None` for the end symbol.
fn long(bits: u32) -> Option<(u8, usize)> {
    for length in SHORTEST..=LONGEST {
        let (limit, first, start) = (CODE.limit.get(length)?, CODE.first.get(length)?, CODE.start.get(length)?);
        if bits < *limit {
            let nth = (bits - first) >> (LONGEST - length);
            let symbol = *CODE.symbols.get(usize::from(*start) + nth as usize)?;
            return if symbol == EOS { None } else { Some((symbol as u8, length)) };
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pack(text: &[u8]) -> Vec<u8> {
        let (mut bits, mut count, mut out) = (0u64, 0, Vec::new());
        for &byte in text {
            let length = LENGTHS[usize::from(byte)] as usize;
            let at = CODE.symbols.iter().position(|&s| s == u16::from(byte)).unwrap() - CODE.start[length] as usize;
            let code = (CODE.first[length] >> (LONGEST - length)) as u64 + at as u64;
            bits = bits << length | code;
            count += length;
            while count >= 8 {
                out.push((bits >> (count - 8)) as u8);
                count -= 8;
            }
        }
        if count > 0 {
            out.push((bits << (8 - count)) as u8 | (0xff >> count) as u8);
        }
        out
    }

    fn read(packed: &[u8]) -> Option<Vec<u8>> {
        let mut out = Vec::new();
        unpack(packed, &mut out).then_some(out)
    }

    #[test]
    fn the_code_is_complete() {
        assert_eq!(CODE.limit[LONGEST], 1 << LONGEST, "no bits without a meaning");
        assert_eq!(CODE.symbols[SYMBOLS - 1], EOS);
    }

    #[test]
    fn rfc7541_c4_and_c6_strings() {
        for (packed, text) in [
            (&[0xf1, 0xe3, 0xc2, 0xe5, 0xf2, 0x3a, 0x6b, 0xa0, 0xab, 0x90, 0xf4, 0xff][..], "www.example.com"),
            (&[0xa8, 0xeb, 0x10, 0x64, 0x9c, 0xbf], "no-cache"),
            (&[0x25, 0xa8, 0x49, 0xe9, 0x5b, 0xa9, 0x7d, 0x7f], "custom-key"),
            (&[0x64, 0x02], "302"),
            (&[0xae, 0xc3, 0x77, 0x1a, 0x4b], "private"),
        ] {
            assert_eq!(read(packed).as_deref(), Some(text.as_bytes()), "{text}");
            assert_eq!(pack(text.as_bytes()), packed, "{text}");
        }
    }

    #[test]
    fn every_byte_at_every_position_round_trips() {
        for a in 0..=255u8 {
            let text = [a, b'a', a, a.wrapping_mul(7), b'0', a];
            for n in 0..=text.len() {
                assert_eq!(read(&pack(&text[..n])).as_deref(), Some(&text[..n]), "{a} {n}");
            }
        }
    }

    #[test]
    fn padding_is_less_than_a_byte_of_ones_and_the_end_symbol_is_rejected() {
        assert_eq!(read(&[]), Some(Vec::new()));
        for bad in
            [&[0xff][..], &[0x00], &[0x1f, 0xff], &[0x18], &[0xff, 0xff, 0xff, 0xff], &[0xff, 0xff, 0xff, 0xfc, 0x1f]]
        {
            assert_eq!(read(bad), None, "{bad:x?}");
        }
        // 'a' is 00011; the padding after it must be ones.
        assert_eq!((read(&[0x1f]), read(&[0x1e])), (Some(b"a".to_vec()), None));
    }
}
