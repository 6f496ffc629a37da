//! Sequence models: the controls, states and null rows of their batches, and how these run.
//!
//! Controls and states are further inputs and outputs for the backend. Requests are checked without them, so clients
//! neither see nor send them. `scheduler::sequence` decides when requests run.

mod controls;
mod row;
mod run;
mod states;

pub(crate) use row::Row;

use backend::{BatchEntry, Outcome, scatter};
use controls::Controls;
use options::EngineOptions;
use protocol::check::IdPrefix;
use protocol::pb::inference::model_config::SchedulingChoice;
use protocol::pb::inference::model_sequence_batching::StrategyChoice;
use protocol::pb::inference::{ModelConfig, ModelSequenceBatching};
use protocol::{Checked, CorrelationId, InferRequest, InputSpec, InputTensor, Signature};
use scheduler::sequence::{Config, Head, SequenceId, SlotId, Strategy};
use states::States;
use std::path::Path;
use tensor::{Data, DataType, Error, Name, Result, element_count};

/// Everything that a version needs to run sequences.
pub(crate) struct Sequencing {
    controls: Controls,
    states: States,
    /// Number of inputs of the configuration.
    inputs: u16,
    /// Row i of a batch is slot i; those without a request are null.
    rows_are_slots: bool,
    pub(crate) schedule: Config,
    /// Delivers responses in the order of their requests.
    pub(crate) preserves_ordering: bool,
}

/// The scheduler configuration; unusable numbers are clamped.
fn schedule(batching: &ModelSequenceBatching, plain: &scheduler::Config, options: &EngineOptions) -> Config {
    let strategy = match &batching.strategy_choice {
        Some(StrategyChoice::Oldest(oldest)) => Strategy::Oldest {
            max_candidate_sequences: u32::try_from(oldest.max_candidate_sequences).unwrap_or(0),
            preferred: oldest.preferred_batch_size.iter().filter_map(|&n| u32::try_from(n).ok()).collect(),
            max_queue_delay_us: oldest.max_queue_delay_microseconds,
        },
        Some(StrategyChoice::Direct(direct)) => Strategy::Direct {
            max_queue_delay_us: direct.max_queue_delay_microseconds,
            minimum_slot_utilization: direct.minimum_slot_utilization,
        },
        None => Strategy::Direct { max_queue_delay_us: 0, minimum_slot_utilization: 0.0 },
    };
    Config {
        max_batch_size: plain.max_batch_size,
        instances: plain.instances,
        strategy,
        idle_us: batching.max_sequence_idle_microseconds,
        iterative: batching.iterative_sequence,
        sequences_max: options.sequence_limit,
        strict_delay: plain.strict_delay,
        delay_scheduler: plain.delay_scheduler,
        backlog_delay_scheduler: options.delays[1],
    }
}

impl Sequencing {
    /// Reads a configuration; `plain` is its scheduling apart from sequences. `None` if it has no sequences.
    ///
    /// # Errors
    /// An initial state is too large or cannot be read.
    pub(crate) fn of(
        config: &ModelConfig,
        signature: &Signature,
        plain: &scheduler::Config,
        options: &EngineOptions,
        model_directory: &Path,
    ) -> Result<Option<Self>> {
        let Some(SchedulingChoice::SequenceBatching(batching)) = &config.scheduling_choice else { return Ok(None) };
        let oldest = match &batching.strategy_choice {
            Some(StrategyChoice::Oldest(oldest)) => Some(oldest),
            _ => None,
        };
        Ok(Some(Self {
            controls: Controls::of(batching, signature.batches()),
            states: States::of(batching, signature, model_directory)?,
            inputs: u16::try_from(signature.inputs.len()).unwrap_or(u16::MAX),
            rows_are_slots: oldest.is_none(),
            schedule: schedule(batching, plain, options),
            preserves_ordering: oldest.is_some_and(|o| o.preserve_ordering),
        }))
    }

    pub(crate) fn seen_by_backend(&self, signature: &Signature) -> Signature {
        let mut seen = signature.clone();
        seen.inputs.extend(self.controls.specs().chain(self.states.input_specs()));
        seen.outputs.extend(self.states.hidden_specs(signature));
        seen
    }

    /// The signature for warmup samples, which may name controls and states.
    pub(crate) fn seen_by_warmup(&self, signature: &Signature) -> Signature {
        let mut seen = signature.clone();
        let added = self.controls.specs().chain(self.states.input_specs());
        seen.inputs.extend(added.map(|spec| InputSpec { optional: true, ..spec }));
        seen
    }

    /// Checks that the request's correlation id is of the kind of the model's control (protocol.md 2.9, row 22).
    ///
    /// # Errors
    /// INVALID_ARG if it is not.
    pub(crate) fn check(&self, request: &InferRequest, model: &str) -> Result<()> {
        let Some((name, found, wanted)) = self.controls.mismatch(&request.sequence.id) else { return Ok(()) };
        Err(Error::invalid(format!(
            "{}sequence batching control '{name}' data-type is '{}', but model '{model}' expects '{}'",
            IdPrefix(&request.id),
            found.name(),
            wanted.name()
        )))
    }

    /// Adds the inputs of its row to an entry, and requests the outputs that are states.
    ///
    /// # Errors
    /// The initial state does not fit.
    fn prepare(&self, entry: &mut BatchEntry, row: &Row) -> Result<()> {
        let mut given = self.take_given(entry);
        let tensors = self.controls.tensors(row).chain(self.states.tensors(row)?);
        for (index, tensor) in (self.inputs..).zip(tensors) {
            let own = given.iter().position(|(at, _)| *at == index);
            entry.request.inputs.push(own.map_or(tensor, |own| given.swap_remove(own).1));
            entry.checked.inputs.push(index);
        }
        for index in self.states.outputs() {
            if !entry.checked.outputs.iter().any(|(wanted, _)| *wanted == index) {
                entry.checked.outputs.push((index, Some(scatter::KEPT)));
            }
        }
        if self.schedule.iterative {
            // A request without an id is a sequence of its own, as which a model with controls sees it.
            let sequence = &mut entry.request.sequence;
            sequence.start |= row.start;
            if let Some(SequenceId::Internal(id)) = row.id {
                sequence.id = CorrelationId::Number(id);
            }
        }
        Ok(())
    }

