//! `POST /v1/embeddings`.

use super::*;
use crate::gate_error::OperationError;
use crate::hold;
use crate::http::inference::reject_draining;
use crate::inference::{self, Inference};
use crate::limits::PRINT_BYTES_ON_REACTOR_MAX;
use engine::ModelVersion;
use memory::{Charge, Kind};
use offload::CancelFlag;
use protocol::text::openai::{EmbeddingItem, EmbeddingsAnswer, EmbeddingsRequest, EncodingFormat, Usage};
use protocol::text::rows::{Embedding, Rows};
use protocol::text::{self, FormError, Role, TextFacts, TextOptions, Texts, TokenIds, parameters};
use protocol::{InferRequest, InferResponse, InputTensor, OutputForm, Parameter, RequestedOutput, Signature};
use serde::de::DeserializeOwned;
use smallvec::smallvec;
use std::collections::VecDeque;
use std::sync::Arc;
use tensor::{Data, DataType, Name, Shape};

/// Texts or token ids in, vectors out.
pub struct Embeddings;

impl Endpoint for Embeddings {
    fn facts(&self) -> &'static Facts {
        const { &Facts::read("embeddings", Category::Inference) }
    }

    fn reject_early(&self, exchange: &HttpExchange<'_>) -> Option<Reply> {
        reject_draining(exchange.context).err().map(|error| Reply::error(JSON, &error))
    }

    fn http<'a>(&'a self, exchange: &'a HttpExchange<'a>, body: RequestBody) -> HttpAnswer<'a> {
        later(answer(exchange, body.bytes))
    }
}

async fn answer(exchange: &HttpExchange<'_>, body: Bytes) -> Result<Bytes> {
    reject_draining(exchange.context)?;
    let (form, _charge) = read_form::<EmbeddingsRequest>(exchange, body).await?;
    let options = form.options()?;
    let model = form.model.ok_or_else(|| FormError::missing("model"))?;
    let texts = some(form.input, "input")?;
    let target = find(exchange, &model, &[Role::Embed])?;
    let (rows, tokens) = target.run(exchange, texts, 1, options).await?;
    let is_base64 = form.encoding_format == Some(EncodingFormat::Base64);
    let values = rows.bytes();
    let print = move || {
        let form = |row| if is_base64 { Embedding::Base64(row) } else { Embedding::Float(row) };
        let items = rows.finite()?.into_iter().enumerate();
        let data = items.map(|(index, row)| EmbeddingItem { object: "embedding", index, embedding: form(row) });
        let data = data.collect();
        let answer = EmbeddingsAnswer { object: "list", data, model: &model, usage: Usage::of(tokens) };
        text::print(&answer, printed_bytes(values, is_base64))
    };
    printed(exchange, values, print).await
}

/// Calls of a model for one request that run at a time.
const TEXT_CALLS_PENDING_MAX: usize = 16;

impl From<FormError> for OperationError {
    fn from(error: FormError) -> Self {
        let text = match error.field {
            Some(field) => format!("{field}: {}", error.text).into(),
            None => error.text,
        };
        Error::invalid(text).into()
    }
}

/// Reads a body, on another thread if it is long. The charge is for what was made of it.
pub async fn read_form<T: DeserializeOwned + Send + 'static>(
    exchange: &HttpExchange<'_>,
    body: Bytes,
) -> Result<(T, Option<Charge>)> {
    exchange.context.limits.check_json(body.len())?;
    if body.len() <= JSON_BYTES_ON_REACTOR_MAX {
        return Ok((text::read(&body)?, None));
    }
    let (bytes, account) = (body.len(), &exchange.with.account);
    let read = move |_: &CancelFlag<'_>| text::read(&body);
    let (form, charge) = offload::run_charged(account, Kind::Unpacked, bytes, read).await?;
    Ok((form?, Some(charge)))
}

/// A guess at the length of rows as JSON.
pub fn printed_bytes(values: usize, is_base64: bool) -> usize {
    // Four bytes of a number are about twelve of text.
    if is_base64 { values / 3 * 4 } else { values * 3 }
}

/// An answer, made on another thread if the rows in it are long.
pub async fn printed(
    exchange: &HttpExchange<'_>,
    values: usize,
    print: impl FnOnce() -> tensor::Result<Vec<u8>> + Send + 'static,
) -> Result<Bytes> {
    if values <= PRINT_BYTES_ON_REACTOR_MAX {
        return Ok(print()?.into());
    }
    let (text, charge) = offload::run_charged(&exchange.with.account, Kind::Answer, values, move |_| print()).await?;
    Ok(offload::made(text?.into(), charge))
}

