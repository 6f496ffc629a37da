//! A range of a runner's segment, or of leased device memory, as the source of a copy.

#![allow(unsafe_code)] // checks the addresses inside a segment

use device::Imported;
use std::sync::Arc;
use tensor::{Base, DeviceMemory, Exported, Extent, RegionMemory, RegionRef, Result};

pub(crate) struct Window {
    memory: RegionRef,
    start: usize,
    len: usize,
}

impl Window {
    /// A range (segment, first byte, length). Empty if the range is not inside the segment.
    pub(crate) fn new((memory, start, len): (RegionRef, usize, usize)) -> Self {
        let is_inside = start.checked_add(len).is_some_and(|end| end <= memory.len());
        if is_inside { Self { memory, start, len } } else { Self { memory, start: 0, len: 0 } }
    }
}

// SAFETY: `new` checked that the range is inside the segment, whose bytes stay mapped while `memory` is kept and are
// accessed through raw pointers only.
unsafe impl RegionMemory for Window {
    fn base(&self) -> Base<'_> {
        match self.memory.base() {
            // SAFETY: at most one past the end.
            Base::Host(first) => Base::Host(unsafe { first.add(self.start) }),
            device @ Base::Device(_) => device,
        }
    }
    fn len(&self) -> usize {
        self.len
    }
    fn extent(&self) -> Extent {
        let whole = self.memory.extent();
        Extent { start: whole.start + self.start as u64, ..whole }
    }
}

/// Source of a lease of device memory.
pub(crate) enum Lender {
    /// Memory that the runner exported.
    Runner(Arc<Imported>),
    /// Memory that the server lent to the runner.
    Host(RegionRef),
}

/// A range of device memory.
pub(crate) struct DevicePart {
    lender: Lender,
    start: usize,
    len: usize,
}

impl DevicePart {
    /// `None` if the range is not inside the memory, or the memory is not on a device.
    pub(crate) fn new(lender: Lender, start: u64, len: u64) -> Option<Self> {
        let whole = match &lender {
            Lender::Runner(memory) => memory.len(),
            Lender::Host(region) => matches!(region.base(), Base::Device(_)).then(|| region.len())?,
        };
        let (start, len) = (usize::try_from(start).ok()?, usize::try_from(len).ok()?);
        start.checked_add(len).filter(|&end| end <= whole)?;
        Some(Self { lender, start, len })
    }

    /// The device memory of a region that the server lent.
    fn of_host(region: &RegionRef) -> Result<&dyn DeviceMemory> {
        match region.base() {
            Base::Device(memory) => Ok(memory),
            Base::Host(_) => Err(tensor::Error::internal("a mapped region was used as memory of a device")),
        }
    }
}

// SAFETY: the memory has no host address. Copies go through the driver, which knows the memory while the handle or the
// region is kept.
unsafe impl RegionMemory for DevicePart {
    fn base(&self) -> Base<'_> {
        Base::Device(self)
    }
    fn len(&self) -> usize {
        self.len
    }
    fn extent(&self) -> Extent {
        let whole = match &self.lender {
            // The same form of id as that of regions of clients.
            Lender::Runner(memory) => {
                Extent { object: (u64::MAX - u64::from(memory.device()), memory.address()), start: 0 }
            }
            Lender::Host(region) => region.extent(),
        };
        Extent { start: whole.start.saturating_add(self.start as u64), ..whole }
    }
}

impl DeviceMemory for DevicePart {
    fn device(&self) -> u32 {
        match &self.lender {
            Lender::Runner(memory) => memory.device(),
            Lender::Host(region) => Self::of_host(region).map_or(0, DeviceMemory::device),
        }
    }
    fn address(&self) -> u64 {
        let whole = match &self.lender {
            Lender::Runner(memory) => memory.address(),
            Lender::Host(region) => Self::of_host(region).map_or(0, DeviceMemory::address),
        };
        whole.saturating_add(self.start as u64)
    }
    fn read(&self, offset: usize, to: &mut [u8]) -> Result<()> {
        let at = self.start.saturating_add(offset);
        match &self.lender {
            Lender::Runner(memory) => memory.read(at, to),
            Lender::Host(region) => Self::of_host(region)?.read(at, to),
        }
    }
    fn write(&self, offset: usize, from: &[u8]) -> Result<()> {
        let at = self.start.saturating_add(offset);
        match &self.lender {
            Lender::Runner(memory) => memory.write(at, from),
            Lender::Host(region) => Self::of_host(region)?.write(at, from),
        }
    }
    fn exported(&self) -> Option<Exported> {
        let whole = match &self.lender {
            Lender::Runner(memory) => Exported { handle: memory.handle().0, offset: 0 },
            Lender::Host(region) => Self::of_host(region).ok()?.exported()?,
        };
        Some(Exported { offset: whole.offset.saturating_add(self.start as u64), ..whole })
    }
}
