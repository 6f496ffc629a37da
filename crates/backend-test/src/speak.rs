//! Speaks like a language model without one: a word after each interval, as many as `max_tokens` says.
//!
//! Inputs `text_input` (BYTES, unused) and optionally `max_tokens` (INT32), output `text_output` (BYTES), all of one
//! element. Parameter `interval_ms`: time before each word, 20 if absent. A model that is not decoupled responds once.

use crate::TestBackend;
use crate::delay::{self, TICK_NS, Task};
use crate::tensors::{check_cpu, inputs, outputs};
use backend::gather::{detach, input_of};
use backend::{Batch, BatchEntry, Marks, Model, Outcome, Responder, RunControl, now_ns, scatter};
use protocol::Signature;
use protocol::pb::inference::ModelConfig;
use std::sync::Arc;
use std::time::Duration;
use tensor::{Data, DataType, Error, Result};

/// Backend `speak`.
pub const SPEAK: TestBackend = TestBackend { name: "speak", load };

/// Longest interval in milliseconds, and most words.
const INTERVAL_MS_MAX: u64 = 60_000;
const WORDS_MAX: u32 = 1 << 20;
/// Words of a request that names no number.
const WORDS: u32 = 16;
/// Words sent in a row before other tasks run.
const BURST: usize = 64;
const WORD: &[u8] = b" word";

fn load(config: &ModelConfig, signature: Arc<Signature>) -> Result<Arc<dyn Model>> {
    check_cpu("speak", config)?;
    let (inputs, outputs) = (inputs(config), outputs(config));
    let has = |name: &str, datatype| inputs.iter().any(|input| input.name == name && input.is(datatype));
    let is_text = outputs.iter().all(|output| output.name == "text_output" && output.is(DataType::Bytes));
    let limit = signature.inputs.iter().position(|input| *input.name == *"max_tokens");
    let limit = limit.and_then(|at| u16::try_from(at).ok());
    if !has("text_input", DataType::Bytes) || outputs.len() != 1 || !is_text {
        return Err(Error::invalid(
            "speak backend expects the input text_input and the output text_output, both TYPE_STRING",
        ));
    }
    if limit.is_some() && !has("max_tokens", DataType::Int32) {
        return Err(Error::invalid("speak backend expects max_tokens to be TYPE_INT32"));
    }
    let interval = config.parameters.get("interval_ms").map_or("20", |parameter| parameter.string_value.as_str());
    let interval: u64 = interval.parse().ok().filter(|ms| *ms <= INTERVAL_MS_MAX).ok_or_else(|| {
        Error::invalid(format!("interval_ms is '{interval}': expected a number from 0 to {INTERVAL_MS_MAX}"))
    })?;
    Ok(Arc::new(Speak { signature, limit, interval_ns: interval * 1_000_000 }))
}

struct Speak {
    signature: Arc<Signature>,
    /// Index of `max_tokens`.
    limit: Option<u16>,
    interval_ns: u64,
}

impl Speak {
    fn words(&self, entry: &BatchEntry) -> Result<u32> {
        let Some(input) = self.limit.and_then(|at| input_of(entry, at)) else { return Ok(WORDS) };
        let bytes = input.data.to_vec()?;
        let words = bytes.first_chunk().map_or(0, |bytes| i32::from_le_bytes(*bytes));
        u32::try_from(words)
            .ok()
            .filter(|words| *words <= WORDS_MAX)
            .ok_or_else(|| Error::invalid(format!("max_tokens is {words}: expected a number from 0 to {WORDS_MAX}")))
    }

