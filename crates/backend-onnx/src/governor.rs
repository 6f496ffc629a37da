//! Keeps the number of threads that compute at the number of cores when several heavy runs share the pool.
//!
//! One run alone is fastest with every thread of the pool. With as many runs as cores each is busy on the thread that called it,
//! and the pool's workers only take cores from them in the middle of an operator, which then waits for a worker that does not
//! run. The runtime has no setting per run, but a run does all its work itself when no worker is free. So a thread of ours, the
//! governor, occupies the workers while there are enough heavy runs: it runs a model (`ffi::park`) that leads them into `pass`,
//! where they sleep.
//!
//! All workers or none: a run hands its work to the others through one preferred worker, and found alone when that one sleeps,
//! so with some of them parked every run would be as slow as with all of them.
//!
//! Off unless `--backend-config=onnxruntime,park-workers=true` asks for it (`options::parks_workers`).
//!
//! Cheap runs are not counted and pay nothing; which are heavy is learned with everything else about their cost (`scheduler::profile`). Neither are runs of models with a pool of their own.
//!
//! Invariant: workers sleep only in the current round. A round ends for all of them at once, and the next one begins after the
//! last of them left.

use crate::ffi::{Gate, Park, Runtime};
use backend::now_ns;
use parking_lot::{Condvar, Mutex, MutexGuard};
use std::cell::Cell;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Workers stay parked for this share of a run's mean duration after runs became too few: a client that got its answer sends the
/// next request soon.
const HOLD_SHARE: u64 = 16;
const HOLD_NS: std::ops::RangeInclusive<u64> = 500_000..=4_000_000;

/// How long the governor's thread stays without work.
const IDLE_MAX: Duration = Duration::from_secs(10);

/// What the governor is told of one model's runs.
pub(crate) struct Weight {
    /// `None`: this model's runs do not use the shared pool, or it has no workers.
    governor: Option<&'static Governor>,
    /// As the profile of its costs says (`scheduler::profile`).
    heavy: AtomicBool,
}

impl Weight {
    pub(crate) fn new(governor: Option<&'static Governor>) -> Self {
        Self { governor, heavy: AtomicBool::new(false) }
    }

    /// Counts a run until the result is dropped, if this model's runs are heavy.
    pub(crate) fn begin(&self) -> Option<Heavy> {
        if !self.heavy.load(Ordering::Relaxed) {
            return None;
        }
        let governor = self.governor?;
        governor.enter();
        Some(Heavy { governor, start: now_ns() })
    }

    pub(crate) fn set(&self, heavy: bool) {
        self.heavy.store(heavy, Ordering::Relaxed);
    }
}

/// A heavy run.
pub(crate) struct Heavy {
    governor: &'static Governor,
    start: u64,
}

impl Drop for Heavy {
    fn drop(&mut self) {
        let now = now_ns();
        self.governor.leave(now, now.saturating_sub(self.start));
    }
}

/// When workers are parked. Pure: time is an argument.
#[derive(Debug, PartialEq)]
struct Policy {
    /// Heavy runs from which on the workers are in the way.
    runs_min: usize,
    runs: usize,
    parked: bool,
    /// Since when there are too few runs for workers that are parked.
    few_since: Option<u64>,
    /// Mean duration of the latest runs.
    mean_ns: u64,
}

/// What the governor does with parked workers.
#[derive(Debug, PartialEq)]
enum Step {
    Sleep,
    SleepUntil(u64),
    Release,
}

impl Policy {
    fn new(cores: usize) -> Self {
        // Never for a single run, whatever the machine.
        Self { runs_min: cores.max(2), runs: 0, parked: false, few_since: None, mean_ns: 0 }
    }

    /// A heavy run begins. Returns whether the workers are to be parked from now on.
    fn enter(&mut self) -> bool {
        self.runs += 1;
        if self.runs < self.runs_min {
            return false;
        }
        self.few_since = None;
        !std::mem::replace(&mut self.parked, true)
    }

    /// A heavy run ended. Returns whether to look at `step` again.
    fn leave(&mut self, now: u64, ns: u64) -> bool {
        self.runs = self.runs.saturating_sub(1);
        self.mean_ns = if self.mean_ns == 0 { ns } else { self.mean_ns - self.mean_ns / 8 + ns / 8 };
        if !self.parked || self.runs >= self.runs_min || self.few_since.is_some() {
            return false;
        }
        self.few_since = Some(now);
        true
    }

