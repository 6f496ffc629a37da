//! More or fewer instances while a version serves.
//!
//! Instances are permits here, known by their numbers. Those beyond a smaller count leave: idle ones at once, busy ones when they
//! come back. One that is called for again before it came back stays, so no number is ever out twice.

use crate::dispatch::Run;

impl Run {
    /// Lets `count` instances, at least one, run from now on.
    pub(crate) fn set_instances(&mut self, count: u32) {
        let count = count.max(1);
        for number in count..self.instances {
            match self.idle.iter().position(|idle| *idle == number) {
                Some(at) => drop(self.idle.remove(at)),
                None => self.leaving.push(number),
            }
        }
        for number in self.instances..count {
            match self.leaving.iter().position(|leaving| *leaving == number) {
                Some(at) => drop(self.leaving.remove(at)),
                None => self.idle.insert(0, number),
            }
        }
        self.instances = count;
    }

    /// An instance has nothing to run any more.
    pub(crate) fn give_back(&mut self, instance: u32) {
        match self.leaving.iter().position(|leaving| *leaving == instance) {
            Some(at) => drop(self.leaving.remove(at)),
            None => self.idle.push(instance),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schedule::Schedule;

    fn run(instances: u32) -> Run {
        let config = scheduler::Config {
            max_batch_size: 1,
            dynamic: None,
            instances,
            strict_delay: false,
            delay_scheduler: 0,
            padding: None,
        };
        Run::new(Schedule::new(config, None, false), instances)
    }

    /// What is idle after each step, the next one to run last: `3` sets the count, `take` and `give n` move an instance.
    fn check(instances: u32, steps: &[(&str, &[u32])]) {
        let mut run = run(instances);
        for (step, expected) in steps {
            match step.split_once(' ') {
                Some((_, number)) => run.give_back(number.parse().unwrap()),
                None if *step == "take" => drop(run.idle.pop()),
                None => run.set_instances(step.parse().unwrap()),
            }
            assert_eq!(run.idle.as_slice(), *expected, "after {step}");
        }
    }

    #[test]
    fn idle_instances_come_and_go_at_once() {
        check(1, &[("3", &[2, 1, 0]), ("3", &[2, 1, 0]), ("2", &[1, 0]), ("0", &[0]), ("2", &[1, 0])]);
    }

    #[test]
    fn a_busy_instance_leaves_when_it_comes_back() {
        check(2, &[("take", &[1]), ("take", &[]), ("1", &[]), ("give 1", &[]), ("give 0", &[0])]);
        check(1, &[("take", &[]), ("2", &[1]), ("take", &[]), ("give 0", &[0]), ("1", &[0]), ("give 1", &[0])]);
    }

    #[test]
    fn one_that_is_wanted_again_before_it_came_back_stays_once() {
        check(2, &[("take", &[1]), ("take", &[]), ("1", &[]), ("2", &[]), ("give 1", &[1]), ("give 0", &[1, 0])]);
    }

    #[test]
    fn whatever_happens_as_many_run_as_are_set_in_the_end() {
        let mut random = 88_172_645_463_325_252u64;
        let mut run = run(4);
        let mut out = Vec::new();
        for _ in 0..100_000 {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            match random % 5 {
                0 => run.set_instances((random >> 8) as u32 % 9),
                1 | 2 => out.extend(run.idle.pop()),
                _ if out.is_empty() => {}
                _ => run.give_back(out.swap_remove((random >> 8) as usize % out.len())),
            }
            let mut all: Vec<u32> = run.idle.iter().chain(&out).copied().collect();
            all.sort_unstable();
            all.dedup();
            assert_eq!(all.len(), run.idle.len() + out.len(), "a number is out twice");
            let staying = all.iter().filter(|n| !run.leaving.contains(n)).copied();
            assert!(staying.eq(0..run.instances), "{all:?} without {:?}, of {}", run.leaving, run.instances);
        }
    }
}
