//! Operations besides inference over gRPC: decodes requests and encodes answers for `operations`.

use super::context::{Call, GrpcContext};
use super::message::frame;
use super::status::{Status, code};
use crate::gate::Headers;
use crate::limits::{JSON_BYTES_ON_REACTOR_MAX, MESSAGE_BYTES_ON_REACTOR_MAX};
use crate::offload;
use crate::operations::models::Metadata;
use crate::operations::regions::Registration;
use crate::operations::repository::Load;
use crate::operations::settings::{Settings, settings};
use crate::operations::{self, Permission, models, regions, repository};
use crate::rope::Rope;
use crate::table::Operation;
use crate::text::Text;
use bytes::{BufMut, Bytes, BytesMut};
use engine::VersionStatistics;
use memory::{RegionKind, RegionSource, RegionStatus};
use prost::Message;
use protocol::json::Value;
use protocol::pb::health::{HealthCheckResponse, health_check_response::ServingStatus};
use protocol::pb::inference as pb;
use std::collections::BTreeMap;
use std::sync::Arc;
use tensor::{DataType, Error, Name, Result};

/// Runs an operation with the message of a call.
pub async fn answer(
    context: &Arc<GrpcContext>,
    operation: Operation,
    call: &Call,
    message: Bytes,
) -> Result<Rope, Status> {
    let engine = &context.engine;
    call.exchange.received(&message, 0);
    let headers: Headers<'_, '_> = &|name, at| call.head.all(name).nth(at);
    let permission = Permission::OfMessage {
        gate: &context.gate,
        grant: &call.exchange.grant,
        caller: &call.exchange.caller,
        headers,
    };
    let with = &operations::Context { engine, control: &*context.control, permission };
    let is_health = matches!(operation, Operation::ServerLive | Operation::ServerReady | Operation::HealthCheck);
    if is_health && engine.is_exiting() {
        return Err(Error::unavailable("Server exiting").into());
    }
    Ok(match operation {
        Operation::ServerLive => frame(&pb::ServerLiveResponse { live: engine.is_live() }),
        Operation::ServerReady => frame(&pb::ServerReadyResponse { ready: engine.readiness().get().await }),
        Operation::HealthCheck => {
            let status =
                if engine.readiness().get().await { ServingStatus::Serving } else { ServingStatus::NotServing };
            frame(&HealthCheckResponse { status: status.into() })
        }
        Operation::ModelReady => {
            let pb::ModelReadyRequest { name, version } = decode(message)?;
            frame(&pb::ModelReadyResponse { ready: models::readiness(with, &name, &version)?.get().await })
        }
        Operation::ServerMetadata => {
            let m = engine.server_metadata().clone();
            frame(&pb::ServerMetadataResponse { name: m.name, version: m.version, extensions: m.extensions })
        }
        Operation::ModelMetadata => {
            let pb::ModelMetadataRequest { name, version } = decode(message)?;
            models::metadata(with, &call.exchange, &name, &version, metadata_frame).await?
        }
        Operation::ModelConfig => {
            let pb::ModelConfigRequest { name, version } = decode(message)?;
            config_frame(&models::configured(with, &call.exchange, &name, &version)?.identity.config_pb())
        }
        Operation::ModelStatistics => {
            let pb::ModelStatisticsRequest { name, version } = decode(message)?;
            let encode = |statistics: &[VersionStatistics]| {
                frame(&pb::ModelStatisticsResponse { model_stats: statistics.iter().map(Into::into).collect() })
            };
            models::statistics(with, &name, &version, encode).await?
        }
        Operation::Index => {
            let pb::RepositoryIndexRequest { repository_name, ready } = decode(message)?;
            let json = repository::index(with, &repository_name, ready).await?;
            let length = json.len();
            offload::run_if(length > JSON_BYTES_ON_REACTOR_MAX, length, move || index_frame(&json)).await??
        }
        Operation::Load => {
            // The files of a model may come with it.
            repository::load(with, read(message, read_load).await?).await?;
            frame(&pb::RepositoryModelLoadResponse {})
        }
        Operation::Unload => {
            let request: pb::RepositoryModelUnloadRequest = read(message, decode_long).await?;
            let dependents = async { unloads_dependents(&request) };
            repository::unload(with, &request.repository_name, &request.model_name, dependents).await?;
            frame(&pb::RepositoryModelUnloadResponse {})
        }
        Operation::TraceSettings => {
            let request: pb::TraceSettingRequest = read(message, decode_long).await?;
            let request = Settings::new(Some(&request.model_name), "grpc", trace_changes(&request).as_deref());
            trace_frame(&settings(with, request).await?)?
        }
        Operation::LogSettings => {
            let request: pb::LogSettingsRequest = read(message, decode_long).await?;
            let request = Settings::new(None, "grpc", log_changes(&request).as_deref());
            log_frame(&settings(with, request).await?)?
        }
        Operation::SystemRegionStatus => {
            let pb::SystemSharedMemoryStatusRequest { name } = decode(message)?;
            regions::status(with, RegionKind::System, name, system_regions).await?
        }
        Operation::SystemRegionRegister => {
            let pb::SystemSharedMemoryRegisterRequest { name, key, offset, byte_size } = decode(message)?;
            let registration = move || Ok(Registration::System { key, offset, byte_size });
            regions::register(with, RegionKind::System, Some(name), 0, registration).await?;
            frame(&pb::SystemSharedMemoryRegisterResponse {})
        }
        Operation::SystemRegionUnregister => {
            let pb::SystemSharedMemoryUnregisterRequest { name } = decode(message)?;
            regions::unregister(with, RegionKind::System, name).await?;
            frame(&pb::SystemSharedMemoryUnregisterResponse {})
        }
        Operation::CudaRegionStatus => {
            let pb::CudaSharedMemoryStatusRequest { name } = decode(message)?;
            regions::status(with, RegionKind::Cuda, name, cuda_regions).await?
        }
        Operation::CudaRegionRegister => {
            let pb::CudaSharedMemoryRegisterRequest { name, raw_handle, device_id, byte_size } = decode(message)?;
            let registration = move || Ok(Registration::Cuda { handle: raw_handle.into(), device_id, byte_size });
            regions::register(with, RegionKind::Cuda, Some(name), 0, registration).await?;
            frame(&pb::CudaSharedMemoryRegisterResponse {})
        }
        Operation::CudaRegionUnregister => {
            let pb::CudaSharedMemoryUnregisterRequest { name } = decode(message)?;
            regions::unregister(with, RegionKind::Cuda, name).await?;
            frame(&pb::CudaSharedMemoryUnregisterResponse {})
        }
        // Never reached: handled by other modules, or available over HTTP only.
        _ => return Err(Status::new(code::UNIMPLEMENTED, "")),
    })
}

