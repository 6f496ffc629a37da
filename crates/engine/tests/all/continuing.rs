//! Sequences that continue on the version on which they began, through reloads and the exit of the server.

use crate::support::{self, *};
use engine::{Engine, ModelVersion, ServerState};
use protocol::pb::inference as pb;
use protocol::pb::inference::model_sequence_batching::{StrategyChoice, StrategyDirect};
use protocol::{CorrelationId, InferRequest, Sequence};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use tensor::Result;

const IDLE_US: u64 = 60_000_000;

fn sequences(config: &mut pb::ModelConfig, idle_us: u64) {
    instances(config, 1);
    config.scheduling_choice = Some(pb::model_config::SchedulingChoice::SequenceBatching(pb::ModelSequenceBatching {
        max_sequence_idle_microseconds: idle_us,
        strategy_choice: Some(StrategyChoice::Direct(StrategyDirect::default())),
        ..Default::default()
    }));
}

/// Each load responds with its own number: 1, 2, ….
fn engine() -> Arc<Engine> {
    struct Numbered(AtomicU8);
    impl backend::Backend for Numbered {
        fn name(&self) -> &'static str {
            "scripted"
        }
        fn open(&self, _: &backend::OpenSpec) -> Result<Box<dyn backend::Opened>> {
            Ok(Box::new(Load(self.0.fetch_add(1, Ordering::SeqCst) + 1)))
        }
    }
    struct Load(u8);
    impl backend::Opened for Load {
        fn io(&self) -> Option<backend::ModelIo> {
            None
        }
        fn finish(
            self: Box<Self>,
            _: &pb::ModelConfig,
            _: Arc<protocol::Signature>,
        ) -> Result<Arc<dyn backend::Model>> {
            Ok(Arc::new(*self))
        }
    }
    impl backend::Model for Load {
        fn execute(&self, _: u32, batch: &mut backend::Batch<'_>, _: &backend::RunControl) -> backend::Marks {
            batch.requests.iter_mut().for_each(|entry| entry.result = Some(Ok(outcome(self.0))));
            backend::Marks::default()
        }
    }
    let engine = Engine::new(Default::default(), vec![Arc::new(Numbered(AtomicU8::new(0)))]).expect("an engine");
    engine.set_server_state(ServerState::Ready);
    engine
}

/// The load that responds to a request of a sequence.
fn ask(engine: &Engine, id: u64, flags: &str) -> Result<u8, String> {
    ask_of(engine, ("m", ""), id, flags)
}

fn ask_of(engine: &Engine, (model, version): (&str, &str), id: u64, flags: &str) -> Result<u8, String> {
    let sequence = Sequence { id: CorrelationId::Number(id), start: flags.contains('<'), end: flags.contains('>') };
    let version = engine.model(model, version).map_err(|e| e.message().to_owned())?;
    let request = InferRequest { sequence, ..*request(1) };
    let call = try_request(&version, Box::new(request), None).map_err(|e| e.message().to_owned())?;
    let answer = call.next_answer().response.expect("an answer").map_err(|e| e.message().to_owned())?;
    Ok(answer.outputs[0].data.to_vec().expect("in memory")[0])
}

fn reload(engine: &Engine) -> Arc<ModelVersion> {
    load(engine, |config| sequences(config, IDLE_US)).expect("loads")
}

/// Loads a version of the model `key`: a name, or one in a namespace.
fn load_as(engine: &Engine, key: &str, number: i64) {
    let mut config = of_numbers("m", "scripted");
    sequences(&mut config, IDLE_US);
    support::publish_as(engine, key, number, &config).expect("loads");
}

fn is_unknown(answer: Result<u8, String>) -> bool {
    answer.is_err_and(|text| text.contains("must specify the START flag"))
}

