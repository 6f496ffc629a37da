//! Bytes of a shared memory region: memory a client, another process or another request may write at any moment.
//!
//! They are never a Rust slice, nor a reference of any kind: `&[u8]` promises that its bytes do not change, which cannot be promised
//! here. What is wanted is copied out, or read once at a named offset, and only the copy is looked at.
//!
//! # Why a copy that races with a writer is acceptable
//! To the compiler these bytes are what device memory is: reachable only through raw pointers that came out of a system call, changed
//! by the outside world. Bulk copies are one call of `memmove`, in a function that is never inlined; each byte of the copy is a value
//! that byte had at some time during the call, and nothing decides anything from the region itself, so the compiler has no load that
//! it could repeat or replace by another. A reader may see a mixture of old and new bytes, as with a `read` of a file that is being
//! written. Byte-wise atomics would say the same in the language's own terms, at a tenth of the speed; single values, whose one
//! reading does matter, are read volatile.

#![allow(unsafe_code)] // copies and reads through the pointer the region's owner vouches for

use crate::{Error, Result};
use std::sync::Arc;

/// A part of a shared memory region, pinned for as long as the value lives. Implemented by `memory`.
///
/// # Safety
/// A host address that `base()` gives must stay valid for reads *and writes* of `len()` bytes until the value is dropped, even when
/// the process at the other end truncates or unlinks the object (the implementation replaces lost pages and then reports
/// `is_intact() == false`). No reference to these bytes exists or is ever made. Neither the base nor the length changes. Memory of a
/// device that `base()` gives has at its `address()` `len()` bytes, which stay allocated until the value is dropped.
pub unsafe trait RegionMemory: Send + Sync {
    /// Where the bytes are. For backends that hand the address to a library which reads or writes in place; everyone else copies.
    fn base(&self) -> Base<'_>;
    /// Length in bytes.
    fn len(&self) -> usize;
    /// Whether there are no bytes.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// False once the owner took the memory away; whatever was read from it since is meaningless. Of memory that nobody can take away
    /// always true.
    fn is_intact(&self) -> bool {
        true
    }
    /// Whether its pages of the host stay where they are, so that devices read and write them directly. Tells only how to copy.
    fn is_page_locked(&self) -> bool {
        false
    }
    /// Name the region was registered under, for error texts; of memory that no client registered "".
    fn region_name(&self) -> &str {
        ""
    }
    /// Where the bytes lie in the object behind them. One object may be registered under several names and mapped at several
    /// addresses, so addresses do not tell whether two parts share bytes.
    fn extent(&self) -> Extent;
    /// Whether others than this server may write there at any moment.
    fn is_shared(&self) -> bool {
        true
    }
    /// Bytes that stay allocated as long as this value lives: more than `len()` of a part of something larger.
    fn kept_len(&self) -> usize {
        self.len()
    }
}

/// Where the bytes of a region are.
#[derive(Clone, Copy)]
pub enum Base<'a> {
    /// In memory that this process has mapped: the first byte.
    Host(*mut u8),
    /// In memory of a device, which only the device reaches.
    Device(&'a dyn DeviceMemory),
}

/// Memory of a device, or a part of it: read and written by copies that wait.
pub trait DeviceMemory: Send + Sync {
    /// The device, as an ordinal of this process.
    fn device(&self) -> u32;
    /// Address of its first byte in that device's memory, for libraries and copies that run there.
    fn address(&self) -> u64;
    /// Copies the bytes from `offset` on into `to`.
    ///
    /// # Errors
    /// INTERNAL, with what the driver said.
    fn read(&self, offset: usize, to: &mut [u8]) -> Result<()>;
    /// Copies `from` to the bytes from `offset` on; others see them when it returns.
    ///
    /// # Errors
    /// As `read`.
    fn write(&self, offset: usize, from: &[u8]) -> Result<()>;
    /// How another process reaches these bytes; `None` where none can. What was written is there: nothing is still on its way.
    fn exported(&self) -> Option<Exported> {
        None
    }
}

/// What another process opens to reach memory of a device (CUDA IPC).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Exported {
    /// Of a whole allocation; opaque.
    pub handle: [u8; 64],
    /// First byte in the allocation.
    pub offset: u64,
}

/// A place in a shared object.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Extent {
    /// Tells objects apart: device and inode of a file, ordinal and address of memory of a device.
    pub object: (u64, u64),
    /// First byte in the object.
    pub start: u64,
}

/// A counted, pinned part of a region.
pub type RegionRef = Arc<dyn RegionMemory>;

