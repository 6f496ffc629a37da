//! A request as texts, and the rows of its response.

use super::core::TextCore;
use super::request::Wishes;
use backend::gather::{batch_slab, frozen, own_strings};
use backend::{BatchEntry, Division, Outcome, PreparedText, scatter};
use memory::{Charge, SlabMut};
use parking_lot::Mutex;
use protocol::text::parameters::TOKENS;
use protocol::text::{Role, TEXTS_MAX, TokenIds};
use protocol::{Checked, InferRequest, InferResponse, Parameter};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use tensor::strings::Lengths;
use tensor::{Data, DataType, Error, Result, Shape};
use text::pooling::normalize;
use text::tokenizer::Tokens;

/// Maximum tokens of all texts of a request. A small model runs some 10,000 in a second on a core.
const REQUEST_TOKENS_MAX: u64 = 4_000_000;

pub(super) struct Texts {
    core: Arc<TextCore>,
    wishes: Wishes,
    raw: Data,
    /// Start and length of each element of `raw`.
    elements: Vec<(usize, usize)>,
    texts: u32,
    /// Where and how the client wants the output; without inputs.
    reply: BatchEntry,
    rows: Mutex<Rows>,
    tokens: AtomicU64,
}

/// The output, and the number of its rows that are not written yet.
struct Rows {
    slab: Option<(SlabMut, Option<Charge>)>,
    missing: u32,
}

impl Texts {
    pub(super) fn divide(core: &Arc<TextCore>, request: &InferRequest, checked: &Checked) -> Result<Self> {
        let wishes = Wishes::read(core, &request.parameters)?;
        let input = checked.inputs.iter().position(|&index| index == 0).and_then(|at| request.inputs.get(at));
        let input = input.ok_or_else(|| Error::internal("a request to a text model has no texts"))?;
        let raw = own_strings(input, &core.signature)?;
        let (mut elements, mut at) = (Vec::new(), 0);
        for len in Lengths::new(&raw) {
            let len = len.map_err(|_| Error::internal("the texts of a request were not checked"))?;
            elements.push((at + 4, len));
            at += 4 + len;
        }
        let texts = elements.len() / (1 + usize::from(core.has_pairs));
        if texts > TEXTS_MAX {
            return Err(Error::invalid(format!(
                "the request has {texts} texts for model '{}', the limit is {TEXTS_MAX}: send several requests",
                core.signature.model
            )));
        }
        let mut reply = BatchEntry::default();
        reply.request.default_form = request.default_form;
        reply.request.outputs = request.outputs.clone();
        reply.checked.outputs = checked.outputs.clone();
        let slab = Some(batch_slab(texts * wishes.width * size_of::<f32>())?);
        // `TEXTS_MAX` fits.
        let texts = u32::try_from(texts).unwrap_or(u32::MAX);
        let rows = Mutex::new(Rows { slab, missing: texts });
        Ok(Self { core: Arc::clone(core), wishes, raw, elements, texts, reply, rows, tokens: AtomicU64::new(0) })
    }

    fn element(&self, at: usize) -> Result<&[u8]> {
        let bytes = self.elements.get(at).and_then(|&(start, len)| self.raw.host()?.get(start..start + len));
        bytes.ok_or_else(|| Error::internal("the request has no text with this index"))
    }

    fn encode(&self, text: usize) -> Result<Tokens> {
        let Self { core, wishes, .. } = self;
        let of = |at| {
            let read = |e| Error::invalid(format!("it is not UTF-8: {e}"));
            self.element(at).and_then(|bytes| str::from_utf8(bytes).map_err(read))
        };
        let encode = |text: &str, pair| {
            let prompted = (!wishes.prompt.is_empty()).then(|| [&wishes.prompt, text].concat());
            core.tokenizer.encode(prompted.as_deref().unwrap_or(text), pair, wishes.truncation)
        };
        let Some(kind) = wishes.token_ids else {
            return if core.has_pairs {
                encode(of(2 * text)?, Some(of(2 * text + 1)?))
            } else {
                encode(of(text)?, None)
            };
        };
        let (ids, rest) = self.element(text)?.as_chunks::<4>();
        if !rest.is_empty() {
            return Err(Error::invalid("token ids are little-endian integers of 4 bytes"));
        }
        let ids: Vec<u32> = ids.iter().map(|id| u32::from_le_bytes(*id)).collect();
        match kind {
            TokenIds::Undeclared | TokenIds::Own => {
                core.tokenizer.own_ids(&ids, kind == TokenIds::Own, wishes.truncation)
            }
            other => encode(&text::ranks::decode(other, &ids)?, None),
        }
    }

