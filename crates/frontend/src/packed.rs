//! Small responses that wait for a slow reader, packed one behind the other into slabs.
//!
//! A response of the engine is half a dozen small allocations. Tens of thousands of them for each of a hundred clients
//! leave heaps that malloc does not return to the system, and freeing them takes a thread milliseconds. Packed, a
//! response is about a hundred bytes of a slab, and a slab is freed as a whole.
//!
//! The parts that all responses of a request have in common (names, types, the client's regions) are its [`Outline`],
//! which is kept with the request. A response is not packed if it is large, because its tensors have slabs of their
//! own, or if its request has no outline for it.
//!
//! Invariant: records are taken in the order in which they were pushed, each equal to the response that was pushed.

use bytes::{Buf, BufMut, Bytes};
use engine::EngineResponse;
use memory::{SlabMut, SlabPool, reclaim};
use parking_lot::Mutex;
use protocol::{InferResponse, OutputForm, OutputTensor, Parameter};
use std::collections::VecDeque;
use std::sync::{Arc, OnceLock};
use tensor::{Code, Data, DataType, Error, Fault, Name, RegionRef, Shape};

/// Bytes of the first slab, which a reader that is only a little behind never fills.
const FIRST_SLAB_BYTES: usize = 64 << 10;
/// Bytes of each further slab, large so that there are few mappings.
const SLAB_BYTES: usize = 1 << 20;
/// Size of the part of a slab whose pages are prepared in one step.
const PREPARED_BYTES: usize = 64 << 10;
/// Maximum size of a tensor that is packed. The contents of larger ones are in a slab already.
const TENSOR_BYTES_MAX: usize = 4 << 10;
const RECORD_BYTES_MAX: usize = 16 << 10;
/// Maximum number of outlines of one request. Models make responses of few kinds.
const OUTLINES_MAX: usize = 8;

/// Properties of a queued response.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Tag {
    /// Position in the order of all responses of the inbox.
    pub number: u64,
    /// Key of its request.
    pub key: u32,
    /// Time of its arrival, in ns since the inbox was made.
    pub came_ns: u64,
    /// Bytes that the response counts for.
    pub bytes: usize,
}

/// The parts that responses of one request have in common.
pub(crate) struct Outline {
    model_name: Name,
    model_version: Name,
    id: Name,
    outputs: Box<[OutputOutline]>,
}

struct OutputOutline {
    name: Name,
    index: u16,
    datatype: DataType,
    form: OutputForm,
    /// Region in which the client wants the output; the record then has no contents.
    region: Option<RegionRef>,
}

/// The outlines of a request: usually all its responses have the first one.
#[derive(Default)]
pub(crate) struct Outlines {
    first: OnceLock<Outline>,
    others: Mutex<Vec<Arc<Outline>>>,
}

impl Outlines {
    /// Number of the outline that fits a response; `None` if there are too many outlines.
    fn find_or_add(&self, response: &InferResponse) -> Option<u8> {
        if self.first.get_or_init(|| Outline::of(response)).fits(response) {
            return Some(0);
        }
        let mut others = self.others.lock();
        let known = others.iter().position(|outline| outline.fits(response));
        let at = match known {
            Some(at) => at,
            None if others.len() + 1 < OUTLINES_MAX => {
                others.push(Arc::new(Outline::of(response)));
                others.len() - 1
            }
            None => return None,
        };
        u8::try_from(at + 1).ok()
    }

    /// Calls `read` with the outline of this number.
    fn with<T>(&self, at: u8, read: impl FnOnce(&Outline) -> Option<T>) -> Option<T> {
        let Some(at) = usize::from(at).checked_sub(1) else { return read(self.first.get()?) };
        let outline = self.others.lock().get(at).cloned()?;
        read(&outline)
    }
}

