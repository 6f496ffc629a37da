//! Control operations between their protobuf messages and the JSON of the native contract.

use super::call::Call;
use super::connection::GrpcContext;
use super::message::frame;
use super::status::Status;
use super::unary::decode_long;
use crate::control::{Argument, ControlOperation, check, check_files};
use crate::limits::{JSON_BYTES_ON_REACTOR_MAX, MESSAGE_BYTES_ON_REACTOR_MAX};
use crate::offload::{self, Abandoned};
use crate::refusal::Refusal;
use crate::rope::Rope;
use crate::table::Operation;
use crate::text::Text;
use bytes::Bytes;
use protocol::json::Value;
use protocol::pb::inference as pb;
use tensor::{Error, Result};

async fn call(context: &GrpcContext, operation: ControlOperation, argument: Text) -> Result<String> {
    context.control.call(operation, check(operation, argument.into_string()?)?.into()).await
}

fn refuse_repository(name: &str) -> Result<()> {
    if name.is_empty() { Ok(()) } else { Err(Error::unsupported("'repository_name' specification is not supported")) }
}

fn text(value: Option<Value<'_>>) -> Result<String> {
    value.map_or(Ok(String::new()), Value::as_string)
}

/// `RepositoryIndex`.
pub async fn index(context: &GrpcContext, request: pb::RepositoryIndexRequest) -> Result<Rope, Status> {
    refuse_repository(&request.repository_name)?;
    let mut argument = Text::begin(b'{');
    argument.key("ready").boolean(request.ready).close(b'}');
    let reply = call(context, ControlOperation::RepositoryIndex, argument).await?;
    let length = reply.len();
    let make = move |_: &Abandoned<'_>| -> Result<Rope> {
        let mut response = pb::RepositoryIndexResponse::default();
        for model in Value::parse(reply.as_bytes())?.elements()? {
            response.models.push(pb::repository_index_response::ModelIndex {
                name: text(model.get("name"))?,
                version: text(model.get("version"))?,
                state: text(model.get("state"))?,
                reason: text(model.get("reason"))?,
            });
        }
        Ok(frame(&response))
    };
    Ok(match length > JSON_BYTES_ON_REACTOR_MAX {
        true => offload::run(length, make).await??,
        false => make(&Abandoned::never())?,
    })
}

/// `RepositoryModelLoad`.
pub async fn load(context: &GrpcContext, asked: &Call, message: Bytes) -> Result<Rope, Status> {
    let length = message.len();
    // The files of a model may come with it.
    let (model, argument) = match length > MESSAGE_BYTES_ON_REACTOR_MAX {
        true => offload::run(length, move |_| load_argument(message)).await??,
        false => load_argument(message)?,
    };
    asked.grant.admit_model(&model)?;
    context.control.call(ControlOperation::RepositoryLoad, argument).await?;
    Ok(frame(&pb::RepositoryModelLoadResponse {}))
}

/// The model, and what is handed on.
fn load_argument(message: Bytes) -> Result<(String, Argument), Status> {
    use pb::model_repository_parameter::ParameterChoice;
    // One of them may be the configuration. Counted before they are read: a table of them takes many times their bytes.
    check_files(fields(&message, LOAD_PARAMETERS).saturating_sub(1))?;
    let request: pb::RepositoryModelLoadRequest = decode_long(message)?;
    refuse_repository(&request.repository_name)?;
    let mut argument = Text::begin(b'{');
    argument.key("model").string(&request.model_name).key("parameters").open(b'{');
    let wrong = |key: &str, wanted: &str| {
        Error::invalid(format!("invalid value type for load parameter '{key}', expected {wanted}."))
    };
    check_files(request.parameters.keys().filter(|key| key.starts_with("file:")).count())?;
    let mut files = Vec::new();
    for (key, value) in request.parameters {
        match (key.as_str(), value.parameter_choice) {
            ("config", Some(ParameterChoice::StringParam(config))) => _ = argument.key(&key).string(&config),
            ("config", _) => return Err(wrong(&key, "string_param").into()),
            (file, Some(ParameterChoice::BytesParam(content))) if file.starts_with("file:") => {
                files.push((key, Vec::from(content)))
            }
            (file, _) if file.starts_with("file:") => return Err(wrong(file, "bytes_param").into()),
            _ => return Err(Error::invalid(format!("unrecognized load parameter '{key}'.")).into()),
        };
    }
    argument.close(b'}').close(b'}');
    Ok((request.model_name, Argument { json: argument.into_string()?, files }))
}

/// The field `parameters` of a `RepositoryModelLoadRequest`.
const LOAD_PARAMETERS: u32 = 3;

/// How often a message has this field, as far as it can be read.
fn fields(mut message: &[u8], wanted: u32) -> usize {
    let mut count = 0;
    while let Ok((tag, wire_type)) = prost::encoding::decode_key(&mut message) {
        count += usize::from(tag == wanted);
        if prost::encoding::skip_field(wire_type, tag, &mut message, Default::default()).is_err() {
            break;
        }
    }
    count
}

