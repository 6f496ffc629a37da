//! Calls with one request and one response.

use super::call::Call;
use super::connection::GrpcContext;
use super::control;
use super::message::{frame, frame_encoded};
use super::method::Rpc;
use super::status::{Status, code};
use crate::flight::{self, Airborne, Flight};
use crate::forward::HeaderForward;
use crate::http::route::SharedMemory;
use crate::regions;
use crate::rope::Rope;
use crate::verbose;
use bytes::{BufMut, Bytes, BytesMut};
use engine::ModelVersion;
use http2::Head;
use prost::Message;
use protocol::pb::health::{HealthCheckResponse, health_check_response::ServingStatus};
use protocol::pb::inference as pb;
use protocol::{InferRequest, InferResponse, Parameter};
use std::future::poll_fn;
use std::sync::Arc;
use tensor::{DataType, Error, Name, Result};

/// Reads the request, does what it asks, frames the response.
pub async fn answer(context: &GrpcContext, rpc: Rpc, call: &mut Call) -> Result<Rope, Status> {
    let message = required(poll_fn(|cx| call.messages.poll_next(cx)).await)?;
    match rpc {
        Rpc::ModelInfer => infer(context, call, message).await,
        // Rare, and its future is large: not part of every inference's.
        _ => Box::pin(other(context, rpc, message)).await,
    }
}

/// The message that a unary call must have.
pub fn required(message: Result<Option<Bytes>, Status>) -> Result<Bytes, Status> {
    message?.ok_or_else(|| Status::new(code::INTERNAL, "the call has no request message"))
}

async fn other(context: &GrpcContext, rpc: Rpc, message: Bytes) -> Result<Rope, Status> {
    let engine = &*context.engine;
    Ok(match rpc {
        Rpc::ServerLive => {
            refuse_exiting(context)?;
            frame(&pb::ServerLiveResponse { live: engine.is_live() })
        }
        Rpc::ServerReady => {
            refuse_exiting(context)?;
            frame(&pb::ServerReadyResponse { ready: engine.is_ready() })
        }
        Rpc::HealthCheck => {
            refuse_exiting(context)?;
            let status = if engine.is_ready() { ServingStatus::Serving } else { ServingStatus::NotServing };
            frame(&HealthCheckResponse { status: status.into() })
        }
        Rpc::ModelReady => {
            let request: pb::ModelReadyRequest = decode(message)?;
            frame(&pb::ModelReadyResponse { ready: engine.model_ready(&request.name, &request.version)? })
        }
        Rpc::ServerMetadata => {
            let metadata = engine.server_metadata().clone();
            frame(&pb::ServerMetadataResponse {
                name: metadata.name,
                version: metadata.version,
                extensions: metadata.extensions,
            })
        }
        Rpc::ModelMetadata => metadata(context, &decode(message)?)?,
        Rpc::ModelConfig => {
            let request: pb::ModelConfigRequest = decode(message)?;
            config_frame(&engine.model(&request.name, &request.version)?.config_pb)
        }
        Rpc::ModelStatistics => {
            let request: pb::ModelStatisticsRequest = decode(message)?;
            let statistics = engine.statistics(&request.name, &request.version)?;
            frame(&pb::ModelStatisticsResponse { model_stats: statistics.iter().map(Into::into).collect() })
        }
        Rpc::RepositoryIndex => control::index(context, decode(message)?).await?,
        Rpc::RepositoryModelLoad => control::load(context, decode(message)?).await?,
        Rpc::RepositoryModelUnload => control::unload(context, decode(message)?).await?,
        Rpc::TraceSetting => control::trace(context, decode(message)?).await?,
        Rpc::LogSettings => control::log(context, decode(message)?).await?,
        Rpc::SystemSharedMemoryStatus => {
            use pb::system_shared_memory_status_response::RegionStatus;
            let request: pb::SystemSharedMemoryStatusRequest = decode(message)?;
            let found = regions::status(engine, SharedMemory::System, &request.name)?;
            let entries = found.into_iter().map(|r| {
                let status =
                    RegionStatus { name: r.name.clone(), key: r.key, offset: r.offset, byte_size: r.byte_size };
                (r.name, status)
            });
            frame(&pb::SystemSharedMemoryStatusResponse { regions: entries.collect() })
        }
        Rpc::SystemSharedMemoryRegister => {
            let request: pb::SystemSharedMemoryRegisterRequest = decode(message)?;
            regions::permit(engine)?;
            engine.regions().register(&request.name, &request.key, request.offset, request.byte_size)?;
            frame(&pb::SystemSharedMemoryRegisterResponse {})
        }
        Rpc::SystemSharedMemoryUnregister => {
            let request: pb::SystemSharedMemoryUnregisterRequest = decode(message)?;
            regions::unregister(engine, SharedMemory::System, &request.name)?;
            frame(&pb::SystemSharedMemoryUnregisterResponse {})
        }
        Rpc::CudaSharedMemoryStatus => {
            let request: pb::CudaSharedMemoryStatusRequest = decode(message)?;
            regions::status(engine, SharedMemory::Cuda, &request.name)?;
            frame(&pb::CudaSharedMemoryStatusResponse::default())
        }
        Rpc::CudaSharedMemoryRegister => {
            let request: pb::CudaSharedMemoryRegisterRequest = decode(message)?;
            regions::register_cuda(engine, &request.name)?;
            frame(&pb::CudaSharedMemoryRegisterResponse {})
        }
        Rpc::CudaSharedMemoryUnregister => {
            let request: pb::CudaSharedMemoryUnregisterRequest = decode(message)?;
            regions::unregister(engine, SharedMemory::Cuda, &request.name)?;
            frame(&pb::CudaSharedMemoryUnregisterResponse {})
        }
        // Answered elsewhere; they never come here.
        Rpc::ModelInfer | Rpc::ModelStreamInfer | Rpc::HealthWatch | Rpc::Reflection => {
            return Err(Status::new(code::UNIMPLEMENTED, ""));
        }
    })
}

