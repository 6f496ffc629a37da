//! The rate limiter: which executions run side by side, in which order, and what is rejected.

use crate::common::Random;
use options::Available;
use scheduler::rate::{InstanceId, Limited, RESOURCES_MAX, RateLimiter, RegisterError, Resource};
use std::collections::{BTreeMap, VecDeque};

fn resource(name: &str, count: u32, global: bool) -> Resource {
    Resource { name: name.into(), global, count }
}

/// Parses an instance: `R1:6` of a resource of its device, `*G:2` of a global one, priority `p5`, device `@1`.
fn limited(text: &str) -> Limited {
    let mut limited = Limited::default();
    for word in text.split_whitespace() {
        if let Some(priority) = word.strip_prefix('p') {
            limited.priority = priority.parse().expect("priority");
        } else if let Some(device) = word.strip_prefix('@') {
            limited.device = device.parse().expect("device");
        } else {
            let global = word.starts_with('*');
            let (name, count) = word.trim_start_matches('*').split_once(':').expect("name:count");
            limited.resources.push(resource(name, count.parse().expect("count"), global));
        }
    }
    limited
}

/// Creates a limiter from values of `--rate-limit-resource`.
fn limiter(available: &[&str]) -> RateLimiter {
    let parse = |text: &&str| {
        let parts: Vec<&str> = text.split(':').collect();
        let number = |at: usize| parts.get(at).map(|n| n.parse().expect("number"));
        Available { name: parts[0].into(), count: number(1).expect("count"), device: number(2) }
    };
    RateLimiter::new(available.iter().map(parse).collect())
}

fn granted(limiter: &mut RateLimiter) -> Vec<InstanceId> {
    let mut all = Vec::new();
    limiter.grant(&mut all);
    all
}

fn add(limiter: &mut RateLimiter, text: &str) -> InstanceId {
    limiter.register(&[limited(text)]).expect("registered")[0]
}

const RECORDED: [&str; 2] = ["R1:10", "G:3"];

#[test]
fn s35_recorded_models_load_or_are_rejected() {
    let mut limiter = limiter(&RECORDED);
    let mut check = |text: &str, expected: &str| {
        let got = limiter.register(&[limited(text)]).map_or_else(|e| e.to_string(), |_| "ok".into());
        assert_eq!(got, expected, "{text}");
    };
    let short = |name: &str, available: u32, needed: u32| {
        format!(
            "Resource count for \"{name}\" is limited to {available} which will prevent scheduling of one or more \
             model instances, the minimum required count is {needed}"
        )
    };
    check("R1:6", "ok");
    check("R1:10", "ok");
    check("R1:11", &short("R1", 10, 11));
    check("*G:3", "ok");
    check("*G:4", &short("G", 3, 4));
    check(
        "*R1:1",
        "Resource \"R1\" is present as both global and device-specific resource in the model configuration.",
    );
    check("NEW:1", &short("NEW", 0, 1));
    check("NEW:0", "ok");
    check("R1:2 R1:3", "ok");
    check("r1:1", &short("r1", 0, 1));
    check(":1", &short("", 0, 1));
    check("D:3", &short("D", 0, 3));
    check("", "ok");
}

#[test]
fn s35_a_rejected_registration_leaves_nothing_behind() {
    let mut limiter = limiter(&["R:4"]);
    assert!(limiter.register(&[limited("R:1"), limited("R:5")]).is_err());
    assert!(limiter.register(&[limited("A:0"), limited("*A:0")]).is_err(), "within one model, too");
    assert!(limiter.register(&[limited("A:0 *A:0")]).is_err(), "and within one instance");
    assert_eq!(limiter.usage().count(), 0);
    let id = add(&mut limiter, "*R:1");
    limiter.unregister(id);
    assert!(limiter.register(&[limited("R:1")]).is_ok(), "nobody uses it as a global one any more");
    let many = Limited { resources: vec![resource("R", 1, false); RESOURCES_MAX + 1], ..Limited::default() };
    let refused = limiter.register(&[many]);
    assert_eq!(refused, Err(RegisterError::TooMany { resources: RESOURCES_MAX + 1 }));
}

