//! Serialises entries for stores outside of this process. Pure.
//!
//! A stored text is untrusted: another version of the server, another program or a faulty disk may have written it. It
//! is an entry only if its format, its checksum and the sizes of its tensors are right, and it was written for its key.
//!
//! Format, numbers little-endian: `NRDC`, version 1 (one byte), 16 bytes of checksum of the key and all that follows;
//! number of requested outputs (u16) and their indices (u16 each, ascending); number of outputs (u16); for each output,
//! ascending: index (u16), datatype (u8), number of dimensions (u8), the dimensions (i64 each), bytes (u64); then their
//! contents in the same order.

use crate::entry::{CachedOutput, Entry, OutputSet};
use crate::key::Key;
use bytes::Bytes;
use smallvec::SmallVec;
use tensor::strings::Strings;
use tensor::{DataType, Shape, element_count};

const MAGIC: &[u8; 4] = b"NRDC";
const VERSION: u8 = 1;
const CHECKSUM: usize = 16;
const HEAD: usize = MAGIC.len() + 1 + CHECKSUM;
/// Most dimensions of a tensor.
const RANK_MAX: usize = 255;

/// Bytes of a stored entry with these outputs; `None` if their numbers exceed the format.
pub fn stored_bytes(asked: &OutputSet, outputs: &[CachedOutput]) -> Option<usize> {
    u16::try_from(asked.indices().len()).ok()?;
    u16::try_from(outputs.len()).ok()?;
    let mut bytes = HEAD + 2 + asked.indices().len() * 2 + 2;
    for output in outputs {
        if output.shape.len() > RANK_MAX {
            return None;
        }
        bytes = bytes.checked_add(12 + output.shape.len() * 8)?.checked_add(output.data.len())?;
    }
    Some(bytes)
}

/// Serialises an entry. `None` as for `stored_bytes`.
pub fn store(key: &Key, asked: &OutputSet, outputs: &[CachedOutput]) -> Option<Vec<u8>> {
    let mut text = Vec::with_capacity(stored_bytes(asked, outputs)?);
    text.extend_from_slice(MAGIC);
    text.push(VERSION);
    text.extend_from_slice(&[0; CHECKSUM]);
    text.extend_from_slice(&u16::try_from(asked.indices().len()).ok()?.to_le_bytes());
    asked.indices().iter().for_each(|i| text.extend_from_slice(&i.to_le_bytes()));
    text.extend_from_slice(&u16::try_from(outputs.len()).ok()?.to_le_bytes());
    for output in outputs {
        text.extend_from_slice(&output.index.to_le_bytes());
        text.push(output.datatype as u8);
        text.push(u8::try_from(output.shape.len()).ok()?);
        output.shape.iter().for_each(|d| text.extend_from_slice(&d.to_le_bytes()));
        text.extend_from_slice(&(output.data.len() as u64).to_le_bytes());
    }
    outputs.iter().for_each(|o| text.extend_from_slice(&o.data));
    let sum = checksum(key, text.get(HEAD..)?);
    text.get_mut(HEAD - CHECKSUM..HEAD)?.copy_from_slice(&sum);
    Some(text)
}

/// Reads an entry that was stored with this key; `None` for any other text. Its contents are views of the text.
pub fn restore(key: &Key, text: &Bytes) -> Option<Entry> {
    let mut reader = StoredReader { rest: text };
    if reader.take::<4>()? != MAGIC || *reader.take::<1>()? != [VERSION] {
        return None;
    }
    let sum = *reader.take::<CHECKSUM>()?;
    if sum != checksum(key, reader.rest) {
        return None;
    }
    let count = reader.u16()?;
    let asked = (0..count).map(|_| reader.u16()).collect::<Option<SmallVec<[u16; 4]>>>()?;
    if !ascends(asked.iter().copied()) {
        return None;
    }
    let count = reader.u16()?;
    let mut outputs: SmallVec<[CachedOutput; 2]> = SmallVec::new();
    let mut lengths: SmallVec<[usize; 2]> = SmallVec::new();
    for _ in 0..count {
        let index = reader.u16()?;
        let [datatype, rank] = *reader.take::<2>()?;
        let datatype = DataType::from_number(datatype.into())?;
        let shape = (0..rank).map(|_| reader.take().map(|b| i64::from_le_bytes(*b))).collect::<Option<Shape>>()?;
        lengths.push(usize::try_from(u64::from_le_bytes(*reader.take()?)).ok()?);
        outputs.push(CachedOutput { index, datatype, shape, data: Bytes::new() });
    }
    if !ascends(outputs.iter().map(|o| o.index)) {
        return None;
    }
    for (output, length) in outputs.iter_mut().zip(lengths) {
        output.data = text.slice_ref(reader.split(length)?);
        if !is_whole(output) {
            return None;
        }
    }
    reader.rest.is_empty().then(|| Entry::of(OutputSet::new(asked.into_iter()), outputs))
}

/// True if the contents match datatype and shape.
fn is_whole(output: &CachedOutput) -> bool {
    let Some(elements) = element_count(&output.shape) else { return false };
    match output.datatype.byte_size() {
        Some(size) => elements.checked_mul(size as i64).is_some_and(|bytes| bytes as u64 == output.data.len() as u64),
        None => {
            let mut count = 0i64;
            Strings::new(&output.data).all(|s| {
                count += 1;
                s.is_ok()
            }) && count == elements
        }
    }
}

