//! Shared memory regions: memory that a client, another process or another request may write at any time.
//!
//! No Rust reference to these bytes ever exists: `&[u8]` promises that its bytes do not change. Code copies the bytes
//! out, or reads a value once at an offset, and works on the copy only.
//!
//! # Why a copy that races with a writer is acceptable
//! The compiler must treat these bytes like device memory: they are reachable only through raw pointers from a system
//! call and are changed from outside. A bulk copy is one `memmove` in a function that is never inlined. Each byte of
//! the copy is a value that it had at some time during the call, and no decision depends on the region itself, so there
//! is no load that the compiler could repeat or replace. A reader may see old and new bytes mixed, as with a `read` of
//! a file that is being written. Byte-wise atomics would express this in the language's own terms, at a tenth of the
//! speed. Single values, which must be read exactly once, are read volatile.

#![allow(unsafe_code)] // copies and reads through the region's pointer

use crate::{Error, Result};
use std::sync::Arc;

/// A part of a region, kept mapped or allocated while the value lives. Implemented by `memory`.
///
/// # Safety
/// A host address from `base()` must stay valid for reads *and writes* of `len()` bytes until the value is dropped,
/// even if another process truncates or unlinks the object (the implementation replaces lost pages and then returns
/// `is_intact() == false`). No reference to these bytes ever exists. Base and length do not change. Device memory from
/// `base()` has `len()` bytes at its `address()`, which stay allocated until the value is dropped.
pub unsafe trait RegionMemory: Send + Sync {
    /// Start of the memory, for backends that pass the address to a library. All other code copies.
    fn base(&self) -> Base<'_>;
    /// Length in bytes.
    fn len(&self) -> usize;
    /// True if there are no bytes.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// False once the owner has removed the memory; bytes that were read since then are meaningless.
    fn is_intact(&self) -> bool {
        true
    }
    /// True if the host pages are locked, so that devices can access them directly. Only affects the speed of copies.
    fn is_page_locked(&self) -> bool {
        false
    }
    /// Name under which the region was registered, for error texts; empty if no client registered it.
    fn region_name(&self) -> &str {
        ""
    }
    /// Range in the underlying object. One object may be registered under several names and mapped at several
    /// addresses, so addresses do not show whether two parts share bytes.
    fn extent(&self) -> Extent;
    /// True if another process may write to the memory at any time.
    fn is_shared(&self) -> bool {
        true
    }
    /// True for memory of a model's process that is lent to a front end: an input that it filled there, or an output
    /// that it sends from there. Any other output in a region is where its client asked for it.
    fn is_lent(&self) -> bool {
        false
    }
    /// Gives the memory behind a range back to the system if that is possible. Others that use the range read zeros
    /// then, or what was there.
    fn discard(&self, range: std::ops::Range<usize>) {
        let _ = range;
    }
    /// Bytes that this value keeps allocated: more than `len()` for a part of something larger.
    fn kept_len(&self) -> usize {
        self.len()
    }
}

/// Start of a region's memory.
#[derive(Clone, Copy)]
pub enum Base<'a> {
    /// First byte, in memory that this process has mapped.
    Host(*mut u8),
    /// Memory that only the device can access.
    Device(&'a dyn DeviceMemory),
}

/// Device memory, or a part of it, with blocking copies.
pub trait DeviceMemory: Send + Sync {
    /// Ordinal of the device in this process.
    fn device(&self) -> u32;
    /// Device address of the first byte, for libraries and copies that run on the device.
    fn address(&self) -> u64;
    /// Copies the bytes from `offset` on into `to`.
    ///
    /// # Errors
    /// INTERNAL, with the error of the driver.
    fn read(&self, offset: usize, to: &mut [u8]) -> Result<()>;
    /// Copies `from` to `offset`; when it returns, other processes see the bytes.
    ///
    /// # Errors
    /// INTERNAL, with the error of the driver.
    fn write(&self, offset: usize, from: &[u8]) -> Result<()>;
    /// The export of these bytes to another process; `None` if it is impossible. All earlier writes are complete.
    fn exported(&self) -> Option<Exported> {
        None
    }
}

/// Device memory as another process opens it (CUDA IPC).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Exported {
    /// Opaque handle of the whole allocation.
    pub handle: [u8; 64],
    /// First byte in the allocation.
    pub offset: u64,
}

/// A position in a shared object.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Extent {
    /// Identity of the object: device and inode of a file, or ordinal and address of device memory.
    pub object: (u64, u64),
    /// First byte in the object.
    pub start: u64,
}

