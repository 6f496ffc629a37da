//! Calls with one request and one response.

use super::call::Call;
use super::connection::GrpcContext;
use super::control;
use super::message::{Packing, frame, frame_encoded};
use super::status::{Status, code};
use crate::forward::HeaderForward;
use crate::gate::Grant;
use crate::inference::{self, Inference, Pending, Started};
use crate::limits::{ENTRIES_ON_REACTOR_MAX, MESSAGE_BYTES_ON_REACTOR_MAX, MODELS_ON_REACTOR_MAX};
use crate::offload::{self, Abandoned};
use crate::regions;
use crate::rope::Rope;
use crate::table::Operation;
use crate::traced::{self, Slot};
use crate::verbose;
use bytes::{BufMut, Bytes, BytesMut};
use engine::{Engine, ModelVersion};
use http2::RequestHead;
use memory::{Account, Kind, RegionKind, Source};
use prost::Message;
use protocol::pb::health::{HealthCheckResponse, health_check_response::ServingStatus};
use protocol::pb::inference as pb;
use protocol::{InferRequest, InferResponse, Parameter};
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use tensor::{DataType, Error, Name, Result};

/// Reads the request, does what it asks, frames the response.
pub async fn answer(context: &Arc<GrpcContext>, operation: Operation, call: &mut Call) -> Result<Rope, Status> {
    let message = required(poll_fn(|cx| call.messages.poll_next(cx)).await)?;
    if let Some(slot) = call.trace.as_ref().filter(|_| operation != Operation::Infer) {
        slot.received(&message);
    }
    match operation {
        Operation::Infer => Box::pin(send(context, call, message)?.finish()).await,
        // Rare, and its future is large: not part of every inference's.
        _ => Box::pin(other(context, operation, call, message)).await,
    }
}

/// The message that a unary call must have.
pub fn required(message: Result<Option<Bytes>, Status>) -> Result<Bytes, Status> {
    message?.ok_or_else(|| Status::new(code::INTERNAL, "the call has no request message"))
}

