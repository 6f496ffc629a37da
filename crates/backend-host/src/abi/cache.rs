//! `TRITONCACHE_*`: entries of a response cache, and the copies between them and the server.

#![allow(unsafe_code)] // pointers of a C API

use super::attributes::BufferAttributes;
use super::{Err, get, guard, object, object_mut, put};
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

/// The version of the API of caches.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONCACHE_ApiVersion(major: *mut u32, minor: *mut u32) -> Err {
    guard(|| {
        // SAFETY: the caller's promise.
        unsafe {
            put(major, VERSION.0);
            put(minor, VERSION.1);
        }
        Ok(())
    })
}

/// A new entry without buffers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONCACHE_CacheEntryNew(entry: *mut *mut CacheEntry) -> Err {
    guard(|| {
        if entry.is_null() {
            return Err(Error::invalid("entry was nullptr"));
        }
        // SAFETY: the caller's promise.
        unsafe { put(entry, Box::into_raw(Box::default())) };
        Ok(())
    })
}

/// Deletes an entry that the caller made, and no buffer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONCACHE_CacheEntryDelete(entry: *mut CacheEntry) -> Err {
    guard(|| {
        // SAFETY: the caller's promise.
        unsafe {
            object_mut(entry, "entry")?;
            drop(Box::from_raw(entry));
        }
        Ok(())
    })
}

/// The number of buffers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONCACHE_CacheEntryBufferCount(entry: *mut CacheEntry, count: *mut usize) -> Err {
    // SAFETY: the caller's promise.
    unsafe { get(count, || Ok(object_mut(entry, "entry")?.buffers.len())) }
}

/// Adds a buffer of the cache.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONCACHE_CacheEntryAddBuffer(
    entry: *mut CacheEntry,
    base: *mut c_void,
    attributes: *const BufferAttributes,
) -> Err {
    guard(|| {
        if entry.is_null() || base.is_null() || attributes.is_null() {
            return Err(Error::invalid("entry, base, or attrs was nullptr"));
        }
        // SAFETY: the caller's promise.
        let (entry, of) = unsafe { (object_mut(entry, "entry")?, object(attributes, "attrs")?) };
        if of.bytes == 0 {
            return Err(Error::invalid("Buffer byte size was zero"));
        }
        requires_cpu(of)?;
        entry.buffers.push((base, of.bytes));
        Ok(())
    })
}

/// A buffer, null as long as the cache has not set it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONCACHE_CacheEntryGetBuffer(
    entry: *mut CacheEntry,
    index: usize,
    base: *mut *mut c_void,
    attributes: *mut BufferAttributes,
) -> Err {
    guard(|| {
        if entry.is_null() || base.is_null() || attributes.is_null() {
            return Err(Error::invalid("entry, base, or attrs was nullptr"));
        }
        // SAFETY: the caller's promise.
        unsafe {
            let buffer = object_mut(entry, "entry")?.buffers.get(index);
            let (found, bytes) = *buffer.ok_or_else(|| Error::invalid("index was greater than count"))?;
            put(base, found);
            let handle = object_mut(attributes, "buffer attributes")?.handle.take();
            *object_mut(attributes, "buffer attributes")? = BufferAttributes { handle, ..BufferAttributes::cpu(bytes) };
        }
        Ok(())
    })
}

/// Replaces a buffer, and its size if attributes are given.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONCACHE_CacheEntrySetBuffer(
    entry: *mut CacheEntry,
    index: usize,
    new_base: *mut c_void,
    attributes: *const BufferAttributes,
) -> Err {
    guard(|| {
        // SAFETY: the caller's promise.
        let (entry, of) = unsafe { (object_mut(entry, "entry")?, attributes.as_ref()) };
        let buffer = entry.buffers.get_mut(index);
        let buffer = buffer.ok_or_else(|| Error::invalid("index was greater than count"))?;
        buffer.0 = new_base;
        if let Some(of) = of {
            buffer.1 = of.bytes;
            requires_cpu(of)?;
        }
        Ok(())
    })
}

/// Copies the contents between the server and an entry.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONCACHE_Copy(allocator: *mut CacheAllocator, entry: *mut CacheEntry) -> Err {
    guard(|| {
        if allocator.is_null() || entry.is_null() {
            return Err(Error::invalid("allocator or entry was nullptr"));
        }
        // SAFETY: the caller's promise; both are ours, for this call of the cache.
        unsafe { allocator.as_mut().map_or(Ok(()), |allocator| allocator.copy(object_mut(entry, "entry")?)) }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
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