/// A reference-counted part of a region.
pub type RegionRef = Arc<dyn RegionMemory>;

/// Bytes per step of a copy between two mappings of one object, or from or to a device.
const PIECE_BYTES: usize = 4096;
const DEVICE_PIECE_BYTES: usize = 1 << 20;

/// A checked range of a region.
#[derive(Clone, Copy)]
enum Range<'a> {
    Host(*mut u8),
    Device(&'a dyn DeviceMemory, usize),
}

impl dyn RegionMemory + '_ {
    /// The first byte, if this process has mapped the region.
    pub fn host(&self) -> Option<*mut u8> {
        match self.base() {
            Base::Host(first) => Some(first),
            Base::Device(_) => None,
        }
    }

    /// Copies the bytes from `offset` on into `to`.
    ///
    /// # Errors
    /// INTERNAL when the part ends before `offset + to.len()`, a bug of the caller, or the driver of a device fails.
    pub fn copy_to(&self, offset: usize, to: &mut [u8]) -> Result<()> {
        match self.at(offset, to.len())? {
            Range::Device(memory, at) => memory.read(at, to),
            Range::Host(from) => {
                // SAFETY: `at` checked `from`. `to` is exclusive, and no reference points into a region: no overlap.
                unsafe { move_bytes(from, to.as_mut_ptr(), to.len()) };
                Ok(())
            }
        }
    }

    /// Copies `from` to `offset`.
    ///
    /// # Errors
    /// INTERNAL when the part ends too early, a bug of the caller, or the driver of a device fails.
    pub fn copy_from(&self, offset: usize, from: &[u8]) -> Result<()> {
        match self.at(offset, from.len())? {
            Range::Device(memory, at) => memory.write(at, from),
            Range::Host(to) => {
                // SAFETY: `at` checked `to`. No reference points into a region, so `from` is other memory and
                // immutable.
                unsafe { move_bytes(from.as_ptr(), to, from.len()) };
                Ok(())
            }
        }
    }

    /// Copies `len` bytes from `source_offset` in `source` to `offset`. The two may overlap, even under different names
    /// and at different addresses: the result is as if all bytes were read before the first was written.
    ///
    /// # Errors
    /// INTERNAL when either part ends too early, a bug of the caller, or the driver of a device fails.
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
                // SAFETY: `at` checked both sides; `move_bytes` allows overlap, and here the addresses show it.
                unsafe { move_bytes(from, to, len) };
                return Ok(());
            }
        }
        // The same bytes at two addresses, or a device: the order of the pieces reads each byte before overwriting it.
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

    /// Reads the `N` bytes at `offset`, each exactly once, so that decisions about the value hold even if the client
    /// writes to the region.
    ///
    /// # Errors
    /// INTERNAL when the part ends too early, a bug of the caller, or the driver of a device fails.
    pub fn read_at<const N: usize>(&self, offset: usize) -> Result<[u8; N]> {
        match self.at(offset, N)? {
            // SAFETY: `at` checked `N` bytes; a byte has no alignment.
            Range::Host(from) => Ok(std::array::from_fn(|i| unsafe { from.add(i).read_volatile() })),
            Range::Device(memory, at) => {
                let mut found = [0; N];
                memory.read(at, &mut found).map(|()| found)
            }
        }
    }

    /// Writes `byte` to `len` bytes from `offset` on.
    ///
    /// # Errors
    /// INTERNAL when the part ends too early, a bug of the caller, or the driver of a device fails.
    pub fn fill(&self, offset: usize, len: usize, byte: u8) -> Result<()> {
        match self.at(offset, len)? {
            // SAFETY: `at` checked `len` bytes; they are writable by the trait's contract.
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

    /// True if the two parts share bytes, even under different names.
    pub fn overlaps(&self, other: &dyn RegionMemory) -> bool {
        let (a, b) = (self.extent(), other.extent());
        a.object == b.object
            && a.start < b.start.saturating_add(other.len() as u64)
            && b.start < a.start.saturating_add(self.len() as u64)
    }

    /// Checks that `len` bytes from `offset` on are inside.
    fn at(&self, offset: usize, len: usize) -> Result<Range<'_>> {
        if offset.checked_add(len).is_none_or(|end| end > self.len()) {
            return Err(self.outside(offset, len));
        }
        Ok(match self.base() {
            // SAFETY: at most one past the end of one allocation, by the trait's contract.
            Base::Host(first) => Range::Host(unsafe { first.add(offset) }),
            Base::Device(memory) => Range::Device(memory, offset),
        })
    }

    #[cold]
    fn outside(&self, offset: usize, len: usize) -> Error {
        Error::internal(format!(
            "{len} bytes at offset {offset} are not inside the {} bytes wanted of shared memory region '{}'",
            self.len(),
            self.region_name()
        ))
    }
}

