//! Changes the instances of a serving version: remaining ones continue, new ones are added, others are removed.
//!
//! Instances have numbers. If instances are only permits, they are all alike and their count matters. Others are
//! matched with the new configuration by name, then by group and device, as in Triton.
//!
//! An idle instance is removed at once, a busy one after its batch, and one with sequences gets no others and is
//! removed after them. A permit that is wanted again before it was returned stays; the number of any other instance is
//! reused only after it was returned. So a number is never in use twice.

use crate::identity::ConfigTexts;
use crate::instance_config::{InstanceConfig, chosen_cores};
use crate::serving_state::Dispatch;
use crate::version::ModelVersion;
use crate::warmup;
use backend::{NewInstance, now_ns};
use memory::Ledger;
use protocol::pb::inference::ModelConfig;
use smallvec::SmallVec;
use std::sync::Arc;
use tensor::Result;

/// For each configured instance, the number of the existing one that stays for it.
fn stay(before: &[(u32, InstanceConfig)], wanted: &[InstanceConfig]) -> Vec<Option<u32>> {
    let mut left: Vec<&(u32, InstanceConfig)> = before.iter().collect();
    let mut take = |suits: &dyn Fn(&InstanceConfig) -> bool| {
        left.iter().position(|(_, instance)| suits(instance)).map(|at| left.remove(at).0)
    };
    let mut all: Vec<_> = wanted.iter().map(|wanted| take(&|instance| instance == wanted)).collect();
    // It keeps its name, which should not be that of a new instance.
    let is_given = |instance: &InstanceConfig| wanted.iter().any(|wanted| wanted.name == instance.name);
    for (stays, wanted) in all.iter_mut().zip(wanted) {
        *stays = stays
            .or_else(|| take(&|instance| instance.could_be(wanted) && !is_given(instance)))
            .or_else(|| take(&|instance| instance.could_be(wanted)));
    }
    all
}

/// Instances removed by a change.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Changed {
    /// Removed at once.
    left: SmallVec<[u32; 4]>,
}

impl Dispatch {
    /// Sets the instances, at least one, that run from now on.
    pub(crate) fn set_members(&mut self, now: u64, members: &[u32]) -> Changed {
        let mut changed = Changed::default();
        let before = std::mem::replace(&mut self.members, members.into());
        for &number in before.iter().filter(|number| !members.contains(number)) {
            if let Some(at) = self.gone.iter().position(|(gone, _)| *gone == number) {
                self.gone.remove(at);
                self.end_pause(number);
                // It has no sequences any more, and is idle or busy like any other.
                match self.leaving.iter().position(|leaving| *leaving == number) {
                    Some(at) => drop(self.leaving.remove(at)),
                    None => self.idle.insert(0, number),
                }
            }
            if let Some(sequences) = self.schedule.sequences_mut() {
                sequences.retire(number);
                if sequences.is_used(number) {
                    self.draining.push(number);
                    continue;
                }
                sequences.remove(number);
            }
            if self.take_from_idle(number) {
                changed.left.push(number);
            } else {
                self.leaving.push(number);
            }
        }
        for &number in members.iter().filter(|number| !before.contains(number)) {
            if let Some(sequences) = self.schedule.sequences_mut() {
                sequences.add(now, number);
            }
            let waits = [&mut self.leaving, &mut self.draining].into_iter().any(|list| {
                let at = list.iter().position(|leaving| *leaving == number);
                at.map(|at| list.remove(at)).is_some()
            });
            if !waits {
                self.idle.insert(0, number);
            }
        }
        changed
    }

    fn take_from_idle(&mut self, number: u32) -> bool {
        let at = self.idle.iter().position(|idle| *idle == number);
        at.map(|at| self.idle.remove(at)).is_some()
    }

    /// True if an instance has this number, or has not been returned yet.
    fn is_in_use(&self, number: u32) -> bool {
        [&self.members[..], &self.leaving, &self.draining].iter().any(|all| all.contains(&number))
    }

