//! What both front ends do with shared memory regions. CUDA regions do not exist without a GPU: none is found, none registered.

use engine::Engine;
use memory::{Handle, RegionKind, RegionStatus};
use tensor::{Error, Result};

/// Refuses register and unregister unless the operator allowed them (P 1.11).
///
/// # Errors
/// UNSUPPORTED, with the option that would allow it.
pub fn permit(engine: &Engine) -> Result<()> {
    if engine.options().allow_client_shm {
        return Ok(());
    }
    Err(Error::unsupported(
        "Client shared memory is disabled. Start the server with '--allow-client-shm=true' to enable.",
    ))
}

/// One region, or all of a kind when `name` is empty.
///
/// # Errors
/// NOT_FOUND; another text when the name belongs to the other kind (memory.md 1.8).
pub fn status(engine: &Engine, kind: RegionKind, name: &str) -> Result<Vec<RegionStatus>> {
    engine.regions().status(kind, (!name.is_empty()).then_some(name))
}

/// Forgets one region, or all of a kind when `name` is empty. Unknown names and names of the other kind are no error.
///
/// # Errors
/// As `permit`.
pub fn unregister(engine: &Engine, kind: RegionKind, name: &str) -> Result<()> {
    permit(engine)?;
    match name {
        "" => engine.regions().unregister_all(kind),
        name => engine.regions().unregister(kind, name),
    }
    Ok(())
}

/// Refuses a register request that names no region. HTTP only: over gRPC a region may be called "", as with Triton.
///
/// # Errors
/// INVALID_ARG with the text of the kind.
pub fn named(kind: RegionKind, name: &str) -> Result<()> {
    if !name.is_empty() {
        return Ok(());
    }
    let kind = match kind {
        RegionKind::System => "system",
        RegionKind::Cuda => "cuda",
    };
    Err(Error::invalid(format!("'region name' is necessary to register {kind} shared memory region")))
}

/// Refuses to register a CUDA region where there is no GPU, whatever the request says.
///
/// # Errors
/// UNSUPPORTED as `permit`, INVALID_ARG.
pub fn permit_cuda(engine: &Engine, name: &str) -> Result<()> {
    permit(engine)?;
    if memory::gpu_driver().is_ok() {
        return Ok(());
    }
    Err(Error::invalid(format!("failed to register CUDA shared memory region: '{name}', GPUs not supported")))
}

/// The handle of a register request.
///
/// # Errors
/// INVALID_ARG when it has another length than handles have.
pub fn handle(raw: &[u8]) -> Result<Handle> {
    let bytes =
        raw.try_into().map_err(|_| Error::invalid("'raw_handle' must be a valid base64 encoded cudaIpcMemHandle_t"))?;
    Ok(Handle(bytes))
}
