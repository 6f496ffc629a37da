//! The work that all text endpoints share: from a name in a body to a model with a role, and from texts to rows.
//!
//! The texts of a request are one tensor, of which each call of the model has a slice. A model of the backend `text`
//! divides a call into texts by itself; to others go as many texts as they batch.

use crate::exchange::{Endpoint, HttpAnswer, HttpExchange, Later};
use crate::failure::{ErrorForm, FailureKind};
use crate::hold;
use crate::http::body::RequestBody;
use crate::http::decode::query_value;
use crate::http::generate::check_encoding;
use crate::http::inference::{forward, reject_draining};
use crate::http::orca;
use crate::http::reply::Reply;
use crate::inference::{self, Inference};
use crate::limits::{JSON_BYTES_ON_REACTOR_MAX, PRINT_BYTES_ON_REACTOR_MAX, TEXT_CALLS_PENDING_MAX};
use crate::offload::{self, CancelFlag};
use crate::table::facts::Facts;
use crate::text_errors::TextError;
use bytes::Bytes;
use engine::{ModelVersion, TextName};
use memory::thread::now_ns;
use memory::{Charge, Kind};
use protocol::text::rows::Rows;
use protocol::text::{self, FormError, Role, TextFacts, TextOptions, Texts, TokenIds, parameters};
use protocol::{InferRequest, InferResponse, InputTensor, OutputForm, Parameter, RequestedOutput, Signature};
use serde::de::DeserializeOwned;
use smallvec::smallvec;
use std::borrow::{Borrow, Cow};
use std::collections::VecDeque;
use std::sync::Arc;
use tensor::{Code, Data, DataType, Error, Name, Shape};

pub type TextResult<T = Reply> = Result<T, TextError>;

/// A text endpoint: facts, and a function that answers a body.
pub struct TextEndpoint {
    pub facts: &'static Facts,
    pub answer: for<'a> fn(&'a HttpExchange<'a>, Bytes) -> Later<'a, TextResult>,
}

impl Endpoint for TextEndpoint {
    fn facts(&self) -> &'static Facts {
        self.facts
    }

    fn reject_early(&self, exchange: &HttpExchange<'_>) -> Option<Reply> {
        admit(exchange).err().map(TextError::reply)
    }

    fn too_large(&self, exchange: &HttpExchange<'_>, bytes: u64) -> Reply {
        let checked = exchange.context.limits.check_json(usize::try_from(bytes).unwrap_or(usize::MAX));
        let error = checked.err().unwrap_or_else(|| Error::invalid("the request must not have a body"));
        TextError::of(error, FailureKind::TooLarge, None).reply()
    }

    fn http<'a>(&'a self, exchange: &'a HttpExchange<'a>, body: RequestBody) -> HttpAnswer<'a> {
        let began = now_ns();
        HttpAnswer::Later(Box::pin(async move {
            let answer = match admit(exchange) {
                Ok(()) => (self.answer)(exchange, body.bytes).await,
                Err(error) => Err(error),
            };
            let mut reply = answer.unwrap_or_else(TextError::reply);
            if self.facts.text == Some(ErrorForm::Tei) {
                add_time(&mut reply, "x-total-time", now_ns() - began);
            }
            orca::add_load_report(exchange.context, exchange.head, reply)
        }))
    }
}

fn admit(exchange: &HttpExchange<'_>) -> TextResult<()> {
    reject_draining(exchange.context)?;
    Ok(check_encoding(exchange.head)?)
}

/// Adds a time in milliseconds, as text-embeddings-inference does.
pub fn add_time(reply: &mut Reply, name: &'static str, ns: u64) {
    reply.add(name, (ns / 1_000_000).to_string());
}

/// Runs work, on another thread if its data is long. The charge is for what it makes.
pub async fn heavy<T: Send + 'static>(
    exchange: &HttpExchange<'_>,
    kind: Kind,
    bytes: usize,
    work: impl FnOnce() -> TextResult<T> + Send + 'static,
) -> TextResult<(T, Option<Charge>)> {
    if bytes <= JSON_BYTES_ON_REACTOR_MAX {
        return Ok((work()?, None));
    }
    let (made, charge) = offload::run_charged(&exchange.with.account, kind, bytes, move |_| work()).await?;
    Ok((made?, Some(charge)))
}

/// Reads a body.
pub async fn read<T: DeserializeOwned + Send + 'static>(
    exchange: &HttpExchange<'_>,
    body: Bytes,
) -> TextResult<(T, Option<Charge>)> {
    read_only(exchange, body, &[]).await
}

