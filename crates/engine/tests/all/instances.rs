//! Changes of the number of instances while requests run, without a reload.

#![allow(clippy::disallowed_methods, reason = "tests wait for other threads and processes, and look at clocks")]

use crate::support::{self, Call, Got, WITHIN, call, instances, settles, soon, try_model_of};
use bytes::Bytes;
use engine::{Engine, EngineOptions, ModelVersion};
use prost::Message;
use protocol::pb::inference as pb;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use tensor::Code;

/// A model that announces the begin of each run, and waits for the test to end it.
struct Held {
    engine: Arc<Engine>,
    version: Arc<ModelVersion>,
    running: Arc<AtomicUsize>,
    /// By instance.
    leave: Vec<Sender<()>>,
}

/// Instances that a test may configure.
const INSTANCES_MAX: usize = 8;

impl Held {
    fn new(options: EngineOptions, count: i32) -> Self {
        let (leave, wait): (Vec<_>, Vec<_>) = (0..INSTANCES_MAX).map(|_| channel::<()>()).unzip();
        let wait: Vec<Mutex<Receiver<()>>> = wait.into_iter().map(Mutex::new).collect();
        let running: Arc<AtomicUsize> = Arc::default();
        let counted = running.clone();
        let (engine, version) = try_model_of(
            options,
            |config| instances(config, count),
            move |instance, batch, _| {
                counted.fetch_add(1, Ordering::SeqCst);
                let left = wait[instance as usize].lock().unwrap().recv_timeout(WITHIN);
                counted.fetch_sub(1, Ordering::SeqCst);
                for entry in batch.requests.iter_mut() {
                    left.expect("leave to end");
                    entry.result = Some(Ok(support::outcome(support::asked(entry))));
                }
            },
        )
        .expect("a good configuration");
        Self { engine, version, running, leave }
    }

    fn update(&self, count: i32) -> tensor::Result<bool> {
        let mut config = pb::ModelConfig { name: "m".into(), ..Default::default() };
        instances(&mut config, count);
        self.engine.update("m", 1, Bytes::from(config.encode_to_vec()), format!("{{\"count\":{count}}}"))
    }

    fn leaves(&self, instance: usize) {
        self.leave[instance].send(()).unwrap();
    }

    fn runs(&self, count: usize) {
        soon(&format!("{count} runs at once"), || self.running.load(Ordering::SeqCst) == count);
        std::thread::sleep(std::time::Duration::from_millis(20));
        assert_eq!(self.running.load(Ordering::SeqCst), count);
    }
}

/// Each on a thread of its own, because cheap requests run on the calling thread.
fn calls(version: &Arc<ModelVersion>, count: u8) -> Vec<std::thread::JoinHandle<Call>> {
    (0..count)
        .map(|number| {
            let version = version.clone();
            std::thread::spawn(move || call(&version, number))
        })
        .collect()
}

fn all_answered(calls: Vec<std::thread::JoinHandle<Call>>) {
    for (number, thread) in calls.into_iter().enumerate() {
        assert_eq!(thread.join().unwrap().rest(), [Got::Number(number as u8)]);
    }
}

#[test]
fn added_instances_run_waiting_requests_at_once() {
    let held = Held::new(EngineOptions::default(), 1);
    let calls = calls(&held.version, 3);
    held.runs(1);
    assert!(held.update(3).unwrap());
    held.runs(3);
    (0..3).for_each(|instance| held.leaves(instance));
    all_answered(calls);
    settles(&held.engine, &held.version);
    assert!(Arc::ptr_eq(&held.version, &held.engine.model("m", "").unwrap()), "it was reloaded");
    assert_eq!(held.version.statistics().execution_count, 3);
    assert_eq!(held.version.identity.config_json(), "{\"count\":3}");
    let config = pb::ModelConfig::decode(held.version.identity.config_pb()).unwrap();
    assert_eq!(config.instance_group[0].count, 3);
}

#[test]
fn removed_instances_finish_their_batches() {
    let held = Held::new(EngineOptions::default(), 3);
    let calls = calls(&held.version, 6);
    held.runs(3);
    assert!(held.update(1).unwrap());
    held.runs(3);
    for (ended, instance) in [(1, 1), (2, 2)] {
        held.leaves(instance);
        soon("a run ended", || held.version.statistics().execution_count == ended);
        held.runs(3 - ended as usize);
    }
    for ended in 3..=6 {
        held.leaves(0);
        soon("a run ended", || held.version.statistics().execution_count == ended);
        held.runs(usize::from(ended < 6));
    }
    all_answered(calls);
    settles(&held.engine, &held.version);
}

#[test]
fn an_impossible_update_changes_nothing() {
    let held = Held::new(EngineOptions::default(), 2);
    assert_eq!(held.update(4097).unwrap_err().code(), Code::InvalidArg);
    assert_eq!(held.version.identity.config_json(), "");
    let unknown = held.engine.update("m", 2, Bytes::new(), String::new());
    assert!(!unknown.unwrap());
    let calls = calls(&held.version, 3);
    held.runs(2);
    // Either of the two runs the third.
    [0, 0, 1, 1].into_iter().for_each(|instance| held.leaves(instance));
    all_answered(calls);

    let strict = EngineOptions { strict_batching_delay: true, ..EngineOptions::default() };
    assert!(!Held::new(strict, 1).update(2).unwrap(), "Triton's timer counts instances once");
}
