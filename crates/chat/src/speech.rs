//! Responses of a model to the body of a reply: one JSON object, or chunks of a stream.

pub use crate::facts::{Facts, Reason};
use crate::fields::On;
use crate::logprobs;
use crate::places::Said;
use crate::request::{ChatRequest, ToolChoice};
use crate::responses::{ResponsePrinter, ResponseStatus, Spoken, Tokens};
use crate::stops::Stops;
use crate::tools::{TextPiece, ToolCall, ToolStream};
use crate::wire::{self, delta, printed};
use serde::Serialize;
use std::collections::BTreeMap;
use std::io::Write;
use tensor::{Error, Result, allowance};

/// Longest text of a choice that is answered in one piece, in bytes.
pub const TEXT_BYTES_MAX: usize = 64 << 20;

/// Longest text of a choice whose stream repeats it, or counts its tokens, at the end, in bytes.
pub const KEPT_BYTES_MAX: usize = 2 << 20;

/// Bytes of memory that a call takes beside its texts.
const CALL_BYTES: usize = 128;

/// The end of every stream.
pub const DONE: &[u8] = b"data: [DONE]\n\n";

/// A reply in progress.
#[derive(Debug)]
pub struct Speech {
    facts: Facts,
    on: On,
    streams: bool,
    has_usage: bool,
    has_logprobs: bool,
    has_parallel_calls: bool,
    /// Beginning of each chunk, up to its choices.
    head: Vec<u8>,
    choices: Vec<ChoiceState>,
    /// Prompts, in their order, for `echo`.
    echo: Vec<String>,
    /// Tokens of each prompt, if known.
    prompt_tokens: BTreeMap<usize, u64>,
    per_prompt: usize,
    /// Prints an object `response` instead of choices.
    responses: Option<ResponsePrinter>,
}

/// A choice in progress.
#[derive(Debug)]
struct ChoiceState {
    /// Bytes of a character whose end did not come yet.
    rest: Vec<u8>,
    stops: Stops,
    /// Divides the text; `None` if there can be no calls in it.
    reader: Option<ToolStream>,
    text: String,
    calls: Vec<ToolCall>,
    ids: Vec<String>,
    /// Bytes of the text and the calls that are kept.
    kept: usize,
    logprobs: Vec<logprobs::TokenStep>,
    /// Characters said, for the offsets of log probabilities.
    offset: usize,
    tokens: Option<u64>,
    reason: Option<Reason>,
    is_over: bool,
    has_begun: bool,
}

/// Whether a choice goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Continuation {
    GoesOn,
    /// The choice is over: the model's request is to be cancelled.
    Over,
}

#[derive(Serialize)]
struct ChunkHead<'a> {
    id: &'a str,
    object: &'static str,
    created: u64,
    model: &'a str,
    system_fingerprint: Option<&'a str>,
}

/// Tokens of a request.
#[derive(Debug, Clone, Copy, Serialize)]
struct TokenUsage {
    prompt_tokens: u64,
    total_tokens: u64,
    completion_tokens: u64,
}

impl Speech {
    /// A reply to a request with this number of prompts.
    pub fn new(request: &ChatRequest, facts: Facts) -> Self {
        let is_asked = !request.functions.tools.is_empty() && request.functions.choice != ToolChoice::None;
        let reader = || match (&facts.forced, facts.parser.filter(|_| is_asked)) {
            (Some(forced), _) => Some(forced.stream(facts.call_bytes_max)),
            (None, Some(parser)) => Some(parser.stream(facts.call_bytes_max)),
            (None, None) => None,
        };
        let prompts = request.prompts.len().max(1);
        let choice = |_| ChoiceState {
            rest: Vec::new(),
            stops: Stops::new(&facts.stop),
            reader: reader(),
            text: String::new(),
            calls: Vec::new(),
            ids: Vec::new(),
            kept: 0,
            logprobs: Vec::new(),
            offset: 0,
            tokens: None,
            reason: None,
            is_over: false,
            has_begun: false,
        };
        let choices = (0..prompts * request.choices).map(choice).collect();
        let object = match (request.on, request.reply.streams) {
            (On::Completions, _) => "text_completion",
            (_, true) => "chat.completion.chunk",
            (_, false) => "chat.completion",
        };
        let about =
            ChunkHead { id: &facts.id, object, created: facts.created, model: &facts.model, system_fingerprint: None };
        let mut head = if request.reply.streams { b"data: ".to_vec() } else { Vec::new() };
        head.extend(serde_json::to_vec(&about).unwrap_or_default());
        head.pop();
        head.extend_from_slice(b",\"choices\":[");
        let about = (&*facts.id, facts.created, &*facts.model);
        let settings = request.responses.as_ref();
        let responses =
            settings.map(|settings| ResponsePrinter::new(settings, about, request.reply.streams, facts.fresh));
        Self {
            on: request.on,
            streams: request.reply.streams,
            has_usage: request.reply.has_usage,
            has_logprobs: request.reply.logprobs.is_some(),
            has_parallel_calls: request.functions.has_parallel_calls,
            head,
            choices,
            echo: if request.reply.echo { request.prompts.clone() } else { Vec::new() },
            prompt_tokens: BTreeMap::new(),
            per_prompt: request.choices,
            responses,
            facts,
        }
    }

