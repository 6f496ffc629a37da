//! Implicit state (S-23, S-24): tensors that a model returns for the next request of the same sequence. Kept by slot.
//!
//! A state changes only if its request succeeded, and has the shape that the model returned, so it may grow. The next
//! sequence of a slot begins with START, which resets the state even if that request fails. Each START begins another
//! life of the slot's state: responses of a former life, perhaps much later, do not change it.
//!
//! A row takes its state when it is handed out, under the lock of the version, before the slot has another sequence.

use super::row::{Life, Row, StateValue};
use crate::data_file::{self, Want};
use crate::limits::{STATE_BYTES_MAX, STATE_UNCHARGED_BYTES_MAX};
use backend::{copy, gather};
use memory::Budget;
use memory::budget::{Kind, SMALL_BYTES_MAX};
use parking_lot::Mutex;
use protocol::pb::inference::ModelSequenceBatching;
use protocol::pb::inference::model_sequence_batching::initial_state::StateData;
use protocol::pb::inference::model_sequence_batching::{InitialState, State as Given};
use protocol::{InputSpec, InputTensor, OutputSpec, OutputTensor, Signature};
use scheduler::sequence::SlotId;
use std::collections::{HashMap, HashSet};
use std::path::Path;
use tensor::strings::Strings;
use tensor::{Base, Data, DataType, Error, Fault, Name, Result, Shape, element_count};

pub(crate) struct States {
    specs: Vec<Spec>,
    kept: Mutex<Kept>,
}

#[derive(Default)]
struct Kept {
    slots: HashMap<SlotId, Life>,
    lives: u64,
}

struct Spec {
    input: Name,
    output: Name,
    datatype: DataType,
    dims: Shape,
    /// Index of the output in the backend's signature.
    index: u16,
    fresh: Result<StateValue>,
}

impl States {
    /// Reads the initial states of a checked configuration.
    ///
    /// # Errors
    /// A state is too large, or its file cannot be read or is too short.
    pub(crate) fn of(batching: &ModelSequenceBatching, signature: &Signature, model_directory: &Path) -> Result<Self> {
        let mut specs: Vec<Spec> = Vec::new();
        let mut hidden = 0;
        let mut outputs = HashSet::new();
        for given in &batching.state {
            // Triton loads such a model, too, because it may never use the state.
            let Some(datatype) = DataType::from_number(given.data_type) else {
                log::warn!(
                    "state '{}' of model '{}' does not specify 'data_type' and is ignored",
                    given.input_name,
                    signature.model
                );
                continue;
            };
            let output = Name::from(given.output_name.as_str());
            // Triton ignores the second one with a warning.
            if specs.iter().any(|s| s.input == given.input_name.as_str()) || !outputs.insert(output.clone()) {
                log::warn!("a second state '{}' of model '{}' is ignored", given.input_name, signature.model);
                continue;
            }
            let index = signature.output_index(&output).unwrap_or_else(|| {
                hidden += 1;
                signature.outputs.len() + hidden - 1
            });
            let fresh = fresh(given, datatype, signature.batches(), model_directory);
            specs.push(Spec {
                input: given.input_name.as_str().into(),
                output,
                datatype,
                dims: Shape::from_slice(&given.dims),
                index: u16::try_from(index).unwrap_or(u16::MAX),
                // Strings that do not fit fail every START instead, as in Triton.
                fresh: match fresh {
                    Err(e) if datatype != DataType::Bytes => return Err(e),
                    other => other,
                },
            });
        }
        Ok(Self { specs, kept: Mutex::default() })
    }

    pub(crate) fn input_specs(&self) -> impl Iterator<Item = InputSpec> {
        self.specs.iter().map(|s| InputSpec {
            name: s.input.clone(),
            datatype: s.datatype,
            dims: s.dims.clone(),
            reshape: None,
            optional: false,
            allow_ragged_batch: false,
        })
    }