    fn step(&mut self, now: u64) -> Step {
        let Some(since) = self.few_since.filter(|_| self.parked) else {
            return if self.parked { Step::Sleep } else { Step::Release };
        };
        let due = since + (self.mean_ns / HOLD_SHARE).clamp(*HOLD_NS.start(), *HOLD_NS.end());
        if now < due {
            return Step::SleepUntil(due);
        }
        self.release();
        Step::Release
    }

    fn release(&mut self) {
        self.parked = false;
        self.few_since = None;
    }

    /// Never parks again.
    fn give_up(&mut self) {
        self.release();
        self.runs_min = usize::MAX;
    }
}

/// Parks and releases the workers of the shared pool.
pub(crate) struct Governor {
    runtime: &'static Runtime,
    workers: u32,
    /// Made when it is needed first; `None` inside when the runtime refused.
    park: OnceLock<Option<Park>>,
    state: Mutex<State>,
    /// The governor's thread waits for something to do.
    command: Condvar,
    /// Workers wait for the end of the round.
    gate: Condvar,
}

struct State {
    policy: Policy,
    /// The governor's thread is there.
    alive: bool,
    /// It sleeps without a limit, and must be woken to set one.
    sound_asleep: bool,
    /// The round workers sleep in.
    round: Option<u64>,
    rounds: u64,
    /// Workers asleep.
    held: u32,
}

static GOVERNOR: OnceLock<Option<Governor>> = OnceLock::new();

thread_local! {
    /// This is the governor's thread.
    static GOVERNS: Cell<bool> = const { Cell::new(false) };
}

