//! Returns the bytes of `INPUT<x>` as `OUTPUT<x>` (backends-native.md 11.1).
//!
//! The delay of an execution ends early when all requests of its batch are cancelled.

use crate::TestBackend;
use crate::activities::Activities;
use crate::config::{self, Delays, suffix};
use crate::delay;
use backend::gather::{check_regions, detach, input_of, rows_of, stage_strings};
use backend::{Batch, BatchEntry, Capabilities, Marks, Model, Outcome, RunControl, now_ns, scatter, shape};
use protocol::pb::inference::ModelConfig;
use protocol::{InputSpec, Parameter, Signature};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tensor::{Code, Data, Error, Name, Result, Shape, ShapeDisplay, element_count};

/// Backend `identity`.
pub const IDENTITY: TestBackend = TestBackend { name: "identity", load };

/// Maximum bytes generated for an omitted optional input, whose shape comes from the configuration.
const MADE_UP_BYTES_MAX: usize = 64 << 20;

#[expect(clippy::disallowed_methods, reason = "stands for a model that takes long to load")]
fn load(config: &ModelConfig, signature: Arc<Signature>) -> Result<Arc<dyn Model>> {
    config::check(config)?;
    let delays = config::delays(config)?;
    let activities = Activities::read(config)?;
    // Loading has a thread of its own; this simulates a model that takes long to load.
    std::thread::sleep(delays.creation);
    let source = |name: &Name| {
        let index = suffix(name, "OUTPUT")?;
        signature
            .inputs
            .iter()
            .position(|i| suffix(&i.name, "INPUT") == Some(index))
            .and_then(|i| u16::try_from(i).ok())
    };
    let sources = signature.outputs.iter().map(|o| source(&o.name)).collect();
    Ok(Arc::new(Identity { signature, delays, activities, sources, input_bytes: AtomicU64::new(0) }))
}

struct Identity {
    signature: Arc<Signature>,
    delays: Delays,
    activities: Option<Activities>,
    /// Input of each output.
    sources: Vec<Option<u16>>,
    input_bytes: AtomicU64,
}

impl Identity {
    fn answer(&self, entry: &mut BatchEntry) -> Result<Outcome> {
        detach(entry)?;
        stage_strings(entry, &self.signature)?;
        let entry = &*entry;
        let mut outcome = Outcome { parameters: parameters(), ..Outcome::default() };
        for &(index, slot) in &entry.checked.outputs {
            let at = usize::from(index);
            let (Some(output), Some(source)) = (self.signature.outputs.get(at), self.sources.get(at)) else {
                return Err(Error::internal("an output has no input"));
            };
            // The output of a state, which no client requests.
            let Some(source) = source else { continue };
            let Some(spec) = self.signature.inputs.get(usize::from(*source)) else {
                return Err(Error::internal("an output has no input"));
            };
            let batching = self.signature.max_batch_size > 0;
            let (seen, data) = match input_of(entry, *source) {
                Some(input) => {
                    // Counted for each requested output, as in Triton, whose tests compare the sum.
                    self.input_bytes.fetch_add(input.data.len() as u64, Ordering::Relaxed);
                    (shape::to_model(&spec.dims, spec.reshape.as_ref(), &input.shape, batching), input.data.clone())
                }
                None => missing(spec, batching.then(|| rows_of(entry)))?,
            };
            let shape = shape::to_client(&output.dims, output.reshape.as_ref(), &seen, batching).ok_or_else(|| {
                Error::internal(format!("the shape of output '{}' does not fit its reshape", output.name))
            })?;
            outcome.outputs.push(scatter::output(entry, output, (index, slot), shape, data)?);
        }
        check_regions(entry)?;
        Ok(outcome)
    }
}

/// Zeros for an omitted optional input.
fn missing(spec: &InputSpec, rows: Option<u64>) -> Result<(Shape, Data)> {
    if !spec.optional {
        return Err(Error::new(Code::Unsupported, format!("failed to get input '{}'", spec.name)));
    }
    // Triton tries to allocate -1 bytes, as strings have no size; clients see that in the error.
    let size = spec
        .datatype
        .byte_size()
        .ok_or_else(|| Error::internal(format!("failed to reserve {} bytes in output tensor buffer", u64::MAX)))?;
    let dims = spec.reshape.as_ref().unwrap_or(&spec.dims).iter().map(|&d| if d < 0 { 1 } else { d });
    let shape: Shape = rows.map(|r| r as i64).into_iter().chain(dims).collect();
    let len = element_count(&shape).and_then(|n| usize::try_from(n).ok()).and_then(|n| n.checked_mul(size));
    let len = len.filter(|&n| n <= MADE_UP_BYTES_MAX).ok_or_else(|| {
        Error::internal(format!(
            "input '{}' of shape {} is too large to be made up: at most {MADE_UP_BYTES_MAX} bytes are supported",
            spec.name,
            ShapeDisplay(&shape)
        ))
    })?;
    let mut zeros = memory::SlabPool::global().get(len)?;
    zeros.fill(0);
    Ok((shape, Data::Bytes(zeros.freeze())))
}

