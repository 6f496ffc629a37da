//! Things that the tensors of a model hold, and the parameter of a configuration that names them.

use protocol::Signature;
use tensor::{DataType, Error, Result};

/// Parameter of a configuration that names tensors: `prompt=QUESTION text=ANSWER`.
pub const PARAMETER: &str = "nereid.chat";

/// A thing that a tensor may hold, and the names under which it is looked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Holds {
    /// Input: the prompt.
    Prompt,
    /// Input: the messages as JSON, for a model that has a template of its own.
    Messages,
    /// Input: the functions as JSON.
    Tools,
    /// Input: whether responses are pieces.
    Stream,
    /// Input: settings as one JSON object, with the names of vLLM.
    Sampling,
    /// Input: whether the prompt is left out of the text.
    ExcludesPrompt,
    /// Input: whether log probabilities are returned.
    WantsLogprobs,
    /// Input: whether there is a count of the prompt.
    WantsPromptTokens,
    /// Input: whether there is a count of the text.
    WantsTextTokens,
    /// Input: whether there is a reason.
    WantsReason,
    /// Input: texts before which the text ends.
    Stop,
    /// Input: name of a LoRA.
    Lora,
    /// Input: kind of the guide of structured outputs.
    GuideKind,
    /// Input: guide of structured outputs.
    Guide,
    /// Output: a piece of the text.
    Text,
    /// Output: why the text ended.
    Reason,
    /// Output: tokens of the prompt.
    PromptTokens,
    /// Output: tokens of this piece.
    TextTokens,
    /// Output: log probabilities as JSON.
    Logprobs,
}

/// Name in the parameter, whether it is an input, and names of tensors, the first of which wins.
#[rustfmt::skip]
pub(crate) const NAMES: &[(Holds, &str, bool, &[&str])] = &[
    (Holds::Prompt, "prompt", true, &["text_input"]),
    (Holds::Messages, "messages", true, &["messages"]),
    (Holds::Tools, "tools", true, &["tools"]),
    (Holds::Stream, "stream", true, &["stream"]),
    (Holds::Sampling, "sampling_parameters", true, &["sampling_parameters"]),
    (Holds::ExcludesPrompt, "exclude_prompt", true,
        &["exclude_input_in_output", "sampling_param_exclude_input_from_output"]),
    (Holds::WantsLogprobs, "return_logprobs", true, &["return_logprobs"]),
    (Holds::WantsPromptTokens, "return_prompt_tokens", true, &["return_num_input_tokens"]),
    (Holds::WantsTextTokens, "return_text_tokens", true, &["return_num_output_tokens"]),
    (Holds::WantsReason, "return_reason", true, &["return_finish_reason"]),
    (Holds::Stop, "stop", true, &["stop_words", "stop"]),
    (Holds::Lora, "lora", true, &["lora_name"]),
    (Holds::GuideKind, "guide_kind", true, &["guided_decoding_guide_type"]),
    (Holds::Guide, "guide", true, &["guided_decoding_guide"]),
    (Holds::Text, "text", false, &["text_output"]),
    (Holds::Reason, "reason", false, &["finish_reason"]),
    (Holds::PromptTokens, "prompt_tokens", false, &["num_input_tokens"]),
    (Holds::TextTokens, "text_tokens", false, &["num_output_tokens"]),
    (Holds::Logprobs, "logprobs", false, &["logprobs"]),
];

impl Holds {
    /// Whether its tensor has to be BYTES.
    pub(crate) fn is_text(self) -> bool {
        matches!(
            self,
            Self::Prompt
                | Self::Messages
                | Self::Tools
                | Self::Sampling
                | Self::Lora
                | Self::GuideKind
                | Self::Guide
                | Self::Text
                | Self::Reason
                | Self::Logprobs
        )
    }

    pub(crate) fn is_input(self) -> bool {
        NAMES.iter().any(|&(holds, _, is_input, _)| holds == self && is_input)
    }
}

/// A thing that the parameter names.
pub(crate) enum Thing {
    Known(Holds),
    /// A field of the request.
    Setting(String),
}

impl Thing {
    pub(crate) fn is(&self, holds: Holds) -> bool {
        matches!(self, Self::Known(known) if *known == holds)
    }

    pub(crate) fn setting((thing, at): &(Self, usize)) -> Option<(String, usize)> {
        if let Self::Setting(name) = thing { Some((name.clone(), *at)) } else { None }
    }
}

/// The parameter, with the index of each tensor.
#[derive(Default)]
pub(crate) struct Declared(pub(crate) Vec<(Thing, usize)>);

impl Declared {
    pub(crate) fn read(text: &str, signature: &Signature) -> Result<Self> {
        let wrong = |why: String| {
            Error::invalid(format!("model '{}' has the parameter '{PARAMETER}' with '{text}': {why}", signature.model))
        };
        let (mut all, mut sides) = (Vec::new(), Vec::new());
        for word in text.split_whitespace() {
            let Some((thing, tensor)) = word.split_once('=') else {
                return Err(wrong(format!("'{word}' is not THING=TENSOR, such as prompt=text_input")));
            };
            let known = NAMES.iter().find(|(_, name, _, _)| *name == thing);
            let is_setting =
                || crate::fields::FIELDS.iter().any(|f| f.name == thing && f.used == crate::fields::Use::Model);
            if known.is_none() && !is_setting() {
                let names: Vec<_> = NAMES.iter().map(|(_, name, _, _)| *name).collect();
                let names = names.join(", ");
                return Err(wrong(format!("'{thing}' is unknown; there are {names}, and fields that are passed on")));
            }
            let is_input = known.is_none_or(|&(_, _, is_input, _)| is_input);
            let all_of: Vec<_> = match is_input {
                true => signature.inputs.iter().map(|input| (&input.name, input.datatype)).collect(),
                false => signature.outputs.iter().map(|output| (&output.name, output.datatype)).collect(),
            };
            let found = all_of.into_iter().enumerate().find(|(_, (name, _))| ***name == *tensor);
            let side = if is_input { "input" } else { "output" };
            let (at, (_, datatype)) = found.ok_or_else(|| wrong(format!("the model has no {side} '{tensor}'")))?;
            if known.is_some_and(|(holds, ..)| holds.is_text()) && datatype != DataType::Bytes {
                let datatype = datatype.name();
                return Err(wrong(format!("the {side} '{tensor}' has the datatype {datatype}; '{thing}' needs BYTES")));
            }
            if sides.contains(&(is_input, at)) {
                return Err(wrong(format!("the {side} '{tensor}' is named twice")));
            }
            sides.push((is_input, at));
            let thing = match known {
                Some(&(holds, ..)) => Thing::Known(holds),
                None => Thing::Setting(thing.to_owned()),
            };
            all.push((thing, at));
        }
        Ok(Self(all))
    }
}
