//! A model is told when its runs become heavy, and when they cease to be.

mod support;

use backend::{Backend, Batch, Marks, Model, ModelIo, OpenSpec, Opened, RunControl, now_ns};
use bytes::Bytes;
use engine::{Engine, EngineOptions, ServerState};
use protocol::Signature;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use support::{Got, WITHIN, asked, call, of_numbers, outcome, publish, settles};
use tensor::Result;

/// Takes as many milliseconds as the request's number says, without waiting for them, and tells what it is told.
#[derive(Clone)]
struct Weighed(Sender<bool>);

impl Backend for Weighed {
    fn name(&self) -> &'static str {
        "weighed"
    }
    fn open(&self, _: &OpenSpec) -> Result<Box<dyn Opened>> {
        Ok(Box::new(self.clone()))
    }
}

impl Opened for Weighed {
    fn io(&self) -> Option<ModelIo> {
        None
    }
    fn finish(self: Box<Self>, _: &Bytes, _: Arc<Signature>) -> Result<Arc<dyn Model>> {
        Ok(Arc::new(*self))
    }
}

impl Model for Weighed {
    fn execute(&self, _: u32, batch: &mut Batch<'_>, _: &RunControl) -> Marks {
        let ms = asked(&batch.requests[0]);
        batch.requests[0].result = Some(Ok(outcome(ms)));
        // No end at all is an end at the beginning.
        let end = if ms == 0 { 0 } else { now_ns() + u64::from(ms) * 1_000_000 };
        Marks { inputs_ready: end, inference_end: end, outputs_ready: end }
    }
    fn set_heavy(&self, heavy: bool) {
        let _ = self.0.send(heavy);
    }
}

#[test]
fn a_model_hears_of_its_weight_when_it_changes_and_only_then() {
    let (send, told) = channel();
    let engine = Engine::new(EngineOptions::default(), vec![Arc::new(Weighed(send))]).expect("starts");
    engine.set_server_state(ServerState::Ready);
    let version = publish(&engine, &of_numbers("m", "weighed")).expect("loads");
    let run = |ms: u8, times: usize| {
        for _ in 0..times {
            assert_eq!(call(&version, ms).next(), (Got::Number(ms), true));
        }
    };
    run(0, 20);
    run(20, 3);
    run(0, 3);
    run(20, 4);
    assert_eq!(told.recv_timeout(WITHIN), Ok(true));
    run(20, 20);
    // As many count as make it sure.
    run(0, 3);
    run(20, 3);
    run(0, 8);
    assert_eq!(told.recv_timeout(WITHIN), Ok(false));
    run(0, 20);
    settles(&engine, &version);
    assert!(told.try_recv().is_err(), "told again");
}