impl Outline {
    fn of(response: &InferResponse) -> Self {
        let outputs = response.outputs.iter().map(|output| OutputOutline {
            name: output.name.clone(),
            index: output.index,
            datatype: output.datatype,
            form: output.form,
            region: region_of(output).cloned(),
        });
        Self {
            model_name: response.model_name.clone(),
            model_version: response.model_version.clone(),
            id: response.id.clone(),
            outputs: outputs.collect(),
        }
    }

    fn fits(&self, response: &InferResponse) -> bool {
        let same = |(known, output): (&OutputOutline, &OutputTensor)| {
            let region = match (&known.region, region_of(output)) {
                (None, None) => true,
                (Some(known), Some(region)) => Arc::ptr_eq(known, region),
                _ => false,
            };
            region
                && known.name == output.name
                && (known.index, known.datatype, known.form) == (output.index, output.datatype, output.form)
        };
        self.outputs.len() == response.outputs.len()
            && self.outputs.iter().zip(&response.outputs).all(same)
            && self.id == response.id
            && self.model_name == response.model_name
            && self.model_version == response.model_version
    }
}

fn region_of(output: &OutputTensor) -> Option<&RegionRef> {
    match &output.data {
        Data::Region(region) => Some(region),
        Data::Bytes(_) => None,
    }
}

/// Whether all tensors of a response are small or in the client's regions.
fn is_packable(response: &InferResponse) -> bool {
    response.outputs.iter().all(|output| match &output.data {
        Data::Bytes(bytes) => bytes.len() <= TENSOR_BYTES_MAX,
        // Memory of a device or a model is returned when the response was sent. In an outline it would stay in use
        // until the request ends.
        Data::Region(region) => region.is_shared(),
    })
}

/// A queue of records.
#[derive(Default)]
pub(crate) struct Packed {
    slabs: VecDeque<PackedSlab>,
    /// Bytes of the first slab whose records were taken.
    taken: usize,
    records: usize,
    /// Tag of the next record, kept because each push and each take needs it.
    front: Option<Tag>,
    /// Buffer in which a record is encoded.
    scratch: Vec<u8>,
}

struct PackedSlab {
    memory: SlabMut,
    /// Offset at which the records end.
    filled: usize,
    /// Offset at which the prepared pages end.
    prepared: usize,
}

impl Packed {
    pub(crate) fn len(&self) -> usize {
        self.records
    }

    /// Packs a response. Returns false, and changes nothing, if it cannot be packed or the system has no memory.
    pub(crate) fn push(&mut self, tag: Tag, answer: &EngineResponse, outlines: &Outlines) -> bool {
        self.scratch.clear();
        if !write(&mut self.scratch, tag, answer, outlines) || self.scratch.len() > RECORD_BYTES_MAX {
            return false;
        }
        let len = self.scratch.len();
        let has_room = |slab: &PackedSlab| slab.filled + LENGTH_BYTES + len <= slab.memory.len();
        if !self.slabs.back().is_some_and(has_room) {
            let bytes = if self.slabs.is_empty() { FIRST_SLAB_BYTES } else { SLAB_BYTES };
            let Ok(memory) = SlabPool::global().reserve(bytes) else { return false };
            self.slabs.push_back(PackedSlab { memory, filled: 0, prepared: 0 });
        }
        let Some(slab) = self.slabs.back_mut() else { return false };
        let end = slab.filled + LENGTH_BYTES + len;
        if end > slab.prepared {
            slab.prepared = slab.memory.len().min(slab.prepared + PREPARED_BYTES);
            slab.memory.window(0..slab.prepared);
        }
        let Some((head, record)) = slab.memory.window(slab.filled..end).split_first_chunk_mut() else { return false };
        *head = (len as u32).to_le_bytes();
        record.copy_from_slice(&self.scratch);
        slab.filled = end;
        self.records += 1;
        self.front.get_or_insert(tag);
        true
    }

    /// Tag of the next record.
    pub(crate) fn front(&self) -> Option<Tag> {
        self.front
    }

