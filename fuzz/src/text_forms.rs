//! Bodies of the text endpoints: what is read is a tensor whose elements are those of the body, and pairs of them.

use protocol::text::cohere::{EmbedRequest, RerankRequest};
use protocol::text::openai::{ClassifyRequest, EmbeddingsRequest, ScoreRequest};
use protocol::text::tei::InputsRequest;
use protocol::text::{TEXTS_MAX, Texts, only, read};

/// Bytes of pairs: small enough to be reached.
const PAIRS_BYTES_MAX: usize = 1 << 16;

/// The first byte chooses a form; the rest is the body.
pub fn text_forms(data: &[u8]) -> bool {
    let Some((&form, body)) = data.split_first() else { return false };
    let _ = only(body, &EmbeddingsRequest::TRITON_FIELDS);
    match form % 6 {
        0 => read::<EmbeddingsRequest>(body).map(|form| {
            let _ = form.options();
            texts(form.input, body);
        }),
        1 => read::<ClassifyRequest>(body).map(|form| {
            let _ = form.options();
            texts(form.input, body);
        }),
        2 => read::<ScoreRequest>(body).map(|form| {
            let _ = form.options();
            pairs(form.text_1, form.text_2);
        }),
        3 => read::<EmbedRequest>(body).map(|form| {
            let _ = (form.options(), form.types());
            texts(form.texts, body);
        }),
        4 => read::<RerankRequest>(body).map(|form| {
            let _ = (form.options(), form.results(7));
            let query = form.query.map(|query| Texts::from(&*query));
            pairs(query, form.documents.or(form.texts));
        }),
        _ => read::<InputsRequest>(body).map(|form| {
            let _ = form.options();
            texts(form.inputs, body);
        }),
    }
    .is_ok()
}

/// The elements of a tensor: each ends where the next begins, and has the length that it says.
fn check(texts: Texts, per: usize) -> usize {
    let (is_text, count) = (!texts.has_ids, texts.len());
    let (raw, ends) = texts.into_tensor();
    let (mut begin, mut elements) = (0, 0usize);
    while begin < raw.len() {
        let length = u32::from_le_bytes(*raw[begin..].first_chunk().expect("a length")) as usize;
        let element = &raw[begin + 4..begin + 4 + length];
        assert!(if is_text { std::str::from_utf8(element).is_ok() } else { length.is_multiple_of(4) });
        begin += 4 + length;
        elements += 1;
        assert!(!elements.is_multiple_of(per) || ends[elements / per - 1] == begin);
    }
    assert!(elements == count * per && ends.len() == count && count <= TEXTS_MAX);
    raw.len()
}

fn texts(texts: Option<Texts>, body: &[u8]) {
    let Some(texts) = texts else { return };
    if !texts.has_ids {
        assert_eq!(texts.iter().count(), texts.len());
    }
    // The shortest text and the shortest id have two bytes of JSON.
    assert!(check(texts, 1) <= 4 * body.len() + 4);
}

fn pairs(first: Option<Texts>, second: Option<Texts>) {
    let (Some(mut first), Some(second)) = (first, second) else { return };
    if first.has_ids || second.has_ids {
        return;
    }
    if let Ok(pairs) = first.pairs(&second, PAIRS_BYTES_MAX) {
        assert!(check(pairs, 2) <= PAIRS_BYTES_MAX);
    }
    let count = first.len() + second.len();
    first.extend(&second).expect("memory");
    assert_eq!(first.len(), count);
}