async fn other(context: &Arc<GrpcContext>, operation: Operation, call: &Call, message: Bytes) -> Result<Rope, Status> {
    let engine = &*context.engine;
    let grant = &call.grant;
    grant.charge(message.len());
    Ok(match operation {
        Operation::ServerLive => {
            refuse_exiting(context)?;
            frame(&pb::ServerLiveResponse { live: engine.is_live() })
        }
        Operation::ServerReady => {
            refuse_exiting(context)?;
            frame(&pb::ServerReadyResponse { ready: engine.readiness().get().await })
        }
        Operation::HealthCheck => {
            refuse_exiting(context)?;
            let status =
                if engine.readiness().get().await { ServingStatus::Serving } else { ServingStatus::NotServing };
            frame(&HealthCheckResponse { status: status.into() })
        }
        Operation::ModelReady => {
            let request: pb::ModelReadyRequest = decode(message)?;
            grant.admit_model(&request.name)?;
            frame(&pb::ModelReadyResponse { ready: engine.model_ready(&request.name, &request.version)?.get().await })
        }
        Operation::ServerMetadata => {
            let metadata = engine.server_metadata().clone();
            frame(&pb::ServerMetadataResponse {
                name: metadata.name,
                version: metadata.version,
                extensions: metadata.extensions,
            })
        }
        Operation::ModelMetadata => {
            let request: pb::ModelMetadataRequest = decode(message)?;
            grant.admit_model(&request.name)?;
            metadata(context, request).await?
        }
        Operation::ModelConfig => {
            let request: pb::ModelConfigRequest = decode(message)?;
            grant.admit_model(&request.name)?;
            config_frame(&engine.model(&request.name, &request.version)?.identity.config_pb())
        }
        Operation::ModelStatistics => {
            let request: pb::ModelStatisticsRequest = decode(message)?;
            grant.admit_model(&request.name)?;
            let models =
                if request.name.is_empty() { engine.models() } else { engine.ready_versions(&request.name).len() };
            let engine = context.engine.clone();
            let make = move |_: &Abandoned<'_>| -> Result<Rope, Status> {
                let statistics = engine.statistics(&request.name, &request.version)?;
                Ok(frame(&pb::ModelStatisticsResponse { model_stats: statistics.iter().map(Into::into).collect() }))
            };
            if models > MODELS_ON_REACTOR_MAX { offload::run(0, make).await?? } else { make(&Abandoned::never())? }
        }
        Operation::Index => control::index(context, decode(message)?).await?,
        Operation::Load => control::load(context, call, message).await?,
        Operation::Unload => control::unload(context, call, decode_any(message).await?).await?,
        Operation::TraceSettings => control::trace(context, call, decode_any(message).await?).await?,
        Operation::LogSettings => control::log(context, call, decode_any(message).await?).await?,
        Operation::SystemRegionStatus => {
            let request: pb::SystemSharedMemoryStatusRequest = decode(message)?;
            // Elsewhere: there may be thousands.
            let engine = context.engine.clone();
            offload::run(0, move |_| region_status(&engine, &request.name)).await??
        }
        Operation::SystemRegionRegister => {
            let request: pb::SystemSharedMemoryRegisterRequest = decode(message)?;
            regions::permit(engine)?;
            let engine = context.engine.clone();
            let register = move |_: &Abandoned<'_>| {
                engine.regions().register(&request.name, &request.key, request.offset, request.byte_size)
            };
            offload::run(0, register).await??;
            frame(&pb::SystemSharedMemoryRegisterResponse {})
        }
        Operation::SystemRegionUnregister => {
            let request: pb::SystemSharedMemoryUnregisterRequest = decode(message)?;
            // Elsewhere: a large region takes long to unmap, and there may be many.
            let engine = context.engine.clone();
            let unregister = move |_: &Abandoned<'_>| regions::unregister(&engine, RegionKind::System, &request.name);
            offload::run(0, unregister).await??;
            frame(&pb::SystemSharedMemoryUnregisterResponse {})
        }
        Operation::CudaRegionStatus => {
            let request: pb::CudaSharedMemoryStatusRequest = decode(message)?;
            let engine = context.engine.clone();
            offload::run(0, move |_| cuda_region_status(&engine, &request.name)).await??
        }
        Operation::CudaRegionRegister => {
            let request: pb::CudaSharedMemoryRegisterRequest = decode(message)?;
            // Elsewhere: the first call to the driver takes long.
            let engine = context.engine.clone();
            let register = move |_: &Abandoned<'_>| {
                regions::permit_cuda(&engine, &request.name)?;
                let handle = regions::handle(&request.raw_handle)?;
                engine.regions().register_cuda(&request.name, handle, request.device_id, request.byte_size)
            };
            offload::run(0, register).await??;
            frame(&pb::CudaSharedMemoryRegisterResponse {})
        }
        Operation::CudaRegionUnregister => {
            let request: pb::CudaSharedMemoryUnregisterRequest = decode(message)?;
            let engine = context.engine.clone();
            let unregister = move |_: &Abandoned<'_>| regions::unregister(&engine, RegionKind::Cuda, &request.name);
            offload::run(0, unregister).await??;
            frame(&pb::CudaSharedMemoryUnregisterResponse {})
        }
        // Answered elsewhere, or asked for over HTTP alone; they never come here.
        _ => return Err(Status::new(code::UNIMPLEMENTED, "")),
    })
}

/// The answer of an inference, framed.
fn respond(version: &ModelVersion, response: &InferResponse, packing: Packing) -> Result<Rope, Status> {
    let encoded = protocol::grpc::encode(response, &version.signature)?;
    Ok(frame_encoded(encoded, packing)?)
}

/// An answer that is made elsewhere, or has to be waited for.
pub type LaterAnswer = Pin<Box<dyn Future<Output = Result<Rope, Status>>>>;

/// What became of an inference.
pub enum Sent {
    /// Here is its answer.
    Answered(Rope),
    /// It will have one.
    Waits(Waits),
    /// It takes long to read, to check or to answer, which is done elsewhere.
    Later(LaterAnswer),
}

/// An inference that was started and has no answer yet.
pub struct Waits {
    version: Arc<ModelVersion>,
    pending: Pending,
    packing: Packing,
    trace: Option<Rc<Slot>>,
    /// Set once the answer is there and is being framed elsewhere.
    later: Option<LaterAnswer>,
}

/// Written by hand, so that it has no place for a response.
impl Future for Waits {
    type Output = Result<Rope, Status>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        if let Some(later) = &mut this.later {
            return later.as_mut().poll(cx);
        }
        let result = ready!(Pin::new(&mut this.pending).poll(cx));
        completed(this.trace.as_ref());
        let response = result?;
        match answered(this.version.clone(), response, this.packing) {
            Sent::Answered(rope) => Poll::Ready(Ok(rope)),
            Sent::Later(answer) => this.later.insert(answer).as_mut().poll(cx),
            Sent::Waits(_) => Poll::Ready(Err(Status::new(code::INTERNAL, "a request was answered twice"))),
        }
    }
}

