//! The response cache of a version: which requests run, what is stored, and what is counted.

use crate::support::Got::{Failed, Number};
use crate::support::*;
use backend::Batch;
use engine::{CacheCounters, Engine, EngineOptions, ModelVersion, VersionStatistics};
use protocol::pb::inference as pb;
use protocol::{InferRequest, Regions, RequestedOutput};
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use tensor::{Code, Data, Error};

const SIZE: usize = 1 << 20;

/// A model that returns its input plus one, nothing for 98, an error for 99, and accepts inputs of any length.
fn answer(batch: &mut Batch<'_>) {
    for entry in batch.requests.iter_mut() {
        let number = asked(entry);
        let mut answer = outcome(number.wrapping_add(1));
        if number == 98 {
            answer.outputs[0].data = Data::Bytes(Vec::new().into());
            answer.outputs[0].shape = [1, 0].into_iter().collect();
        }
        entry.result = Some(if number == 99 { Err(Error::internal("it is 99")) } else { Ok(answer) });
    }
}

fn caching(config: &mut pb::ModelConfig) {
    config.response_cache = Some(pb::ModelResponseCache { enable: true });
}

/// A model with the cache, and the number of its runs.
fn cached(change: impl FnOnce(&mut pb::ModelConfig)) -> (Arc<Engine>, Arc<ModelVersion>, Arc<AtomicU64>) {
    let runs = Arc::new(AtomicU64::new(0));
    let counted = runs.clone();
    let options = EngineOptions { response_cache_bytes: Some(SIZE), ..EngineOptions::default() };
    let change = |config: &mut pb::ModelConfig| {
        caching(config);
        change(config);
    };
    let (engine, version) = try_model_of(options, change, move |_, batch, _| {
        counted.fetch_add(batch.requests.len() as u64, SeqCst);
        answer(batch);
    })
    .expect("a good configuration");
    (engine, version, runs)
}

fn counters(engine: &Engine) -> CacheCounters {
    engine.snapshot().cache.expect("there is a cache")
}

/// Successes, hits, misses, inferences, executions.
fn counts(s: &VersionStatistics) -> [u64; 5] {
    [s.success.count, s.cache_hit.count, s.cache_miss.count, s.inference_count, s.execution_count]
}

#[test]
fn s37_a_hit_does_not_run_the_model_and_has_the_request_id() {
    let (engine, version, runs) = cached(|_| ());
    assert_eq!(call(&version, 1).rest(), [Number(2)]);
    let hit = call(&version, 1).next_answer();
    let response = hit.response.expect("an answer").expect("a good one");
    assert_eq!((&*response.id, response.outputs[0].data.to_vec().expect("in memory")), ("r1", vec![2]));
    assert_eq!(call(&version, 5).rest(), [Number(6)]);
    assert_eq!(runs.load(SeqCst), 2);
    settles(&engine, &version);
    let s = version.statistics();
    assert_eq!((counts(&s), s.queue.count, s.compute_infer.count), ([3, 1, 2, 2, 2], 3, 2));
    assert!(s.cached && s.success.ns >= s.cache_hit.ns + s.cache_miss.ns && s.cache_miss.ns > 0);
    let c = counters(&engine);
    assert_eq!((c.entries, c.lookups, c.hits, c.misses), (2, 3, 1, 2));
}

#[test]
fn s37_without_a_cache_or_the_setting_every_request_runs() {
    let has_cache = EngineOptions { response_cache_bytes: Some(SIZE), ..EngineOptions::default() };
    let run = |options, change: fn(&mut pb::ModelConfig)| {
        let (engine, version) = try_model_of(options, change, |_, batch, _| answer(batch)).expect("good");
        (0..3).for_each(|_| assert_eq!(call(&version, 1).rest(), [Number(2)]));
        settles(&engine, &version);
        let s = version.statistics();
        assert_eq!((counts(&s), s.cached), ([3, 0, 0, 3, 3], false));
        engine.snapshot().cache
    };
    assert_eq!(run(EngineOptions::default(), caching), None);
    assert_eq!(run(has_cache, |_| ()).map(|c| c.lookups), Some(0));
}

#[test]
fn responses_of_inline_runs_are_stored_too() {
    let (_engine, version, runs) = cached(|_| ());
    let mut inline = 0;
    for number in 0..90 {
        let first = call(&version, number);
        inline += u32::from(first.ticket.is_none());
        assert_eq!(first.rest(), [Number(number + 1)]);
        let second = call(&version, number);
        assert!(second.ticket.is_none(), "a hit never waits");
        assert_eq!(second.rest(), [Number(number + 1)]);
    }
    assert!(inline > 0, "cheap models come to run where they are called");
    assert_eq!((runs.load(SeqCst), counts(&version.statistics())), (90, [180, 90, 90, 90, 90]));
}

