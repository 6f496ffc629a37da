//! How a model takes a prompt and its settings, and gives its text: by the names of its tensors, which are those of
//! Triton's backends `vllm` and `tensorrtllm`, or which its configuration names.

use crate::fields::On;
use crate::holds::{Declared, NAMES, Thing};
pub use crate::holds::{Holds, PARAMETER};
use crate::request::ChatRequest;
use bytes::{BufMut, Bytes, BytesMut};
use protocol::{InferResponse, InputSpec, InputTensor, OutputSpec, RequestedOutput, Signature};
use serde_json::value::RawValue;
use std::borrow::Cow;
use tensor::{Data, DataType, Error, Result, Shape};

/// Tensors of a model that chats.
#[derive(Debug, Clone)]
pub struct Places {
    /// Index of the input or output of each thing.
    found: Vec<(Holds, usize)>,
    /// Inputs that hold one setting each: its field, and the index.
    settings: Vec<(String, usize)>,
    /// A required input for which nothing is known.
    missing: Option<String>,
}

/// Facts of a request to a model.
#[derive(Debug, Clone, Copy)]
pub struct Asked<'r> {
    /// The request.
    pub request: &'r ChatRequest,
    /// The prompt.
    pub prompt: &'r str,
    /// Number of the choice, for its seed.
    pub choice: usize,
    /// Most tokens if the request does not say; `None` leaves it to the model.
    pub max_tokens: Option<i64>,
    /// Name of a LoRA.
    pub lora: Option<&'r str>,
    /// JSON schema that the text must have.
    pub schema: Option<&'r str>,
}

impl Places {
    /// Tensors of a model; `None` if it does not chat. `declared`: the value of [`PARAMETER`].
    ///
    /// # Errors
    /// INVALID_ARG for a parameter that does not fit the tensors of the model.
    pub fn of(signature: &Signature, declared: Option<&str>) -> Result<Option<Self>> {
        let is_declared = declared.is_some();
        let declared = declared.map(|text| Declared::read(text, signature)).transpose()?.unwrap_or_default();
        let input = |name: &str| signature.inputs.iter().position(|input| *input.name == *name);
        let output = |name: &str| signature.outputs.iter().position(|output| *output.name == *name);
        let holds_text = |holds: Holds, at: usize, is_input: bool| {
            let datatype = match is_input {
                true => signature.inputs.get(at).map(|input| input.datatype),
                false => signature.outputs.get(at).map(|output| output.datatype),
            };
            !holds.is_text() || datatype == Some(DataType::Bytes)
        };
        let mut found = Vec::new();
        for &(holds, _, is_input, names) in NAMES {
            let named = declared.0.iter().find(|(known, _)| known.is(holds)).map(|(_, at)| *at);
            let known = || names.iter().find_map(|name| if is_input { input(name) } else { output(name) });
            let at = named.or_else(known).filter(|&at| holds_text(holds, at, is_input));
            found.extend(at.map(|at| (holds, at)));
        }
        let has = |holds| found.iter().any(|(known, _)| *known == holds);
        if !(has(Holds::Text) && (has(Holds::Prompt) || has(Holds::Messages))) {
            return Ok(None);
        }
        let mut settings: Vec<(String, usize)> = declared.0.iter().filter_map(Thing::setting).collect();
        for field in crate::fields::FIELDS.iter().filter(|field| field.used == crate::fields::Use::Model) {
            let is_known = settings.iter().any(|(name, _)| name == field.name) || field.name == "stop";
            if let Some(at) = input(field.name).filter(|_| !is_known) {
                settings.push((field.name.to_owned(), at));
            }
        }
        let places = Self { found, settings, missing: None };
        let is_filled = |at: usize| {
            places.found.iter().any(|(holds, known)| holds.is_input() && *known == at)
                || places.settings.iter().any(|(_, known)| *known == at)
        };
        let missing = signature.inputs.iter().enumerate().find(|(at, input)| !input.optional && !is_filled(*at));
        let missing = missing.map(|(_, input)| input.name.to_string());
        let places = Self { missing, ..places };
        if is_declared {
            places.check(signature)?;
        }
        Ok(Some(places))
    }

    /// Checks that there is a value for all required inputs.
    fn check(&self, signature: &Signature) -> Result<()> {
        let Some(name) = &self.missing else { return Ok(()) };
        Err(Error::invalid(format!(
            "model '{}' requires the input '{name}', for which a chat has no value: make it optional, or name what it \
             holds by the parameter '{PARAMETER}'",
            signature.model
        )))
    }

    fn at(&self, holds: Holds) -> Option<usize> {
        self.found.iter().find(|(known, _)| *known == holds).map(|(_, at)| *at)
    }

