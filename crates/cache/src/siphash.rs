//! SipHash-2-4 with 128 bits of output (Aumasson, Bernstein): a keyed hash whose values and collisions are
//! unpredictable without the key.

/// The state after the words written so far.
#[derive(Clone)]
pub(crate) struct SipHash {
    v: [u64; 4],
    /// Number of bytes written; only the lowest 8 bits matter.
    len: u64,
}

impl SipHash {
    pub fn new([k0, k1]: [u64; 2]) -> Self {
        let v = [
            k0 ^ 0x736f_6d65_7073_6575,
            k1 ^ 0x646f_7261_6e64_6f6d ^ 0xee,
            k0 ^ 0x6c79_6765_6e65_7261,
            k1 ^ 0x7465_6462_7974_6573,
        ];
        Self { v, len: 0 }
    }

    #[inline]
    fn round(&mut self) {
        let [v0, v1, v2, v3] = &mut self.v;
        *v0 = v0.wrapping_add(*v1);
        *v1 = v1.rotate_left(13) ^ *v0;
        *v0 = v0.rotate_left(32);
        *v2 = v2.wrapping_add(*v3);
        *v3 = v3.rotate_left(16) ^ *v2;
        *v0 = v0.wrapping_add(*v3);
        *v3 = v3.rotate_left(21) ^ *v0;
        *v2 = v2.wrapping_add(*v1);
        *v1 = v1.rotate_left(17) ^ *v2;
        *v2 = v2.rotate_left(32);
    }

    #[inline]
    fn compress(&mut self, word: u64) {
        self.v[3] ^= word;
        self.round();
        self.round();
        self.v[0] ^= word;
    }

    #[inline]
    pub fn word(&mut self, word: u64) {
        self.compress(word);
        self.len = self.len.wrapping_add(8);
    }

    /// Writes a length and the bytes, padded with zeros to a multiple of eight, so a sequence of texts is unambiguous.
    #[inline]
    pub fn text(&mut self, bytes: &[u8]) {
        self.word(bytes.len() as u64);
        let (words, rest) = bytes.as_chunks::<8>();
        for word in words {
            self.word(u64::from_le_bytes(*word));
        }
        if !rest.is_empty() {
            self.word(tail(rest));
        }
    }

    #[inline]
    pub fn finish(self) -> u128 {
        let len = self.len;
        self.finish_with(len << 56)
    }

    /// The hash with this last block: the length in the highest byte, and the rest of the input below it.
    #[inline]
    fn finish_with(mut self, last: u64) -> u128 {
        self.compress(last);
        self.v[2] ^= 0xee;
        let low = self.drain();
        self.v[1] ^= 0xdd;
        let high = self.drain();
        u128::from(low) | u128::from(high) << 64
    }

    #[inline]
    fn drain(&mut self) -> u64 {
        for _ in 0..4 {
            self.round();
        }
        self.v.iter().fold(0, |all, v| all ^ v)
    }
}

/// Up to eight bytes, with zeros above them.
fn tail(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |word, &b| word << 8 | u64::from(b))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The hash of any bytes, as in the paper.
    fn hash(bytes: &[u8]) -> String {
        let mut state = SipHash::new([0x0706_0504_0302_0100, 0x0f0e_0d0c_0b0a_0908]);
        let (words, rest) = bytes.as_chunks::<8>();
        words.iter().for_each(|w| state.word(u64::from_le_bytes(*w)));
        let value = state.finish_with((bytes.len() as u64) << 56 | tail(rest));
        value.to_le_bytes().iter().map(|b| format!("{b:02x}")).collect()
    }

    #[test]
    fn hashes_equal_those_of_the_reference() {
        let input: Vec<u8> = (0..63).collect();
        for (len, expected) in [
            (0, "a3817f04ba25a8e66df67214c7550293"),
            (1, "da87c1d86b99af44347659119b22fc45"),
            (7, "a1f1ebbed8dbc153c0b84aa61ff08239"),
            (8, "3b62a9ba6258f5610f83e264f31497b4"),
            (15, "5493e99933b0a8117e08ec0f97cfc3d9"),
            (63, "5150d1772f50834a503e069a973fbd7c"),
        ] {
            assert_eq!(hash(&input[..len]), expected, "{len} bytes");
        }
    }

    #[test]
    fn different_sequences_of_texts_have_different_hashes() {
        let of = |texts: &[&str]| {
            let mut state = SipHash::new([1, 2]);
            texts.iter().for_each(|t| state.text(t.as_bytes()));
            state.finish()
        };
        let all = [
            of(&[]),
            of(&[""]),
            of(&["", ""]),
            of(&["a"]),
            of(&["a\0"]),
            of(&["a", ""]),
            of(&["", "a"]),
            of(&["12345678"]),
        ];
        for (i, a) in all.iter().enumerate() {
            assert!(all.iter().skip(i + 1).all(|b| a != b), "{i}");
        }
    }
}