/// A model that waits for the test before each run.
fn held(change: impl FnOnce(&mut pb::ModelConfig)) -> (Arc<Engine>, Arc<ModelVersion>, Receiver<u8>, Sender<()>) {
    let (started, starts) = channel();
    let (go, going) = channel();
    let going = Mutex::new(going);
    let options = EngineOptions { response_cache_bytes: Some(SIZE), ..EngineOptions::default() };
    let change = |config: &mut pb::ModelConfig| {
        caching(config);
        change(config);
    };
    let (engine, version) = try_model_of(options, change, move |_, batch, _| {
        batch.requests.iter().for_each(|e| started.send(asked(e)).expect("the test listens"));
        let _ = going.lock().expect("one at a time").recv_timeout(WITHIN);
        answer(batch);
    })
    .expect("a good configuration");
    (engine, version, starts, go)
}

#[test]
fn s44_equal_requests_in_flight_both_run_and_one_counts_as_a_miss() {
    let (engine, version, starts, go) = held(|config| config.max_batch_size = 1);
    let twins = [call(&version, 1), call(&version, 1)];
    for twin in &twins {
        assert_eq!(starts.recv_timeout(WITHIN), Ok(1));
        go.send(()).expect("waits");
        assert_eq!(twin.next(), (Number(2), true));
    }
    assert_eq!(call(&version, 1).rest(), [Number(2)]);
    settles(&engine, &version);
    // Recorded: cache.twins.
    assert_eq!(counts(&version.statistics()), [3, 1, 1, 2, 2]);
}

#[test]
fn s13_a_hit_is_sent_after_earlier_requests() {
    let ordered = |config: &mut pb::ModelConfig| {
        dynamic(config, pb::ModelDynamicBatching { preserve_ordering: true, ..Default::default() });
    };
    let (engine, version, starts, go) = held(ordered);
    let first = call(&version, 1);
    starts.recv_timeout(WITHIN).expect("runs");
    go.send(()).expect("waits");
    assert_eq!(first.rest(), [Number(2)]);

    let slow = call(&version, 7);
    starts.recv_timeout(WITHIN).expect("runs");
    let hit = call(&version, 1);
    assert!(hit.answers.try_recv().is_err(), "not before the one that came earlier");
    assert_eq!(version.inflight(), 2);
    go.send(()).expect("waits");
    assert_eq!(slow.rest(), [Number(8)]);
    assert_eq!(hit.rest(), [Number(2)]);
    settles(&engine, &version);
    assert_eq!(counts(&version.statistics()), [3, 1, 2, 2, 2]);
}

#[test]
fn s37_failures_are_not_stored() {
    let (engine, version, runs) = cached(|_| ());
    for _ in 0..3 {
        assert_eq!(call(&version, 99).rest(), [Failed(Code::Internal)]);
    }
    assert_eq!((runs.load(SeqCst), counters(&engine).entries), (3, 0));
    assert_eq!(version.statistics().fail.count, 3);
}

#[test]
fn s37_a_response_with_an_empty_output_is_not_stored() {
    let (engine, version, runs) = cached(|config| config.output[0].dims = vec![-1]);
    for _ in 0..2 {
        let response = call(&version, 98).next_answer().response.expect("an answer").expect("a good one");
        assert_eq!((response.outputs[0].data.len(), response.outputs[0].shape.as_slice()), (0, &[1i64, 0][..]));
    }
    settles(&engine, &version);
    assert_eq!((runs.load(SeqCst), counters(&engine).entries, counts(&version.statistics())), (2, 0, [2, 0, 2, 2, 2]));
}

#[test]
fn a_reload_invalidates_cached_responses() {
    let (engine, old, runs) = cached(|_| ());
    assert_eq!(call(&old, 1).rest(), [Number(2)]);
    let new = load(&engine, caching).expect("loaded again");
    assert_eq!(call(&new, 1).rest(), [Number(2)]);
    assert_eq!((runs.load(SeqCst), counters(&engine).entries), (2, 2));
    settles(&engine, &old);
    drop(old);
    soon("the answers of the old load are gone", || counters(&engine).entries == 1);
    assert_eq!(call(&new, 1).rest(), [Number(2)]);
    assert_eq!(runs.load(SeqCst), 2);
}

/// A region of one byte that the test may write like a client.
struct Shared {
    file: std::path::PathBuf,
}

impl Shared {
    fn new(engine: &Engine, name: &str) -> Self {
        let key = format!("nereid-test-cached-{}-{name}", std::process::id());
        let shared = Self { file: format!("/dev/shm/{key}").into() };
        shared.write(0);
        engine.regions().register(name, &key, 0, 1).expect("registered");
        shared
    }
    fn write(&self, byte: u8) {
        std::fs::write(&self.file, [byte]).expect("written");
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.file);
    }
}