/// Reads a body that with `--openai-errors=triton` has only these fields; any, if none is named.
pub async fn read_only<T: DeserializeOwned + Send + 'static>(
    exchange: &HttpExchange<'_>,
    body: Bytes,
    fields: &'static [&str],
) -> TextResult<(T, Option<Charge>)> {
    let HttpExchange { context, .. } = exchange;
    let is_limited = context.openai_errors_as_triton && !fields.is_empty();
    context.limits.check_json(body.len()).map_err(|error| TextError::of(error, FailureKind::TooLarge, None))?;
    let bytes = body.len();
    let read = move || {
        if is_limited {
            text::only(&body, fields)?;
        }
        Ok(text::read(&body)?)
    };
    heavy(exchange, Kind::Unpacked, bytes, read).await
}

/// An answer with rows of `values` bytes, or as long as they are.
pub async fn answered(
    exchange: &HttpExchange<'_>,
    values: usize,
    print: impl FnOnce() -> tensor::Result<Vec<u8>> + Send + 'static,
) -> TextResult {
    if values <= PRINT_BYTES_ON_REACTOR_MAX {
        return Ok(Reply::json(print()?));
    }
    let print = move |_: &CancelFlag<'_>| print();
    let (text, charge) = offload::run_charged(&exchange.with.account, Kind::Answer, values, print).await?;
    Ok(Reply::json(offload::made(text?.into(), charge)))
}

/// A guess at the length of rows as JSON: four bytes of a number are about twelve of text.
pub fn printed_bytes(values: usize, is_base64: bool) -> usize {
    if is_base64 { values / 3 * 4 } else { values * 3 }
}

/// The texts or token ids of a field that has to have some.
pub fn some(texts: Option<Texts>, field: &'static str) -> Result<Texts, FormError> {
    match texts {
        None => Err(FormError::missing(field)),
        Some(texts) if texts.is_empty() || (texts.has_ids && texts.has_empty()) => Err(FormError::empty(field)),
        Some(texts) => Ok(texts),
    }
}

/// The texts of a field that takes no token ids.
pub fn some_texts(texts: Option<Texts>, field: &'static str) -> Result<Texts, FormError> {
    let texts = some(texts, field)?;
    if texts.has_ids { Err(FormError::of(field, "expected texts instead of token ids")) } else { Ok(texts) }
}

/// The model of a request.
pub struct TextTarget<'e> {
    pub version: &'e Arc<ModelVersion>,
    pub facts: &'e TextFacts,
    /// The name that the request has, or that of the model.
    pub name: String,
    /// The tokenizer of token ids that clients send under its name.
    ids: TokenIds,
}

/// Rows that calls returned.
pub struct Ran {
    pub rows: Rows,
    /// Tokens that ran; 0 for models that do not say.
    pub tokens: u64,
    /// Time from the first call to the last response.
    pub ns: u64,
}

/// The name that a request has: that of its body, else `?model=`.
pub fn name_asked<'a>(exchange: &'a HttpExchange<'_>, name: Option<&'a str>) -> Option<Cow<'a, str>> {
    let in_query = || Some(query_value(exchange.head.query(), "model")).filter(|name| !name.is_empty());
    name.map(Cow::Borrowed).or_else(in_query)
}

/// The version that a name means, if the caller may use it. `asked`: the name that the request has; `usable`: names
/// that an unknown one may be mistaken for, as the end of a sentence.
pub fn version_of<'e>(
    exchange: &'e HttpExchange<'_>,
    asked: Option<&str>,
    found: &TextName,
    usable: impl FnOnce() -> Option<String>,
) -> TextResult<&'e Arc<ModelVersion>> {
    let HttpExchange { context, with, .. } = exchange;
    let model = &found.model;
    with.grant.admit_model(model)?;
    let number = found.version.map(|number| number.to_string()).unwrap_or_default();
    with.version(&context.engine, model, &number).map_err(|error| {
        let kind = if error.code() == Code::NotFound { FailureKind::UnknownModel } else { FailureKind::Other };
        let is_of_triton = context.openai_errors_as_triton && kind == FailureKind::UnknownModel;
        let text = match asked {
            None => None,
            Some(asked) if is_of_triton => Some(format!("Unknown model: {asked}")),
            Some(asked) if found.is_alias => Some(format!("'{asked}' is an alias of '{model}': {}", error.message())),
            Some(_) if kind == FailureKind::UnknownModel => {
                usable().map(|usable| format!("{}; {usable}", error.message()))
            }
            Some(_) => None,
        };
        let error = match text {
            Some(text) => error.with_text(text),
            None => error,
        };
        TextError::of(error, kind, Some("model"))
    })
}