    /// Output specs for the backend that clients do not see, behind those of the configuration.
    pub(crate) fn hidden_specs(&self, signature: &Signature) -> impl Iterator<Item = OutputSpec> {
        let configured = signature.outputs.len();
        self.specs.iter().filter(move |s| usize::from(s.index) >= configured).map(|s| OutputSpec {
            name: s.output.clone(),
            datatype: s.datatype,
            dims: s.dims.clone(),
            reshape: None,
            labels: Default::default(),
        })
    }

    /// Indices of the outputs that are states.
    pub(crate) fn outputs(&self) -> impl Iterator<Item = u16> {
        self.specs.iter().map(|s| s.index)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.specs.is_empty()
    }

    /// The state from which a request of the slot continues, when it is handed out.
    pub(super) fn begin(&self, slot: SlotId, start: bool) -> Life {
        if self.is_empty() {
            return Life::default();
        }
        let mut kept = self.kept.lock();
        let Kept { slots, lives } = &mut *kept;
        // Dropped, not hidden: after a failed START, the next request must not find another client's state.
        if start {
            slots.remove(&slot);
        }
        let life = slots.entry(slot).or_insert_with(|| {
            *lives += 1;
            Life { number: *lives, values: None }
        });
        life.clone()
    }

    /// Drops the states of slots whose sequences are over.
    pub(crate) fn forget(&self, slots: &[SlotId]) {
        let mut kept = self.kept.lock();
        slots.iter().for_each(|slot| drop(kept.slots.remove(slot)));
    }

    /// The states of a row, in the order of `input_specs`. A null row's state is not kept.
    ///
    /// # Errors
    /// The initial state does not fit.
    pub(crate) fn tensors(&self, row: &Row) -> Result<Vec<InputTensor>> {
        let tensor = |(i, spec): (usize, &Spec)| {
            let value = match row.life.values.as_ref().and_then(|values| values.get(i)) {
                Some(value) => value.clone(),
                None => spec.fresh.clone()?,
            };
            let StateValue { shape, data } = value;
            Ok(InputTensor { name: spec.input.clone(), datatype: Some(spec.datatype), shape, data })
        };
        self.specs.iter().enumerate().map(tensor).collect()
    }

    /// Keeps the states in the outputs of a successful row.
    ///
    /// # Errors
    /// RESOURCE_EXHAUSTED if a state is too large or there is no memory for it; then all states stay.
    pub(crate) fn update<'o>(&self, row: &Row, outputs: impl Iterator<Item = &'o OutputTensor> + Clone) -> Result<()> {
        let Some(slot) = row.slot.filter(|_| !self.is_empty()) else { return Ok(()) };
        let value = |spec: &Spec| {
            let output = outputs.clone().find(|o| o.index == spec.index)?;
            Some(spec.copied(&output.data).map(|data| StateValue { shape: output.shape.clone(), data }))
        };
        let values: Option<Result<Vec<StateValue>>> = self.specs.iter().map(value).collect();
        // If the backend leaves out a state, all stay.
        let Some(values) = values.transpose()? else { return Ok(()) };
        // Dropping the old values and copying the new ones happens without the lock, because either may be large.
        let mut kept = self.kept.lock();
        let life = kept.slots.get_mut(&slot).filter(|life| life.number == row.life.number);
        let _replaced = life.and_then(|life| life.values.replace(values));
        drop(kept);
        Ok(())
    }

    /// Drops the state after the last request of a sequence, successful or not.
    pub(crate) fn end(&self, row: &Row) {
        let Some(slot) = row.slot.filter(|_| !self.is_empty()) else { return };
        let mut kept = self.kept.lock();
        let is_its = kept.slots.get(&slot).is_some_and(|life| life.number == row.life.number);
        let _gone = if is_its { kept.slots.remove(&slot) } else { None };
        drop(kept);
    }
}

