//! Runs of a session on a device with tensors that lie there: inputs read, and outputs written, where they are, and outputs that the runtime
//! allocates there because nobody knows their shape before.
//!
//! A binding holds the runtime's counted references to values, not their memory: that is borrowed until the binding is dropped. The runtime ends a
//! run by waiting for its stream, so outputs are there when `run` returns, and inputs are no longer read.

use super::base::{RawBinding, check, non_null};
use super::{CName, OutputOwner, RunOptions, Session, Value};
use device::Adopted;
use smallvec::SmallVec;
use std::marker::PhantomData;
use std::ptr::null_mut;
use std::sync::Arc;
use tensor::{Base, Data, DataType, Error, RegionRef, Result};

/// What every address of a device has to be a multiple of that a run is given: that of whole allocations, which kernels of CUDA's libraries
/// count on. An address they cannot use would cost the device (`CUDA_ERROR_MISALIGNED_ADDRESS`).
pub(crate) const DEVICE_ALIGNMENT: u64 = 256;

/// What a run reads and writes, bound one by one.
pub(crate) struct Binding<'i, 'o> {
    raw: RawBinding,
    session: &'i Arc<Session>,
    /// Of each output whether it is allocated by the runtime.
    allocated: SmallVec<[bool; 4]>,
    inputs: PhantomData<&'i ()>,
    outputs: PhantomData<&'o ()>,
}

impl<'i, 'o> Binding<'i, 'o> {
    /// Nothing bound yet.
    pub(crate) fn new(session: &'i Arc<Session>) -> Result<Self> {
        let (api, mut raw) = (session.runtime.api, null_mut());
        // SAFETY: a live session, which the binding's borrow keeps, and a valid out pointer.
        unsafe { check(api, (api.CreateIoBinding)(session.raw.0.as_ptr(), &raw mut raw))? };
        let raw = RawBinding(non_null(raw)?, api);
        Ok(Self { raw, session, allocated: SmallVec::new(), inputs: PhantomData, outputs: PhantomData })
    }

    /// Has the run read an input. One in the host's memory that is wanted on the device is copied there before this returns.
    pub(crate) fn input(&mut self, name: CName, value: &Value<'i>) -> Result<()> {
        let api = self.session.runtime.api;
        let name = self.session.c_name(name)?;
        // SAFETY: live handles; the name is copied, and the memory behind the value is borrowed longer than the binding lives.
        let done = unsafe { check(api, (api.BindInput)(self.raw.0.as_ptr(), name.as_ptr(), value.0.as_ptr())) };
        done.map_err(|e| self.session.noticed(e))
    }

    /// Has the run write an output to a value, wherever that lies.
    pub(crate) fn output(&mut self, name: CName, value: &Value<'o>) -> Result<()> {
        let api = self.session.runtime.api;
        let name = self.session.c_name(name)?;
        self.allocated.push(false);
        // SAFETY: as in `input`.
        unsafe { check(api, (api.BindOutput)(self.raw.0.as_ptr(), name.as_ptr(), value.0.as_ptr())) }
    }

    /// Has the runtime allocate an output, on the device of the session or in the host's memory.
    pub(crate) fn allocated(&mut self, name: CName, on_device: bool) -> Result<()> {
        let runtime = self.session.runtime;
        let place = self.session.place.as_ref().filter(|_| on_device);
        let memory = place.map_or(&runtime.cpu, |place| &place.memory);
        let name = self.session.c_name(name)?.as_ptr();
        self.allocated.push(true);
        // SAFETY: live handles, whose contents are copied.
        unsafe { check(runtime.api, (runtime.api.BindOutputToDevice)(self.raw.0.as_ptr(), name, memory.0.as_ptr())) }
    }

    /// Runs the model; afterwards `outputs` are written.
    pub(crate) fn run(&mut self, options: &RunOptions) -> Result<()> {
        let api = self.session.runtime.api;
        // SAFETY: live handles. What is bound is borrowed for longer than this call, and nobody else looks at the outputs meanwhile: they
        // were made for this run, or are a client's region, which is never looked at but copied.
        let ran =
            unsafe { (api.RunWithBinding)(self.session.raw.0.as_ptr(), options.0.0.as_ptr(), self.raw.0.as_ptr()) };
        check(api, ran).map_err(|e| self.session.noticed(e))
    }

