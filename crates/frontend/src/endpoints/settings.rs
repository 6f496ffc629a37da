//! Settings of traces and logs. Over HTTP a row reads and another changes; over gRPC the message decides.

use super::*;
use crate::access::Act;
use crate::access_log::parameters::put_members;
use crate::limits::AUDIT_ITEMS_MAX;
use std::collections::BTreeMap;

/// Trace settings of a model, or of models without their own; with `changes`, changes them over HTTP.
pub struct TraceSettings {
    pub changes: bool,
}

/// Log settings; with `changes`, changes them over HTTP.
pub struct LogSettings {
    pub changes: bool,
}

const TRACE: Facts = Facts {
    names: &[("model", 2)],
    reads: Some(trace_only_reads),
    audit_message: audit_trace,
    ..Facts::read("trace_settings", Category::Trace)
};
const TRACE_UPDATE: Facts = Facts { name: "trace_update", act: Act::Write, ..TRACE };

const LOG: Facts =
    Facts { reads: Some(log_only_reads), audit_message: audit_log, ..Facts::read("log_settings", Category::Logging) };
const LOG_UPDATE: Facts = Facts { name: "log_update", act: Act::Write, ..LOG };

/// A request that reads settings or changes them.
struct SettingsRequest {
    /// The model whose trace settings are meant, empty for the global ones; `None`: settings of logs.
    model: Option<String>,
    is_change: bool,
    argument: Text,
}

impl SettingsRequest {
    /// Trace settings of `model`, empty for the global ones, or log settings. `changes`: those to change, in JSON.
    fn new(model: Option<&str>, protocol: &str, changes: Option<&[u8]>) -> Self {
        let mut argument = Text::begin(b'{');
        if let Some(model) = model {
            argument.key("model").string(model);
        }
        argument.key("settings").raw(changes.unwrap_or(b"{}")).key("protocol").string(protocol).close(b'}');
        Self { model: model.map(str::to_owned), is_change: changes.is_some(), argument }
    }

    /// The settings after the change, as the JSON of the native contract.
    async fn run(self, with: &Context<'_>) -> Result<String> {
        let Self { model, is_change, argument } = self;
        let (read, change, update) = match model {
            Some(_) => (ControlOperation::TraceGet, ControlOperation::TraceUpdate, const { &TRACE_UPDATE }),
            None => (ControlOperation::LogGet, ControlOperation::LogUpdate, const { &LOG_UPDATE }),
        };
        let model = model.unwrap_or_default();
        // An empty name stands for all models.
        with.admit_model(&model)?;
        if is_change {
            with.admit_change(update, &model)?;
        }
        with.control(if is_change { change } else { read }, argument).await
    }
}

/// Answers over HTTP. `model`: as in [`SettingsRequest::new`].
fn answer<'a>(
    exchange: &'a HttpExchange<'a>,
    model: Option<&'a str>,
    is_change: bool,
    body: RequestBody,
) -> HttpAnswer<'a> {
    later(async move {
        let model = model.map(str::to_owned);
        let request = read(body.bytes, move |body| {
            let changes = if is_change { Some(Value::parse(body)?) } else { None };
            // JSON that is not an object counts as an empty one (P 1.14).
            let changes = changes.map(|value| if value.is_object() { value.text() } else { b"{}" });
            Ok(SettingsRequest::new(model.as_deref(), "http", changes))
        });
        request.await?.run(&exchange.operations()).await.map(Bytes::from)
    })
}

impl Endpoint for TraceSettings {
    fn facts(&self) -> &'static Facts {
        if self.changes { const { &TRACE_UPDATE } } else { const { &TRACE } }
    }

    fn http<'a>(&'a self, exchange: &'a HttpExchange<'a>, body: RequestBody) -> HttpAnswer<'a> {
        answer(exchange, Some(exchange.names().model), self.changes, body)
    }

    fn grpc<'a>(&'a self, exchange: GrpcExchange<'a>, message: Bytes) -> GrpcAnswer<'a> {
        Box::pin(async move {
            let request: pb::TraceSettingRequest = read_message(message, decode_long).await?;
            let request = SettingsRequest::new(Some(&request.model_name), "grpc", trace_changes(&request).as_deref());
            Ok(trace_frame(&request.run(&exchange.operations()).await?)?)
        })
    }
}