    /// Takes the controls and states given by a warmup sample; clients cannot give any.
    fn take_given(&self, entry: &mut BatchEntry) -> Vec<(u16, InputTensor)> {
        let (inputs, indices) = (&mut entry.request.inputs, &mut entry.checked.inputs);
        if indices.iter().all(|&index| index < self.inputs) {
            return Vec::new();
        }
        let all = inputs.drain(..).zip(indices.drain(..)).collect::<Vec<_>>();
        let (given, own): (Vec<_>, Vec<_>) = all.into_iter().partition(|(_, index)| *index >= self.inputs);
        for (tensor, index) in own {
            inputs.push(tensor);
            indices.push(index);
        }
        given.into_iter().map(|(tensor, index)| (index, tensor)).collect()
    }

    /// Removes what `prepare` added, for a request that runs again. `wanted` are the outputs that the client requested.
    pub(crate) fn restore(&self, entry: &mut BatchEntry, wanted: &[u16]) {
        let configured = entry.checked.inputs.iter().position(|&index| index >= self.inputs);
        if let Some(configured) = configured {
            entry.request.inputs.truncate(configured);
            entry.checked.inputs.truncate(configured);
        }
        entry.checked.outputs.retain(|(index, _)| wanted.contains(index));
        (entry.result, entry.responder) = (None, None);
        // Flags belong to the first run only (B-PY-28).
        (entry.request.sequence.start, entry.request.sequence.end) = (false, false);
    }

    /// Keeps the states in a response, and removes outputs that the client did not request.
    ///
    /// # Errors
    /// RESOURCE_EXHAUSTED if there is no memory for the states.
    pub(crate) fn keep(&self, row: &Row, wanted: &[u16], id: &Name, outcome: &mut Outcome) -> Result<()> {
        // No request continues after the end of a sequence.
        if !row.end || self.schedule.iterative {
            self.states.update(row, outcome.outputs.iter()).map_err(|e| e.prefixed(IdPrefix(id)))?;
        }
        outcome.outputs.retain(|output| wanted.contains(&output.index));
        Ok(())
    }

    /// Keeps the states of a successful row. Without memory for them the row fails.
    fn conclude(&self, entry: &mut BatchEntry, row: &Row, wanted: &[u16]) {
        if let Some(Ok(outcome)) = &mut entry.result
            && let Err(e) = self.keep(row, wanted, &entry.request.id, outcome)
        {
            entry.result = Some(Err(e));
        }
        self.over(row);
    }

    /// Ends a request, and drops the states if it was the last of its sequence. An iterative sequence ends without END,
    /// but not while it has waiting requests: the scheduler reports it as forgotten.
    pub(crate) fn over(&self, row: &Row) {
        if row.end {
            self.states.end(row);
        }
    }

    /// Begins the rows of a batch, after the sequences of the `forgotten` slots ended.
    pub(crate) fn begin<'r>(&self, forgotten: &[SlotId], rows: impl Iterator<Item = &'r mut Row>) {
        if self.states.is_empty() {
            return;
        }
        self.states.forget(forgotten);
        for row in rows {
            if let Some(slot) = row.slot {
                row.life = self.states.begin(slot, row.start);
            }
        }
    }

    /// True if it has states, which have to be dropped with their sequences.
    pub(crate) fn has_states(&self) -> bool {
        !self.states.is_empty()
    }

    /// Null rows beside a request: shapes of its inputs, zeros, and no outputs but states.
    fn nulls(&self, beside: &BatchEntry) -> Nulls {
        let zeros = |input: &InputTensor| {
            // Lengths of empty strings are zero.
            let size = input.datatype.and_then(DataType::byte_size).unwrap_or(4);
            let elements = element_count(&input.shape).and_then(|n| usize::try_from(n).ok()).unwrap_or(0);
            // As large as the request, and shared by all null rows.
            let data = Data::Bytes(vec![0; elements.saturating_mul(size)].into());
            InputTensor { name: input.name.clone(), datatype: input.datatype, shape: input.shape.clone(), data }
        };
        Nulls { inputs: beside.request.inputs.iter().map(zeros).collect(), checked: beside.checked.clone() }
    }
}

/// Contents of null rows.
struct Nulls {
    inputs: Vec<InputTensor>,
    checked: Checked,
}

impl Nulls {
    fn entry(&self) -> BatchEntry {
        let input = |i: &InputTensor| InputTensor {
            name: i.name.clone(),
            datatype: i.datatype,
            shape: i.shape.clone(),
            data: i.data.clone(),
        };
        let request = InferRequest { inputs: self.inputs.iter().map(input).collect(), ..InferRequest::default() };
        let Checked { rows, inputs, .. } = self.checked.clone();
        BatchEntry::new(Box::new(request), Checked { rows, inputs, ..Checked::default() })
    }
}

/// The sequence parameters of a request, for the scheduler.
pub(crate) fn head(request: &InferRequest) -> Head {
    let id = match &request.sequence.id {
        CorrelationId::Number(n) => SequenceId::Number(*n),
        CorrelationId::String(text) => SequenceId::Text(text.clone()),
    };
    let (start, end) = (request.sequence.start, request.sequence.end);
    Head { id, start, end, timeout_us: request.timeout_us }
}