/// `RepositoryModelUnload`.
pub async fn unload(
    context: &GrpcContext,
    asked: &Call,
    request: pb::RepositoryModelUnloadRequest,
) -> Result<Rope, Status> {
    use pb::model_repository_parameter::ParameterChoice;
    asked.grant.admit_model(&request.model_name)?;
    refuse_repository(&request.repository_name)?;
    let dependents = match request.parameters.get("unload_dependents").map(|p| &p.parameter_choice) {
        None => false,
        Some(Some(ParameterChoice::BoolParam(value))) => *value,
        Some(_) => {
            let text = "invalid value type for 'unload_dependents' parameter, expected bool_param.";
            return Err(Error::invalid(text).into());
        }
    };
    let mut argument = Text::begin(b'{');
    argument.key("model").string(&request.model_name).key("unload_dependents").boolean(dependents).close(b'}');
    call(context, ControlOperation::RepositoryUnload, argument).await?;
    Ok(frame(&pb::RepositoryModelUnloadResponse {}))
}

/// The gate's second step: whether settings are changed, and of which model, is known from the message only.
fn admit_settings(
    context: &GrpcContext,
    asked: &Call,
    update: Operation,
    model: &str,
    changes: bool,
) -> Result<(), Refusal> {
    // Without a name it is all of them.
    asked.grant.admit_model(model)?;
    if !changes {
        return Ok(());
    }
    let Some(ask) = update.ask((!model.is_empty()).then_some(model)) else { return Ok(()) };
    context.gate.admit_change(&asked.caller, &asked.grant, &ask, &|name, at| asked.head.all(name).nth(at))
}

/// `TraceSetting`: reading and updating are one call.
pub async fn trace(context: &GrpcContext, asked: &Call, request: pb::TraceSettingRequest) -> Result<Rope, Status> {
    admit_settings(context, asked, Operation::TraceUpdate, &request.model_name, !request.settings.is_empty())?;
    let mut argument = Text::begin(b'{');
    argument.key("model").string(&request.model_name).key("settings").open(b'{');
    for (key, setting) in &request.settings {
        argument.key(key).open(b'[');
        for value in &setting.value {
            argument.string(value);
        }
        argument.close(b']');
    }
    argument.close(b'}').key("protocol").string("grpc").close(b'}');
    let operation =
        if request.settings.is_empty() { ControlOperation::TraceGet } else { ControlOperation::TraceUpdate };
    let reply = call(context, operation, argument).await?;
    let mut response = pb::TraceSettingResponse::default();
    for (key, value) in Value::parse(reply.as_bytes())?.members()? {
        let mut setting = pb::trace_setting_response::SettingValue::default();
        if value.is_array() {
            for item in value.elements()? {
                setting.value.push(item.as_string()?);
            }
        } else {
            setting.value.push(value.as_string()?);
        }
        response.settings.insert(String::from_utf8_lossy(&key.decode()).into_owned(), setting);
    }
    Ok(frame(&response))
}

/// `LogSettings`: reading and updating are one call. Types are checked here, where they are still known; values are not.
pub async fn log(context: &GrpcContext, asked: &Call, request: pb::LogSettingsRequest) -> Result<Rope, Status> {
    use pb::log_settings_request::setting_value::ParameterChoice as In;
    use pb::log_settings_response::setting_value::ParameterChoice as Out;
    admit_settings(context, asked, Operation::LogUpdate, "", !request.settings.is_empty())?;
    if request.settings.contains_key("log_file") {
        return Err(Error::unsupported("log file location can not be updated through network protocol").into());
    }
    let mut argument = Text::begin(b'{');
    argument.key("settings").open(b'{');
    // In the order in which Triton looks, which is the order in which they take effect.
    for key in ["log_info", "log_warning", "log_error", "log_verbose_level", "log_format"] {
        let Some(setting) = request.settings.get(key) else { continue };
        let expected = match (key, &setting.parameter_choice) {
            ("log_verbose_level", Some(In::Uint32Param(level))) => {
                argument.key(key).integer(*level);
                continue;
            }
            ("log_verbose_level", _) => "int32",
            ("log_format", Some(In::StringParam(format))) => {
                argument.key(key).string(format);
                continue;
            }
            ("log_format", _) => "string",
            (_, Some(In::BoolParam(on))) => {
                argument.key(key).boolean(*on);
                continue;
            }
            _ => "boolean",
        };
        return Err(Error::invalid(format!("expect {expected} for '{key}'")).into());
    }
    argument.close(b'}').key("protocol").string("grpc").close(b'}');
    let operation = if request.settings.is_empty() { ControlOperation::LogGet } else { ControlOperation::LogUpdate };
    let reply = call(context, operation, argument).await?;
    let mut response = pb::LogSettingsResponse::default();
    for (key, value) in Value::parse(reply.as_bytes())?.members()? {
        let choice = if value.is_string() {
            Out::StringParam(value.as_string()?)
        } else if value.number().is_some() {
            Out::Uint32Param(u32::try_from(value.as_u64()?).unwrap_or(u32::MAX))
        } else {
            Out::BoolParam(value.as_bool()?)
        };
        let setting = pb::log_settings_response::SettingValue { parameter_choice: Some(choice) };
        response.settings.insert(String::from_utf8_lossy(&key.decode()).into_owned(), setting);
    }
    Ok(frame(&response))
}
