//! Regions made of others: a part of one, or adjacent parts joined. The output of a batch is split between its requests
//! and joined again for the next model without a copy.

#![allow(unsafe_code)] // implements the contract of `RegionMemory` for parts and joined parts

use crate::region::{Base, DeviceMemory, Exported, Extent, RegionMemory, RegionRef};
use crate::{Error, Result};
use std::any::Any;
use std::sync::Arc;

/// A range of a region.
struct Part {
    whole: RegionRef,
    start: usize,
    len: usize,
    /// Dropped with the last reference.
    _kept: Option<Box<dyn Any + Send + Sync>>,
}

/// The region, which keeps `value` until its last reference is dropped.
pub fn keeping(region: RegionRef, value: impl Any + Send + Sync) -> RegionRef {
    Arc::new(Part { start: 0, len: region.len(), whole: region, _kept: Some(Box::new(value)) })
}

/// `len` bytes of a region from `start` on; returns the region itself if that is all of it.
///
/// # Errors
/// INTERNAL for a range that is not inside.
pub fn part(whole: &RegionRef, start: usize, len: usize) -> Result<RegionRef> {
    if start == 0 && len == whole.len() {
        return Ok(whole.clone());
    }
    if start.checked_add(len).is_none_or(|end| end > whole.len()) {
        return Err(Error::internal(format!(
            "{len} bytes at offset {start} are not inside the {} bytes of '{}'",
            whole.len(),
            whole.region_name()
        )));
    }
    Ok(Arc::new(Part { whole: whole.clone(), start, len, _kept: None }))
}

// SAFETY: `part` checked that the range is inside the region, which lives as long as the value.
unsafe impl RegionMemory for Part {
    fn base(&self) -> Base<'_> {
        match self.whole.base() {
            // SAFETY: inside one allocation, by the trait's contract.
            Base::Host(first) => Base::Host(unsafe { first.add(self.start) }),
            Base::Device(_) => Base::Device(self),
        }
    }
    fn len(&self) -> usize {
        self.len
    }
    fn is_intact(&self) -> bool {
        self.whole.is_intact()
    }
    fn region_name(&self) -> &str {
        self.whole.region_name()
    }
    fn extent(&self) -> Extent {
        let Extent { object, start } = self.whole.extent();
        Extent { object, start: start.saturating_add(self.start as u64) }
    }
    fn is_shared(&self) -> bool {
        self.whole.is_shared()
    }
    fn is_page_locked(&self) -> bool {
        self.whole.is_page_locked()
    }
    fn is_lent(&self) -> bool {
        self.whole.is_lent()
    }
    fn kept_len(&self) -> usize {
        self.whole.kept_len()
    }
}

impl Part {
    fn memory(&self) -> Result<&dyn DeviceMemory> {
        match self.whole.base() {
            Base::Device(memory) => Ok(memory),
            Base::Host(_) => Err(Error::internal("host memory was used as device memory")),
        }
    }
}

impl DeviceMemory for Part {
    fn device(&self) -> u32 {
        self.memory().map_or(0, DeviceMemory::device)
    }
    fn address(&self) -> u64 {
        self.memory().map_or(0, |memory| memory.address().saturating_add(self.start as u64))
    }
    fn read(&self, offset: usize, to: &mut [u8]) -> Result<()> {
        self.memory()?.read(self.start.saturating_add(offset), to)
    }
    fn write(&self, offset: usize, from: &[u8]) -> Result<()> {
        self.memory()?.write(self.start.saturating_add(offset), from)
    }
    fn exported(&self) -> Option<Exported> {
        let whole = self.memory().ok()?.exported()?;
        Some(Exported { offset: whole.offset.saturating_add(self.start as u64), ..whole })
    }
}

/// Adjacent parts of one device allocation.
struct Joined {
    parts: Box<[RegionRef]>,
    len: usize,
}