fn answered(version: Arc<ModelVersion>, response: Box<InferResponse>, packing: Packing) -> Sent {
    if packing.is_long(&response) {
        let bytes = response.answered_bytes();
        let work = offload::run(bytes, move |_| respond(&version, &response, packing));
        return Sent::Later(Box::pin(async move { work.await? }));
    }
    match respond(&version, &response, packing) {
        Ok(rope) => Sent::Answered(rope),
        Err(status) => Sent::Later(Box::pin(std::future::ready(Err(status)))),
    }
}

#[inline]
fn completed(trace: Option<&Rc<Slot>>) {
    if let Some(slot) = trace {
        slot.completed();
    }
}

/// Everything that needs no waiting; a function, so that nothing of it is kept across the wait.
pub fn send(context: &Arc<GrpcContext>, call: &Call, message: Bytes) -> Result<Sent, Status> {
    call.grant.charge(message.len());
    let packing = Packing::new(context, call.response_encoding);
    if let Some(slot) = &call.trace {
        slot.was_read();
        slot.received(&message);
    }
    if message.len() > MESSAGE_BYTES_ON_REACTOR_MAX && protocol::grpc::is_long(&message, MESSAGE_BYTES_ON_REACTOR_MAX) {
        return Ok(Sent::Later(Box::pin(infer_large(
            context.clone(),
            call.head.clone(),
            call.grant.clone(),
            (*call.account).clone(),
            message,
            packing,
            call.trace.clone(),
        ))));
    }
    let (version, request) = read(context, call, message)?;
    match inference::start(&version, request) {
        Started::Here(inference) => sent(version, inference?, packing, call.trace.as_ref()),
        later @ Started::Elsewhere(_) => Ok(Sent::Later(Box::pin(finish(version, later, packing, call.trace.clone())))),
    }
}

/// What became of an inference that was started.
#[inline]
fn sent(
    version: Arc<ModelVersion>,
    inference: Inference,
    packing: Packing,
    trace: Option<&Rc<Slot>>,
) -> Result<Sent, Status> {
    Ok(match inference {
        Inference::Done(result) => {
            completed(trace);
            answered(version, result?, packing)
        }
        Inference::Pending(pending) => {
            Sent::Waits(Waits { version, pending, packing, trace: trace.cloned(), later: None })
        }
    })
}

/// The request of a message, and who is to answer it.
fn read(context: &GrpcContext, call: &Call, message: Bytes) -> Result<(Arc<ModelVersion>, Box<InferRequest>), Status> {
    let log = |e: &Error| verbose::infer_failed(None, e);
    let head = protocol::grpc::peek(&message).inspect_err(log)?;
    // Neither is kept: the request's buffer is reused as soon as its last tensor is gone.
    drop(message);
    if let Some(slot) = &call.trace {
        slot.named(&head.model_name, &head.model_version, &head.id);
    }
    call.grant.admit_model(&head.model_name)?;
    let read = move || -> Result<_> {
        let version = context.engine.model(&head.model_name, &head.model_version)?;
        protocol::grpc::refuse_decoupled(&version.signature)?;
        let mut request = head.into_request(&version.signature, &*context.engine)?;
        if call.trace.is_some() {
            request.trace = traced::begin_grpc(call.trace.as_ref(), &call.head, &version);
        }
        forward(&context.forward, &call.head, &mut request)?;
        Ok((version, request))
    };
    Ok(read().inspect_err(log)?)
}

/// As `send`, for a message that is read elsewhere.
async fn infer_large(
    context: Arc<GrpcContext>,
    head: Rc<RequestHead>,
    grant: Grant,
    account: Account,
    message: Bytes,
    packing: Packing,
    trace: Option<Rc<Slot>>,
) -> Result<Rope, Status> {
    let engine = context.engine.clone();
    let read = move |_: &Abandoned<'_>| -> Result<_> {
        let head = protocol::grpc::peek(&message)?;
        if let Err(refusal) = grant.admit_model(&head.model_name) {
            return Ok(Err(refusal));
        }
        let version = engine.model(&head.model_name, &head.model_version)?;
        protocol::grpc::refuse_decoupled(&version.signature)?;
        let mut request = head.into_request(&version.signature, &*engine)?;
        inference::dispose_elsewhere(&mut request);
        Ok(Ok((version, request)))
    };
    let read = offload::run_charged(&account, Kind::Unpacked, usize::MAX, read).await;
    let read = read.and_then(|(read, charge)| {
        let (version, mut request) = match read? {
            Ok(read) => read,
            Err(refusal) => return Ok(Err(refusal)),
        };
        inference::charge(&mut request, charge);
        if let Some(slot) = &trace {
            slot.identified(&request.id);
        }
        request.trace = traced::begin_grpc(trace.as_ref(), &head, &version);
        forward(&context.forward, &head, &mut request)?;
        Ok(Ok((version, request)))
    });
    let (version, request) = read.inspect_err(|e| verbose::infer_failed(None, e))??;
    let started = inference::start(&version, request);
    finish(version, started, packing, trace).await
}

