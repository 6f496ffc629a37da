//! A request for tests, and schedules written as a line of text.
//!
//! A schedule is a list of events, each `time:what`, with times in µs: `+3` a request of 3 rows arrives (`+3b` of shape
//! b, `p2` of priority 2, `t5` with timeout 5 µs, `+3u` one that joins no other before `=2` decides about request 2),
//! `+3x4` four of them arrive before the next step, `-2` request 2 is cancelled and removed,
//! `~2` it is cancelled without a call, `!` an instance finishes, `?` just a step, `>2` a busy
//! instance with 2 requests may be sent a batch, before the step. Requests count from 0. After every event the caller
//! steps and runs batches while an instance is idle, and steps again at the wake-up time. The trace shows the results:
//! `10:run[0,1]full` (with the cause, see `mark`), `10:ahead[0,1]`, `10:expired[2]`, `10:cancelled[2]`, `10:full[3]`,
//! and `10:sleep 15` whenever the wake-up time changes.
#![allow(dead_code)]

use scheduler::{Cause, Config, Dynamic, NextBatch, Policy, RemovalReason, Scheduler, TimeoutAction, Waiting};
use std::cell::Cell;
use std::rc::Rc;

#[derive(Clone, Debug)]
pub struct Request {
    pub id: usize,
    pub rows: u32,
    pub shape: u64,
    pub cancelled: Rc<Cell<bool>>,
    pub undecided: Rc<Cell<bool>>,
}

impl Waiting for Request {
    fn rows(&self) -> u32 {
        self.rows
    }
    fn is_cancelled(&self) -> bool {
        self.cancelled.get()
    }
    fn fits_with(&self, first: &Self) -> bool {
        self.shape == first.shape
    }
    fn is_decided(&self) -> bool {
        !self.undecided.get()
    }
    fn class(&self) -> u64 {
        self.shape
    }
}

pub fn request(id: usize, rows: u32, shape: u64) -> Request {
    Request { id, rows, shape, cancelled: Rc::default(), undecided: Rc::default() }
}

/// Seeded random numbers.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
    pub fn below(&mut self, n: u64) -> u64 {
        (self.next() >> 16) % n
    }
    pub fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }
    pub fn of<T: Clone>(&mut self, all: &[T]) -> T {
        all[self.below(all.len() as u64) as usize].clone()
    }
}

pub fn default_scheduler(max: u32) -> Config {
    Config {
        max_batch_size: max,
        dynamic: None,
        instances: 1,
        strict_delay: false,
        delay_scheduler: 0,
        tokens_max: None,
        cores: None,
    }
}

pub fn dynamic(max: u32, preferred: &[u32], delay_us: u64) -> Config {
    let dynamic = Dynamic { preferred: preferred.to_vec(), max_queue_delay_us: delay_us, ..Dynamic::default() };
    Config { dynamic: Some(dynamic), ..default_scheduler(max) }
}

pub fn strict(max: u32, preferred: &[u32], delay_us: u64) -> Config {
    Config { strict_delay: true, ..dynamic(max, preferred, delay_us) }
}

pub fn with(config: Config, change: impl FnOnce(&mut Dynamic)) -> Config {
    let mut dynamic = config.dynamic.unwrap_or_default();
    change(&mut dynamic);
    Config { dynamic: Some(dynamic), ..config }
}

pub fn policy(action: TimeoutAction, timeout_us: u64, allow_override: bool, max_queue_size: u32) -> Policy {
    Policy {
        timeout_action: action,
        default_timeout_us: timeout_us,
        allow_timeout_override: allow_override,
        max_queue_size,
    }
}

/// Plays a schedule and returns its trace.
pub struct Player {
    pub scheduler: Scheduler<Request>,
    pub idle: u32,
    requests: Vec<Request>,
    trace: Vec<String>,
    wake: Option<u64>,
}

impl Player {
    pub fn new(config: Config) -> Self {
        let idle = config.instances;
        Self { scheduler: Scheduler::new(config), idle, requests: vec![], trace: vec![], wake: None }
    }