/// Joins regions that are adjacent parts of one device allocation, in order; a single region is returned as it is.
/// `None` if they are not adjacent or there are none.
pub fn joined<'a>(regions: impl IntoIterator<Item = &'a RegionRef>) -> Option<RegionRef> {
    let parts: Box<[RegionRef]> = regions.into_iter().cloned().collect();
    let (first, rest) = parts.split_first()?;
    if rest.is_empty() {
        return Some(first.clone());
    }
    let Base::Device(memory) = first.base() else { return None };
    let (device, address, Extent { object, start }) = (memory.device(), memory.address(), first.extent());
    let mut len = first.len();
    for next in rest {
        let Base::Device(memory) = next.base() else { return None };
        let abuts = memory.device() == device
            && memory.address() == address.checked_add(len as u64)?
            && next.extent() == Extent { object, start: start.checked_add(len as u64)? };
        if !abuts {
            return None;
        }
        len = len.checked_add(next.len())?;
    }
    Some(Arc::new(Joined { parts, len }))
}

impl Joined {
    fn first(&self) -> Option<&RegionRef> {
        self.parts.first()
    }

    /// Calls `each` for every part that the range touches: its memory, the offset in it, the range of the caller's
    /// bytes.
    fn each(
        &self,
        offset: usize,
        len: usize,
        mut each: impl FnMut(&dyn DeviceMemory, usize, std::ops::Range<usize>) -> Result<()>,
    ) -> Result<()> {
        let (mut begin, end) = (0usize, offset.saturating_add(len));
        for part in &self.parts {
            let after = begin + part.len();
            let (from, to) = (offset.max(begin), end.min(after));
            if from < to
                && let Base::Device(memory) = part.base()
            {
                each(memory, from - begin, from - offset..to - offset)?;
            }
            begin = after;
        }
        Ok(())
    }
}

// SAFETY: the parts are adjacent in one device allocation, so `len` bytes follow the first address; the value keeps
// them.
unsafe impl RegionMemory for Joined {
    fn base(&self) -> Base<'_> {
        Base::Device(self)
    }
    fn len(&self) -> usize {
        self.len
    }
    fn is_intact(&self) -> bool {
        self.parts.iter().all(|part| part.is_intact())
    }
    fn region_name(&self) -> &str {
        self.first().map_or("", |part| part.region_name())
    }
    fn extent(&self) -> Extent {
        self.first().map_or(Extent { object: (0, 0), start: 0 }, |part| part.extent())
    }
    fn is_shared(&self) -> bool {
        self.parts.iter().any(|part| part.is_shared())
    }
    fn kept_len(&self) -> usize {
        self.parts.iter().map(|part| part.kept_len()).max().unwrap_or(0)
    }
}

impl DeviceMemory for Joined {
    fn device(&self) -> u32 {
        match self.first().map(|part| part.base()) {
            Some(Base::Device(memory)) => memory.device(),
            _ => 0,
        }
    }
    fn address(&self) -> u64 {
        match self.first().map(|part| part.base()) {
            Some(Base::Device(memory)) => memory.address(),
            _ => 0,
        }
    }
    fn read(&self, offset: usize, to: &mut [u8]) -> Result<()> {
        self.each(offset, to.len(), |memory, at, range| memory.read(at, to.get_mut(range).unwrap_or_default()))
    }
    fn write(&self, offset: usize, from: &[u8]) -> Result<()> {
        self.each(offset, from.len(), |memory, at, range| memory.write(at, from.get(range).unwrap_or_default()))
    }
    fn exported(&self) -> Option<Exported> {
        match self.first().map(|part| part.base()) {
            Some(Base::Device(memory)) => memory.exported(),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::region::tests::Heap;
    use crate::{Code, Data, Location};
    use std::sync::Mutex;

    /// Device memory, simulated by a vector.
    struct OnDevice {
        device: u32,
        bytes: Arc<Mutex<Vec<u8>>>,
        fails: bool,
    }

    // SAFETY: nothing dereferences its address.
    unsafe impl RegionMemory for OnDevice {
        fn base(&self) -> Base<'_> {
            Base::Device(self)
        }
        fn len(&self) -> usize {
            self.bytes.lock().expect("no panic").len()
        }
        fn is_intact(&self) -> bool {
            true
        }
        fn region_name(&self) -> &'static str {
            "device"
        }
        fn extent(&self) -> Extent {
            Extent { object: (u64::MAX - u64::from(self.device), 0x1000), start: 0 }
        }
    }

