//! Changes of instances that a backend starts, while the version serves.

use crate::support::later::{Out, handing_out};
use crate::support::*;
use backend::{InstanceEventsRef, NewInstance};
use bytes::Bytes;
use engine::{Engine, EngineOptions, ModelVersion};
use prost::Message;
use protocol::pb::inference as pb;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use tensor::{Error, Result};

/// Calls of the backend.
#[derive(Debug, PartialEq)]
enum Asked {
    /// Number, and index in the configuration.
    Start(Vec<(u32, usize)>),
    Left(u32),
}

struct Served {
    engine: Arc<Engine>,
    version: Arc<ModelVersion>,
    out: Receiver<Out>,
    told: InstanceEventsRef,
    asked: Receiver<Asked>,
    /// Result of the next start.
    next: Arc<Mutex<Option<Result<()>>>>,
    config: pb::ModelConfig,
}

impl Served {
    fn new(count: i32) -> Self {
        let (model, out) = handing_out();
        let (mut model, told) = model.at_once().telling();
        let (send, asked) = channel();
        let next = Arc::new(Mutex::new(Some(Ok(()))));
        let (left, result) = (send.clone(), next.clone());
        model.left = Arc::new(move |instance| left.send(Asked::Left(instance)).unwrap());
        model.start = Arc::new(move |new: &[NewInstance]| {
            send.send(Asked::Start(new.iter().map(|new| (new.number, new.placement)).collect())).unwrap();
            result.lock().unwrap().clone()
        });
        let mut config = pb::ModelConfig::default();
        let (engine, version) = model.model_of(EngineOptions::default(), |made| {
            made.max_batch_size = 1;
            instances(made, count);
            config = made.clone();
        });
        Self { engine, version, out, told: told.recv().expect("told before it serves"), asked, next, config }
    }

    fn update(&mut self, count: i32) -> Result<bool> {
        instances(&mut self.config, count);
        self.send_config()
    }

    fn send_config(&self) -> Result<bool> {
        self.engine.update("m", 1, Bytes::from(self.config.encode_to_vec()), "{}".to_owned())
    }

    fn batch(&self) -> Out {
        self.out.recv_timeout(WITHIN).expect("a batch")
    }

    fn is_ready(&self) -> bool {
        self.engine.is_model_ready("m", "1") == Ok(true)
    }

    fn is_asked(&self, expected: &[Asked]) {
        for one in expected {
            assert_eq!(self.asked.recv_timeout(WITHIN).as_ref(), Ok(one));
        }
        assert!(self.asked.try_recv().is_err());
    }
}

fn finish(mut out: Out) {
    out.answer();
    out.free();
}

#[test]
fn new_instances_run_waiting_requests_removed_ones_are_reported_after_a_batch() {
    let mut served = Served::new(1);
    let calls: Vec<_> = (0..3).map(|n| call(&served.version, n)).collect();
    let first = served.batch();
    assert!(served.update(3).unwrap());
    served.is_asked(&[Asked::Start(vec![(1, 1), (2, 2)])]);
    let (second, third) = (served.batch(), served.batch());
    let mut numbers = [&first, &second, &third].map(|out| out.instance);
    numbers.sort_unstable();
    assert_eq!(numbers, [0, 1, 2]);
    assert!(served.update(1).unwrap());
    served.is_asked(&[Asked::Start(vec![])]);
    // Their numbers are not reused before they are returned.
    assert!(served.update(2).unwrap());
    served.is_asked(&[Asked::Start(vec![(3, 1)])]);
    let left = [second.instance, third.instance];
    finish(second);
    served.is_asked(&[Asked::Left(left[0])]);
    finish(first);
    served.is_asked(&[]);
    finish(third);
    served.is_asked(&[Asked::Left(left[1])]);
    for (number, call) in calls.iter().enumerate() {
        assert_eq!(call.rest(), [Got::Number(number as u8)]);
    }
    assert!(served.update(1).unwrap());
    served.is_asked(&[Asked::Start(vec![]), Asked::Left(3)]);
    settles(&served.engine, &served.version);
}

#[test]
fn a_failed_start_or_warmup_of_an_instance_changes_nothing() {
    let mut served = Served::new(2);
    let failed = Error::internal("no room");
    *served.next.lock().unwrap() = Some(Err(failed.clone()));
    assert_eq!(served.update(3), Err(failed));
    served.is_asked(&[Asked::Start(vec![(2, 2)])]);
    *served.next.lock().unwrap() = None;
    assert_eq!(served.update(3), Ok(false), "only a reload can do it");
    served.is_asked(&[Asked::Start(vec![(2, 2)])]);
    *served.next.lock().unwrap() = Some(Ok(()));
    served.config.model_warmup = vec![pb::ModelWarmup { name: "w".into(), batch_size: 9, ..Default::default() }];
    assert!(served.update(4).unwrap_err().message().contains("failed to run warmup sample 'w'"));
    served.is_asked(&[Asked::Start(vec![(2, 2), (3, 3)]), Asked::Left(2), Asked::Left(3)]);
    assert_eq!(served.version.identity.config_json(), "");
    let calls: Vec<_> = (0..3).map(|n| call(&served.version, n)).collect();
    let batches = [served.batch(), served.batch()];
    assert!(served.out.try_recv().is_err(), "two run at once");
    batches.into_iter().for_each(finish);
    finish(served.batch());
    calls.iter().for_each(|call| assert_eq!(call.rest().len(), 1));
}

#[test]
fn requests_are_rejected_when_only_gone_instances_are_left() {
    let dead = || Error::unavailable("Stub process 'm_0' is not healthy.");
    let mut served = Served::new(3);
    served.told.down(2, dead());
    assert!(!served.is_ready());
    assert!(served.update(2).unwrap());
    served.is_asked(&[Asked::Start(vec![]), Asked::Left(2)]);
    assert!(served.is_ready(), "none is gone any more");
    // It is no instance any more.
    served.told.down(2, dead());
    assert!(served.is_ready());
    let calls = [0, 1, 2].map(|n| call(&served.version, n));
    let (first, second) = (served.batch(), served.batch());
    served.told.down(0, dead());
    calls[2].is_silent();
    assert!(served.update(1).unwrap());
    assert_eq!(calls[2].error(), dead());
    [first, second].into_iter().for_each(finish);
    served.is_asked(&[Asked::Start(vec![]), Asked::Left(1)]);
    served.told.up(0);
    let last = call(&served.version, 3);
    finish(served.batch());
    assert_eq!(last.rest(), [Got::Number(3)]);
}
