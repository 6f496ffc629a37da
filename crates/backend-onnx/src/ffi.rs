//! ONNX Runtime's C interface behind safe types: values borrow memory, handles are released once, statuses are checked.
//!
//! Calls the function table directly, because the sessions of the `ort` crate need `&mut self` to run and allocate
//! names and hash maps on every call. `ort` still finds, loads and checks the library and owns the environment.

#![allow(unsafe_code)] // every call into the library

#[macro_use]
mod base;
mod bench;
mod bound;
mod device_binding;
pub(crate) mod devices;
mod external;
mod helpers;
mod plugin;
mod probe;
mod threads;
pub use bench::bench_bare_run;
pub(crate) use bound::{Binding, DEVICE_ALIGNMENT};

pub(crate) use helpers::INTRA_SPINNING;
use helpers::{Helpers, INTER_SPINNING, Reserved};

use base::{RawMemoryInfo, RawOptions, RawRunOptions, RawSession, ShapeInfo, TypeInfo, c_string, check, non_null};

use crate::failed;
use crate::provider::Appended;
use bytes::Bytes;
use memory::SlabPool;
use ort::AsPointer;
use ort::environment::{Environment, GlobalThreadPoolOptions};
use ort::sys;
use ort::sys::ONNXTensorElementDataType as E;
use parking_lot::Mutex;
use smallvec::SmallVec;
use std::ffi::{CStr, CString, c_char, c_int};
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::path::Path;
use std::ptr::{NonNull, null, null_mut};
use std::sync::Arc;
use tensor::{Code, Data, DataType, Error, RegionRef, Result, Shape, element_count};

/// The loaded library and the single environment of the process.
pub(crate) struct Runtime {
    api: &'static sys::OrtApi,
    env: Arc<Environment>,
    cpu: RawMemoryInfo,
    allocator: NonNull<sys::OrtAllocator>,
    /// Minor version of the release: `1.<minor>`.
    minor: u32,
}

// SAFETY: environment, memory info and default allocator are documented as thread-safe; none is ever released.
unsafe impl Send for Runtime {}
// SAFETY: as above.
unsafe impl Sync for Runtime {}

/// Threads of the shared pool; fixed when the first model is opened.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PoolThreads {
    /// Within an operator; 0 = the available cores.
    pub(crate) intra: usize,
    /// Between operators; 0 = one, which needs no thread.
    pub(crate) inter: usize,
}

impl Runtime {
    /// The runtime, loaded by the first call; later paths and thread counts are ignored.
    pub(crate) fn get(library: &Path, pool_threads: PoolThreads) -> Result<&'static Self> {
        static RUNTIME: Mutex<Option<&'static Runtime>> = Mutex::new(None);
        let mut slot = RUNTIME.lock();
        if let Some(runtime) = *slot {
            return Ok(runtime);
        }
        let unusable = |e: &dyn std::fmt::Display| {
            Error::environment(format!("unable to use ONNX Runtime at '{}': {e}", library.display()))
        };
        let minor = probe::probe(library).map_err(|e| unusable(&e))?;
        // Before the first model, because blocks are freed the way they were allocated.
        memory::heap::map_large_blocks();
        let builder = ort::init_from(library).map_err(|e| unusable(&e))?;
        let intra = if pool_threads.intra == 0 { helpers::cores() } else { pool_threads.intra };
        let pool = GlobalThreadPoolOptions::default()
            .with_intra_threads(intra)
            .and_then(|p| p.with_inter_threads(pool_threads.inter.max(1)))
            // A spinning thread would take a core from the reactors.
            .and_then(|p| p.with_spin_control(false))
            .and_then(|p| p.with_thread_manager(threads::Serving))
            .map_err(|e| unusable(&e))?;
        builder.with_name("nereid").with_telemetry(false).with_global_thread_pool(pool).commit();
        let env = Environment::current().map_err(|e| unusable(&e))?;
        // Failures are returned as statuses; the library's log would repeat client-made text on stderr.
        env.set_log_level(ort::logging::LogLevel::Fatal);
        let api = ort::api();
        let (mut cpu, mut allocator) = (null_mut(), null_mut());
        // SAFETY: out pointers are valid; handles are checked below.
        unsafe {
            call!(api.CreateCpuMemoryInfo(
                sys::OrtAllocatorType::OrtDeviceAllocator,
                sys::OrtMemType::OrtMemTypeDefault,
                &raw mut cpu,
            ))?;
            call!(api.GetAllocatorWithDefaultOptions(&raw mut allocator))?;
        }
        let runtime: &'static Self = Box::leak(Box::new(Self {
            api,
            env,
            cpu: RawMemoryInfo(non_null(cpu)?, api),
            allocator: non_null(allocator)?,
            minor,
        }));
        *slot = Some(runtime);
        Ok(runtime)
    }
}

