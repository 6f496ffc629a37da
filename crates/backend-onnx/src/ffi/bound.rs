//! Runs of a session with tensors on its device, in place; the runtime allocates outputs of unknown shape there.
//!
//! A binding holds the runtime's references to values, not their memory, which is borrowed until it is dropped. A run
//! ends with a wait for its stream: when `run` returns, outputs are written and inputs are no longer read.

use super::base::{RawBinding, check, non_null};
use super::{CName, OutputOwner, RunOptions, Session, Value};
use device::Adopted;
use smallvec::SmallVec;
use std::marker::PhantomData;
use std::ptr::null_mut;
use std::sync::Arc;
use tensor::{Base, Data, DataType, Error, RegionRef, Result};

/// Required alignment of device addresses in a run: that of whole allocations, which kernels of CUDA's libraries rely
/// on. A misaligned address would make the device unusable (`CUDA_ERROR_MISALIGNED_ADDRESS`).
pub(crate) const DEVICE_ALIGNMENT: u64 = 256;

/// Inputs and outputs of a run, bound one by one.
pub(crate) struct Binding<'i, 'o> {
    raw: RawBinding,
    session: &'i Arc<Session>,
    /// For each output, whether the runtime allocates it.
    allocated: SmallVec<[bool; 4]>,
    inputs: PhantomData<&'i ()>,
    outputs: PhantomData<&'o ()>,
}

impl<'i, 'o> Binding<'i, 'o> {
    pub(crate) fn new(session: &'i Arc<Session>) -> Result<Self> {
        let (api, mut raw) = (session.runtime.api, null_mut());
        // SAFETY: a live session, which the binding's borrow keeps, and a valid out pointer.
        unsafe { call!(api.CreateIoBinding(session.raw.0.as_ptr(), &raw mut raw))? };
        let raw = RawBinding(non_null(raw)?, api);
        Ok(Self { raw, session, allocated: SmallVec::new(), inputs: PhantomData, outputs: PhantomData })
    }

    /// Binds an input. If it is in host memory and needed on the device, it is copied before this returns.
    pub(crate) fn input(&mut self, name: CName, value: &Value<'i>) -> Result<()> {
        let api = self.session.runtime.api;
        let name = self.session.c_name(name)?;
        // SAFETY: live handles; the name is copied, and the value's memory is borrowed longer than the binding lives.
        let done = unsafe { call!(api.BindInput(self.raw.0.as_ptr(), name.as_ptr(), value.0.as_ptr())) };
        done.map_err(|e| self.session.noticed(e))
    }

    /// Binds an output to a value, on the host or the device.
    pub(crate) fn output(&mut self, name: CName, value: &Value<'o>) -> Result<()> {
        let api = self.session.runtime.api;
        let name = self.session.c_name(name)?;
        self.allocated.push(false);
        // SAFETY: as in `input`.
        unsafe { call!(api.BindOutput(self.raw.0.as_ptr(), name.as_ptr(), value.0.as_ptr())) }
    }

    /// Binds an output that the runtime allocates, on the session's device or in host memory.
    pub(crate) fn allocated(&mut self, name: CName, on_device: bool) -> Result<()> {
        let runtime = self.session.runtime;
        let binding = self.session.device_binding.as_ref().filter(|_| on_device);
        let memory = binding.map_or(&runtime.cpu, |binding| &binding.memory);
        let name = self.session.c_name(name)?.as_ptr();
        self.allocated.push(true);
        // SAFETY: live handles, whose contents are copied.
        unsafe { check(runtime.api, (runtime.api.BindOutputToDevice)(self.raw.0.as_ptr(), name, memory.0.as_ptr())) }
    }

    pub(crate) fn run(&mut self, options: &RunOptions) -> Result<()> {
        let api = self.session.runtime.api;
        // SAFETY: live handles. The bound memory is borrowed for longer than this call, and no other code reads the
        // outputs meanwhile: they were made for this run, or are a client's region, which is only ever copied.
        let ran =
            unsafe { (api.RunWithBinding)(self.session.raw.0.as_ptr(), options.0.0.as_ptr(), self.raw.0.as_ptr()) };
        check(api, ran).map_err(|e| self.session.noticed(e))
    }