/// `memmove`, hidden from the optimiser (see the module).
///
/// # Safety
/// `len` bytes at `from` are readable and `len` bytes at `to` writable.
#[inline(never)]
unsafe fn move_bytes(from: *const u8, to: *mut u8, len: usize) {
    // SAFETY: by contract; `copy` allows overlap, and bytes need no alignment.
    unsafe { std::ptr::copy(from, to, len) };
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::{Code, Data, Location};
    use std::cell::UnsafeCell;

    /// Heap memory as a region, or a part of one.
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

    // SAFETY: each test uses its regions on one thread.
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
    fn bytes_are_copied_at_any_offset() {
        let r = Heap::new(&[0; 10]).part(0, 10);
        r.copy_from(3, b"abc").expect("inside");
        r.fill(8, 2, 7).expect("inside");
        assert_eq!(bytes(&*r), [0, 0, 0, b'a', b'b', b'c', 0, 0, 7, 7]);
        let mut two = [0; 2];
        r.copy_to(4, &mut two).expect("inside");
        assert_eq!(&two, b"bc");
        assert_eq!(r.read_at::<3>(3).expect("inside"), *b"abc");
        r.copy_from(1, &0x0403_0201u32.to_le_bytes()).expect("inside");
        assert_eq!(r.read_at(1).map(u32::from_le_bytes).expect("unaligned is fine"), 0x0403_0201);
        r.copy_to(10, &mut []).expect("an empty range at the end is inside");
    }

    #[test]
    fn a_range_outside_the_part_is_rejected_and_nothing_is_written() {
        let whole = Heap::new(&[5; 10]);
        let r = whole.part(2, 4);
        let check = |result: Result<()>| assert_eq!(result.map_err(|e| e.code()), Err(Code::Internal));
        check(r.copy_to(1, &mut [0; 4]));
        check(r.copy_from(4, b"x"));
        check(r.copy_from(usize::MAX, b"x"));
        check(r.fill(0, 5, 0));
        check(r.copy_from_region(1, &*r, 0, 4));
        check(r.copy_from_region(0, &*r, 1, 4));
        check(r.copy_from_region(0, &whole, 0, 5));
        check(r.copy_from_region(0, &whole, 8, 3));
        check(r.read_at(1).map(u32::from_le_bytes).map(drop));
        check(r.read_at::<1>(usize::MAX).map(drop));
        assert_eq!(bytes(&whole), [5; 10]);
        let text = "4 bytes at offset 1 are not inside the 4 bytes wanted of shared memory region 'heap'";
        assert_eq!(r.read_at(1).map(u32::from_le_bytes).err(), Some(Error::internal(text)));
    }

    #[test]
    fn overlapping_copies_read_before_they_write() {
        let all: Vec<u8> = (0..100).collect();
        for (from, to, len) in [(0, 1, 99), (1, 0, 99), (10, 40, 60), (40, 10, 60), (5, 5, 50), (0, 50, 50)] {
            let mut expected = all.clone();
            expected.copy_within(from..from + len, to);
            let r = Heap::new(&all).part(0, 100);
            r.copy_from_region(to, &*r, from, len).expect("inside");
            assert_eq!(bytes(&*r), expected, "within: {from} to {to}");
            let whole = Heap::new(&all);
            let (source, target) = (whole.part(from, len), whole.part(to, len));
            target.copy_from_region(0, &*source, 0, len).expect("inside");
            assert_eq!(bytes(&whole), expected, "two parts: {from} to {to}");
        }
    }

    #[test]
    fn overlap_of_parts_is_found() {
        let (a, b) = (Heap::new(&[0; 10]), Heap::new(&[0; 10]));
        let check = |x: RegionRef, y: RegionRef, expected| assert_eq!((x.overlaps(&*y), y.overlaps(&*x)), expected);
        check(a.part(0, 5), a.part(4, 1), (true, true));
        check(a.part(0, 5), a.part(5, 5), (false, false));
        check(a.part(0, 10), b.part(0, 10), (false, false));
        check(a.part(3, 0), a.part(3, 0), (false, false));
    }

    #[test]
    fn contents_in_every_location_are_read_alike() {
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
