//! Reads header blocks.

use super::huffman;
use super::table::Table;
use crate::limits::TABLE_CHANGES_MAX;

/// A block that cannot be read. The tables of both sides may differ from now on, so the connection has to end.
#[derive(Debug, PartialEq, Eq)]
pub struct InvalidBlock;

/// Decoder of a connection.
pub struct Decoder {
    table: Table,
    name: Vec<u8>,
    value: Vec<u8>,
}

/// Buffers for unpacked strings larger than this are freed after the block.
const SCRATCH_BYTES_MAX: usize = 16 * 1024;

impl Default for Decoder {
    fn default() -> Self {
        Self::new()
    }
}

impl Decoder {
    /// A decoder with an empty table.
    pub fn new() -> Self {
        Self { table: Table::new(), name: Vec::new(), value: Vec::new() }
    }

    /// Version of the table: while it is the same, equal blocks mean the same.
    pub fn generation(&self) -> u64 {
        self.table.generation()
    }

    /// Calls `each` with every field of a whole block.
    pub fn decode(&mut self, mut block: &[u8], mut each: impl FnMut(&[u8], &[u8])) -> Result<(), InvalidBlock> {
        let (mut fields, mut changes) = (false, 0);
        while let Some(&first) = block.first() {
            if first & 0x80 != 0 {
                let index = integer(&mut block, 7)?;
                let (name, value) = self.table.get(index).ok_or(InvalidBlock)?;
                each(name, value);
            } else if first & 0xe0 == 0x20 {
                // Allowed only before the first field.
                let size = integer(&mut block, 5)?;
                changes += 1;
                if fields || changes > TABLE_CHANGES_MAX || !self.table.resize(size) {
                    return Err(InvalidBlock);
                }
                continue;
            } else {
                let is_kept = first & 0x40 != 0;
                self.literal(&mut block, is_kept, &mut each)?;
            }
            fields = true;
        }
        if self.name.capacity() + self.value.capacity() > SCRATCH_BYTES_MAX {
            (self.name, self.value) = (Vec::new(), Vec::new());
        }
        Ok(())
    }

    fn literal(
        &mut self,
        block: &mut &[u8],
        is_kept: bool,
        each: &mut impl FnMut(&[u8], &[u8]),
    ) -> Result<(), InvalidBlock> {
        let Self { table, name: name_buffer, value: value_buffer } = self;
        let index = integer(block, if is_kept { 6 } else { 4 })?;
        let name = if index > 0 {
            name_buffer.clear();
            let known = table.get(index).ok_or(InvalidBlock)?.0;
            if is_kept {
                // Copied: inserting may evict the entry it comes from.
                name_buffer.extend_from_slice(known);
                &name_buffer[..]
            } else {
                known
            }
        } else {
            string(block, name_buffer)?
        };
        let value = string(block, value_buffer)?;
        each(name, value);
        if is_kept {
            // `name` borrows from the table only when nothing is inserted.
            let name = name.to_vec();
            table.insert(&name, value);
        }
        Ok(())
    }

    #[cfg(test)]
    fn table_size(&self) -> usize {
        self.table.size()
    }
}

/// Reads an integer whose first `bits` bits share a byte with other flags.
fn integer(block: &mut &[u8], bits: u32) -> Result<usize, InvalidBlock> {
    let (&first, rest) = block.split_first().ok_or(InvalidBlock)?;
    *block = rest;
    let mask = (1u32 << bits) - 1;
    let mut number = u32::from(first) & mask;
    if number < mask {
        return Ok(number as usize);
    }
    // Four more bytes hold every value that occurs here, and bound the encoding.
    for shift in [0, 7, 14, 21] {
        let (&byte, rest) = block.split_first().ok_or(InvalidBlock)?;
        *block = rest;
        number += u32::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Ok(number as usize);
        }
    }
    Err(InvalidBlock)
}

