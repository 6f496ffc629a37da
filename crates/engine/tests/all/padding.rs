//! `nereid.padding`: requests of different lengths in one batch, as backends and clients see them.

use crate::support::{self, Call, WITHIN, dynamic, instances, settles, try_model, try_model_of, try_request};
use backend::{Batch, BatchEntry, Outcome, RunControl};
use bytes::Bytes;
use engine::{Engine, EngineOptions, ModelVersion};
use protocol::pb::inference as pb;
use protocol::{InferRequest, InferResponse, InputTensor, OutputForm, OutputTensor};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use tensor::{Data, DataType, Result, Shape};

const UINT8: i32 = 2;

fn parameter(config: &mut pb::ModelConfig, tensor: &str, value: &str) {
    let value = pb::ModelParameter { string_value: value.into() };
    config.parameters.insert(format!("nereid.padding.{tensor}"), value);
}

/// Tokens and their mask; the model returns doubled tokens and their sum.
fn of_tokens(config: &mut pb::ModelConfig) {
    let input =
        |name: &str| pb::ModelInput { name: name.into(), dims: vec![-1], data_type: UINT8, ..Default::default() };
    let output = |name: &str, dims| pb::ModelOutput { name: name.into(), dims, data_type: UINT8, ..Default::default() };
    config.input = vec![input("IDS"), input("MASK")];
    config.output = vec![output("TWICE", vec![-1, 2]), output("SUM", vec![1])];
    dynamic(config, pb::ModelDynamicBatching::default());
    instances(config, 1);
    parameter(config, "IDS", "[tokens] value=7");
    parameter(config, "MASK", "[tokens]");
    parameter(config, "TWICE", "[tokens,2]");
}

/// Inputs of each request of a run.
type Seen = Vec<Vec<(Vec<i64>, Vec<u8>)>>;

fn seen(batch: &Batch<'_>) -> Seen {
    let of = |e: &BatchEntry| {
        e.request.inputs.iter().map(|i| (i.shape.to_vec(), i.data.to_vec().expect("in memory"))).collect()
    };
    batch.requests.iter().map(of).collect()
}

fn output(index: u16, name: &str, shape: &[i64], data: Vec<u8>) -> OutputTensor {
    OutputTensor {
        name: name.into(),
        datatype: DataType::Uint8,
        shape: Shape::from_slice(shape),
        data: Data::Bytes(Bytes::from(data)),
        index,
        form: OutputForm::default(),
    }
}

fn serve(entry: &mut BatchEntry) {
    let ids = entry.request.inputs[0].data.to_vec().expect("in memory");
    let mask = entry.request.inputs[1].data.to_vec().expect("in memory");
    let shape = entry.request.inputs[0].shape.to_vec();
    let sums = ids.iter().zip(&mask).map(|(id, mask)| id.wrapping_mul(*mask)).collect::<Vec<_>>();
    let sums = sums
        .chunks(shape[1].max(1) as usize)
        .map(|row| row.iter().fold(0u8, |sum, id| sum.wrapping_add(*id)))
        .collect();
    let mut outcome = Outcome::default();
    let twice = ids.iter().flat_map(|id| [*id, *id]).collect();
    outcome.outputs.push(output(0, "TWICE", &[shape[0], shape[1], 2], twice));
    outcome.outputs.push(output(1, "SUM", &[shape[0], 1], sums));
    entry.result = Some(Ok(outcome));
}

/// A model whose first run waits, so that requests gather behind it.
struct Held {
    engine: Arc<Engine>,
    version: Arc<ModelVersion>,
    go: Sender<()>,
    runs: Receiver<Seen>,
    first: Call,
}

fn held_of(options: EngineOptions, change: impl FnOnce(&mut pb::ModelConfig)) -> Held {
    held_with(options, change, serve)
}