/// Index of a tensor name among the names that a session owns.
#[derive(Clone, Copy)]
pub(crate) struct CName(u32);

impl CName {
    /// A number that is unique within the session.
    pub(crate) fn id(self) -> i64 {
        i64::from(self.0)
    }
}

type NamePointers = SmallVec<[*const c_char; 8]>;

#[derive(Debug, Default, Clone, PartialEq)]
pub(crate) struct SessionOptions {
    /// 0 off, 1 basic, 2 extended, 99 all.
    pub(crate) graph_level: GraphLevel,
    /// Thread counts of its own; `None` = helpers if `has_helpers`, or else the shared pool.
    pub(crate) threads: Option<(i32, i32)>,
    /// Helpers (`ffi::helpers`), as far as there are some left.
    pub(crate) has_helpers: bool,
    /// Whether threads of its own spin; `None` = helpers for some microseconds, others never.
    pub(crate) spins: Option<bool>,
    pub(crate) parallel: bool,
    pub(crate) arena: Option<bool>,
    pub(crate) pattern: Option<bool>,
    pub(crate) entries: Vec<(String, String)>,
    pub(crate) op_libraries: Vec<String>,
    pub(crate) providers: Vec<Appended>,
}

#[derive(Debug, Default, Clone, Copy, PartialEq)]
pub(crate) enum GraphLevel {
    Off,
    Basic,
    Extended,
    #[default]
    All,
}

/// A loaded model. Any number of threads may call `run`.
pub(crate) struct Session {
    /// Taken in `drop` only.
    raw: ManuallyDrop<RawSession>,
    /// Set for weights that lie in heaps.
    trim: Option<memory::heap::Trim>,
    runtime: &'static Runtime,
    /// Threads that help the calling one, if the session has them.
    helpers: Option<Arc<Helpers>>,
    /// `None` for a session on the CPU.
    device_binding: Option<device_binding::DeviceBinding>,
    /// Names by `CName`. The library copies names that it keeps.
    names: Vec<CString>,
}

// SAFETY: OrtSession is documented as safe to use from several threads at once, Run included.
unsafe impl Send for Session {}
// SAFETY: as above.
unsafe impl Sync for Session {}

impl Drop for Session {
    fn drop(&mut self) {
        // SAFETY: taken only here, and not used afterwards.
        let raw = unsafe { ManuallyDrop::take(&mut self.raw) };
        // The thread that drops the last response of an unloaded model may be a reactor.
        memory::release::drop_in_background(Ended { helpers: self.helpers.take(), _raw: raw, _trim: self.trim.take() });
    }
}

/// A session that nobody runs any more.
struct Ended {
    helpers: Option<Arc<Helpers>>,
    _raw: RawSession,
    /// After the session, whose weights it returns.
    _trim: Option<memory::heap::Trim>,
}

impl Drop for Ended {
    fn drop(&mut self) {
        // The library waits for its threads, so none may be held; fields are dropped after this.
        if let Some(helpers) = &self.helpers {
            helpers.end();
        }
    }
}

/// Outputs of a run, in the order of their names.
pub(crate) type Outputs<'a> = SmallVec<[Option<Value<'a>>; 4]>;

/// An input, output or overridable initializer, as the graph declares it.
#[derive(Debug, Clone)]
pub(crate) struct GraphTensor {
    pub(crate) name: String,
    /// `None` if it is not a tensor or the protocol has no such datatype.
    pub(crate) datatype: Option<DataType>,
    /// -1 is a symbolic dimension.
    pub(crate) shape: Shape,
}

#[derive(Clone, Copy)]
pub(crate) enum Side {
    Input,
    Output,
    Initializer,
}

impl Session {
    /// Loads a model; external data beside the file are found.
    pub(crate) fn load(
        runtime: &'static Runtime,
        file: &Path,
        options: &SessionOptions,
        device: Option<u32>,
    ) -> Result<Self> {
        let api = runtime.api;
        let device_binding =
            device.map(|device| device_binding::DeviceBinding::new(runtime.api, device)).transpose()?;
        let reserved = Some(options).filter(|o| o.has_helpers && o.threads.is_none()).and_then(|_| Reserved::new());
        let raw_options = options.build(runtime, reserved.as_ref())?;
        let external = external::ExternalFiles::of(file)?;
        external.add_to(&raw_options, api, runtime.minor)?;
        let (env, options) = (runtime.env.ptr(), raw_options.0.as_ptr());
        let mut session = null_mut();
        let path = c_string(&file.to_string_lossy())?;
        let loading = memory::heap::loading(std::fs::metadata(file).map_or(0, |m| m.len()));
        // SAFETY: environment and options are live handles, the path is NUL-terminated.
        unsafe { call!(api.CreateSession(env, path.as_ptr(), options, &raw mut session))? }
        let raw = RawSession(non_null(session)?, api);
        // SAFETY: the session is released by `Ended`, after `Helpers::end`.
        let helpers = reserved.map(|reserved| unsafe { Helpers::new(api, raw.0, reserved) }).transpose()?;
        let trim = loading.map(|(_, trim)| trim);
        Ok(Self { raw: ManuallyDrop::new(raw), trim, runtime, helpers, device_binding, names: Vec::new() })
    }