    /// Whether the model has a tensor for this.
    pub fn has(&self, holds: Holds) -> bool {
        self.at(holds).is_some()
    }

    /// Whether the model ends a text itself where a request says.
    pub fn stops(&self) -> bool {
        self.has(Holds::Stop) || self.has(Holds::Sampling)
    }

    /// Whether the model can be held to a JSON schema.
    pub fn takes_schema(&self) -> bool {
        self.has(Holds::Sampling) || self.has(Holds::Guide)
    }

    /// Whether a setting has a place.
    fn takes(&self, name: &str) -> bool {
        let name = if name == "max_completion_tokens" { "max_tokens" } else { name };
        match name {
            "stop" => self.stops(),
            "response_format" => self.takes_schema(),
            _ => self.has(Holds::Sampling) || self.settings.iter().any(|(known, _)| known == name),
        }
    }

    /// Names of given fields for which the model has no place, in order.
    pub fn ignored(&self, request: &ChatRequest) -> Vec<&'static str> {
        let given = request.settings.iter().filter(|(_, value)| value.get() != "null");
        // A stop without a place is done by the server.
        given.map(|(field, _)| field.name).filter(|name| *name != "stop" && !self.takes(name)).collect()
    }

    /// Inputs and requested outputs of one choice.
    ///
    /// # Errors
    /// INVALID_ARG for a model with a required input for which nothing is known, and for a value that the datatype of
    /// its tensor cannot hold.
    pub fn tensors(
        &self,
        signature: &Signature,
        asked: &Asked<'_>,
    ) -> Result<(Vec<InputTensor>, Vec<RequestedOutput>)> {
        self.check(signature)?;
        let mut inputs = Vec::with_capacity(self.found.len() + self.settings.len());
        let mut put = |at: usize, values: &[Element<'_>]| -> Result<()> {
            let Some(input) = signature.inputs.get(at) else { return Ok(()) };
            inputs.push(tensor(signature, input, values)?);
            Ok(())
        };
        let request = asked.request;
        for &(holds, at) in &self.found {
            let text;
            let value = match holds {
                Holds::Prompt => Element::Text(asked.prompt.as_bytes()),
                Holds::Messages => {
                    text = json(&request.messages)?;
                    Element::Text(text.as_bytes())
                }
                Holds::Tools if !request.functions.tools.is_empty() => {
                    text = json(&request.functions.tools)?;
                    Element::Text(text.as_bytes())
                }
                Holds::Stream => Element::Flag(request.reply.streams),
                Holds::Sampling => {
                    text = sampling(asked);
                    Element::Text(text.as_bytes())
                }
                // The server puts the prompt before the text, once for all models.
                Holds::ExcludesPrompt | Holds::WantsPromptTokens | Holds::WantsTextTokens | Holds::WantsReason => {
                    Element::Flag(true)
                }
                Holds::WantsLogprobs => Element::Flag(request.reply.logprobs.is_some()),
                Holds::Stop if !request.stop.is_empty() => {
                    let all: Vec<_> = request.stop.iter().map(|text| Element::Text(text.as_bytes())).collect();
                    put(at, &all)?;
                    continue;
                }
                Holds::Lora => match asked.lora {
                    Some(lora) => Element::Text(lora.as_bytes()),
                    None => continue,
                },
                Holds::GuideKind if asked.schema.is_some() => Element::Text(b"json_schema"),
                Holds::Guide => match asked.schema {
                    Some(schema) => Element::Text(schema.as_bytes()),
                    None => continue,
                },
                _ => continue,
            };
            put(at, &[value])?;
        }
        for (name, at) in &self.settings {
            if let Some(value) = asked.setting(name) {
                put(*at, &[Element::Json(&value)])?;
            }
        }
        let outputs = self.found.iter().filter(|(holds, _)| !holds.is_input());
        let outputs = outputs.filter(|(holds, _)| *holds != Holds::Logprobs || request.reply.logprobs.is_some());
        let outputs = outputs.filter_map(|&(_, at)| signature.outputs.get(at));
        let form = protocol::OutputForm { binary: true, ..protocol::OutputForm::default() };
        let requested = |output: &OutputSpec| RequestedOutput { name: output.name.clone(), form, region: None };
        Ok((inputs, outputs.map(requested).collect()))
    }

    /// The parts of a response.
    ///
    /// # Errors
    /// INTERNAL, by the model, if its text is not one string.
    pub fn said(&self, response: &InferResponse) -> Result<Said> {
        let output = |holds| {
            let at = self.at(holds)?;
            response.outputs.iter().find(|output| output.index as usize == at)
        };
        let text = |holds: Holds| -> Result<Option<Bytes>> {
            let Some(output) = output(holds) else { return Ok(None) };
            let bytes = output.data.to_bytes()?;
            first_text(&bytes).map_err(|count| {
                Error::internal(format!("Expected to find 1 string in the output, found {count} instead.")).by_model()
            })
        };
        let count = |holds: Holds| -> Result<Option<u64>> {
            let Some(output) = output(holds) else { return Ok(None) };
            Ok(first_count(output.datatype, &output.data.to_bytes()?))
        };
        Ok(Said {
            text: text(Holds::Text)?.unwrap_or_default(),
            reason: text(Holds::Reason)?,
            prompt_tokens: count(Holds::PromptTokens)?,
            text_tokens: count(Holds::TextTokens)?,
            logprobs: text(Holds::Logprobs)?,
        })
    }
}