/// The only one of the models that a request without a name can mean. `none`: the error if there is none.
pub fn only_of<N: Borrow<str>>(
    exchange: &HttpExchange<'_>,
    usable: &[N],
    none: impl FnOnce() -> String,
) -> TextResult<TextName> {
    match usable {
        [model] => Ok(exchange.context.engine.text_name(model.borrow())),
        [] => Err(TextError::of(Error::not_found(none()), FailureKind::UnknownModel, Some("model"))),
        _ => {
            let text = format!("the request names no model; name one by ?model= or in the body: {}", usable.join(", "));
            Err(TextError::of(Error::invalid(text), FailureKind::Other, Some("model")))
        }
    }
}

/// The model that a body names, or the only one of these roles, if the caller may use it. The first role with a model
/// counts.
pub fn find<'e>(exchange: &'e HttpExchange<'_>, name: Option<&str>, roles: &[Role]) -> TextResult<TextTarget<'e>> {
    let asked = name_asked(exchange, name);
    let asked = asked.as_deref();
    let found = match asked {
        Some(name) => exchange.context.engine.text_name(name),
        None => only_model(exchange, roles)?,
    };
    let version = version_of(exchange, asked, &found, || None)?;
    let TextName { model, token_ids, .. } = found;
    exchange.accept(version);
    let unfit = |text: String| Err(TextError::of(Error::invalid(text), FailureKind::Other, Some("model")));
    let Some(facts) = version.text_facts() else {
        return unfit(format!(
            "model '{model}' has no role for text endpoints: a model of the backend 'text' has one by itself, another \
             by parameters {{ key: \"nereid.text\" value {{ string_value: \"embed\" }} }} in its configuration"
        ));
    };
    if !roles.contains(&facts.role) {
        let (role, serves) = (facts.role.name(), served_by(facts.role));
        return unfit(format!("model '{model}' has the role '{role}', which {serves} serves"));
    }
    if version.signature.decoupled {
        return unfit(format!("model '{model}' is decoupled, and text endpoints need one response for each request"));
    }
    let name = asked.map_or(model, str::to_owned);
    Ok(TextTarget { version, facts, name, ids: token_ids })
}

/// The only model that has one of these roles and that the caller may use.
fn only_model(exchange: &HttpExchange<'_>, roles: &[Role]) -> TextResult<TextName> {
    let models = exchange.context.engine.text_models();
    let usable = |role| {
        let is_usable = |(version, of): &&(Arc<ModelVersion>, Role)| {
            *of == role && exchange.with.grant.covers(&version.signature.model)
        };
        models.iter().filter(is_usable).map(|(version, _)| version.signature.model.as_str()).collect::<Vec<_>>()
    };
    let found = roles.iter().map(|&role| usable(role)).find(|found| !found.is_empty()).unwrap_or_default();
    only_of(exchange, &found, || {
        let roles: Vec<_> = roles.iter().map(|role| role.name()).collect();
        format!("no model has the role '{}'", roles.join("' or '"))
    })
}

/// The endpoints that serve a role.
fn served_by(role: Role) -> &'static str {
    match role {
        Role::Embed => "/v1/embeddings",
        Role::Rerank => "/v1/rerank or /v1/score",
        Role::Classify => "/v1/classify",
    }
}