    /// Stores the name of a tensor, for runs of this session.
    pub(crate) fn name(&mut self, name: &str) -> Result<CName> {
        let number = u32::try_from(self.names.len()).map_err(|_| Error::invalid("a model has too many tensors"))?;
        self.names.push(c_string(name)?);
        Ok(CName(number))
    }

    fn c_name(&self, name: CName) -> Result<&CStr> {
        let kept = self.names.get(name.0 as usize).ok_or_else(|| Error::internal("a name of another session"))?;
        Ok(kept)
    }

    fn c_names(&self, names: &[CName]) -> Result<NamePointers> {
        let mut found = NamePointers::with_capacity(names.len());
        for name in names {
            found.push(self.c_name(*name)?.as_ptr());
        }
        Ok(found)
    }

    /// All tensors of one side of the graph, in graph order.
    pub(crate) fn tensors(&self, side: Side) -> Result<Vec<GraphTensor>> {
        let api = self.runtime.api;
        let (count, type_info, name) = match side {
            Side::Input => (api.SessionGetInputCount, api.SessionGetInputTypeInfo, api.SessionGetInputName),
            Side::Output => (api.SessionGetOutputCount, api.SessionGetOutputTypeInfo, api.SessionGetOutputName),
            Side::Initializer => (
                api.SessionGetOverridableInitializerCount,
                api.SessionGetOverridableInitializerTypeInfo,
                api.SessionGetOverridableInitializerName,
            ),
        };
        let session = self.raw.0.as_ptr();
        let mut n = 0;
        // SAFETY: a live session and a valid out pointer.
        unsafe { check(api, count(session, &raw mut n))? };
        (0..n)
            .map(|i| {
                let (mut text, mut info) = (null_mut(), null_mut());
                // SAFETY: `i` is below the count; the text is NUL-terminated, copied, and freed; the info has an owner.
                unsafe {
                    check(api, name(session, i, self.runtime.allocator.as_ptr(), &raw mut text))?;
                    let owned = CStr::from_ptr(text).to_string_lossy().into_owned();
                    call!(api.AllocatorFree(self.runtime.allocator.as_ptr(), text.cast()))?;
                    check(api, type_info(session, i, &raw mut info))?;
                    let info = TypeInfo(non_null(info)?, api);
                    // An integer instead of the bindings' enum, because newer libraries have more types.
                    let mut kind = 0i32;
                    call!(api.GetOnnxTypeFromTypeInfo(info.0.as_ptr(), (&raw mut kind).cast()))?;
                    // Checked first, because sparse tensors have tensor info, too.
                    if kind != TENSOR {
                        return Err(unsupported(&owned, kind));
                    }
                    let mut tensor = null();
                    call!(api.CastTypeInfoToTensorInfo(info.0.as_ptr(), &raw mut tensor))?;
                    if tensor.is_null() {
                        return Err(unsupported(&owned, kind));
                    }
                    let (datatype, shape) = describe(api, tensor)?;
                    Ok(GraphTensor { name: owned, datatype, shape })
                }
            })
            .collect()
    }