    fn front_record(&self) -> Option<&[u8]> {
        let slab = self.slabs.front()?;
        let (head, rest) = slab.memory.get(self.taken..slab.filled)?.split_first_chunk()?;
        rest.get(..u32::from_le_bytes(*head) as usize)
    }

    /// Takes the next record as a response. `outlines` are those of its request.
    pub(crate) fn take(&mut self, outlines: Option<&Outlines>) -> Option<EngineResponse> {
        let record = self.front_record()?;
        let taken = LENGTH_BYTES + record.len();
        // Cannot happen: `push` wrote the record.
        let broken =
            || EngineResponse::only(Err(Error::internal("a response that waited cannot be read; please report it")));
        let answer = read(record, outlines).unwrap_or_else(broken);
        self.taken += taken;
        self.records -= 1;
        if self.records == 0 {
            // A reader that has caught up holds no slabs.
            *self = Self::default();
            return Some(answer);
        }
        if self.slabs.front().is_some_and(|slab| self.taken >= slab.filled) {
            self.slabs.pop_front();
            self.taken = 0;
        }
        self.front = self.front_record().and_then(read_tag);
        Some(answer)
    }

    /// Drops all records, on another thread if they are many.
    pub(crate) fn discard(self) {
        let bytes = self.slabs.iter().map(|slab| slab.prepared).sum();
        reclaim::drop_later(bytes, self.slabs);
    }
}

/// Initial capacity for a record. Records of small responses are not larger.
const RECORD_BYTES_USUAL: usize = 256;
/// Size of the tag at the beginning of a record.
const TAG_BYTES: usize = 4 * size_of::<u64>();
/// Size of the length in front of a record.
const LENGTH_BYTES: usize = size_of::<u32>();

/// Kinds of records.
mod kind {
    pub(super) const NOTHING: u8 = 0;
    pub(super) const RESPONSE: u8 = 1;
    pub(super) const ERROR: u8 = 2;
}

/// Types of parameters.
mod parameter {
    pub(super) const BOOL: u8 = 0;
    pub(super) const INT: u8 = 1;
    pub(super) const STRING: u8 = 2;
    pub(super) const DOUBLE: u8 = 3;
}

fn write(to: &mut Vec<u8>, tag: Tag, answer: &EngineResponse, outlines: &Outlines) -> bool {
    to.reserve(RECORD_BYTES_USUAL);
    for word in [tag.number, tag.key.into(), tag.came_ns, tag.bytes as u64] {
        to.extend_from_slice(&word.to_ne_bytes());
    }
    to.put_u8(answer.is_final.into());
    let response = match &answer.response {
        None => {
            to.put_u8(kind::NOTHING);
            return true;
        }
        Some(Err(error)) => {
            to.put_u8(kind::ERROR);
            to.put_slice(&[error.code() as u8, error.fault() as u8, error.is_retryable().into()]);
            write_bytes(to, error.message().as_bytes());
            return true;
        }
        Some(Ok(response)) => response,
    };
    if !is_packable(response) {
        return false;
    }
    let Some(outline) = outlines.find_or_add(response) else { return false };
    to.put_u8(kind::RESPONSE);
    to.put_u8(outline);
    to.put_u32_ne(response.parameters.len() as u32);
    for (name, value) in &response.parameters {
        write_bytes(to, name.as_bytes());
        match value {
            Parameter::Bool(value) => to.put_slice(&[parameter::BOOL, (*value).into()]),
            Parameter::Int(value) => {
                to.put_u8(parameter::INT);
                to.put_i64_ne(*value);
            }
            Parameter::String(value) => {
                to.put_u8(parameter::STRING);
                write_bytes(to, value.as_bytes());
            }
            Parameter::Double(value) => {
                to.put_u8(parameter::DOUBLE);
                to.put_f64_ne(*value);
            }
        }
    }
    for output in &response.outputs {
        to.put_u32_ne(output.shape.len() as u32);
        output.shape.iter().for_each(|&dim| to.put_i64_ne(dim));
        if let Data::Bytes(bytes) = &output.data {
            write_bytes(to, bytes);
        }
        if to.len() > RECORD_BYTES_MAX {
            return false;
        }
    }
    true
}

