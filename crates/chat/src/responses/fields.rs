//! Fields of a body. Those of chats that go to the model are taken as well: see [`passed`].

use crate::fields::{ANY_INTEGER, COUNT, Field, FieldKind, On, Use, field};

/// Fields in the order of the page, with the names of this endpoint.
#[rustfmt::skip]
pub const FIELDS: &[Field] = &{
    use FieldKind::*;
    use On::Chat as R;
    use Use::*;
    [
        field("model", R, Text, Here, false, "The same as for chats."),
        field("input", R, Any, Here, false,
            "A text, or a list of messages, `function_call` and `function_call_output`. Contents are texts or lists \
             of text parts."),
        field("instructions", R, Text, Here, false, "A system message before the input."),
        field("stream", R, Flag, Here, false, "Send the response as typed server-sent events while it is made."),
        field("max_output_tokens", R, COUNT, Model, false,
            "Most tokens of the response; `--default-max-tokens` if absent."),
        field("temperature", R, Number(0.0, 2.0), Model, false, "Temperature; 1 if absent."),
        field("top_p", R, Number(0.0, 1.0), Model, false, "Share of the probability from which tokens are drawn."),
        field("tools", R, List, Here, false, "Functions that the model may call. Other types are rejected."),
        field("tool_choice", R, Any, Here, false, "`none`, `auto`, `required`, or a function by its name."),
        field("parallel_tool_calls", R, Flag, Here, false, "`false` keeps the first call only."),
        field("text", R, Object, Model, false,
            "`format`: `text`, `json_object` or `json_schema`, the latter two for models that have a place for \
             structured outputs."),
        field("reasoning", R, Object, Here, false, "`effort` is a variable of the template. The rest has no effect."),
        field("chat_template_kwargs", R, Object, Here, false, "The same as for chats."),
        field("store", R, Flag, Nothing, false, "Nothing is stored: the response has `false`."),
        field("metadata", R, Object, Nothing, false, "Repeated in the response."),
        field("user", R, Text, Nothing, false, "Repeated in the response."),
        field("truncation", R, Text, Nothing, false, "Nothing is truncated: the response has `disabled`."),
        field("stream_options", R, Object, Nothing, false, "No effect."),
        field("max_tool_calls", R, ANY_INTEGER, Nothing, false, "No effect: it counts calls of built-in tools."),
        field("service_tier", R, Text, Nothing, false, "No effect."),
        field("safety_identifier", R, Text, Nothing, false, "No effect."),
        field("prompt_cache_key", R, Text, Nothing, false, "No effect."),
        field("prompt_cache_retention", R, Text, Nothing, false, "No effect."),
        field("previous_response_id", R, Text, Rejected, false,
            "Nothing is stored: send the earlier items in `input`."),
        field("conversation", R, Any, Rejected, false, "Nothing is stored: send the earlier items in `input`."),
        field("background", R, Flag, Rejected, false, "Only `false`: wait for the response, or stream it."),
        field("include", R, List, Rejected, false, "Only empty: a response has its messages and function calls."),
        field("top_logprobs", R, COUNT, Rejected, false, "Only 0. `/v1/chat/completions` has log probabilities."),
        field("prompt", R, Object, Rejected, false, "No prompts are stored: send the text in `input`."),
        field("context_management", R, List, Rejected, false, "Only empty: send the items that the model is to see."),
        field("moderation", R, Object, Rejected, false, "The server moderates nothing."),
        field("n", R, COUNT, Rejected, false, "Only 1."),
        field("messages", R, List, Rejected, false, "Use `input`."),
        field("max_tokens", R, COUNT, Rejected, false, "Use `max_output_tokens`."),
        field("max_completion_tokens", R, COUNT, Rejected, false, "Use `max_output_tokens`."),
        field("response_format", R, Object, Rejected, false, "Use `text`, with its member `format`."),
        field("reasoning_effort", R, Text, Rejected, false, "Use `reasoning`, with its member `effort`."),
    ]
};

/// Fields whose JSON is that of chats, with the names of chats: those of [`FIELDS`], and all that go to the model.
pub(super) fn passed() -> impl Iterator<Item = &'static str> {
    let own = ["model", "stream", "parallel_tool_calls", "chat_template_kwargs"];
    let of_model = crate::fields::FIELDS.iter().filter(|f| f.used == Use::Model && f.on != On::Completions);
    let of_model = of_model.map(|field| field.name);
    let is_taken = |name: &&str| !FIELDS.iter().any(|field| field.name == *name && field.used == Use::Rejected);
    own.into_iter().chain(of_model.filter(is_taken))
}

/// The name of a field in this form; `name` is that of chats.
pub(crate) fn name_of(name: &'static str) -> &'static str {
    match name {
        "messages" => "input",
        "max_tokens" => "max_output_tokens",
        "response_format" => "text.format",
        "reasoning_effort" => "reasoning.effort",
        other => other,
    }
}