    /// Runs the model. Outputs that are values are written in place, with `None` in the result; others are allocated.
    pub(crate) fn run<'i: 'o, 'o>(
        &self,
        options: &RunOptions,
        input_names: &[CName],
        inputs: &[Value<'i>],
        output_names: &[CName],
        mut outputs: Outputs<'o>,
    ) -> Result<Outputs<'i>> {
        let ours: SmallVec<[bool; 4]> = outputs.iter().map(Option::is_some).collect();
        self.run_raw(options, input_names, inputs, output_names, &mut outputs)?;
        // The runtime's allocation belongs to it, or to an input that the graph passes through; it never borrows from
        // the memory of another output, so only `'i` bounds it.
        let rebind = |value: Value<'o>| {
            let rebound = Value(value.0, PhantomData);
            std::mem::forget(value);
            rebound
        };
        Ok(outputs.into_iter().zip(ours).map(|(v, ours)| if ours { None } else { v.map(rebind) }).collect())
    }

    fn run_raw<'a>(
        &self,
        options: &RunOptions,
        input_names: &[CName],
        inputs: &[Value<'a>],
        output_names: &[CName],
        outputs: &mut [Option<Value<'a>>],
    ) -> Result<()> {
        if input_names.len() != inputs.len() || output_names.len() != outputs.len() {
            return Err(Error::internal("a run has as many names as values"));
        }
        let api = self.runtime.api;
        let (input_names, output_names) = (self.c_names(input_names)?, self.c_names(output_names)?);
        let _run = self.helpers.as_ref().map(Helpers::run);
        // SAFETY: there are as many names and values as announced. The names are NUL-terminated and owned by this
        // session. `Value` is transparent over the expected pointer, and `Option<Value>` is null for `None`. The
        // values' memory is borrowed for `'a`, longer than this call. New outputs are owned by their slots.
        let status = unsafe {
            (api.Run)(
                self.raw.0.as_ptr(),
                options.0.0.as_ptr(),
                input_names.as_ptr(),
                inputs.as_ptr().cast(),
                inputs.len(),
                output_names.as_ptr(),
                outputs.len(),
                outputs.as_mut_ptr().cast(),
            )
        };
        check(api, status).map_err(|e| self.noticed(e))
    }

    #[cold]
    fn noticed(&self, error: Error) -> Error {
        match &self.device_binding {
            Some(binding) => failed::noticed(binding.device, error),
            None => error,
        }
    }

    /// Creates run options with the configured entries.
    pub(crate) fn run_options(&self, entries: &[(String, String)]) -> Result<RunOptions> {
        let api = self.runtime.api;
        let mut raw = null_mut();
        // SAFETY: valid out pointer; keys and values are NUL-terminated and copied by the call.
        unsafe {
            call!(api.CreateRunOptions(&raw mut raw))?;
            let options = RunOptions(RawRunOptions(non_null(raw)?, api));
            for (key, value) in entries {
                call!(api.AddRunConfigEntry(options.0.0.as_ptr(), c_string(key)?.as_ptr(), c_string(value)?.as_ptr()))?;
            }
            Ok(options)
        }
    }

    pub(crate) fn runtime(&self) -> &'static Runtime {
        self.runtime
    }

    /// Number of cores that a run may use if the session decides so for each run; else `None`.
    pub(crate) fn cores(&self) -> Option<u32> {
        self.helpers.as_ref().map(|helpers| helpers.threads())
    }

    /// The device of the session; `None` is the CPU.
    pub(crate) fn device(&self) -> Option<u32> {
        self.device_binding.as_ref().map(|binding| binding.device)
    }
}

/// `ONNX_TYPE_TENSOR` of the library's header.
const TENSOR: i32 = 1;

/// Triton's text with its type names (none exists for optionals), and the remedy for the usual cause: converters of
/// scikit-learn end classifiers with a ZipMap.
fn unsupported(name: &str, kind: i32) -> Error {
    let kind = match kind {
        2 => "ONNX_TYPE_SEQUENCE",
        3 => "ONNX_TYPE_MAP",
        4 => "ONNX_TYPE_OPAQUE",
        5 => "ONNX_TYPE_SPARSETENSOR",
        _ => "ONNX_TYPE_UNKNOWN",
    };
    Error::new(
        Code::Unsupported,
        format!(
            "Unsupported ONNX Type '{kind}' for I/O '{name}', expected 'ONNX_TYPE_TENSOR'. A model converted from \
             scikit-learn has tensors instead when it is converted with zipmap=False."
        ),
    )
}