/// Parameters of every response, one of each type.
fn parameters() -> Vec<(Name, Parameter)> {
    vec![
        (Name::from_static("param0"), Parameter::String(Name::from_static("an example string parameter"))),
        (Name::from_static("param1"), Parameter::Int(42)),
        (Name::from_static("param2"), Parameter::Bool(false)),
        (Name::from_static("param3"), Parameter::Double(123.123)),
    ]
}

impl Model for Identity {
    fn execute(&self, instance: u32, batch: &mut Batch<'_>, control: &RunControl) -> Marks {
        let inputs_ready = now_ns();
        let wanted = delay::wait(self.delays.of_instance(instance), control)
            && self.activities.is_none_or(|activities| activities.report(batch.requests, control));
        let inference_end = now_ns();
        if !wanted {
            scatter::fail_all(batch.requests, &Error::cancelled("the request was cancelled while its model ran"));
        }
        for entry in batch.requests.iter_mut().filter(|e| e.result.is_none()) {
            entry.result = Some(self.answer(entry));
        }
        Marks { inputs_ready, inference_end, outputs_ready: now_ns() }
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            batch_size_without_batching: Some(0),
            instances_are_permits: true,
            // A delay uses no CPU time but occupies the thread.
            cost_may_depend_on_data: !self.delays.execute.is_zero() || self.activities.is_some(),
            ..Capabilities::default()
        }
    }

    fn metrics(&self) -> Vec<(&'static str, &'static str, f64)> {
        let help = "Cumulative input byte size of all requests received by the model";
        vec![("input_byte_size_counter", help, self.input_bytes.load(Ordering::Relaxed) as f64)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use protocol::pb::inference::{ModelConfig, ModelInput, ModelOutput, ModelParameter};
    use protocol::{Checked, InferRequest, InputTensor, OutputSpec};
    use std::time::{Duration, Instant};
    use tensor::DataType;

    const PAIRS: [(DataType, &[i64], bool); 3] =
        [(DataType::Int32, &[-1], false), (DataType::Fp32, &[2], true), (DataType::Bytes, &[1], true)];

    fn model(max_batch_size: u32, delay_ms: u32) -> Arc<dyn Model> {
        let mut config = ModelConfig::default();
        let mut signature = Signature { max_batch_size, ..Signature::default() };
        for (i, (datatype, dims, optional)) in PAIRS.into_iter().enumerate() {
            let (input, output) = (format!("INPUT{i}"), format!("OUTPUT{i}"));
            config.input.push(ModelInput {
                name: input.clone(),
                data_type: datatype as i32,
                dims: dims.to_vec(),
                ..Default::default()
            });
            config.output.push(ModelOutput {
                name: output.clone(),
                data_type: datatype as i32,
                dims: dims.to_vec(),
                ..Default::default()
            });
            let dims = Shape::from_slice(dims);
            signature.inputs.push(InputSpec {
                name: input.into(),
                datatype,
                dims: dims.clone(),
                reshape: None,
                optional,
                allow_ragged_batch: false,
            });
            signature.outputs.push(OutputSpec {
                name: output.into(),
                datatype,
                dims,
                reshape: None,
                labels: Default::default(),
            });
        }
        config.parameters.insert("execute_delay_ms".into(), ModelParameter { string_value: delay_ms.to_string() });
        load(&config, Arc::new(signature)).expect("a good configuration")
    }

    /// A request with inputs (index, shape, bytes) and requested outputs.
    fn entry(inputs: &[(u16, &[i64], &[u8])], outputs: &[u16]) -> BatchEntry {
        let mut request = InferRequest::default();
        let mut checked = Checked { outputs: outputs.iter().map(|&o| (o, None)).collect(), ..Checked::default() };
        for (index, shape, data) in inputs {
            request.inputs.push(InputTensor {
                name: format!("INPUT{index}").into(),
                datatype: Some(PAIRS[usize::from(*index)].0),
                shape: Shape::from_slice(shape),
                data: Data::Bytes(bytes::Bytes::copy_from_slice(data)),
            });
            checked.inputs.push(*index);
        }
        BatchEntry::new(request.into(), checked)
    }

    fn run(model: &dyn Model, entries: Vec<BatchEntry>) -> Vec<Result<Outcome>> {
        let mut entries = entries;
        model.execute(0, &mut Batch::new(&mut entries), &RunControl::new(1));
        entries.into_iter().map(|e| e.result.expect("a result")).collect()
    }

    // B-BI-01
    #[test]
    fn outputs_are_the_inputs_with_triton_s_parameters() {
        let m = model(0, 0);
        let raw = [1, 0, 0, 0, b'x'];
        let all = run(&*m, vec![entry(&[(0, &[2], &[1; 8]), (1, &[2], &[2; 8]), (2, &[1], &raw)], &[0, 1, 2])]);
        let outcome = all[0].as_ref().expect("succeeds");
        assert_eq!(outcome.parameters, parameters());
        let seen: Vec<_> = outcome.outputs.iter().map(|o| (&*o.name, o.data.to_vec().expect("in memory"))).collect();
        assert_eq!(seen, [("OUTPUT0", vec![1; 8]), ("OUTPUT1", vec![2; 8]), ("OUTPUT2", raw.to_vec())]);
        assert_eq!(m.metrics()[0].2, 21.0);
    }

    // B-BI-01
    #[test]
    fn an_omitted_optional_input_is_zeros_of_the_configured_shape() {
        let m = model(0, 0);
        let r = run(&*m, vec![entry(&[(0, &[2], &[1; 8])], &[1])]);
        let output = &r[0].as_ref().expect("succeeds").outputs[0];
        assert_eq!((&output.shape[..], output.data.to_vec().expect("in memory")), (&[2i64][..], vec![0u8; 8]));
        assert_eq!(m.metrics()[0].2, 0.0, "only inputs that are answered count");
        let batched = run(
            &*model(4, 0),
            vec![{
                let mut e = entry(&[(0, &[3, 1], &[1; 12])], &[1]);
                e.checked.rows = 3;
                e
            }],
        );
        assert_eq!(batched[0].as_ref().expect("succeeds").outputs[0].shape[..], [3, 2]);
    }

    // B-BI-01
    #[test]
    fn omitted_inputs_that_cannot_be_generated_fail_with_triton_s_texts() {
        let r =
            run(&*model(0, 0), vec![entry(&[(0, &[1], &[1; 4])], &[0, 1, 2]), entry(&[(1, &[2], &[1; 8])], &[0, 1])]);
        let text = "failed to reserve 18446744073709551615 bytes in output tensor buffer";
        assert_eq!(r[0].as_ref().err(), Some(&Error::internal(text)));
        assert_eq!(r[1].as_ref().err(), Some(&Error::new(Code::Unsupported, "failed to get input 'INPUT0'")));
    }

    // B-BI-01
    #[test]
    fn inputs_that_outputs_overwrite_are_read_first() {
        let key = format!("nereid_identity_{}", std::process::id());
        let file = format!("/dev/shm/{key}");
        std::fs::write(&file, [[1u8; 8], [2; 8], [3; 8]].concat()).expect("/dev/shm is writable");
        let regions = memory::RegionRegistry::default();
        // Two mappings of one object, so that addresses do not show the overlap.
        for name in ["in", "out"] {
            regions.register(name, &key, 0, 24).expect("fits");
        }
        let mut e = entry(&[(0, &[2], &[]), (1, &[2], &[])], &[0, 1]);
        let mut check = |inputs: [u64; 2], outputs: [u64; 2], expected: [u8; 24]| {
            for (i, (from, to)) in inputs.into_iter().zip(outputs).enumerate() {
                e.request.inputs[i].data = Data::Region(regions.resolve("in", from, 8).expect("inside"));
                let region = Some(regions.resolve("out", to, 8).expect("inside"));
                let name = format!("OUTPUT{i}").into();
                e.request.outputs.push(protocol::RequestedOutput { name, form: Default::default(), region });
                e.checked.outputs[i].1 = Some(i as u16);
            }
            let result = run(&*model(0, 0), vec![std::mem::take(&mut e)]);
            assert!(result[0].is_ok());
            assert_eq!(std::fs::read(&file).expect("there"), expected);
            e = entry(&[(0, &[2], &[]), (1, &[2], &[])], &[0, 1]);
        };
        let bytes = |a: [u8; 8], b: [u8; 8], c: [u8; 8]| -> [u8; 24] { [a, b, c].concat().try_into().expect("24") };
        check([0, 8], [8, 0], bytes([2; 8], [1; 8], [3; 8])); // exchanged
        check([8, 16], [16, 0], bytes([3; 8], [1; 8], [1; 8]));
        check([0, 8], [4, 12], [3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1]);
        std::fs::remove_file(file).expect("there");
    }

    // B-BI-01
    #[test]
    fn a_cancelled_batch_ends_its_delay_early() {
        let m = model(0, 60_000);
        let control = Arc::new(RunControl::new(1));
        let canceller = Arc::clone(&control);
        let start = Instant::now();
        let thread = std::thread::spawn(move || canceller.cancel_one());
        let mut entries = vec![entry(&[(0, &[1], &[1; 4])], &[0])];
        m.execute(0, &mut Batch::new(&mut entries), &control);
        thread.join().expect("canceller");
        assert!(start.elapsed() < Duration::from_secs(30));
        assert_eq!(entries[0].result.as_ref().and_then(|r| r.as_ref().err()).map(Error::code), Some(Code::Cancelled));
    }

    // B-BI-01
    #[test]
    fn an_execution_takes_at_least_its_delay() {
        let start = Instant::now();
        let r = run(&*model(0, 30), vec![entry(&[(0, &[1], &[1; 4])], &[0])]);
        assert!(r[0].is_ok() && start.elapsed() >= Duration::from_millis(30));
    }
}
