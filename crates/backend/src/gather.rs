//! Inputs of a batch. `stage` copies contents of regions to the host where a backend must not read them in place;
//! `gather` concatenates an input of all requests of a batch, without a copy for one request, with one for several.

use crate::copy::{self, Target};
use crate::{BatchEntry, RemoteModel};
use bytes::Bytes;
use memory::budget::SMALL_BYTES_MAX;
use memory::{Budget, Charge, Kind, SlabMut, SlabPool};
use protocol::check::IdPrefix;
use protocol::{InputTensor, Signature};
use smallvec::SmallVec;
use std::cell::RefCell;
use std::rc::Rc;
use tensor::strings::Strings;
use tensor::{Data, DataType, Error, Location, RegionMemory, RegionRef, Result, allowance, element_count};

/// Maximum bytes of one tensor that are copied out of a region, equal to the limit of a request body. A region costs a
/// client nothing until it is written, and may be larger than all memory.
pub const REGION_COPY_BYTES_MAX: usize = i32::MAX as usize;

/// The tensor of a request for input `index` of the signature.
pub fn input_of(entry: &BatchEntry, index: u16) -> Option<&InputTensor> {
    let at = entry.checked.inputs.iter().position(|&i| i == index)?;
    entry.request.inputs.get(at)
}

/// Rows of a request; 1 if the model does not batch.
pub fn rows_of(entry: &BatchEntry) -> u64 {
    u64::from(entry.checked.rows.max(1))
}

/// Contents of an input of all requests that have it and have not failed, in batch order. `None` when there are none.
///
/// One request: its own bytes or region, shared. Several: one copy into a pooled slab, raw BYTES tensors included.
///
/// # Errors
/// RESOURCE_EXHAUSTED when there is no memory for a copy.
pub fn gather(entries: &[BatchEntry], index: u16) -> Result<Option<Data>> {
    gather_into(entries, index, batch_slab)
}

/// Like `gather`, into host memory that a device can read directly (`pinned_slab`).
///
/// # Errors
/// RESOURCE_EXHAUSTED when there is no memory for a copy.
pub fn gather_pinned(entries: &[BatchEntry], index: u16) -> Result<Option<Data>> {
    gather_into(entries, index, pinned_slab)
}

fn gather_into(
    entries: &[BatchEntry],
    index: u16,
    room: impl FnOnce(usize) -> Result<(SlabMut, Option<Charge>)>,
) -> Result<Option<Data>> {
    let parts = || entries.iter().filter(|e| e.result.is_none()).filter_map(|e| Some(&input_of(e, index)?.data));
    let Some(first) = parts().next() else { return Ok(None) };
    if parts().nth(1).is_none() {
        return Ok(Some(first.clone()));
    }
    let (mut slab, charge) = room(parts().map(Data::len).sum())?;
    let mut rest = &mut slab[..];
    for part in parts() {
        // Lengths come from the same values as the slab's; a region may change its contents, never its length.
        let (here, after) = std::mem::take(&mut rest).split_at_mut(part.len());
        match part {
            Data::Region(region) if region.host().is_none() => {
                let sources: Vec<Data> = parts().cloned().collect();
                copy::gather(&sources, Target::Host(&mut slab))?;
                break;
            }
            part => part.copy_to(0, here)?,
        }
        rest = after;
    }
    for entry in entries.iter().filter(|entry| entry.result.is_none()) {
        entry.copied_in(input_of(entry, index).map_or(0, |input| input.data.len()));
    }
    Ok(Some(Data::Bytes(frozen(slab, charge))))
}

/// Like `gather`, into memory of a device, without a copy if the contents are contiguous there already. With `shared`,
/// contents that clients may still write are used in place, too.
///
/// # Errors
/// RESOURCE_EXHAUSTED or UNAVAILABLE without device memory, INTERNAL with the error of the driver.
pub fn gather_on(entries: &[BatchEntry], index: u16, device: u32, shared: bool) -> Result<Option<RegionRef>> {
    let parts = entries.iter().filter(|e| e.result.is_none()).filter_map(|e| Some(input_of(e, index)?.data.clone()));
    copy::on_device(&parts.collect::<SmallVec<[Data; 8]>>(), device, shared)
}