impl SessionOptions {
    fn build(&self, runtime: &Runtime, helpers: Option<&Reserved>) -> Result<RawOptions> {
        let api = runtime.api;
        let mut raw = null_mut();
        // SAFETY: valid out pointer, then a live handle; strings are NUL-terminated and copied by the calls.
        unsafe {
            call!(api.CreateSessionOptions(&raw mut raw))?;
            let options = RawOptions(non_null(raw)?, api);
            let raw = options.0.as_ptr();
            let level = match self.graph_level {
                GraphLevel::Off => sys::GraphOptimizationLevel::ORT_DISABLE_ALL,
                GraphLevel::Basic => sys::GraphOptimizationLevel::ORT_ENABLE_BASIC,
                GraphLevel::Extended => sys::GraphOptimizationLevel::ORT_ENABLE_EXTENDED,
                GraphLevel::All => sys::GraphOptimizationLevel::ORT_ENABLE_ALL,
            };
            call!(api.SetSessionGraphOptimizationLevel(raw, level))?;
            call!(api.SetSessionLogSeverityLevel(raw, sys::OrtLoggingLevel::ORT_LOGGING_LEVEL_FATAL as c_int))?;
            match self.threads.or(helpers.map(|helpers| (helpers.threads(), 1))) {
                None => call!(api.DisablePerSessionThreads(raw))?,
                Some((intra, inter)) => {
                    call!(api.SetIntraOpNumThreads(raw, intra))?;
                    call!(api.SetInterOpNumThreads(raw, inter))?;
                    threads::set_for_session(api, raw)?;
                }
            }
            if self.parallel {
                call!(api.SetSessionExecutionMode(raw, sys::ExecutionMode::ORT_PARALLEL))?;
            }
            match self.arena {
                Some(true) => call!(api.EnableCpuMemArena(raw))?,
                Some(false) => call!(api.DisableCpuMemArena(raw))?,
                None => {}
            }
            match self.pattern {
                Some(true) => call!(api.EnableMemPattern(raw))?,
                Some(false) => call!(api.DisableMemPattern(raw))?,
                None => {}
            }
            let spinning = match (self.spins, helpers) {
                (None, Some(_)) => helpers::spinning(runtime.minor),
                (spins, _) => SmallVec::from_iter([(INTRA_SPINNING, u8::from(spins == Some(true)).to_string())]),
            };
            let spinning = spinning.iter().map(|(key, value)| (*key, value.as_str())).chain([(INTER_SPINNING, "0")]);
            let own = self.entries.iter().map(|(key, value)| (key.as_str(), value.as_str()));
            for (key, value) in spinning.chain(own) {
                call!(api.AddSessionConfigEntry(raw, c_string(key)?.as_ptr(), c_string(value)?.as_ptr()))?;
            }
            for provider in &self.providers {
                runtime.append(&options, provider)?;
            }
            for library in &self.op_libraries {
                call!(api.RegisterCustomOpsLibrary_V2(raw, c_string(library)?.as_ptr()))?;
            }
            Ok(options)
        }
    }
}

/// # Safety
/// `info` is a live tensor info.
unsafe fn describe(
    api: &sys::OrtApi,
    info: *const sys::OrtTensorTypeAndShapeInfo,
) -> Result<(Option<DataType>, Shape)> {
    // An integer instead of the bindings' enum, because newer libraries have more element types.
    let (mut element, mut rank) = (0i32, 0usize);
    // SAFETY: `info` is live by contract; the enum is an i32 in C, and `dims` has room for `rank` values.
    unsafe {
        call!(api.GetTensorElementType(info, (&raw mut element).cast()))?;
        call!(api.GetDimensionsCount(info, &raw mut rank))?;
        let mut dims = Shape::from_elem(0, rank);
        call!(api.GetDimensions(info, dims.as_mut_ptr(), rank))?;
        Ok((datatype(element), dims))
    }
}

/// ONNX element types in the order of `DataType`. Their values are the numbers in ONNX files, too.
const ELEMENTS: [E; DataType::ALL.len()] = [
    E::ONNX_TENSOR_ELEMENT_DATA_TYPE_BOOL,
    E::ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT8,
    E::ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT16,
    E::ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT32,
    E::ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT64,
    E::ONNX_TENSOR_ELEMENT_DATA_TYPE_INT8,
    E::ONNX_TENSOR_ELEMENT_DATA_TYPE_INT16,
    E::ONNX_TENSOR_ELEMENT_DATA_TYPE_INT32,
    E::ONNX_TENSOR_ELEMENT_DATA_TYPE_INT64,
    E::ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT16,
    E::ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT,
    E::ONNX_TENSOR_ELEMENT_DATA_TYPE_DOUBLE,
    E::ONNX_TENSOR_ELEMENT_DATA_TYPE_STRING,
    E::ONNX_TENSOR_ELEMENT_DATA_TYPE_BFLOAT16,
];

fn datatype(code: i32) -> Option<DataType> {
    DataType::ALL.into_iter().find(|t| element(*t) as i32 == code)
}

/// Number of a datatype in ONNX files.
pub(crate) fn element_code(datatype: DataType) -> u64 {
    element(datatype) as u64
}

fn element(datatype: DataType) -> E {
    ELEMENTS[datatype as usize - 1]
}

/// Options of one run; `terminate` may be called during it.
pub(crate) struct RunOptions(RawRunOptions);

// SAFETY: the only call made from another thread is SetTerminate, which allows that.
unsafe impl Send for RunOptions {}
// SAFETY: as above.
unsafe impl Sync for RunOptions {}

impl RunOptions {
    /// Fails the current or next run with these options soon.
    pub(crate) fn terminate(&self) {
        // SAFETY: a live handle.
        let status = unsafe { (self.0.1.RunOptionsSetTerminate)(self.0.0.as_ptr()) };
        // Fails only for a null handle.
        let _ = check(self.0.1, status);
    }
}

/// A tensor of the runtime, over memory borrowed for `'a` or over memory of its own.
#[repr(transparent)]
pub(crate) struct Value<'a>(NonNull<sys::OrtValue>, PhantomData<&'a ()>);

