//! Regions of shared memory. All operations run on the threads of [`offload`]: a large region takes long to unmap,
//! there may be thousands, and the first call to a device's driver is slow. Without a GPU there are no CUDA regions.

use super::{Context, Result};
use crate::offload;
use engine::Engine;
use memory::{Handle, RegionKind, RegionStatus};
use tensor::Error;

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
pub async fn status<T: Send + 'static>(
    context: &Context<'_>,
    kind: RegionKind,
    name: String,
    encode: impl FnOnce(Vec<RegionStatus>) -> T + Send + 'static,
) -> Result<T> {
    let engine = context.engine.clone();
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
pub async fn register(
    context: &Context<'_>,
    kind: RegionKind,
    name: Option<String>,
    bytes: usize,
    read: impl FnOnce() -> tensor::Result<Registration> + Send + 'static,
) -> Result<()> {
    let engine = context.engine.clone();
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
pub async fn unregister(context: &Context<'_>, kind: RegionKind, name: String) -> Result<()> {
    let engine = context.engine.clone();
    let unregister = move || match name.as_str() {
        "" => engine.regions().unregister_all(kind),
        name => engine.regions().unregister(kind, name),
    };
    permit(context.engine)?;
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