    /// Returns an instance that is not busy any more. Returns true if it was removed.
    pub(crate) fn give_back(&mut self, instance: u32) -> bool {
        if let Some(begun) = self.begun.get_mut(instance as usize) {
            begun.1 = 0;
        }
        let Some(at) = self.leaving.iter().position(|leaving| *leaving == instance) else {
            self.idle.push(instance);
            return false;
        };
        self.leaving.remove(at);
        // Otherwise it is gone, and may come back.
        !self.members.contains(&instance)
    }
}

impl ModelVersion {
    /// Continues with the given instances and configuration, or returns false if only a reload can change them, as with
    /// Triton's timer and the rate limiter, which depend on the number of instances. Blocks while new ones start.
    ///
    /// # Errors
    /// A new instance could not be started, or its warmup failed; nothing has changed then.
    pub(crate) fn set_instances(&self, config: &ModelConfig, texts: ConfigTexts) -> Result<bool> {
        if self.shared.options.strict_batching_delay || self.scheduling.limited.is_some() || self.graph().is_some() {
            return Ok(false);
        }
        let wanted = InstanceConfig::all(config);
        // One change at a time.
        let mut instances = self.serving.instances.lock();
        if self.scheduling.capabilities.instances_are_permits {
            // Instances on a device need their model loaded there.
            if self.scheduling.on_device || wanted.iter().any(|wanted| wanted.device.is_some()) {
                return Ok(false);
            }
            *instances = (0..).zip(wanted).collect();
        } else {
            let stay = stay(&instances, &wanted);
            let Some(started) = self.start_instances(config, &texts, &wanted, &stay)? else { return Ok(false) };
            let mut started = started.into_iter();
            let number = |(wanted, stays): (InstanceConfig, Option<u32>)| {
                // An instance that stays keeps the name that its code has.
                let kept = stays.and_then(|number| instances.iter().find(|(known, _)| *known == number).cloned());
                kept.or_else(|| Some((started.next()?.number, wanted)))
            };
            *instances = wanted.into_iter().zip(stay).filter_map(number).collect();
        }
        self.identity.config.store(Arc::new(texts));
        let cores = chosen_cores(self.scheduling.capabilities.cores, config);
        let members: Vec<u32> = match cores {
            Some(cores) => (0..cores).collect(),
            None => instances.iter().map(|(number, _)| *number).collect(),
        };
        self.change_members(&members, cores);
        Ok(true)
    }

    /// Changes the instances, and whether the number of runs is chosen.
    fn change_members(&self, members: &[u32], cores: Option<u32>) {
        let (now, mut removed) = (now_ns(), Vec::new());
        let mut dispatch = self.serving.dispatch.lock();
        dispatch.schedule.share_cores(cores);
        let new: SmallVec<[u32; 8]> =
            members.iter().copied().filter(|number| !dispatch.members.contains(number)).collect();
        let Changed { left } = dispatch.set_members(now, members);
        dispatch.recent.clear();
        self.serving.count_gone(&dispatch);
        if let Some((gone, why)) = dispatch.gone.last().filter(|_| dispatch.refusal().is_some()).cloned() {
            dispatch.schedule.down(now, gone, true, &why, &mut removed);
        }
        self.serving.instances_left(&left);
        self.pump(dispatch, now);
        self.unlocked(removed);
        self.notify_remote(|remote| remote.instances_serve(&new));
        self.look_at_devices();
        self.readiness_changed();
    }

    /// Starts and warms up the instances for which none stays. `None` if only reloads can change the model's instances.
    fn start_instances(
        &self,
        config: &ModelConfig,
        texts: &ConfigTexts,
        wanted: &[InstanceConfig],
        stay: &[Option<u32>],
    ) -> Result<Option<Vec<NewInstance>>> {
        let missing = stay.iter().enumerate().filter(|(_, stays)| stays.is_none()).map(|(placement, _)| placement);
        let dispatch = self.serving.dispatch.lock();
        let numbers = (0..).filter(|&number| !dispatch.is_in_use(number));
        let new: Vec<_> = missing.zip(numbers).map(|(placement, number)| NewInstance { number, placement }).collect();
        drop(dispatch);
        let of = |new: &NewInstance| wanted.get(new.placement).map(|wanted| (new.number, wanted));
        for (_, wanted) in new.iter().filter_map(of) {
            wanted.device.map_or(Ok(()), device::failure::check)?;
        }
        let json = String::from_utf8_lossy(&texts.json);
        match self.served.remote().and_then(|remote| remote.start_instances(&new, config, &json)) {
            None => return Ok(None),
            Some(started) => started?,
        }
        let warm_up = || {
            let mut names = Vec::new();
            for (number, wanted) in new.iter().filter_map(of) {
                self.statistics.place(number, wanted.device);
                wanted.device.map_or(Ok(()), |device| Ledger::global().check_limit(&wanted.name, device))?;
                names.push((number, wanted.name.clone()));
            }
            warmup::run(self, config, &self.identity.model_directory, &names)
        };
        warm_up().inspect_err(|_| {
            new.iter().for_each(|new| self.notify_remote(|remote| remote.instance_left(new.number)))
        })?;
        Ok(Some(new))
    }

