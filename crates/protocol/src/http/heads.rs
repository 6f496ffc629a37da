//! A cache of parsed JSON heads. Clients with binary tensors send the same head again and again, and parsing it is most
//! of the work of such a request (1.9 of 2.1 µs for two small inputs): a known head is compared, and its parsed form is
//! copied. Often only the id differs, so an id in front is not compared but read from the request: 36,000 → 14,000
//! instructions for a small request with its own id.
//!
//! Only heads that mean the same in every request are kept: without tensor data and shared memory.
//! Invariant: a known head is identified by all bytes behind the id; equal bytes mean equal requests, apart from id and
//! tensor data.

use super::replies::{ReplyHeads, hash_of, owned};
use super::{HttpInferBody, Limits, parse_infer};
use crate::infer::{InferRequest, InferResponse, InputTensor, Regions, RequestedOutput};
use crate::json::special;
use crate::signature::Signature;
use bytes::Bytes;
use smallvec::SmallVec;
use std::ops::Range;
use tensor::{Data, Name, Result};

/// Most known heads. A reactor that serves more kinds of requests at the same time parses some of them again.
const ENTRIES: usize = 64;
/// Bytes of the longest known head; longer ones are rare and would use much memory.
const HEAD_BYTES_MAX: usize = 2048;
/// Number of remembered hashes. A head is kept the second time it occurs, so that heads with ids do not evict others.
const SEEN: usize = 256;

/// Known heads, for one thread; a few hundred KiB at most.
pub struct HeadCache {
    entries: Vec<Option<KnownHead>>,
    seen: Box<[u64; SEEN]>,
    replies: ReplyHeads,
}

struct KnownHead {
    hash: u64,
    head: Bytes,
    /// Start of the compared part of the head.
    from: usize,
    /// The request without tensor data.
    request: InferRequest,
    /// Bytes of each input, in order.
    sizes: SmallVec<[usize; 4]>,
    total: usize,
}

impl Default for HeadCache {
    fn default() -> Self {
        Self {
            entries: (0..ENTRIES).map(|_| None).collect(),
            seen: Box::new([0; SEEN]),
            replies: ReplyHeads::default(),
        }
    }
}

impl HeadCache {
    /// Number of known heads.
    pub fn len(&self) -> usize {
        self.entries.iter().flatten().count()
    }

    /// True if no head is known.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Parses a body as [`parse_infer`] does, and caches its head.
    ///
    /// # Errors
    /// INVALID_ARG or INTERNAL, with the texts of P 1.12 and 1.14.
    pub fn parse_infer(
        &mut self,
        body: &Bytes,
        header_length: Option<usize>,
        signature: &Signature,
        regions: &dyn Regions,
        limits: &Limits,
    ) -> Result<Box<InferRequest>> {
        let head = header_length.filter(|n| (1..=HEAD_BYTES_MAX).contains(n)).and_then(|n| body.get(..n));
        let Some(head) = head else {
            return parse_infer(body, header_length, signature, regions, limits).map(Box::new);
        };
        let id = leading_id(head);
        let from = id.as_ref().map_or(0, |id| id.end);
        let rest = head.get(from..).unwrap_or_default();
        let hash = hash_of(rest);
        let slot = hash as usize % ENTRIES;
        if let Some(Some(entry)) = self.entries.get(slot)
            && entry.hash == hash
            && entry.rest() == rest
            && entry.total == body.len() - head.len()
            && head.len() <= limits.input_bytes_max
        {
            return Ok(Box::new(entry.instantiate(body, head.len(), id)));
        }
        let request = Box::new(parse_infer(body, header_length, signature, regions, limits)?);
        let seen = &mut self.seen[hash as usize / ENTRIES % SEEN];
        if *seen != hash {
            *seen = hash;
        } else if let Some(entry) = KnownHead::new(hash, head, from, body, &request)
            && let Some(free) = self.entries.get_mut(slot)
        {
            *free = Some(entry);
        }
        Ok(request)
    }

    /// Writes a response as [`encode_infer`](super::encode_infer) does, and caches its head.
    ///
    /// # Errors
    /// FP16 or BF16 as JSON, an impossible classification, contents that do not match their shape.
    pub fn encode_infer(&mut self, response: &InferResponse, signature: &Signature) -> Result<HttpInferBody> {
        self.replies.encode(response, signature)
    }
}

