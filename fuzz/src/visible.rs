//! `CUDA_VISIBLE_DEVICES`, beside the uuids of a machine.

use crate::visible_devices::first_ignored;

/// Takes the variable's value, then uuids, each ended by a zero.
///
/// # Panics
/// What is told is not the first entry that chooses no device, or the entries before it do not stand alone.
pub fn visible(data: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(data) else { return false };
    let mut parts = text.split('\0');
    let list = parts.next().unwrap_or_default();
    let uuids: Vec<String> = parts.filter(|uuid| !uuid.is_empty()).take(64).map(String::from).collect();
    let entries: Vec<&str> = list.split(',').collect();
    // Whether an entry chooses a device does not depend on those beside it.
    let first = entries.iter().position(|entry| first_ignored(entry, &uuids).is_some());
    let told = first_ignored(list, &uuids);
    assert_eq!(told.as_ref().map(|one| one.entry.as_str()), first.map(|at| entries[at]), "{list:?}");
    told.is_none()
}