// SAFETY: a value may be used and released by any thread, one at a time.
unsafe impl Send for Value<'_> {}
// SAFETY: shared references only read it.
unsafe impl Sync for Value<'_> {}

impl Drop for Value<'_> {
    fn drop(&mut self) {
        // SAFETY: owned by this value alone; the library is loaded while values exist.
        unsafe { (ort::api().ReleaseValue)(self.0.as_ptr()) }
    }
}

/// Address of the contents for the runtime.
fn address(data: &Data) -> Result<*mut u8> {
    match data {
        Data::Bytes(bytes) => Ok(bytes.as_ptr().cast_mut()),
        Data::Region(region) => mapped(region),
    }
}

/// Address of a region in host memory. Regions on devices were staged, or were not chosen as targets.
fn mapped(region: &RegionRef) -> Result<*mut u8> {
    region.host().ok_or_else(|| Error::internal("memory of a device was given to a run on the CPU"))
}

/// Address of empty tensors, because the runtime rejects null.
static NOTHING: [u64; 8] = [0; 8];

impl<'a> Value<'a> {
    /// An input over `data`, which must be aligned for its element type. Not for BYTES.
    ///
    /// The runtime reads a region by address. It is C++ code that sees plain memory: concurrent writes of a client only
    /// spoil its own results, for datatypes that do not steer memory (`inputs::may_stay`).
    pub(crate) fn input(runtime: &Runtime, datatype: DataType, shape: &[i64], data: &'a Data) -> Result<Self> {
        let base = address(data)?;
        // SAFETY: that many readable bytes, borrowed for `'a`; the runtime takes `*mut` but does not write to inputs.
        unsafe { Self::over(&runtime.cpu, datatype, shape, base, data.len()) }
    }

    /// An output over memory of the server. Not for BYTES.
    pub(crate) fn output(runtime: &Runtime, datatype: DataType, shape: &[i64], memory: &'a mut [u8]) -> Result<Self> {
        // SAFETY: exclusively borrowed for `'a`.
        unsafe { Self::over(&runtime.cpu, datatype, shape, memory.as_mut_ptr(), memory.len()) }
    }

    /// An output over the first `len` bytes of a client's region, which exist and are aligned. Not for BYTES.
    pub(crate) fn region_output(
        runtime: &Runtime,
        datatype: DataType,
        shape: &[i64],
        region: &'a RegionRef,
        len: usize,
    ) -> Result<Self> {
        if len > region.len() {
            return Err(Error::internal("an output must fit its region"));
        }
        let base = mapped(region)?;
        // SAFETY: `RegionMemory` guarantees writable bytes as long as the borrowed reference lives.
        unsafe { Self::over(&runtime.cpu, datatype, shape, base, len) }
    }

    /// A tensor over memory of the kind that `memory` describes.
    ///
    /// # Safety
    /// `len` bytes at `base`, in that kind of memory, stay valid for `'a`; those of an output are writable.
    unsafe fn over(
        memory: &RawMemoryInfo,
        datatype: DataType,
        shape: &[i64],
        base: *mut u8,
        len: usize,
    ) -> Result<Self> {
        let api = memory.1;
        let base = if len == 0 { NOTHING.as_ptr().cast_mut().cast() } else { base };
        let mut value = null_mut();
        // SAFETY: `base` and `len` by contract; the library checks that the shape fits in `len` bytes, and copies it.
        unsafe {
            call!(api.CreateTensorWithDataAsOrtValue(
                memory.0.as_ptr(),
                base.cast(),
                len,
                shape.as_ptr(),
                shape.len(),
                element(datatype),
                &raw mut value,
            ))?;
        }
        Ok(Self(non_null(value)?, PhantomData))
    }