#[test]
fn s35_capacity_of_a_resource() {
    let check = |available: &[&str], instances: &[&str], expected: &[(&str, Option<u32>, u64)]| {
        let mut limiter = limiter(available);
        for instance in instances {
            add(&mut limiter, instance);
        }
        let mut got: Vec<_> = limiter.usage().map(|(name, device, _, capacity)| (name, device, capacity)).collect();
        got.sort_unstable();
        assert_eq!(got, expected, "{available:?} {instances:?}");
    };
    // The largest declared count, by device.
    check(&[], &["A:2", "A:5", "A:3 @1", "*G:1"], &[("A", Some(0), 5), ("A", Some(1), 3), ("G", None, 1)]);
    check(&["A:4"], &["A:2", "A:3 @1"], &[("A", Some(0), 4), ("A", Some(1), 4)]);
    check(&["A:4", "A:7:1"], &["A:2", "A:3 @1"], &[("A", Some(0), 4), ("A", Some(1), 7)]);
    check(&["A:4", "A:3:1"], &["A:2", "A:3 @1"], &[("A", Some(0), 4), ("A", Some(1), 4)]);
    check(&["A:4", "A:6:2", "A:5:1"], &["*A:2"], &[("A", None, 6)]);
    check(&["A:4:0"], &["A:0 @1"], &[("A", Some(1), 0)]);

    let mut limiter = limiter(&[]);
    let (small, large) = (add(&mut limiter, "A:2"), add(&mut limiter, "A:5"));
    limiter.unregister(large);
    assert_eq!(limiter.usage().next(), Some(("A", Some(0), 0, 2)), "unloading recomputes");
    limiter.unregister(small);
    assert_eq!(limiter.usage().next(), None);
}

/// Simulates requests to models that arrive `gap_ms` apart, with executions of 200 ms. Returns, as recorded, the total
/// time in executions and the order in which they end.
fn play(available: &[&str], models: &[(&str, &[&str])], requests: &[&str], gap_ms: u64) -> (u64, Vec<String>) {
    let mut limiter = limiter(available);
    let mut of: BTreeMap<&str, Vec<InstanceId>> = BTreeMap::new();
    for (name, instances) in models {
        let instances: Vec<Limited> = instances.iter().map(|i| limited(i)).collect();
        of.insert(name, limiter.register(&instances).expect("registered"));
    }
    let mut arrivals: VecDeque<(u64, &str)> =
        requests.iter().enumerate().map(|(i, m)| (i as u64 * gap_ms, *m)).collect();
    let (mut waiting, mut asked): (Vec<&str>, Vec<InstanceId>) = Default::default();
    let mut running: Vec<(u64, InstanceId, &str)> = Vec::new();
    let (mut now, mut order) = (0, Vec::new());
    loop {
        // One instance asks for each request: the one that executed least.
        for model in std::mem::take(&mut waiting) {
            let idle = |id: &&InstanceId| !asked.contains(id);
            match of[model].iter().filter(idle).min_by_key(|&&id| limiter.rank(id)) {
                Some(&id) => {
                    asked.push(id);
                    limiter.request(id);
                }
                None => waiting.push(model),
            }
        }
        for id in granted(&mut limiter) {
            let model = of.iter().find(|(_, ids)| ids.contains(&id)).map(|(m, _)| *m).expect("known");
            running.push((now + 200, id, model));
        }
        let end = running.iter().map(|r| r.0).min();
        let arrival = arrivals.front().map(|a| a.0);
        let Some(next) = [end, arrival].into_iter().flatten().min() else { break };
        now = next;
        let (over, rest) = running.into_iter().partition(|r: &(u64, InstanceId, &str)| r.0 == now);
        running = rest;
        for (_, id, model) in over {
            limiter.release(id);
            asked.retain(|&a| a != id);
            order.push(model.to_string());
        }
        while let Some(&(_, model)) = arrivals.front().filter(|a| a.0 == now) {
            waiting.push(model);
            arrivals.pop_front();
        }
    }
    assert!(waiting.is_empty() && asked.is_empty(), "everything runs");
    ((now + 80) / 200, order)
}

