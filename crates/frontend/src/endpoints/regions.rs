//! Regions of shared memory. All endpoints run on the threads of [`offload`]: a large region takes long to unmap,
//! there may be thousands, and the first call to a device's driver is slow. Without a GPU there are no CUDA regions.

use super::*;
use crate::access::Act;
use crate::http::decode::percent_decode;
use crate::text::decode_base64;
use memory::Handle;
use memory::RegionKind;
use memory::RegionSource;
use memory::RegionStatus;

pub struct Status(pub RegionKind);

/// Registers a region.
pub struct Register(pub RegionKind);

/// Removes one region, or all of a kind.
pub struct Unregister(pub RegionKind);

/// Name of the region in the path; empty if it has none. Clients percent-encode it there but not in inference requests
/// (memory.md 1.4).
fn region(exchange: &HttpExchange<'_>) -> String {
    percent_decode(exchange.names().region).into_owned()
}

/// Memory to register as a region.
pub enum Registration {
    /// A shared memory object of the system.
    System { key: String, offset: u64, byte_size: u64 },
    /// Memory of a device, by the handle of its driver.
    Cuda { handle: Vec<u8>, device_id: i64, byte_size: u64 },
}

/// Status of one region, or of all of a kind if `name` is empty, encoded.
///
/// # Errors
/// NOT_FOUND; another text if the name belongs to the other kind (memory.md 1.8).
async fn status<T: Send + 'static>(
    with: &Context<'_>,
    kind: RegionKind,
    name: String,
    encode: impl FnOnce(Vec<RegionStatus>) -> T + Send + 'static,
) -> Result<T> {
    let engine = with.engine.clone();
    let find = move || engine.regions().status(kind, (!name.is_empty()).then_some(&name)).map(encode);
    Ok(offload::run(0, move |_| find()).await??)
}

/// Registers a region. `read` decodes the rest of a request of `bytes` bytes, after the checks that do not need it
/// (memory.md 1.4, 2.1).
///
/// `name` is `None` if the request has no place for one: over gRPC a region may be called "", as with Triton.
///
/// # Errors
/// UNSUPPORTED unless the operator allowed it; INVALID_ARG without a name, a GPU or a handle; those of the registry.
async fn register(
    with: &Context<'_>,
    kind: RegionKind,
    name: Option<String>,
    bytes: usize,
    read: impl FnOnce() -> tensor::Result<Registration> + Send + 'static,
) -> Result<()> {
    let engine = with.engine.clone();
    let register = move || {
        permit(&engine)?;
        let Some(name) = name else {
            let kind = if kind == RegionKind::Cuda { "cuda" } else { "system" };
            let text = format!("'region name' is necessary to register {kind} shared memory region");
            return Err(Error::invalid(text));
        };
        if kind == RegionKind::Cuda && memory::gpu_driver().is_err() {
            let text = format!("failed to register CUDA shared memory region: '{name}', GPUs not supported");
            return Err(Error::invalid(text));
        }
        match read()? {
            Registration::System { key, offset, byte_size } => {
                engine.regions().register(&name, &key, offset, byte_size)
            }
            Registration::Cuda { handle, device_id, byte_size } => {
                let wrong = |_| Error::invalid("'raw_handle' must be a valid base64 encoded cudaIpcMemHandle_t");
                let handle = Handle(handle.try_into().map_err(wrong)?);
                engine.regions().register_cuda(&name, handle, device_id, byte_size)
            }
        }
    };
    Ok(offload::run(bytes, move |_| register()).await??)
}

/// Removes one region, or all of a kind if `name` is empty. Unknown names and names of the other kind are no error.
///
/// # Errors
/// UNSUPPORTED unless the operator allowed it.
async fn unregister(with: &Context<'_>, kind: RegionKind, name: String) -> Result<()> {
    let engine = with.engine.clone();
    let unregister = move || match name.as_str() {
        "" => engine.regions().unregister_all(kind),
        name => engine.regions().unregister(kind, name),
    };
    permit(with.engine)?;
    Ok(offload::run(0, move |_| unregister()).await?)
}

/// Clients change regions only if the operator allowed it (P 1.11).
fn permit(engine: &Engine) -> tensor::Result<()> {
    if engine.options().allow_client_shm {
        return Ok(());
    }
    let text = "Client shared memory is disabled. Start the server with '--allow-client-shm=true' to enable.";
    Err(Error::unsupported(text))
}

impl Endpoint for Status {
    fn facts(&self) -> &'static Facts {
        of(
            self.0,
            const { &Facts { act: Act::Read, ..facts("system_region_status") } },
            const { &Facts { act: Act::Read, ..facts("cuda_region_status") } },
        )
    }

    fn http<'a>(&'a self, exchange: &'a HttpExchange<'a>, _body: RequestBody) -> HttpAnswer<'a> {
        later(async move { status(&exchange.operations(), self.0, region(exchange), region_list).await })
    }

    fn grpc<'a>(&'a self, exchange: GrpcExchange<'a>, message: Bytes) -> GrpcAnswer<'a> {
        Box::pin(async move {
            // The messages of both kinds are the same.
            let pb::SystemSharedMemoryStatusRequest { name } = decode(message)?;
            let encode = of(self.0, system_regions as fn(_) -> _, cuda_regions);
            Ok(status(&exchange.operations(), self.0, name, encode).await?)
        })
    }
}

