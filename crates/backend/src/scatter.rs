//! Puts outputs where the client requested them: in the response, as slices of the batch's output, or in a region.

use crate::copy;
use crate::gather::{copied, lost};
use crate::{BatchEntry, Outcome};
use protocol::{OutputForm, OutputSpec, OutputTensor};
use tensor::{Base, Data, Error, RegionRef, Result, Shape};

/// The region that the client named for an output, or that an ensemble offers for one that may be anywhere. `slot` is
/// the second half of an entry of `Checked::outputs`.
pub fn region_of(entry: &BatchEntry, slot: Option<u16>) -> Option<&RegionRef> {
    entry.request.outputs.get(usize::from(slot?))?.region.as_ref()
}

/// The region for an output of `len` bytes, unless it is an offer that is too small, which the ensemble reports.
pub fn region_for(entry: &BatchEntry, slot: Option<u16>, len: usize) -> Option<&RegionRef> {
    region_of(entry, slot).filter(|region| region.len() >= len || !form_of(entry, slot).anywhere)
}

/// The requested form of an output.
pub fn form_of(entry: &BatchEntry, slot: Option<u16>) -> OutputForm {
    match slot {
        Some(slot) => entry.request.outputs.get(usize::from(slot)).map_or(OutputForm::ANYWHERE, |wanted| wanted.form),
        None => entry.request.default_form,
    }
}

/// The slot of an output that only the server requested: a state of a sequence.
pub const KEPT: u16 = u16::MAX;

/// Whether `data` is the region itself, written in place.
pub fn is_in(data: &Data, region: &RegionRef) -> bool {
    matches!(data, Data::Region(own) if std::ptr::addr_eq(&raw const **own, &raw const **region))
}

/// Returns `data` unchanged without a region; otherwise copies it into the region, unless it is there already.
///
/// # Errors
/// INTERNAL with Triton's text when the region is too small (memory.md 1.11), INVALID_ARG when the client truncated it,
/// or when a copy out of a region would exceed the limit.
pub fn place(output: &str, data: Data, region: Option<&RegionRef>) -> Result<Data> {
    match (data, region) {
        (host @ Data::Bytes(_), None) => Ok(host),
        (data, Some(region)) if is_in(&data, region) => written(region),
        // The client may change its region while the response is being sent.
        (Data::Region(source), None) => copied(&source),
        (Data::Bytes(bytes), Some(region)) if region.host().is_some() => {
            fits(output, region, bytes.len())?;
            region.copy_from(0, &bytes)?;
            written(region)
        }
        // Source and target may overlap: clients use one region as input and output at once.
        (Data::Region(source), Some(region)) if region.host().is_some() && source.host().is_some() => {
            fits(output, region, source.len())?;
            region.copy_from_region(0, &*source, 0, source.len())?;
            written(region)
        }
        (data, Some(region)) => {
            fits(output, region, data.len())?;
            copy::whole(&data, region)?;
            written(region)
        }
    }
}

/// An output that stays in device memory if no client can write there; otherwise it is copied, if need be to the host.
///
/// # Errors
/// RESOURCE_EXHAUSTED without memory for a copy; INTERNAL with the error of the driver.
pub fn kept_on_device(source: RegionRef) -> Result<Data> {
    let Base::Device(memory) = source.base() else { return copied(&source) };
    if !source.is_shared() {
        return Ok(Data::Region(source));
    }
    let own = copy::on_device(&[Data::Region(source.clone())], memory.device(), false);
    match own {
        Ok(Some(own)) => Ok(Data::Region(own)),
        Ok(None) => Ok(Data::empty()),
        // The device has no free memory now.
        Err(_) => copied(&source),
    }
}

/// Rejects a region smaller than `len` bytes.
///
/// # Errors
/// INTERNAL with Triton's text.
pub fn fits(output: &str, region: &RegionRef, len: usize) -> Result<()> {
    if region.len() < len {
        let found = region.len();
        return Err(Error::malformed(format!(
            "shared memory size specified with the request for output '{output}' ({found} bytes) should be at least \
             {len} bytes to hold the results"
        )));
    }
    Ok(())
}

/// The region as the contents of an output that was written to it.
///
/// # Errors
/// INVALID_ARG when the client truncated the region meanwhile, so that the output is lost.
pub fn written(region: &RegionRef) -> Result<Data> {
    if region.is_intact() { Ok(Data::Region(region.clone())) } else { Err(lost(region.region_name())) }
}

/// A finished output tensor at its requested location.
///
/// # Errors
/// INTERNAL when the region is too small; INVALID_ARG when the client truncated it, or when a copy out of a region
/// would exceed the limit.
pub fn output(
    entry: &BatchEntry,
    spec: &OutputSpec,
    wanted: (u16, Option<u16>),
    shape: Shape,
    data: Data,
) -> Result<OutputTensor> {
    let form = form_of(entry, wanted.1);
    let region = region_for(entry, wanted.1, data.len());
    Ok(OutputTensor {
        name: spec.name.clone(),
        index: wanted.0,
        datatype: spec.datatype,
        shape,
        data: match (data, region) {
            // The most frequent case skips the conversion of the name.
            (host @ Data::Bytes(_), None) => host,
            (Data::Region(source), None) if form.anywhere => kept_on_device(source)?,
            // The ensemble that offered the region checks that it is intact.
            (data, Some(region)) if form.anywhere && is_in(&data, region) => data,
            (data, region) => {
                let data = place(&spec.name, data, region)?;
                entry.copied_out(data.len());
                data
            }
        },
        form,
    })
}