    /// The outputs that the runtime allocated, in the order of binding, with `None` for all others. An output that
    /// passes an input through may share its memory, but never that of another output.
    pub(crate) fn outputs(self) -> Result<SmallVec<[Option<Value<'i>>; 4]>> {
        let runtime = self.session.runtime;
        let (api, mut found, mut len) = (runtime.api, null_mut(), 0);
        // SAFETY: live handles and valid out pointers. The array has `len` owned values, each of which is taken once;
        // the array itself belongs to the given allocator.
        let values = unsafe {
            call!(api.GetBoundOutputValues(
                self.raw.0.as_ptr(),
                runtime.allocator.as_ptr(),
                &raw mut found,
                &raw mut len,
            ))?;
            let values = (0..len).map(|n| non_null(*found.add(n)).map(|value| Value(value, PhantomData)));
            let values = values.collect::<Result<SmallVec<[Value<'i>; 4]>>>();
            if !found.is_null() {
                call!(api.AllocatorFree(runtime.allocator.as_ptr(), found.cast()))?;
            }
            values?
        };
        if values.len() != self.allocated.len() {
            return Err(Error::internal("a run has as many outputs as were bound"));
        }
        Ok(values.into_iter().zip(&self.allocated).map(|(value, &allocated)| allocated.then_some(value)).collect())
    }
}

impl Session {
    /// A tensor over aligned memory of the session's device (`DEVICE_ALIGNMENT`). Not for BYTES.
    pub(crate) fn on_device<'a>(
        &self,
        datatype: DataType,
        shape: &[i64],
        region: &'a RegionRef,
        len: usize,
    ) -> Result<Value<'a>> {
        let (Some(binding), Base::Device(memory)) = (&self.device_binding, region.base()) else {
            return Err(not_on_device());
        };
        if memory.device() != binding.device || len > region.len() {
            return Err(not_on_device());
        }
        let address = std::ptr::with_exposed_provenance_mut::<u8>(memory.address() as usize);
        // SAFETY: `len` bytes of that device, borrowed for `'a`, which only the device accesses.
        unsafe { Value::over(&binding.memory, datatype, shape, address, len) }
    }
}

impl Value<'_> {
    /// The contents of an output that the runtime allocated on the device, without a copy: the region owns the value.
    ///
    /// An output that is an input of the graph shares its memory and is copied, because `inputs` are freed earlier.
    pub(crate) fn into_region<'d>(
        self,
        session: &Arc<Session>,
        len: usize,
        mut inputs: impl Iterator<Item = &'d Data>,
    ) -> Result<RegionRef> {
        let Some(binding) = &session.device_binding else { return Err(not_on_device()) };
        let (api, mut base) = (session.runtime.api, null_mut());
        // SAFETY: a live tensor value and a valid out pointer; the device address is not dereferenced here.
        unsafe { call!(api.GetTensorMutableData(self.0.as_ptr(), &raw mut base))? };
        let address = base.expose_provenance() as u64;
        let lent = |data: &Data| match data {
            Data::Region(region) => match region.base() {
                Base::Device(memory) => address.wrapping_sub(memory.address()) < region.len() as u64,
                Base::Host(_) => false,
            },
            Data::Bytes(_) => false,
        };
        if inputs.any(lent) {
            let copy = copy_of(session, address, len);
            if copy.is_err() {
                // The device may still read it.
                std::mem::forget(self);
            }
            return copy;
        }
        // SAFETY: the value owns `len` bytes, by its shape and type, which nothing writes any more. `'_` can be
        // dropped: memory of inputs was handled above; all other belongs to the value or, for constants, to the
        // session.
        let value = Value(self.0, PhantomData);
        std::mem::forget(self);
        let owner = OutputOwner { _value: value, _session: Arc::clone(session) };
        // SAFETY: as above; the owner keeps it.
        Ok(unsafe { Adopted::region(binding.device, address, len, Box::new(owner)) })
    }
}

/// Copies an output that shares the memory of an input.
fn copy_of(session: &Session, address: u64, len: usize) -> Result<RegionRef> {
    let device = session.device().ok_or_else(not_on_device)?;
    // SAFETY: the caller keeps the value with these bytes until the copy is made, or leaks it if that fails.
    let lent = unsafe { Adopted::region(device, address, len, Box::new(())) };
    backend::copy::to_device(&Data::Region(lent), device)
}

#[cold]
fn not_on_device() -> Error {
    Error::internal("a tensor that is not on a device was bound to a run there")
}