    fn response(entry: &BatchEntry, signature: &Signature, words: usize) -> Result<Outcome> {
        let mut outcome = Outcome::default();
        let Some(spec) = signature.outputs.first() else { return Ok(outcome) };
        let slot = entry.checked.outputs.iter().find(|wanted| wanted.0 == 0).and_then(|wanted| wanted.1);
        let text = WORD.repeat(words);
        let mut data = (text.len() as u32).to_le_bytes().to_vec();
        data.extend(text);
        let shape = std::iter::repeat_n(1, spec.dims.len() + usize::from(signature.max_batch_size > 0)).collect();
        outcome.outputs.push(scatter::output(entry, spec, (0, slot), shape, Data::Bytes(data.into()))?);
        Ok(outcome)
    }
}

/// A request that is being answered.
struct Speaking {
    responder: Option<Responder>,
    entry: BatchEntry,
    signature: Arc<Signature>,
    left: u32,
    interval_ns: u64,
    since: u64,
}

impl Speaking {
    fn end(&mut self, last: Option<Result<Outcome>>) -> Option<u64> {
        if let Some(responder) = self.responder.take() {
            responder.finish(last);
        }
        None
    }
}

impl Task for Speaking {
    fn step(&mut self) -> Option<u64> {
        for _ in 0..BURST {
            if self.left == 0 || self.responder.as_ref().is_none_or(Responder::is_cancelled) {
                return self.end(None);
            }
            let (now, due) = (now_ns(), self.since + self.interval_ns);
            if due > now {
                return Some(due);
            }
            let sent = match Speak::response(&self.entry, &self.signature, 1) {
                Ok(outcome) => self.responder.as_ref().map(|responder| responder.send(outcome)),
                Err(error) => return self.end(Some(Err(error))),
            };
            if sent != Some(Ok(())) {
                return self.end(None);
            }
            self.left -= 1;
            // Lateness below a tick comes from the tick and must not delay the next word.
            self.since = if now < due + TICK_NS { due } else { now };
        }
        Some(now_ns())
    }
}

impl Model for Speak {
    fn execute(&self, _instance: u32, batch: &mut Batch<'_>, control: &RunControl) -> Marks {
        let inputs_ready = now_ns();
        for entry in batch.requests.iter_mut() {
            let words = detach(entry).and_then(|()| self.words(entry));
            let Some(responder) = entry.responder.take() else {
                let pause = |words: u32| Duration::from_nanos(self.interval_ns * u64::from(words));
                entry.result = Some(words.and_then(|words| match delay::wait(pause(words), control) {
                    true => Self::response(entry, &self.signature, words as usize),
                    false => Err(Error::cancelled("the request was cancelled while its model ran")),
                }));
                continue;
            };
            match words {
                Err(error) => responder.finish(Some(Err(error))),
                Ok(left) => {
                    let task = delay::new_id();
                    responder.on_cancel(move || delay::expedite(task));
                    let (entry, signature) = (std::mem::take(entry), self.signature.clone());
                    let (responder, interval_ns, since) = (Some(responder), self.interval_ns, now_ns());
                    delay::begin(task, Box::new(Speaking { responder, entry, signature, left, interval_ns, since }));
                }
            }
        }
        let now = now_ns();
        Marks { inputs_ready, inference_end: now, outputs_ready: now }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Tensor, config, refused};
    use tensor::DataType::{Bytes, Int32};

    #[test]
    fn a_model_has_texts_and_a_short_interval() {
        let (inputs, outputs): (&[Tensor], &[Tensor]) =
            (&[("text_input", Bytes, &[1]), ("max_tokens", Int32, &[1])], &[("text_output", Bytes, &[1])]);
        assert!(crate::testing::load(&SPEAK, &config(inputs, outputs, &[])).is_ok());
        let other: &[Tensor] = &[("OUT", Bytes, &[1])];
        let wrong = "speak backend expects the input text_input and the output text_output, both TYPE_STRING";
        refused(&SPEAK, &config(inputs, other, &[]), wrong);
        let late = config(inputs, outputs, &[("interval_ms", "60001")]);
        refused(&SPEAK, &late, "interval_ms is '60001': expected a number from 0 to 60000");
    }
}