fn write_bytes(to: &mut Vec<u8>, bytes: &[u8]) {
    to.put_u32_ne(bytes.len() as u32);
    to.put_slice(bytes);
}

fn read_tag(record: &[u8]) -> Option<Tag> {
    let (words, _) = record.first_chunk::<TAG_BYTES>()?.as_chunks();
    let &[number, key, came_ns, bytes] = words else { return None };
    let [number, key, came_ns, bytes] = [number, key, came_ns, bytes].map(u64::from_ne_bytes);
    Some(Tag { number, key: u32::try_from(key).ok()?, came_ns, bytes: bytes as usize })
}

fn read(record: &[u8], outlines: Option<&Outlines>) -> Option<EngineResponse> {
    let from = &mut record.get(TAG_BYTES..)?;
    let is_final = from.try_get_u8().ok()? != 0;
    let response = match from.try_get_u8().ok()? {
        kind::NOTHING => None,
        kind::ERROR => {
            let code = *Code::ALL.get(usize::from(from.try_get_u8().ok()?))?;
            let fault = *Fault::ALL.get(usize::from(from.try_get_u8().ok()?))?;
            let is_retryable = from.try_get_u8().ok()? != 0;
            let text = str::from_utf8(read_bytes(from)?).ok()?.to_owned();
            Some(Err(Error::new(code, text).by(fault).retry(is_retryable)))
        }
        _ => {
            let outline = from.try_get_u8().ok()?;
            Some(Ok(Box::new(outlines?.with(outline, |outline| read_response(from, outline))?)))
        }
    };
    Some(EngineResponse { response, is_final })
}

fn read_response(from: &mut &[u8], outline: &Outline) -> Option<InferResponse> {
    let count = from.try_get_u32_ne().ok()?;
    let parameters = (0..count).map(|_| Some((read_name(from)?, read_parameter(from)?))).collect::<Option<_>>()?;
    let output = |known: &OutputOutline| {
        let dims = from.try_get_u32_ne().ok()?;
        let shape = (0..dims).map(|_| from.try_get_i64_ne().ok()).collect::<Option<Shape>>()?;
        let data = match &known.region {
            Some(region) => Data::Region(region.clone()),
            None => Data::Bytes(Bytes::copy_from_slice(read_bytes(from)?)),
        };
        let (name, form) = (known.name.clone(), known.form);
        Some(OutputTensor { name, index: known.index, datatype: known.datatype, shape, data, form })
    };
    let outputs = outline.outputs.iter().map(output).collect::<Option<_>>()?;
    Some(InferResponse {
        model_name: outline.model_name.clone(),
        model_version: outline.model_version.clone(),
        id: outline.id.clone(),
        parameters,
        outputs,
    })
}

fn read_parameter(from: &mut &[u8]) -> Option<Parameter> {
    Some(match from.try_get_u8().ok()? {
        parameter::BOOL => Parameter::Bool(from.try_get_u8().ok()? != 0),
        parameter::INT => Parameter::Int(from.try_get_i64_ne().ok()?),
        parameter::STRING => Parameter::String(read_name(from)?),
        _ => Parameter::Double(from.try_get_f64_ne().ok()?),
    })
}

fn read_name(from: &mut &[u8]) -> Option<Name> {
    Name::from_utf8(Bytes::copy_from_slice(read_bytes(from)?)).ok()
}