    /// Number of choices.
    pub fn len(&self) -> usize {
        self.choices.len()
    }

    /// Bytes of texts and calls that are kept, of all choices.
    pub fn kept_bytes(&self) -> usize {
        self.choices.iter().map(|choice| choice.kept).sum()
    }

    /// Whether there are no choices.
    pub fn is_empty(&self) -> bool {
        self.choices.is_empty()
    }

    /// Whether every choice is over.
    pub fn is_over(&self) -> bool {
        self.choices.iter().all(|choice| choice.is_over)
    }

    /// Whether this choice is over: later responses of the model do not count.
    pub fn is_choice_over(&self, at: usize) -> bool {
        self.choices.get(at).is_none_or(|choice| choice.is_over)
    }

    /// Adds what the model said. Chunks of a stream are appended to `out`.
    ///
    /// # Errors
    /// RESOURCE_EXHAUSTED above [`TEXT_BYTES_MAX`], INTERNAL for malformed log probabilities.
    pub fn said(&mut self, at: usize, said: &Said, is_last: bool, out: &mut Vec<u8>) -> Result<Continuation> {
        if self.is_choice_over(at) {
            return Ok(Continuation::Over);
        }
        if let Some(tokens) = said.prompt_tokens {
            self.prompt_tokens.entry(at / self.per_prompt.max(1)).or_insert(tokens);
        }
        let has_logprobs = self.has_logprobs;
        let Some(choice) = self.choices.get_mut(at) else { return Ok(Continuation::Over) };
        if let Some(tokens) = said.text_tokens {
            let sum = choice.tokens.get_or_insert(0);
            *sum = sum.saturating_add(tokens);
        }
        let mut steps = Vec::new();
        if let Some(json) = said.logprobs.as_ref().filter(|_| has_logprobs) {
            steps = logprobs::read(json)?;
        }
        match said.reason.as_deref() {
            Some(b"length") => choice.reason = Some(Reason::Length),
            Some(b"stop") => choice.reason = Some(Reason::Stop),
            Some(b"tool_calls") => choice.reason = Some(Reason::ToolCalls),
            _ => {}
        }
        let text = choice.whole_characters(&said.text, is_last);
        let (text, is_stopped) = choice.stops.push(&text, is_last);
        if is_stopped {
            // The model may have gone on up to its last token.
            choice.reason = Some(Reason::Stop);
        }
        let (is_final, is_last) = (is_last, is_last || is_stopped);
        self.speak(at, text, steps, is_last, out)?;
        Ok(if self.is_choice_over(at) && !is_final { Continuation::Over } else { Continuation::GoesOn })
    }

    /// The model's last response of a choice had no content.
    ///
    /// # Errors
    /// RESOURCE_EXHAUSTED above [`TEXT_BYTES_MAX`].
    pub fn ended(&mut self, at: usize, out: &mut Vec<u8>) -> Result<()> {
        self.said(at, &Said::default(), true, out).map(drop)
    }

