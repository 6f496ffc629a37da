//! Scheduling of threads by the kernel. Requests only: if they are rejected or unknown, nothing changes.
#![allow(unsafe_code)]

use std::cell::Cell;
use std::sync::LazyLock;
use std::time::Instant;

/// Niceness of threads that load models: a tenth of the share of a serving thread, when both need the same core.
#[cfg(target_os = "linux")]
pub const LOADING_NICENESS: libc::c_int = 10;

/// Niceness of threads that read and write large requests: a third of the share.
#[cfg(target_os = "linux")]
const LARGE_REQUEST_NICENESS: libc::c_int = 5;

/// Slice of serving threads, the shortest the kernel grants. A thread that wakes up preempts one with a longer slice,
/// but waits for the end of an equal one, which is 1.4 to 3 ms with the default.
#[cfg(target_os = "linux")]
const PROMPT_SLICE_NS: u64 = 100_000;

/// `struct sched_attr` of Linux, in its first form.
#[cfg(target_os = "linux")]
#[repr(C)]
#[derive(Default)]
struct SchedulingAttributes {
    size: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    /// The requested slice in ns, for ordinary threads since Linux 6.12.
    runtime: u64,
    deadline: u64,
    period: u64,
}

#[cfg(target_os = "linux")]
const SIZE: u32 = size_of::<SchedulingAttributes>() as u32;

/// Requests short slices for this thread, which works little at a time: it runs soon after it wakes up.
///
/// Its share of a core stays the same.
pub fn request_short_slices() {
    crate::roster::serve();
    #[cfg(target_os = "linux")]
    {
        let Some(now) = scheduling() else { return };
        // Real-time and idle threads were made so on purpose.
        if now.policy != libc::SCHED_OTHER as u32 {
            return;
        }
        let attributes =
            SchedulingAttributes { size: SIZE, nice: now.nice, runtime: PROMPT_SLICE_NS, ..Default::default() };
        // SAFETY: 0 means the calling thread; the structure is as long as it says and is only read.
        unsafe {
            libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0);
        }
    }
}

/// The kernel's settings of the calling thread.
#[cfg(target_os = "linux")]
fn scheduling() -> Option<SchedulingAttributes> {
    let mut attributes = SchedulingAttributes::default();
    // SAFETY: 0 means the calling thread; at most the size of the structure is written.
    let done = unsafe { libc::syscall(libc::SYS_sched_getattr, 0, &raw mut attributes, SIZE, 0) };
    (done == 0).then_some(attributes)
}

#[cfg(all(test, target_os = "linux"))]
pub(crate) fn niceness() -> i32 {
    scheduling().map_or(0, |attributes| attributes.nice)
}

/// CPU time of this thread in ns; 0 if the system does not report it. A system call: a quarter of a microsecond.
pub fn cpu_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a timespec of ours that the call fills.
    let done = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    if done == 0 { time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64 } else { 0 }
}

/// Monotonic ns since an arbitrary start; the one clock of all durations. No system call.
pub fn now_ns() -> u64 {
    static START: LazyLock<Instant> = LazyLock::new(Instant::now);
    // 584 years until it wraps.
    START.elapsed().as_nanos() as u64
}

/// The time by [`now_ns`] of a reading of the system's monotonic clock in ns, which other processes share and C++ calls
/// `steady_clock`; 0 for one before the start of this process.
pub fn from_system_ns(reading: u64) -> u64 {
    // The two readings are less than a microsecond apart.
    static AHEAD: LazyLock<u64> = LazyLock::new(|| system_ns().saturating_sub(now_ns()));
    reading.saturating_sub(*AHEAD)
}

fn system_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a timespec of ours that the call fills.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// A reading of a thread's CPU clock.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CpuReading {
    /// Time by [`now_ns`].
    pub at: u64,
    /// Result of [`cpu_ns`].
    pub cpu_ns: u64,
}

thread_local! {
    static LAST_READING: Cell<CpuReading> = const { Cell::new(CpuReading { at: 0, cpu_ns: 0 }) };
}

/// Reads the CPU clock of this thread, at `now` by [`now_ns`], and keeps the reading for other callers on this thread.
pub fn read_cpu(now: u64) -> CpuReading {
    let reading = CpuReading { at: now, cpu_ns: cpu_ns() };
    LAST_READING.set(reading);
    reading
}