    /// Removes instances whose sequences are over.
    pub(crate) fn let_go(&self, dispatch: &mut Dispatch) {
        let all = std::mem::take(&mut dispatch.draining);
        let Some(sequences) = dispatch.schedule.sequences_mut() else { return };
        let (used, free): (SmallVec<[u32; 2]>, SmallVec<[u32; 2]>) =
            all.into_iter().partition(|&instance| sequences.is_used(instance));
        free.iter().for_each(|&instance| sequences.remove(instance));
        dispatch.draining = used;
        for instance in free {
            if dispatch.take_from_idle(instance) {
                self.serving.instances_left(&[instance])
            } else {
                dispatch.leaving.push(instance)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schedule::Schedule;

    fn dispatch(instances: u32) -> Dispatch {
        let config = scheduler::Config {
            max_batch_size: 1,
            dynamic: None,
            instances,
            strict_delay: false,
            delay_scheduler: 0,
            tokens_max: None,
            cores: None,
        };
        Dispatch::new(Schedule::of(config, None), instances, why::Ring::new(Arc::default()))
    }

    /// Idle instances after each step, the next one last: `3` sets the count, `take` and `give n` use an instance.
    fn check(instances: u32, steps: &[(&str, &[u32])]) {
        let mut dispatch = dispatch(instances);
        for (step, expected) in steps {
            match step.split_once(' ') {
                Some((_, number)) => drop(dispatch.give_back(number.parse().unwrap())),
                None if *step == "take" => drop(dispatch.idle.pop()),
                None => drop(dispatch.set_members(0, &(0..step.parse().unwrap()).collect::<Vec<_>>())),
            }
            assert_eq!(dispatch.idle.as_slice(), *expected, "after {step}");
        }
    }

    #[test]
    fn idle_instances_are_added_and_removed_at_once() {
        check(1, &[("3", &[2, 1, 0]), ("3", &[2, 1, 0]), ("2", &[1, 0]), ("1", &[0]), ("2", &[1, 0])]);
    }

    #[test]
    fn a_busy_instance_is_removed_after_its_batch() {
        check(2, &[("take", &[1]), ("take", &[]), ("1", &[]), ("give 1", &[]), ("give 0", &[0])]);
        check(1, &[("take", &[]), ("2", &[1]), ("take", &[]), ("give 0", &[0]), ("1", &[0]), ("give 1", &[0])]);
    }

    #[test]
    fn an_instance_wanted_again_before_it_was_returned_stays_once() {
        check(2, &[("take", &[1]), ("take", &[]), ("1", &[]), ("2", &[]), ("give 1", &[1]), ("give 0", &[1, 0])]);
    }

    #[test]
    fn random_changes_end_with_the_configured_count() {
        let mut random = 88_172_645_463_325_252u64;
        let mut dispatch = dispatch(4);
        let mut out = Vec::new();
        for _ in 0..100_000 {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            match random % 5 {
                0 => drop(dispatch.set_members(0, &(0..(random >> 8) as u32 % 9 + 1).collect::<Vec<_>>())),
                1 | 2 => out.extend(dispatch.idle.pop()),
                _ if out.is_empty() => {}
                _ => drop(dispatch.give_back(out.swap_remove((random >> 8) as usize % out.len()))),
            }
            let mut all: Vec<u32> = dispatch.idle.iter().chain(&out).copied().collect();
            all.sort_unstable();
            all.dedup();
            assert_eq!(all.len(), dispatch.idle.len() + out.len(), "a number is out twice");
            let staying = all.iter().filter(|n| !dispatch.leaving.contains(n)).copied();
            assert!(
                staying.eq(dispatch.members.iter().copied()),
                "{all:?} without {:?}, of {:?}",
                dispatch.leaving,
                dispatch.members
            );
        }
    }

    #[test]
    fn an_instance_in_the_middle_can_be_removed() {
        let mut dispatch = dispatch(4);
        let left = |changed: Changed| changed.left.into_vec();
        assert_eq!(dispatch.idle.pop(), Some(0));
        assert_eq!(left(dispatch.set_members(0, &[2, 3])), [1]);
        assert_eq!((dispatch.idle.as_slice(), dispatch.leaving.as_slice()), (&[3, 2][..], &[0][..]));
        assert!(dispatch.is_in_use(0) && !dispatch.is_in_use(1));
        assert!(dispatch.give_back(0), "it left");
        assert_eq!(dispatch.idle.as_slice(), [3, 2]);
        assert_eq!(dispatch.idle.pop(), Some(2));
        assert!(!dispatch.give_back(2), "it stays");
    }

    #[test]
    fn a_gone_instance_is_removed_at_once_unless_it_is_busy() {
        let mut dispatch = dispatch(3);
        for number in [1, 2] {
            dispatch.gone.push((number, tensor::Error::unavailable("gone")));
        }
        (dispatch.idle, dispatch.leaving) = ([0].as_slice().into(), [2].as_slice().into());
        let changed = dispatch.set_members(0, &[0]);
        assert_eq!(changed.left.as_slice(), [1]);
        assert!(dispatch.gone.is_empty() && dispatch.give_back(2), "it left when it came back");
    }

    fn instances(groups: &str) -> Vec<InstanceConfig> {
        let kinds = [("gpu", 1), ("cpu", 2), ("model", 3)];
        let group = |text: &str| {
            let mut words = text.split(' ');
            let mut next = || words.next().unwrap_or_default();
            let (name, count, kind) = (next().to_owned(), next().parse().unwrap(), next().to_owned());
            let kind = kinds.iter().find(|(known, _)| *known == kind).unwrap().1;
            let gpus = words.map(|gpu| gpu.parse().unwrap()).collect();
            protocol::pb::inference::ModelInstanceGroup { name, count, kind, gpus, ..Default::default() }
        };
        let groups = groups.split(", ").map(group).collect();
        InstanceConfig::all(&ModelConfig { name: "m".into(), instance_group: groups, ..Default::default() })
    }

    /// Numbers of the instances that stay, in configured order; `-` = a new one.
    fn check_stay(before: &str, after: &str, expected: &str) {
        let before: Vec<_> = (0..).zip(instances(before)).collect();
        let stay = stay(&before, &instances(after));
        let all: Vec<_> = stay.iter().map(|stays| stays.map_or("-".to_owned(), |n| n.to_string())).collect();
        assert_eq!(all.join(" "), expected, "{after}");
    }

    #[test]
    fn instances_stay_by_name_then_by_group_and_device() {
        check_stay("a 1 cpu", "a 3 cpu", "0 - -");
        check_stay("a 3 cpu", "a 2 cpu", "0 1");
        check_stay("a 2 cpu, b 2 cpu", "b 2 cpu", "2 3");
        check_stay("a 2 cpu, b 1 cpu", "b 1 cpu, a 1 cpu", "2 0");
        check_stay("a 2 cpu", "other 2 cpu", "0 1");
        check_stay("a 2 cpu", "a 2 model", "- -");
        check_stay("a 2 gpu 0", "a 2 gpu 0 1", "0 - 1 -");
        check_stay("a 1 gpu 0 1", "a 1 gpu 1", "1");
        check_stay("a 1 gpu 0", "a 1 gpu 1", "-");
        check_stay("a 1 gpu 0, b 1 cpu", "b 1 cpu", "1");
        check_stay("a 2 model", "a 1 cpu, b 1 model", "- 1");
        check_stay("a 1 model", "a 1 cpu, b 1 model", "- 0");
    }
}