#[test]
fn s35_recorded_runs_side_by_side() {
    let models: &[(&str, &[&str])] = &[
        ("r6a", &["R1:6"]),
        ("r6b", &["R1:6"]),
        ("r4", &["R1:4"]),
        ("r4two", &["R1:4", "R1:4"]),
        ("r10", &["R1:10"]),
        ("g2", &["*G:2"]),
        ("both", &["R1:5 *G:1"]),
        ("twice", &["R1:2 R1:3"]),
        ("unlisted0", &["NEW:0"]),
        ("none", &[""]),
        ("prio1", &["R1:10 p1"]),
        ("prio5", &["R1:10 p5"]),
    ];
    let check = |requests: &[&str], gap_ms: u64, units: u64| {
        let (took, order) = play(&RECORDED, models, requests, gap_ms);
        assert_eq!(took, units, "{requests:?}: {order:?}");
        order
    };
    // Recorded from Triton (golden-steps, rate).
    assert_eq!(check(&["r6a", "r4"], 10, 1), ["r6a", "r4"]);
    assert_eq!(check(&["g2", "g2"], 10, 2), ["g2", "g2"]);
    assert_eq!(check(&["r10", "g2"], 10, 1), ["r10", "g2"]);
    assert_eq!(check(&["twice", "r6a"], 10, 1), ["twice", "r6a"]);
    assert_eq!(check(&["both", "r4"], 10, 1), ["both", "r4"]);
    assert_eq!(check(&["unlisted0", "r10"], 10, 1), ["unlisted0", "r10"]);
    assert_eq!(check(&["r6a", "r10", "r4"], 30, 3), ["r6a", "r10", "r4"], "a small one does not overtake a large one");
    // Consequences of the rules.
    check(&["r6a", "r6b"], 10, 2);
    check(&["r4", "r4"], 10, 2);
    check(&["r4two", "r4two"], 10, 1);
    check(&["r4two", "r4two", "r4"], 10, 2);
    check(&["none", "r10"], 10, 1);
    check(&["r10", "none"], 10, 1);
    assert_eq!(check(&["r6a", "r10", "g2"], 30, 2), ["r6a", "g2", "r10"], "what a waiting one does not need");
    assert_eq!(check(&["r6a", "r10", "none"], 30, 2), ["r6a", "none", "r10"], "nothing is needed");
    assert_eq!(
        check(&["r10", "prio5", "prio1", "prio5", "prio1"], 30, 5),
        ["r10", "prio1", "prio5", "prio1", "prio5"],
        "executions so far times priority, and of those that never ran the lower priority number"
    );
}

/// Grants of instances that always want to execute. Each execution ends before the next grant.
fn shares(limiter: &mut RateLimiter, ids: &[InstanceId], grants: usize) -> Vec<usize> {
    let mut shares = vec![0; ids.len()];
    let mut total = 0;
    while total < grants {
        ids.iter().for_each(|&id| limiter.request(id));
        let now = granted(limiter);
        assert!(!now.is_empty(), "nobody runs, and everybody wants to");
        for id in now {
            limiter.release(id);
            total += 1;
            shares[ids.iter().position(|&i| i == id).expect("asked")] += 1;
        }
    }
    shares
}

#[test]
fn s35_an_execution_counts_as_much_as_the_priority() {
    let mut limiter = limiter(&["R:1"]);
    let ids = ["R:1 p1", "R:1 p2", "R:1 p4", "R:1 p0"].map(|i| add(&mut limiter, i));
    let shares = shares(&mut limiter, &ids, 1100);
    for (share, expected) in shares.iter().zip([400, 200, 100, 400]) {
        assert!(share.abs_diff(expected) <= 2, "{shares:?}");
    }
}

#[test]
fn a_large_instance_gets_its_turn_among_small_ones() {
    let mut limiter = limiter(&["R:10"]);
    let large = add(&mut limiter, "R:10 p3");
    let small: Vec<InstanceId> = (0..20).map(|_| add(&mut limiter, "R:1")).collect();
    let (mut running, mut turns): (VecDeque<InstanceId>, u32) = Default::default();
    for _ in 0..10_000 {
        limiter.request(large);
        small.iter().for_each(|&id| limiter.request(id));
        running.extend(granted(&mut limiter));
        // They end one by one, so chance hardly ever makes room for the large one.
        let over = running.pop_front().expect("somebody runs");
        turns += u32::from(over == large);
        limiter.release(over);
    }
    assert!(turns > 100, "{turns}");
}

#[test]
fn new_and_idle_instances_do_not_delay_the_others() {
    let mut limiter = limiter(&["R:1"]);
    let (old, idle) = (add(&mut limiter, "R:1"), add(&mut limiter, "R:1"));
    shares(&mut limiter, &[old], 10_000);
    let new = add(&mut limiter, "R:1");
    let shares = shares(&mut limiter, &[old, idle, new], 30);
    assert!(shares.iter().all(|s| s.abs_diff(10) <= 1), "{shares:?}");
}

