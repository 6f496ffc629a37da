//! Keys of requests: which may share a batch (S-12), and which cost the same.

use protocol::{Checked, InferRequest, Signature};
use smallvec::SmallVec;
use std::hash::{BuildHasher, RandomState};
use std::sync::LazyLock;

/// Everything that requests of a batch must have in common, flattened. Requests with equal keys may share a batch.
pub(crate) type Key = SmallVec<[i64; 8]>;

/// Properties that are compared, decided once per version.
pub(crate) enum ShapeRule {
    /// Fixed dims and no optional inputs: all requests fit each other.
    Any,
    /// Compare the shapes of these inputs and, if inputs are optional, which of them are present.
    Compare { variable: Vec<bool>, batching: bool },
}

impl ShapeRule {
    pub(crate) fn of(signature: &Signature) -> Self {
        let optional = signature.inputs.iter().any(|i| i.optional);
        let variable: Vec<bool> =
            signature.inputs.iter().map(|i| i.dims.contains(&-1) && !i.allow_ragged_batch).collect();
        if !optional && !variable.contains(&true) {
            return Self::Any;
        }
        Self::Compare { variable, batching: signature.max_batch_size > 0 }
    }

    #[inline(always)]
    pub(crate) fn key(&self, request: &InferRequest, checked: &Checked) -> Key {
        let Self::Compare { variable, batching } = self else { return Key::new() };
        // Requests may list inputs in any order; the key has configuration order, with an index before each input.
        let mut order: SmallVec<[(u16, usize); 8]> = checked.inputs.iter().copied().zip(0..).collect();
        order.sort_unstable();
        let mut key = Key::new();
        for (spec, i) in order {
            key.push(i64::from(spec));
            if variable.get(usize::from(spec)) == Some(&true)
                && let Some(input) = request.inputs.get(i)
            {
                key.extend(input.shape.iter().skip(usize::from(*batching)).copied());
            }
        }
        key
    }
}

/// Class of requests that cost the same per row: equal shapes apart from the batch dimension. Keyed, so that a client
/// cannot choose two shapes of one class and have a slow one taken for a cheap one.
pub(crate) fn class_of(key: &Key) -> u64 {
    static KEYED: LazyLock<RandomState> = LazyLock::new(RandomState::new);
    if key.is_empty() { 0 } else { KEYED.hash_one(&key[..]) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use protocol::{InputSpec, InputTensor};
    use tensor::{Data, DataType, Shape};

    fn spec(name: &'static str, dims: &[i64], optional: bool, ragged: bool) -> InputSpec {
        InputSpec {
            name: name.into(),
            datatype: DataType::Int32,
            dims: Shape::from_slice(dims),
            reshape: None,
            optional,
            allow_ragged_batch: ragged,
        }
    }

    fn key(signature: &Signature, inputs: &[(u16, &[i64])]) -> Key {
        let (mut request, mut checked) = (InferRequest::default(), Checked::default());
        for (index, shape) in inputs {
            request.inputs.push(InputTensor {
                name: "".into(),
                datatype: None,
                shape: Shape::from_slice(shape),
                data: Data::default(),
            });
            checked.inputs.push(*index);
        }
        ShapeRule::of(signature).key(&request, &checked)
    }

    #[test]
    fn requests_with_equal_variable_dims_and_inputs_fit() {
        let signature = |inputs| Signature { max_batch_size: 8, inputs, ..Signature::default() };
        let fixed = signature(vec![spec("A", &[2], false, false)]);
        assert_eq!(key(&fixed, &[(0, &[1, 2])]), key(&fixed, &[(0, &[4, 2])]));

        let variable = signature(vec![spec("A", &[-1], false, false), spec("B", &[-1, 2], false, false)]);
        let one = key(&variable, &[(0, &[1, 3]), (1, &[1, 4, 2])]);
        assert_eq!(one, key(&variable, &[(1, &[5, 4, 2]), (0, &[5, 3])]), "rows and the order of inputs do not matter");
        assert_ne!(one, key(&variable, &[(0, &[1, 4]), (1, &[1, 3, 2])]));
        assert_ne!(class_of(&one), class_of(&key(&variable, &[(0, &[1, 4]), (1, &[1, 4, 2])])));

        let ragged = signature(vec![spec("A", &[-1], false, true)]);
        assert_eq!(key(&ragged, &[(0, &[1, 3])]), key(&ragged, &[(0, &[1, 4])]));

        let optional = signature(vec![spec("A", &[2], false, false), spec("B", &[2], true, false)]);
        assert_ne!(key(&optional, &[(0, &[1, 2])]), key(&optional, &[(0, &[1, 2]), (1, &[1, 2])]));
    }
}