impl Endpoint for Register {
    fn facts(&self) -> &'static Facts {
        of(
            self.0,
            const { &Facts { audit_message: audit_system, ..facts("system_region_register") } },
            const { &Facts { audit_message: audit_cuda, ..facts("cuda_region_register") } },
        )
    }

    fn http<'a>(&'a self, exchange: &'a HttpExchange<'a>, body: RequestBody) -> HttpAnswer<'a> {
        later(async move {
            let name = Some(region(exchange)).filter(|name| !name.is_empty());
            let read = of(self.0, system_region as fn(&Bytes) -> _, cuda_region);
            let bytes = body.len();
            let registered = register(&exchange.operations(), self.0, name, bytes, move || read(&body.bytes)).await;
            registered.map(|()| Bytes::new())
        })
    }

    fn grpc<'a>(&'a self, exchange: GrpcExchange<'a>, message: Bytes) -> GrpcAnswer<'a> {
        Box::pin(async move {
            let (name, registration) = match self.0 {
                RegionKind::System => {
                    let pb::SystemSharedMemoryRegisterRequest { name, key, offset, byte_size } = decode(message)?;
                    (name, Registration::System { key, offset, byte_size })
                }
                RegionKind::Cuda => {
                    let pb::CudaSharedMemoryRegisterRequest { name, raw_handle, device_id, byte_size } =
                        decode(message)?;
                    (name, Registration::Cuda { handle: raw_handle.into(), device_id, byte_size })
                }
            };
            register(&exchange.operations(), self.0, Some(name), 0, move || Ok(registration)).await?;
            Ok(frame(&pb::SystemSharedMemoryRegisterResponse {}))
        })
    }
}

impl Endpoint for Unregister {
    fn facts(&self) -> &'static Facts {
        of(self.0, const { &facts("system_region_unregister") }, const { &facts("cuda_region_unregister") })
    }

    fn http<'a>(&'a self, exchange: &'a HttpExchange<'a>, _body: RequestBody) -> HttpAnswer<'a> {
        later(async move { unregister(&exchange.operations(), self.0, region(exchange)).await.map(|()| Bytes::new()) })
    }

    fn grpc<'a>(&'a self, exchange: GrpcExchange<'a>, message: Bytes) -> GrpcAnswer<'a> {
        Box::pin(async move {
            let pb::SystemSharedMemoryUnregisterRequest { name } = decode(message)?;
            unregister(&exchange.operations(), self.0, name).await?;
            Ok(frame(&pb::SystemSharedMemoryUnregisterResponse {}))
        })
    }
}

const fn facts(name: &'static str) -> Facts {
    Facts { names: &[("region", 1)], ..Facts::write(name, Category::SharedMemory) }
}

fn audit_system(message: &[u8], line: &mut JsonLine<'_>) -> std::result::Result<(), DecodeError> {
    let request = pb::SystemSharedMemoryRegisterRequest::decode(message)?;
    line.text("key", request.key.as_bytes(), LOG_NAME_BYTES_MAX);
    line.number("offset", request.offset).number("byte_size", request.byte_size);
    Ok(())
}

fn audit_cuda(message: &[u8], line: &mut JsonLine<'_>) -> std::result::Result<(), DecodeError> {
    let request = pb::CudaSharedMemoryRegisterRequest::decode(message)?;
    line.number("device_id", request.device_id).number("byte_size", request.byte_size);
    Ok(())
}

/// The value for this kind of region.
fn of<T>(kind: RegionKind, system: T, cuda: T) -> T {
    match kind {
        RegionKind::System => system,
        RegionKind::Cuda => cuda,
    }
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

/// Regions of one kind.
fn region_list(regions: Vec<RegionStatus>) -> Bytes {
    let mut text = Text::begin(b'[');
    for r in regions {
        text.open(b'{').key("name").string(&r.name);
        match &r.source {
            RegionSource::System { key, offset } => text.key("key").string(key).key("offset").integer(*offset),
            RegionSource::Cuda { device_id } => text.key("device_id").integer(u64::from(*device_id)),
        };
        text.key("byte_size").integer(r.byte_size).close(b'}');
    }
    text.close(b']');
    text.into_bytes()
}

fn cuda_region(body: &Bytes) -> tensor::Result<Registration> {
    let request = Value::parse(body)?;
    let missing = |name: &str| Error::malformed(format!("attempt to access non-existing object member '{name}'"));
    let raw = request
        .get("raw_handle")
        .ok_or_else(|| Error::invalid("Shared memory register request has no 'raw_handle' field"))?;
    let text = raw.get("b64").ok_or_else(|| missing("b64"))?.as_text()?.decode();
    let byte_size = request.get("byte_size").ok_or_else(|| missing("byte_size"))?.as_u64()?;
    let device_id = request.get("device_id").ok_or_else(|| missing("device_id"))?.as_u64()?;
    // Some clients break the text into lines.
    let text: Vec<u8> = text.iter().copied().filter(|b| !b.is_ascii_whitespace()).collect();
    let device_id = i64::try_from(device_id).unwrap_or(i64::MAX);
    Ok(Registration::Cuda { handle: decode_base64(&text).unwrap_or_default(), device_id, byte_size })
}

fn system_region(body: &Bytes) -> tensor::Result<Registration> {
    let request = Value::parse(body)?;
    let missing = |field: &str| Error::invalid(format!("Shared memory register request has no '{field}' field"));
    let key = request.get("key").ok_or_else(|| missing("key"))?.as_string()?;
    let offset = request.get("offset").map_or(Ok(0), Value::as_u64)?;
    let byte_size = request.get("byte_size").ok_or_else(|| missing("byte_size"))?.as_u64()?;
    Ok(Registration::System { key, offset, byte_size })
}
