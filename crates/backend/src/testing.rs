//! Small requests and regions for tests.

#![allow(unsafe_code)] // a region over heap memory

use crate::BatchEntry;
use bytes::Bytes;
use protocol::{Checked, InferRequest, InputTensor};
use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicBool, Ordering};
use tensor::{Base, Data, DataType, Extent, RegionMemory, Shape};

/// A request with UINT8 inputs in the order of the signature.
pub(crate) fn entry(rows: u32, inputs: &[(&'static str, &[u8])]) -> BatchEntry {
    let mut request = InferRequest::default();
    let mut checked = Checked { rows, ..Checked::default() };
    for (i, (name, data)) in inputs.iter().enumerate() {
        request.inputs.push(InputTensor {
            name: (*name).into(),
            datatype: Some(DataType::Uint8),
            shape: Shape::from_slice(&[data.len() as i64]),
            data: Data::Bytes(Bytes::copy_from_slice(data)),
        });
        checked.inputs.push(i as u16);
    }
    BatchEntry::new(request.into(), checked)
}

/// A region in heap memory that can be marked as lost.
pub(crate) struct Heap {
    memory: Box<[UnsafeCell<u8>]>,
    len: usize,
    intact: AtomicBool,
}

impl Heap {
    pub(crate) fn new(contents: &[u8]) -> Self {
        let memory = contents.iter().map(|&b| UnsafeCell::new(b)).collect();
        Self { memory, len: contents.len(), intact: AtomicBool::new(true) }
    }
    /// A region with a nominal length of `len` bytes and no memory, for tests that do not access it.
    pub(crate) fn endless(len: usize) -> Self {
        Self { len, ..Self::new(&[]) }
    }
    pub(crate) fn lose(&self) {
        self.intact.store(false, Ordering::Relaxed);
    }
}

// SAFETY: the tests use a region from one thread.
unsafe impl Send for Heap {}
// SAFETY: as above.
unsafe impl Sync for Heap {}
// SAFETY: the box lives as long as the value, and its cells may be written through `&`; `endless` ones are not read.
unsafe impl RegionMemory for Heap {
    fn base(&self) -> Base<'_> {
        Base::Host(UnsafeCell::raw_get(self.memory.as_ptr()))
    }
    fn len(&self) -> usize {
        self.len
    }
    fn is_intact(&self) -> bool {
        self.intact.load(Ordering::Relaxed)
    }
    fn region_name(&self) -> &'static str {
        "heap"
    }
    fn extent(&self) -> Extent {
        Extent { object: (0, self.memory.as_ptr() as u64), start: 0 }
    }
}