fn held_with(
    options: EngineOptions,
    change: impl FnOnce(&mut pb::ModelConfig),
    serve: impl Fn(&mut BatchEntry) + Send + Sync + 'static,
) -> Held {
    let (go, wait) = channel::<()>();
    let (tell, runs) = channel();
    let (wait, tell) = (Mutex::new(wait), Mutex::new(tell));
    let script = move |_: u32, batch: &mut Batch<'_>, _: &RunControl| {
        let inputs = seen(batch);
        let is_first = inputs[0][0].1 == [0];
        let _ = tell.lock().unwrap().send(inputs);
        if is_first {
            let _ = wait.lock().unwrap().recv_timeout(WITHIN);
        }
        batch.requests.iter_mut().for_each(&serve);
    };
    let all = |config: &mut pb::ModelConfig| {
        of_tokens(config);
        change(config);
    };
    let (engine, version) = try_model_of(options, all, script).expect("a good configuration");
    let first = ask(&version, &[0]);
    let held = Held { engine, version, go, runs, first };
    held.ran(&[&[0]]);
    held
}

fn held() -> Held {
    held_of(EngineOptions::default(), |_| ())
}

fn tensor(name: &str, rows: i64, data: Vec<u8>) -> InputTensor {
    InputTensor {
        name: name.into(),
        datatype: Some(DataType::Uint8),
        shape: Shape::from_slice(&[rows, data.len() as i64 / rows]),
        data: Data::Bytes(Bytes::from(data)),
    }
}

fn request(rows: i64, ids: &[u8], mask: &[u8]) -> Box<InferRequest> {
    let inputs = [tensor("IDS", rows, ids.to_vec()), tensor("MASK", rows, mask.to_vec())];
    Box::new(InferRequest { inputs: inputs.into_iter().collect(), ..InferRequest::default() })
}

fn ask(version: &ModelVersion, ids: &[u8]) -> Call {
    try_request(version, request(1, ids, &vec![1; ids.len()]), None).expect("accepted")
}

impl Held {
    /// Ends the first run.
    fn goes(&self) {
        self.go.send(()).unwrap();
    }

    /// Expects these tokens in the next run, including padding.
    fn ran(&self, ids: &[&[u8]]) -> Seen {
        let seen = self.runs.recv_timeout(WITHIN).expect("a run");
        assert_eq!(seen.iter().map(|inputs| &inputs[0].1[..]).collect::<Vec<_>>(), ids);
        seen
    }

    fn ends(self) {
        answered(&self.first, &[0]);
        settles(&self.engine, &self.version);
    }
}

fn response(call: &Call) -> Result<Box<InferResponse>> {
    let answer = call.next_answer();
    assert!(answer.is_final);
    answer.response.expect("a response")
}

fn answered(call: &Call, ids: &[u8]) {
    let response = response(call).expect("an answer");
    let twice: Vec<u8> = ids.iter().flat_map(|id| [*id, *id]).collect();
    let found: Vec<_> =
        response.outputs.iter().map(|o| (o.shape.to_vec(), o.data.to_vec().expect("in memory"))).collect();
    assert_eq!(found, [(vec![1, ids.len() as i64, 2], twice), (vec![1, 1], vec![ids.iter().sum()])]);
}

#[test]
fn similar_lengths_run_padded_and_outputs_have_their_own_length() {
    let held = held();
    let calls = [ask(&held.version, &[1, 2, 3, 4]), ask(&held.version, &[4, 4, 4]), ask(&held.version, &[5, 6])];
    held.goes();
    let seen = held.ran(&[&[1, 2, 3, 4], &[4, 4, 4, 7], &[5, 6, 7, 7]]);
    assert_eq!(seen[2][1], (vec![1, 4], vec![1, 1, 0, 0]), "the mask is padded with 0");
    answered(&calls[0], &[1, 2, 3, 4]);
    answered(&calls[1], &[4, 4, 4]);
    answered(&calls[2], &[5, 6]);
    let statistics = held.version.statistics();
    assert_eq!((statistics.inference_count, statistics.execution_count), (4, 2));
    held.ends();
}

