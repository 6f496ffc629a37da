//! `TRITONCACHE_*`: entries of a response cache, and the copies between them and the server.

#![allow(unsafe_code)] // pointers of a C API

use super::attributes::BufferAttributes;
use super::exports::{Out, exports, objects, was_null};
use std::ffi::c_void;
use tensor::{Error, Result};

/// Version of the API of caches.
const VERSION: (u32, u32) = (0, 1);

/// Memory type of buffers on a device.
const DEVICE: u32 = 2;

/// The buffers of one response. Those that a cache adds or sets are its own.
#[derive(Default)]
pub(crate) struct CacheEntry {
    buffers: Vec<(*mut c_void, usize)>,
}

impl CacheEntry {
    /// An entry for one response, whose buffer the cache sets.
    pub(crate) fn of(bytes: usize) -> Self {
        Self { buffers: vec![(std::ptr::null_mut(), bytes)] }
    }
}

/// `TRITONCACHE_Allocator`: the server's side of a copy.
pub(crate) enum CacheAllocator {
    /// Takes the contents of an entry that was found.
    Found(Option<Vec<u8>>),
    /// Has the contents of an entry that is stored.
    Stored(Vec<u8>),
}

impl CacheAllocator {
    /// Copies between the server and the buffers of an entry.
    ///
    /// # Safety
    /// The entry's buffers are valid, as its cache promises.
    unsafe fn copy(&mut self, entry: &CacheEntry) -> Result<()> {
        match self {
            Self::Found(contents) => {
                let mut all = Vec::with_capacity(entry.buffers.iter().map(|(_, bytes)| bytes).sum());
                for (base, bytes) in &entry.buffers {
                    // SAFETY: the caller's promise.
                    all.extend_from_slice(unsafe { std::slice::from_raw_parts(base.cast::<u8>(), *bytes) });
                }
                *contents = Some(all);
                Ok(())
            }
            Self::Stored(contents) => match entry.buffers.as_slice() {
                [(base, bytes)] if !base.is_null() && *bytes == contents.len() => {
                    // SAFETY: the caller's promise; the buffer is as long as the contents.
                    unsafe { std::ptr::copy_nonoverlapping(contents.as_ptr(), base.cast::<u8>(), *bytes) };
                    Ok(())
                }
                _ => Err(Error::invalid("the entry has no buffer of the size of its response")),
            },
        }
    }
}

fn requires_cpu(attributes: &BufferAttributes) -> Result<()> {
    if attributes.memory_type < DEVICE {
        return Ok(());
    }
    Err(Error::invalid("Only buffers in CPU memory are allowed in cache currently"))
}

objects! {
    CacheAllocator: "allocator";
    CacheEntry: "entry";
}