impl Spec {
    /// A copy of a state, because the response may be a part of a large batch, or in memory that the client can write.
    /// The model decides its size, so it is limited, and charged to the memory budget unless very small.
    fn copied(&self, data: &Data) -> Result<Data> {
        if data.len() as u64 > STATE_BYTES_MAX {
            let (output, bytes) = (&self.output, data.len());
            let text = format!("state '{output}' has grown to {bytes} bytes: at most {STATE_BYTES_MAX} are supported");
            return Err(Error::exhausted(text).by(Fault::Model).retry(false));
        }
        if let Some(there) = on_its_device(data) {
            return Ok(there);
        }
        if data.len() <= STATE_UNCHARGED_BYTES_MAX {
            return Ok(Data::Bytes(data.to_vec()?.into()));
        }
        if data.len() <= SMALL_BYTES_MAX {
            let account = Budget::global().common();
            // Not from the reserve for small buffers: requests use it briefly, but states as long as they live.
            let charged = account.charge(Kind::Batch, false, data.len());
            let charge = charged.inspect_err(|_| account.count_refusal())?;
            return Ok(Data::Bytes(charge.hold(data.to_vec()?.into())));
        }
        let (mut slab, charge) = gather::batch_slab(data.len())?;
        data.copy_to(0, &mut slab)?;
        Ok(Data::Bytes(gather::frozen(slab, charge)))
    }
}

/// Keeps a state on its device: own memory as it is, unless it is part of a larger block; otherwise a copy on that
/// device. `None` if it is in host memory, or the device has no room.
fn on_its_device(data: &Data) -> Option<Data> {
    let Data::Region(region) = data else { return None };
    let Base::Device(memory) = region.base() else { return None };
    if !region.is_shared() && region.kept_len() / 2 <= region.len() {
        return Some(data.clone());
    }
    copy::to_device(data, memory.device()).ok().map(Data::Region)
}

/// The state at the start of a sequence: variable dimensions are 1, and without an initial state all is zero.
fn fresh(given: &Given, datatype: DataType, has_rows: bool, model_directory: &Path) -> Result<StateValue> {
    let dims = given.dims.iter().map(|&d| if d < 0 { 1 } else { d });
    let shape: Shape = has_rows.then_some(1).into_iter().chain(dims).collect();
    let name = &given.input_name;
    // An empty string has four bytes.
    let size = datatype.byte_size().unwrap_or(4) as u64;
    let bytes = element_count(&shape).and_then(|n| u64::try_from(n).ok()?.checked_mul(size));
    let Some(bytes) = bytes.filter(|&n| n <= STATE_BYTES_MAX) else {
        return Err(Error::invalid(format!(
            "state '{name}' has {} elements of {}: at most {STATE_BYTES_MAX} bytes are supported",
            tensor::ShapeDisplay(&shape),
            datatype.config_name()
        )));
    };
    let bytes = bytes as usize;
    let file = given.initial_state.first().and_then(|initial: &InitialState| match &initial.state_data {
        Some(StateData::DataFile(file)) => Some(file),
        _ => None,
    });
    let data = match file {
        None => {
            let mut zeros = Vec::new();
            data_file::reserve(&mut zeros, bytes, || format!("state '{name}'"))?;
            zeros.resize(bytes, 0);
            zeros
        }
        Some(file) => read(name, file, datatype, &shape, bytes, model_directory)?,
    };
    Ok(StateValue { shape, data: Data::Bytes(data.into()) })
}

fn read(name: &str, file: &str, datatype: DataType, shape: &[i64], bytes: usize, directory: &Path) -> Result<Vec<u8>> {
    let want = match datatype {
        DataType::Bytes => Want::All { bytes_max: STATE_BYTES_MAX },
        _ => Want::AtMost(bytes),
    };
    let data = data_file::read(directory, "initial_state", file, want)?;
    if datatype != DataType::Bytes {
        if data.len() < bytes {
            let path = data_file::path(directory, "initial_state", file);
            // Triton's text, with its missing blank.
            return Err(Error::invalid(format!(
                "initial_state setting expects {bytes} bytes, but the data provided from {}only has {} bytes.",
                path.display(),
                data.len()
            )));
        }
        return Ok(data);
    }
    let expected = element_count(shape).unwrap_or(0);
    let found = Strings::new(&data).take_while(std::result::Result::is_ok).count() as i64;
    if found != expected {
        return Err(Error::invalid(format!(
            "unexpected number of string elements {found} for inference input '{name}', expecting {expected}"
        )));
    }
    Ok(data)
}

