//! Requests of sequences on simulated threads. A seeded scheduler runs one action of a random thread at a time, so any
//! other actions may happen between two actions of a thread.

#[path = "common/interpreter.rs"]
mod interpreter;
use graph::Turns;
use interpreter::Random;
use protocol::CorrelationId;
use std::collections::BTreeMap;

const SCHEDULES: u64 = 20_000;
const STEPS: usize = 3;
/// Steps with a stateful model. The other step is called without waiting.
const STATEFUL: [usize; 2] = [0, 2];

/// Progress of a request.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Progress {
    /// Has not reached the step.
    Before(usize),
    InLine(usize),
    /// May call the step, and has not called it.
    MayCall(usize),
    /// Called the step, and has not left it.
    Called(usize),
    /// Calls no more steps.
    Failed,
    Over,
}

struct Request {
    id: CorrelationId,
    number: u64,
    at: Progress,
}

#[derive(Default)]
struct World {
    requests: Vec<Request>,
    /// Requests that called a step, by sequence and step.
    called: BTreeMap<(String, usize), Vec<usize>>,
    withdrawn: usize,
}

impl World {
    fn begin(&mut self, turns: &mut Turns<usize>, id: CorrelationId) {
        let number = turns.join(&id, &STATEFUL);
        self.requests.push(Request { id, number, at: Progress::Before(0) });
    }

    /// Marks requests that may call their step now.
    fn may_call(&mut self, next: Vec<usize>, step: Option<usize>) {
        for other in next {
            let Progress::InLine(at) = self.requests[other].at else { panic!("{other} is not waiting") };
            assert!(step.is_none_or(|step| step == at));
            self.requests[other].at = Progress::MayCall(at);
        }
    }

    /// Performs one action of a request.
    fn act(&mut self, turns: &mut Turns<usize>, i: usize, random: &mut Random) {
        let Request { id, number, at } = &self.requests[i];
        let (id, number, at) = (id.clone(), *number, *at);
        self.requests[i].at = match at {
            Progress::Before(_) if random.one_in(12) => Progress::Failed,
            Progress::Before(step) if step == STEPS => {
                self.may_call(turns.end(&id, number), None);
                Progress::Over
            }
            Progress::Before(step) => match turns.enter(&id, number, step, i) {
                Some(mine) => {
                    assert_eq!(mine, i);
                    Progress::MayCall(step)
                }
                None => Progress::InLine(step),
            },
            Progress::MayCall(step) => {
                self.called.entry((format!("{id:?}"), step)).or_default().push(i);
                Progress::Called(step)
            }
            Progress::Called(step) => {
                self.may_call(turns.leave(&id, number, step), Some(step));
                Progress::Before(step + 1)
            }
            // The client disconnected.
            Progress::InLine(_) => {
                assert_eq!(turns.withdraw_of(&id, number), [i]);
                self.withdrawn += 1;
                Progress::Failed
            }
            Progress::Failed => {
                self.may_call(turns.end(&id, number), None);
                Progress::Over
            }
            Progress::Over => Progress::Over,
        };
    }
}

#[test]
fn requests_of_a_sequence_call_stateful_steps_in_the_order_of_their_arrival() {
    let (mut waited, mut withdrawn, mut overtaken) = (0, 0, 0);
    for seed in 0..SCHEDULES {
        let mut random = Random(seed);
        let mut turns = Turns::new(STEPS);
        let mut world = World::default();
        let (mut to_begin, sequences) = (2 + random.below(9), 1 + random.below(3));
        loop {
            let able: Vec<_> = (0..world.requests.len())
                .filter(|&i| match world.requests[i].at {
                    Progress::Over => false,
                    Progress::InLine(_) => random.one_in(64),
                    _ => true,
                })
                .collect();
            if to_begin > 0 && (able.is_empty() || random.one_in(4)) {
                to_begin -= 1;
                world.begin(&mut turns, CorrelationId::Number(1 + random.below(sequences)));
            } else if let Some(&i) = (!able.is_empty()).then(|| random.pick(&able)) {
                world.act(&mut turns, i, &mut random);
            } else if world.requests.iter().all(|r| r.at == Progress::Over) {
                break;
            } else {
                // Only waiting requests are left: at least one must wait for a request that is not waiting.
                let in_line = |request: &Request| matches!(request.at, Progress::Over | Progress::InLine(_));
                assert!(!world.requests.iter().all(in_line), "seed {seed}: {} wait for each other", turns.waiting());
            }
            waited = waited.max(turns.waiting());
        }
        assert!(turns.is_empty() && turns.waiting() == 0, "seed {seed}: state is left");
        for ((id, step), requests) in &world.called {
            let in_order = requests.is_sorted();
            assert!(in_order || !STATEFUL.contains(step), "seed {seed}: {id} called {step} in the order {requests:?}");
            overtaken += usize::from(!in_order);
        }
        withdrawn += world.withdrawn;
    }
    // The schedules must cover waits, withdrawals and overtaking.
    assert!(waited >= 6 && withdrawn > 1000 && overtaken > 1000, "{waited} {withdrawn} {overtaken}");
}