    pub fn play(&mut self, schedule: &str) -> String {
        for event in schedule.split_whitespace() {
            let (time, what) = event.split_once(':').expect("time:what");
            let now = time.parse::<u64>().expect("time") * 1000;
            while let Some(wake) = self.wake.filter(|w| *w <= now) {
                self.look(wake);
            }
            match what.split_at(1) {
                ("+", spec) => self.arrive(now, spec),
                ("-", id) => {
                    self.requests[id.parse::<usize>().unwrap()].cancelled.set(true);
                    let mut dropped = vec![];
                    self.scheduler.remove_cancelled(&mut dropped);
                    self.note_dropped(now, dropped);
                }
                ("~", id) => self.requests[id.parse::<usize>().unwrap()].cancelled.set(true),
                ("=", id) => self.requests[id.parse::<usize>().unwrap()].undecided.set(false),
                ("!", _) => self.idle += 1,
                (">", running) => {
                    let mut dropped = vec![];
                    let batch = self.scheduler.step_ahead(now, running.parse().unwrap(), &mut dropped);
                    self.note_dropped(now, dropped);
                    let ids: Option<Vec<_>> = batch.map(|batch| batch.iter().map(|r| r.id.to_string()).collect());
                    self.trace.push(format!("{time}:ahead[{}]", ids.unwrap_or_default().join(",")));
                }
                ("?", _) => {}
                _ => panic!("unknown event {event}"),
            }
            self.look(now);
        }
        std::mem::take(&mut self.trace).join(" ")
    }

    fn arrive(&mut self, now: u64, spec: &str) {
        let number = |c: char| {
            let digits = spec.split(c).nth(1).unwrap_or("").split(|c: char| !c.is_ascii_digit()).next().unwrap_or("");
            digits.parse::<u64>().ok()
        };
        let rows = spec.split(|c: char| !c.is_ascii_digit()).next().unwrap().parse().expect("rows");
        let shape = spec.chars().find(|c| ('a'..='c').contains(c)).unwrap_or('a') as u64;
        for _ in 0..number('x').unwrap_or(1) {
            let request = request(self.requests.len(), rows, shape);
            request.undecided.set(spec.contains('u'));
            self.requests.push(request.clone());
            let (priority, timeout) = (number('p').unwrap_or(0), number('t').unwrap_or(0));
            if let Err((_, back)) = self.scheduler.push(now, priority, timeout, request) {
                self.trace.push(format!("{}:full[{}]", now / 1000, back.id));
            }
        }
    }

    fn look(&mut self, now: u64) {
        loop {
            let mut dropped = vec![];
            let step = self.scheduler.step(now, self.idle, &mut dropped);
            self.note_dropped(now, dropped);
            match step {
                NextBatch::Run { batch, why } => {
                    assert!(self.idle > 0, "run without an idle instance");
                    self.idle -= 1;
                    let ids: Vec<_> = batch.iter().map(|r| r.id.to_string()).collect();
                    self.trace.push(format!("{}:run[{}]{}", now / 1000, ids.join(","), mark(why)));
                }
                NextBatch::SleepUntil(at) => {
                    assert!(at > now, "sleep until {at} at {now}");
                    if self.wake != Some(at) {
                        self.trace.push(format!("{}:sleep {}", now / 1000, at / 1000));
                    }
                    self.wake = Some(at);
                    return;
                }
                NextBatch::Idle => {
                    self.wake = None;
                    return;
                }
            }
        }
    }

    fn note_dropped(&mut self, now: u64, dropped: Vec<(RemovalReason, Request)>) {
        for (why, request) in dropped {
            let why = if why == RemovalReason::Expired { "expired" } else { "cancelled" };
            self.trace.push(format!("{}:{why}[{}]", now / 1000, request.id));
        }
    }
}

/// The cause in a trace: the first word of its name, `.` for an idle instance, nothing for one that became free.
pub fn mark(why: Cause) -> &'static str {
    match why {
        Cause::InstanceFreed => "",
        Cause::IdleInstance => ".",
        _ => why.name().split('_').next().expect("a word"),
    }
}

/// Plays a schedule from the start.
#[track_caller]
pub fn check(config: &Config, schedule: &str, expected: &str) {
    assert_eq!(Player::new(config.clone()).play(schedule), expected, "schedule {schedule}");
}
