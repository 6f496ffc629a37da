//! Large buffers that are made from what a client sent, or for its answer: code that makes one asks first.
//!
//! Parsers and printers are pure and know of no budget and no pool. The thread that calls them says [`within`] what they may make
//! buffers, and of which memory; they ask here before they do. Without such a call, and for small buffers, there is nothing to ask,
//! and memory is plain: only the system can say no.

use crate::{Error, Result};
use bytes::Bytes;
use std::cell::RefCell;
use std::ops::Range;
use std::sync::OnceLock;

/// Buffers up to this size are made without a question.
pub const UNASKED_BYTES_MAX: usize = 64 << 10;

/// Decides whether so many bytes more may be held.
pub type Ask = Box<dyn FnMut(usize) -> Result<()>>;

/// Memory for one large buffer. What it holds at first is unspecified: the borrower writes all that is frozen.
pub trait Lent: Send {
    /// A part that is about to be written; empty beyond the end. Other parts need not take memory yet.
    fn window(&mut self, range: Range<usize>) -> &mut [u8];

    /// The first `len` bytes, immutable. The memory goes back with their last view.
    fn freeze(self: Box<Self>, len: usize) -> Bytes;
}

/// Lends memory for so many bytes.
pub type Lend = fn(usize) -> Result<Box<dyn Lent>>;

/// Does what gets so many bytes from the system, and says whether it got them; or does not do it, where the system is to keep them.
pub type Take = fn(usize, &mut dyn FnMut() -> bool) -> bool;

static TAKE: OnceLock<Take> = OnceLock::new();

/// Has all large plain buffers of the process be got `with` this. The first one counts.
pub fn take_with(with: Take) {
    _ = TAKE.set(with);
}

thread_local! { static MEANS: RefCell<Option<(Ask, Lend)>> = const { RefCell::new(None) }; }

/// Puts back what was there before, also when the work panics.
struct Before(Option<(Ask, Lend)>);

impl Drop for Before {
    fn drop(&mut self) {
        MEANS.set(self.0.take());
    }
}

/// Does `work`, whose large buffers are `ask`ed for, and are `lend`'s where it can do with a [`Buffer`].
pub fn within<T>(ask: Ask, lend: Lend, work: impl FnOnce() -> T) -> T {
    let _before = Before(MEANS.replace(Some((ask, lend))));
    work()
}

/// Asks for so many bytes more.
///
/// # Errors
/// Whatever the answer is.
pub fn ask(bytes: usize) -> Result<()> {
    if bytes <= UNASKED_BYTES_MAX {
        return Ok(());
    }
    MEANS.with_borrow_mut(|means| means.as_mut().map_or(Ok(()), |(ask, _)| ask(bytes)))
}

/// Who lends memory for a buffer of `len` bytes; `None` where it is plain.
pub fn lender(len: usize) -> Option<Lend> {
    if len <= UNASKED_BYTES_MAX {
        return None;
    }
    MEANS.with_borrow(|means| means.as_ref().map(|(_, lend)| *lend))
}

/// A buffer of known length. What it holds at first is unspecified: its owner writes all that is frozen.
pub struct Buffer(Memory);

enum Memory {
    Plain(Vec<u8>),
    Lent(Box<dyn Lent>),
}

impl Buffer {
    /// A buffer of `len` bytes.
    ///
    /// # Errors
    /// As [`reserve`].
    pub fn new(len: usize) -> Result<Self> {
        ask(len)?;
        if let Some(lend) = lender(len) {
            return Ok(Self(Memory::Lent(lend(len)?)));
        }
        let mut plain = unasked(len)?;
        plain.resize(len, 0);
        Ok(Self(Memory::Plain(plain)))
    }

    /// A part that is about to be written; empty beyond the end.
    pub fn window(&mut self, range: Range<usize>) -> &mut [u8] {
        match &mut self.0 {
            Memory::Plain(plain) => plain.get_mut(range).unwrap_or_default(),
            Memory::Lent(lent) => lent.window(range),
        }
    }

    /// The first `len` bytes, immutable and counted.
    pub fn freeze(self, len: usize) -> Bytes {
        match self.0 {
            Memory::Plain(mut plain) => {
                plain.truncate(len);
                plain.into()
            }
            Memory::Lent(lent) => lent.freeze(len),
        }
    }
}

