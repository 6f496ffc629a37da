//! `TRITONCACHE_*`: entries of a response cache, and the copies between them and the server.

#![allow(unsafe_code)] // buffers of a cache

use super::attributes::BufferAttributes;
use super::exports::{Out, exports, objects, was_null};
use super::memory::DEVICE;
use tensor::{Error, Result};

/// Version of the API of caches.
const VERSION: (u32, u32) = (0, 1);

/// The buffers of one response. Those that a cache adds or sets are its own.
#[derive(Default)]
pub(crate) struct CacheEntry {
    buffers: Vec<(*mut u8, usize)>,
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

impl CacheEntry {
    /// The contents of its buffers.
    fn buffers(&mut self) -> impl Iterator<Item = &mut [u8]> {
        let is_set = |(base, _): &&(*mut u8, usize)| !base.is_null();
        // SAFETY: the cache that has the entry keeps buffers of the lengths that it gave until the copy is made.
        self.buffers.iter().filter(is_set).map(|(base, bytes)| unsafe { std::slice::from_raw_parts_mut(*base, *bytes) })
    }
}

impl CacheAllocator {
    /// Copies between the server and the buffers of an entry.
    fn copy(&mut self, entry: &mut CacheEntry) -> Result<()> {
        let mut buffers: Vec<_> = entry.buffers().collect();
        match self {
            Self::Found(contents) => *contents = Some(buffers.concat()),
            Self::Stored(contents) => match buffers.as_mut_slice() {
                [buffer] if buffer.len() == contents.len() => buffer.copy_from_slice(contents),
                _ => return Err(Error::invalid("the entry has no buffer of the size of its response")),
            },
        }
        Ok(())
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
    "cache" fn TRITONCACHE_ApiVersion(major: Out<u32>, minor: Out<u32>) {
        major.put(VERSION.0);
        minor.put(VERSION.1);
    }

    "rust" fn TRITONCACHE_CacheEntryNew(entry: Out<*mut CacheEntry>) {
        if entry.is_null() {
            return Err(was_null("entry"));
        }
        entry.give(CacheEntry::default());
    }

    /// Deletes an entry that the library made, and no buffer.
    "rust" fn TRITONCACHE_CacheEntryDelete(entry: Box<CacheEntry>) => drop(entry);

    "cache" get TRITONCACHE_CacheEntryBufferCount(entry: &CacheEntry) -> usize = entry.buffers.len();

    /// Adds a buffer of the cache.
    "cache" fn TRITONCACHE_CacheEntryAddBuffer(
        entry: Option<&mut CacheEntry>,
        base: *mut u8,
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
    "cache" fn TRITONCACHE_CacheEntryGetBuffer(
        entry: Option<&CacheEntry>,
        index: usize,
        base: Out<*mut u8>,
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
    "cache" fn TRITONCACHE_CacheEntrySetBuffer(
        entry: &mut CacheEntry,
        index: usize,
        new_base: *mut u8,
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
    "cache" fn TRITONCACHE_Copy(allocator: Option<&mut CacheAllocator>, entry: Option<&mut CacheEntry>) {
        let (Some(allocator), Some(entry)) = (allocator, entry) else {
            return Err(was_null("allocator or entry"));
        };
        allocator.copy(entry)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::abi::exports::library::{failed, nothing, pass, to};
    use std::ptr::null_mut;

    fn text(error: crate::abi::Err) -> String {
        failed(error).map(|error| error.message().to_owned()).unwrap_or_default()
    }

    #[test]
    fn contents_are_copied_both_ways() {
        let (mut entry, mut base, mut of) = (CacheEntry::of(3), null_mut(), BufferAttributes::default());
        let (mut store, mut kept) = (CacheAllocator::Stored(vec![1, 2, 3]), [0u8; 3]);
        let none = TRITONCACHE_Copy(to(&mut store), to(&mut entry));
        assert!(text(none).starts_with("the entry has no buffer"));
        assert_eq!(text(TRITONCACHE_CacheEntryGetBuffer(to(&mut entry), 0, to(&mut base), to(&mut of))), "");
        assert!(base.is_null() && of == BufferAttributes::cpu(3));
        let beyond = TRITONCACHE_CacheEntryGetBuffer(to(&mut entry), 1, to(&mut base), to(&mut of));
        assert_eq!(text(beyond), "index was greater than count");
        let place = kept.as_mut_ptr();
        assert_eq!(text(TRITONCACHE_CacheEntrySetBuffer(to(&mut entry), 0, place, nothing())), "");
        assert_eq!(text(TRITONCACHE_Copy(to(&mut store), to(&mut entry))), "");
        assert_eq!(kept, [1, 2, 3]);
        let (mut found, mut all) = (null_mut(), CacheAllocator::Found(None));
        assert_eq!(text(TRITONCACHE_CacheEntryNew(nothing())), "entry was nullptr");
        assert_eq!(text(TRITONCACHE_CacheEntryNew(to(&mut found))), "");
        for _ in 0..2 {
            assert_eq!(text(TRITONCACHE_CacheEntryAddBuffer(pass(found), place, to(&mut of))), "");
        }
        assert_eq!(text(TRITONCACHE_Copy(to(&mut all), pass(found))), "");
        assert!(matches!(all, CacheAllocator::Found(Some(bytes)) if bytes == [1, 2, 3, 1, 2, 3]));
        let empty = TRITONCACHE_CacheEntryAddBuffer(pass(found), place, to(&mut BufferAttributes::default()));
        assert_eq!(text(empty), "Buffer byte size was zero");
        assert_eq!(text(TRITONCACHE_CacheEntryDelete(pass(found))), "");
    }
}
