//! A model of one node whose kernel is ours: running it takes every thread of the shared pool, and the thread that runs it, into
//! a function of ours, and keeps them there for as long as that function likes.
//!
//! Knows nothing of when that is wanted; `governor` does.
//!
//! Invariant: what the runtime was given a pointer to is never freed, since the environment never is either.

use super::{
    CName, GraphLevel, Outputs, RawSession, RunOptions, Runtime, Session, SessionOptions, Value, check, non_null, sys,
};
use ort::AsPointer;
use smallvec::smallvec;
use std::ffi::{c_char, c_void};
use std::mem::ManuallyDrop;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::{null, null_mut};
use tensor::{DataType, Result};

/// Where the threads go.
pub(crate) trait Gate: Sync {
    /// Called on each thread of a round, at the same time.
    fn pass(&self, round: u64);
}

/// The model, ready to run.
pub(crate) struct Park {
    session: Session,
    options: RunOptions,
    input: CName,
    output: CName,
}

/// ModelProto, IR 9, opset 17: `O = nereid.Park(I)`, both int64 [2].
const MODEL: &[u8] = b"\x08\x09:;\x0a\x14\x0a\x01I\x12\x01O\x22\x04Park:\x06nereid\x12\x01g\
    Z\x0f\x0a\x01I\x12\x0a\x0a\x08\x08\x07\x12\x04\x0a\x02\x08\x02b\x0f\x0a\x01O\x12\x0a\x0a\x08\x08\x07\x12\x04\x0a\x02\x08\x02\
    B\x04\x0a\x00\x10\x11B\x0a\x0a\x06nereid\x10\x01";

/// What the runtime knows as the operator, and what its kernel needs.
#[repr(C)]
struct Operator {
    /// First: the runtime's pointer to it is a pointer to the whole.
    custom: sys::OrtCustomOp,
    api: &'static sys::OrtApi,
    gate: &'static dyn Gate,
}

impl Park {
    pub(crate) fn new(runtime: &'static Runtime, gate: &'static dyn Gate) -> Result<Self> {
        let api = runtime.api;
        let options =
            SessionOptions { graph_level: GraphLevel::Off, arena: Some(false), ..Default::default() }.build(runtime)?;
        let operator: &'static Operator = Box::leak(Box::new(Operator { custom: custom(), api, gate }));
        let (mut domain, mut session) = (null_mut(), null_mut());
        // SAFETY: the names are NUL-terminated; operator and domain are never freed; options and environment are live handles;
        // the model is as long as announced, and is copied.
        unsafe {
            check(api, (api.CreateCustomOpDomain)(c"nereid".as_ptr(), &raw mut domain))?;
            check(api, (api.CustomOpDomain_Add)(domain, (&raw const *operator).cast()))?;
            check(api, (api.AddCustomOpDomain)(options.0.as_ptr(), domain))?;
            let model = (MODEL.as_ptr().cast(), MODEL.len());
            let env = runtime.env.ptr();
            check(api, (api.CreateSessionFromArray)(env, model.0, model.1, options.0.as_ptr(), &raw mut session))?;
        }
        let raw = ManuallyDrop::new(RawSession(non_null(session)?, api));
        let mut session = Session { raw, runtime, place: None, names: Vec::new() };
        let options = session.run_options(&[])?;
        let (input, output) = (session.name("I")?, session.name("O")?);
        Ok(Self { session, options, input, output })
    }

    /// Calls `Gate::pass` on this thread and, as soon as they are free, on `workers` threads of the pool. Returns when all of
    /// them did.
    pub(crate) fn run(&self, workers: u32, round: u64) -> Result<()> {
        let mut numbers = [u64::from(workers), round];
        // SAFETY: two integers that outlive the value.
        let input = unsafe {
            Value::over(
                &self.session.runtime.cpu,
                DataType::Int64,
                &[2],
                numbers.as_mut_ptr().cast(),
                size_of_val(&numbers),
            )?
        };
        let mut outputs: Outputs<'_> = smallvec![None];
        self.session.run_raw(&self.options, &[self.input], &[input], &[self.output], &mut outputs)
    }
}