    impl DeviceMemory for OnDevice {
        fn device(&self) -> u32 {
            self.device
        }
        fn address(&self) -> u64 {
            0x1000
        }
        fn read(&self, offset: usize, to: &mut [u8]) -> Result<()> {
            if self.fails {
                return Err(Error::internal("the device is gone"));
            }
            to.copy_from_slice(&self.bytes.lock().expect("no panic")[offset..][..to.len()]);
            Ok(())
        }
        fn write(&self, offset: usize, from: &[u8]) -> Result<()> {
            self.bytes.lock().expect("no panic")[offset..][..from.len()].copy_from_slice(from);
            Ok(())
        }
        fn exported(&self) -> Option<Exported> {
            Some(Exported { handle: [7; 64], offset: 1000 })
        }
    }

    fn on_device(device: u32, bytes: &[u8]) -> RegionRef {
        Arc::new(OnDevice { device, bytes: Arc::new(Mutex::new(bytes.to_vec())), fails: false })
    }

    fn all(region: &RegionRef) -> Vec<u8> {
        Data::Region(region.clone()).to_vec().expect("read")
    }

    #[test]
    fn a_part_reads_and_writes_its_range_of_the_region() {
        for whole in [on_device(0, b"0123456789"), Arc::new(Heap::new(b"0123456789")) as RegionRef] {
            let middle = part(&whole, 2, 5).expect("inside");
            let inner = part(&middle, 1, 3).expect("inside");
            assert_eq!((all(&middle), all(&inner)), (b"23456".to_vec(), b"345".to_vec()));
            inner.copy_from(1, b"xy").expect("inside");
            assert_eq!(all(&whole), b"0123xy6789");
            assert!(Arc::ptr_eq(&part(&whole, 0, 10).expect("all"), &whole));
            assert!(inner.overlaps(&*whole) && !inner.overlaps(&*part(&whole, 0, 3).expect("inside")));
            for (start, len) in [(9, 2), (11, 0), (usize::MAX, 2)] {
                assert_eq!(part(&whole, start, len).err().map(|e| e.code()), Some(Code::Internal));
            }
            assert_eq!(inner.copy_to(3, &mut [0]).map_err(|e| e.code()), Err(Code::Internal), "past its own end");
            assert_eq!(inner.kept_len(), 10);
        }
    }

    #[test]
    fn adjacent_parts_are_joined() {
        let whole = on_device(1, b"0123456789");
        let of = |start, len| part(&whole, start, len).expect("inside");
        let row = joined(&[of(1, 3), of(4, 0), of(4, 2), of(6, 4)]).expect("adjacent");
        assert_eq!((all(&row), Data::Region(row.clone()).location()), (b"123456789".to_vec(), Location::Device(1)));
        row.copy_from(2, b"abcd").expect("over the borders of parts");
        let mut some = [0; 5];
        row.copy_to(1, &mut some).expect("inside");
        assert_eq!((&some, all(&whole)), (b"2abcd", b"012abcd789".to_vec()));
        let exported = |region: &RegionRef| match region.base() {
            Base::Device(memory) => memory.exported().map(|e| e.offset),
            Base::Host(_) => None,
        };
        assert_eq!((exported(&whole), exported(&of(4, 2)), exported(&row)), (Some(1000), Some(1004), Some(1001)));
        assert!(joined(&[of(4, 2), of(1, 3)]).is_none(), "in reverse order");
        assert!(joined(&[of(1, 3), of(5, 2)]).is_none(), "a gap");
        assert!(
            joined(&[of(1, 3), part(&on_device(1, b"0123456789"), 4, 2).expect("inside")]).is_some(),
            "the same allocation"
        );
        assert!(
            joined(&[of(1, 3), part(&on_device(0, b"0123456789"), 4, 2).expect("inside")]).is_none(),
            "another device"
        );
        let host: RegionRef = Arc::new(Heap::new(b"0123"));
        let half = |start| part(&host, start, 2).expect("inside");
        assert!(joined(&[half(0), half(2)]).is_none(), "host pages may be lost one by one");
        assert!(joined(&[]).is_none());
    }

    #[test]
    fn a_device_that_fails_is_an_error_and_never_zeros() {
        let bytes = Arc::new(Mutex::new(vec![7; 4]));
        let data = Data::Region(Arc::new(OnDevice { device: 0, bytes, fails: true }));
        let gone = Error::internal("the device is gone");
        assert_eq!((data.to_vec().err(), data.to_bytes().err()), (Some(gone.clone()), Some(gone.clone())));
        assert_eq!((data.copy_to(0, &mut [0; 2]).err(), data.read_at::<2>(1).err()), (Some(gone.clone()), Some(gone)));
    }
}