/// Bytes carried at a time when one object is copied onto itself through two mappings, and on the way from or to a device.
const PIECE_BYTES: usize = 4096;
const DEVICE_PIECE_BYTES: usize = 1 << 20;

/// A checked range of a region.
#[derive(Clone, Copy)]
enum Range<'a> {
    Host(*mut u8),
    Device(&'a dyn DeviceMemory, usize),
}

impl dyn RegionMemory + '_ {
    /// The first byte, of a region that this process has mapped.
    pub fn host(&self) -> Option<*mut u8> {
        match self.base() {
            Base::Host(first) => Some(first),
            Base::Device(_) => None,
        }
    }

    /// Copies the bytes from `offset` on into `to`.
    ///
    /// # Errors
    /// INTERNAL when the part ends before `offset + to.len()`: callers check sizes, so this is a mistake of ours. Of a device also with
    /// what its driver said.
    pub fn copy_to(&self, offset: usize, to: &mut [u8]) -> Result<()> {
        match self.at(offset, to.len())? {
            Range::Device(memory, at) => memory.read(at, to),
            Range::Host(from) => {
                // SAFETY: `from` was checked; `to` is ours alone, and no reference leads into a region, so they are different memory.
                unsafe { move_bytes(from, to.as_mut_ptr(), to.len()) };
                Ok(())
            }
        }
    }

    /// Copies `from` to the bytes from `offset` on.
    ///
    /// # Errors
    /// As `copy_to`.
    pub fn copy_from(&self, offset: usize, from: &[u8]) -> Result<()> {
        match self.at(offset, from.len())? {
            Range::Device(memory, at) => memory.write(at, from),
            Range::Host(to) => {
                // SAFETY: `to` was checked, and as no reference leads into a region, `from` is other memory, which is not written meanwhile.
                unsafe { move_bytes(from.as_ptr(), to, from.len()) };
                Ok(())
            }
        }
    }

    /// Copies `len` bytes of `source`, from `source_offset` on, to the bytes from `offset` on. The two may share bytes, under whatever
    /// names and at whatever addresses they are mapped: the result is as if all bytes were read before the first was written.
    ///
    /// # Errors
    /// As `copy_to`, for either side.
    pub fn copy_from_region(
        &self,
        offset: usize,
        source: &dyn RegionMemory,
        source_offset: usize,
        len: usize,
    ) -> Result<()> {
        let (to, from) = (self.at(offset, len)?, source.at(source_offset, len)?);
        let (here, there) = (self.extent(), source.extent());
        let (here_at, there_at) =
            (here.start.saturating_add(offset as u64), there.start.saturating_add(source_offset as u64));
        let shares = here.object == there.object && here_at.abs_diff(there_at) < len as u64;
        if let (Range::Host(to), Range::Host(from)) = (to, from) {
            let same_mapping = (to as usize).wrapping_sub(from as usize) as u64 == here_at.wrapping_sub(there_at);
            if !shares || same_mapping {
                // SAFETY: both sides were checked; `move_bytes` allows overlap, which addresses show here.
                unsafe { move_bytes(from, to, len) };
                return Ok(());
            }
        }
        // The same bytes at two addresses, or a device. In pieces, beginning at the end that is not overwritten before it was read.
        let both_host = matches!((to, from), (Range::Host(_), Range::Host(_)));
        let piece_bytes = if both_host { PIECE_BYTES } else { DEVICE_PIECE_BYTES };
        let mut piece = vec![0; piece_bytes.min(len)];
        let count = len.div_ceil(piece_bytes);
        for i in 0..count {
            let start = piece_bytes * if here_at < there_at { i } else { count - 1 - i };
            let piece = piece.get_mut(..piece_bytes.min(len - start)).unwrap_or_default();
            source.copy_to(source_offset + start, piece)?;
            self.copy_from(offset + start, piece)?;
        }
        Ok(())
    }

    /// Moves `len` bytes from `from` to `to` inside the part; the two may overlap.
    ///
    /// # Errors
    /// As `copy_to`.
    pub fn copy_within(&self, from: usize, to: usize, len: usize) -> Result<()> {
        self.copy_from_region(to, self, from, len)
    }

    /// The `N` bytes at `offset`, each read exactly once: what the caller decides from the value stays true of the value, whatever
    /// the client writes meanwhile.
    ///
    /// # Errors
    /// As `copy_to`.
    pub fn read_at<const N: usize>(&self, offset: usize) -> Result<[u8; N]> {
        match self.at(offset, N)? {
            // SAFETY: `from` was checked for `N` bytes; a byte has no alignment.
            Range::Host(from) => Ok(std::array::from_fn(|i| unsafe { from.add(i).read_volatile() })),
            Range::Device(memory, at) => {
                let mut found = [0; N];
                memory.read(at, &mut found).map(|()| found)
            }
        }
    }

    /// The little-endian number at `offset`, read once.
    ///
    /// # Errors
    /// As `copy_to`.
    pub fn read_u32_at(&self, offset: usize) -> Result<u32> {
        self.read_at(offset).map(u32::from_le_bytes)
    }

    /// Writes `byte` over `len` bytes from `offset` on.
    ///
    /// # Errors
    /// As `copy_to`.
    pub fn fill(&self, offset: usize, len: usize, byte: u8) -> Result<()> {
        match self.at(offset, len)? {
            // SAFETY: checked for `len` bytes, writable by the trait's contract.
            Range::Host(to) => unsafe { to.write_bytes(byte, len) },
            Range::Device(memory, at) => {
                let piece = vec![byte; DEVICE_PIECE_BYTES.min(len)];
                for start in (0..len).step_by(DEVICE_PIECE_BYTES) {
                    memory.write(at + start, piece.get(..piece.len().min(len - start)).unwrap_or_default())?;
                }
            }
        }
        Ok(())
    }

    /// Whether the two parts share bytes, under whatever names their objects were registered.
    pub fn overlaps(&self, other: &dyn RegionMemory) -> bool {
        let (a, b) = (self.extent(), other.extent());
        a.object == b.object
            && a.start < b.start.saturating_add(other.len() as u64)
            && b.start < a.start.saturating_add(self.len() as u64)
    }

    /// The range from `offset` on, of `len` bytes.
    fn at(&self, offset: usize, len: usize) -> Result<Range<'_>> {
        if offset.checked_add(len).is_none_or(|end| end > self.len()) {
            return Err(self.outside(offset, len));
        }
        Ok(match self.base() {
            // SAFETY: at most one past the end of memory that is one allocation by the trait's contract.
            Base::Host(first) => Range::Host(unsafe { first.add(offset) }),
            Base::Device(memory) => Range::Device(memory, offset),
        })
    }

    #[cold]
    fn outside(&self, offset: usize, len: usize) -> Error {
        Error::internal(format!(
            "{len} bytes at offset {offset} do not lie inside the {} bytes wanted of shared memory region '{}'",
            self.len(),
            self.region_name()
        ))
    }
}