/// Reads a message; on another thread if it is long.
async fn read<T: Send + 'static>(message: Bytes, work: fn(Bytes) -> Result<T, Status>) -> Result<T, Status> {
    let bytes = message.len();
    offload::run_if(bytes > MESSAGE_BYTES_ON_REACTOR_MAX, bytes, move || work(message)).await?
}

/// Decodes a message, which may not be long.
fn decode<M: Message + Default>(message: Bytes) -> Result<M, Status> {
    let (bytes, most) = (message.len(), MESSAGE_BYTES_ON_REACTOR_MAX);
    if bytes <= most {
        return decode_long(message);
    }
    let text = format!("a request of {bytes} bytes, more than the maximum of {most} for this call");
    Err(Status::new(code::RESOURCE_EXHAUSTED, text))
}

/// Decodes a message of any length.
pub(super) fn decode_long<M: Message + Default>(message: Bytes) -> Result<M, Status> {
    M::decode(message).map_err(|e| Status::new(code::INTERNAL, format!("failed to parse the request message: {e}")))
}

fn read_load(message: Bytes) -> Result<Load, Status> {
    use pb::model_repository_parameter::ParameterChoice;
    // One of them may be the configuration. Counted before they are read: a table of them takes many times their bytes.
    Load::check_files(fields(&message, LOAD_PARAMETERS).saturating_sub(1))?;
    let request: pb::RepositoryModelLoadRequest = decode_long(message)?;
    let wrong = |key: &str, wanted: &str| {
        Err(Error::invalid(format!("invalid value type for load parameter '{key}', expected {wanted}.")))
    };
    let parameters = request.parameters;
    Ok(Load::new(&request.repository_name, &request.model_name, |argument, files| {
        argument.open(b'{');
        for (key, value) in parameters {
            match (key.as_str(), value.parameter_choice) {
                ("config", Some(ParameterChoice::StringParam(config))) => _ = argument.key(&key).string(&config),
                ("config", _) => return wrong(&key, "string_param"),
                (file, Some(ParameterChoice::BytesParam(contents))) if file.starts_with("file:") => {
                    files.push((key, contents.into()));
                }
                (file, _) if file.starts_with("file:") => return wrong(file, "bytes_param"),
                _ => return Err(Error::invalid(format!("unrecognized load parameter '{key}'."))),
            }
        }
        argument.close(b'}');
        Ok(())
    })?)
}

/// The field `parameters` of a `RepositoryModelLoadRequest`.
const LOAD_PARAMETERS: u32 = 3;

/// Number of occurrences of a field in the readable part of a message.
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

