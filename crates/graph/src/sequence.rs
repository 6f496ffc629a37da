//! The sequence a request belongs to. A response may change it for the steps behind it, and every answer of an ensemble
//! tells it (S-33).

use protocol::{CorrelationId, Parameter, Sequence};
use tensor::{Error, Name, Result};

static ID: Name = Name::from_static("sequence_id");
static START: Name = Name::from_static("sequence_start");
static END: Name = Name::from_static("sequence_end");

/// `given` with the changes in the parameters of a response; `None` if there are none.
///
/// # Errors
/// INVALID_ARG when one of the three parameters has a wrong type.
pub fn overridden(given: &Sequence, parameters: &[(Name, Parameter)]) -> Result<Option<Sequence>> {
    let mut changed = None;
    for (name, value) in parameters {
        if *name == ID {
            let id = match value {
                // The protocol has no unsigned type: large ids are negative numbers.
                Parameter::Int(id) => CorrelationId::Number(id.cast_unsigned()),
                Parameter::String(id) => CorrelationId::String(id.clone()),
                other => return Err(wrong(name, "TRITONSERVER_PARAMETER_INT or TRITONSERVER_PARAMETER_STRING", other)),
            };
            changed.get_or_insert_with(|| given.clone()).id = id;
        } else if *name == START || *name == END {
            let Parameter::Bool(set) = *value else { return Err(wrong(name, "TRITONSERVER_PARAMETER_BOOL", value)) };
            let sequence = changed.get_or_insert_with(|| given.clone());
            *(if *name == START { &mut sequence.start } else { &mut sequence.end }) = set;
        }
    }
    Ok(changed)
}

/// The sequence parameters of every response with data; zero and false without a sequence.
pub fn to_parameters(sequence: &Sequence) -> Vec<(Name, Parameter)> {
    let id = match &sequence.id {
        CorrelationId::Number(id) => Parameter::Int(id.cast_signed()),
        CorrelationId::String(id) => Parameter::String(id.clone()),
    };
    vec![
        (ID.clone(), id),
        (START.clone(), Parameter::Bool(sequence.start)),
        (END.clone(), Parameter::Bool(sequence.end)),
    ]
}

fn wrong(name: &str, expected: &str, got: &Parameter) -> Error {
    let got = match got {
        Parameter::Bool(_) => "BOOL",
        Parameter::Int(_) => "INT",
        Parameter::String(_) => "STRING",
        Parameter::Double(_) => "DOUBLE",
    };
    Error::invalid(format!("expected parameter '{name}' to be {expected}, got TRITONSERVER_PARAMETER_{got}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sequence(id: u64, start: bool, end: bool) -> Sequence {
        Sequence { id: CorrelationId::Number(id), start, end }
    }

    #[test]
    fn a_response_changes_what_it_names_s_33() {
        let given = sequence(7, true, false);
        let check = |parameters: &[(&str, Parameter)], expected: Option<Sequence>| {
            let parameters: Vec<_> = parameters.iter().map(|(n, v)| (Name::from(*n), v.clone())).collect();
            assert_eq!(overridden(&given, &parameters), Ok(expected));
        };
        check(&[], None);
        check(&[("confidence", Parameter::Double(0.5))], None);
        check(&[("sequence_id", Parameter::Int(9))], Some(sequence(9, true, false)));
        check(&[("sequence_id", Parameter::Int(-1))], Some(sequence(u64::MAX, true, false)));
        check(&[("sequence_end", Parameter::Bool(true))], Some(sequence(7, true, true)));
        let other = Sequence { id: CorrelationId::String("s".into()), ..sequence(0, false, false) };
        check(
            &[("sequence_id", Parameter::String("s".into())), ("sequence_start", Parameter::Bool(false))],
            Some(other),
        );
    }

    #[test]
    fn a_wrong_type_is_named() {
        let check = |name: &str, value: Parameter, text: &str| {
            let error = overridden(&Sequence::default(), &[(name.into(), value)]).err();
            assert_eq!(error, Some(Error::invalid(text.to_owned())));
        };
        check(
            "sequence_id",
            Parameter::Bool(true),
            "expected parameter 'sequence_id' to be TRITONSERVER_PARAMETER_INT or TRITONSERVER_PARAMETER_STRING, got \
             TRITONSERVER_PARAMETER_BOOL",
        );
        check(
            "sequence_start",
            Parameter::Int(1),
            "expected parameter 'sequence_start' to be TRITONSERVER_PARAMETER_BOOL, got TRITONSERVER_PARAMETER_INT",
        );
        check(
            "sequence_end",
            Parameter::String("x".into()),
            "expected parameter 'sequence_end' to be TRITONSERVER_PARAMETER_BOOL, got TRITONSERVER_PARAMETER_STRING",
        );
    }

    #[test]
    fn large_ids_survive_the_way_through_parameters() {
        let given = sequence(u64::MAX - 5, false, true);
        assert_eq!(overridden(&Sequence::default(), &to_parameters(&given)), Ok(Some(given)));
    }
}