/// Range of the id's text if a head begins with the id and nothing in it is escaped. The first of two ids counts.
fn leading_id(head: &[u8]) -> Option<Range<usize>> {
    let start = [&b"{\"id\":\""[..], b"{\"id\": \""].into_iter().find(|p| head.starts_with(p))?.len();
    let end = start + special(head.get(start..)?);
    (head.get(end) == Some(&b'"')).then_some(start..end)
}

impl KnownHead {
    fn rest(&self) -> &[u8] {
        self.head.get(self.from..).unwrap_or_default()
    }

    fn new(hash: u64, head: &[u8], from: usize, body: &Bytes, request: &InferRequest) -> Option<Self> {
        // A copy, because a view would keep the whole body with its tensors.
        let own = Bytes::copy_from_slice(head);
        let mut at = head.len();
        let mut sizes = SmallVec::new();
        for input in &request.inputs {
            let Data::Bytes(data) = &input.data else { return None };
            // JSON data in the head is not a view of the binary part; an empty tensor is the same in both forms.
            if !data.is_empty() && range_in(body, data)? != (at..at + data.len()) {
                return None;
            }
            at += data.len();
            sizes.push(data.len());
        }
        if request.outputs.iter().any(|o| o.region.is_some()) {
            return None;
        }
        let name = |name: &Name| match range_in(body, name.bytes()) {
            Some(range) if range.end <= own.len() => Name::from_utf8(own.slice(range)).ok(),
            _ => Some(name.clone()),
        };
        let template = InferRequest {
            id: name(&request.id)?,
            inputs: request
                .inputs
                .iter()
                .map(|i| {
                    let (datatype, shape) = (i.datatype, i.shape.clone());
                    Some(InputTensor { name: name(&i.name)?, datatype, shape, data: Data::empty() })
                })
                .collect::<Option<_>>()?,
            outputs: request
                .outputs
                .iter()
                .map(|o| Some(RequestedOutput { name: name(&o.name)?, form: o.form, region: None }))
                .collect::<Option<_>>()?,
            default_form: request.default_form,
            // Keys and values may be views too; they are copied, because parameters are few.
            parameters: request.parameters.iter().map(|(k, v)| Some((name(k)?, owned(v)))).collect::<Option<_>>()?,
            sequence: request.sequence.clone(),
            priority: request.priority,
            timeout_us: request.timeout_us,
            trace: None,
            depth: 0,
            sends_regions: false,
        };
        let is_view = |id: &crate::CorrelationId| matches!(id, crate::CorrelationId::String(s) if !s.is_empty());
        if is_view(&template.sequence.id) {
            return None;
        }
        Some(Self { hash, head: own, from, request: template, total: at - head.len(), sizes })
    }

    #[inline]
    fn instantiate(&self, body: &Bytes, head_bytes: usize, id: Option<Range<usize>>) -> InferRequest {
        let t = &self.request;
        let mut at = head_bytes;
        InferRequest {
            id: match id {
                Some(id) if !id.is_empty() => Name::from_utf8_lossy(body.slice(id)),
                Some(_) => Name::default(),
                None => t.id.clone(),
            },
            inputs: t
                .inputs
                .iter()
                .zip(&self.sizes)
                .map(|(i, &size)| {
                    // In bounds: `total` was compared with the length of the body.
                    let data = Data::Bytes(body.slice(at..at + size));
                    at += size;
                    InputTensor { name: i.name.clone(), datatype: i.datatype, shape: i.shape.clone(), data }
                })
                .collect(),
            outputs: t.outputs.clone(),
            default_form: t.default_form,
            parameters: t.parameters.clone(),
            sequence: t.sequence.clone(),
            priority: t.priority,
            timeout_us: t.timeout_us,
            trace: None,
            depth: 0,
            sends_regions: false,
        }
    }
}

/// Range of `part` in `whole`, if it is a view of it.
fn range_in(whole: &[u8], part: &[u8]) -> Option<Range<usize>> {
    let start = (part.as_ptr() as usize).checked_sub(whole.as_ptr() as usize)?;
    let end = start.checked_add(part.len())?;
    (end <= whole.len()).then_some(start..end)
}