    /// A string tensor of `count` elements; any other number is an error with the number found.
    pub(crate) fn strings<'s>(
        runtime: &Runtime,
        shape: &[i64],
        count: usize,
        elements: impl Iterator<Item = &'s [u8]>,
    ) -> Result<Self, StringCount> {
        let api = runtime.api;
        let mut value = null_mut();
        // SAFETY: valid allocator and out pointer; the shape is copied.
        unsafe {
            let status = (api.CreateTensorAsOrtValue)(
                runtime.allocator.as_ptr(),
                shape.as_ptr(),
                shape.len(),
                element(DataType::Bytes),
                &raw mut value,
            );
            check(api, status).map_err(StringCount::Failed)?;
        }
        let value = Self(non_null(value).map_err(StringCount::Failed)?, PhantomData);
        let mut filled = 0;
        for text in elements {
            if filled < count {
                let mut buffer: *mut c_char = null_mut();
                // SAFETY: the library checks the index and returns a buffer of the requested length, which may hold NUL
                // bytes, unlike with its calls that take C strings.
                unsafe {
                    call!(api.GetResizedStringTensorElementBuffer(
                        value.0.as_ptr(),
                        filled,
                        text.len(),
                        &raw mut buffer,
                    ))
                    .map_err(StringCount::Failed)?;
                    if !buffer.is_null() {
                        std::ptr::copy_nonoverlapping(text.as_ptr(), buffer.cast(), text.len());
                    }
                }
            }
            filled += 1;
        }
        if filled == count { Ok(value) } else { Err(StringCount::Found(filled)) }
    }

    pub(crate) fn describe(&self, runtime: &Runtime) -> Result<(Option<DataType>, Shape)> {
        let api = runtime.api;
        let mut is_tensor = 0;
        let mut info = null_mut();
        // SAFETY: a live value and valid out pointers; the info is owned by its handle while it is read.
        unsafe {
            call!(api.IsTensor(self.0.as_ptr(), &raw mut is_tensor))?;
            if is_tensor == 0 {
                return Ok((None, Shape::new()));
            }
            call!(api.GetTensorTypeAndShape(self.0.as_ptr(), &raw mut info))?;
            let info = ShapeInfo(non_null(info)?, api);
            describe(api, info.0.as_ptr())
        }
    }

    /// Shape and contents of an output in host memory; `None` if it is not FP32.
    pub(crate) fn floats(&self, runtime: &Runtime) -> Result<Option<(Shape, &[f32])>> {
        let (datatype, shape) = self.describe(runtime)?;
        let count = element_count(&shape).and_then(|n| usize::try_from(n).ok());
        let Some(count) = count.filter(|_| datatype == Some(DataType::Fp32)) else { return Ok(None) };
        let (api, mut base) = (runtime.api, null_mut());
        // SAFETY: a live tensor value and a valid out pointer.
        unsafe { call!(api.GetTensorMutableData(self.0.as_ptr(), &raw mut base))? };
        let base: NonNull<f32> = if count == 0 { NonNull::dangling() } else { non_null(base.cast())? };
        // SAFETY: as many aligned elements as the shape has. The value owns them, and nothing writes them any more.
        Ok(Some((shape, unsafe { std::slice::from_raw_parts(base.as_ptr(), count) })))
    }

    /// The contents of an output that the runtime allocated, without a copy: the `Bytes` own the value.
    ///
    /// An output that is an input of the graph shares its memory and is copied, because `inputs` are freed earlier.
    pub(crate) fn into_bytes<'d>(
        self,
        session: &Arc<Session>,
        len: usize,
        mut inputs: impl Iterator<Item = &'d Data>,
    ) -> Result<Bytes> {
        if len == 0 {
            return Ok(Bytes::new());
        }
        let api = session.runtime.api;
        let mut base = null_mut();
        // SAFETY: a live tensor value and a valid out pointer.
        unsafe { call!(api.GetTensorMutableData(self.0.as_ptr(), &raw mut base))? };
        let base: NonNull<u8> = non_null(base.cast())?;
        let shared = inputs.find_map(|input| {
            let offset = (base.as_ptr() as usize).checked_sub(address(input).ok()? as usize)?;
            (offset < input.len()).then_some((input, offset))
        });
        if let Some((input, offset)) = shared {
            let mut copy = SlabPool::global().get(len)?;
            input.copy_to(offset, &mut copy)?;
            return Ok(copy.freeze());
        }
        // `len` is the byte size of the tensor's shape and type; nothing writes to it any more. `'a` can be dropped:
        // memory of inputs was copied above; all other belongs to the value or, for constants, to the session.
        let value = Value(self.0, PhantomData);
        std::mem::forget(self);
        Ok(Bytes::from_owner(Owned {
            base,
            len,
            owner: Some(OutputOwner { _value: value, _session: Arc::clone(session) }),
        }))
    }

    /// The concatenated strings of an output, and the start of each.
    pub(crate) fn read_strings(&self, runtime: &Runtime, count: usize) -> Result<(Vec<u8>, Vec<usize>)> {
        let api = runtime.api;
        let mut len = 0;
        // SAFETY: a live string tensor of `count` elements; buffers are as long as announced. The calls reject null
        // buffers, so they are skipped for no elements.
        unsafe {
            call!(api.GetStringTensorDataLength(self.0.as_ptr(), &raw mut len))?;
            let (mut bytes, mut starts) = (vec![0u8; len.max(1)], vec![0usize; count]);
            if count > 0 {
                call!(api.GetStringTensorContent(
                    self.0.as_ptr(),
                    bytes.as_mut_ptr().cast(),
                    len,
                    starts.as_mut_ptr(),
                    count,
                ))?;
            }
            bytes.truncate(len);
            Ok((bytes, starts))
        }
    }
}

