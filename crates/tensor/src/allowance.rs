//! Large buffers that are made from what a client sent, or for its answer: code that makes one asks first.
//!
//! Parsers and printers are pure and know of no budget. The thread that calls them says [`within`] what they may make buffers, and
//! they ask here before they do. Without such a call, and for small buffers, there is nothing to ask: only the system can say no.

use crate::{Error, Result};
use std::cell::RefCell;

/// Buffers up to this size are made without a question.
pub const UNASKED_BYTES_MAX: usize = 64 << 10;

/// Decides whether so many bytes more may be held.
pub type Ask = Box<dyn FnMut(usize) -> Result<()>>;

thread_local! { static ASK: RefCell<Option<Ask>> = const { RefCell::new(None) }; }

/// Puts back what was there before, also when the work panics.
struct Before(Option<Ask>);

impl Drop for Before {
    fn drop(&mut self) {
        ASK.set(self.0.take());
    }
}

/// Does `work`, whose large buffers are `ask`ed for.
pub fn within<T>(ask: Ask, work: impl FnOnce() -> T) -> T {
    let _before = Before(ASK.replace(Some(ask)));
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
    ASK.with_borrow_mut(|ask| ask.as_mut().map_or(Ok(()), |ask| ask(bytes)))
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
pub fn unasked(len: usize) -> Result<Vec<u8>> {
    let mut buffer = Vec::new();
    allocate(&mut buffer, len)?;
    Ok(buffer)
}

fn allocate(buffer: &mut Vec<u8>, more: usize) -> Result<()> {
    let refused = |_| Error::exhausted(format!("cannot allocate {more} bytes: the system has no memory to give"));
    buffer.try_reserve_exact(more).map_err(refused)
}

/// A buffer of `len` zeros.
///
/// # Errors
/// As [`reserve`].
pub fn zeroed(len: usize) -> Result<Vec<u8>> {
    let mut buffer = Vec::new();
    reserve(&mut buffer, len)?;
    buffer.resize(len, 0);
    Ok(buffer)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use std::rc::Rc;

    #[test]
    #[cfg_attr(miri, ignore = "a megabyte takes Miri minutes, and there is nothing unsafe in it")]
    fn large_buffers_are_asked_for_and_small_ones_are_not() {
        let asked = Rc::new(Cell::new(0));
        let seen = asked.clone();
        let allow = move |bytes| {
            seen.set(seen.get() + bytes);
            if seen.get() <= 1 << 20 { Ok(()) } else { Err(Error::exhausted("enough")) }
        };
        within(Box::new(allow), || {
            assert_eq!(zeroed(UNASKED_BYTES_MAX).map(|b| b.len()), Ok(UNASKED_BYTES_MAX));
            assert_eq!(asked.get(), 0);
            let mut buffer = zeroed(100_000).expect("allowed");
            assert_eq!(asked.get(), 100_000);
            reserve(&mut buffer, 1).expect("allowed");
            assert_eq!((asked.get(), buffer.capacity()), (200_000, 200_000), "grows by doubling");
            assert_eq!(zeroed(1 << 20), Err(Error::exhausted("enough")));
        });
        assert_eq!(zeroed(1 << 20).map(|b| b.len()), Ok(1 << 20), "nobody to ask");
        assert!(zeroed(usize::MAX / 2).is_err_and(|e| e.message().contains("no memory to give")));
    }
}
