//! One input of every request of a batch, put in a row: nothing is copied for one request, everything once for several.

use crate::BatchEntry;
use memory::SlabPool;
use protocol::InputTensor;
use tensor::{Data, Error, Result};

/// The tensor a request gave for input `index` of the signature.
pub fn input_of(entry: &BatchEntry, index: u16) -> Option<&InputTensor> {
    let at = entry.checked.inputs.iter().position(|&i| i == index)?;
    entry.request.inputs.get(at)
}

/// Rows of a request; a model that does not batch has one per request.
pub fn rows_of(entry: &BatchEntry) -> u64 {
    u64::from(entry.checked.rows.max(1))
}

/// The input's contents of all requests that have it and have not failed yet, in batch order. `None` when there is none.
///
/// One request: its own bytes or region, shared. Several: one copy into a pooled slab. Raw BYTES tensors are gathered alike:
/// their raw forms follow one another.
pub fn gather(entries: &[BatchEntry], index: u16) -> Option<Data> {
    let parts = || entries.iter().filter(|e| e.result.is_none()).filter_map(|e| Some(&input_of(e, index)?.data));
    let first = parts().next()?;
    if parts().nth(1).is_none() {
        return Some(first.clone());
    }
    let mut slab = SlabPool::global().get(parts().map(Data::len).sum());
    let mut rest = &mut slab[..];
    for part in parts() {
        // Lengths were taken from the same values a moment ago; a region changes its contents, never its length.
        let (here, after) = std::mem::take(&mut rest).split_at_mut(part.len());
        here.copy_from_slice(part.as_slice());
        rest = after;
    }
    Some(Data::Bytes(slab.freeze()))
}

/// Whether every region the request reads from is still whole; called after the data were used.
///
/// # Errors
/// INVALID_ARG `Invalid shared memory region: 'N'` when the client truncated it meanwhile.
pub fn check_regions(entry: &BatchEntry) -> Result<()> {
    for input in &entry.request.inputs {
        if let Data::Region(region) = &input.data
            && !region.is_intact()
        {
            return Err(lost(region.region_name()));
        }
    }
    Ok(())
}

pub(crate) fn lost(name: &str) -> Error {
    Error::invalid(format!("Invalid shared memory region: '{name}'"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::entry;

    #[test]
    fn one_request_is_not_copied() {
        let batch = [entry(1, &[("A", b"abcd")])];
        let gathered = gather(&batch, 0).map(|d| d.as_slice().as_ptr());
        assert_eq!(gathered, Some(batch[0].request.inputs[0].data.as_slice().as_ptr()));
        assert!(gather(&batch, 1).is_none());
        assert!(gather(&[], 0).is_none());
    }

    #[test]
    fn several_requests_are_put_in_a_row() {
        let big = vec![7u8; 5000];
        let batch =
            [entry(1, &[("A", b"ab")]), entry(2, &[("A", &big)]), entry(1, &[("A", b"")]), entry(1, &[("A", b"xyz")])];
        let all = gather(&batch, 0).unwrap_or_default();
        let expected: Vec<u8> = [&b"ab"[..], &big, b"xyz"].concat();
        assert_eq!(all.as_slice(), expected);
    }

    #[test]
    fn a_request_that_failed_already_has_no_part() {
        let mut batch = [entry(1, &[("A", b"ab")]), entry(1, &[("A", b"cd")])];
        batch[0].result = Some(Err(Error::invalid("x")));
        assert_eq!(gather(&batch, 0).unwrap_or_default().as_slice(), b"cd");
    }

    #[test]
    fn inputs_are_found_by_their_index_not_their_place() {
        let mut e = entry(1, &[("B", b"bb"), ("A", b"aa")]);
        e.checked.inputs = [1, 0].into_iter().collect();
        assert_eq!(input_of(&e, 0).map(|t| &*t.name), Some("A"));
        assert_eq!(input_of(&e, 1).map(|t| &*t.name), Some("B"));
        assert!(input_of(&e, 2).is_none());
    }
}
