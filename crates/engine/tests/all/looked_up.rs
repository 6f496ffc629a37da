//! Requests that wait for a response cache in another process, whose answers the test controls.

use crate::support::Got::{Failed, Number};
use crate::support::*;
use backend::Batch;
use cache::{Cache, CachedOutput, Counters, Entry, Found, Insertion, Key, KeySpace, Lookup, OutputSet};
use engine::{Engine, EngineOptions, ModelVersion, ServerState, Ticket, VersionStatistics};
use protocol::pb::inference as pb;
use protocol::{CorrelationId, InferRequest, Sequence};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use tensor::{Code, Data, DataType, Error, Shape};

type Kept = (Key, OutputSet, Vec<CachedOutput>);

/// Lookups that wait for the test, and insertions.
#[derive(Default)]
struct Slow {
    asked: Mutex<VecDeque<(Key, Found)>>,
    kept: Mutex<Vec<Kept>>,
    shared: bool,
}

impl Cache for Slow {
    fn lookup(&self, key: &Key, _: &OutputSet, found: &mut dyn FnMut() -> Found) -> Lookup {
        self.asked.lock().expect("whole").push_back((*key, found()));
        Lookup::Later
    }
    fn insert(&self, key: &Key, asked: &OutputSet, outputs: &[CachedOutput]) -> Insertion {
        self.kept.lock().expect("whole").push((*key, asked.clone(), outputs.to_vec()));
        Insertion::Stored
    }
    fn forget(&self, _: &KeySpace) {}
    fn counters(&self) -> Option<Counters> {
        None
    }
    fn is_shared(&self) -> bool {
        self.shared
    }
}

impl Slow {
    fn take(&self) -> Found {
        soon("a lookup", || !self.asked.lock().expect("whole").is_empty());
        self.asked.lock().expect("whole").pop_front().expect("there is one").1
    }

    /// Answers the next lookup with the stored entry, on a thread of its own.
    fn answer(&self, entry: Option<Arc<Entry>>) {
        let found = self.take();
        std::thread::spawn(move || found(entry)).join().expect("no panic");
    }

    /// The last insertion.
    fn entry(&self) -> Arc<Entry> {
        let kept = self.kept.lock().expect("whole");
        let (key, asked, outputs) = kept.last().expect("something");
        let text = cache::store(key, asked, outputs).expect("it fits");
        Arc::new(cache::restore(key, &text.into()).expect("an entry"))
    }
}

fn setting(
    cache: Slow,
    change: impl FnOnce(&mut pb::ModelConfig),
) -> (Arc<Slow>, Arc<Engine>, Arc<ModelVersion>, Arc<AtomicU64>) {
    let runs = Arc::new(AtomicU64::new(0));
    let (counted, cache) = (runs.clone(), Arc::new(cache));
    let script = move |_: u32, batch: &mut Batch<'_>, _: &backend::RunControl| {
        counted.fetch_add(batch.requests.len() as u64, SeqCst);
        for entry in batch.requests.iter_mut() {
            let number = asked(entry);
            entry.result =
                Some(if number == 99 { Err(Error::internal("it is 99")) } else { Ok(outcome(number.wrapping_add(1))) });
        }
    };
    let engine =
        Engine::with_cache(EngineOptions::default(), vec![scripted(script)], Some(cache.clone())).expect("made");
    engine.set_server_state(ServerState::Ready);
    let version = load(&engine, |config| {
        config.response_cache = Some(pb::ModelResponseCache { enable: true });
        change(config);
    });
    (cache, engine, version.expect("loads"), runs)
}

fn counts(s: &VersionStatistics) -> [u64; 5] {
    [s.success.count, s.cache_hit.count, s.cache_miss.count, s.inference_count, s.execution_count]
}

#[test]
fn s39_a_request_waits_for_its_lookup_and_no_thread_does() {
    let (cache, engine, version, runs) = setting(Slow::default(), |_| ());
    let calls: Vec<_> = (0..40).map(|number| call(&version, number)).collect();
    assert_eq!((version.inflight(), runs.load(SeqCst)), (40, 0));
    calls[0].is_silent();
    calls.iter().for_each(|_| cache.answer(None));
    for (number, call) in calls.iter().enumerate() {
        assert_eq!(call.rest(), [Number(number as u8 + 1)]);
    }
    settles(&engine, &version);
    assert_eq!((counts(&version.statistics()), cache.kept.lock().expect("whole").len()), ([40, 0, 40, 40, 40], 40));
    // The last one again.
    let hit = call(&version, 39);
    cache.answer(Some(cache.entry()));
    assert_eq!(hit.rest(), [Number(40)]);
    settles(&engine, &version);
    assert_eq!((counts(&version.statistics()), runs.load(SeqCst)), ([41, 1, 40, 40, 40], 40));
}