#[test]
fn each_row_of_a_request_is_padded() {
    let held = held();
    let two = try_request(&held.version, request(2, &[1, 2, 3, 4], &[1; 4]), None).expect("accepted");
    let one = ask(&held.version, &[5, 6, 8]);
    held.goes();
    let seen = held.ran(&[&[1, 2, 7, 3, 4, 7], &[5, 6, 8]]);
    assert_eq!(seen[0][1], (vec![2, 3], vec![1, 1, 0, 1, 1, 0]));
    let response = response(&two).expect("an answer");
    assert_eq!(response.outputs[0].shape[..], [2, 2, 2]);
    assert_eq!(response.outputs[0].data.to_vec().expect("in memory"), [1, 1, 2, 2, 3, 3, 4, 4]);
    assert_eq!(response.outputs[1].data.to_vec().expect("in memory"), [3, 7]);
    answered(&one, &[5, 6, 8]);
    held.ends();
}

#[test]
fn equal_lengths_are_not_changed() {
    let addresses = Arc::new(Mutex::new(Vec::new()));
    let record = addresses.clone();
    let held = held_with(
        EngineOptions::default(),
        |_| (),
        move |entry| {
            let address = |i: &InputTensor| i.data.host().map(|b| b.as_ptr() as usize);
            record.lock().unwrap().extend(entry.request.inputs.iter().map(address));
            serve(entry);
        },
    );
    let requests = [request(1, &[1, 2], &[1, 1]), request(1, &[3, 4], &[1, 1])];
    let own: Vec<_> =
        requests.iter().flat_map(|r| r.inputs.iter().map(|i| i.data.host().map(|b| b.as_ptr() as usize))).collect();
    let calls = requests.map(|r| try_request(&held.version, r, None).expect("accepted"));
    held.goes();
    held.ran(&[&[1, 2], &[3, 4]]);
    answered(&calls[0], &[1, 2]);
    answered(&calls[1], &[3, 4]);
    assert_eq!(addresses.lock().unwrap()[2..], own, "the bytes that came are the bytes that ran");
    held.ends();
}

#[test]
fn a_short_request_is_never_padded_to_the_length_of_a_huge_one() {
    let held = held();
    let long = vec![1u8; 100_000];
    let calls = [ask(&held.version, &[1]), ask(&held.version, &long), ask(&held.version, &[2])];
    held.goes();
    held.ran(&[&[1], &[2]]);
    held.ran(&[&long]);
    answered(&calls[0], &[1]);
    answered(&calls[2], &[2]);
    assert_eq!(response(&calls[1]).expect("an answer").outputs[0].shape[..], [1, 100_000, 2]);
    held.ends();
}

#[test]
fn a_request_with_different_lengths_of_one_dimension_is_not_padded() {
    let held = held();
    let odd = try_request(&held.version, request(1, &[1, 2, 3], &[1, 1]), None).expect("accepted");
    let usual = ask(&held.version, &[4, 5]);
    held.goes();
    held.ran(&[&[1, 2, 3]]);
    held.ran(&[&[4, 5]]);
    assert_eq!(response(&odd).expect("an answer").outputs[0].shape[..], [1, 3, 2]);
    answered(&usual, &[4, 5]);
    held.ends();
}

#[test]
fn an_output_of_the_wrong_length_fails_its_batch_with_a_hint() {
    let held = held_with(
        EngineOptions::default(),
        |_| (),
        |entry| {
            serve(entry);
            if let Some(Ok(outcome)) = &mut entry.result {
                outcome.outputs[0] = output(0, "TWICE", &[1, 2, 2], vec![1; 4]);
            }
        },
    );
    let calls = [ask(&held.version, &[1, 2, 3]), ask(&held.version, &[4, 4])];
    held.goes();
    for call in &calls {
        let error = response(call).expect_err("an error");
        assert_eq!(
            error.message(),
            "[request id: <id_unknown>] dimension 0 of output 'TWICE' of model 'm' is 2 where its inputs were padded \
             to 3: it does not follow 'tokens', as parameter 'nereid.padding.TWICE' says it does; write -1 there if \
             it has nothing to do with the length, else remove the parameters 'nereid.padding.…'"
        );
    }
    let _ = response(&held.first);
    settles(&held.engine, &held.version);
}