#[cfg(test)]
mod tests {
    use super::*;
    use scheduler::sequence::SequenceId;

    const INT32: i32 = DataType::Int32 as i32;

    fn state(data_type: i32, dims: &[i64], data: Option<StateData>) -> Given {
        let initial = data.map(|d| InitialState { data_type, dims: vec![], name: "s".into(), state_data: Some(d) });
        Given {
            input_name: "IN".into(),
            output_name: "OUT".into(),
            data_type,
            dims: dims.to_vec(),
            initial_state: initial.into_iter().collect(),
            ..Default::default()
        }
    }

    fn states(all: Vec<Given>, batch: u32, directory: &Path) -> Result<States> {
        let signature = Signature { model: "m".into(), max_batch_size: batch, ..Signature::default() };
        States::of(&ModelSequenceBatching { state: all, ..Default::default() }, &signature, directory)
    }

    /// A row as the scheduler hands it out.
    fn row(s: &States, slot: u32, start: bool, end: bool) -> Row {
        let slot = SlotId { instance: 0, slot };
        let life = s.begin(slot, start);
        Row { slot: Some(slot), rows: 1, id: Some(SequenceId::Number(1)), start, end, origin: None, life }
    }

    fn output(index: u16, values: &[u8]) -> OutputTensor {
        OutputTensor {
            name: "OUT".into(),
            index,
            datatype: DataType::Uint8,
            shape: Shape::from_slice(&[values.len() as i64]),
            data: Data::Bytes(values.to_vec().into()),
            form: Default::default(),
        }
    }

    fn seen(states: &States, row: &Row) -> Vec<(Vec<i64>, Vec<u8>)> {
        let tensors = states.tensors(row).expect("fits");
        tensors.into_iter().map(|t| (t.shape.to_vec(), t.data.to_vec().expect("in memory"))).collect()
    }

    /// `<root>/initial_state` contains `init` (three INT32: 5, 6, 7) and `text` ("abc", "").
    struct Root(std::path::PathBuf);

    impl Root {
        fn new(name: &str) -> Self {
            let root = std::env::temp_dir().join(format!("nereid_states_{}_{name}", std::process::id()));
            std::fs::create_dir_all(root.join("initial_state")).unwrap();
            let init: Vec<u8> = [5i32, 6, 7].iter().flat_map(|n| n.to_le_bytes()).collect();
            std::fs::write(root.join("initial_state/init"), init).unwrap();
            std::fs::write(root.join("initial_state/text"), b"\x03\0\0\0abc\0\0\0\0").unwrap();
            std::fs::write(root.join("secret"), b"\x01\0\0\0").unwrap();
            Self(root)
        }
    }

