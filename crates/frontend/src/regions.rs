//! What both front ends do with shared memory regions. CUDA regions do not exist without a GPU: none is found, none registered.

use crate::http::route::SharedMemory;
use engine::Engine;
use memory::RegionStatus;
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
pub fn status(engine: &Engine, kind: SharedMemory, name: &str) -> Result<Vec<RegionStatus>> {
    match kind {
        SharedMemory::System => engine.regions().status((!name.is_empty()).then_some(name)),
        SharedMemory::Cuda if name.is_empty() => Ok(Vec::new()),
        SharedMemory::Cuda => Err(Error::not_found(match engine.regions().status(Some(name)) {
            Ok(_) => format!("The region named '{name}' is registered as system shared memory, not CUDA shared memory"),
            Err(_) => format!("Unable to find cuda shared memory region: '{name}'"),
        })),
    }
}

/// Forgets one region, or all of a kind when `name` is empty. Unknown names and names of the other kind are no error.
///
/// # Errors
/// As `permit`.
pub fn unregister(engine: &Engine, kind: SharedMemory, name: &str) -> Result<()> {
    permit(engine)?;
    match (kind, name) {
        (SharedMemory::System, "") => engine.regions().unregister_all(),
        (SharedMemory::System, name) => engine.regions().unregister(name),
        (SharedMemory::Cuda, _) => {}
    }
    Ok(())
}

/// Refuses a register request that names no region. HTTP only: over gRPC a region may be called "", as with Triton.
///
/// # Errors
/// INVALID_ARG with the text of the kind.
pub fn named(kind: SharedMemory, name: &str) -> Result<()> {
    if !name.is_empty() {
        return Ok(());
    }
    let kind = match kind {
        SharedMemory::System => "system",
        SharedMemory::Cuda => "cuda",
    };
    Err(Error::invalid(format!("'region name' is necessary to register {kind} shared memory region")))
}

/// Registers a CUDA region: refused.
///
/// # Errors
/// Always.
pub fn register_cuda(engine: &Engine, name: &str) -> Result<()> {
    permit(engine)?;
    Err(Error::invalid(format!("failed to register CUDA shared memory region: '{name}', GPUs not supported")))
}