#[test]
fn an_output_of_other_dims_than_configured_fails_its_batch() {
    for (shape, told) in [(&[1, 6][..], "[1,6]"), (&[1, 3, 2, 1], "[1,3,2,1]")] {
        let held = held_with(
            EngineOptions::default(),
            |_| (),
            move |entry| {
                serve(entry);
                if let Some(Ok(outcome)) = &mut entry.result {
                    outcome.outputs[0] = output(0, "TWICE", shape, vec![1; 6]);
                }
            },
        );
        let calls = [ask(&held.version, &[1, 2, 3]), ask(&held.version, &[4, 4])];
        held.goes();
        for call in &calls {
            let error = response(call).expect_err("an error");
            assert_eq!(
                error.message(),
                format!(
                    "[request id: <id_unknown>] output 'TWICE' of model 'm' has shape {told} where its configuration \
                     has 2 dims behind the batch dimension: it cannot be un-padded"
                )
            );
        }
        let _ = response(&held.first);
        settles(&held.engine, &held.version);
    }
}

#[test]
fn a_failed_request_of_a_padded_batch_does_not_fail_the_others() {
    let held = held_with(
        EngineOptions::default(),
        |_| (),
        |entry| {
            if entry.request.inputs[0].data.to_vec().expect("in memory")[0] == 9 {
                entry.result = Some(Err(tensor::Error::internal("no nines")));
            } else {
                serve(entry);
            }
        },
    );
    let calls = [ask(&held.version, &[1, 2, 3]), ask(&held.version, &[9])];
    held.goes();
    answered(&calls[0], &[1, 2, 3]);
    assert_eq!(response(&calls[1]).expect_err("an error").message(), "no nines");
    held.ends();
}

#[test]
fn cancelled_requests_leave_a_padded_queue() {
    let held = held();
    let calls = [ask(&held.version, &[1, 2]), ask(&held.version, &[3]), ask(&held.version, &[4, 5])];
    calls[1].ticket().cancel();
    assert_eq!(calls[1].error().code(), tensor::Code::Cancelled);
    held.goes();
    held.ran(&[&[1, 2], &[4, 5]]);
    answered(&calls[0], &[1, 2]);
    answered(&calls[2], &[4, 5]);
    held.ends();
}

#[test]
fn s10_responses_keep_their_order_when_a_later_request_runs_first() {
    let held = held_of(EngineOptions::default(), |config| {
        dynamic(config, pb::ModelDynamicBatching { preserve_ordering: true, ..Default::default() });
    });
    let long = vec![1u8; 100_000];
    let calls = [ask(&held.version, &[1]), ask(&held.version, &long), ask(&held.version, &[2])];
    held.goes();
    held.ran(&[&[1], &[2]]);
    held.ran(&[&long]);
    // The third ran before the second, and its response waits for it.
    answered(&calls[0], &[1]);
    assert_eq!(response(&calls[1]).expect("an answer").outputs[0].shape[1], 100_000);
    answered(&calls[2], &[2]);
    held.ends();
}

#[test]
fn strict_batching_delay_disables_padding() {
    let options = EngineOptions { strict_batching_delay: true, ..EngineOptions::default() };
    let held = held_of(options, |_| ());
    let calls = [ask(&held.version, &[1, 2]), ask(&held.version, &[3])];
    held.goes();
    held.ran(&[&[1, 2]]);
    held.ran(&[&[3]]);
    answered(&calls[0], &[1, 2]);
    answered(&calls[1], &[3]);
    held.ends();
}

fn refused(change: impl FnOnce(&mut pb::ModelConfig), text: &str) {
    let all = |config: &mut pb::ModelConfig| {
        of_tokens(config);
        change(config);
    };
    let error = try_model(all, |_, _, _| ()).err().expect("refused");
    assert_eq!((error.code(), error.message()), (tensor::Code::InvalidArg, text));
}