    impl Drop for Root {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn s23_a_sequence_starts_fresh_and_continues_with_the_returned_state() {
        let s = states(vec![state(INT32, &[2], None)], 4, Path::new(".")).expect("valid");
        let fresh = vec![(vec![1, 2], vec![0; 8])];
        let first = row(&s, 0, true, false);
        assert_eq!(seen(&s, &first), fresh);
        s.update(&first, [output(0, &[1; 8])].iter()).expect("memory");
        assert_eq!(seen(&s, &row(&s, 0, false, false)), [(vec![8], vec![1; 8])], "shape and contents of the output");
        assert_eq!(seen(&s, &row(&s, 1, true, false)), fresh, "another slot");
        // A failed request updates nothing; nor does a null row, and it sees nothing.
        assert_eq!(seen(&s, &row(&s, 0, false, false)), [(vec![8], vec![1; 8])]);
        let null = Row { slot: None, id: None, life: Life::default(), ..row(&s, 0, false, false) };
        s.update(&null, [output(0, &[9; 8])].iter()).expect("memory");
        assert_eq!(seen(&s, &null), fresh);
        let last = row(&s, 0, false, true);
        assert_eq!(seen(&s, &last), [(vec![8], vec![1; 8])]);
        // The end frees the memory, also after a failure; a START does not see the former state even without one.
        s.end(&last);
        s.end(&row(&s, 1, false, true));
        assert!(s.kept.lock().slots.is_empty());
        s.update(&row(&s, 0, false, false), [output(0, &[3; 8])].iter()).expect("memory");
        assert_eq!(seen(&s, &row(&s, 0, true, false)), fresh);
        // That START failed, so nothing was updated, and the sequence continues.
        assert_eq!(seen(&s, &row(&s, 0, false, false)), fresh, "not the state of the former sequence");
    }

    #[test]
    fn s23_late_responses_do_not_change_the_next_sequence_of_the_slot() {
        let s = states(vec![state(INT32, &[1], None)], 0, Path::new(".")).expect("valid");
        let fresh = vec![(vec![1], vec![0; 4])];
        let (late, ends_late) = (row(&s, 0, true, false), row(&s, 0, false, true));
        let next = row(&s, 0, true, false);
        s.update(&late, [output(0, &[1; 4])].iter()).expect("memory");
        assert_eq!(seen(&s, &row(&s, 0, false, false)), fresh);
        s.update(&next, [output(0, &[2; 4])].iter()).expect("memory");
        s.update(&late, [output(0, &[1; 4])].iter()).expect("memory");
        s.end(&ends_late);
        assert_eq!(seen(&s, &row(&s, 0, false, false)), [(vec![4], vec![2; 4])]);
        // A sequence that was forgotten while its request ran leaves nothing behind.
        let running = row(&s, 0, false, false);
        s.forget(&[running.slot.expect("a slot")]);
        s.update(&running, [output(0, &[4; 4])].iter()).expect("memory");
        assert!(s.kept.lock().slots.is_empty());
        assert_eq!(seen(&s, &running), [(vec![4], vec![2; 4])], "it runs to its end with what it had");
    }

    #[test]
    fn s24_a_growable_state_grows_to_its_limit_and_a_larger_one_is_rejected() {
        let growable = Given { use_growable_memory: true, ..state(DataType::Uint8 as i32, &[-1], None) };
        let s = states(vec![growable], 0, Path::new(".")).expect("with and without one buffer, as Triton on a CPU");
        s.update(&row(&s, 0, true, false), [output(0, &[7; 100_000])].iter()).expect("memory");
        s.update(&row(&s, 0, false, false), [output(0, &[8; 200_000])].iter()).expect("memory");
        assert_eq!(seen(&s, &row(&s, 0, false, false)), [(vec![200_000], vec![8; 200_000])]);
        // Address space that is never written.
        let large = OutputTensor { data: Data::Bytes(vec![0; STATE_BYTES_MAX as usize + 1].into()), ..output(0, &[]) };
        let error = s.update(&row(&s, 0, false, false), [large].iter()).expect_err("too large");
        assert_eq!(
            (error.code(), error.message()),
            (
                tensor::Code::ResourceExhausted,
                "state 'OUT' has grown to 268435457 bytes: at most 268435456 are supported"
            )
        );
        assert_eq!(seen(&s, &row(&s, 0, false, false)), [(vec![200_000], vec![8; 200_000])], "as it was");
    }