#[test]
fn r51_sequences_stay_on_their_version_and_new_ones_use_the_reloaded_one() {
    let engine = engine();
    let first = Arc::downgrade(&reload(&engine));
    assert_eq!((ask(&engine, 1, "<"), ask(&engine, 2, "<")), (Ok(1), Ok(1)));
    reload(&engine);
    assert_eq!(ask(&engine, 3, "<"), Ok(2));
    assert_eq!((ask(&engine, 1, ""), ask(&engine, 2, ""), ask(&engine, 3, "")), (Ok(1), Ok(1), Ok(2)));
    reload(&engine);
    assert_eq!((ask(&engine, 1, ""), ask(&engine, 3, ">")), (Ok(1), Ok(2)));
    assert!(is_unknown(ask(&engine, 3, "")), "it has ended");
    assert!(is_unknown(ask(&engine, 4, "")), "nobody began it");
    // Started again while the old one is in progress, which ends that, as on one version.
    assert_eq!((ask(&engine, 2, "<"), ask(&engine, 2, ""), ask(&engine, 2, ">")), (Ok(3), Ok(3), Ok(3)));
    assert!(is_unknown(ask(&engine, 2, "")), "what somebody else has of the former one is not for it");
    assert_eq!(ask(&engine, 1, ">"), Ok(1));
    assert_eq!(engine.sequences(), 0);
    soon("the first version is gone with its last sequence", || first.upgrade().is_none());
    assert_eq!(engine.drain(WITHIN), 0);
}

#[test]
fn r51_a_replaced_version_ends_when_its_sequences_are_idle_for_too_long() {
    let engine = engine();
    let first = Arc::downgrade(&load(&engine, |config| sequences(config, 30_000)).expect("loads"));
    assert_eq!(ask(&engine, 1, "<"), Ok(1));
    reload(&engine);
    soon("nobody asks any more", || first.upgrade().is_none());
    assert_eq!(engine.sequences(), 0);
    assert!(is_unknown(ask(&engine, 1, "")));
    // Without sequences in progress the old version is not kept.
    let second = Arc::downgrade(&engine.model("m", "").expect("serves"));
    reload(&engine);
    soon("it had none", || second.upgrade().is_none());
}

#[test]
fn r30_the_late_end_of_an_earlier_load_does_not_end_the_unload_of_a_newer_one() {
    let engine = engine();
    load_as(&engine, "m", 1);
    let retire = || engine.retire("m", 1).map(|version| version.identity.load);
    let earlier = retire();
    load_as(&engine, "m", 1);
    let newer = retire();
    let after = |load| {
        engine.retired("m", 1, load, "unloaded");
        engine.versions(Some("m")).remove(0)
    };
    let of = |state, why: &str| ("m".to_owned(), 1, state, why.to_owned());
    assert_eq!(after(earlier), of(engine::VersionState::Unloading, ""));
    assert_eq!(after(newer), of(engine::VersionState::Unloaded, "unloaded"));
    load_as(&engine, "m", 1);
    assert_eq!(after(newer), of(engine::VersionState::Ready, ""));
}

#[test]
fn r51_a_new_version_number_takes_over_and_an_unload_ends_sequences() {
    let engine = engine();
    reload(&engine);
    assert_eq!(ask(&engine, 1, "<"), Ok(1));
    load_as(&engine, "m", 2);
    let retiring = engine.retire("m", 1).expect("served");
    engine.retired("m", 1, Some(retiring.identity.load), "unloaded");
    let old = Arc::downgrade(&retiring);
    drop(retiring);
    assert!(engine.is_ready(), "the old version is gone for readiness");
    let answer = {
        let version = engine.model("m", "").expect("serves");
        let sequence = Sequence { id: CorrelationId::Number(1), start: false, end: false };
        let call = try_request(&version, Box::new(InferRequest { sequence, ..*request(1) }), None).expect("accepted");
        let response = call.next_answer().response.expect("an answer").expect("a response");
        (response.model_version.to_string(), response.outputs[0].data.to_vec().expect("in memory")[0])
    };
    assert_eq!(answer, ("1".to_owned(), 1));
    drop(engine.retire("m", 2));
    assert_eq!(engine.sequences(), 0);
    soon("nothing keeps it", || old.upgrade().is_none());
}

