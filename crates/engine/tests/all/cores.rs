//! Models that divide the cores: how many runs are in progress, by configuration, resizing and ensembles.

#![allow(clippy::disallowed_methods, reason = "tests wait for other threads and processes, and look at clocks")]

use crate::support::{self, Got, WITHIN, call, chain_of, of_numbers, publish, soon};
use backend::{Batch, Capabilities, RunControl};
use bytes::Bytes;
use engine::Engine;
use prost::Message;
use protocol::pb::inference as pb;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};

/// A model on two cores whose runs end when the test says so.
struct World {
    engine: Arc<Engine>,
    running: Arc<AtomicUsize>,
    most: Arc<AtomicUsize>,
    end: Sender<()>,
}

fn world() -> World {
    let (end, may_end) = channel();
    let (running, most, may_end) = (Arc::<AtomicUsize>::default(), Arc::<AtomicUsize>::default(), Mutex::new(may_end));
    let (now, peak) = (running.clone(), most.clone());
    let run = move |_, batch: &mut Batch<'_>, _: &RunControl| {
        peak.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
        may_end.lock().unwrap().recv_timeout(WITHIN).expect("the test ends each run");
        now.fetch_sub(1, Ordering::SeqCst);
        for entry in batch.requests.iter_mut() {
            entry.result = Some(Ok(support::outcome(support::asked(entry))));
        }
    };
    let divides = Capabilities { instances_are_permits: true, cores: Some(2), ..Capabilities::default() };
    let engine = support::engine_with_capabilities(divides, Arc::new(run)).expect("an engine");
    World { engine, running, most, end }
}

fn configured(count: Option<i32>) -> pb::ModelConfig {
    let group = |count| pb::ModelInstanceGroup { name: "named".into(), count, kind: 2, ..Default::default() };
    pb::ModelConfig { instance_group: count.map(group).into_iter().collect(), ..of_numbers("m", "scripted") }
}

impl World {
    /// The most runs in progress while two requests are there, of which `runs` are expected.
    fn most_of_two(&self, runs: usize) -> usize {
        let version = self.engine.model("m", "").expect("serves");
        self.most.store(0, Ordering::SeqCst);
        let calls: Vec<_> = (1..=2).map(|number| call(&version, number)).collect();
        soon("all runs", || self.running.load(Ordering::SeqCst) >= runs);
        for _ in 0..2 {
            self.end.send(()).expect("the model lives");
        }
        for (number, call) in (1..).zip(&calls) {
            assert_eq!(call.next(), (Got::Number(number), true));
        }
        self.most.load(Ordering::SeqCst)
    }
}

#[test]
fn runs_are_as_many_as_cores_unless_instances_are_named() {
    let world = world();
    for (count, runs) in [(None, 2), (Some(1), 1), (Some(2), 2)] {
        publish(&world.engine, &configured(count)).expect("loads");
        assert_eq!(world.most_of_two(runs), runs, "{count:?}");
    }
}

#[test]
fn instances_are_named_and_forgotten_while_the_model_serves() {
    let world = world();
    publish(&world.engine, &configured(None)).expect("loads");
    for (count, runs) in [(Some(1), 1), (None, 2)] {
        let config = configured(count);
        let updated = world.engine.update("m", 1, Bytes::from(config.encode_to_vec()), "{}".to_owned());
        assert_eq!(updated, Ok(true));
        assert_eq!(world.most_of_two(runs), runs, "{count:?}");
    }
}

#[test]
fn one_run_follows_another_while_an_ensemble_relies_on_their_order() {
    let world = world();
    let mut many = configured(None);
    many.name = "many".into();
    support::decoupled(&mut many);
    publish(&world.engine, &many).expect("loads");
    publish(&world.engine, &configured(None)).expect("loads");
    publish(&world.engine, &chain_of("chain", &["many", "m"], 0)).expect("loads");
    assert_eq!(world.most_of_two(1), 1);
    drop(world.engine.retire("chain", 1));
    assert_eq!(world.most_of_two(2), 2);
}
