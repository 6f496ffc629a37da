//! An ensemble's output for a client's region is written there by its step, without a copy (memory.md 3.5). If other
//! steps need the contents, or the region's, it is copied at the end.

#![cfg(target_os = "linux")]

use crate::support::*;
use backend::{Batch, BatchEntry, Outcome, scatter};
use engine::{Engine, EngineOptions, ModelVersion};
use protocol::pb::inference as pb;
use protocol::{InferRequest, InferResponse, InputTensor, OutputTensor, Regions, RequestedOutput};
use std::sync::{Arc, Mutex};
use tensor::{Data, DataType, Error, RegionRef, Result, Shape};

/// Regions offered to steps, as `model:output`, in the order of runs.
type Offers = Arc<Mutex<Vec<String>>>;

/// Every output is the first input plus one, written directly into a sufficient region.
fn made(entry: &BatchEntry, model: &str, names: &[&str], offers: &Offers) -> Result<Outcome> {
    let bytes: Vec<u8> = entry.request.inputs[0].data.to_vec()?.iter().map(|b| b.wrapping_add(1)).collect();
    let mut outcome = Outcome::default();
    for &(index, slot) in &entry.checked.outputs {
        let name = names[usize::from(index)];
        let region = scatter::region_for(entry, slot, bytes.len());
        if scatter::region_of(entry, slot).is_some() {
            offers.lock().expect("no panic").push(format!("{model}:{name}"));
        }
        let data = match region {
            Some(region) => {
                region.copy_from(0, &bytes)?;
                Data::Region(region.clone())
            }
            None => Data::Bytes(bytes.clone().into()),
        };
        outcome.outputs.push(OutputTensor {
            name: name.into(),
            index,
            datatype: DataType::Uint8,
            shape: Shape::from_slice(&[bytes.len() as i64]),
            data,
            form: scatter::form_of(entry, slot),
        });
    }
    Ok(outcome)
}

fn tensors(name: &str, backend: &str, inputs: &[&str], outputs: &[&str]) -> pb::ModelConfig {
    let (dims, data_type) = (vec![-1], DataType::Uint8 as i32);
    let input = |n: &&str| pb::ModelInput { name: (*n).into(), dims: dims.clone(), data_type, ..Default::default() };
    let output = |n: &&str| pb::ModelOutput { name: (*n).into(), dims: dims.clone(), data_type, ..Default::default() };
    pb::ModelConfig {
        name: name.into(),
        backend: backend.into(),
        input: inputs.iter().map(input).collect(),
        output: outputs.iter().map(output).collect(),
        ..Default::default()
    }
}

/// Steps as `model I=tensor A=tensor …`: input and mapped outputs.
fn ensemble(name: &str, outputs: &[&str], steps: &[&str]) -> pb::ModelConfig {
    let step = |line: &&str| {
        let mut words = line.split(' ');
        let model_name = words.next().expect("a model").to_owned();
        let maps = words.map(|word| word.split_once('=').expect("a map")).map(|(a, b)| (a.to_owned(), b.to_owned()));
        let (input_map, output_map) = maps.partition(|(tensor, _)| tensor == "I");
        pb::model_ensembling::Step { model_name, model_version: -1, input_map, output_map, ..Default::default() }
    };
    let graph = pb::ModelEnsembling { step: steps.iter().map(step).collect(), max_inflight_requests: 0 };
    let choice = pb::model_config::SchedulingChoice::EnsembleScheduling(graph);
    pb::ModelConfig { scheduling_choice: Some(choice), ..tensors(name, "", &["I"], outputs) }
}

/// Models `one` (output A), `two` (A and B), `kept` (cached), `twice` (two responses); a region `r` of 4096 bytes.
struct Made {
    engine: Arc<Engine>,
    offers: Offers,
    file: std::path::PathBuf,
}