    /// The row of a response, as the client gets it.
    fn row(&self, response: &InferResponse) -> Result<Vec<f32>> {
        let Self { core, wishes, .. } = self;
        let width = i64::try_from(core.width).unwrap_or(i64::MAX);
        let output = response.outputs.first().filter(|o| o.datatype == DataType::Fp32 && o.shape[..] == [1, width]);
        let bytes = output.and_then(|o| o.data.host());
        let bytes = bytes.ok_or_else(|| Error::internal("the row of a text differs from what its model declares"))?;
        let mut row: Vec<f32> = bytes.as_chunks::<4>().0.iter().map(|value| f32::from_le_bytes(*value)).collect();
        if let Some(found) = row.iter().find(|value| !value.is_finite()) {
            let model = &core.signature.model;
            return Err(Error::internal(format!("model '{model}' returned {found}")).by_model());
        }
        match core.facts.role {
            Role::Embed => {
                row.truncate(wishes.width);
                if wishes.normalizes {
                    normalize(&mut row);
                }
            }
            Role::Rerank | Role::Classify if !wishes.is_raw => core.folder.activation.apply(&mut row),
            Role::Rerank | Role::Classify => {}
        }
        Ok(row)
    }

    /// Names the text in an error of a request that has several.
    fn of_text(&self, text: u32, error: Error) -> Error {
        if self.texts == 1 { error } else { error.prefixed(format_args!("text {text} of the request: ")) }
    }
}

impl Division for Texts {
    fn texts(&self) -> u32 {
        self.texts
    }

    fn bytes(&self) -> usize {
        self.raw.len()
    }

    fn prepare(&self, text: u32) -> Result<PreparedText> {
        let tokens = self.encode(text as usize).map_err(|e| self.of_text(text, e))?;
        if tokens.ids.is_empty() {
            return Err(self.of_text(text, Error::invalid("it has no tokens")));
        }
        count(&self.tokens, tokens.ids.len() as u64, &self.core.signature.model)?;
        Ok(self.core.inputs(&tokens))
    }

    fn put(&self, text: u32, response: &InferResponse) -> Result<()> {
        let row = self.row(response).map_err(|e| self.of_text(text, e))?;
        let len = row.len() * size_of::<f32>();
        let mut rows = self.rows.lock();
        let slab = rows.slab.as_mut().and_then(|(slab, _)| slab.get_mut(text as usize * len..));
        let place = slab.and_then(|rest| rest.get_mut(..len));
        let place = place.ok_or_else(|| Error::internal("the request has no text with this index"))?;
        for (to, value) in place.as_chunks_mut::<4>().0.iter_mut().zip(&row) {
            *to = value.to_le_bytes();
        }
        rows.missing = rows.missing.saturating_sub(1);
        Ok(())
    }

    fn join(&self) -> Result<Outcome> {
        let mut rows = self.rows.lock();
        let slab = if rows.missing == 0 { rows.slab.take() } else { None };
        let (slab, charge) = slab.ok_or_else(|| Error::internal("a request was joined before its texts had rows"))?;
        let data = Data::Bytes(frozen(slab, charge));
        let mut outcome = Outcome::default();
        let shape = [i64::from(self.texts), i64::try_from(self.wishes.width).unwrap_or(i64::MAX)];
        if let (Some(&wanted), Some(spec)) = (self.reply.checked.outputs.first(), self.core.signature.outputs.first()) {
            outcome.outputs.push(scatter::output(&self.reply, spec, wanted, Shape::from_slice(&shape), data)?);
        }
        if self.wishes.has_usage {
            let tokens = i64::try_from(self.tokens.load(Relaxed)).unwrap_or(i64::MAX);
            outcome.parameters.push((TOKENS.into(), Parameter::Int(tokens)));
        }
        Ok(outcome)
    }
}

/// Adds the tokens of a text to those of its request.
fn count(tokens: &AtomicU64, more: u64, model: &str) -> Result<()> {
    if tokens.fetch_add(more, Relaxed).saturating_add(more) <= REQUEST_TOKENS_MAX {
        return Ok(());
    }
    Err(Error::invalid(format!(
        "the texts of a request have more than {REQUEST_TOKENS_MAX} tokens (the limit) for model '{model}': send \
         several requests"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tokens_of_a_request_are_limited() {
        let tokens = AtomicU64::new(0);
        assert_eq!(count(&tokens, REQUEST_TOKENS_MAX, "m"), Ok(()));
        let more = count(&tokens, 1, "m").expect_err("one too many");
        assert!(more.message().contains("more than 4000000 tokens (the limit) for model 'm'"), "{more}");
    }
}