/// Reads a string: a slice of the block, or of `buffer` if it was packed.
fn string<'r, 'b: 'r>(block: &mut &'b [u8], buffer: &'r mut Vec<u8>) -> Result<&'r [u8], InvalidBlock> {
    let is_packed = block.first().ok_or(InvalidBlock)? & 0x80 != 0;
    let length = integer(block, 7)?;
    let (text, rest) = block.split_at_checked(length).ok_or(InvalidBlock)?;
    *block = rest;
    if !is_packed {
        return Ok(text);
    }
    buffer.clear();
    if huffman::unpack(text, buffer) { Ok(buffer) } else { Err(InvalidBlock) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(text: &str) -> Vec<u8> {
        let digits: Vec<_> = text.chars().filter_map(|c| c.to_digit(16)).collect();
        digits.chunks(2).map(|p| (p[0] * 16 + p[1]) as u8).collect()
    }

    fn read(decoder: &mut Decoder, block: &[u8]) -> Result<Vec<String>, InvalidBlock> {
        let mut fields = Vec::new();
        decoder.decode(block, |n, v| {
            fields.push(format!("{}: {}", String::from_utf8_lossy(n), String::from_utf8_lossy(v)));
        })?;
        Ok(fields)
    }

    /// Decodes blocks of one connection in turn, each with its fields and the table size after it.
    fn check(blocks: &[(&str, &[&str], usize)]) {
        let mut decoder = Decoder::new();
        for (block, fields, size) in blocks {
            assert_eq!(
                read(&mut decoder, &hex(block)).as_deref(),
                Ok(&fields.iter().map(|f| f.to_string()).collect::<Vec<_>>()[..])
            );
            assert_eq!(decoder.table_size(), *size, "{block}");
        }
    }

    #[test]
    fn rfc7541_c2_single_fields() {
        check(&[(
            "400a 6375 7374 6f6d 2d6b 6579 0d63 7573 746f 6d2d 6865 6164 6572",
            &["custom-key: custom-header"],
            55,
        )]);
        check(&[("040c 2f73 616d 706c 652f 7061 7468", &[":path: /sample/path"], 0)]);
        check(&[("1008 7061 7373 776f 7264 0673 6563 7265 74", &["password: secret"], 0)]);
        check(&[("82", &[":method: GET"], 0)]);
    }

    const C3: [&[&str]; 3] = [
        &[":method: GET", ":scheme: http", ":path: /", ":authority: www.example.com"],
        &[":method: GET", ":scheme: http", ":path: /", ":authority: www.example.com", "cache-control: no-cache"],
        &[
            ":method: GET",
            ":scheme: https",
            ":path: /index.html",
            ":authority: www.example.com",
            "custom-key: custom-value",
        ],
    ];

    #[test]
    fn rfc7541_c3_requests_plain() {
        check(&[
            ("8286 8441 0f77 7777 2e65 7861 6d70 6c65 2e63 6f6d", C3[0], 57),
            ("8286 84be 5808 6e6f 2d63 6163 6865", C3[1], 110),
            ("8287 85bf 400a 6375 7374 6f6d 2d6b 6579 0c63 7573 746f 6d2d 7661 6c75 65", C3[2], 164),
        ]);
    }

    #[test]
    fn rfc7541_c4_requests_packed() {
        check(&[
            ("8286 8441 8cf1 e3c2 e5f2 3a6b a0ab 90f4 ff", C3[0], 57),
            ("8286 84be 5886 a8eb 1064 9cbf", C3[1], 110),
            ("8287 85bf 4088 25a8 49e9 5ba9 7d7f 8925 a849 e95b b8e8 b4bf", C3[2], 164),
        ]);
    }

    const C5: [&[&str]; 3] = [
        &[
            ":status: 302",
            "cache-control: private",
            "date: Mon, 21 Oct 2013 20:13:21 GMT",
            "location: https://www.example.com",
        ],
        &[
            ":status: 307",
            "cache-control: private",
            "date: Mon, 21 Oct 2013 20:13:21 GMT",
            "location: https://www.example.com",
        ],
        &[
            ":status: 200",
            "cache-control: private",
            "date: Mon, 21 Oct 2013 20:13:22 GMT",
            "location: https://www.example.com",
            "content-encoding: gzip",
            "set-cookie: foo=ASDJKHQKBZXOQWEOPIUAXQWEOIU; max-age=3600; version=1",
        ],
    ];

    #[test]
    fn rfc7541_c5_c6_responses_with_a_table_of_256_bytes() {
        // 3f e1 01 is the size update that the examples assume.
        check(&[
            (
                "3fe101 4803 3330 3258 0770 7269 7661 7465 611d 4d6f 6e2c 2032 3120 4f63 7420 3230 3133 2032 303a 3133
                 3a32 3120 474d 546e 1768 7474 7073 3a2f 2f77 7777 2e65 7861 6d70 6c65 2e63 6f6d",
                C5[0],
                222,
            ),
            ("4803 3330 37c1 c0bf", C5[1], 222),
            (
                "88c1 611d 4d6f 6e2c 2032 3120 4f63 7420 3230 3133 2032 303a 3133 3a32 3220 474d 54c0 5a04 677a 6970
                 7738 666f 6f3d 4153 444a 4b48 514b 425a 584f 5157 454f 5049 5541 5851 5745 4f49 553b 206d 6178 2d61
                 6765 3d33 3630 303b 2076 6572 7369 6f6e 3d31",
                C5[2],
                215,
            ),
        ]);
        check(&[
            (
                "3fe101 4882 6402 5885 aec3 771a 4b61 96d0 7abe 9410 54d4 44a8 2005 9504 0b81 66e0 82a6 2d1b ff6e 919d
                 29ad 1718 63c7 8f0b 97c8 e9ae 82ae 43d3",
                C5[0],
                222,
            ),
            ("4883 640e ffc1 c0bf", C5[1], 222),
            (
                "88c1 6196 d07a be94 1054 d444 a820 0595 040b 8166 e084 a62d 1bff c05a 839b d9ab 77ad 94e7 821d d7f2
                 e6c7 b335 dfdf cd5b 3960 d5af 2708 7f36 72c1 ab27 0fb5 291f 9587 3160 65c0 03ed 4ee5 b106 3d50 07",
                C5[2],
                215,
            ),
        ]);
    }

    #[test]
    fn rfc7541_c1_integers_and_their_limit() {
        for (bytes, bits, expected) in [
            (&[0x0a][..], 5, Ok(10)),
            (&[0x1f, 0x9a, 0x0a], 5, Ok(1337)),
            (&[0x2a], 8, Ok(42)),
            (&[0x1f, 0x80, 0x80, 0x80, 0x00], 5, Ok(31)),
            (&[0x1f, 0x80, 0x80, 0x80, 0x80, 0x00], 5, Err(InvalidBlock)),
            (&[0xff, 0xff, 0xff, 0xff, 0x7f], 7, Ok(127 + 0x0fff_ffff)),
            (&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff], 7, Err(InvalidBlock)),
            (&[0x1f], 5, Err(InvalidBlock)),
            (&[], 5, Err(InvalidBlock)),
        ] {
            assert_eq!(integer(&mut { bytes }, bits), expected, "{bytes:x?}");
        }
    }

    #[test]
    fn invalid_blocks_are_rejected() {
        for block in [
            "80",                // index 0
            "be",                // empty table
            "ff80 8080 8080 00", // integer too long
            "7f00",              // name index beyond the tables: 63
            "3fe2 1f",           // 4097 bytes of table: more than offered
            "8220",              // a size update after a field
            "4003 6162",         // a string that ends too early
            "4081 ff 00",        // bad padding
            "40",                // no name
            "2020 2082",         // a third size update
        ] {
            assert_eq!(read(&mut Decoder::new(), &hex(block)), Err(InvalidBlock), "{block}");
        }
        assert_eq!(read(&mut Decoder::new(), &hex("203fe11f82")), Ok(vec![":method: GET".to_owned()]));
    }

    #[test]
    fn the_table_never_outgrows_its_size_and_a_field_larger_than_it_empties_it() {
        let mut decoder = Decoder::new();
        for n in 0..2000u32 {
            let value = vec![b'v'; (n * 37 % 900) as usize];
            let mut block = vec![0x40, 1, b'a' + (n % 26) as u8, 0x7f];
            block.truncate(3);
            if value.len() < 127 {
                block.push(value.len() as u8);
            } else {
                let rest = value.len() - 127;
                block.extend([0x7f, (rest & 0x7f | 0x80) as u8, (rest >> 7) as u8]);
            }
            block.extend(&value);
            read(&mut decoder, &block).unwrap();
            assert!(decoder.table_size() <= 4096);
        }
        let generation = decoder.generation();
        let mut block = vec![0x40, 1, b'a', 0x7f, 0x81, 0x1f];
        block.extend(vec![b'v'; 127 + 1 + (0x1f << 7)]);
        read(&mut decoder, &block).unwrap();
        assert_eq!(decoder.table_size(), 0);
        assert!(decoder.generation() > generation);
    }

    #[test]
    fn the_generation_is_unchanged_by_blocks_without_insertions() {
        let mut decoder = Decoder::new();
        read(&mut decoder, &hex("8286 8441 0f77 7777 2e65 7861 6d70 6c65 2e63 6f6d")).unwrap();
        let generation = decoder.generation();
        read(&mut decoder, &hex("8286 84be")).unwrap();
        assert_eq!(decoder.generation(), generation);
        read(&mut decoder, &hex("20")).unwrap();
        assert!(decoder.generation() > generation, "an emptied table means something else");
    }
}