/// The last result of [`read_cpu`] on this thread; zeros before the first.
pub fn last_cpu_reading() -> CpuReading {
    LAST_READING.get()
}

/// Lowers the priority of this thread for good. On Linux niceness belongs to the thread; elsewhere this does nothing.
pub fn lower_priority() {
    #[cfg(target_os = "linux")]
    raise_niceness(LOADING_NICENESS);
}

/// Like [`lower_priority`], but less: for threads that work for large requests, which can wait for others.
pub fn lower_priority_slightly() {
    #[cfg(target_os = "linux")]
    raise_niceness(LARGE_REQUEST_NICENESS);
}

/// Like [`lower_priority`], for another live thread of this process.
#[cfg_attr(not(target_os = "linux"), allow(unused_variables))]
pub(crate) fn lower_priority_of(id: i32) {
    #[cfg(target_os = "linux")]
    // SAFETY: no pointers. Failure leaves the priority as it was. A thread that is nicer already stays so.
    unsafe {
        if libc::getpriority(libc::PRIO_PROCESS, id as libc::id_t) < LOADING_NICENESS {
            libc::setpriority(libc::PRIO_PROCESS, id as libc::id_t, LOADING_NICENESS);
        }
    }
}

/// Pins this thread to one core.
#[cfg(all(test, target_os = "linux"))]
pub(crate) fn pin(core: usize) {
    // SAFETY: a set of cores is plain bits; 0 means the calling thread, and the set is only read.
    unsafe {
        let mut cores = std::mem::zeroed::<libc::cpu_set_t>();
        libc::CPU_SET(core, &mut cores);
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const cores);
    }
}

#[cfg(target_os = "linux")]
fn raise_niceness(niceness: libc::c_int) {
    // Miri has no priorities.
    if cfg!(miri) {
        return;
    }
    crate::serving::prepare();
    // A process that was started nicer than this stays so.
    if scheduling().is_some_and(|now| now.nice >= niceness) {
        return;
    }
    // SAFETY: no pointers; 0 means the calling thread. Failure leaves the priority as it was, which is acceptable.
    unsafe {
        libc::setpriority(libc::PRIO_PROCESS, 0, niceness);
    }
}

#[cfg(all(test, target_os = "linux", not(miri)))]
mod tests {
    use super::*;

    /// Slice and niceness of a thread after `work`.
    fn on_a_thread(work: fn()) -> (u64, i32) {
        let thread = std::thread::spawn(move || {
            work();
            scheduling().map(|a| (a.runtime, a.nice))
        });
        thread.join().expect("does not panic").expect("the kernel tells")
    }

    #[test]
    fn a_reading_of_the_system_clock_is_the_time_of_this_process() {
        let before = now_ns();
        let converted = from_system_ns(system_ns());
        let after = now_ns();
        // The two clocks are aligned once, within the time between two calls.
        assert!((before.saturating_sub(1_000_000)..=after + 1_000_000).contains(&converted));
        assert_eq!(from_system_ns(0), 0);
    }

    #[test]
    fn short_slices_are_requested_where_supported() {
        let (before, nice) = on_a_thread(|| ());
        let (after, same) = on_a_thread(request_short_slices);
        // Before Linux 6.12 both are 0.
        assert_eq!((after, same), (before.min(PROMPT_SLICE_NS), nice));
    }

    #[test]
    fn cpu_time_excludes_sleep() {
        let start = cpu_ns();
        std::thread::sleep(std::time::Duration::from_millis(20));
        let slept = cpu_ns() - start;
        let end = std::time::Instant::now() + std::time::Duration::from_millis(20);
        while std::time::Instant::now() < end {}
        let worked = cpu_ns() - start - slept;
        assert!(slept < 10_000_000 && worked > slept, "{slept} ns asleep, {worked} ns at work");
    }

    #[test]
    fn a_lowered_priority_raises_the_niceness() {
        let (_, before) = on_a_thread(|| ());
        assert_eq!(on_a_thread(lower_priority).1, before.max(LOADING_NICENESS));
    }
}