impl TextTarget<'_> {
    /// Runs texts, or pairs of texts.
    pub async fn run(&self, exchange: &HttpExchange<'_>, texts: Texts, options: &TextOptions) -> TextResult<Ran> {
        let signature = &self.version.signature;
        let model = &signature.model;
        let per = if self.facts.role == Role::Rerank { 2 } else { 1 };
        let unfit = |what: String| Error::invalid(format!("model '{model}': {what}"));
        let input = signature.inputs.iter().find(|input| input.datatype == DataType::Bytes);
        let (input, output) = input
            .zip(signature.outputs.first())
            .ok_or_else(|| unfit("a text endpoint needs an input of TYPE_STRING, and an output".to_owned()))?;
        let (dims, rows_max) = layout(signature, &input.dims, per).ok_or_else(|| {
            let (name, dims) = (&input.name, &input.dims[..]);
            unfit(format!("input '{name}' has dims {dims:?}, and a text has {per} strings: expected [{per}]"))
        })?;
        let form = OutputForm { binary: true, ..OutputForm::default() };
        let mut request = InferRequest {
            outputs: smallvec![RequestedOutput { name: output.name.clone(), form, region: None }],
            parameters: self.parameters(options, texts.has_ids)?,
            ..InferRequest::default()
        };
        forward(exchange, &mut request)?;
        let count = texts.len();
        let (tensor, ends) = texts.into_tensor();
        let end_of = |texts: usize| texts.checked_sub(1).and_then(|at| ends.get(at)).copied().unwrap_or(0);
        let (mut begun, mut ran) = (0, Ran { rows: Rows::default(), tokens: 0, ns: now_ns() });
        let mut pending = VecDeque::new();
        while begun < count {
            let rows = rows_max.min(count - begun);
            let data = Data::Bytes(tensor.slice(end_of(begun)..end_of(begun + rows)));
            let shape = dims.iter().map(|&dim| if dim == -1 { rows as i64 } else { dim }).collect();
            let datatype = Some(DataType::Bytes);
            let inputs = smallvec![InputTensor { name: input.name.clone(), datatype, shape, data }];
            // The first call has the trace of the request.
            let trace = request.trace.take();
            let call = Box::new(InferRequest { inputs, trace, ..request.clone() });
            if pending.len() >= TEXT_CALLS_PENDING_MAX {
                ran.take(pending.pop_front()).await?;
            }
            let started = inference::start(self.version, call).get().await?;
            if let Inference::Pending(pending) = &started {
                exchange.waits_for(self.version, pending.measured());
            }
            pending.push_back((started, rows));
            begun += rows;
            hold::pause().await;
        }
        while !pending.is_empty() {
            ran.take(pending.pop_front()).await?;
        }
        ran.ns = now_ns() - ran.ns;
        Ok(ran)
    }

    /// A score for each pair of `first` and `second` by their places, in order; one text is paired with each of the
    /// other side. A model that embeds scores by the cosine.
    pub async fn score(
        &self,
        exchange: &HttpExchange<'_>,
        mut first: Texts,
        second: Arc<Texts>,
        options: &TextOptions,
    ) -> TextResult<(Vec<f32>, Ran)> {
        let (left, right) = (first.len(), second.len());
        let count = Texts::pair_count(left, right)?;
        let bytes = first.bytes() * right + second.bytes() * left;
        let bytes_max = exchange.context.limits.input_bytes_max;
        let is_cosine = self.facts.role == Role::Embed;
        let prepare = move || {
            if is_cosine {
                first.extend(&second)?;
                return Ok(first);
            }
            Ok(first.pairs(&second, bytes_max)?)
        };
        let (texts, _charge) = heavy(exchange, Kind::Unpacked, bytes, prepare).await?;
        let Ran { rows, tokens, ns } = self.run(exchange, texts, options).await?;
        let bytes = rows.bytes();
        let work = move || {
            let scores = if is_cosine {
                let all = rows.finite()?;
                let (firsts, seconds) = all.split_at(left.min(all.len()));
                let at = |side: &[_], place: usize| side.get(if side.len() == 1 { 0 } else { place }).copied();
                (0..count).filter_map(|place| Some(at(firsts, place)?.cosine(at(seconds, place)?))).collect()
            } else {
                rows.finite()?.into_iter().filter_map(|row| row.values().next()).collect()
            };
            Ok((scores, rows))
        };
        let ((scores, rows), _) = heavy(exchange, Kind::Unpacked, bytes, work).await?;
        Ok((scores, Ran { rows, tokens, ns }))
    }

    /// The parameters of the request.
    fn parameters(&self, options: &TextOptions, has_ids: bool) -> TextResult<Vec<(Name, Parameter)>> {
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
                let (what, field) = match wish {
                    parameters::TOKEN_IDS => ("token ids are", "input"),
                    _ => ("it is", wish),
                };
                let text = format!("{what} for models of the backend 'text', which '{model}' is not: leave them out");
                Err(TextError::of(Error::invalid(text), FailureKind::Other, Some(field)))
            }
        }
    }
}

impl Ran {
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

    /// Adds the fields of text-embeddings-inference to a reply.
    pub fn add_fields(&self, reply: &mut Reply) {
        add_time(reply, "x-inference-time", self.ns);
        reply.add("x-compute-tokens", self.tokens.to_string());
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