exports! {
    /// The version of the API of caches.
    fn TRITONCACHE_ApiVersion(major: Out<u32>, minor: Out<u32>) {
        major.put(VERSION.0);
        minor.put(VERSION.1);
    }

    /// A new entry without buffers.
    fn TRITONCACHE_CacheEntryNew(entry: Out<*mut CacheEntry>) {
        if entry.is_null() {
            return Err(was_null("entry"));
        }
        entry.give(CacheEntry::default());
    }

    /// Deletes an entry that the caller made, and no buffer.
    fn TRITONCACHE_CacheEntryDelete(entry: Box<CacheEntry>) {
        drop(entry);
    }

    /// The number of buffers.
    fn TRITONCACHE_CacheEntryBufferCount(entry: &mut CacheEntry, count: Out<usize>) {
        count.put(entry.buffers.len());
    }

    /// Adds a buffer of the cache.
    fn TRITONCACHE_CacheEntryAddBuffer(
        entry: Option<&mut CacheEntry>,
        base: *mut c_void,
        attributes: Option<&BufferAttributes>,
    ) {
        let (Some(entry), false, Some(of)) = (entry, base.is_null(), attributes) else {
            return Err(was_null("entry, base, or attrs"));
        };
        if of.bytes == 0 {
            return Err(Error::invalid("Buffer byte size was zero"));
        }
        requires_cpu(of)?;
        entry.buffers.push((base, of.bytes));
    }

    /// A buffer, null as long as the cache has not set it.
    fn TRITONCACHE_CacheEntryGetBuffer(
        entry: Option<&mut CacheEntry>,
        index: usize,
        base: Out<*mut c_void>,
        attributes: Option<&mut BufferAttributes>,
    ) {
        let (Some(entry), false, Some(of)) = (entry, base.is_null(), attributes) else {
            return Err(was_null("entry, base, or attrs"));
        };
        let buffer = entry.buffers.get(index);
        let (found, bytes) = *buffer.ok_or_else(|| Error::invalid("index was greater than count"))?;
        base.put(found);
        let handle = of.handle.take();
        *of = BufferAttributes { handle, ..BufferAttributes::cpu(bytes) };
    }

    /// Replaces a buffer, and its size if attributes are given.
    fn TRITONCACHE_CacheEntrySetBuffer(
        entry: &mut CacheEntry,
        index: usize,
        new_base: *mut c_void,
        attributes: Option<&BufferAttributes>,
    ) {
        let buffer = entry.buffers.get_mut(index);
        let buffer = buffer.ok_or_else(|| Error::invalid("index was greater than count"))?;
        buffer.0 = new_base;
        if let Some(of) = attributes {
            buffer.1 = of.bytes;
            requires_cpu(of)?;
        }
    }

    /// Copies the contents between the server and an entry.
    fn TRITONCACHE_Copy(allocator: Option<&mut CacheAllocator>, entry: Option<&mut CacheEntry>) {
        let (Some(allocator), Some(entry)) = (allocator, entry) else {
            return Err(was_null("allocator or entry"));
        };
        // SAFETY: the cache that has the entry keeps its buffers meanwhile.
        unsafe { allocator.copy(entry) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::abi::Err;
    use crate::abi::error::ServerError;
    use std::ptr::null_mut;

    fn failed(error: Err) -> String {
        // SAFETY: made by the functions above.
        unsafe { ServerError::take(error) }.map(|error| error.message().to_owned()).unwrap_or_default()
    }

    #[test]
    fn contents_are_copied_both_ways() {
        let (mut entry, mut base, mut of) = (CacheEntry::of(3), null_mut(), BufferAttributes::default());
        let (mut store, mut kept) = (CacheAllocator::Stored(vec![1, 2, 3]), [0u8; 3]);
        // SAFETY: objects that live.
        unsafe {
            assert!(failed(TRITONCACHE_Copy(&raw mut store, &raw mut entry)).starts_with("the entry has no buffer"));
            assert_eq!(failed(TRITONCACHE_CacheEntryGetBuffer(&raw mut entry, 0, &raw mut base, &raw mut of)), "");
            assert!(base.is_null() && of == BufferAttributes::cpu(3));
            let beyond = TRITONCACHE_CacheEntryGetBuffer(&raw mut entry, 1, &raw mut base, &raw mut of);
            assert_eq!(failed(beyond), "index was greater than count");
            let to = kept.as_mut_ptr().cast();
            assert_eq!(failed(TRITONCACHE_CacheEntrySetBuffer(&raw mut entry, 0, to, std::ptr::null())), "");
            assert_eq!(failed(TRITONCACHE_Copy(&raw mut store, &raw mut entry)), "");
            assert_eq!(kept, [1, 2, 3]);
            let (mut found, mut all) = (CacheEntry::default(), CacheAllocator::Found(None));
            for _ in 0..2 {
                assert_eq!(failed(TRITONCACHE_CacheEntryAddBuffer(&raw mut found, to, &raw const of)), "");
            }
            assert_eq!(failed(TRITONCACHE_Copy(&raw mut all, &raw mut found)), "");
            assert!(matches!(all, CacheAllocator::Found(Some(bytes)) if bytes == [1, 2, 3, 1, 2, 3]));
            let empty = TRITONCACHE_CacheEntryAddBuffer(&raw mut found, to, &raw const *Box::leak(Box::default()));
            assert_eq!(failed(empty), "Buffer byte size was zero");
        }
    }
}