#[test]
fn an_instance_unloaded_while_it_executes_keeps_its_resources_until_the_end() {
    let mut limiter = limiter(&[]);
    let (large, small) = (add(&mut limiter, "R:10"), add(&mut limiter, "R:4"));
    limiter.request(large);
    assert_eq!(granted(&mut limiter), [large]);
    limiter.unregister(large);
    limiter.request(small);
    assert_eq!(granted(&mut limiter), []);
    limiter.release(large);
    assert_eq!(granted(&mut limiter), [small]);
    assert_eq!(limiter.usage().next(), Some(("R", Some(0), 4, 4)));
    limiter.request(large);
    assert_eq!(granted(&mut limiter), [], "it is forgotten");
    // An instance that waits or needs nothing is removed at once.
    let (waits, unlimited) = (add(&mut limiter, "R:1"), add(&mut limiter, ""));
    limiter.request(waits);
    limiter.request(unlimited);
    limiter.unregister(waits);
    limiter.unregister(unlimited);
    limiter.release(small);
    assert_eq!(granted(&mut limiter), []);
}

#[test]
fn calls_out_of_turn_change_nothing() {
    let mut limiter = limiter(&["R:1"]);
    let id = add(&mut limiter, "R:1");
    limiter.release(id);
    assert!(!limiter.withdraw(id));
    limiter.request(id);
    limiter.request(id);
    assert_eq!(granted(&mut limiter), [id]);
    limiter.request(id);
    limiter.withdraw(id);
    assert_eq!(granted(&mut limiter), []);
    limiter.release(id);
    limiter.release(id);
    assert_eq!(limiter.usage().next(), Some(("R", Some(0), 0, 1)));
    limiter.request(id);
    assert!(limiter.withdraw(id));
    assert_eq!(granted(&mut limiter), []);
    limiter.forgo(id);
    let before = limiter.rank(id);
    limiter.request(id);
    assert_eq!(granted(&mut limiter), [id]);
    limiter.forgo(id);
    assert_eq!(
        (limiter.rank(id), limiter.usage().next()),
        (before, Some(("R", Some(0), 0, 1))),
        "as if it had not asked"
    );
}

/// An instance, as the test knows it.
#[derive(Debug)]
struct Known {
    limited: Limited,
    /// Executions times priority, raised to those of the others.
    taken: u64,
    /// Rank of the grant, priority, and the number of its request.
    waits: Option<(u64, u32, u64)>,
    executes: bool,
    leaves: bool,
}

impl Known {
    /// Units that it takes, by resource and device.
    fn needs(&self) -> BTreeMap<(String, Option<u32>), u64> {
        let mut needs = BTreeMap::new();
        for r in self.limited.resources.iter().filter(|r| r.count > 0) {
            let most: &mut u64 = needs.entry((r.name.clone(), (!r.global).then_some(self.limited.device))).or_default();
            *most = (*most).max(u64::from(r.count));
        }
        needs
    }
}

struct World {
    limiter: RateLimiter,
    explicit: bool,
    known: BTreeMap<InstanceId, Known>,
    floors: BTreeMap<(String, Option<u32>), u64>,
    requests: u64,
    grants: u64,
}

impl World {
    fn capacity(&self, pool: &(String, Option<u32>)) -> u64 {
        if self.explicit {
            return 6;
        }
        self.known.values().filter_map(|k| k.needs().get(pool).copied()).max().unwrap_or(0)
    }

    fn used(&self, pool: &(String, Option<u32>)) -> u64 {
        self.known.values().filter(|k| k.executes).filter_map(|k| k.needs().get(pool).copied()).sum()
    }

    fn register(&mut self, random: &mut Random) {
        let names = [("A", false), ("B", false), ("G", true)];
        let mut resources = Vec::new();
        for (name, global) in names {
            if random.below(2) == 0 {
                resources.push(resource(name, random.below(7) as u32, global));
            }
        }
        let limited = Limited { device: random.below(2) as u32, priority: random.below(4) as u32, resources };
        let id = self.limiter.register(std::slice::from_ref(&limited)).expect("enough of everything")[0];
        self.known.insert(id, Known { limited, taken: 0, waits: None, executes: false, leaves: false });
    }