/// Reusable values with memory of their own, for one class of small inputs and outputs. Creating and releasing the
/// values of a run costs more than copying a few hundred bytes.
pub(crate) struct ReusableValues {
    // Fields are dropped in this order: the values before their memory.
    input_values: SmallVec<[Value<'static>; 4]>,
    output_values: Outputs<'static>,
    inputs: SmallVec<[Cells; 4]>,
    outputs: SmallVec<[Cells; 4]>,
}

/// Aligned memory that the runtime has a pointer to.
struct Cells {
    words: Box<[std::cell::UnsafeCell<u64>]>,
    len: usize,
}

// SAFETY: plain memory, used by one thread at a time, as the `&mut self` methods of its owner ensure.
unsafe impl Send for Cells {}

impl Cells {
    fn new(len: usize) -> Self {
        Self { words: (0..len.div_ceil(8)).map(|_| std::cell::UnsafeCell::new(0)).collect(), len }
    }

    fn base(&self) -> *mut u8 {
        std::cell::UnsafeCell::raw_get(self.words.as_ptr()).cast()
    }
}

impl ReusableValues {
    /// Values for tensors of these datatypes, shapes and byte sizes.
    pub(crate) fn new<'s>(
        runtime: &Runtime,
        inputs: impl Iterator<Item = (DataType, &'s [i64], usize)>,
        outputs: impl Iterator<Item = (DataType, &'s [i64], usize)>,
    ) -> Result<Self> {
        let mut made = Self {
            input_values: SmallVec::new(),
            output_values: SmallVec::new(),
            inputs: SmallVec::new(),
            outputs: SmallVec::new(),
        };
        for (datatype, shape, len) in inputs {
            let cells = Cells::new(len);
            // SAFETY: the cells are on the heap and freed after the value.
            made.input_values.push(unsafe { Value::over(&runtime.cpu, datatype, shape, cells.base(), len)? });
            made.inputs.push(cells);
        }
        for (datatype, shape, len) in outputs {
            let cells = Cells::new(len);
            // SAFETY: as above.
            made.output_values.push(Some(unsafe { Value::over(&runtime.cpu, datatype, shape, cells.base(), len)? }));
            made.outputs.push(cells);
        }
        Ok(made)
    }

    /// Copies `data` into an input at offset `at`; returns false if they do not fit.
    pub(crate) fn put(&mut self, input: usize, at: usize, data: &Data) -> bool {
        let Some(cells) = self.inputs.get(input) else { return false };
        if at.checked_add(data.len()).is_none_or(|end| end > cells.len) {
            return false;
        }
        // SAFETY: in bounds of cells that are exclusively borrowed, initialised, and not in use by a run: `&mut self`.
        let room = unsafe { std::slice::from_raw_parts_mut(cells.base().add(at), data.len()) };
        data.copy_to(0, room).is_ok()
    }

    pub(crate) fn input_len(&self, input: usize) -> usize {
        self.inputs.get(input).map_or(0, |cells| cells.len)
    }

    pub(crate) fn run(
        &mut self,
        session: &Session,
        options: &RunOptions,
        input_names: &[CName],
        output_names: &[CName],
    ) -> Result<()> {
        session.run_raw(options, input_names, &self.input_values, output_names, &mut self.output_values)
    }

    /// Contents of an output after the last run.
    pub(crate) fn output(&self, output: usize) -> &[u8] {
        let Some(cells) = self.outputs.get(output) else { return &[] };
        // SAFETY: `len` initialised bytes that we own; runs, which write them, need `&mut self`.
        unsafe { std::slice::from_raw_parts(cells.base(), cells.len) }
    }
}

/// Reason why a string tensor could not be filled.
pub(crate) enum StringCount {
    /// The actual number of elements.
    Found(usize),
    Failed(Error),
}

/// Keeps an output of the runtime alive behind a `Bytes`.
struct Owned {
    base: NonNull<u8>,
    len: usize,
    /// Taken in `drop` only.
    owner: Option<OutputOwner>,
}

struct OutputOwner {
    _value: Value<'static>,
    /// Dropped after the value, whose allocator it owns.
    _session: Arc<Session>,
}

impl Drop for Owned {
    fn drop(&mut self) {
        // A reactor drops the last view of a batch's outputs, however small that view is.
        memory::reclaim::drop_later(self.len, self.owner.take());
    }
}

// SAFETY: the memory is only read, and released by the thread that drops it last, which the library allows.
unsafe impl Send for Owned {}
// SAFETY: as above.
unsafe impl Sync for Owned {}

impl AsRef<[u8]> for Owned {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: `len` bytes owned by the value, which lives until `drop`; they are not written any more.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr(), self.len) }
    }
}
