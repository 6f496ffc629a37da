//! A part of a runner's segment, as the source of a copy into a client's region.

#![allow(unsafe_code)] // vouches for the addresses of a segment

use memory::Memfd;
use std::sync::Arc;
use tensor::{Base, Extent, RegionMemory};

pub(crate) struct Window {
    memory: Arc<Memfd>,
    start: usize,
    len: usize,
}

impl Window {
    /// Of a segment, the first byte and the length; nothing where that does not lie inside.
    pub(crate) fn new((memory, start, len): (Arc<Memfd>, usize, usize)) -> Self {
        let is_inside = start.checked_add(len).is_some_and(|end| end <= memory.len());
        if is_inside { Self { memory, start, len } } else { Self { memory, start: 0, len: 0 } }
    }
}

// SAFETY: inside the segment, as `new` made sure; the segment is mapped as long as `memory` is kept, never shrinks, and is reached by raw pointers only.
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
    fn is_intact(&self) -> bool {
        true
    }
    fn region_name(&self) -> &'static str {
        ""
    }
    fn extent(&self) -> Extent {
        let whole = self.memory.extent();
        Extent { start: whole.start + self.start as u64, ..whole }
    }
}