    /// The outputs that the runtime allocated, in the order in which all were bound; `None` in the places of the others. One that hands an
    /// input on may share its memory, and never that of another output.
    pub(crate) fn outputs(self) -> Result<SmallVec<[Option<Value<'i>>; 4]>> {
        let runtime = self.session.runtime;
        let (api, mut found, mut len) = (runtime.api, null_mut(), 0);
        // SAFETY: live handles and valid out pointers. The array is one of `len` owned values, each of which is taken once; the array itself
        // belongs to the allocator that was named.
        let values = unsafe {
            check(
                api,
                (api.GetBoundOutputValues)(
                    self.raw.0.as_ptr(),
                    runtime.allocator.as_ptr(),
                    &raw mut found,
                    &raw mut len,
                ),
            )?;
            let values = (0..len).map(|n| non_null(*found.add(n)).map(|value| Value(value, PhantomData)));
            let values = values.collect::<Result<SmallVec<[Value<'i>; 4]>>>();
            if !found.is_null() {
                check(api, (api.AllocatorFree)(runtime.allocator.as_ptr(), found.cast()))?;
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
    /// A tensor over memory of the session's device, which is aligned (`DEVICE_ALIGNMENT`). Not for BYTES.
    pub(crate) fn on_device<'a>(
        &self,
        datatype: DataType,
        shape: &[i64],
        region: &'a RegionRef,
        len: usize,
    ) -> Result<Value<'a>> {
        let (Some(place), Base::Device(memory)) = (&self.place, region.base()) else { return Err(elsewhere()) };
        if memory.device() != place.device || len > region.len() {
            return Err(elsewhere());
        }
        let address = std::ptr::with_exposed_provenance_mut::<u8>(memory.address() as usize);
        // SAFETY: `len` bytes of that device, borrowed for `'a`, which only the device reads and writes.
        unsafe { Value::over(&place.memory, datatype, shape, address, len) }
    }
}

impl Value<'_> {
    /// The contents of an output that the runtime allocated on the device of its session, without a copy: the value lives on with the region.
    ///
    /// An output that is an input of the graph shares its memory; that one is copied, because `inputs` do not live on.
    pub(crate) fn into_region<'d>(
        self,
        session: &Arc<Session>,
        len: usize,
        mut inputs: impl Iterator<Item = &'d Data>,
    ) -> Result<RegionRef> {
        let Some(place) = &session.place else { return Err(elsewhere()) };
        let (api, mut base) = (session.runtime.api, null_mut());
        // SAFETY: a live tensor value and a valid out pointer; the address is of a device and not looked at here.
        unsafe { check(api, (api.GetTensorMutableData)(self.0.as_ptr(), &raw mut base))? };
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
                // Nobody knows whether the device still reads it.
                std::mem::forget(self);
            }
            return copy;
        }
        // SAFETY: the value owns `len` bytes there, by its own shape and type, which nothing writes any more. `'_` is forgotten because memory
        // of inputs was told apart above; all other belongs to the value or, for constants of the graph, to the session.
        let value = Value(self.0, PhantomData);
        std::mem::forget(self);
        let owner = OutputOwner { _value: value, _session: Arc::clone(session) };
        // SAFETY: as above; the owner keeps it.
        Ok(unsafe { Adopted::region(place.device, address, len, Box::new(owner)) })
    }
}

/// A copy of an output that has no memory of its own.
fn copy_of(session: &Session, address: u64, len: usize) -> Result<RegionRef> {
    let device = session.device().ok_or_else(elsewhere)?;
    // SAFETY: the caller has the value with these bytes until the copy is made, or for ever where that fails.
    let lent = unsafe { Adopted::region(device, address, len, Box::new(())) };
    backend::copy::to_device(&Data::Region(lent), device)
}

#[cold]
fn elsewhere() -> Error {
    Error::internal("a tensor that does not lie on a device was bound to a run there")
}