/// The texts of a field that has to have some.
pub fn some(texts: Option<Texts>, field: &'static str) -> std::result::Result<Texts, FormError> {
    match texts {
        None => Err(FormError::missing(field)),
        Some(texts) if texts.is_empty() || (texts.has_ids && texts.has_empty()) => Err(FormError::empty(field)),
        Some(texts) => Ok(texts),
    }
}

/// The model of a request.
pub struct Target<'e> {
    pub version: &'e Arc<ModelVersion>,
    pub facts: &'e TextFacts,
    /// The tokenizer of token ids that clients send under its name.
    pub ids: TokenIds,
}

/// The model that a body names, if it has one of these roles and the caller may use it.
pub fn find<'e>(exchange: &'e HttpExchange<'_>, name: &str, roles: &[Role]) -> Result<Target<'e>> {
    let engine = &exchange.context.engine;
    let name = engine.text_name(name);
    exchange.with.grant.admit_model(&name.model)?;
    let number = name.version.map(|number| number.to_string()).unwrap_or_default();
    let version = exchange.with.version(engine, &name.model, &number)?;
    exchange.accept(version);
    let model = &version.signature.model;
    let Some(facts) = version.text_facts() else {
        return Err(Error::invalid(format!(
            "model '{model}' has no role: a model of the backend 'text' has one by itself, another by \
             parameters {{ key: \"nereid.text\" value {{ string_value: \"embed\" }} }} in its configuration"
        ))
        .into());
    };
    if !roles.contains(&facts.role) {
        let (role, serves) = (facts.role.name(), served_by(facts.role));
        return Err(Error::invalid(format!("model '{model}' has the role '{role}', which {serves} serves")).into());
    }
    if version.signature.decoupled {
        return Err(Error::unsupported(format!("model '{model}' is decoupled: texts need one response each")).into());
    }
    Ok(Target { version, facts, ids: name.token_ids })
}

/// The endpoints that serve a role.
fn served_by(role: Role) -> &'static str {
    match role {
        Role::Embed => "/v1/embeddings",
        Role::Rerank => "/v1/rerank or /v1/score",
        Role::Classify => "/v1/classify",
    }
}

impl Target<'_> {
    /// Runs texts, each of `per` elements (2 for pairs): a row for each, and the tokens that ran.
    pub async fn run(
        &self,
        exchange: &HttpExchange<'_>,
        texts: Texts,
        per: i64,
        options: TextOptions,
    ) -> Result<(Rows, u64)> {
        let signature = &self.version.signature;
        let model = &signature.model;
        let unfit = |what: String| Error::invalid(format!("model '{model}': {what}"));
        let input = signature.inputs.iter().find(|input| input.datatype == DataType::Bytes);
        let (input, output) = input
            .zip(signature.outputs.first())
            .ok_or_else(|| unfit("a text endpoint needs an input of TYPE_STRING, and an output".to_owned()))?;
        let (dims, rows_max) = layout(signature, &input.dims, per).ok_or_else(|| {
            let (name, dims) = (&input.name, &input.dims);
            unfit(format!("input '{name}' has dims {dims:?}, and a text has {per} strings: expected [ {per} ]"))
        })?;
        let form = OutputForm { binary: true, ..OutputForm::default() };
        let mut request = InferRequest {
            outputs: smallvec![RequestedOutput { name: output.name.clone(), form, region: None }],
            parameters: self.parameters(&options, texts.has_ids)?,
            ..InferRequest::default()
        };
        exchange.with.follow(&mut request);
        let count = texts.len();
        let (tensor, ends) = texts.into_tensor();
        let (mut begun, mut done) = (0, TextRows::default());
        let mut pending = VecDeque::new();
        while begun < count {
            let rows = rows_max.min(count - begun);
            let end_of = |texts: usize| texts.checked_sub(1).and_then(|at| ends.get(at)).copied().unwrap_or(0);
            let data = Data::Bytes(tensor.slice(end_of(begun)..end_of(begun + rows)));
            let shape = dims.iter().map(|&dim| if dim == -1 { rows as i64 } else { dim }).collect();
            let inputs =
                smallvec![InputTensor { name: input.name.clone(), datatype: Some(DataType::Bytes), shape, data }];
            // The first call has the trace of the request.
            let trace = request.trace.take();
            let call = Box::new(InferRequest { inputs, trace, ..request.clone() });
            if pending.len() >= TEXT_CALLS_PENDING_MAX {
                done.take(pending.pop_front()).await?;
            }
            pending.push_back((inference::start(self.version, call).get().await?, rows));
            begun += rows;
            hold::pause().await;
        }
        while !pending.is_empty() {
            done.take(pending.pop_front()).await?;
        }
        Ok((done.rows, done.tokens))
    }

    /// The parameters of the request.
    fn parameters(&self, options: &TextOptions, has_ids: bool) -> Result<Vec<(Name, Parameter)>> {
        if self.facts.is_native {
            let mut all = options.parameters();
            all.push((Name::from_static(parameters::USAGE), Parameter::Bool(true)));
            if has_ids {
                let of = Name::from_static(self.ids.name());
                all.push((Name::from_static(parameters::TOKEN_IDS), Parameter::String(of)));
            }
            return Ok(all);
        }
        let asked = options.dimensions.filter(|asked| Some(*asked) != self.facts.width);
        let wish = if has_ids { Some(parameters::TOKEN_IDS) } else { options.only_native() };
        match wish.or(asked.map(|_| parameters::DIMENSIONS)) {
            None => Ok(Vec::new()),
            Some(wish) => {
                let model = &self.version.signature.model;
                let text = format!("'{wish}' is for models of the backend 'text', which '{model}' is not");
                Err(Error::invalid(text).into())
            }
        }
    }
}

