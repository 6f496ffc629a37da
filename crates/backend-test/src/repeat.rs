//! Repeats the elements of a request one by one (backends-native.md 11.2): a response for each after a delay, then the
//! end. The instance stays busy for WAIT, independently of the responses.
//!
//! A model that is not decoupled responds once, to requests of one element only.

use crate::TestBackend;
use crate::delay::{self, TICK_NS, Task};
use crate::tensors::{ConfigTensor, check_cpu, check_datatype, check_names, check_scalar, inputs, outputs};
use backend::gather::{detach, input_of};
use backend::{Batch, BatchEntry, Counted, Marks, Model, Outcome, Responder, RunControl, now_ns, scatter};
use protocol::pb::inference::ModelConfig;
use protocol::{Signature, check::IdPrefix};
use std::sync::Arc;
use std::time::Duration;
use tensor::{Data, DataType, Error, Result, Shape, ShapeDisplay};

/// Backend `repeat`.
pub const REPEAT: TestBackend = TestBackend { name: "repeat", load };

/// Maximum time of a request's delays; they occupy an instance, or an entry of the timer's list.
const DELAY_MS_MAX: u32 = 600_000;
/// Responses sent in a row before other tasks run.
const BURST: usize = 64;

fn load(config: &ModelConfig, signature: Arc<Signature>) -> Result<Arc<dyn Model>> {
    check(config)?;
    Ok(Arc::new(Repeat { signature }))
}