impl Made {
    fn new(test: &str) -> Self {
        let offers = Offers::default();
        let script = |model: &'static str, names: &'static [&'static str]| -> (&'static str, Script) {
            let offers = offers.clone();
            let run = move |_: u32, batch: &mut Batch<'_>, _: &backend::RunControl| {
                batch.requests.iter_mut().for_each(|entry| entry.result = Some(made(entry, model, names, &offers)));
            };
            (model, Arc::new(run))
        };
        let options = EngineOptions { response_cache_bytes: Some(1 << 20), ..EngineOptions::default() };
        let seen = offers.clone();
        let twice = move |_: u32, batch: &mut Batch<'_>, _: &backend::RunControl| {
            for entry in batch.requests.iter_mut() {
                let responder = entry.responder.take().expect("a decoupled model");
                for _ in 0..2 {
                    responder.send(made(entry, "twice", &["A"], &seen).expect("in memory")).expect("not cancelled");
                }
                responder.finish(None);
            }
        };
        let mut scripts = vec![script("one", &["A"]), script("two", &["A", "B"]), script("kept", &["A"])];
        scripts.push(("twice", Arc::new(twice)));
        let engine = engine_of(options, scripts).expect("an engine");
        let key = format!("nereid-test-steps-{}-{test}", std::process::id());
        let file = std::path::PathBuf::from(format!("/dev/shm/{key}"));
        std::fs::write(&file, [0xEE; 4096]).expect("written");
        engine.regions().register("r", &key, 0, 4096).expect("registered");
        let made = Self { engine, offers, file };
        made.publish(&tensors("one", "one", &["I"], &["A"]));
        made.publish(&tensors("two", "two", &["I"], &["A", "B"]));
        let mut twice = tensors("twice", "twice", &["I"], &["A"]);
        decoupled(&mut twice);
        made.publish(&twice);
        let response_cache = Some(pb::ModelResponseCache { enable: true });
        made.publish(&pb::ModelConfig { response_cache, ..tensors("kept", "kept", &["I"], &["A"]) });
        made
    }

    fn publish(&self, config: &pb::ModelConfig) -> Arc<ModelVersion> {
        publish(&self.engine, config).expect("a good configuration")
    }

    fn region(&self, offset: u64, len: u64) -> RegionRef {
        self.engine.resolve("r", offset, len).expect("registered")
    }

    fn ask(&self, model: &str, input: Data, wanted: &[(&str, Option<RegionRef>)]) -> Result<Box<InferResponse>> {
        self.call(model, input, wanted)?.next_answer().response.expect("an answer")
    }

    fn call(&self, model: &str, input: Data, wanted: &[(&str, Option<RegionRef>)]) -> Result<Call> {
        let shape = Shape::from_slice(&[input.len() as i64]);
        let input = InputTensor { name: "I".into(), datatype: Some(DataType::Uint8), shape, data: input };
        let outputs = wanted.iter().map(|(name, region)| RequestedOutput {
            name: (*name).into(),
            form: Default::default(),
            region: region.clone(),
        });
        let inputs = [input].into_iter().collect();
        let request = InferRequest { inputs, outputs: outputs.collect(), ..InferRequest::default() };
        try_request(&*self.engine.model(model, "")?, Box::new(request), None)
    }

    fn offers(&self) -> Vec<String> {
        std::mem::take(&mut *self.offers.lock().expect("no panic"))
    }
}

impl Drop for Made {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.file);
    }
}

fn body(bytes: &[u8]) -> Data {
    Data::Bytes(bytes.to_vec().into())
}

#[test]
fn m_30_a_step_writes_its_output_into_the_region_of_the_client() {
    let made = Made::new("last");
    made.publish(&ensemble("chain", &["O"], &["one I=I A=t", "two I=t B=O"]));
    made.publish(&ensemble("outer", &["P"], &["one I=I A=t", "chain I=t O=P"]));
    for (model, output, expected) in [("chain", "O", [3, 4, 5]), ("outer", "P", [4, 5, 6])] {
        let region = made.region(8, 5);
        let response = made.ask(model, body(&[1, 2, 3]), &[(output, Some(region.clone()))]).expect("an answer");
        assert_eq!(made.offers(), ["two:B"], "{model}: only the last step is told, and of its output only");
        let answered = &response.outputs[0];
        assert!(scatter::is_in(&answered.data, &region), "{model}: it is the region that is answered");
        assert_eq!((&*answered.name, &answered.shape[..]), (output, &[3][..]));
        let file = std::fs::read(&made.file).expect("there");
        assert_eq!(
            file[7..13],
            [0xEE, expected[0], expected[1], expected[2], 0xEE, 0xEE],
            "{model}: and nothing beside"
        );
    }
    // Without a region no output is offered one.
    let response = made.ask("chain", body(&[1]), &[]).expect("an answer");
    assert_eq!((made.offers().len(), response.outputs[0].data.to_vec().expect("in memory")), (0, vec![3]));
}