#[test]
fn s39_a_dropped_lookup_is_a_miss() {
    let (cache, engine, version, runs) = setting(Slow::default(), |_| ());
    let waiting = call(&version, 1);
    drop(cache.take());
    assert_eq!(waiting.rest(), [Number(2)]);
    settles(&engine, &version);
    assert_eq!((counts(&version.statistics()), runs.load(SeqCst)), ([1, 0, 1, 1, 1], 1));
}

#[test]
fn s39_failures_are_not_stored_and_unfitting_entries_are_misses() {
    let (cache, engine, version, runs) = setting(Slow::default(), |_| ());
    let failed = call(&version, 99);
    cache.answer(None);
    assert_eq!(failed.rest(), [Failed(Code::Internal)]);
    assert!(cache.kept.lock().expect("whole").is_empty());

    let first = call(&version, 1);
    cache.answer(None);
    assert_eq!(first.rest(), [Number(2)]);
    let (key, asked, _) = cache.kept.lock().expect("whole")[0].clone();
    for (index, datatype) in [(0, DataType::Int8), (1, DataType::Uint8)] {
        let output = CachedOutput { index, datatype, shape: Shape::from_slice(&[1]), data: vec![7].into() };
        cache.kept.lock().expect("whole").push((key, asked.clone(), vec![output]));
        let again = call(&version, 1);
        cache.answer(Some(cache.entry()));
        assert_eq!(again.rest(), [Number(2)], "output {index} as {datatype:?}");
    }
    settles(&engine, &version);
    assert_eq!(runs.load(SeqCst), 4);
}

#[test]
fn s41_a_request_cancelled_during_its_lookup_ends_at_once_and_does_not_run() {
    let (cache, engine, version, runs) = setting(Slow::default(), |_| ());
    let given_up = [call(&version, 1), call(&version, 2)];
    for call in &given_up {
        call.ticket().cancel();
        assert_eq!(call.rest(), [Failed(Code::Cancelled)]);
    }
    settles(&engine, &version);
    // Results that come now, or never, have no request.
    cache.answer(None);
    drop(cache.take());
    given_up.iter().for_each(Call::is_over);
    settles(&engine, &version);
    assert_eq!((runs.load(SeqCst), version.statistics().cancelled), (0, 2));
}

#[test]
fn s41_a_request_cancelled_by_its_caller_during_its_lookup_ends_at_once() {
    let (cache, engine, version, runs) = setting(Slow::default(), |_| ());
    let caller = Ticket::group(None).expect("new");
    let step = try_call(&version, 1, Some(&caller)).expect("accepted");
    caller.cancel();
    assert_eq!(step.rest(), [Failed(Code::Cancelled)]);
    drop(cache.take());
    settles(&engine, &version);
    assert_eq!((runs.load(SeqCst), version.statistics().cancelled), (0, 1));
}

/// Activities, tensors and error of the next trace.
fn traced(engine: &Engine) -> (String, Vec<(trace::TensorSide, String)>, Option<Code>) {
    soon("a trace", || engine.tracer().waiting().0 > 0);
    let taken = engine.tracer().take(1);
    let call = &taken.records[0].calls[0];
    let names: Vec<_> = call.activities.iter().map(|stamp| stamp.activity.name()).collect();
    let tensors = call.tensors.iter().map(|tensor| (tensor.kind, tensor.text())).collect();
    (names.join(" "), tensors, call.error.as_ref().map(|(code, _)| *code))
}