/// Answers a request that was read elsewhere, or takes long to check.
async fn finish(
    version: Arc<ModelVersion>,
    started: Started<Inference>,
    packing: Packing,
    trace: Option<Rc<Slot>>,
) -> Result<Rope, Status> {
    sent(version, started.get().await?, packing, trace.as_ref())?.finish().await
}

impl Sent {
    /// Waits for whatever is left.
    async fn finish(self) -> Result<Rope, Status> {
        match self {
            Self::Answered(rope) => Ok(rope),
            Self::Waits(waits) => waits.await,
            Self::Later(answer) => answer.await,
        }
    }
}

/// Adds forwarded metadata to a request.
///
/// # Errors
/// INVALID_ARG for a key that is reserved.
pub fn forward(pattern: &HeaderForward, head: &RequestHead, request: &mut InferRequest) -> Result<()> {
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

/// As `decode`, elsewhere if the message is long.
async fn decode_any<M: Message + Default + 'static>(message: Bytes) -> Result<M, Status> {
    match message.len() > MESSAGE_BYTES_ON_REACTOR_MAX {
        true => offload::run(message.len(), move |_| decode_long(message)).await?,
        false => decode_long(message),
    }
}

/// Reads a message that has no place for much.
fn decode<M: Message + Default>(message: Bytes) -> Result<M, Status> {
    if message.len() > MESSAGE_BYTES_ON_REACTOR_MAX {
        let text = format!(
            "a request of {} bytes, more than the maximum of {MESSAGE_BYTES_ON_REACTOR_MAX} for this call",
            message.len()
        );
        return Err(Status::new(code::RESOURCE_EXHAUSTED, text));
    }
    decode_long(message)
}

/// Reads a message of any length.
pub fn decode_long<M: Message + Default>(message: Bytes) -> Result<M, Status> {
    M::decode(message).map_err(|e| Status::new(code::INTERNAL, format!("failed to parse the request message: {e}")))
}

fn refuse_exiting(context: &GrpcContext) -> Result<()> {
    if context.engine.is_exiting() { Err(Error::unavailable("Server exiting")) } else { Ok(()) }
}

fn region_status(engine: &Engine, name: &str) -> Result<Rope> {
    use pb::system_shared_memory_status_response::RegionStatus;
    let found = regions::status(engine, RegionKind::System, name)?;
    let entries = found.into_iter().filter_map(|r| {
        let Source::System { key, offset } = r.source else { return None };
        Some((r.name.clone(), RegionStatus { name: r.name, key, offset, byte_size: r.byte_size }))
    });
    Ok(frame(&pb::SystemSharedMemoryStatusResponse { regions: entries.collect() }))
}

fn cuda_region_status(engine: &Engine, name: &str) -> Result<Rope> {
    use pb::cuda_shared_memory_status_response::RegionStatus;
    let found = regions::status(engine, RegionKind::Cuda, name)?;
    let entries = found.into_iter().filter_map(|r| {
        let Source::Cuda { device_id } = r.source else { return None };
        Some((r.name.clone(), RegionStatus { name: r.name, device_id: device_id.into(), byte_size: r.byte_size }))
    });
    Ok(frame(&pb::CudaSharedMemoryStatusResponse { regions: entries.collect() }))
}

async fn metadata(context: &GrpcContext, request: pb::ModelMetadataRequest) -> Result<Rope> {
    let version = context.engine.model(&request.name, &request.version)?;
    let versions = match request.version.as_str() {
        "" => context.engine.ready_versions(&request.name).iter().map(ToString::to_string).collect(),
        _ => vec![version.identity.number.to_string()],
    };
    if version.signature.inputs.len() + version.signature.outputs.len() > ENTRIES_ON_REACTOR_MAX {
        return offload::run(0, move |_| metadata_frame(&version, versions)).await;
    }
    Ok(metadata_frame(&version, versions))
}

fn metadata_frame(version: &ModelVersion, versions: Vec<String>) -> Rope {
    let signature = &version.signature;
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
        versions,
        platform: version.identity.platform.clone(),
        inputs: signature.inputs.iter().map(|i| tensor(&i.name, i.datatype, &i.dims)).collect(),
        outputs: signature.outputs.iter().map(|o| tensor(&o.name, o.datatype, &o.dims)).collect(),
    })
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
