//! Random requests to two equal models, one with the response cache, from several threads while both are reloaded:
//! responses do not differ. The cache is so small that it evicts entries all the time.

use crate::support::*;
use backend::{Batch, BatchEntry, Outcome};
use engine::{Engine, EngineOptions, ModelVersion};
use protocol::pb::inference as pb;
use protocol::{InferRequest, InferResponse, InputTensor, OutputForm, OutputTensor, RequestedOutput};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use tensor::{Data, DataType, Error, Result, Shape};

const CACHE_BYTES: usize = 1 << 20;
const THREADS: u64 = 4;
const REQUESTS: u64 = 3000;
const INPUTS: u64 = 60;
/// Two models with equal requests.
const NAMES: [&str; 2] = ["m", "n"];

/// A step of splitmix64.
fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let z = (*state ^ (*state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// Bytes derived from an input and the index of the output; up to 8 KiB.
fn bytes(input: &[u8], output: u16) -> Vec<u8> {
    let mut state = input.iter().fold(u64::from(output), |h, b| next(&mut (h ^ u64::from(*b))));
    let length = 1 + next(&mut state) % (8 << 10);
    (0..length).map(|i| (state >> (8 * (i % 8))) as u8).collect()
}

/// Every tenth input is an error.
fn result(entry: &BatchEntry) -> Result<Outcome> {
    let input = entry.request.inputs[0].data.to_vec().expect("in memory");
    let number = u32::from_le_bytes(input[..4].try_into().expect("four bytes"));
    if number.is_multiple_of(10) {
        return Err(Error::internal(format!("{number} is one of the bad ones")));
    }
    let mut outcome = Outcome::default();
    for &(index, _) in &entry.checked.outputs {
        let data = bytes(&input, index);
        let name = if index == 0 { "O" } else { "P" };
        outcome.outputs.push(OutputTensor {
            name: name.into(),
            datatype: DataType::Uint8,
            shape: Shape::from_slice(&[1, data.len() as i64]),
            data: Data::Bytes(data.into()),
            index,
            form: OutputForm::default(),
        });
    }
    Ok(outcome)
}

#[derive(Default)]
struct Runs {
    all: AtomicU64,
    failed: AtomicU64,
}

fn script(runs: Arc<Runs>) -> Script {
    Arc::new(move |_, batch: &mut Batch<'_>, _| {
        for entry in batch.requests.iter_mut() {
            let result = result(entry);
            runs.all.fetch_add(1, SeqCst);
            runs.failed.fetch_add(u64::from(result.is_err()), SeqCst);
            entry.result = Some(result);
        }
    })
}

fn config(name: &str) -> pb::ModelConfig {
    let mut config = of_numbers(name, "scripted");
    config.input[0].dims = vec![-1];
    config.output[0].dims = vec![-1];
    config.output.push(pb::ModelOutput { name: "P".into(), ..config.output[0].clone() });
    config.response_cache = Some(pb::ModelResponseCache { enable: true });
    instances(&mut config, 2);
    config
}

fn served(cache: Option<usize>) -> (Arc<Engine>, Arc<Runs>) {
    let options = EngineOptions { response_cache_bytes: cache, ..EngineOptions::default() };
    let runs = Arc::new(Runs::default());
    let engine = engine_of(options, vec![("scripted", script(runs.clone()))]).expect("good options");
    NAMES.iter().for_each(|name| drop(publish(&engine, &config(name)).expect("a good configuration")));
    (engine, runs)
}

/// Often equal enough to be hits, with different ids and requested outputs.
fn random_request(random: &mut u64) -> InferRequest {
    let number = (next(random) % INPUTS) as u32;
    // One tensor in two shapes makes two different requests.
    let rows = 1 + (next(random) % 2) as i64;
    let wanted: &[&str] = [&[][..], &["O"], &["P"], &["P", "O"]][(next(random) % 4) as usize];
    let input = InputTensor {
        name: "I".into(),
        datatype: Some(DataType::Uint8),
        shape: Shape::from_slice(&[rows, 4 / rows]),
        data: Data::Bytes(number.to_le_bytes().to_vec().into()),
    };
    let output = |name: &&str| RequestedOutput { name: (*name).into(), form: OutputForm::default(), region: None };
    InferRequest {
        id: next(random).to_string().into(),
        inputs: [input].into_iter().collect(),
        outputs: wanted.iter().map(output).collect(),
        ..InferRequest::default()
    }
}

/// All of a response that a client sees.
fn seen(version: &ModelVersion, request: InferRequest) -> String {
    let answer = try_request(version, Box::new(request), None).expect("accepted").next_answer();
    assert!(answer.is_final);
    match answer.response.expect("an answer") {
        Err(error) => format!("{error:?}"),
        Ok(response) => {
            let InferResponse { model_name, model_version, outputs, id, parameters } = *response;
            let output = |o: &OutputTensor| {
                (o.name.clone(), o.index, o.datatype, o.shape.clone(), o.data.to_vec().expect("in memory"))
            };
            let outputs: Vec<_> = outputs.iter().map(output).collect();
            format!("{model_name} {model_version} {id} {} {outputs:?}", parameters.len())
        }
    }
}

#[test]
fn s37_random_requests_get_the_same_responses_with_and_without_the_cache() {
    let ((plain, plain_runs), (cached, cached_runs)) = (served(None), served(Some(CACHE_BYTES)));
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (plain, cached) = (&plain, &cached);
            scope.spawn(move || {
                let mut random = thread;
                for i in 0..REQUESTS {
                    let name = NAMES[(next(&mut random) % 2) as usize];
                    if thread == 0 && i % 500 == 499 {
                        publish(cached, &config(name)).expect("loaded again");
                    }
                    let (twin, request) = (random_request(&mut { random }), random_request(&mut random));
                    let [a, b] = [plain, cached].map(|engine| engine.model(name, "").expect("serves"));
                    assert_eq!(seen(&a, twin), seen(&b, request), "request {i} of thread {thread}");
                }
            });
        }
    });
    assert_eq!((plain.drain(WITHIN), cached.drain(WITHIN)), (0, 0));
    let [plain, without] = [&plain_runs, &cached_runs].map(|runs| (runs.all.load(SeqCst), runs.failed.load(SeqCst)));
    assert_eq!(plain.0, THREADS * REQUESTS);
    assert_eq!(without.1, plain.1, "a failure is never kept: each ran");
    let counters = cached.snapshot().cache.expect("there is a cache");
    // Ensures that the cache was used.
    assert!(counters.hits > 1000 && counters.evictions > 100, "{counters:?}");
    assert!(without.0 <= plain.0 - counters.hits, "{without:?} {counters:?}");
}