#[test]
fn shared_memory_cannot_poison_the_cache() {
    let (engine, version, runs) = cached(|_| ());
    let shared = Shared::new(&engine, "in");
    let in_region = |number: u8| {
        shared.write(number);
        let mut request = request(0);
        request.inputs[0].data = Data::Region(engine.resolve("in", 0, 1).expect("registered"));
        request
    };
    for number in [1, 2, 1] {
        let call = try_request(&version, in_region(number), None).expect("accepted");
        assert_eq!(call.rest(), [Number(number + 1)]);
    }
    let to_region = || {
        let mut request: Box<InferRequest> = request(1);
        let region = Some(engine.resolve("in", 0, 1).expect("registered"));
        request.outputs.push(RequestedOutput { name: "O".into(), form: Default::default(), region });
        request
    };
    for _ in 0..2 {
        try_request(&version, to_region(), None).expect("accepted").rest();
    }
    assert_eq!((runs.load(SeqCst), counters(&engine).lookups), (5, 0), "neither looked up nor kept");
    assert_eq!(counts(&version.statistics()), [5, 0, 0, 5, 5]);
}

#[test]
fn s37_a_request_of_any_size_is_looked_up() {
    let (engine, version, runs) = cached(|config| config.input[0].dims = vec![-1]);
    let of_length = |bytes: usize| {
        let mut request = request(1);
        request.inputs[0].data = Data::Bytes(vec![1; bytes].into());
        request.inputs[0].shape = [1, bytes as i64].into_iter().collect();
        request
    };
    for bytes in [engine::limits::CACHE_KEY_BYTES_MAX, engine::limits::CACHE_KEY_BYTES_MAX + 1, 9 << 20] {
        let before = runs.load(SeqCst);
        for _ in 0..2 {
            assert_eq!(try_request(&version, of_length(bytes), None).expect("accepted").rest(), [Number(2)]);
        }
        assert_eq!(runs.load(SeqCst) - before, 1, "{bytes} bytes");
    }
    settles(&engine, &version);
    let c = counters(&engine);
    assert_eq!((c.lookups, c.hits, counts(&version.statistics())), (6, 3, [6, 3, 3, 3, 3]));
}

#[test]
fn a_cache_larger_than_memory_fails_the_start() {
    let options = EngineOptions { response_cache_bytes: Some(usize::MAX), ..EngineOptions::default() };
    let error = Engine::new(options, vec![]).err().expect("refused");
    assert_eq!(error.code(), Code::InvalidArg);
}

#[test]
fn reloaded_models_invalidate_cached_responses_of_an_ensemble() {
    let options = EngineOptions { response_cache_bytes: Some(SIZE), ..EngineOptions::default() };
    let added = Arc::new(AtomicU64::new(1));
    let adds = added.clone();
    let (engine, _) = try_model_of(
        options,
        |config| config.name = "add".into(),
        move |_, batch, _| {
            for entry in batch.requests.iter_mut() {
                entry.result = Some(Ok(outcome(asked(entry) + adds.load(SeqCst) as u8)));
            }
        },
    )
    .map(|(engine, add)| (engine, drop(add)))
    .unwrap_or_else(|e| panic!("{e}"));
    let step = |model: &str| pb::model_ensembling::Step {
        model_name: model.into(),
        model_version: -1,
        input_map: [("I".to_owned(), "I".to_owned())].into(),
        output_map: [("O".to_owned(), "O".to_owned())].into(),
        ..Default::default()
    };
    let of = |name: &str, model: &str| {
        let graph = pb::ModelEnsembling { step: vec![step(model)], max_inflight_requests: 0 };
        let mut config = of_numbers(name, "");
        config.scheduling_choice = Some(pb::model_config::SchedulingChoice::EnsembleScheduling(graph));
        caching(&mut config);
        config
    };
    publish(&engine, &of("in", "add")).expect("loads");
    let version = publish(&engine, &of("m", "in")).expect("loads");
    let reload = || load(&engine, |config| config.name = "add".into()).expect("loads");
    assert_eq!(call(&version, 1).rest(), [Number(2)]);
    assert_eq!(call(&version, 1).rest(), [Number(2)]);
    assert_eq!(counts(&version.statistics())[1], 1, "a hit");
    added.store(10, SeqCst);
    reload();
    assert_eq!(call(&version, 1).rest(), [Number(11)]);
    assert_eq!(call(&version, 1).rest(), [Number(11)]);
    assert_eq!(counts(&version.statistics())[1], 2, "another hit");
    // A change of an unrelated model changes nothing.
    load(&engine, |config| config.name = "other".into()).expect("loads");
    assert_eq!(call(&version, 1).rest(), [Number(11)]);
    assert_eq!(counts(&version.statistics())[1], 3, "and another");
    soon("answers of models that are gone are forgotten", || counters(&engine).entries == 2);
    // A request that became invalid gets no cached response.
    engine.retire("add", 1);
    assert_eq!(call(&version, 1).error().message().split(", ").next(), Some("in ensemble 'm'"));
}