/// `memmove`, out of the optimiser's sight (see the module).
///
/// # Safety
/// `len` bytes at `from` are readable and `len` bytes at `to` writable.
#[inline(never)]
unsafe fn move_bytes(from: *const u8, to: *mut u8, len: usize) {
    // SAFETY: by contract; `copy` allows overlap and wants no alignment of bytes.
    unsafe { std::ptr::copy(from, to, len) };
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::{Code, Data, Location};
    use std::cell::UnsafeCell;

    /// A region of heap memory, or a part of one.
    #[derive(Clone)]
    pub(crate) struct Heap {
        memory: Arc<[UnsafeCell<u8>]>,
        start: usize,
        len: usize,
    }

    impl Heap {
        pub(crate) fn new(contents: &[u8]) -> Self {
            Self { memory: contents.iter().map(|&b| UnsafeCell::new(b)).collect(), start: 0, len: contents.len() }
        }
        fn part(&self, start: usize, len: usize) -> RegionRef {
            assert!(start + len <= self.len, "inside");
            Arc::new(Self { memory: Arc::clone(&self.memory), start, len })
        }
    }

    // SAFETY: the tests use a region from one thread.
    unsafe impl Send for Heap {}
    // SAFETY: as above.
    unsafe impl Sync for Heap {}
    // SAFETY: the cells live as long as the value and may be written through shared references; parts lie inside.
    unsafe impl RegionMemory for Heap {
        fn base(&self) -> Base<'_> {
            // SAFETY: `start` is at most the length.
            Base::Host(unsafe { UnsafeCell::raw_get(self.memory.as_ptr()).add(self.start) })
        }
        fn len(&self) -> usize {
            self.len
        }
        fn is_intact(&self) -> bool {
            true
        }
        fn region_name(&self) -> &'static str {
            "heap"
        }
        fn extent(&self) -> Extent {
            Extent { object: (0, self.memory.as_ptr() as u64), start: self.start as u64 }
        }
    }

    fn bytes(region: &dyn RegionMemory) -> Vec<u8> {
        let mut all = vec![0; region.len()];
        region.copy_to(0, &mut all).expect("all of it");
        all
    }

    #[test]
    fn bytes_go_in_and_out_at_any_offset() {
        let r = Heap::new(&[0; 10]).part(0, 10);
        r.copy_from(3, b"abc").expect("inside");
        r.fill(8, 2, 7).expect("inside");
        assert_eq!(bytes(&*r), [0, 0, 0, b'a', b'b', b'c', 0, 0, 7, 7]);
        let mut two = [0; 2];
        r.copy_to(4, &mut two).expect("inside");
        assert_eq!(&two, b"bc");
        assert_eq!(r.read_at::<3>(3).expect("inside"), *b"abc");
        r.copy_from(1, &0x0403_0201u32.to_le_bytes()).expect("inside");
        assert_eq!(r.read_u32_at(1).expect("unaligned is fine"), 0x0403_0201);
        r.copy_to(10, &mut []).expect("no bytes at the end are inside");
    }

    #[test]
    fn outside_is_refused_and_nothing_is_touched() {
        let whole = Heap::new(&[5; 10]);
        let r = whole.part(2, 4);
        let check = |result: Result<()>| assert_eq!(result.map_err(|e| e.code()), Err(Code::Internal));
        check(r.copy_to(1, &mut [0; 4]));
        check(r.copy_from(4, b"x"));
        check(r.copy_from(usize::MAX, b"x"));
        check(r.fill(0, 5, 0));
        check(r.copy_within(0, 1, 4));
        check(r.copy_within(1, 0, 4));
        check(r.copy_from_region(0, &whole, 0, 5));
        check(r.copy_from_region(0, &whole, 8, 3));
        check(r.read_u32_at(1).map(drop));
        check(r.read_at::<1>(usize::MAX).map(drop));
        assert_eq!(bytes(&whole), [5; 10]);
        let text = "4 bytes at offset 1 do not lie inside the 4 bytes wanted of shared memory region 'heap'";
        assert_eq!(r.read_u32_at(1).err(), Some(Error::internal(text)));
    }

    #[test]
    fn overlapping_copies_read_before_they_write() {
        let all: Vec<u8> = (0..100).collect();
        for (from, to, len) in [(0, 1, 99), (1, 0, 99), (10, 40, 60), (40, 10, 60), (5, 5, 50), (0, 50, 50)] {
            let mut expected = all.clone();
            expected.copy_within(from..from + len, to);
            let r = Heap::new(&all).part(0, 100);
            r.copy_within(from, to, len).expect("inside");
            assert_eq!(bytes(&*r), expected, "within: {from} to {to}");
            let whole = Heap::new(&all);
            let (source, target) = (whole.part(from, len), whole.part(to, len));
            target.copy_from_region(0, &*source, 0, len).expect("inside");
            assert_eq!(bytes(&whole), expected, "two parts: {from} to {to}");
        }
    }

    #[test]
    fn parts_know_whether_they_share_bytes() {
        let (a, b) = (Heap::new(&[0; 10]), Heap::new(&[0; 10]));
        let check = |x: RegionRef, y: RegionRef, expected| assert_eq!((x.overlaps(&*y), y.overlaps(&*x)), expected);
        check(a.part(0, 5), a.part(4, 1), (true, true));
        check(a.part(0, 5), a.part(5, 5), (false, false));
        check(a.part(0, 10), b.part(0, 10), (false, false));
        check(a.part(3, 0), a.part(3, 0), (false, false));
    }

    #[test]
    fn data_say_where_they_lie_and_are_read_alike() {
        let host = Data::from(bytes::Bytes::from_static(b"hello"));
        let region = Data::Region(Heap::new(b"hello").part(0, 5));
        for (data, location) in [(&host, Location::Host), (&region, Location::Region)] {
            assert_eq!((data.location(), data.len(), data.is_empty()), (location, 5, false));
            assert_eq!(
                (data.to_vec().expect("in memory"), &data.to_bytes().expect("in memory")[..]),
                (b"hello".to_vec(), &b"hello"[..])
            );
            let mut middle = [0; 3];
            data.copy_to(1, &mut middle).expect("inside");
            assert_eq!(&middle, b"ell");
            assert_eq!(data.copy_to(3, &mut middle).map_err(|e| e.code()), Err(Code::Internal));
            assert_eq!(data.read_at::<2>(3).expect("inside"), *b"lo");
            assert_eq!(data.read_at::<2>(4).map_err(|e| e.code()), Err(Code::Internal));
        }
        assert!(host.host().is_some() && region.host().is_none());
    }
}