async fn infer(context: &GrpcContext, call: &Call, message: Bytes) -> Result<Rope, Status> {
    match depart(context, call, message)? {
        Departed::Answered(rope) => Ok(rope),
        Departed::Waits(version, airborne) => respond(context, call, &version, &airborne.await?),
    }
}

/// The answer of an inference, framed.
pub fn respond(
    context: &GrpcContext,
    call: &Call,
    version: &ModelVersion,
    response: &InferResponse,
) -> Result<Rope, Status> {
    let encoded = protocol::grpc::encode(response, &version.signature)?;
    Ok(frame_encoded(encoded, call.response_encoding, context.compression_level.unwrap_or_default()))
}

/// What became of an inference.
pub enum Departed {
    /// Here is its answer.
    Answered(Rope),
    /// It will have one.
    Waits(Arc<ModelVersion>, Airborne),
}

/// Everything that needs no waiting; a function, so that nothing of it is kept across the wait.
pub fn depart(context: &GrpcContext, call: &Call, message: Bytes) -> Result<Departed, Status> {
    let (version, request) = read(context, call, message).inspect_err(|e| verbose::infer_failed(None, e))?;
    Ok(match flight::start(&version, request)? {
        Flight::Landed(result) => Departed::Answered(respond(context, call, &version, &result?)?),
        Flight::Airborne(airborne) => Departed::Waits(version, airborne),
    })
}

/// The request of a message, and who is to answer it.
fn read(context: &GrpcContext, call: &Call, message: Bytes) -> Result<(Arc<ModelVersion>, InferRequest)> {
    let head = protocol::grpc::peek(&message)?;
    // Neither is kept: the request's buffer is reused as soon as its last tensor is gone.
    drop(message);
    let version = context.engine.model(&head.model_name, &head.model_version)?;
    protocol::grpc::refuse_decoupled(&version.signature)?;
    let mut request = head.into_request(&version.signature, &*context.engine)?;
    forward(&context.forward, &call.head, &mut request)?;
    Ok((version, request))
}

/// Adds forwarded metadata to a request.
///
/// # Errors
/// INVALID_ARG for a key that is reserved.
pub fn forward(pattern: &HeaderForward, head: &Head, request: &mut InferRequest) -> Result<()> {
    if !pattern.is_active() {
        return Ok(());
    }
    for (name, value) in head.fields() {
        if pattern.wants(name)? {
            let value = Name::from_utf8_lossy(Bytes::copy_from_slice(value));
            request.parameters.push((name.into(), Parameter::String(value)));
        }
    }
    Ok(())
}

fn decode<M: Message + Default>(message: Bytes) -> Result<M, Status> {
    M::decode(message).map_err(|e| Status::new(code::INTERNAL, format!("failed to parse the request message: {e}")))
}

fn refuse_exiting(context: &GrpcContext) -> Result<()> {
    if context.engine.is_exiting() { Err(Error::unavailable("Server exiting")) } else { Ok(()) }
}

fn metadata(context: &GrpcContext, request: &pb::ModelMetadataRequest) -> Result<Rope> {
    let version = context.engine.model(&request.name, &request.version)?;
    let signature = &version.signature;
    let tensor = |name: &Name, datatype: DataType, dims: &[i64]| {
        let batch = (signature.max_batch_size > 0).then_some(-1);
        pb::model_metadata_response::TensorMetadata {
            name: name.to_string(),
            datatype: datatype.name().to_owned(),
            shape: batch.into_iter().chain(dims.iter().copied()).collect(),
        }
    };
    let versions = match request.version.as_str() {
        "" => context.engine.ready_versions(&request.name).iter().map(ToString::to_string).collect(),
        _ => vec![version.number.to_string()],
    };
    Ok(frame(&pb::ModelMetadataResponse {
        name: signature.model.to_string(),
        versions,
        platform: version.platform.clone(),
        inputs: signature.inputs.iter().map(|i| tensor(&i.name, i.datatype, &i.dims)).collect(),
        outputs: signature.outputs.iter().map(|o| tensor(&o.name, o.datatype, &o.dims)).collect(),
    }))
}

/// `ModelConfigResponse` around a configuration that is encoded already: field 1, length, bytes.
fn config_frame(config: &Bytes) -> Rope {
    let mut head = BytesMut::with_capacity(16);
    head.put_u8(0x0a);
    // There is room: BytesMut grows.
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
