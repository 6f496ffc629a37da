//! Control tensors (S-20), which give a model the position of each row in its sequence. The backend sees them as
//! inputs; clients neither see nor send them.

use super::row::Row;
use protocol::pb::inference::ModelSequenceBatching;
use protocol::pb::inference::model_sequence_batching::Control as Given;
use protocol::pb::inference::model_sequence_batching::control::Kind;
use protocol::{CorrelationId, InputSpec, InputTensor};
use scheduler::sequence::SequenceId;
use tensor::{Data, DataType, Name, Shape, strings};

/// The controls of a model, in the order of its configuration.
pub(crate) struct Controls {
    all: Vec<Control>,
    /// `[1]`, or `[1,1]` for models that batch.
    shape: Shape,
}

struct Control {
    name: Name,
    datatype: DataType,
    says: Says,
}

enum Says {
    Start([Data; 2]),
    End([Data; 2]),
    Ready([Data; 2]),
    Correlation,
}

impl Controls {
    /// The controls of a checked configuration; unusable entries are ignored.
    pub(crate) fn of(batching: &ModelSequenceBatching, has_rows: bool) -> Self {
        let mut all: Vec<Control> = Vec::new();
        for input in &batching.control_input {
            // A tensor has one meaning, although Triton accepts two in a configuration.
            let Some((datatype, says)) = input.control.iter().find_map(read) else { continue };
            all.push(Control { name: input.name.as_str().into(), datatype, says });
        }
        Self { all, shape: Shape::from_slice(if has_rows { &[1, 1] } else { &[1] }) }
    }

    pub(crate) fn specs(&self) -> impl Iterator<Item = InputSpec> {
        self.all.iter().map(|control| InputSpec {
            name: control.name.clone(),
            datatype: control.datatype,
            dims: Shape::from_slice(&[1]),
            reshape: None,
            optional: false,
            allow_ragged_batch: false,
        })
    }

    /// The tensors of one row, in the order of `specs`.
    pub(crate) fn tensors(&self, row: &Row) -> impl Iterator<Item = InputTensor> {
        self.all.iter().map(|control| InputTensor {
            name: control.name.clone(),
            datatype: Some(control.datatype),
            shape: self.shape.clone(),
            data: control.data(row),
        })
    }

    /// The tensor, its datatype and the request's, if the model takes correlation ids of the other kind.
    pub(crate) fn mismatch(&self, id: &CorrelationId) -> Option<(&Name, DataType, DataType)> {
        let control = self.all.iter().find(|c| matches!(c.says, Says::Correlation))?;
        let is_text = matches!(id, CorrelationId::String(_));
        let found = if is_text { DataType::Bytes } else { DataType::Uint64 };
        (is_text != (control.datatype == DataType::Bytes)).then_some((&control.name, found, control.datatype))
    }
}

impl Control {
    fn data(&self, row: &Row) -> Data {
        let of = |[no, yes]: &[Data; 2], is: bool| if is { yes.clone() } else { no.clone() };
        match &self.says {
            Says::Start(values) => of(values, row.start),
            Says::End(values) => of(values, row.end),
            Says::Ready(values) => of(values, row.id.is_some()),
            Says::Correlation => correlation(self.datatype, row.id.as_ref()),
        }
    }
}

/// The id as one element; 0 or "" for a null row. 32-bit types get the low bits.
fn correlation(datatype: DataType, id: Option<&SequenceId>) -> Data {
    let number = match id {
        Some(SequenceId::Number(n) | SequenceId::Internal(n)) => *n,
        Some(SequenceId::Text(_)) | None => 0,
    };
    let mut bytes = number.to_le_bytes().to_vec();
    match datatype {
        DataType::Bytes => {
            bytes.clear();
            let text = id.filter(|id| !matches!(id, SequenceId::Internal(_))).map(ToString::to_string);
            strings::push(&mut bytes, text.unwrap_or_default().as_bytes());
        }
        _ => bytes.truncate(datatype.byte_size().unwrap_or(8)),
    }
    Data::Bytes(bytes.into())
}