/// The operator's description: one input, one output, both int64.
fn custom() -> sys::OrtCustomOp {
    // SAFETY: all fields are an integer or optional functions, for which zero is a value: none.
    let none: sys::OrtCustomOp = unsafe { std::mem::zeroed() };
    sys::OrtCustomOp {
        // The first with kernels that report a status; later fields are not looked at.
        version: 16,
        GetName: Some(name),
        GetExecutionProviderType: Some(provider),
        GetInputType: Some(element),
        GetInputTypeCount: Some(one),
        GetOutputType: Some(element),
        GetOutputTypeCount: Some(one),
        GetInputCharacteristic: Some(required),
        GetOutputCharacteristic: Some(required),
        GetInputMemoryType: Some(memory),
        CreateKernelV2: Some(create),
        KernelComputeV2: Some(compute),
        KernelDestroy: Some(destroy),
        ..none
    }
}

unsafe extern "system" fn name(_: *const sys::OrtCustomOp) -> *const c_char {
    c"Park".as_ptr()
}

unsafe extern "system" fn provider(_: *const sys::OrtCustomOp) -> *const c_char {
    null()
}

unsafe extern "system" fn one(_: *const sys::OrtCustomOp) -> usize {
    1
}

unsafe extern "system" fn element(_: *const sys::OrtCustomOp, _: usize) -> sys::ONNXTensorElementDataType {
    super::element(DataType::Int64)
}

unsafe extern "system" fn required(_: *const sys::OrtCustomOp, _: usize) -> sys::OrtCustomOpInputOutputCharacteristic {
    sys::OrtCustomOpInputOutputCharacteristic::INPUT_OUTPUT_REQUIRED
}

unsafe extern "system" fn memory(_: *const sys::OrtCustomOp, _: usize) -> sys::OrtMemType {
    sys::OrtMemType::OrtMemTypeDefault
}

unsafe extern "system" fn create(
    operator: *const sys::OrtCustomOp,
    _: *const sys::OrtApi,
    _: *const sys::OrtKernelInfo,
    kernel: *mut *mut c_void,
) -> sys::OrtStatusPtr {
    // SAFETY: a valid out pointer by the library's contract. The kernel has no state of its own, so the operator is it.
    unsafe { *kernel = operator.cast_mut().cast() };
    sys::OrtStatusPtr(null_mut())
}

unsafe extern "system" fn destroy(_: *mut c_void) {}

/// What the threads of one round share.
struct Round {
    gate: &'static dyn Gate,
    number: u64,
}

unsafe extern "system" fn compute(kernel: *mut c_void, context: *mut sys::OrtKernelContext) -> sys::OrtStatusPtr {
    // SAFETY: `create` said that the kernel is an `Operator`, which is never freed and never written to. The context is live
    // during this call. The input is the tensor of two integers that `Park::run` made: no other code has the session. The round
    // outlives the last call of `iteration`, because `ParallelFor` returns after it.
    unsafe {
        let operator = &*kernel.cast::<Operator>();
        let api = operator.api;
        let (mut input, mut output, mut numbers) = (null(), null_mut(), null_mut());
        let status = (api.KernelContext_GetInput)(context, 0, &raw mut input);
        if !status.0.is_null() {
            return status;
        }
        let status = (api.GetTensorMutableData)(input.cast_mut(), &raw mut numbers);
        if !status.0.is_null() {
            return status;
        }
        // It is not read, but the graph promises it.
        let status = (api.KernelContext_GetOutput)(context, 0, [2].as_ptr(), 1, &raw mut output);
        if !status.0.is_null() {
            return status;
        }
        let [workers, number] = *numbers.cast::<[u64; 2]>();
        let round = Round { gate: operator.gate, number };
        let threads = workers as usize + 1;
        (api.KernelContext_ParallelFor)(context, iteration, threads, threads, (&raw const round).cast_mut().cast())
    }
}

unsafe extern "system" fn iteration(round: *mut c_void, _: usize) {
    // SAFETY: the round `compute` lent to this loop; shared, and only read.
    let round = unsafe { &*round.cast::<Round>() };
    // A panic must not reach the runtime's frames. Leaving the gate early costs speed, nothing else.
    let _ = catch_unwind(AssertUnwindSafe(|| round.gate.pass(round.number)));
}