    fn speak(
        &mut self,
        at: usize,
        text: String,
        steps: Vec<logprobs::TokenStep>,
        is_last: bool,
        out: &mut Vec<u8>,
    ) -> Result<()> {
        let is_chat = self.on != On::Completions;
        let has_parallel_calls = self.has_parallel_calls;
        let echo =
            self.echo.get(at / self.per_prompt.max(1)).filter(|_| !self.choices.get(at).is_some_and(|c| c.has_begun));
        let text = match echo {
            Some(prompt) => format!("{prompt}{text}"),
            None => text,
        };
        let Some(choice) = self.choices.get_mut(at) else { return Ok(()) };
        let is_first = !std::mem::replace(&mut choice.has_begun, true);
        let mut pieces = match &mut choice.reader {
            None if text.is_empty() => Vec::new(),
            None => vec![TextPiece::Content(text)],
            Some(stream) => stream.push(&text),
        };
        // A call that is too long ends the choice, as in Triton, where it is streamed.
        let is_exceeded = self.streams && choice.reader.as_ref().is_some_and(ToolStream::is_exceeded);
        if is_exceeded {
            choice.reason = Some(Reason::Length);
            pieces.clear();
        }
        let is_last = is_last || is_exceeded;
        if let Some(stream) = choice.reader.as_mut().filter(|_| is_last && !is_exceeded) {
            pieces.extend(stream.end());
        }
        pieces.retain(|piece| match piece {
            TextPiece::Content(text) => !text.is_empty(),
            TextPiece::Begin(call, _) | TextPiece::Arguments(call, _) => has_parallel_calls || *call == 0,
        });
        let most = match (self.streams, self.responses.is_some() || self.facts.counts) {
            (false, _) => Some(TEXT_BYTES_MAX),
            (true, true) => Some(KEPT_BYTES_MAX),
            (true, false) => None,
        };
        if !self.streams {
            choice.kept += steps.iter().map(logprobs::TokenStep::bytes).sum::<usize>();
        }
        choice.keep(&pieces, &self.facts, most)?;
        let offset = choice.offset;
        choice.offset += steps.iter().map(|step| step.text().chars().count()).sum::<usize>();
        if is_last {
            choice.is_over = true;
            // A response that is cut within a call is incomplete.
            let keeps_reason = self.facts.forced.is_some() || self.responses.is_some();
            choice.reason = Some(choice.reason(self.facts.max_tokens, keeps_reason, is_exceeded));
        }
        if let Some(printer) = &mut self.responses {
            if is_first {
                printer.begin(choice.spoken(), out);
            }
            for piece in &pieces {
                printer.add(piece, choice.spoken(), out)?;
            }
            if is_last {
                printer.end(choice.reason == Some(Reason::Length), choice.spoken(), out)?;
            }
            return Ok(());
        }
        if !self.streams {
            choice.logprobs.extend(steps);
            return Ok(());
        }
        let reason = choice.reason.filter(|_| is_last);
        let delta_of = |piece: &TextPiece| (delta(piece, &choice.ids), matches!(piece, TextPiece::Content(_)));
        let deltas: Vec<_> = pieces.iter().filter(|_| is_chat).map(delta_of).collect();
        if is_chat {
            if is_first {
                self.chunk(at, "{\"role\":\"assistant\",\"content\":\"\"}", None, None, out);
            }
            let mut logprobs = (!steps.is_empty()).then(|| logprobs::Chat::of(&steps)).map(|all| printed(&all));
            let count = deltas.len();
            let mut is_said = false;
            for (place, (delta, is_text)) in deltas.into_iter().enumerate() {
                // The reason comes with the last text, where there is one.
                let is_end = place + 1 == count && is_text;
                let reason = reason.filter(|_| is_end);
                is_said |= reason.is_some();
                self.chunk(at, &delta, reason, logprobs.take().as_deref(), out);
            }
            if let Some(logprobs) = logprobs.take() {
                self.chunk(at, "{}", None, Some(&logprobs), out);
            }
            if let Some(reason) = reason.filter(|_| !is_said) {
                self.chunk(at, "{}", Some(reason), None, out);
            }
            return Ok(());
        }
        let mut text = String::new();
        for piece in pieces {
            if let TextPiece::Content(more) = piece {
                text += &more;
            }
        }
        if text.is_empty() && steps.is_empty() && reason.is_none() {
            return Ok(());
        }
        let logprobs = (!steps.is_empty()).then(|| printed(&logprobs::Completion::of(&steps, offset)));
        self.chunk(at, &printed(&text), reason, logprobs.as_deref(), out);
        Ok(())
    }