    #[test]
    fn s23_initial_states_come_from_zeros_or_files_and_variable_dimensions_are_1() {
        let root = Root::new("initial");
        let check = |given: Given, batch, expected: (&[i64], &[u8])| {
            let s = states(vec![given], batch, &root.0).expect("valid");
            assert_eq!(seen(&s, &row(&s, 0, true, false)), [(expected.0.to_vec(), expected.1.to_vec())]);
        };
        let file = |name: &str| Some(StateData::DataFile(name.into()));
        check(state(INT32, &[-1, 2], Some(StateData::ZeroData(true))), 0, (&[1, 2], &[0; 8]));
        check(state(INT32, &[], None), 2, (&[1], &[0; 4]));
        check(state(INT32, &[0], None), 0, (&[0], &[]));
        check(state(INT32, &[2], file("init")), 0, (&[2], &[5, 0, 0, 0, 6, 0, 0, 0]));
        // Golden st_file_long: numbers are cut.
        check(state(INT32, &[-1], file("init")), 2, (&[1, 1], &[5, 0, 0, 0]));
        let text = DataType::Bytes as i32;
        check(state(text, &[2], file("text")), 0, (&[2], b"\x03\0\0\0abc\0\0\0\0"));
        check(state(text, &[-1], None), 0, (&[1], &[0; 4]));
        // Golden st_str_file: it loads, and every START fails.
        let s = states(vec![state(text, &[-1], file("text"))], 0, &root.0).expect("loads");
        let error = s.tensors(&row(&s, 0, true, false)).expect_err("does not fit");
        assert_eq!(
            error,
            Error::invalid("unexpected number of string elements 2 for inference input 'IN', expecting 1")
        );
    }

    #[test]
    fn initial_states_that_cannot_be_read_or_are_too_large_fail_the_load() {
        let root = Root::new("bad");
        let refused = |given: Given, text: &str| {
            let error = states(vec![given], 0, &root.0).err().expect(text);
            assert!(error.message().contains(text), "{error:?}");
        };
        let file = |name: &str| Some(StateData::DataFile(name.into()));
        refused(
            state(INT32, &[4], file("init")),
            "initial_state setting expects 16 bytes, but the data provided from ",
        );
        refused(state(INT32, &[4], file("init")), "initial_state/initonly has 12 bytes.");
        refused(state(INT32, &[1], file("none")), "failed to open text file for read ");
        // Triton opens it.
        refused(state(INT32, &[1], file("../secret")), "must stay inside");
        refused(state(INT32, &[1 << 40], None), "at most 268435456 bytes are supported");
        refused(state(INT32, &[i64::MAX, i64::MAX], None), "at most 268435456 bytes are supported");
    }

    #[test]
    fn a_state_without_data_type_is_ignored() {
        let root = Root::new("untyped");
        let states = states(vec![state(0, &[1], None), state(INT32, &[1], None)], 0, &root.0).unwrap();
        assert_eq!(states.input_specs().map(|s| s.datatype).collect::<Vec<_>>(), [DataType::Int32]);
    }

    #[test]
    fn state_outputs_are_hidden_unless_configured_and_duplicates_are_ignored() {
        let spec = |name: &str| OutputSpec {
            name: name.into(),
            datatype: DataType::Int32,
            dims: Shape::new(),
            reshape: None,
            labels: Default::default(),
        };
        let signature = Signature { outputs: vec![spec("Y"), spec("B_OUT")], ..Signature::default() };
        let named = |input: &str, output: &str| Given {
            input_name: input.into(),
            output_name: output.into(),
            ..state(INT32, &[1], None)
        };
        let state =
            vec![named("A", "A_OUT"), named("B", "B_OUT"), named("A", "X"), named("C", "A_OUT"), named("D", "D_OUT")];
        let s = States::of(&ModelSequenceBatching { state, ..Default::default() }, &signature, Path::new(".")).unwrap();
        let names = |all: Vec<Name>| all.iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(names(s.input_specs().map(|i| i.name).collect()), ["A", "B", "D"]);
        assert_eq!(names(s.hidden_specs(&signature).map(|o| o.name).collect()), ["A_OUT", "D_OUT"]);
        assert_eq!(s.outputs().collect::<Vec<_>>(), [2, 1, 3]);
    }
}
