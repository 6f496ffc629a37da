//! Outputs of a model that its client gets.

use crate::runner::Owner;
use backend::BatchEntry;
use protocol::Signature;
use tensor::Name;

/// An output that the client gets: its index in the signature, its index in the request, and its name.
pub(crate) fn selected_output(owner: &dyn Owner, entry: &BatchEntry, name: &str) -> Option<(u16, Option<u16>, Name)> {
    let signature = owner.signature();
    let requested = entry.checked.outputs.iter().find_map(|&(index, slot)| {
        let spec = signature.outputs.get(usize::from(index))?;
        (spec.name == *name).then(|| (index, slot, spec.name.clone()))
    });
    requested.or_else(|| if owner.spec().sends_all_outputs { unrequested_output(signature, name) } else { None })
}

/// An output that was not requested, like `selected_output`.
fn unrequested_output(signature: &Signature, name: &str) -> Option<(u16, Option<u16>, Name)> {
    let index = signature.outputs.iter().position(|spec| spec.name == *name)?;
    Some((u16::try_from(index).ok()?, None, signature.outputs.get(index)?.name.clone()))
}