#[test]
fn r51_the_number_of_replaced_versions_is_limited() {
    let engine = engine();
    for id in 1..=6 {
        reload(&engine);
        assert_eq!(ask(&engine, id, "<"), Ok(id as u8));
    }
    // Four are kept besides the one that serves.
    assert!(is_unknown(ask(&engine, 1, "")));
    for id in 2..=6 {
        assert_eq!(ask(&engine, id, ">"), Ok(id as u8));
    }
    assert_eq!(engine.sequences(), 0);
}

#[test]
fn r51_an_exiting_server_waits_for_sequences_of_all_versions() {
    let engine = engine();
    reload(&engine);
    assert_eq!(ask(&engine, 1, "<"), Ok(1));
    reload(&engine);
    assert_eq!(ask(&engine, 2, "<"), Ok(2));
    engine.set_server_state(ServerState::Exiting);
    // Responses are counted a moment after they are sent.
    soon("only sequences are left", || engine.drain(std::time::Duration::ZERO) == 0);
    assert_eq!(engine.sequences(), 2);
    assert!(!engine.is_ready() && !engine.is_live());
    assert!(ask(&engine, 3, "<").is_err_and(|text| text.starts_with("Server is stopping")));
    assert_eq!((ask(&engine, 1, ">"), ask(&engine, 2, ">")), (Ok(1), Ok(2)));
    assert_eq!(engine.drain(WITHIN), 0);
}

#[test]
fn r51_versions_have_their_own_sequences_through_reloads() {
    let engine = engine();
    let [one, two] = [("m", "1"), ("m", "2")];
    (1..=2).for_each(|number| load_as(&engine, "m", number));
    assert_eq!((ask_of(&engine, one, 5, "<"), ask_of(&engine, two, 5, "<")), (Ok(1), Ok(2)));
    assert_eq!(ask_of(&engine, two, 6, "<"), Ok(2));
    (1..=2).for_each(|number| load_as(&engine, "m", number));
    assert_eq!((ask_of(&engine, one, 5, ""), ask_of(&engine, two, 5, "")), (Ok(1), Ok(2)));
    assert!(is_unknown(ask_of(&engine, one, 6, "")), "it is of the other version");
    // A START only ends sequences of its own version.
    assert_eq!(ask_of(&engine, one, 5, "<>"), Ok(3));
    assert!(is_unknown(ask_of(&engine, one, 5, "")));
    assert_eq!((ask_of(&engine, two, 5, ">"), ask_of(&engine, two, 6, ">")), (Ok(2), Ok(2)));
    assert_eq!(engine.sequences(), 0);
}

#[test]
fn r40_r51_equal_names_in_two_repositories_have_their_own_sequences() {
    let engine = engine();
    let [a, b] = ["/a/m", "/b/m"];
    let of = |key, id, flags| ask_of(&engine, (key, ""), id, flags);
    [a, b].iter().for_each(|key| load_as(&engine, key, 1));
    let first = Arc::downgrade(&engine.model(a, "").expect("serves"));
    assert_eq!((of(a, 1, "<"), of(b, 2, "<")), (Ok(1), Ok(2)));
    [a, b].iter().for_each(|key| load_as(&engine, key, 1));
    assert!(is_unknown(of(b, 1, "")) && is_unknown(of(a, 2, "")), "they are of the other repository");
    assert_eq!((of(a, 1, ""), of(b, 2, "")), (Ok(1), Ok(2)));
    assert_eq!(engine.sequences(), 2);
    // An unload ends the sequences of its version, and nothing else.
    drop(engine.retire(a, 1));
    soon("nothing keeps it", || first.upgrade().is_none());
    assert_eq!((engine.sequences(), of(b, 2, ">")), (1, Ok(2)));
    assert_eq!(engine.sequences(), 0);
}