#[test]
fn impossible_padding_fails_the_load_with_a_hint() {
    refused(
        |c| parameter(c, "ids", "[tokens]"),
        "parameter 'nereid.padding.ids' of model 'm' is '[tokens]': the model has no input or output 'ids'; the key \
         is 'nereid.padding.' and the name of a tensor; inputs: 'IDS','MASK'; outputs: 'TWICE','SUM'",
    );
    refused(
        |c| parameter(c, "IDS", "tokens"),
        "parameter 'nereid.padding.IDS' of model 'm' is 'tokens': expected the dims with a name for each that is \
         padded, and perhaps a value, as in '[tokens] value=0'",
    );
    refused(
        |c| parameter(c, "TWICE", "[tokens]"),
        "parameter 'nereid.padding.TWICE' of model 'm' is '[tokens]': output 'TWICE' has dims [-1,2]: write them as \
         they are, with names only in the place of -1, as in '[tokens,2]'",
    );
    refused(
        |c| parameter(c, "IDS", "[tokens] value=256"),
        "parameter 'nereid.padding.IDS' of model 'm' is '[tokens] value=256': '256' is no value of data_type \
         TYPE_UINT8",
    );
    refused(
        |c| parameter(c, "MASK", "[-1]"),
        "parameter 'nereid.padding.MASK' of model 'm' is '[-1]': each -1 of a padded input needs a name, for instance \
         '[tokens]'",
    );
    refused(
        |c| parameter(c, "TWICE", "[words,2]"),
        "parameter 'nereid.padding.TWICE' of model 'm' is '[words,2]': no padded input has a dimension 'words'; names \
         of inputs: 'tokens'",
    );
    refused(
        |c| parameter(c, "TWICE", "[tokens,2] value=0"),
        "parameter 'nereid.padding.TWICE' of model 'm' is '[tokens,2] value=0': output 'TWICE' is not padded: remove \
         'value'",
    );
    refused(
        |c| drop(c.parameters.remove("nereid.padding.TWICE")),
        "output 'TWICE' of model 'm' has dims [-1,2] and no parameter 'nereid.padding.TWICE': write them with the \
         name of each padded dimension in the place of its -1, for instance '[tokens,2]', or '[-1,2]' when none of \
         them is",
    );
    refused(
        |c| c.input[0].data_type = 13,
        "parameter 'nereid.padding.IDS' of model 'm' is '[tokens] value=7': input 'IDS' has data_type TYPE_STRING, \
         and cannot be padded",
    );
    refused(
        |c| c.input[1].allow_ragged_batch = true,
        "parameter 'nereid.padding.MASK' of model 'm' is '[tokens]': input 'MASK' has allow_ragged_batch: requests of \
         different lengths are either put behind each other or padded; remove one of the two",
    );
    refused(
        |c| c.scheduling_choice = None,
        "model 'm' has parameter 'nereid.padding.IDS', but its requests are not batched: add 'dynamic_batching { }', \
         or remove the parameter",
    );
    refused(
        |c| c.max_batch_size = 1,
        "model 'm' has parameter 'nereid.padding.IDS', but its max_batch_size is 1: only requests that run together \
         are padded, so it must be 2 or more",
    );
    refused(
        support::decoupled,
        "model 'm' has parameter 'nereid.padding.IDS', but it is decoupled: answers of such models cannot be un-padded",
    );
    refused(
        |c| c.batch_input = vec![pb::BatchInput::default()],
        "model 'm' has parameter 'nereid.padding.IDS', but it has batch_input or batch_output, which belong to ragged \
         batches: remove one of the two",
    );
    refused(
        |c| {
            let batching = pb::ModelSequenceBatching::default();
            c.scheduling_choice = Some(pb::model_config::SchedulingChoice::SequenceBatching(batching));
        },
        "model 'm' has parameter 'nereid.padding.IDS', but it has sequence_batching, whose requests cannot be padded: \
         remove one of the two",
    );
    refused(
        |c| {
            c.parameters.clear();
            parameter(c, "TWICE", "[-1,2]");
        },
        "the parameters 'nereid.padding.…' of model 'm' name no dimension of an input: write the dims of each input \
         that is padded with a name for each -1, for instance '[tokens]'",
    );
}