fn check(config: &ModelConfig) -> Result<()> {
    check_cpu("repeat", config)?;
    if config.max_batch_size != 0 {
        return Err(Error::invalid("repeat backend only supports models with max_batch_size == 0"));
    }
    let (inputs, outputs) = (inputs(config), outputs(config));
    check_names("input", &inputs, &["IN", "DELAY", "WAIT"])?;
    check_names("output", &outputs, &["OUT", "IDX"])?;
    let ([values, delays, wait], [out, index]) = (&inputs[..], &outputs[..]) else { return Ok(()) };
    if values.dims.len() != 1 {
        let got = ShapeDisplay(values.dims);
        return Err(Error::invalid(format!("expected IN shape to have one dimension, got {got}")));
    }
    if values.dims != delays.dims {
        return Err(shapes_differ(values.dims, delays.dims));
    }
    let scalars: [&ConfigTensor<'_>; 3] = [wait, out, index];
    scalars.into_iter().try_for_each(check_scalar)?;
    check_datatype(values, DataType::Int32)?;
    check_datatype(delays, DataType::Uint32)?;
    check_datatype(wait, DataType::Uint32)?;
    check_datatype(out, DataType::Int32)?;
    check_datatype(index, DataType::Uint32)
}

fn shapes_differ(values: &[i64], delays: &[i64]) -> Error {
    let (values, delays) = (ShapeDisplay(values), ShapeDisplay(delays));
    Error::invalid(format!("expected IN and DELAY shape to match, got {values} and {delays}"))
}

struct Repeat {
    signature: Arc<Signature>,
}

/// The inputs of a request.
struct RepeatRequest {
    values: Data,
    /// One for each value.
    delays: Data,
    wait: Duration,
}

impl RepeatRequest {
    fn of(entry: &mut BatchEntry) -> Result<Self> {
        // An output may overwrite an input.
        detach(entry)?;
        let input = |index| input_of(entry, index).ok_or_else(|| Error::internal("an input is missing"));
        let (values, delays, wait) = (input(0)?, input(1)?, input(2)?);
        if values.shape != delays.shape {
            return Err(shapes_differ(&values.shape, &delays.shape));
        }
        // Copied, so that later writes of the client to its region have no effect.
        let own = |data: &Data| data.to_vec().map(|copy| Data::Bytes(copy.into()));
        let asked = Self {
            values: own(&values.data)?,
            delays: own(&delays.data)?,
            wait: Duration::from_millis(read(&wait.data, 0).into()),
        };
        let longest = (0..asked.len()).map(|i| read(&asked.delays, i)).max().unwrap_or(0);
        for (name, ms) in [("DELAY", longest), ("WAIT", read(&wait.data, 0))] {
            if ms > DELAY_MS_MAX {
                let id = IdPrefix(&entry.request.id);
                return Err(Error::invalid(format!("{id}{name} is {ms} ms: at most {DELAY_MS_MAX} is supported")));
            }
        }
        Ok(asked)
    }

    fn len(&self) -> usize {
        self.values.len() / 4
    }

    fn delay_ns(&self, i: usize) -> u64 {
        u64::from(read(&self.delays, i)) * 1_000_000
    }
}

/// The i-th value of four bytes; 0 beyond the end, where callers do not read.
fn read(data: &Data, i: usize) -> u32 {
    let Data::Bytes(bytes) = data else { return 0 };
    bytes.get(4 * i..4 * i + 4).and_then(|b| b.try_into().ok()).map_or(0, u32::from_le_bytes)
}

/// A response with both outputs, whichever were requested.
fn response(entry: &BatchEntry, signature: &Signature, value: u32, index: u32) -> Result<Outcome> {
    let mut outcome = Outcome::default();
    for (at, (spec, number)) in signature.outputs.iter().zip([value, index]).enumerate() {
        let at = at as u16;
        let slot = entry.checked.outputs.iter().find(|wanted| wanted.0 == at).and_then(|wanted| wanted.1);
        let data = Data::Bytes(number.to_le_bytes().to_vec().into());
        outcome.outputs.push(scatter::output(entry, spec, (at, slot), Shape::from_slice(&[1]), data)?);
    }
    Ok(outcome)
}

/// A request in progress.
struct Repeating {
    responder: Option<Responder>,
    entry: BatchEntry,
    asked: RepeatRequest,
    signature: Arc<Signature>,
    /// Index of the element whose delay began at `since`.
    next: usize,
    since: u64,
}

impl Task for Repeating {
    fn step(&mut self) -> Option<u64> {
        let mut now = now_ns();
        for _ in 0..BURST {
            if self.next >= self.asked.len() {
                self.end(None);
                return None;
            }
            let due = self.since + self.asked.delay_ns(self.next);
            if due > now {
                now = now_ns();
            }
            if self.responder.as_ref().is_none_or(Responder::is_cancelled) {
                self.end(None);
                return None;
            }
            if due > now {
                return Some(due);
            }
            let value = read(&self.asked.values, self.next);
            let sent = match response(&self.entry, &self.signature, value, self.next as u32) {
                Ok(outcome) => self.responder.as_ref().map(|r| r.send(outcome)),
                Err(error) => {
                    self.end(Some(Err(error)));
                    return None;
                }
            };
            if sent != Some(Ok(())) {
                self.end(None);
                return None;
            }
            self.next += 1;
            // Lateness below a tick comes from the tick and must not delay the next response.
            self.since = if now < due + TICK_NS { due } else { now };
        }
        Some(now_ns())
    }
}

impl Repeating {
    fn end(&mut self, last: Option<Result<Outcome>>) {
        if let Some(responder) = self.responder.take() {
            responder.finish(last);
        }
    }
}

impl Repeat {
    /// Starts to respond; returns how long the instance stays busy.
    fn repeat(&self, entry: &mut BatchEntry) -> Duration {
        let Some(responder) = entry.responder.take() else { return Duration::ZERO };
        // As in Triton, every request counts as a success.
        responder.count_as(Counted::Success);
        let asked = match RepeatRequest::of(entry) {
            Ok(asked) => asked,
            Err(error) => {
                responder.finish(Some(Err(error)));
                return Duration::ZERO;
            }
        };
        let task = delay::new_id();
        responder.on_cancel(move || delay::expedite(task));
        let (wait, entry, signature) = (asked.wait, std::mem::take(entry), self.signature.clone());
        let responder = Some(responder);
        delay::begin(task, Box::new(Repeating { responder, entry, asked, signature, next: 0, since: now_ns() }));
        wait
    }

    /// The only response of a model that is not decoupled.
    fn only(&self, entry: &mut BatchEntry, control: &RunControl) -> Result<Outcome> {
        let asked = RepeatRequest::of(entry)?;
        if asked.len() != 1 {
            return Err(Error::internal(format!("expected a single response, got {}", asked.len())));
        }
        let pause = Duration::from_nanos(asked.delay_ns(0)).max(asked.wait);
        if !delay::wait(pause, control) {
            return Err(Error::cancelled("the request was cancelled while its model ran"));
        }
        response(entry, &self.signature, read(&asked.values, 0), 0)
    }
}

impl Model for Repeat {
    fn execute(&self, _instance: u32, batch: &mut Batch<'_>, control: &RunControl) -> Marks {
        let inputs_ready = now_ns();
        let mut hold = Duration::ZERO;
        for entry in batch.requests.iter_mut() {
            if entry.responder.is_some() {
                hold = hold.max(self.repeat(entry));
            } else {
                entry.result = Some(self.only(entry, control));
            }
        }
        // Ends early if all requests are cancelled.
        delay::wait(hold, control);
        let now = now_ns();
        Marks { inputs_ready, inference_end: now, outputs_ready: now }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Event, Tensor, config, entry, load, refused, run, run_once};
    use std::time::Instant;
    use tensor::DataType::{Fp32, Int32, Uint32};

    const INPUTS: [Tensor; 3] = [("IN", Int32, &[-1]), ("DELAY", Uint32, &[-1]), ("WAIT", Uint32, &[1])];
    const OUTPUTS: [Tensor; 2] = [("OUT", Int32, &[1]), ("IDX", Uint32, &[1])];

    fn model() -> Arc<dyn Model> {
        load(&REPEAT, &config(&INPUTS, &OUTPUTS, &[])).expect("a good configuration")
    }

    fn asked(values: &[i32], delays: &[i32], wait: i32) -> BatchEntry {
        entry(&[values, delays, &[wait]], 2)
    }

    // B-BI-02
    #[test]
    fn each_element_is_a_response_followed_by_the_end() {
        let m = model();
        assert_eq!(run(&*m, asked(&[], &[], 0)).answers(), [Event::Ended(None)]);
        let all = run(&*m, asked(&[7, -8, 9], &[0, 30, 0], 0)).answers();
        let sent = |value, index| Event::Sent(vec![value, index]);
        assert_eq!(all, [sent(7, 0), sent(-8, 1), sent(9, 2), Event::Ended(None)]);
        // More than one burst.
        let many: Vec<i32> = (0..1000).collect();
        let all = run(&*m, asked(&many, &[0; 1000], 0)).answers();
        assert_eq!(all, many.iter().map(|&i| sent(i, i)).chain([Event::Ended(None)]).collect::<Vec<_>>());
    }

    // B-BI-02
    #[test]
    fn responses_follow_their_delays_and_the_instance_is_free_after_wait() {
        let m = model();
        let start = Instant::now();
        let all = run(&*m, asked(&[1, 2], &[0, 200], 60)).all();
        assert!(start.elapsed() >= Duration::from_millis(60), "the instance was free too early");
        let times: Vec<_> = all.iter().filter(|(d, _)| matches!(d, Event::Sent(_))).map(|&(_, t)| t - start).collect();
        assert!(times[0] < Duration::from_millis(150) && times[1] >= Duration::from_millis(200), "{times:?}");
        assert_eq!(all[0].0, Event::Counts(Counted::Success), "whatever becomes of it");
    }

    // B-BI-02
    #[test]
    fn a_cancelled_request_ends_without_its_delays() {
        let m = model();
        let start = Instant::now();
        let request = run(&*m, asked(&[1, 2], &[0, 500_000], 0));
        request.cancel();
        assert_eq!(request.answers(), [Event::Sent(vec![1, 0]), Event::Ended(None)]);
        assert!(start.elapsed() < Duration::from_secs(100));
    }

    // B-BI-02
    #[test]
    fn invalid_requests_fail_as_in_triton() {
        let m = model();
        let failed = |entry, text: &'static str| {
            assert_eq!(run(&*m, entry).answers(), [Event::Ended(Some(Error::invalid(text)))]);
        };
        failed(asked(&[1, 2, 3], &[1, 2], 0), "expected IN and DELAY shape to match, got [3] and [2]");
        let text = "[request id: <id_unknown>] DELAY is 4294967295 ms: at most 600000 is supported";
        failed(asked(&[1, 2], &[0, -1], 0), text);
        failed(asked(&[1], &[0], 600_001), "[request id: <id_unknown>] WAIT is 600001 ms: at most 600000 is supported");
    }

    // B-BI-02
    #[test]
    fn without_the_decoupled_flag_there_is_one_response() {
        let m = model();
        assert_eq!(run_once(&*m, asked(&[4], &[0], 0)), Ok(vec![4, 0]));
        let text = "expected a single response, got 2";
        assert_eq!(run_once(&*m, asked(&[4, 5], &[0, 0], 0)), Err(Error::internal(text)));
    }

    // B-BI-02
    #[test]
    fn invalid_configurations_are_rejected_with_triton_s_texts() {
        let check = |inputs: &[Tensor], outputs: &[Tensor], text| {
            refused(&REPEAT, &config(inputs, outputs, &[]), text);
        };
        let [i, d, w] = INPUTS;
        let [o, x] = OUTPUTS;
        let batching = protocol::pb::inference::ModelConfig { max_batch_size: 2, ..config(&INPUTS, &OUTPUTS, &[]) };
        refused(&REPEAT, &batching, "repeat backend only supports models with max_batch_size == 0");
        check(&INPUTS[..2], &OUTPUTS, "expected 3 inputs, got 2");
        check(&[i, d, w, ("X", Int32, &[1])], &OUTPUTS, "expected 3 inputs, got 4");
        check(&INPUTS, &OUTPUTS[..1], "expected 2 outputs, got 1");
        check(&[d, i, w], &OUTPUTS, "expected first input tensor name to be IN, got DELAY");
        check(&[i, w, d], &OUTPUTS, "expected second input tensor name to be DELAY, got WAIT");
        check(&[i, d, ("W", Uint32, &[1])], &OUTPUTS, "expected third input tensor name to be WAIT, got W");
        check(&INPUTS, &[("O", Int32, &[1]), x], "expected first output tensor name to be OUT, got O");
        check(&INPUTS, &[o, ("I", Uint32, &[1])], "expected second output tensor name to be IDX, got I");
        let rank = [("IN", Int32, &[-1, 1][..]), ("DELAY", Uint32, &[-1, 1]), w];
        check(&rank, &OUTPUTS, "expected IN shape to have one dimension, got [-1,1]");
        check(&[("IN", Int32, &[4]), d, w], &OUTPUTS, "expected IN and DELAY shape to match, got [4] and [-1]");
        check(&[i, d, ("WAIT", Uint32, &[2])], &OUTPUTS, "expected WAIT shape to be [1], got [2]");
        check(&INPUTS, &[o, ("IDX", Uint32, &[2])], "expected IDX shape to be [1], got [2]");
        check(&[i, d, ("WAIT", Int32, &[1])], &OUTPUTS, "expected WAIT datatype to be UINT32, got TYPE_INT32");
        check(&INPUTS, &[("OUT", Fp32, &[1]), x], "expected OUT datatype to be INT32, got TYPE_FP32");
        let fixed = [("IN", Int32, &[2][..]), ("DELAY", Uint32, &[2]), w];
        assert!(load(&REPEAT, &config(&fixed, &OUTPUTS, &[])).is_ok());
    }
}