    /// A chunk; `said` is the delta of a chat, or the text of a completion, as JSON.
    fn chunk(&self, at: usize, said: &str, reason: Option<Reason>, logprobs: Option<&str>, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.head);
        self.choice(at, if self.on == On::Completions { "text" } else { "delta" }, said, reason, logprobs, out);
        out.extend_from_slice(if self.has_usage { b"],\"usage\":null}\n\n" } else { b"]}\n\n" });
    }

    fn choice(
        &self,
        at: usize,
        name: &str,
        said: &str,
        reason: Option<Reason>,
        logprobs: Option<&str>,
        out: &mut Vec<u8>,
    ) {
        let reason = reason.map(Reason::name);
        let quote = if reason.is_some() { "\"" } else { "" };
        let (reason, logprobs) = (reason.unwrap_or("null"), logprobs.unwrap_or("null"));
        // A vector takes all that is written.
        let _ = write!(
            out,
            "{{\"index\":{at},\"{name}\":{said},\"logprobs\":{logprobs},\"finish_reason\":{quote}{reason}{quote}}}"
        );
    }

    /// Texts whose tokens the model did not count: each prompt by its number, and each choice.
    pub fn uncounted(&self) -> bool {
        self.usage().is_none() && (self.has_usage || !self.streams)
    }

    /// Tokens of all prompts and of all texts, counted by a tokenizer.
    pub fn count(&mut self, prompts: &[u64], texts: &[u64]) {
        for (at, &tokens) in prompts.iter().enumerate() {
            self.prompt_tokens.entry(at).or_insert(tokens);
        }
        for (choice, &tokens) in self.choices.iter_mut().zip(texts) {
            choice.tokens.get_or_insert(tokens);
        }
    }

    /// The texts of all choices, calls included, for a tokenizer.
    pub fn texts(&self) -> Vec<String> {
        let all = self.choices.iter().map(|choice| {
            let calls = choice.calls.iter().map(|call| format!("{}{}", call.name, call.arguments));
            std::iter::once(choice.text.clone()).chain(calls).collect()
        });
        all.collect()
    }

    fn usage(&self) -> Option<TokenUsage> {
        let prompts = self.choices.len() / self.per_prompt.max(1);
        // A model may give any numbers.
        let add = |sum: u64, more: Option<u64>| Some(sum.saturating_add(more?));
        let prompt_tokens = (0..prompts).map(|at| self.prompt_tokens.get(&at).copied()).try_fold(0, add)?;
        let completion_tokens = self.choices.iter().map(|choice| choice.tokens).try_fold(0, add)?;
        let total_tokens = prompt_tokens.saturating_add(completion_tokens);
        Some(TokenUsage { prompt_tokens, total_tokens, completion_tokens })
    }

    /// How a response ended, with its tokens.
    fn outcome(&self) -> (ResponseStatus<'static>, Option<Tokens>, Spoken<'_>) {
        let choice = self.choices.first();
        let is_cut = choice.is_some_and(|choice| choice.reason == Some(Reason::Length));
        let usage = self.usage().map(|usage| Tokens { input: usage.prompt_tokens, output: usage.completion_tokens });
        let status = if is_cut { ResponseStatus::Incomplete } else { ResponseStatus::Completed };
        (status, usage, choice.map(ChoiceState::spoken).unwrap_or_default())
    }

    /// The last event of a response that failed after its beginning. `false` for chats and completions, which have no
    /// event of their own for it.
    pub fn fail(&mut self, error: &Error, out: &mut Vec<u8>) -> bool {
        let Some(mut printer) = self.responses.take() else { return false };
        let (_, tokens, spoken) = self.outcome();
        // Without memory for what was said, the stream just ends.
        let _ = printer.close(ResponseStatus::Failed(error), tokens, spoken, out);
        self.responses = Some(printer);
        true
    }

    /// The chunks behind the last choice: the usage if it was asked for and is known, and the end.
    ///
    /// # Errors
    /// RESOURCE_EXHAUSTED without memory for the text that a response repeats.
    pub fn close(&mut self, out: &mut Vec<u8>) -> Result<()> {
        if let Some(mut printer) = self.responses.take() {
            let (status, tokens, spoken) = self.outcome();
            let closed = printer.close(status, tokens, spoken, out);
            self.responses = Some(printer);
            return closed;
        }
        if let Some(usage) = self.usage().filter(|_| self.has_usage) {
            out.extend_from_slice(&self.head);
            out.extend_from_slice(b"],\"usage\":");
            out.extend_from_slice(printed(&usage).as_bytes());
            out.extend_from_slice(b"}\n\n");
        }
        out.extend_from_slice(DONE);
        Ok(())
    }

    /// The body of a reply that is not streamed.
    ///
    /// # Errors
    /// RESOURCE_EXHAUSTED without memory.
    pub fn whole(&self) -> Result<Vec<u8>> {
        let mut out = Vec::new();
        let bytes: usize = self.choices.iter().map(|choice| choice.text.len() + choice.offset * 64).sum();
        allowance::grow_by(&mut out, bytes + 512)?;
        if let Some(printer) = &self.responses {
            let (status, tokens, spoken) = self.outcome();
            printer.object(spoken, status, tokens, &mut out);
            return Ok(out);
        }
        out.extend_from_slice(&self.head);
        for (at, choice) in self.choices.iter().enumerate() {
            if at > 0 {
                out.push(b',');
            }
            let has = !choice.logprobs.is_empty();
            let (name, said, logprobs) = if self.on == On::Completions {
                let logprobs = has.then(|| printed(&logprobs::Completion::of(&choice.logprobs, 0)));
                ("text", printed(&choice.text), logprobs)
            } else {
                let logprobs = has.then(|| printed(&logprobs::Chat::of(&choice.logprobs)));
                ("message", choice.message(), logprobs)
            };
            self.choice(at, name, &said, choice.reason, logprobs.as_deref(), &mut out);
        }
        out.extend_from_slice(b"],\"usage\":");
        out.extend_from_slice(printed(&self.usage()).as_bytes());
        out.push(b'}');
        Ok(out)
    }
}