/// Makes room for `more` bytes behind what is in `buffer`. Asked for bit by bit it grows like any `Vec`.
///
/// # Errors
/// Those of [`ask`]; RESOURCE_EXHAUSTED when the system gives no memory.
#[inline]
pub fn reserve(buffer: &mut Vec<u8>, more: usize) -> Result<()> {
    if buffer.capacity() - buffer.len() >= more { Ok(()) } else { grow(buffer, more) }
}

#[cold]
fn grow(buffer: &mut Vec<u8>, more: usize) -> Result<()> {
    grow_by(buffer, more.max(buffer.len()))
}

/// As [`reserve`], so many bytes and no more: for callers that grow in steps of their own.
///
/// # Errors
/// As [`reserve`].
pub fn grow_by(buffer: &mut Vec<u8>, more: usize) -> Result<()> {
    ask(more)?;
    allocate(buffer, more)
}

/// An empty buffer with room for `len` bytes, which the caller asks for when it knows how many it will write.
///
/// # Errors
/// RESOURCE_EXHAUSTED when the system gives no memory.
#[inline]
pub fn unasked(len: usize) -> Result<Vec<u8>> {
    // Most answers; so little is asked of the allocator as everywhere.
    if len <= UNASKED_BYTES_MAX {
        return Ok(Vec::with_capacity(len));
    }
    let mut buffer = Vec::new();
    allocate(&mut buffer, len)?;
    Ok(buffer)
}

fn allocate(buffer: &mut Vec<u8>, more: usize) -> Result<()> {
    let mut take = || buffer.try_reserve_exact(more).is_ok();
    let is_taken = match TAKE.get().filter(|_| more > UNASKED_BYTES_MAX) {
        Some(with) => with(more, &mut take),
        None => take(),
    };
    if is_taken {
        return Ok(());
    }
    Err(Error::exhausted(format!("cannot allocate {more} bytes: the system has no memory to give")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use std::rc::Rc;

    /// Memory that was used before.
    struct Used(Vec<u8>);

    impl Lent for Used {
        fn window(&mut self, range: Range<usize>) -> &mut [u8] {
            self.0.get_mut(range).unwrap_or_default()
        }

        fn freeze(self: Box<Self>, len: usize) -> Bytes {
            Bytes::from(self.0).split_to(len)
        }
    }

    fn lend(len: usize) -> Result<Box<dyn Lent>> {
        Ok(Box::new(Used(vec![7; len])))
    }

    fn contents(buffer: Result<Buffer>, len: usize) -> Result<(usize, Option<u8>)> {
        buffer.map(|buffer| buffer.freeze(len)).map(|bytes| (bytes.len(), bytes.first().copied()))
    }

    #[test]
    #[cfg_attr(miri, ignore = "a megabyte takes Miri minutes, and there is nothing unsafe in it")]
    fn large_buffers_are_asked_for_and_lent_and_small_ones_are_not() {
        let asked = Rc::new(Cell::new(0));
        let seen = asked.clone();
        let allow = move |bytes| {
            seen.set(seen.get() + bytes);
            if seen.get() <= 1 << 20 { Ok(()) } else { Err(Error::exhausted("enough")) }
        };
        within(Box::new(allow), lend, || {
            assert_eq!(contents(Buffer::new(UNASKED_BYTES_MAX), 10), Ok((10, Some(0))));
            assert_eq!(asked.get(), 0);
            let mut buffer = Buffer::new(100_000).expect("allowed");
            assert_eq!((asked.get(), buffer.window(99_999..100_000).len()), (100_000, 1));
            buffer.window(0..1).fill(1);
            assert_eq!(contents(Ok(buffer), 99_999), Ok((99_999, Some(1))));
            let mut vector = Vec::new();
            reserve(&mut vector, 100_000).expect("allowed");
            vector.resize(100_000, 0);
            reserve(&mut vector, 1).expect("allowed");
            assert_eq!((asked.get(), vector.capacity()), (300_000, 200_000), "grows by doubling");
            assert_eq!(contents(Buffer::new(1 << 20), 0), Err(Error::exhausted("enough")));
        });
        assert_eq!(contents(Buffer::new(1 << 20), 1 << 20), Ok((1 << 20, Some(0))), "nobody to ask");
        assert!(contents(Buffer::new(usize::MAX / 2), 0).is_err_and(|e| e.message().contains("no memory to give")));
    }
}
