//! A cache of the JSON heads of responses. Responses of a model differ in id and data, seldom in anything else: a known
//! head is compared and copied, which takes a quarter of the instructions of printing it.
//!
//! Only responses whose outputs are all short, binary and in memory are kept; [`encode_infer`] prints the others.
//! Invariant: the result equals that of `encode_infer`.

use super::encode::{HttpInferBody, INLINE_BYTES_MAX, encode_infer, put_front};
use crate::infer::{InferResponse, OutputTensor, Parameter};
use crate::signature::Signature;
use smallvec::SmallVec;
use tensor::{Data, DataType, Name, Result, Shape, allowance};

/// Number of known heads.
const ENTRIES: usize = 64;
/// Bytes of the longest known head and of the longest id before one.
const HEAD_BYTES_MAX: usize = 2048;

/// Bytes before a known head beside the id, unless the id has escapes.
const FRONT_BYTES: usize = r#"{"id":"","#.len();

/// Known heads, for one thread; 200 KiB at most.
pub(super) struct ReplyHeads(Box<[Slot; ENTRIES]>);

#[derive(Default)]
struct Slot {
    /// Hash of the last response that was not known: a head is kept the second time it occurs.
    seen: u64,
    known: Option<KnownReply>,
}

struct KnownReply {
    model_name: Name,
    model_version: Name,
    parameters: Vec<(Name, Parameter)>,
    outputs: SmallVec<[(Name, DataType, Shape, usize); 2]>,
    /// The head behind the id, from `"model_name"` on.
    text: Box<[u8]>,
}

impl Default for ReplyHeads {
    fn default() -> Self {
        Self(Box::new(std::array::from_fn(|_| Slot::default())))
    }
}

impl ReplyHeads {
    /// Writes a response as [`encode_infer`] does.
    ///
    /// # Errors
    /// FP16 or BF16 as JSON, an impossible classification, contents that do not match their shape.
    pub(super) fn encode(&mut self, response: &InferResponse, signature: &Signature) -> Result<HttpInferBody> {
        let Some((hash, bytes)) = summary(response) else { return encode_infer(response, signature) };
        let slot = &mut self.0[hash as usize % ENTRIES];
        if let Some(known) = slot.known.as_ref().filter(|known| known.is_of(response)) {
            return known.body(response, bytes);
        }
        let body = encode_infer(response, signature)?;
        if std::mem::replace(&mut slot.seen, hash) == hash {
            slot.known = KnownReply::new(response, &body);
        }
        Ok(body)
    }
}

/// The data of an output that may follow a known head.
#[inline]
fn short(output: &OutputTensor) -> Option<&[u8]> {
    match &output.data {
        Data::Bytes(data)
            if output.form.binary
                && output.form.classification == 0
                && (1..=INLINE_BYTES_MAX).contains(&data.len()) =>
        {
            Some(data)
        }
        _ => None,
    }
}

/// Hash of what a head depends on, roughly, and bytes of all outputs; `None` if the head is never kept.
#[inline]
fn summary(response: &InferResponse) -> Option<(u64, usize)> {
    if response.outputs.is_empty() || response.id.len() > HEAD_BYTES_MAX {
        return None;
    }
    let (mut hash, mut bytes) = (hash_of(response.model_name.bytes()), 0);
    for output in &response.outputs {
        let length = short(output)?.len();
        bytes += length;
        let first = output.shape.first().map_or(0, |&dim| dim as u64);
        hash = (hash.rotate_left(5) ^ (length as u64) << 20 ^ first).wrapping_mul(0x517c_c1b7_2722_0a95);
    }
    Some((hash ^ (hash >> 32), bytes))
}

/// Doubles by their bits: -0.0 is printed differently from 0.0.
fn is_same(a: &(Name, Parameter), b: &(Name, Parameter)) -> bool {
    a.0 == b.0
        && match (&a.1, &b.1) {
            (Parameter::Double(a), Parameter::Double(b)) => a.to_bits() == b.to_bits(),
            (a, b) => a == b,
        }
}

impl KnownReply {
    fn new(response: &InferResponse, body: &HttpInferBody) -> Option<Self> {
        let head = body.json.get(..body.inference_header_length?)?;
        let mut front = Vec::new();
        put_front(&mut front, &response.id);
        let text = head.get(front.len()..).filter(|text| text.len() <= HEAD_BYTES_MAX)?;
        let own = |name: &Name| Name::from(name.as_str());
        // Copies, because views would keep the bodies of requests.
        Some(Self {
            model_name: own(&response.model_name),
            model_version: own(&response.model_version),
            parameters: response.parameters.iter().map(|(key, value)| (own(key), owned(value))).collect(),
            outputs: response
                .outputs
                .iter()
                .map(|output| (own(&output.name), output.datatype, output.shape.clone(), output.data.len()))
                .collect(),
            text: text.into(),
        })
    }

    #[inline]
    fn is_of(&self, response: &InferResponse) -> bool {
        let is_it = |(known, output): (&(Name, DataType, Shape, usize), &OutputTensor)| {
            known.3 == output.data.len()
                && known.1 == output.datatype
                && known.2 == output.shape
                && known.0 == output.name
        };
        self.outputs.len() == response.outputs.len()
            && self.outputs.iter().zip(&response.outputs).all(is_it)
            && self.model_name == response.model_name
            && self.model_version == response.model_version
            && self.parameters.len() == response.parameters.len()
            && self.parameters.iter().zip(&response.parameters).all(|(a, b)| is_same(a, b))
    }

    #[inline]
    fn body(&self, response: &InferResponse, bytes: usize) -> Result<HttpInferBody> {
        let mut out = allowance::unasked(self.text.len() + bytes + response.id.len() + FRONT_BYTES)?;
        put_front(&mut out, &response.id);
        out.extend_from_slice(&self.text);
        let head = out.len();
        response.outputs.iter().filter_map(short).for_each(|data| out.extend_from_slice(data));
        Ok(HttpInferBody { json: out.into(), binary: SmallVec::new(), inference_header_length: Some(head) })
    }
}

/// The value with bytes of its own: a view would keep the body of a request.
pub(super) fn owned(value: &crate::Parameter) -> crate::Parameter {
    match value {
        crate::Parameter::String(s) => crate::Parameter::String(Name::from(s.as_str())),
        other => other.clone(),
    }
}

/// A fast hash; callers compare the bytes as well.
pub(super) fn hash_of(bytes: &[u8]) -> u64 {
    let mut hash = bytes.len() as u64;
    let mut mix = |word: u64| hash = (hash.rotate_left(5) ^ word).wrapping_mul(0x517c_c1b7_2722_0a95);
    let (words, rest) = bytes.as_chunks::<8>();
    words.iter().for_each(|w| mix(u64::from_le_bytes(*w)));
    rest.iter().for_each(|&b| mix(u64::from(b)));
    // The low bits select the slot, and the high bits are mixed better.
    hash ^ (hash >> 32)
}