/// Words of a model, in a response.
#[derive(Debug, Default, Clone)]
pub struct Said {
    /// A piece of the text; may end within a character.
    pub text: Bytes,
    /// Why the text ended.
    pub reason: Option<Bytes>,
    /// Tokens of the prompt.
    pub prompt_tokens: Option<u64>,
    /// Tokens of this piece.
    pub text_tokens: Option<u64>,
    /// Log probabilities as JSON.
    pub logprobs: Option<Bytes>,
}

impl Asked<'_> {
    /// The JSON of a setting, with the defaults of Triton's front end.
    fn setting(&self, name: &str) -> Option<Cow<'_, str>> {
        let request = self.request;
        match name {
            "max_tokens" => {
                let given = request.setting("max_completion_tokens").or_else(|| request.setting("max_tokens"));
                given.map(Cow::from).or_else(|| self.max_tokens.map(|n| n.to_string().into()))
            }
            "max_completion_tokens" => None,
            "seed" => request.setting("seed").map(|seed| match seed.parse::<i64>() {
                Ok(first) if self.choice > 0 => first.wrapping_add(self.choice as i64).to_string().into(),
                _ => seed.into(),
            }),
            "response_format" => None,
            _ if request.is_given(name) => request.setting(name).map(Cow::from),
            // Triton's front end has 0.7 for chats, OpenAI 1.
            "temperature" if request.on == On::Chat && request.responses.is_none() => Some("0.7".into()),
            "temperature" => Some("1".into()),
            "top_p" => Some("1".into()),
            "frequency_penalty" | "presence_penalty" => Some("0".into()),
            "ignore_eos" => Some("false".into()),
            _ => None,
        }
    }
}

/// A setting of vLLM that is a text of JSON: the code of Triton's backend reads no other form of it, ours both.
const STRUCTURED: &str = "structured_outputs";

/// The JSON of a text.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// Settings as one JSON object, as Triton's front end makes it for vLLM.
fn sampling(asked: &Asked<'_>) -> String {
    let mut text = String::from("{\"n\": 1");
    let mut put = |name: &str, json: &str| {
        text.push_str(", \"");
        text.push_str(name);
        text.push_str("\": ");
        text.push_str(json);
    };
    for field in crate::fields::FIELDS.iter().filter(|field| field.used == crate::fields::Use::Model) {
        if field.on != On::Both && field.on != asked.request.on {
            continue;
        }
        match asked.setting(field.name) {
            Some(value) if field.name == STRUCTURED => put(STRUCTURED, &quoted(&value)),
            Some(value) => put(field.name, &value),
            None => {}
        }
    }
    if let Some(top) = asked.request.reply.logprobs {
        // The token that was drawn is always there.
        put("logprobs", &top.max(1).to_string());
    }
    if let Some(lora) = asked.lora {
        put("lora_name", &quoted(lora));
    }
    if let Some(schema) = asked.schema {
        put(STRUCTURED, &quoted(&serde_json::json!({ "json": schema }).to_string()));
    }
    text.push('}');
    text
}

fn json(values: &[crate::template::Json]) -> Result<String> {
    serde_json::to_string(values).map_err(|error| Error::internal(error.to_string()))
}