impl ChoiceState {
    /// The text up to the last whole character. Bytes that are no UTF-8 are replaced.
    fn whole_characters(&mut self, more: &[u8], is_last: bool) -> String {
        if self.rest.is_empty()
            && let Ok(text) = str::from_utf8(more)
        {
            return text.to_owned();
        }
        self.rest.extend_from_slice(more);
        let mut bytes = std::mem::take(&mut self.rest);
        if let Err(error) = str::from_utf8(&bytes)
            && !is_last
        {
            // The end of the text may be the beginning of a character.
            let tail = bytes.len().saturating_sub(3);
            let begins = |at: &usize| bytes.get(*at).is_some_and(|&byte| byte >= 0xc0);
            let cut = (tail.max(error.valid_up_to())..bytes.len()).rev().find(begins);
            let is_open =
                |at: usize| str::from_utf8(bytes.get(at..).unwrap_or_default()).is_err_and(|e| e.error_len().is_none());
            if let Some(at) = cut.filter(|&at| is_open(at)) {
                self.rest = bytes.split_off(at);
            }
        }
        String::from_utf8_lossy(&bytes).into_owned()
    }

    fn spoken(&self) -> Spoken<'_> {
        Spoken { text: &self.text, calls: &self.calls, ids: &self.ids }
    }

    /// Keeps the text and its calls, at most so many bytes; without a number, only that there are calls.
    fn keep(&mut self, pieces: &[TextPiece], facts: &Facts, most: Option<usize>) -> Result<()> {
        for piece in pieces {
            match piece {
                TextPiece::Begin(_, name) => {
                    self.ids.push(facts.call_id());
                    self.calls.push(ToolCall { name: name.clone(), arguments: String::new() });
                    self.kept += CALL_BYTES + name.len();
                }
                TextPiece::Content(_) | TextPiece::Arguments(..) if most.is_none() => {}
                TextPiece::Content(text) => {
                    self.text += text;
                    self.kept += text.len();
                }
                TextPiece::Arguments(_, more) => {
                    if let Some(call) = self.calls.last_mut() {
                        call.arguments += more;
                        self.kept += more.len();
                    }
                }
            }
        }
        let most = most.unwrap_or(usize::MAX);
        if self.kept > most {
            let text = format!("the text of a choice has more than {most} bytes; a stream of a chat has no such limit");
            return Err(Error::exhausted(text).retry(false));
        }
        Ok(())
    }

    fn reason(&self, max_tokens: Option<i64>, is_forced: bool, is_exceeded: bool) -> Reason {
        if !self.calls.is_empty() && !is_forced && !is_exceeded {
            return Reason::ToolCalls;
        }
        let is_full = |tokens: u64| max_tokens.is_some_and(|most| most > 0 && tokens >= most as u64);
        match self.reason {
            Some(reason) => reason,
            None if self.tokens.is_some_and(is_full) => Reason::Length,
            None => Reason::Stop,
        }
    }

    fn message(&self) -> String {
        wire::message(&self.text, self.calls.iter().zip(&self.ids))
    }
}
