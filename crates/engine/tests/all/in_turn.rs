//! Requests of one sequence through ensembles reach a stateful model in the order of their arrival.

#![allow(clippy::disallowed_methods, reason = "tests wait for other threads and processes, and look at clocks")]

use crate::support::sequences::{direct, of, sum_state, with_state};
use crate::support::*;
use backend::Batch;
use engine::{Engine, ModelVersion};
use protocol::pb::inference as pb;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Models `before` (different durations) and `sums` (a sequence model), with four instances each. The ensemble `m`
/// calls both in this order, or `before` and then the ensemble `inner`, which does so.
struct Served {
    engine: Arc<Engine>,
    /// Sequence and number of the requests of `sums`, in its order.
    got: Arc<Mutex<Vec<(String, u8)>>>,
}

fn sequences(config: &mut pb::ModelConfig) {
    config.scheduling_choice = Some(pb::model_config::SchedulingChoice::SequenceBatching(pb::ModelSequenceBatching {
        max_sequence_idle_microseconds: 60_000_000,
        state: vec![sum_state()],
        strategy_choice: Some(direct()),
        ..Default::default()
    }));
}

fn serve(before: Script, limit: u32) -> Served {
    serve_chains(before, &[chain_of("m", &["before", "sums"], limit)])
}

fn serve_chains(before: Script, chains: &[pb::ModelConfig]) -> Served {
    let got = Arc::new(Mutex::new(vec![]));
    let seen = got.clone();
    let sums: Script = Arc::new(move |_, batch: &mut Batch<'_>, _| {
        for entry in batch.requests.iter_mut() {
            let number = asked(entry);
            seen.lock().unwrap().push((format!("{:?}", entry.request.sequence.id), number));
            entry.result = Some(Ok(with_state(number)));
        }
    });
    let engine = engine_with(vec![("before", before), ("sums", sums)]).unwrap();
    for name in ["before", "sums"] {
        let mut config = of_numbers(name, name);
        config.max_batch_size = 1;
        instances(&mut config, 4);
        if name == "sums" {
            sequences(&mut config);
        }
        publish(&engine, &config).unwrap();
    }
    for chain in chains {
        publish(&engine, &pb::ModelConfig { max_batch_size: 1, ..chain.clone() }).unwrap();
    }
    Served { engine, got }
}

/// Takes longer for some of its requests.
fn uneven() -> Script {
    let n = AtomicU32::new(0);
    Arc::new(move |_, batch, _| {
        for entry in batch.requests.iter_mut() {
            let micros = [300, 0, 100, 0, 0, 50][n.fetch_add(1, SeqCst) as usize % 6];
            std::thread::sleep(Duration::from_micros(micros));
            entry.result = Some(Ok(outcome(asked(entry))));
        }
    })
}

fn send(version: &ModelVersion, id: u64, flags: &str, number: u8) -> Call {
    try_request(version, of(id, flags, number), None).expect("accepted")
}

/// Sequences of `LENGTH` requests, sent without waiting, each from a thread of its own.
fn ask(s: &Served, sequences: u64) {
    const LENGTH: u8 = 8;
    let version = s.engine.model("m", "").unwrap();
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let version = &version;
            scope.spawn(move || {
                for i in 0..sequences {
                    let id = 1 + thread * sequences + i;
                    let flags = |n: u8| {
                        if n == 1 {
                            "<"
                        } else if n == LENGTH {
                            ">"
                        } else {
                            ""
                        }
                    };
                    let calls: Vec<_> = (1..=LENGTH).map(|n| send(version, id, flags(n), n)).collect();
                    for (n, call) in (1..=LENGTH).zip(calls) {
                        assert_eq!(call.rest(), [Got::Number(n)], "sequence {id}");
                    }
                }
            });
        }
    });
    settles(&s.engine, &version);
    let mut last = std::collections::HashMap::new();
    let got = std::mem::take(&mut *s.got.lock().unwrap());
    assert_eq!(got.len() as u64, 4 * sequences * u64::from(LENGTH));
    for (id, number) in got {
        let before = last.insert(id.clone(), number).unwrap_or(0);
        assert_eq!(number, before + 1, "sequence {id}");
    }
}

#[test]
fn requests_of_a_sequence_reach_its_model_in_order() {
    for limit in [0, 2] {
        ask(&serve(uneven(), limit), 60);
    }
}

#[test]
fn requests_of_a_sequence_stay_in_order_through_nested_ensembles() {
    let chains = [chain_of("inner", &["before", "sums"], 0), chain_of("m", &["before", "inner"], 0)];
    ask(&serve_chains(uneven(), &chains), 30);
}

/// Delays `slow` numbers until the test continues them.
fn held(slow: u8) -> (Script, std::sync::mpsc::Sender<()>) {
    let (go, gone) = std::sync::mpsc::channel::<()>();
    let gone = Mutex::new(gone);
    let script: Script = Arc::new(move |_, batch, _| {
        for entry in batch.requests.iter_mut() {
            let number = asked(entry);
            if number == slow {
                let _ = gone.lock().unwrap().recv_timeout(WITHIN);
            }
            entry.result =
                Some(if number == 99 { Err(tensor::Error::internal("ninety-nine")) } else { Ok(outcome(number)) });
        }
    });
    (script, go)
}

#[test]
fn an_overtaken_request_goes_first_and_other_sequences_do_not_wait() {
    let (script, go) = held(1);
    let s = serve(script, 0);
    let m = s.engine.model("m", "").unwrap();
    let (first, second) = (send(&m, 7, "<", 1), send(&m, 7, ">", 2));
    assert_eq!(send(&m, 8, "<>", 3).rest(), [Got::Number(3)]);
    second.is_silent();
    go.send(()).unwrap();
    assert_eq!((first.rest(), second.rest()), (vec![Got::Number(1)], vec![Got::Number(2)]));
    settles(&s.engine, &m);
}

#[test]
fn a_failed_request_does_not_block_later_ones_of_its_sequence() {
    let (script, go) = held(3);
    let s = serve(script, 0);
    let m = s.engine.model("m", "").unwrap();
    assert_eq!(send(&m, 7, "<", 1).rest(), [Got::Number(1)]);
    let (slow, fails, last) = (send(&m, 7, "", 3), send(&m, 7, "", 99), send(&m, 7, ">", 4));
    assert_eq!(fails.error().message(), "in ensemble 'm', ninety-nine");
    last.is_silent();
    go.send(()).unwrap();
    assert_eq!((slow.rest(), last.rest()), (vec![Got::Number(3)], vec![Got::Number(4)]));
    settles(&s.engine, &m);
}

#[test]
fn a_request_cancelled_while_it_waits_for_its_turn_leaves() {
    let (script, go) = held(3);
    let s = serve(script, 0);
    let m = s.engine.model("m", "").unwrap();
    assert_eq!(send(&m, 7, "<", 1).rest(), [Got::Number(1)]);
    let (slow, given_up, last) = (send(&m, 7, "", 3), send(&m, 7, "", 4), send(&m, 7, ">", 5));
    soon("both wait", || s.engine.model("before", "").unwrap().statistics().success.count == 3);
    given_up.ticket().cancel();
    assert_eq!(given_up.rest(), [Got::Failed(tensor::Code::Cancelled)], "while the first is still on its way");
    last.is_silent();
    go.send(()).unwrap();
    assert_eq!((slow.rest(), last.rest()), (vec![Got::Number(3)], vec![Got::Number(5)]));
    settles(&s.engine, &m);
    assert_eq!(s.got.lock().unwrap().iter().map(|(_, n)| *n).collect::<Vec<_>>(), [1, 3, 5]);
}