#[test]
fn m_30_outputs_for_other_steps_are_copied_at_the_end() {
    let made = Made::new("others");
    let all = |region: &RegionRef| Data::Region(region.clone()).to_vec().expect("in memory");
    // Another step uses it.
    made.publish(&ensemble("taken", &["O", "P"], &["one I=I A=O", "two I=O B=P"]));
    let (o, p) = (made.region(0, 2), made.region(2, 2));
    made.ask("taken", body(&[1, 2]), &[("O", Some(o.clone())), ("P", Some(p.clone()))]).expect("an answer");
    assert_eq!((made.offers(), all(&o), all(&p)), (vec!["two:B".to_owned()], vec![2, 3], vec![3, 4]));
    // Unless that step does not run.
    made.ask("taken", body(&[5, 6]), &[("O", Some(o.clone()))]).expect("an answer");
    assert_eq!((made.offers(), all(&o)), (vec!["one:A".to_owned()], vec![6, 7]));
    // A later step still has to read the region.
    made.publish(&ensemble("beside", &["O", "P"], &["one I=I A=O", "one I=I A=t", "one I=t A=P"]));
    let both = made.region(0, 2);
    both.copy_from(0, &[1, 2]).expect("inside");
    let (input, p) = (Data::Region(made.region(0, 2)), made.region(2, 2));
    made.ask("beside", input, &[("O", Some(both.clone())), ("P", Some(p.clone()))]).expect("an answer");
    assert_eq!((made.offers(), all(&both), all(&p)), (vec!["one:A".to_owned()], vec![2, 3], vec![3, 4]));
    // Two outputs that share bytes: the later one is there, as with any model.
    let shared = [("O", Some(made.region(0, 2))), ("P", Some(made.region(1, 2)))];
    made.ask("beside", body(&[1, 2]), &shared).expect("an answer");
    assert_eq!((made.offers().len(), all(&made.region(0, 3))), (0, vec![2, 3, 4]));
}

#[test]
fn m_14_the_error_of_a_small_region_names_the_requested_output() {
    let made = Made::new("small");
    made.publish(&ensemble("chain", &["O"], &["one I=I A=t", "two I=t B=O"]));
    made.publish(&ensemble("outer", &["P"], &["chain I=I O=P"]));
    for (model, output) in [("chain", "O"), ("outer", "P")] {
        let refused = made.ask(model, body(&[1, 2, 3]), &[(output, Some(made.region(0, 2)))]).expect_err("too small");
        let text = format!(
            "shared memory size specified with the request for output '{output}' (2 bytes) should be at least 3 bytes \
             to hold the results"
        );
        assert_eq!(refused, Error::malformed(text));
    }
    assert_eq!(std::fs::read(&made.file).expect("there"), [0xEE; 4096]);
}

#[test]
fn m_30_responses_of_a_decoupled_step_do_not_overwrite_each_other() {
    let made = Made::new("decoupled");
    made.publish(&ensemble("alone", &["O"], &["one I=I A=t", "twice I=t A=O"]));
    made.publish(&ensemble("behind", &["O"], &["twice I=I A=t", "two I=t B=O"]));
    for model in ["alone", "behind"] {
        let region = made.region(0, 2);
        let call = made.call(model, body(&[1, 2]), &[("O", Some(region.clone()))]).expect("accepted");
        let mut answers = 0;
        loop {
            let answer = call.next_answer();
            answers += usize::from(matches!(answer.response, Some(Ok(_))));
            if answer.is_final {
                break;
            }
        }
        assert_eq!(answers, 2, "{model}");
        assert_eq!(Data::Region(region).to_vec().expect("in memory"), [3, 4], "{model}");
    }
    assert_eq!(made.offers(), [""; 0]);
}

#[test]
fn s_37_a_step_with_the_response_cache_is_still_looked_up() {
    let made = Made::new("kept");
    made.publish(&ensemble("chain", &["O"], &["one I=I A=t", "kept I=t A=O"]));
    for n in 0..3 {
        let region = made.region(0, 2);
        made.ask("chain", body(&[1, 2]), &[("O", Some(region.clone()))]).expect("an answer");
        assert_eq!(Data::Region(region).to_vec().expect("in memory"), [3, 4], "request {n}");
    }
    let kept = made.engine.model("kept", "").expect("it serves").statistics();
    assert_eq!((made.offers().len(), kept.cache_hit.count, kept.cache_miss.count), (0, 2, 1));
}