/// Rows of the calls that are done.
#[derive(Default)]
struct TextRows {
    rows: Rows,
    tokens: u64,
}

impl TextRows {
    async fn take(&mut self, call: Option<(Inference, usize)>) -> tensor::Result<()> {
        let Some((call, rows)) = call else { return Ok(()) };
        let response = match call {
            Inference::Done(result) => result?,
            Inference::Pending(pending) => pending.await?,
        };
        self.add(&response, rows)
    }

    fn add(&mut self, response: &InferResponse, rows: usize) -> tensor::Result<()> {
        if let Some(Parameter::Int(tokens)) = text::parameter(&response.parameters, parameters::TOKENS) {
            self.tokens += u64::try_from(*tokens).unwrap_or_default();
        }
        let output = response.outputs.first();
        self.rows.add(output.ok_or_else(|| Error::internal("the model returned no output").by_model())?, rows)
    }
}

/// The shape of texts with `per` strings each, -1 for their number, and how many a call may have. `None` if the input
/// has another form.
fn layout(signature: &Signature, dims: &[i64], per: i64) -> Option<(Shape, usize)> {
    let with_rows = |rest: &[i64]| Some(std::iter::once(-1).chain(filled(rest, per)?).collect());
    match (signature.max_batch_size, dims) {
        (0, [-1, rest @ ..]) if filled(rest, per).is_some() => Some((with_rows(rest)?, usize::MAX)),
        (0, _) => Some((filled(dims, per)?, 1)),
        (batch, _) => Some((with_rows(dims)?, batch as usize)),
    }
}

/// Dims with `elements` elements: the last variable one has what is left, others have 1.
fn filled(dims: &[i64], elements: i64) -> Option<Shape> {
    let fixed: i64 = dims.iter().filter(|&&dim| dim != -1).product();
    let mut left = (fixed > 0 && elements % fixed == 0).then(|| elements / fixed)?;
    let mut shape = Shape::from_slice(dims);
    for dim in shape.iter_mut().rev().filter(|dim| **dim == -1) {
        *dim = std::mem::replace(&mut left, 1);
    }
    (left == 1).then_some(shape)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_have_the_shape_of_the_input() {
        let check = |max_batch_size, dims: &[i64], per, expected: Option<(&[i64], usize)>| {
            let signature = Signature { max_batch_size, ..Signature::default() };
            let found = layout(&signature, dims, per);
            let found = found.as_ref().map(|(shape, rows)| (&shape[..], *rows));
            assert_eq!(found, expected, "{max_batch_size} {dims:?} {per}");
        };
        check(8, &[1], 1, Some((&[-1, 1], 8)));
        check(8, &[], 1, Some((&[-1], 8)));
        check(8, &[-1], 1, Some((&[-1, 1], 8)));
        check(8, &[2], 2, Some((&[-1, 2], 8)));
        check(8, &[-1], 2, Some((&[-1, 2], 8)));
        check(8, &[1], 2, None);
        check(8, &[2], 1, None);
        check(0, &[-1], 1, Some((&[-1], usize::MAX)));
        check(0, &[-1, 2], 2, Some((&[-1, 2], usize::MAX)));
        check(0, &[-1, -1], 1, Some((&[-1, 1], usize::MAX)));
        check(0, &[-1], 2, Some((&[2], 1)));
        check(0, &[1], 1, Some((&[1], 1)));
        check(0, &[], 1, Some((&[], 1)));
        check(0, &[3], 1, None);
        check(0, &[0], 1, None);
    }
}