/// Memory for inputs of a batch, charged to the server rather than to one connection. Small slabs are not charged.
///
/// # Errors
/// RESOURCE_EXHAUSTED when there is no memory for it now. Threads of the engine must not wait for memory.
pub fn batch_slab(len: usize) -> Result<(SlabMut, Option<Charge>)> {
    let charge = charged(len)?;
    Ok((SlabPool::global().get(len)?, charge))
}

/// Like `batch_slab`, for bytes that a device reads or writes. Page-locked if the pinned pool has room; that pool's own
/// limit replaces the charge. Otherwise ordinary memory, which the driver stages.
///
/// # Errors
/// RESOURCE_EXHAUSTED when there is no memory for it now. Threads of the engine must not wait for memory.
pub fn pinned_slab(len: usize) -> Result<(SlabMut, Option<Charge>)> {
    let slab = SlabPool::global().pinned(len)?;
    let charge = if slab.is_pinned() { None } else { charged(len)? };
    Ok((slab, charge))
}

fn charged(len: usize) -> Result<Option<Charge>> {
    if len <= SMALL_BYTES_MAX {
        return Ok(None);
    }
    let account = Budget::global().common();
    let charged = account.charge(Kind::Batch, false, len);
    Ok(Some(charged.inspect_err(|_| account.count_refusal())?))
}

/// Runs `work`, whose large buffers ([`allowance`]) are charged to the server while it runs.
pub fn within_budget<T>(work: impl FnOnce() -> T) -> T {
    let charge = Rc::new(RefCell::new(Budget::global().common().empty(Kind::Batch, false)));
    let grown = charge.clone();
    let ask = move |bytes| {
        let mut charge = grown.borrow_mut();
        charge.grow(bytes).inspect_err(|_| charge.account().count_refusal()).map_err(Error::from)
    };
    allowance::within(Box::new(ask), SlabPool::lend, work)
}

/// The written slab as `Bytes`, which keep the charge.
pub fn frozen(slab: SlabMut, charge: Option<Charge>) -> Bytes {
    match charge {
        Some(charge) => slab.freeze_with(charge),
        None => slab.freeze(),
    }
}

/// Copies contents of regions that the backend must not read in place; other tensors stay where they are. Staged inputs
/// cannot change any more. A request that fails here gets its error as the result; the batch runs without it.
///
/// Strings are always copied and counted again in the copy, because the client could have changed them since they were
/// checked. The contents of a single request stay in their region if they are aligned and `in_place` returns true for
/// their datatype; those of several requests are copied by `gather` anyway.
pub fn stage(entries: &mut [BatchEntry], signature: &Signature, in_place: impl Fn(DataType) -> bool) {
    stage_but(entries, signature, |_| false, in_place);
}

/// Like `stage`, for a backend that runs on a device: device tensors, except strings, stay there for `gather_on`.
pub fn stage_on(entries: &mut [BatchEntry], signature: &Signature, in_place: impl Fn(DataType) -> bool) {
    stage_but(entries, signature, |region| region.host().is_none(), in_place);
}

fn stage_but(
    entries: &mut [BatchEntry],
    signature: &Signature,
    stays_there: impl Fn(&RegionRef) -> bool,
    in_place: impl Fn(DataType) -> bool,
) {
    let alone = entries.iter().filter(|e| e.result.is_none()).nth(1).is_none();
    for entry in entries.iter_mut().filter(|e| e.result.is_none()) {
        let mut bytes = 0;
        for (input, &index) in entry.request.inputs.iter_mut().zip(&entry.checked.inputs) {
            let (Data::Region(region), Some(spec)) = (&input.data, signature.inputs.get(usize::from(index))) else {
                continue;
            };
            let is_aligned = spec.datatype.byte_size().zip(region.host());
            let is_aligned = is_aligned.is_some_and(|(size, first)| (first as usize).is_multiple_of(size));
            let stays = alone && is_aligned && in_place(spec.datatype);
            let staged = match spec.datatype.byte_size() {
                _ if stays => continue,
                Some(_) if stays_there(region) => continue,
                Some(_) if !alone => may_copy(&**region).map(|()| None),
                Some(_) => copied(region).map(Some),
                None => copied(region).and_then(|data| strings(data, input, signature)).map(Some),
            };
            match staged {
                Ok(Some(data)) => {
                    bytes += data.len();
                    input.data = data;
                }
                Ok(None) => {}
                Err(e) => {
                    entry.result = Some(Err(e.prefixed(IdPrefix(&entry.request.id))));
                    break;
                }
            }
        }
        if bytes > 0 {
            entry.copied_in(bytes);
        }
    }
}