#[test]
fn o40_s41_the_trace_of_a_later_cache_hit_has_no_execution() {
    use trace::TensorSide::{BackendOutput, QueueInput};
    let (cache, engine, version, _) = setting(Slow::default(), |_| ());
    let all = trace::TraceSetting {
        number: 1,
        mode: trace::TraceMode::Triton,
        timestamps: true,
        tensors: true,
        rate: 1,
        count: -1,
    };
    engine.tracer().set("", Some(all)).expect("few");
    let call = || {
        let mut request = request(1);
        request.trace = version.trace().begin(|| None);
        assert!(request.trace.is_some());
        try_request(&version, request, None).expect("accepted")
    };
    let (input, output) = ((QueueInput, "1".to_owned()), (BackendOutput, "2".to_owned()));

    let miss = call();
    cache.answer(None);
    assert_eq!(miss.rest(), [Number(2)]);
    let ran = "REQUEST_START QUEUE_START COMPUTE_START COMPUTE_INPUT_END COMPUTE_OUTPUT_START COMPUTE_END REQUEST_END";
    assert_eq!(traced(&engine), (ran.to_owned(), vec![input.clone(), output.clone()], None));

    let found = "REQUEST_START QUEUE_START REQUEST_END".to_owned();
    let hit = call();
    cache.answer(Some(cache.entry()));
    assert_eq!(hit.rest(), [Number(2)]);
    assert_eq!(traced(&engine), (found.clone(), vec![input.clone(), output], None));

    let given_up = call();
    given_up.ticket().cancel();
    cache.answer(None);
    assert_eq!(given_up.rest(), [Failed(Code::Cancelled)]);
    assert_eq!(traced(&engine), (found, vec![input], Some(Code::Cancelled)));

    // Each ended once.
    settles(&engine, &version);
    assert_eq!((engine.tracer().waiting().0, engine.tracer().lost(), engine.tracer().open_bytes()), (0, 0, 0));
}

#[test]
fn s13_s41_a_request_cancelled_during_its_lookup_gives_up_its_position() {
    let ordered = |config: &mut pb::ModelConfig| {
        dynamic(config, pb::ModelDynamicBatching { preserve_ordering: true, ..Default::default() });
    };
    let (cache, engine, version, _) = setting(Slow::default(), ordered);
    let [first, second] = [1, 2].map(|number| call(&version, number));
    let slow = cache.take();
    cache.answer(None);
    second.is_silent();
    first.ticket().cancel();
    assert_eq!((first.rest(), second.rest()), (vec![Failed(Code::Cancelled)], vec![Number(3)]));
    drop(slow);
    settles(&engine, &version);
}

#[test]
fn s13_responses_keep_their_order_whichever_lookup_ends_first() {
    let ordered = |config: &mut pb::ModelConfig| {
        dynamic(config, pb::ModelDynamicBatching { preserve_ordering: true, ..Default::default() });
    };
    let (cache, engine, version, runs) = setting(Slow::default(), ordered);
    let [first, second, third] = [1, 2, 3].map(|number| call(&version, number));
    let slow = cache.take();
    cache.answer(None);
    cache.answer(None);
    soon("both ran", || runs.load(SeqCst) == 2);
    second.is_silent();
    third.is_silent();
    slow(None);
    assert_eq!([first.rest(), second.rest(), third.rest()], [[Number(2)], [Number(3)], [Number(4)]]);
    settles(&engine, &version);
}

#[test]
fn s39_a_rejection_after_the_lookup_is_the_response() {
    let full = |config: &mut pb::ModelConfig| {
        let policy = pb::ModelQueuePolicy { max_queue_size: 1, ..Default::default() };
        let ordered = pb::ModelDynamicBatching {
            default_queue_policy: Some(policy),
            preserve_ordering: true,
            ..Default::default()
        };
        dynamic(config, ordered);
        config.max_batch_size = 1;
    };
    let (cache, engine, version, _) = setting(Slow::default(), full);
    let calls: Vec<_> = (0..200).map(|n| call(&version, n as u8 % 90)).collect();
    let found: Vec<_> = calls.iter().map(|_| cache.take()).collect();
    found.into_iter().for_each(|found| found(None));
    let answers: Vec<_> = calls.iter().map(|c| c.rest()).collect();
    for (n, answer) in answers.iter().enumerate() {
        let is_full = *answer == [Failed(Code::Unavailable)];
        assert!(is_full || *answer == [Number(n as u8 % 90 + 1)], "{n}: {answer:?}");
    }
    settles(&engine, &version);
}