/// An element of a tensor.
enum Element<'v> {
    Text(&'v [u8]),
    Flag(bool),
    /// JSON, which the datatype decides how to read.
    Json(&'v str),
}

/// A tensor with these elements, in the shape that its input wants.
fn tensor(signature: &Signature, input: &InputSpec, values: &[Element<'_>]) -> Result<InputTensor> {
    let mut data = BytesMut::new();
    let mut count = 0;
    for value in values {
        count += element(&mut data, input, value)?;
    }
    let mut shape = Shape::new();
    if signature.max_batch_size > 0 {
        shape.push(1);
    }
    // The elements are along the last dimension of any length, or the last of all.
    let along = input.dims.iter().rposition(|&dim| dim == -1).or(input.dims.len().checked_sub(1));
    shape.extend(input.dims.iter().enumerate().map(|(at, _)| if Some(at) == along { count as i64 } else { 1 }));
    Ok(InputTensor {
        name: input.name.clone(),
        datatype: Some(input.datatype),
        shape,
        data: Data::Bytes(data.freeze()),
    })
}

/// Appends a value. Returns the number of elements.
fn element(data: &mut BytesMut, input: &InputSpec, value: &Element<'_>) -> Result<usize> {
    let mut text = |bytes: &[u8]| {
        data.put_u32_le(bytes.len() as u32);
        data.extend_from_slice(bytes);
    };
    let unfit = |json: &str| {
        let InputSpec { name, datatype, .. } = input;
        Error::invalid(format!(
            "input '{name}' of the model has the datatype {}, which cannot hold {json}",
            datatype.name()
        ))
    };
    match (value, input.datatype) {
        (Element::Text(bytes), DataType::Bytes) => text(bytes),
        (Element::Json(json), DataType::Bytes) => match serde_json::from_str::<Cow<'_, str>>(json) {
            Ok(inner) => text(inner.as_bytes()),
            Err(_) => text(json.as_bytes()),
        },
        (Element::Flag(flag), datatype) => number(data, datatype, f64::from(u8::from(*flag)), i64::from(*flag))
            .ok_or_else(|| unfit(if *flag { "true" } else { "false" }))?,
        (Element::Json(json), datatype) => {
            if json.starts_with('[') {
                let all: Vec<&RawValue> = serde_json::from_str(json).map_err(|_| unfit(json))?;
                return all.into_iter().map(|one| element(data, input, &Element::Json(one.get()))).sum();
            }
            let json = match *json {
                "true" => "1",
                "false" => "0",
                other => other,
            };
            let float: f64 = json.parse().map_err(|_| unfit(json))?;
            let integer = json.parse::<i64>().or_else(|_| json.parse::<u64>().map(|n| n as i64));
            let integer = integer.ok().or((float.fract() == 0.0 && float.abs() < 9e15).then_some(float as i64));
            let integer = match (integer, datatype) {
                (Some(n), _) => n,
                (None, DataType::Fp32 | DataType::Fp64 | DataType::Fp16 | DataType::Bf16) => 0,
                (None, _) => return Err(unfit(json)),
            };
            number(data, datatype, float, integer).ok_or_else(|| unfit(json))?;
        }
        (Element::Text(bytes), _) => return Err(unfit(&String::from_utf8_lossy(bytes.get(..40).unwrap_or(bytes)))),
    }
    Ok(1)
}

/// Appends a number; `None` if the datatype cannot hold it.
fn number(data: &mut BytesMut, datatype: DataType, float: f64, integer: i64) -> Option<()> {
    match datatype {
        DataType::Bool => data.put_u8(u8::from(integer != 0)),
        DataType::Int8 => data.put_i8(integer.try_into().ok()?),
        DataType::Int16 => data.put_i16_le(integer.try_into().ok()?),
        DataType::Int32 => data.put_i32_le(integer.try_into().ok()?),
        DataType::Int64 => data.put_i64_le(integer),
        DataType::Uint8 => data.put_u8(integer.try_into().ok()?),
        DataType::Uint16 => data.put_u16_le(integer.try_into().ok()?),
        DataType::Uint32 => data.put_u32_le(integer.try_into().ok()?),
        DataType::Uint64 => data.put_u64_le(integer.try_into().ok()?),
        DataType::Fp32 => data.put_f32_le(float as f32),
        DataType::Fp64 => data.put_f64_le(float),
        _ => return None,
    }
    Some(())
}

/// The first string of a BYTES tensor; `None` if it has none.
fn first_text(bytes: &Bytes) -> Result<Option<Bytes>, usize> {
    if bytes.is_empty() {
        return Ok(None);
    }
    let length = bytes.get(..4).and_then(|b| b.try_into().ok()).map(|b| u32::from_le_bytes(b) as usize);
    let length = length.filter(|&length| bytes.len() - 4 >= length).ok_or(0usize)?;
    if bytes.len() - 4 > length {
        return Err(2);
    }
    Ok(Some(bytes.slice(4..4 + length)))
}

fn first_count(datatype: DataType, bytes: &[u8]) -> Option<u64> {
    match datatype {
        DataType::Uint32 | DataType::Int32 => {
            Some(u64::from(u32::from_le_bytes(bytes.get(..4)?.try_into().ok()?))).filter(|&n| n <= i32::MAX as u64)
        }
        DataType::Uint64 | DataType::Int64 => {
            Some(u64::from_le_bytes(bytes.get(..8)?.try_into().ok()?)).filter(|&n| n <= i64::MAX as u64)
        }
        _ => None,
    }
}
