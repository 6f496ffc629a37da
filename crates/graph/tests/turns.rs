//! Requests of sequences on threads that a seeded scheduler lets go on in random order, one action each: between any
//! two of them everything else may happen.

#[path = "common/interpreter.rs"]
mod interpreter;
use graph::Turns;
use interpreter::Random;
use protocol::CorrelationId;
use std::collections::BTreeMap;

const SCHEDULES: u64 = 20_000;
const STEPS: usize = 3;
/// Those that keep state; the other is called at once.
const IN_TURN: [usize; 2] = [0, 2];

/// Where a request is.
#[derive(Clone, Copy, Debug, PartialEq)]
enum At {
    /// On its way to a step.
    Before(usize),
    InLine(usize),
    /// May call a step, and has not done so.
    MayCall(usize),
    /// Called a step, and has not left it.
    Called(usize),
    /// Calls nothing more.
    Failed,
    Over,
}

struct Request {
    id: CorrelationId,
    number: u64,
    at: At,
}

#[derive(Default)]
struct World {
    requests: Vec<Request>,
    /// By sequence and step, the requests that called it.
    called: BTreeMap<(String, usize), Vec<usize>>,
    withdrawn: usize,
}

impl World {
    fn begin(&mut self, turns: &mut Turns<usize>, id: CorrelationId) {
        let number = turns.join(&id, &IN_TURN);
        self.requests.push(Request { id, number, at: At::Before(0) });
    }

    /// The calls that a request let go on.
    fn may_call(&mut self, next: Vec<usize>, step: Option<usize>) {
        for other in next {
            let At::InLine(at) = self.requests[other].at else { panic!("{other} did not wait") };
            assert!(step.is_none_or(|step| step == at));
            self.requests[other].at = At::MayCall(at);
        }
    }

    /// One action of a request.
    fn go_on(&mut self, turns: &mut Turns<usize>, i: usize, random: &mut Random) {
        let Request { id, number, at } = &self.requests[i];
        let (id, number, at) = (id.clone(), *number, *at);
        self.requests[i].at = match at {
            At::Before(_) if random.one_in(12) => At::Failed,
            At::Before(step) if step == STEPS => {
                self.may_call(turns.end(&id, number), None);
                At::Over
            }
            At::Before(step) => match turns.enter(&id, number, step, i) {
                Some(mine) => {
                    assert_eq!(mine, i);
                    At::MayCall(step)
                }
                None => At::InLine(step),
            },
            At::MayCall(step) => {
                self.called.entry((format!("{id:?}"), step)).or_default().push(i);
                At::Called(step)
            }
            At::Called(step) => {
                self.may_call(turns.leave(&id, number, step), Some(step));
                At::Before(step + 1)
            }
            // Its client left.
            At::InLine(_) => {
                assert_eq!(turns.withdraw_of(&id, number), [i]);
                self.withdrawn += 1;
                At::Failed
            }
            At::Failed => {
                self.may_call(turns.end(&id, number), None);
                At::Over
            }
            At::Over => At::Over,
        };
    }
}

#[test]
fn on_any_threads_requests_of_a_sequence_call_steps_that_keep_state_in_the_order_in_which_they_began() {
    let (mut waited, mut withdrawn, mut overtaken) = (0, 0, 0);
    for seed in 0..SCHEDULES {
        let mut random = Random(seed);
        let mut turns = Turns::new(STEPS);
        let mut world = World::default();
        let (mut to_begin, sequences) = (2 + random.below(9), 1 + random.below(3));
        loop {
            let able: Vec<_> = (0..world.requests.len())
                .filter(|&i| match world.requests[i].at {
                    At::Over => false,
                    At::InLine(_) => random.one_in(64),
                    _ => true,
                })
                .collect();
            if to_begin > 0 && (able.is_empty() || random.one_in(4)) {
                to_begin -= 1;
                world.begin(&mut turns, CorrelationId::Number(1 + random.below(sequences)));
            } else if let Some(&i) = (!able.is_empty()).then(|| random.pick(&able)) {
                world.go_on(&mut turns, i, &mut random);
            } else if world.requests.iter().all(|r| r.at == At::Over) {
                break;
            } else {
                // Those in line, of which none is given up now: somebody who is not in line must be before them.
                let in_line = |request: &Request| matches!(request.at, At::Over | At::InLine(_));
                assert!(!world.requests.iter().all(in_line), "seed {seed}: {} wait for each other", turns.waiting());
            }
            waited = waited.max(turns.waiting());
        }
        assert!(turns.is_empty() && turns.waiting() == 0, "seed {seed}: something is left");
        for ((id, step), requests) in &world.called {
            let in_order = requests.is_sorted();
            assert!(in_order || !IN_TURN.contains(step), "seed {seed}: {id} called {step} in the order {requests:?}");
            overtaken += usize::from(!in_order);
        }
        withdrawn += world.withdrawn;
    }
    // The schedules were worth it.
    assert!(waited >= 6 && withdrawn > 1000 && overtaken > 1000, "{waited} {withdrawn} {overtaken}");
}