#[test]
fn s37_a_large_request_is_looked_up_on_the_pool() {
    let (cache, engine, version, runs) = setting(Slow::default(), |config| config.input[0].dims = vec![-1]);
    let large = || {
        let bytes = engine::limits::CACHE_KEY_BYTES_MAX + 1;
        let mut request = request(1);
        request.inputs[0].data = Data::Bytes(vec![1; bytes].into());
        request.inputs[0].shape = [1, bytes as i64].into_iter().collect();
        try_request(&version, request, None).expect("accepted")
    };
    let first = large();
    cache.answer(None);
    assert_eq!(first.rest(), [Number(2)]);
    let second = large();
    cache.answer(Some(cache.entry()));
    assert_eq!(second.rest(), [Number(2)]);
    settles(&engine, &version);
    assert_eq!((runs.load(SeqCst), counts(&version.statistics())), (1, [2, 1, 1, 1, 1]));
}

#[test]
fn s39_in_a_shared_cache_loads_of_the_same_files_have_the_same_keys() {
    let keys = |change: fn(&mut pb::ModelConfig)| {
        let (cache, engine, version, _) = setting(Slow { shared: true, ..Slow::default() }, change);
        let waiting = call(&version, 1);
        cache.answer(None);
        assert_eq!(waiting.rest(), [Number(2)]);
        settles(&engine, &version);
        cache.kept.lock().expect("whole")[0].0
    };
    assert_eq!(keys(|_| ()), keys(|_| ()));
    assert_ne!(keys(|_| ()), keys(|config| config.parameters = [("a".into(), Default::default())].into()));
}

/// Signals of a model that begins, and of the test that lets it continue.
type Gate = (Receiver<()>, Sender<()>);

/// An ensemble with the cache that calls `add` once, which announces its run and waits for the test.
fn ensemble() -> (Arc<Slow>, Arc<Engine>, Arc<ModelVersion>, Gate) {
    let (started, starts) = channel();
    let (go, going) = channel::<()>();
    let going = Mutex::new(going);
    let script = move |_: u32, batch: &mut Batch<'_>, _: &backend::RunControl| {
        started.send(()).expect("the test listens");
        let _ = going.lock().expect("one at a time").recv_timeout(WITHIN);
        batch.requests.iter_mut().for_each(|entry| entry.result = Some(Ok(outcome(asked(entry).wrapping_add(1)))));
    };
    let cache = Arc::new(Slow { shared: true, ..Slow::default() });
    let engine =
        Engine::with_cache(EngineOptions::default(), vec![scripted(script)], Some(cache.clone())).expect("made");
    engine.set_server_state(ServerState::Ready);
    publish(&engine, &of_numbers("add", "scripted")).expect("loads");
    let mut config = ensemble_of("m", "add");
    config.response_cache = Some(pb::ModelResponseCache { enable: true });
    let version = publish(&engine, &config).expect("loads");
    (cache, engine, version, (starts, go))
}

#[test]
fn s39_a_response_of_an_ensemble_is_not_stored_if_a_model_was_reloaded() {
    let (cache, engine, version, (starts, go)) = ensemble();
    let mut kept = Vec::new();
    for reloads in [true, false] {
        let asked = call(&version, 1);
        cache.answer(None);
        starts.recv_timeout(WITHIN).expect("it runs");
        if reloads {
            publish(&engine, &of_numbers("add", "scripted")).expect("loads");
        }
        go.send(()).expect("it waits");
        assert_eq!(asked.rest(), [Number(2)]);
        settles(&engine, &version);
        kept.push(cache.kept.lock().expect("whole").len());
    }
    assert_eq!(kept, [0, 1]);
    assert_eq!(version.statistics().cache_miss.count, 2, "both are misses");
}

#[test]
fn s37_a_request_of_a_sequence_to_an_ensemble_is_not_looked_up() {
    let (cache, engine, version, (starts, go)) = ensemble();
    for id in [CorrelationId::Number(7), CorrelationId::String("seven".into())] {
        let sequence = Sequence { id, start: true, end: false };
        go.send(()).expect("it will run");
        let asked = try_request(&version, Box::new(InferRequest { sequence, ..*request(1) }), None).expect("accepted");
        starts.recv_timeout(WITHIN).expect("it runs");
        assert_eq!(asked.rest(), [Number(2)]);
    }
    settles(&engine, &version);
    assert!(cache.asked.lock().expect("whole").is_empty() && cache.kept.lock().expect("whole").is_empty());
    assert_eq!((version.statistics().cache_hit.count, version.statistics().cache_miss.count), (0, 0));
}