impl Governor {
    /// The one of the process; `None` when the shared pool has no workers. The runtime is the one of the process, too.
    pub(crate) fn of(runtime: &'static Runtime) -> Option<&'static Self> {
        let governor = GOVERNOR.get_or_init(|| {
            let cores = std::thread::available_parallelism().map_or(1, usize::from);
            let state = State {
                policy: Policy::new(cores),
                alive: false,
                sound_asleep: false,
                round: None,
                rounds: 0,
                held: 0,
            };
            let workers = runtime.workers();
            (workers > 0).then(|| Self {
                runtime,
                workers,
                park: OnceLock::new(),
                state: Mutex::new(state),
                command: Condvar::new(),
                gate: Condvar::new(),
            })
        });
        governor.as_ref()
    }

    fn enter(&'static self) {
        let mut state = self.state.lock();
        if !state.policy.enter() {
            return;
        }
        if std::mem::replace(&mut state.alive, true) {
            self.command.notify_one();
            return;
        }
        drop(state);
        if memory::serving::spawn("nereid-governor", || self.govern()).is_err() {
            // No thread to be had; the next run tries again.
            let mut state = self.state.lock();
            state.alive = false;
            state.policy.release();
        }
    }

    fn leave(&self, now: u64, ns: u64) {
        let mut state = self.state.lock();
        if state.policy.leave(now, ns) && state.sound_asleep {
            self.command.notify_one();
        }
    }

    /// The governor's thread. Ends when there was nothing to do for a while, so that it need not be stopped.
    fn govern(&'static self) {
        GOVERNS.set(true);
        // Kept: operators cannot be taken back from the runtime.
        let park = self.park.get_or_init(|| Park::new(self.runtime, self).ok());
        let mut state = self.state.lock();
        loop {
            if state.policy.parked {
                state.rounds += 1;
                let round = state.rounds;
                state.round = Some(round);
                let ran = MutexGuard::unlocked(&mut state, || park.as_ref()?.run(self.workers, round).ok());
                if ran.is_none() {
                    // A runtime without custom operators, or without memory. Runs go on as if there were no governor.
                    state.round = None;
                    state.policy.give_up();
                }
            } else {
                state.sound_asleep = true;
                let waited = self.command.wait_for(&mut state, IDLE_MAX);
                state.sound_asleep = false;
                if waited.timed_out() && !state.policy.parked {
                    state.alive = false;
                    return;
                }
            }
        }
    }

    /// Where the governor's thread is during a round.
    fn keep(&self, round: u64) {
        let mut state = self.state.lock();
        while state.round == Some(round) {
            let now = now_ns();
            match state.policy.step(now) {
                Step::Sleep => {
                    state.sound_asleep = true;
                    self.command.wait(&mut state);
                    state.sound_asleep = false;
                }
                Step::SleepUntil(due) => {
                    self.command.wait_for(&mut state, Duration::from_nanos(due - now));
                }
                Step::Release => {
                    state.round = None;
                    self.gate.notify_all();
                }
            }
        }
        // The runtime would wait for them, too, but spinning.
        while state.held > 0 {
            self.command.wait(&mut state);
        }
    }

    /// Where workers are during a round.
    fn sleep(&self, round: u64) {
        let mut state = self.state.lock();
        // A worker that was busy until now may come when the round is over.
        if state.round != Some(round) {
            return;
        }
        state.held += 1;
        while state.round == Some(round) {
            self.gate.wait(&mut state);
        }
        state.held -= 1;
        if state.held == 0 {
            self.command.notify_one();
        }
    }
}

impl Gate for Governor {
    fn pass(&self, round: u64) {
        if GOVERNS.get() { self.keep(round) } else { self.sleep(round) }
    }
}

/// Workers parked now, and how often they were, for tests.
#[doc(hidden)]
pub fn parked() -> Option<(u32, u64)> {
    let state = GOVERNOR.get()?.as_ref()?.state.lock();
    Some((state.held, state.rounds))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// Plays `+` run begins, `-` run ends after 64 ms, at the time in ms before it; `?` asks for a step.
    fn check(cores: usize, script: &[(u64, char)], expected: &str) {
        let mut policy = Policy::new(cores);
        let mut told = Vec::new();
        for &(at, event) in script {
            match event {
                '+' if policy.enter() => told.push(format!("{at} park")),
                '-' if policy.leave(at * MS, 64 * MS) => told.push(format!("{at} look")),
                '?' => told.push(match policy.step(at * MS) {
                    Step::Sleep => format!("{at} sleep"),
                    Step::SleepUntil(due) => format!("{at} sleep to {}", due / MS),
                    Step::Release => format!("{at} release"),
                }),
                _ => {}
            }
        }
        assert_eq!(told.join(", "), expected, "{cores} cores: {script:?}");
    }

    #[test]
    fn workers_are_parked_while_there_are_as_many_heavy_runs_as_cores() {
        // One client after another is one run at a time.
        check(2, &[(0, '+'), (64, '-'), (65, '+'), (129, '-')], "");
        check(2, &[(0, '+'), (1, '+'), (2, '?')], "1 park, 2 sleep");
        check(2, &[(0, '+'), (1, '+'), (2, '+'), (9, '-'), (9, '?')], "1 park, 9 sleep");
        check(4, &[(0, '+'), (0, '+'), (0, '+')], "");
        check(4, &[(0, '+'), (0, '+'), (0, '+'), (5, '+')], "5 park");
        // A single run keeps the whole pool even on one core.
        check(1, &[(0, '+')], "");
    }

    #[test]
    fn they_stay_parked_for_a_sixteenth_of_a_run_and_at_most_four_milliseconds() {
        let two = [(0, '+'), (0, '+')];
        let then = |more: &[(u64, char)]| [&two[..], more].concat();
        check(2, &then(&[(64, '-'), (64, '?')]), "0 park, 64 look, 64 sleep to 68");
        check(2, &then(&[(64, '-'), (67, '?'), (68, '?')]), "0 park, 64 look, 67 sleep to 68, 68 release");
        // The next request of the client comes in time.
        check(2, &then(&[(64, '-'), (65, '+'), (68, '?')]), "0 park, 64 look, 68 sleep");
        // The time counts from the last change that left too few.
        check(2, &then(&[(64, '-'), (65, '+'), (66, '-'), (68, '?')]), "0 park, 64 look, 66 look, 68 sleep to 70");
        check(2, &then(&[(64, '-'), (66, '-'), (68, '?')]), "0 park, 64 look, 68 release");
        // After a release it starts over.
        check(2, &then(&[(64, '-'), (68, '?'), (69, '+')]), "0 park, 64 look, 68 release, 69 park");
    }

    #[test]
    fn short_runs_hold_the_workers_for_a_shorter_time() {
        let hold = |ns: u64| {
            let mut policy = Policy::new(2);
            policy.enter();
            policy.enter();
            policy.leave(0, ns);
            match policy.step(0) {
                Step::SleepUntil(due) => due,
                other => panic!("{other:?}"),
            }
        };
        assert_eq!([MS, 16 * MS, 32 * MS, 1000 * MS].map(hold), [500_000, MS, 2 * MS, 4 * MS]);
    }

    #[test]
    fn after_giving_up_nothing_is_parked() {
        let mut policy = Policy::new(2);
        assert!(!policy.enter() && policy.enter());
        policy.give_up();
        assert_eq!(policy.step(0), Step::Release);
        assert!(!policy.enter() && !policy.leave(0, MS));
    }
}