/// Like `stage` for the strings of one request; all other tensors stay where they are. For a backend that forwards
/// bytes without reading them: it must not forward strings whose lengths the client has changed.
///
/// # Errors
/// RESOURCE_EXHAUSTED when there is no memory for a copy; INVALID_ARG for a region that its client truncated.
pub fn stage_strings(entry: &mut BatchEntry, signature: &Signature) -> Result<()> {
    for (input, &index) in entry.request.inputs.iter_mut().zip(&entry.checked.inputs) {
        let is_strings = signature.inputs.get(usize::from(index)).is_some_and(|s| s.datatype.byte_size().is_none());
        if is_strings && matches!(input.data, Data::Region(_)) {
            input.data = own_strings(input, signature).map_err(|e| e.prefixed(IdPrefix(&entry.request.id)))?;
        }
    }
    Ok(())
}

/// The strings of an input: a checked copy of those that a client can still change, otherwise the same bytes.
///
/// # Errors
/// RESOURCE_EXHAUSTED when there is no memory for a copy; INVALID_ARG for a region that its client truncated.
pub fn own_strings(input: &InputTensor, signature: &Signature) -> Result<Data> {
    match &input.data {
        Data::Region(region) => copied(region).and_then(|data| strings(data, input, signature)),
        own => Ok(own.clone()),
    }
}

/// Bytes that are copied when an input is handed on to a model in another process, `model`. `usize::MAX` if a device
/// takes part, because the time of such a copy is unknown.
pub fn bytes_to_hand_on(input: &InputTensor, model: Option<&dyn RemoteModel>) -> usize {
    let is_strings = input.datatype.is_none_or(|datatype| datatype.byte_size().is_none());
    match &input.data {
        data if matches!(data.location(), Location::Device(_)) => usize::MAX,
        // Strings are checked in a private copy.
        Data::Region(region)
            if region.is_lent() && !is_strings && model.is_some_and(|model| model.has_lent(region)) =>
        {
            0
        }
        data => data.len(),
    }
}

/// Copies inputs in regions that outputs are written to, for a backend that writes outputs before reading all inputs.
///
/// # Errors
/// RESOURCE_EXHAUSTED when there is no memory for a copy; INVALID_ARG for a region that its client truncated.
pub fn detach(entry: &mut BatchEntry) -> Result<()> {
    let targets = &entry.request.outputs;
    for input in &mut entry.request.inputs {
        if let Data::Region(region) = &input.data
            && targets.iter().filter_map(|o| o.region.as_ref()).any(|target| region.overlaps(&**target))
        {
            input.data = copied(region)?;
        }
    }
    Ok(())
}

/// The current bytes of a region, in a slab.
pub(crate) fn copied(region: &RegionRef) -> Result<Data> {
    may_copy(&**region)?;
    if region.host().is_none() {
        return downloaded(region);
    }
    let (mut slab, charge) = batch_slab(region.len())?;
    region.copy_to(0, &mut slab)?;
    Ok(Data::Bytes(frozen(slab, charge)))
}

/// The bytes of a device region, written by the device into page-locked memory if there is any.
fn downloaded(region: &RegionRef) -> Result<Data> {
    let (mut slab, charge) = pinned_slab(region.len())?;
    copy::gather(&[Data::Region(region.clone())], Target::Host(&mut slab))?;
    Ok(Data::Bytes(frozen(slab, charge)))
}