fn read_bytes<'a>(from: &mut &'a [u8]) -> Option<&'a [u8]> {
    let len = from.try_get_u32_ne().ok()? as usize;
    let (bytes, rest) = from.split_at_checked(len)?;
    *from = rest;
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use smallvec::smallvec;

    fn response(number: usize, bytes: usize) -> InferResponse {
        let output = |name: &'static str, data| OutputTensor {
            name: name.into(),
            index: number as u16 % 2,
            datatype: DataType::Uint8,
            shape: smallvec![1, bytes as i64],
            data,
            form: OutputForm { binary: true, ..OutputForm::default() },
        };
        let parameters = vec![
            ("is_final".into(), Parameter::Bool(true)),
            ("count".into(), Parameter::Int(-(number as i64))),
            ("text".into(), Parameter::String(format!("é{number}").into())),
            ("score".into(), Parameter::Double(0.5)),
        ];
        InferResponse {
            model_name: "model".into(),
            model_version: "1".into(),
            id: "request".into(),
            parameters: if number.is_multiple_of(3) { parameters } else { Vec::new() },
            outputs: smallvec![
                output("OUT", Bytes::from(vec![number as u8; bytes]).into()),
                output("MORE", Data::empty())
            ],
        }
    }

    fn tag(number: u64) -> Tag {
        Tag { number, key: 7, came_ns: 10 * number, bytes: 512 }
    }

    fn answer(response: InferResponse) -> EngineResponse {
        EngineResponse { response: Some(Ok(Box::new(response))), is_final: false }
    }

    #[test]
    fn responses_are_taken_unchanged_and_in_order() {
        let (mut packed, outlines) = (Packed::default(), Outlines::default());
        let (mut put, mut taken) = (0, 0);
        // Behind, far behind over several slabs, caught up, and behind again.
        for (puts, takes) in [(10, 3), (5000, 200), (0, 4807), (9, 9)] {
            for _ in 0..puts {
                let made = match put % 5 {
                    3 => EngineResponse { response: Some(Err(Error::not_found(format!("no {put}")))), is_final: false },
                    4 => EngineResponse { response: None, is_final: true },
                    _ => answer(response(put, put % 900)),
                };
                assert!(packed.push(tag(put as u64), &made, &outlines), "{put}");
                put += 1;
            }
            for _ in 0..takes {
                assert_eq!(packed.front(), Some(tag(taken as u64)));
                let came = packed.take(Some(&outlines)).expect("an answer");
                assert_eq!(came.is_final, taken % 5 == 4);
                match came.response {
                    Some(Ok(came)) => assert_eq!(format!("{came:?}"), format!("{:?}", response(taken, taken % 900))),
                    Some(Err(error)) => assert_eq!(error, Error::not_found(format!("no {taken}"))),
                    None => assert_eq!(taken % 5, 4),
                }
                taken += 1;
            }
            assert_eq!(packed.len(), put - taken);
        }
        assert!(packed.front().is_none() && packed.take(Some(&outlines)).is_none() && packed.slabs.is_empty());
    }

    #[test]
    fn large_responses_and_those_of_too_many_kinds_are_not_packed() {
        let (mut packed, outlines) = (Packed::default(), Outlines::default());
        assert!(packed.push(tag(0), &answer(response(0, TENSOR_BYTES_MAX)), &outlines));
        assert!(!packed.push(tag(1), &answer(response(0, TENSOR_BYTES_MAX + 1)), &outlines));
        let long =
            |length| EngineResponse { response: Some(Err(Error::internal("x".repeat(length)))), is_final: false };
        assert!(packed.push(tag(1), &long(4000), &outlines));
        let named = |name: usize| answer(InferResponse { id: name.to_string().into(), ..response(0, 1) });
        for name in 1..OUTLINES_MAX {
            assert!(packed.push(tag(1), &named(name), &outlines), "{name}");
        }
        assert!(!packed.push(tag(1), &named(OUTLINES_MAX), &outlines));
        assert_eq!(packed.len(), 1 + OUTLINES_MAX);
    }
}
