//! The cost profile against simulated models (seeded) and a machine that preempts runs now and then.

use scheduler::cores::Plan;
use scheduler::profile::{FinishedRun, HoldTime, Profile, RunClass};

const LIMIT_NS: u64 = 25_000;

struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 16) % n
    }
}

/// A model whose rows of shape `class` cost `per_row`, on a machine that preempts one in a hundred runs.
struct World {
    profile: Profile,
    random: Random,
    inline: u64,
    ended: bool,
    now: u64,
    cpu_held_ns: u64,
}

impl World {
    fn new(seed: u64) -> Self {
        let random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        Self { profile: Profile::default(), random, inline: 0, ended: false, now: 0, cpu_held_ns: 0 }
    }

    /// One execution, inline if the profile allows. `expected_ns` is usual for its class, `cpu_ns` is what it computes.
    fn run(&mut self, class: u64, rows: u32, cpu_ns: u64) {
        let kind = RunClass::new(class << 16, rows, 0);
        let cpu_ns = cpu_ns + self.random.below(cpu_ns / 8 + 1);
        let stolen_ns = if self.random.below(100) == 0 { 4_000_000 } else { 0 };
        let duration_ns = cpu_ns + stolen_ns;
        self.now += duration_ns;
        if self.profile.is_cheap(kind, LIMIT_NS) {
            self.inline += 1;
            self.cpu_held_ns += cpu_ns;
            let held = HoldTime { cpu_ns: (duration_ns > 2 * LIMIT_NS).then_some(cpu_ns), exact: true };
            self.ended |= self.profile.ran_inline(held, LIMIT_NS, self.now).is_some();
        } else {
            self.profile.ran_on_pool(self.now);
        }
        self.profile.observe(&FinishedRun { class, kind, rows, tokens: 0, duration_ns, plan: Plan::None });
    }
}

#[test]
fn cheap_models_run_inline_despite_preemptions_and_slow_ones_never_do() {
    for seed in 0..32 {
        let mut world = World::new(seed);
        for _ in 0..20_000 {
            let class = world.random.below(3);
            let rows = 1 << world.random.below(4);
            world.run(class, rows, [2_000, 40_000, 900_000][class as usize] * u64::from(rows));
        }
        assert!(!world.ended, "seed {seed}");
        // Four runs of each size are measured on the pool first.
        let cheap = 20_000 / 3;
        assert!((cheap - 600..cheap + 600).contains(&world.inline), "seed {seed}: {}", world.inline);
        for (class, per_row) in [(0, 2_000), (1, 40_000), (2, 900_000)] {
            let predicted = world.profile.predict(class, 8).expect("it was seen");
            let expected = 8 * per_row;
            // Half of the spread, plus the preemptions that remain after capping at twice the mean.
            assert!((expected..expected * 5 / 4).contains(&predicted), "seed {seed}: {predicted} for {expected}");
        }
    }
}

#[test]
fn a_model_that_is_slow_for_some_inputs_rarely_holds_the_reactor() {
    for seed in 0..32 {
        let mut world = World::new(seed);
        for i in 0..200_000u64 {
            world.run(0, 1, if i > 1_000 && i % 3 == 0 { 300_000 } else { 3_000 });
        }
        assert!(world.ended, "seed {seed}");
        // 30 s: at the beginning, and after 1, 3, 7 and 15 s.
        let cheap = world.inline * 3_400;
        assert!(world.cpu_held_ns < cheap + 5 * 1_700_000, "seed {seed}: {} ns", world.cpu_held_ns);
    }
}

#[test]
fn after_a_busy_moment_a_model_runs_inline_again_a_second_later() {
    for seed in 0..32 {
        let mut world = World::new(seed);
        (0..100).for_each(|_| world.run(0, 1, 5_000));
        assert!(!world.ended && world.inline > 0, "seed {seed}");
        (0..100).for_each(|_| world.run(0, 1, 600_000));
        assert!(world.ended, "seed {seed}");
        let (before, since) = (world.inline, world.now);
        while world.inline == before {
            world.run(0, 1, 5_000);
            assert!(world.now < since + 1_500_000_000, "seed {seed}: not after {} ms", (world.now - since) / 1_000_000);
        }
    }
}

#[test]
fn classes_are_learned_independently() {
    for seed in 0..32 {
        let mut world = World::new(seed);
        (0..100).for_each(|_| world.run(0, 4, 100_000));
        (0..8).for_each(|_| world.run(1, 4, 20_000_000));
        (0..16).for_each(|_| world.run(0, 4, 100_000));
        assert!(world.profile.predict(1, 4).is_some_and(|ns| ns > 20_000_000), "seed {seed}");
        assert_eq!(world.inline, 0, "seed {seed}");
    }
}