fn may_copy(region: &dyn RegionMemory) -> Result<()> {
    if region.len() > REGION_COPY_BYTES_MAX {
        return Err(Error::invalid(format!(
            "{} bytes of shared memory region '{}' would have to be copied; the limit is {REGION_COPY_BYTES_MAX}",
            region.len(),
            region.region_name()
        )));
    }
    Ok(())
}

/// Returns `data` if it holds exactly as many strings as the input's shape.
fn strings(data: Data, input: &InputTensor, signature: &Signature) -> Result<Data> {
    let expected = element_count(&input.shape).unwrap_or(0);
    let mut found = 0;
    let mut whole = true;
    for element in Strings::new(data.host().map_or(&[], |bytes| bytes)) {
        whole = element.is_ok();
        found += i64::from(whole);
    }
    if !whole || found != expected {
        return Err(Error::invalid(format!(
            "expected {expected} string elements for inference input '{}' for model '{}', got {found}",
            input.name, signature.model
        )));
    }
    Ok(data)
}

/// Checks, after the inputs were used, that all regions of the request were intact.
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
    use crate::testing::{Heap, entry};
    use protocol::{InputSpec, RequestedOutput};
    use std::sync::Arc;
    use tensor::Shape;

    /// One request for each list of inputs, with each input in a region of its own.
    fn in_regions(datatype: DataType, requests: &[&[&[u8]]]) -> (Signature, Vec<BatchEntry>) {
        let count = requests.iter().map(|r| r.len()).max().unwrap_or(0);
        let spec = |i: usize| InputSpec {
            name: format!("IN{i}").into(),
            datatype,
            dims: Shape::from_slice(&[-1]),
            reshape: None,
            optional: false,
            allow_ragged_batch: false,
        };
        let signature = Signature { model: "m".into(), inputs: (0..count).map(spec).collect(), ..Signature::default() };
        let entries = requests.iter().map(|inputs| {
            let named: Vec<_> = inputs.iter().map(|data| ("IN", *data)).collect();
            let mut made = entry(1, &named);
            for (input, data) in made.request.inputs.iter_mut().zip(*inputs) {
                input.data = Data::Region(Arc::new(Heap::new(data)));
                input.shape = Shape::from_slice(&[1]);
            }
            made
        });
        (signature, entries.collect())
    }

    fn locations(entries: &[BatchEntry]) -> Vec<Location> {
        entries.iter().flat_map(|e| e.request.inputs.iter().map(|i| i.data.location())).collect()
    }

    #[test]
    fn contents_stay_in_their_region_only_if_the_backend_may_read_them_there() {
        use Location::{Host, Region};
        let check = |datatype, may, requests: &[&[&[u8]]], expected: &[Location]| {
            let (signature, mut entries) = in_regions(datatype, requests);
            stage(&mut entries, &signature, |t| t == datatype && may);
            assert_eq!(locations(&entries), expected, "{datatype:?}, may be read in place: {may}");
            assert!(entries.iter().all(|e| e.result.is_none()));
            for (entry, inputs) in entries.iter().zip(requests) {
                let data: Vec<_> = entry.request.inputs.iter().map(|i| i.data.to_vec().expect("in memory")).collect();
                assert_eq!(data, *inputs);
            }
        };
        check(DataType::Uint8, true, &[&[b"a", b"b"]], &[Region, Region]);
        check(DataType::Uint8, false, &[&[b"a", b"b"]], &[Host, Host]);
        // With several requests, `gather` makes the copy.
        check(DataType::Uint8, false, &[&[b"a"], &[b"b"]], &[Region, Region]);
        let text = [1, 0, 0, 0, b'x'];
        check(DataType::Bytes, true, &[&[&text]], &[Host]);
        check(DataType::Bytes, true, &[&[&text], &[&text]], &[Host, Host]);
    }

    #[test]
    fn strings_that_changed_since_their_check_fail_their_request_only() {
        let (good, cut) = ([1, 0, 0, 0, b'x'], [9, 0, 0, 0, b'x']);
        let (signature, mut entries) = in_regions(DataType::Bytes, &[&[&good], &[&cut], &[&[0; 8]]]);
        stage(&mut entries, &signature, |_| true);
        let failure =
            |i: usize| entries[i].result.as_ref().and_then(|r| r.as_ref().err()).map(|e| e.message().to_owned());
        assert_eq!(failure(0), None);
        let text = "[request id: <id_unknown>] expected 1 string elements for inference input 'IN' for model 'm', got ";
        assert_eq!(failure(1), Some(format!("{text}0")));
        assert_eq!(failure(2), Some(format!("{text}2")));
    }

    #[test]
    fn a_region_above_the_copy_limit_fails_its_request_and_is_not_read() {
        let (signature, mut entries) = in_regions(DataType::Int32, &[&[&[0; 4]], &[&[0; 4]]]);
        entries[1].request.inputs[0].data = Data::Region(Arc::new(Heap::endless(REGION_COPY_BYTES_MAX + 1)));
        stage(&mut entries, &signature, |_| false);
        assert!(entries[0].result.is_none());
        let text = "[request id: <id_unknown>] 2147483648 bytes of shared memory region 'heap' would have to be \
                    copied; the limit is 2147483647";
        assert_eq!(entries[1].result.as_ref().and_then(|r| r.as_ref().err()), Some(&Error::invalid(text)));
    }

    #[test]
    fn only_inputs_in_regions_of_outputs_are_copied() {
        let (_, mut entries) = in_regions(DataType::Uint8, &[&[b"a", b"b"]]);
        let Data::Region(region) = entries[0].request.inputs[1].data.clone() else { panic!("in a region") };
        let output = |region| RequestedOutput { name: "O".into(), form: Default::default(), region };
        entries[0].request.outputs = [output(None), output(Some(region))].into_iter().collect();
        detach(&mut entries[0]).expect("small");
        assert_eq!(locations(&entries), [Location::Region, Location::Host]);
        assert_eq!(entries[0].request.inputs[1].data.to_vec().expect("in memory"), b"b");
    }

    #[test]
    fn strings_that_are_handed_on_are_those_that_were_counted() {
        let text = [1, 0, 0, 0, b'x'];
        let (signature, mut entries) = in_regions(DataType::Bytes, &[&[&text]]);
        stage_strings(&mut entries[0], &signature).expect("one string");
        assert_eq!(locations(&entries), [Location::Host]);
        // As if the client had changed the length after the request was checked.
        let (signature, mut entries) = in_regions(DataType::Bytes, &[&[&[9, 0, 0, 0, b'x']]]);
        let refused = stage_strings(&mut entries[0], &signature).expect_err("no string");
        assert!(refused.message().contains("expected 1 string elements"), "{refused}");
        let (signature, mut entries) = in_regions(DataType::Uint8, &[&[b"a"]]);
        stage_strings(&mut entries[0], &signature).expect("no strings");
        assert_eq!(locations(&entries), [Location::Region]);
    }

    #[test]
    fn one_request_is_not_copied() {
        let batch = [entry(1, &[("A", b"abcd")])];
        let address = |d: &Data| d.host().map(|b| b.as_ptr());
        let gathered = gather(&batch, 0).expect("inside").expect("one part");
        assert_eq!(address(&gathered), address(&batch[0].request.inputs[0].data));
        assert!(gather(&batch, 1).expect("inside").is_none());
        assert!(gather(&[], 0).expect("inside").is_none());
    }

    #[test]
    fn several_requests_are_put_in_a_row() {
        let big = vec![7u8; 5000];
        let batch =
            [entry(1, &[("A", b"ab")]), entry(2, &[("A", &big)]), entry(1, &[("A", b"")]), entry(1, &[("A", b"xyz")])];
        let all = gather(&batch, 0).expect("inside").expect("four parts");
        let expected: Vec<u8> = [&b"ab"[..], &big, b"xyz"].concat();
        assert_eq!(all.to_vec().expect("in memory"), expected);
    }

    #[test]
    fn a_request_that_failed_already_has_no_part() {
        let mut batch = [entry(1, &[("A", b"ab")]), entry(1, &[("A", b"cd")])];
        batch[0].result = Some(Err(Error::invalid("x")));
        let rest = gather(&batch, 0).expect("inside").expect("one part");
        assert_eq!(rest.to_vec().expect("in memory"), b"cd");
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