fn ascends(indices: impl Iterator<Item = u16>) -> bool {
    let mut last = None;
    indices.into_iter().all(|i| last.replace(i).is_none_or(|before| before < i))
}

fn checksum(key: &Key, body: &[u8]) -> [u8; CHECKSUM] {
    let mut hash = blake3::Hasher::new();
    hash.update(&key.bytes());
    hash.update(body);
    let mut sum = [0; CHECKSUM];
    hash.finalize_xof().fill(&mut sum);
    sum
}

struct StoredReader<'t> {
    rest: &'t [u8],
}

impl<'t> StoredReader<'t> {
    fn take<const N: usize>(&mut self) -> Option<&'t [u8; N]> {
        let (head, rest) = self.rest.split_first_chunk::<N>()?;
        self.rest = rest;
        Some(head)
    }

    fn u16(&mut self) -> Option<u16> {
        self.take().map(|b| u16::from_le_bytes(*b))
    }

    fn split(&mut self, length: usize) -> Option<&'t [u8]> {
        let (head, rest) = self.rest.split_at_checked(length)?;
        self.rest = rest;
        Some(head)
    }
}

/// Fuzz target: reads a text, and again with a corrected checksum; true if either is an entry. Checks that an entry is
/// serialised to the same text.
#[doc(hidden)]
pub fn fuzz(text: &[u8]) -> bool {
    let key = Key { hash: 1, rest: 2, scope: 0 };
    let mut sealed = text.to_vec();
    if let Some(body) = text.get(HEAD..) {
        let sum = checksum(&key, body);
        if let Some(place) = sealed.get_mut(..HEAD) {
            place[..MAGIC.len()].copy_from_slice(MAGIC);
            place[MAGIC.len()] = VERSION;
            place[HEAD - CHECKSUM..].copy_from_slice(&sum);
        }
    }
    let mut accepted = false;
    for text in [Bytes::copy_from_slice(text), Bytes::from(sealed)] {
        let Some(entry) = restore(&key, &text) else { continue };
        let again = store(&key, entry.asked(), entry.outputs());
        assert_eq!(again.as_deref(), Some(&text[..]), "an entry has one text");
        accepted = true;
    }
    accepted
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const KEY: Key = Key { hash: 7, rest: 8, scope: 0 };

    fn output(index: u16, datatype: DataType, shape: &[i64], data: &[u8]) -> CachedOutput {
        CachedOutput { index, datatype, shape: Shape::from_slice(shape), data: Bytes::copy_from_slice(data) }
    }

    fn sample() -> (OutputSet, Vec<CachedOutput>) {
        let outputs = vec![
            output(0, DataType::Fp32, &[1, 2], &[1, 2, 3, 4, 5, 6, 7, 8]),
            output(3, DataType::Bytes, &[2], b"\x01\0\0\0a\0\0\0\0"),
            output(4, DataType::Int64, &[0, 5], b""),
        ];
        (OutputSet::new([0u16, 3, 4, 9].into_iter()), outputs)
    }

    #[test]
    fn s39_a_stored_entry_reads_back_equal() {
        let (asked, outputs) = sample();
        let text = store(&KEY, &asked, &outputs).expect("it fits");
        assert_eq!(stored_bytes(&asked, &outputs), Some(text.len()));
        let entry = restore(&KEY, &text.into()).expect("an entry");
        assert_eq!((entry.asked(), entry.outputs()), (&asked, &outputs[..]));
    }

    #[test]
    fn s39_a_cut_or_changed_text_or_another_key_is_no_entry() {
        let (asked, outputs) = sample();
        let text = store(&KEY, &asked, &outputs).expect("it fits");
        assert_eq!(restore(&Key { rest: 9, ..KEY }, &text.clone().into()), None, "another key");
        for end in 0..text.len() {
            assert_eq!(restore(&KEY, &Bytes::copy_from_slice(&text[..end])), None, "{end} bytes");
        }
        for bit in 0..text.len() * 8 {
            let mut changed = text.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(restore(&KEY, &changed.into()), None, "bit {bit}");
        }
        assert_eq!(restore(&KEY, &[&text[..], b"x"].concat().into()), None, "more behind");
    }

    #[test]
    fn s39_a_text_with_incomplete_tensors_is_no_entry() {
        for (what, wrong) in [
            ("too few bytes", output(0, DataType::Fp32, &[2], &[0; 4])),
            ("too many", output(0, DataType::Fp32, &[1], &[0; 8])),
            ("a negative dimension", output(0, DataType::Fp32, &[-1], b"")),
            ("a product that does not fit", output(0, DataType::Fp64, &[i64::MAX, 2], b"")),
            ("an element that is cut", output(0, DataType::Bytes, &[1], b"\x02\0\0\0a")),
            ("one element of two", output(0, DataType::Bytes, &[2], b"\x01\0\0\0a")),
        ] {
            let text = store(&KEY, &OutputSet::default(), &[wrong]).expect("it fits");
            assert_eq!(restore(&KEY, &text.into()), None, "{what}");
        }
        let (_, mut outputs) = sample();
        outputs.reverse();
        let text = store(&KEY, &OutputSet::default(), &outputs).expect("it fits");
        assert_eq!(restore(&KEY, &text.into()), None, "indices do not ascend");
    }

    proptest! {
        #[test]
        fn s39_any_bytes_are_read_without_a_panic(text in prop::collection::vec(any::<u8>(), 0..200)) {
            fuzz(&text);
        }
    }
}
