//! Copies from page-locked memory to device 0, by the server's planner and by bare calls of the driver in turn.

#![allow(unsafe_code)] // the bare calls

use crate::arguments::{Arguments, Failure};
use backend::copy;
use device::{PoolSizes, Stream, pinned, set_pool_sizes};
use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};
use std::ffi::{c_int, c_void};
use std::time::{Duration, Instant};
use tensor::{Base, Data};

const BYTES_DEFAULT: usize = 64 << 20;
const PAIRS_MIN: usize = 5;

type Copy = unsafe extern "C" fn(u64, *const c_void, usize, *mut c_void) -> c_int;
type Wait = unsafe extern "C" fn(*mut c_void) -> c_int;

/// The two calls of a bare copy.
struct Bare {
    copy: Copy,
    wait: Wait,
    /// Keeps the library open, because the two functions above belong to it.
    _library: Library,
}

impl Bare {
    fn new() -> Result<Self, Failure> {
        let path = std::env::var_os("NEREID_LIBCUDA").unwrap_or_else(|| "libcuda.so.1".into());
        // SAFETY: the driver, which this process has opened already, and functions with the prototypes of cuda.h.
        unsafe {
            let library = Library::open(Some(path), RTLD_NOW | RTLD_LOCAL)?;
            let copy = *library.get::<Copy>(b"cuMemcpyHtoDAsync_v2\0")?;
            let wait = *library.get::<Wait>(b"cuStreamSynchronize\0")?;
            Ok(Self { copy, wait, _library: library })
        }
    }

    /// Returns when `from` is at `to` on the device whose context this thread has.
    fn copy(&self, to: u64, from: &[u8], stream: &Stream) -> Result<(), Failure> {
        // SAFETY: `to` has room for all of `from`, by the caller, and both live until the stream was waited for.
        let codes = unsafe {
            [(self.copy)(to, from.as_ptr().cast(), from.len(), stream.as_raw()), (self.wait)(stream.as_raw())]
        };
        if codes == [0, 0] { Ok(()) } else { Err(format!("a bare copy failed with {codes:?}").into()) }
    }
}

/// `{"pairs":…,"ratio":…,"planner_gbps":…,"bare_gbps":…}`: medians; the ratio is taken pair by pair.
pub fn run(a: &Arguments) -> Result<(), Failure> {
    let len = a.number("bytes", BYTES_DEFAULT)?;
    let duration = Duration::from_secs_f64(a.number("duration", 2.0)?);
    set_pool_sizes(PoolSizes { pinned: 2 * len, devices: vec![(0, 2 * len)] });
    // Also makes the context the current one of this thread.
    let stream = Stream::new(0, 0).map_err(|e| e.message().to_owned())?;
    let mut slab = pinned(len).map_err(|why| format!("no pinned memory: {why:?}"))?;
    slab.iter_mut().enumerate().for_each(|(i, byte)| *byte = i as u8);
    let bytes = slab.freeze();
    let source = Data::Bytes(bytes.clone());
    let region = device::allocate(0, len).map_err(|e| e.message().to_owned())?;
    let Base::Device(memory) = region.base() else { return Err("memory of a device is not on it".into()) };
    let bare = Bare::new()?;
    let (mut pairs, began) = (Vec::new(), Instant::now());
    while pairs.len() < PAIRS_MIN || began.elapsed() < duration {
        let from = Instant::now();
        copy::whole(&source, &region).map_err(|e| e.message().to_owned())?;
        let planned = from.elapsed();
        let from = Instant::now();
        bare.copy(memory.address(), &bytes, &stream)?;
        pairs.push((planned.as_secs_f64(), from.elapsed().as_secs_f64()));
    }
    let rate = |seconds: f64| len as f64 / seconds / 1e9;
    let ratio = median(pairs.iter().map(|(planned, bare)| bare / planned).collect());
    let planner = median(pairs.iter().map(|(planned, _)| rate(*planned)).collect());
    let alone = median(pairs.iter().map(|(_, bare)| rate(*bare)).collect());
    let count = pairs.len();
    println!("{{\"pairs\":{count},\"ratio\":{ratio:.4},\"planner_gbps\":{planner:.2},\"bare_gbps\":{alone:.2}}}");
    Ok(())
}

fn median(mut list: Vec<f64>) -> f64 {
    list.sort_by(f64::total_cmp);
    list.get(list.len() / 2).copied().unwrap_or(f64::NAN)
}
