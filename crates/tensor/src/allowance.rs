//! Permission to allocate a large buffer for a request or a response.
//!
//! Parsers and printers know neither the memory budget nor the pool. The thread that calls them sets both with
//! [`within`], and they ask here before they allocate. Small buffers, and threads outside [`within`], use plain memory
//! without asking: only the system can fail them.

use crate::{Error, Result};
use bytes::Bytes;
use std::cell::RefCell;
use std::ops::Range;
use std::sync::OnceLock;

/// Largest buffer that is allocated without asking.
pub const UNASKED_BYTES_MAX: usize = 64 << 10;

/// Returns an error if this many more bytes may not be allocated.
pub type Ask = Box<dyn FnMut(usize) -> Result<()>>;

/// Memory for one large buffer. Its initial contents are unspecified: the borrower writes every byte that it freezes.
pub trait Lent: Send {
    /// A part that is about to be written; empty beyond the end. Other parts need no memory yet.
    fn window(&mut self, range: Range<usize>) -> &mut [u8];

    /// The first `len` bytes, immutable. The memory returns to the lender with their last view.
    fn freeze(self: Box<Self>, len: usize) -> Bytes;
}

/// Lends this many bytes.
pub type Lend = fn(usize) -> Result<Box<dyn Lent>>;

/// Runs the closure, which allocates this many bytes and returns whether it could; or returns false without running it
/// to leave the memory to the system.
pub type Allocate = fn(usize, &mut dyn FnMut() -> bool) -> bool;

static ALLOCATE: OnceLock<Allocate> = OnceLock::new();

/// Allocates all large plain buffers of the process through `with`. Only the first call has an effect.
pub fn allocate_with(with: Allocate) {
    _ = ALLOCATE.set(with);
}

thread_local! { static MEANS: RefCell<Option<(Ask, Lend)>> = const { RefCell::new(None) }; }

/// Restores the previous permission and lender of the thread when dropped, also after a panic.
struct Restore(Option<(Ask, Lend)>);

impl Drop for Restore {
    fn drop(&mut self) {
        MEANS.set(self.0.take());
    }
}

/// Runs `work`: its large buffers are first allowed by `ask`, and each [`Buffer`] is lent by `lend`.
pub fn within<T>(ask: Ask, lend: Lend, work: impl FnOnce() -> T) -> T {
    let _restore = Restore(MEANS.replace(Some((ask, lend))));
    work()
}

/// Asks for this many more bytes.
///
/// # Errors
/// The error of the thread's [`Ask`].
pub fn ask(bytes: usize) -> Result<()> {
    if bytes <= UNASKED_BYTES_MAX {
        return Ok(());
    }
    MEANS.with_borrow_mut(|means| means.as_mut().map_or(Ok(()), |(ask, _)| ask(bytes)))
}

/// The lender of a buffer of `len` bytes; `None` if it uses plain memory.
pub fn lender(len: usize) -> Option<Lend> {
    if len <= UNASKED_BYTES_MAX {
        return None;
    }
    MEANS.with_borrow(|means| means.as_ref().map(|(_, lend)| *lend))
}

/// A buffer of known length. Its initial contents are unspecified: its owner writes every byte that it freezes.
pub struct Buffer(BufferMemory);

enum BufferMemory {
    Plain(Vec<u8>),
    Lent(Box<dyn Lent>),
}

impl Buffer {
    /// Allocates a buffer of `len` bytes.
    ///
    /// # Errors
    /// RESOURCE_EXHAUSTED when the thread may not have more memory, or the system has none left.
    pub fn new(len: usize) -> Result<Self> {
        ask(len)?;
        if let Some(lend) = lender(len) {
            return Ok(Self(BufferMemory::Lent(lend(len)?)));
        }
        let mut plain = unasked(len)?;
        plain.resize(len, 0);
        Ok(Self(BufferMemory::Plain(plain)))
    }

