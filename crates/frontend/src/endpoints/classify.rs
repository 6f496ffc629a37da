//! `POST /classify` and `/v1/classify`: vLLM's form.

use super::*;
use crate::text_errors::new_id;
use protocol::text::openai::{ClassifyAnswer, ClassifyItem, ClassifyRequest, Usage};
use protocol::text::{self, Role};

pub static ENDPOINT: TextEndpoint = TextEndpoint {
    facts: &Facts::text("classify", ErrorForm::OpenAi),
    answer: |exchange, body| Box::pin(answer(exchange, body)),
};

pub async fn answer(exchange: &HttpExchange<'_>, body: Bytes) -> TextResult {
    let (form, _charge) = text_calls::read::<ClassifyRequest>(exchange, body).await?;
    let options = form.options()?;
    let texts = text_calls::some(form.input, "input")?;
    let target = text_calls::find(exchange, form.model.as_deref(), &[Role::Classify])?;
    let Ran { rows, tokens, .. } = target.run(exchange, texts, &options).await?;
    let (model, version, values) = (target.name, target.version.clone(), rows.bytes());
    let print = move || {
        let labels = version.text_facts().map_or(&[][..], |facts| &facts.labels);
        let mut data = Vec::new();
        for (index, probs) in rows.finite()?.into_iter().enumerate() {
            let values = probs.values().enumerate();
            // The first of equal ones, as numpy's argmax.
            let greatest = values.reduce(|left, right| if right.1 > left.1 { right } else { left });
            let label = label(labels, greatest.map_or(0, |(at, _)| at));
            data.push(ClassifyItem { index, label, probs, num_classes: probs.values().len() });
        }
        let (id, created, usage) = (&*new_id("classify"), unix_secs(), Usage::of(tokens));
        let answer = ClassifyAnswer { id, object: "list", created, model: &model, data, usage };
        text::print(&answer, text_calls::printed_bytes(values, false))
    };
    text_calls::answered(exchange, values, print).await
}

/// Name of a class; Hugging Face's for one without.
pub fn label(labels: &[String], class: usize) -> String {
    labels.get(class).cloned().unwrap_or_else(|| format!("LABEL_{class}"))
}