fn read(given: &Given) -> Option<(DataType, Says)> {
    if given.kind() == Kind::ControlSequenceCorrid {
        return Some((DataType::from_number(given.data_type)?, Says::Correlation));
    }
    let (datatype, values) = match (&given.int32_false_true[..], &given.fp32_false_true[..], &given.bool_false_true[..])
    {
        ([no, yes], [], []) => (DataType::Int32, [no.to_le_bytes().to_vec(), yes.to_le_bytes().to_vec()]),
        ([], [no, yes], []) => (DataType::Fp32, [no.to_le_bytes().to_vec(), yes.to_le_bytes().to_vec()]),
        ([], [], [no, yes]) => (DataType::Bool, [vec![u8::from(*no)], vec![u8::from(*yes)]]),
        _ => return None,
    };
    let values = values.map(|bytes| Data::Bytes(bytes.into()));
    Some(match given.kind() {
        Kind::ControlSequenceStart => (datatype, Says::Start(values)),
        Kind::ControlSequenceEnd => (datatype, Says::End(values)),
        Kind::ControlSequenceReady => (datatype, Says::Ready(values)),
        Kind::ControlSequenceCorrid => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use protocol::pb::inference::model_sequence_batching::ControlInput;

    fn controls(all: &[(&str, Kind, Given)], has_rows: bool) -> Controls {
        let input = |(name, kind, given): &(&str, Kind, Given)| ControlInput {
            name: (*name).into(),
            control: vec![Given { kind: *kind as i32, ..given.clone() }],
        };
        let control_input = all.iter().map(input).collect();
        Controls::of(&ModelSequenceBatching { control_input, ..Default::default() }, has_rows)
    }

    fn row(id: Option<SequenceId>, start: bool, end: bool) -> Row {
        Row { rows: 1, id, start, end, ..Row::default() }
    }

    fn bytes(controls: &Controls, row: &Row) -> Vec<Vec<u8>> {
        controls.tensors(row).map(|t| t.data.to_vec().expect("in memory")).collect()
    }

    #[test]
    fn s20_flags_select_entry_0_or_1_of_their_list() {
        let ints = |no, yes| Given { int32_false_true: vec![no, yes], ..Default::default() };
        let floats = Given { fp32_false_true: vec![-0.5, 1.25], ..Default::default() };
        let bools = Given { bool_false_true: vec![true, false], ..Default::default() };
        let all = controls(
            &[
                ("S", Kind::ControlSequenceStart, ints(-7, 9)),
                ("E", Kind::ControlSequenceEnd, floats),
                ("R", Kind::ControlSequenceReady, bools),
            ],
            true,
        );
        let types: Vec<_> = all.specs().map(|s| (s.name.to_string(), s.datatype, s.dims.to_vec())).collect();
        let expected = [("S", DataType::Int32), ("E", DataType::Fp32), ("R", DataType::Bool)];
        assert_eq!(types, expected.map(|(n, t)| (n.to_owned(), t, vec![1])));
        assert!(all.tensors(&row(None, false, false)).all(|t| t.shape[..] == [1, 1]));
        let some = || Some(SequenceId::Number(1));
        let le = |n: i32| n.to_le_bytes().to_vec();
        let fp = |n: f32| n.to_le_bytes().to_vec();
        // The table of 5.3; a swapped list swaps the values.
        assert_eq!(bytes(&all, &row(some(), true, false)), [le(9), fp(-0.5), vec![0]]);
        assert_eq!(bytes(&all, &row(some(), false, true)), [le(-7), fp(1.25), vec![0]]);
        assert_eq!(bytes(&all, &row(some(), true, true)), [le(9), fp(1.25), vec![0]]);
        assert_eq!(bytes(&all, &row(some(), false, false)), [le(-7), fp(-0.5), vec![0]]);
        assert_eq!(bytes(&all, &row(None, false, false)), [le(-7), fp(-0.5), vec![1]]);
    }

    #[test]
    fn s20_ids_of_32_bits_are_the_low_bits_and_strings_are_an_element() {
        let of = |datatype: DataType, id: Option<SequenceId>| {
            let given = Given { data_type: datatype as i32, ..Default::default() };
            let all = controls(&[("C", Kind::ControlSequenceCorrid, given)], false);
            let tensor = all.tensors(&row(id, false, false)).next().expect("one control");
            assert_eq!((&tensor.shape[..], tensor.datatype), (&[1][..], Some(datatype)));
            tensor.data.to_vec().expect("in memory")
        };
        let number = |n: u64| Some(SequenceId::Number(n));
        assert_eq!(of(DataType::Uint64, number(u64::MAX)), [255; 8]);
        assert_eq!(of(DataType::Int64, number(7)), 7u64.to_le_bytes());
        assert_eq!(of(DataType::Uint32, number(4_294_967_303)), 7u32.to_le_bytes());
        assert_eq!(of(DataType::Int32, number(0x8000_0001_ffff_ffff)), [255; 4]);
        assert_eq!(of(DataType::Uint32, Some(SequenceId::Internal(3))), 3u32.to_le_bytes());
        assert_eq!(of(DataType::Uint64, None), [0; 8]);
        assert_eq!(of(DataType::Bytes, Some(SequenceId::Text("é".into()))), [2, 0, 0, 0, 0xc3, 0xa9]);
        assert_eq!(of(DataType::Bytes, None), [0; 4]);
    }

    #[test]
    fn an_id_of_the_other_kind_than_the_control_is_detected() {
        let given = |t: DataType| Given { data_type: t as i32, ..Default::default() };
        let found = |datatype, id: CorrelationId| {
            let all = controls(&[("C", Kind::ControlSequenceCorrid, given(datatype))], false);
            all.mismatch(&id).map(|(name, found, wanted)| (name.to_string(), found, wanted))
        };
        let text = || CorrelationId::String("x".into());
        let wrong = |found, wanted| Some(("C".to_owned(), found, wanted));
        assert_eq!(found(DataType::Int32, text()), wrong(DataType::Bytes, DataType::Int32));
        assert_eq!(found(DataType::Bytes, CorrelationId::Number(0)), wrong(DataType::Uint64, DataType::Bytes));
        assert_eq!(found(DataType::Bytes, text()), None);
        assert_eq!(found(DataType::Int64, CorrelationId::Number(1)), None);
        assert!(controls(&[], false).mismatch(&text()).is_none());
    }
}