    /// A part that is about to be written; empty beyond the end.
    pub fn window(&mut self, range: Range<usize>) -> &mut [u8] {
        match &mut self.0 {
            BufferMemory::Plain(plain) => plain.get_mut(range).unwrap_or_default(),
            BufferMemory::Lent(lent) => lent.window(range),
        }
    }

    /// The first `len` bytes, immutable and reference-counted.
    pub fn freeze(self, len: usize) -> Bytes {
        match self.0 {
            BufferMemory::Plain(mut plain) => {
                plain.truncate(len);
                plain.into()
            }
            BufferMemory::Lent(lent) => lent.freeze(len),
        }
    }
}

/// Makes room for `more` bytes at the end of `buffer`, which at least doubles when it grows.
///
/// # Errors
/// RESOURCE_EXHAUSTED when the thread may not have more memory, or the system has none left.
#[inline]
pub fn reserve(buffer: &mut Vec<u8>, more: usize) -> Result<()> {
    if buffer.capacity() - buffer.len() >= more { Ok(()) } else { grow(buffer, more) }
}

#[cold]
fn grow(buffer: &mut Vec<u8>, more: usize) -> Result<()> {
    grow_by(buffer, more.max(buffer.len()))
}

/// Makes room for exactly `more` bytes, for callers that choose their own growth steps.
///
/// # Errors
/// RESOURCE_EXHAUSTED when the thread may not have more memory, or the system has none left.
pub fn grow_by(buffer: &mut Vec<u8>, more: usize) -> Result<()> {
    ask(more)?;
    allocate(buffer, more)
}

/// An empty buffer with room for `len` bytes. The caller asks later, when it knows how many it will write.
///
/// # Errors
/// RESOURCE_EXHAUSTED when the system has no memory.
#[inline]
pub fn unasked(len: usize) -> Result<Vec<u8>> {
    // Most responses: small enough to use the infallible allocation.
    if len <= UNASKED_BYTES_MAX {
        return Ok(Vec::with_capacity(len));
    }
    let mut buffer = Vec::new();
    allocate(&mut buffer, len)?;
    Ok(buffer)
}

fn allocate(buffer: &mut Vec<u8>, more: usize) -> Result<()> {
    let mut reserve = || buffer.try_reserve_exact(more).is_ok();
    let is_reserved = match ALLOCATE.get().filter(|_| more > UNASKED_BYTES_MAX) {
        Some(with) => with(more, &mut reserve),
        None => reserve(),
    };
    if is_reserved {
        return Ok(());
    }
    Err(Error::exhausted(format!("cannot allocate {more} bytes: the system has no memory left")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use std::rc::Rc;

    /// Lent memory that is not zeroed.
    struct Dirty(Vec<u8>);

    impl Lent for Dirty {
        fn window(&mut self, range: Range<usize>) -> &mut [u8] {
            self.0.get_mut(range).unwrap_or_default()
        }

        fn freeze(self: Box<Self>, len: usize) -> Bytes {
            Bytes::from(self.0).split_to(len)
        }
    }

    fn lend(len: usize) -> Result<Box<dyn Lent>> {
        Ok(Box::new(Dirty(vec![7; len])))
    }

    fn contents(buffer: Result<Buffer>, len: usize) -> Result<(usize, Option<u8>)> {
        buffer.map(|buffer| buffer.freeze(len)).map(|bytes| (bytes.len(), bytes.first().copied()))
    }

    #[test]
    #[cfg_attr(miri, ignore = "a megabyte takes minutes under Miri, and the code has no unsafe")]
    fn only_large_buffers_are_asked_for_and_lent() {
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
        assert_eq!(contents(Buffer::new(1 << 20), 1 << 20), Ok((1 << 20, Some(0))), "outside within");
        assert!(contents(Buffer::new(usize::MAX / 2), 0).is_err_and(|e| e.message().contains("no memory left")));
    }
}