    fn request(&mut self, id: InstanceId) {
        self.limiter.request(id);
        let Some(known) = self.known.get_mut(&id) else { return };
        if known.waits.is_some() || known.executes {
            return;
        }
        let floor = known.needs().keys().filter_map(|p| self.floors.get(p)).max().copied().unwrap_or(0);
        self.requests += 1;
        known.waits = Some((known.taken.max(floor), known.limited.priority.max(1), self.requests));
    }

    fn grant(&mut self) {
        for id in granted(&mut self.limiter) {
            self.grants += 1;
            let mut known = self.known.remove(&id).expect("a registered instance");
            let place = known.waits.take().expect("one that asked");
            for (pool, count) in known.needs() {
                assert!(self.used(&pool) + count <= self.capacity(&pool).max(count), "{pool:?} over-committed");
                let overtaken =
                    self.known.values().find(|k| k.waits.is_some_and(|w| w < place) && k.needs().contains_key(&pool));
                // Earlier ones in the list were granted in this call, too.
                assert!(overtaken.is_none(), "{:?} overtakes {overtaken:?} at {pool:?}", known.limited);
                let floor = self.floors.entry(pool).or_default();
                *floor = (*floor).max(place.0);
            }
            known.taken = place.0 + u64::from(known.limited.priority.max(1));
            known.executes = true;
            self.known.insert(id, known);
        }
        // No instance waits that could run.
        for (id, waiting) in self.known.iter().filter(|(_, k)| k.waits.is_some()) {
            let needs = waiting.needs();
            let lacks = needs.iter().any(|(pool, count)| self.used(pool) + count > self.capacity(pool));
            let behind = self.known.values().any(|k| {
                k.waits.is_some_and(|w| Some(w) < waiting.waits)
                    && k.needs().keys().any(|pool| needs.contains_key(pool))
            });
            assert!(lacks || behind, "{id:?} could run: {:?}", waiting.limited);
        }
    }

    fn forget(&mut self, id: InstanceId) {
        self.known.remove(&id);
        // A pool that no instance declares starts anew.
        let declared: Vec<_> = self.known.values().flat_map(declared).collect();
        self.floors.retain(|pool, _| declared.contains(pool));
    }
}

/// Pools that an instance declares, also those of which it takes nothing.
fn declared(known: &Known) -> Vec<(String, Option<u32>)> {
    known.limited.resources.iter().map(|r| (r.name.clone(), (!r.global).then_some(known.limited.device))).collect()
}

#[test]
fn s35_random_operations_never_over_commit_overtake_or_waste() {
    for (explicit, seed) in [(true, 1), (false, 2), (true, 3), (false, 4)] {
        let mut random = Random(seed * 0x9e37_79b9);
        let limiter = limiter(if explicit { &["A:6", "B:6", "G:6"] } else { &[] });
        let mut world =
            World { limiter, explicit, known: BTreeMap::new(), floors: BTreeMap::new(), requests: 0, grants: 0 };
        for _ in 0..25_000 {
            let ids: Vec<InstanceId> = world.known.keys().copied().collect();
            let any = ids.get(random.below(ids.len().max(1) as u64) as usize).copied();
            match (random.below(100), any) {
                (0..3, _) | (_, None) if ids.len() < 12 => world.register(&mut random),
                (3..5, Some(id)) => {
                    world.limiter.unregister(id);
                    let known = world.known.get_mut(&id).expect("known");
                    if known.executes {
                        known.leaves = true;
                    } else {
                        world.forget(id);
                    }
                }
                (5..8, Some(id)) => {
                    world.limiter.withdraw(id);
                    world.known.get_mut(&id).expect("known").waits = None;
                }
                (8..55, Some(id)) => world.request(id),
                (_, Some(id)) => {
                    world.limiter.release(id);
                    let known = world.known.get_mut(&id).expect("known");
                    let was = std::mem::take(&mut known.executes);
                    if was && known.leaves {
                        world.forget(id);
                    }
                }
                _ => (),
            }
            world.grant();
            for (name, device, used, _) in world.limiter.usage() {
                assert_eq!(used, world.used(&(name.to_string(), device)));
            }
        }
        assert!(world.grants > 2500, "{}", world.grants);
    }
}