impl Endpoint for LogSettings {
    fn facts(&self) -> &'static Facts {
        if self.changes { const { &LOG_UPDATE } } else { const { &LOG } }
    }

    fn http<'a>(&'a self, exchange: &'a HttpExchange<'a>, body: RequestBody) -> HttpAnswer<'a> {
        answer(exchange, None, self.changes, body)
    }

    fn grpc<'a>(&'a self, exchange: GrpcExchange<'a>, message: Bytes) -> GrpcAnswer<'a> {
        Box::pin(async move {
            let request: pb::LogSettingsRequest = read_message(message, decode_long).await?;
            let request = SettingsRequest::new(None, "grpc", log_changes(&request).as_deref());
            Ok(log_frame(&request.run(&exchange.operations()).await?)?)
        })
    }
}

fn trace_changes(request: &pb::TraceSettingRequest) -> Option<Bytes> {
    let mut json = Text::begin(b'{');
    for (key, setting) in &request.settings {
        json.key(key).open(b'[');
        setting.value.iter().for_each(|value| _ = json.string(value));
        json.close(b']');
    }
    json.close(b'}');
    (!request.settings.is_empty()).then(|| json.into_bytes())
}

/// The settings to change, sorted by name; `None` if there are none.
fn log_changes(request: &pb::LogSettingsRequest) -> Option<Bytes> {
    use pb::log_settings_request::setting_value::ParameterChoice;
    let mut json = Text::begin(b'{');
    for (key, setting) in BTreeMap::from_iter(&request.settings) {
        match &setting.parameter_choice {
            Some(ParameterChoice::BoolParam(value)) => json.key(key).boolean(*value),
            Some(ParameterChoice::Uint32Param(value)) => json.key(key).integer(*value),
            Some(ParameterChoice::StringParam(value)) => json.key(key).string(value),
            None => json.key(key).raw(b"null"),
        };
    }
    json.close(b'}');
    (!request.settings.is_empty()).then(|| json.into_bytes())
}

fn trace_frame(json: &str) -> tensor::Result<Rope> {
    let mut response = pb::TraceSettingResponse::default();
    for (key, value) in Value::parse(json.as_bytes())?.members()? {
        let value = match value.is_array() {
            true => value.elements()?.map(Value::as_string).collect::<tensor::Result<_>>()?,
            false => vec![value.as_string()?],
        };
        let setting = pb::trace_setting_response::SettingValue { value };
        response.settings.insert(String::from_utf8_lossy(&key.decode()).into_owned(), setting);
    }
    Ok(frame(&response))
}

fn log_frame(json: &str) -> tensor::Result<Rope> {
    use pb::log_settings_response::setting_value::ParameterChoice;
    let mut response = pb::LogSettingsResponse::default();
    for (key, value) in Value::parse(json.as_bytes())?.members()? {
        let choice = if value.is_string() {
            ParameterChoice::StringParam(value.as_string()?)
        } else if value.number().is_some() {
            ParameterChoice::Uint32Param(u32::try_from(value.as_u64()?).unwrap_or(u32::MAX))
        } else {
            ParameterChoice::BoolParam(value.as_bool()?)
        };
        let setting = pb::log_settings_response::SettingValue { parameter_choice: Some(choice) };
        response.settings.insert(String::from_utf8_lossy(&key.decode()).into_owned(), setting);
    }
    Ok(frame(&response))
}

fn trace_only_reads(message: &[u8]) -> bool {
    pb::TraceSettingRequest::decode(message).is_ok_and(|request| request.settings.is_empty())
}

fn audit_trace(message: &[u8], line: &mut JsonLine<'_>) -> std::result::Result<(), DecodeError> {
    let request = pb::TraceSettingRequest::decode(message)?;
    let mut settings: Vec<_> = request.settings.iter().collect();
    settings.sort_unstable_by_key(|(name, _)| *name);
    for (name, setting) in settings.into_iter().take(AUDIT_ITEMS_MAX) {
        line.client_key(name.as_bytes(), LOG_NAME_BYTES_MAX);
        line.text_value(setting.value.join(",").as_bytes(), LOG_NAME_BYTES_MAX);
    }
    Ok(())
}

fn log_only_reads(message: &[u8]) -> bool {
    pb::LogSettingsRequest::decode(message).is_ok_and(|request| request.settings.is_empty())
}

fn audit_log(message: &[u8], line: &mut JsonLine<'_>) -> std::result::Result<(), DecodeError> {
    let changes = log_changes(&pb::LogSettingsRequest::decode(message)?).unwrap_or_default();
    put_members(Value::parse(&changes).ok(), line);
    Ok(())
}