/// Fails every request that has no result yet with the same error (S-14).
pub fn fail_all(entries: &mut [BatchEntry], error: &Error) {
    for entry in entries {
        entry.result.get_or_insert_with(|| Err::<Outcome, _>(error.clone()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gather::REGION_COPY_BYTES_MAX;
    use crate::testing::{Heap, entry};
    use bytes::Bytes;
    use std::sync::Arc;

    #[test]
    fn without_a_region_outputs_are_slices_of_the_batch_output() {
        let all = Bytes::from(vec![1u8, 2, 3, 4]);
        let row = place("O", Data::Bytes(all.slice(2..4)), None).unwrap_or_default();
        assert_eq!(row.host().map(|b| b.as_ptr()), Some(all[2..].as_ptr()));
    }

    #[test]
    fn an_output_is_written_to_its_region_and_the_rest_stays() {
        let region: RegionRef = Arc::new(Heap::new(&[9; 6]));
        let placed = place("O", Data::Bytes(Bytes::from_static(b"abcd")), Some(&region)).unwrap_or_default();
        assert!(matches!(placed, Data::Region(_)));
        assert_eq!(Data::Region(region).to_vec().expect("in memory"), b"abcd\t\t");
    }

    #[test]
    fn a_region_that_is_input_and_output_keeps_its_bytes() {
        let region: RegionRef = Arc::new(Heap::new(b"abc"));
        let placed = place("O", Data::Region(Arc::clone(&region)), Some(&region)).unwrap_or_default();
        assert_eq!(placed.to_vec().expect("in memory"), b"abc");
    }

    #[test]
    fn an_output_that_is_in_its_region_already_is_not_copied() {
        // The region has no memory: copying a byte would read out of bounds.
        let region: RegionRef = Arc::new(Heap::endless(1 << 20));
        let placed = place("O", Data::Region(Arc::clone(&region)), Some(&region)).expect("placed");
        assert!(is_in(&placed, &region));
    }

    #[test]
    fn an_offered_region_that_is_too_small_is_not_used() {
        let spec = OutputSpec {
            name: "O".into(),
            datatype: tensor::DataType::Uint8,
            dims: Shape::from_slice(&[-1]),
            reshape: None,
            labels: Default::default(),
        };
        let put = |form, room| {
            let mut asking = entry(1, &[]);
            let region: RegionRef = Arc::new(Heap::new(&vec![0; room]));
            let wanted = protocol::RequestedOutput { name: "O".into(), form, region: Some(region) };
            asking.request.outputs.push(wanted);
            let data = Data::Bytes(Bytes::from_static(b"abcd"));
            output(&asking, &spec, (0, Some(0)), Shape::from_slice(&[4]), data).map(|o| o.data)
        };
        assert!(matches!(put(OutputForm::ANYWHERE, 4), Ok(Data::Region(_))));
        assert!(matches!(put(OutputForm::ANYWHERE, 3), Ok(Data::Bytes(_))));
        assert!(put(OutputForm::default(), 3).is_err());
    }

    #[test]
    fn the_error_of_a_region_that_is_too_small_names_both_sizes_memory_1_11() {
        let region: RegionRef = Arc::new(Heap::new(&[0; 63]));
        let e = place("OUTPUT0", Data::Bytes(vec![0; 64].into()), Some(&region)).err();
        let text = "shared memory size specified with the request for output 'OUTPUT0' (63 bytes) should be at least \
                    64 bytes to hold the results";
        assert_eq!(e, Some(Error::malformed(text)));
    }

    #[test]
    fn a_truncated_region_fails_the_output() {
        let heap = Heap::new(&[0; 8]);
        heap.lose();
        let region: RegionRef = Arc::new(heap);
        let e = place("O", Data::Bytes(Bytes::from_static(b"x")), Some(&region)).err();
        assert_eq!(e, Some(Error::invalid("Invalid shared memory region: 'heap'")));
    }

    #[test]
    fn contents_of_a_region_are_copied_before_they_are_sent() {
        let region: RegionRef = Arc::new(Heap::new(b"abc"));
        let placed = place("O", Data::Region(region), None).unwrap_or_default();
        assert!(matches!(&placed, Data::Bytes(b) if &b[..] == b"abc"));
        let endless: RegionRef = Arc::new(Heap::endless(REGION_COPY_BYTES_MAX + 1));
        assert!(place("O", Data::Region(endless), None).is_err_and(|e| e.message().contains("the limit is")));
    }

    #[test]
    fn fail_all_keeps_existing_results() {
        let mut batch = [entry(1, &[]), entry(1, &[])];
        batch[0].result = Some(Ok(Outcome::default()));
        fail_all(&mut batch, &Error::internal("x"));
        assert!(matches!(batch[0].result, Some(Ok(_))));
        assert!(matches!(batch[1].result, Some(Err(_))));
    }
}