fn unloads_dependents(request: &pb::RepositoryModelUnloadRequest) -> Result<bool> {
    use pb::model_repository_parameter::ParameterChoice;
    match request.parameters.get("unload_dependents").map(|p| &p.parameter_choice) {
        None => Ok(false),
        Some(Some(ParameterChoice::BoolParam(value))) => Ok(*value),
        Some(_) => Err(Error::invalid("invalid value type for 'unload_dependents' parameter, expected bool_param.")),
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
pub fn log_changes(request: &pb::LogSettingsRequest) -> Option<Bytes> {
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

fn index_frame(json: &str) -> Result<Rope> {
    let text = |value: Option<Value<'_>>| value.map_or(Ok(String::new()), Value::as_string);
    let mut response = pb::RepositoryIndexResponse::default();
    for model in Value::parse(json.as_bytes())?.elements()? {
        response.models.push(pb::repository_index_response::ModelIndex {
            name: text(model.get("name"))?,
            version: text(model.get("version"))?,
            state: text(model.get("state"))?,
            reason: text(model.get("reason"))?,
        });
    }
    Ok(frame(&response))
}

fn trace_frame(json: &str) -> Result<Rope> {
    let mut response = pb::TraceSettingResponse::default();
    for (key, value) in Value::parse(json.as_bytes())?.members()? {
        let value = match value.is_array() {
            true => value.elements()?.map(Value::as_string).collect::<Result<_>>()?,
            false => vec![value.as_string()?],
        };
        let setting = pb::trace_setting_response::SettingValue { value };
        response.settings.insert(String::from_utf8_lossy(&key.decode()).into_owned(), setting);
    }
    Ok(frame(&response))
}

fn log_frame(json: &str) -> Result<Rope> {
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

fn system_regions(found: Vec<RegionStatus>) -> Rope {
    use pb::system_shared_memory_status_response::RegionStatus;
    let entries = found.into_iter().filter_map(|r| {
        let RegionSource::System { key, offset } = r.source else { return None };
        Some((r.name.clone(), RegionStatus { name: r.name, key, offset, byte_size: r.byte_size }))
    });
    frame(&pb::SystemSharedMemoryStatusResponse { regions: entries.collect() })
}

fn cuda_regions(found: Vec<RegionStatus>) -> Rope {
    use pb::cuda_shared_memory_status_response::RegionStatus;
    let entries = found.into_iter().filter_map(|r| {
        let RegionSource::Cuda { device_id } = r.source else { return None };
        Some((r.name.clone(), RegionStatus { name: r.name, device_id: device_id.into(), byte_size: r.byte_size }))
    });
    frame(&pb::CudaSharedMemoryStatusResponse { regions: entries.collect() })
}

fn metadata_frame(metadata: &Metadata) -> Rope {
    let signature = &metadata.version.signature;
    let tensor = |name: &Name, datatype: DataType, dims: &[i64]| {
        let batch = (signature.max_batch_size > 0).then_some(-1);
        pb::model_metadata_response::TensorMetadata {
            name: name.to_string(),
            datatype: datatype.name().to_owned(),
            shape: batch.into_iter().chain(dims.iter().copied()).collect(),
        }
    };
    frame(&pb::ModelMetadataResponse {
        name: signature.model.to_string(),
        versions: metadata.versions.iter().map(ToString::to_string).collect(),
        platform: metadata.version.identity.platform.clone(),
        inputs: signature.inputs.iter().map(|i| tensor(&i.name, i.datatype, &i.dims)).collect(),
        outputs: signature.outputs.iter().map(|o| tensor(&o.name, o.datatype, &o.dims)).collect(),
    })
}

/// `ModelConfigResponse` around a configuration that is encoded already: field 1, length, bytes.
fn config_frame(config: &Bytes) -> Rope {
    let mut head = BytesMut::with_capacity(16);
    head.put_u8(0x0a);
    // Cannot fail: BytesMut grows.
    let _ = prost::encode_length_delimiter(config.len(), &mut head);
    let length = head.len() + config.len();
    let mut prefix = BytesMut::with_capacity(5);
    prefix.put_u8(0);
    prefix.put_u32(u32::try_from(length).unwrap_or(u32::MAX));
    Rope::new([prefix.freeze(), head.freeze(), config.clone()].into_iter())
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Buf;

    #[test]
    fn a_configuration_is_wrapped_without_being_decoded() {
        let config = pb::ModelConfig { name: "m".repeat(300), max_batch_size: 8, ..Default::default() };
        let mut rope = config_frame(&config.encode_to_vec().into());
        let length = rope.remaining();
        let mut bytes = rope.copy_to_bytes(length);
        assert_eq!((bytes.get_u8(), bytes.get_u32() as usize), (0, length - 5));
        assert_eq!(pb::ModelConfigResponse::decode(bytes).unwrap().config, Some(config));
    }
}
