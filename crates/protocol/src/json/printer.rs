//! Builds text that may become long. Long text is moved in parts to a buffer that is allowed and lent as it grows
//! (`tensor::allowance`), so the part being printed stays in the CPU cache and the buffer's pages can be reused ones.

use super::tensor_data::write_in_parts;
use bytes::Bytes;
use tensor::allowance::{self, Buffer};
use tensor::{DataType, Result};

/// Printed bytes at which the text is moved to the buffer.
const PART_BYTES: usize = 8 << 10;
/// Spare room of a new buffer, in 1/8 of the text that is expected to follow, because lengths of numbers vary.
const SPARE_EIGHTHS: usize = 1;

/// A text that is being built.
pub(crate) struct Printer {
    /// The text, or the end of it that was not moved.
    pub tail: Vec<u8>,
    /// The text that was moved out of `tail`; `None` if the text stays in plain memory.
    moved: Option<Moved>,
}

#[derive(Default)]
struct Moved {
    buffer: Option<Buffer>,
    /// Bytes of the buffer, and the number of used ones.
    length: usize,
    used: usize,
}

impl Printer {
    /// Starts a text of at most about `room` bytes, of which `apart` do not belong to tensors.
    ///
    /// # Errors
    /// RESOURCE_EXHAUSTED when the thread may not have more memory, or the system has none left.
    pub fn new(room: usize, apart: usize) -> Result<Self> {
        if allowance::lender(room).is_none() {
            return Ok(Self { tail: allowance::unasked(room)?, moved: None });
        }
        let mut tail = Vec::new();
        allowance::grow_by(&mut tail, apart + 2 * PART_BYTES)?;
        Ok(Self { tail, moved: Some(Moved::default()) })
    }

    pub fn len(&self) -> usize {
        self.tail.len() + self.moved.as_ref().map_or(0, |moved| moved.used)
    }

    /// Appends a tensor as a flat array.
    ///
    /// # Errors
    /// FP16 and BF16, contents that do not match the shape, and RESOURCE_EXHAUSTED without memory.
    pub fn tensor(&mut self, datatype: DataType, shape: &[i64], data: &[u8]) -> Result<()> {
        let Self { tail, moved } = self;
        write_in_parts(tail, datatype, shape, data, false, &mut |tail, more| match moved {
            Some(moved) if tail.len() >= PART_BYTES => moved.take(tail, more),
            _ => Ok(()),
        })
    }

    ///
    /// # Errors
    /// RESOURCE_EXHAUSTED when the thread may not have more memory, or the system has none left.
    pub fn into_bytes(mut self) -> Result<Bytes> {
        let Some(mut moved) = self.moved else { return Ok(self.tail.into()) };
        if moved.buffer.is_none() {
            return Ok(self.tail.into());
        }
        moved.take(&mut self.tail, 0)?;
        Ok(moved.buffer.map_or_else(Bytes::new, |buffer| buffer.freeze(moved.used)))
    }
}

impl Moved {
    /// Moves `tail` to the end of the buffer; about `more` bytes will follow.
    fn take(&mut self, tail: &mut Vec<u8>, more: usize) -> Result<()> {
        let end = self.used + tail.len();
        if end > self.length {
            self.grow(end + more + more / 8 * SPARE_EIGHTHS)?;
        }
        if let Some(place) = self.buffer.as_mut().and_then(|buffer| buffer.window(self.used..end).get_mut(..tail.len()))
        {
            place.copy_from_slice(tail);
        }
        self.used = end;
        tail.clear();
        Ok(())
    }

    /// Moves the used bytes to a larger buffer.
    fn grow(&mut self, length: usize) -> Result<()> {
        let length = length.max(self.length / 2 * 3).max(allowance::UNASKED_BYTES_MAX + 1);
        let mut larger = Buffer::new(length)?;
        if let Some(mut buffer) = self.buffer.take() {
            larger.window(0..self.used).copy_from_slice(buffer.window(0..self.used));
        }
        self.buffer = Some(larger);
        self.length = length;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::{Cursor, fill};
    use std::cell::Cell;
    use std::ops::Range;
    use tensor::Error;
    use tensor::allowance::Lent;

    /// Lent memory that is not zeroed.
    struct Used(Vec<u8>);

    thread_local! { static LENT: Cell<usize> = const { Cell::new(0) }; }

    impl Lent for Used {
        fn window(&mut self, range: Range<usize>) -> &mut [u8] {
            self.0.get_mut(range).unwrap_or_default()
        }

        fn freeze(self: Box<Self>, len: usize) -> Bytes {
            Bytes::from(self.0).split_to(len)
        }
    }

    fn lend(len: usize) -> Result<Box<dyn Lent>> {
        LENT.set(LENT.get() + 1);
        Ok(Box::new(Used(vec![b'?'; len])))
    }

    fn print(datatype: DataType, count: usize, data: &[u8]) -> Result<Bytes> {
        let mut text = Printer::new(22 * count + data.len(), 100)?;
        text.tail.extend_from_slice(b"{\"data\":");
        text.tensor(datatype, &[count as i64], data)?;
        text.tail.push(b'}');
        let length = text.len();
        let bytes = text.into_bytes()?;
        assert_eq!(bytes.len(), length);
        Ok(bytes)
    }

    /// Runs `work` with an allowance of `allowed` bytes.
    fn within<T>(mut allowed: usize, work: impl FnOnce() -> T) -> T {
        let ask = move |bytes| {
            allowed = allowed.checked_sub(bytes).ok_or_else(|| Error::exhausted("enough"))?;
            Ok(())
        };
        allowance::within(Box::new(ask), lend, work)
    }

    #[test]
    fn text_in_lent_memory_equals_text_in_plain_memory() {
        let floats: Vec<u8> = (0..50_000).flat_map(|n| (n as f32 / 777.0 - 30.0).to_le_bytes()).collect();
        // Short at first, so that more follows than expected.
        let integers: Vec<u8> = (0..40_000i64).flat_map(|n| (n / 20_000 * i64::MAX - n % 7).to_le_bytes()).collect();
        let long = "a\n\"ü".repeat(100_000);
        let strings = ["", &long, "x"].map(|s| [&(s.len() as u32).to_le_bytes(), s.as_bytes()].concat()).concat();
        let empty = vec![0; 4 * 100_000];
        for (datatype, count, data, buffers) in [
            (DataType::Fp32, 50_000, &floats, 1),
            (DataType::Int64, 40_000, &integers, 4),
            (DataType::Bytes, 3, &strings, 2),
            (DataType::Bytes, 100_000, &empty, 1),
            (DataType::Uint8, 100_000, &vec![200; 100_000], 1),
            (DataType::Fp32, 5, &vec![0; 20], 0),
        ] {
            let plain = print(datatype, count, data).expect("memory");
            LENT.set(0);
            let lent = within(usize::MAX, || print(datatype, count, data)).expect("allowed");
            assert!(lent == plain, "{datatype:?}");
            assert_eq!(LENT.get(), buffers, "{datatype:?}");
            let read = || fill(&mut Cursor::new(&plain[8..]), datatype, count).expect("our own text");
            assert!(read() == *data && within(usize::MAX, read) == *data, "{datatype:?}");
        }
        assert!(within(1 << 21, || print(DataType::Fp32, 50_000, &floats)).is_ok());
        let refused = within(1 << 19, || print(DataType::Fp32, 50_000, &floats).expect_err("half of one is not"));
        assert_eq!(refused, Error::exhausted("enough"));
    }
}
