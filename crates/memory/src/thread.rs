//! What a thread asks of the kernel's scheduler. Requests only: where they are refused, or not known, all goes on as before.
#![allow(unsafe_code)]

use std::cell::Cell;
use std::sync::OnceLock;
use std::time::Instant;

/// Niceness of threads that load models: a tenth of the share of a thread that serves, when both want the same core.
#[cfg(target_os = "linux")]
pub const BEHIND_NICENESS: libc::c_int = 10;

/// Niceness of threads that read and write large requests: a third of the share.
#[cfg(target_os = "linux")]
const ASIDE_NICENESS: libc::c_int = 5;

/// Slice of threads that serve, the least the kernel grants. A thread that wakes up takes the core from one with a longer slice,
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
    /// For ordinary threads, since Linux 6.12: the slice asked for, in nanoseconds.
    runtime: u64,
    deadline: u64,
    period: u64,
}

#[cfg(target_os = "linux")]
const SIZE: u32 = size_of::<SchedulingAttributes>() as u32;

/// This thread does little at a time and is waited for: it is to run soon after it woke up, also where others compute.
///
/// Its share of a core stays what it was.
pub fn be_prompt() {
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

/// What the kernel has for the calling thread.
#[cfg(target_os = "linux")]
fn scheduling() -> Option<SchedulingAttributes> {
    let mut attributes = SchedulingAttributes::default();
    // SAFETY: 0 means the calling thread; at most the size of the structure is written.
    let done = unsafe { libc::syscall(libc::SYS_sched_getattr, 0, &raw mut attributes, SIZE, 0) };
    (done == 0).then_some(attributes)
}

/// Niceness of the calling thread.
#[cfg(all(test, target_os = "linux"))]
pub(crate) fn niceness() -> i32 {
    scheduling().map_or(0, |attributes| attributes.nice)
}

/// CPU time this thread has used, in nanoseconds; 0 where the system does not tell. A system call: a quarter of a microsecond.
pub fn cpu_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a timespec of ours that the call fills.
    let done = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    if done == 0 { time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64 } else { 0 }
}

/// Monotonic nanoseconds since an arbitrary start; the one clock all durations are measured with. No system call.
pub fn now_ns() -> u64 {
    static START: OnceLock<Instant> = OnceLock::new();
    // 584 years until it wraps.
    START.get_or_init(Instant::now).elapsed().as_nanos() as u64
}

/// What the CPU clock of a thread said, and when.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CpuReading {
    /// By [`now_ns`].
    pub at: u64,
    /// As [`cpu_ns`] returned it.
    pub cpu_ns: u64,
}

thread_local! {
    static LAST_READING: Cell<CpuReading> = const { Cell::new(CpuReading { at: 0, cpu_ns: 0 }) };
}

/// Reads the CPU clock of this thread, at `now` by [`now_ns`], and keeps the reading for others on this thread.
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
pub fn step_behind() {
    #[cfg(target_os = "linux")]
    be_nice(BEHIND_NICENESS);
}

/// As [`step_behind`], by less: for threads that work for requests, but for the large ones, which can wait for the others.
pub fn step_aside() {
    #[cfg(target_os = "linux")]
    be_nice(ASIDE_NICENESS);
}

/// As [`step_behind`], for another thread of this process, which is alive.
#[cfg_attr(not(target_os = "linux"), allow(unused_variables))]
pub(crate) fn step_behind_of(id: i32) {
    #[cfg(target_os = "linux")]
    // SAFETY: no pointers. Failure leaves the priority as it was. A thread that is nicer already stays so.
    unsafe {
        if libc::getpriority(libc::PRIO_PROCESS, id as libc::id_t) < BEHIND_NICENESS {
            libc::setpriority(libc::PRIO_PROCESS, id as libc::id_t, BEHIND_NICENESS);
        }
    }
}

/// Has this thread run on one core only.
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
fn be_nice(niceness: libc::c_int) {
    // Miri has no priorities.
    if cfg!(miri) {
        return;
    }
    crate::serving::prepare();
    // A process that was started nicer than this stays so.
    if scheduling().is_some_and(|now| now.nice >= niceness) {
        return;
    }
    // SAFETY: no pointers; 0 means the calling thread. Failure leaves the priority as it was, which is only less polite.
    unsafe {
        libc::setpriority(libc::PRIO_PROCESS, 0, niceness);
    }
}

#[cfg(all(test, target_os = "linux", not(miri)))]
mod tests {
    use super::*;

    /// Slice and niceness of a thread that did `work`.
    fn on_a_thread(work: fn()) -> (u64, i32) {
        let thread = std::thread::spawn(move || {
            work();
            scheduling().map(|a| (a.runtime, a.nice))
        });
        thread.join().expect("does not panic").expect("the kernel tells")
    }

    #[test]
    fn a_prompt_thread_asks_for_a_short_slice_where_slices_can_be_asked_for() {
        let (before, nice) = on_a_thread(|| ());
        let (after, same) = on_a_thread(be_prompt);
        // Before Linux 6.12 both are 0.
        assert_eq!((after, same), (before.min(PROMPT_SLICE_NS), nice));
    }

    #[test]
    fn the_clock_of_a_thread_counts_work_and_not_sleep() {
        let start = cpu_ns();
        std::thread::sleep(std::time::Duration::from_millis(20));
        let slept = cpu_ns() - start;
        let end = std::time::Instant::now() + std::time::Duration::from_millis(20);
        while std::time::Instant::now() < end {}
        let worked = cpu_ns() - start - slept;
        assert!(slept < 10_000_000 && worked > slept, "{slept} ns asleep, {worked} ns at work");
    }

    #[test]
    fn a_thread_behind_is_nicer_than_others() {
        let (_, before) = on_a_thread(|| ());
        assert_eq!(on_a_thread(step_behind).1, before.max(BEHIND_NICENESS));
    }
}
