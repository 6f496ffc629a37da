//! Tensors between steps of ensembles are charged to the memory budget. In its own process, which has one budget.

mod support;

use backend::{Batch, Outcome};
use memory::Budget;
use protocol::OutputTensor;
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use support::*;
use tensor::{Code, Data, DataType, Shape};

const LIMIT: usize = 16 << 20;
const LARGE: usize = 1 << 20;

fn charged() -> usize {
    Budget::global().counters().used_bytes.iter().sum()
}

/// A response of a million bytes.
fn large() -> Outcome {
    let mut outcome = Outcome::default();
    outcome.outputs.push(OutputTensor {
        name: "O".into(),
        datatype: DataType::Uint8,
        shape: Shape::from_slice(&[1, LARGE as i64]),
        data: Data::Bytes(vec![7; LARGE].into()),
        index: 0,
        form: Default::default(),
    });
    outcome
}

#[test]
fn large_tensors_between_steps_are_charged_and_fail_beyond_the_limit() {
    Budget::global().set_limit(LIMIT);
    let (go, gone) = channel::<()>();
    let gone = Mutex::new(gone);
    let widen: Script = Arc::new(|_, batch: &mut Batch<'_>, _| {
        batch.requests.iter_mut().for_each(|entry| entry.result = Some(Ok(large())));
    });
    let slow: Script = Arc::new(move |_, batch: &mut Batch<'_>, _| {
        let _ = gone.lock().unwrap().recv_timeout(WITHIN);
        batch.requests.iter_mut().for_each(|entry| entry.result = Some(Ok(outcome(1))));
    });
    let engine = engine_with(vec![("widen", widen), ("slow", slow)]).unwrap();
    let mut wide = of_numbers("widen", "widen");
    wide.output[0].dims = vec![-1];
    publish(&engine, &wide).unwrap();
    let mut slow = of_numbers("slow", "slow");
    slow.input[0].dims = vec![-1];
    publish(&engine, &slow).unwrap();
    let m = publish(&engine, &chain_of("m", &["widen", "slow"], 0)).unwrap();

    let calls: Vec<_> = (0..40).map(|n| call(&m, n)).collect();
    let refused = || m.statistics().fail.count;
    // Each counts twice; requests with memory wait for the slow step.
    soon("what finds no room is refused", || refused() >= 2 * (40 - LIMIT / LARGE) as u64);
    assert!(charged() <= LIMIT);
    drop(go);
    let got: Vec<_> = calls.iter().flat_map(Call::rest).collect();
    let failed = got.iter().filter(|g| **g == Got::Failed(Code::ResourceExhausted)).count();
    let served = got.iter().filter(|g| **g == Got::Number(1)).count();
    assert_eq!(failed + served, 40, "{got:?}");
    assert!((1..=LIMIT / LARGE).contains(&served), "{served}");
    settles(&engine, &m);
    soon("nothing is charged", || charged() == 0);
}
