//! `TRITONSERVER_ServerOptions`: options of a server that a program embeds.

#![allow(unsafe_code)] // pointers of a C API

use super::{Err, delete, get, guard, text};
use crate::embed::{ListOption, ServerOptions};
use protocol::json::Value;
use std::ffi::{c_char, c_int};
use tensor::{Error, Result};

/// `TRITONSERVER_INSTANCEGROUPKIND_GPU`
const KIND_GPU: u32 = 2;

/// Options with their defaults.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_ServerOptionsNew(options: *mut *mut ServerOptions) -> Err {
    // SAFETY: the caller's promise.
    unsafe { get(options, || Ok(Box::into_raw(Box::default()))) }
}

/// Deletes options. A server that was made with them keeps its own.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_ServerOptionsDelete(options: *mut ServerOptions) -> Err {
    // SAFETY: made by the function above, and the caller's.
    unsafe { delete(options) }
}

/// Changes options.
///
/// # Safety
/// `options` is null or live, and nothing else uses it meanwhile.
unsafe fn change(options: *mut ServerOptions, change: impl FnOnce(&mut ServerOptions) -> Result<()>) -> Err {
    guard(|| {
        // SAFETY: the caller's promise.
        change(unsafe { options.as_mut() }.ok_or_else(|| Error::invalid("server options was nullptr"))?)
    })
}

/// Functions that set an option of the command line to the text that they get.
macro_rules! texts {
    ($($name:ident, $option:literal;)*) => { $(
        /// Sets an option.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(options: *mut ServerOptions, value: *const c_char) -> Err {
            // SAFETY: the caller's promise.
            unsafe { change(options, |options| { options.set($option, text(value)); Ok(()) }) }
        }
    )* };
}

texts! {
    TRITONSERVER_ServerOptionsSetServerId, "id";
    TRITONSERVER_ServerOptionsSetModelConfigName, "model-config-name";
    TRITONSERVER_ServerOptionsSetCacheDirectory, "cache-directory";
    TRITONSERVER_ServerOptionsSetLogFile, "log-file";
    TRITONSERVER_ServerOptionsSetBackendDirectory, "backend-directory";
    TRITONSERVER_ServerOptionsSetRepoAgentDirectory, "repoagent-directory";
}

/// Functions that set an option of the command line to the number or the truth value that they get.
macro_rules! values {
    ($($name:ident, $type:ty, $option:literal;)*) => { $(
        /// Sets an option.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(options: *mut ServerOptions, value: $type) -> Err {
            // SAFETY: the caller's promise.
            unsafe { change(options, |options| { options.set($option, value); Ok(()) }) }
        }
    )* };
}

values! {
    TRITONSERVER_ServerOptionsSetPinnedMemoryPoolByteSize, u64, "pinned-memory-pool-byte-size";
    TRITONSERVER_ServerOptionsSetMinSupportedComputeCapability, f64, "min-supported-compute-capability";
    TRITONSERVER_ServerOptionsSetExitOnError, bool, "exit-on-error";
    TRITONSERVER_ServerOptionsSetStrictReadiness, bool, "strict-readiness";
    TRITONSERVER_ServerOptionsSetBufferManagerThreadCount, u32, "buffer-manager-thread-count";
    TRITONSERVER_ServerOptionsSetModelLoadThreadCount, u32, "model-load-thread-count";
    TRITONSERVER_ServerOptionsSetModelLoadRetryCount, u32, "model-load-retry-count";
    TRITONSERVER_ServerOptionsSetModelNamespacing, bool, "model-namespacing";
    TRITONSERVER_ServerOptionsSetEnablePeerAccess, bool, "enable-peer-access";
    TRITONSERVER_ServerOptionsSetLogInfo, bool, "log-info";
    TRITONSERVER_ServerOptionsSetLogWarn, bool, "log-warning";
    TRITONSERVER_ServerOptionsSetLogError, bool, "log-error";
    TRITONSERVER_ServerOptionsSetLogVerbose, c_int, "log-verbose";
    TRITONSERVER_ServerOptionsSetMetrics, bool, "allow-metrics";
    TRITONSERVER_ServerOptionsSetGpuMetrics, bool, "allow-gpu-metrics";
    TRITONSERVER_ServerOptionsSetCpuMetrics, bool, "allow-cpu-metrics";
    TRITONSERVER_ServerOptionsSetMetricsInterval, u64, "metrics-interval-ms";
}

/// Adds a value to a list.
///
/// # Safety
/// As `change`.
unsafe fn add(options: *mut ServerOptions, option: ListOption, value: impl FnOnce() -> Result<String>) -> Err {
    // SAFETY: the caller's promise.
    unsafe {
        change(options, |options| {
            options.add(option, value()?);
            Ok(())
        })
    }
}

/// Adds a repository.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_ServerOptionsSetModelRepositoryPath(
    options: *mut ServerOptions,
    model_repository_path: *const c_char,
) -> Err {
    // SAFETY: the caller's promise.
    unsafe { add(options, ListOption::ModelRepository, || Ok(text(model_repository_path))) }
}

/// Sets which models load when: 0 all at the start, 1 also with polls, 2 those that are named.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_ServerOptionsSetModelControlMode(options: *mut ServerOptions, mode: u32) -> Err {
    let set = |options: &mut ServerOptions| {
        let name = match mode {
            0 => "none",
            1 => "poll",
            2 => "explicit",
            _ => return Err(Error::invalid(format!("unknown control mode '{mode}'"))),
        };
        options.set("model-control-mode", name);
        Ok(())
    };
    // SAFETY: the caller's promise.
    unsafe { change(options, set) }
}

/// Adds a model that loads at the start.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_ServerOptionsSetStartupModel(
    options: *mut ServerOptions,
    model_name: *const c_char,
) -> Err {
    // SAFETY: the caller's promise.
    unsafe { add(options, ListOption::LoadModel, || Ok(text(model_name))) }
}

/// Sets whether configurations are taken as they are.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_ServerOptionsSetStrictModelConfig(
    options: *mut ServerOptions,
    strict: bool,
) -> Err {
    let set = |options: &mut ServerOptions| {
        options.is_strict = strict;
        Ok(())
    };
    // SAFETY: the caller's promise.
    unsafe { change(options, set) }
}

/// Sets the rate limiter: 0 off, 1 by the count of executions.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_ServerOptionsSetRateLimiterMode(options: *mut ServerOptions, mode: u32) -> Err {
    let set = |options: &mut ServerOptions| {
        let name = match mode {
            0 => "off",
            1 => "execution_count",
            _ => return Err(Error::invalid(format!("unknown rate limit mode '{mode}'"))),
        };
        options.set("rate-limit", name);
        Ok(())
    };
    // SAFETY: the caller's promise.
    unsafe { change(options, set) }
}

/// Adds a resource of the rate limiter; device -1 is each.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_ServerOptionsAddRateLimiterResource(
    options: *mut ServerOptions,
    resource_name: *const c_char,
    resource_count: usize,
    device: c_int,
) -> Err {
    let value = || {
        // SAFETY: the caller's promise.
        let name = unsafe { text(resource_name) };
        let device = if device < 0 { String::new() } else { format!(":{device}") };
        Ok(format!("{name}:{resource_count}{device}"))
    };
    // SAFETY: the caller's promise.
    unsafe { add(options, ListOption::RateLimitResource, value) }
}

/// Sets the size of the pool of a GPU's memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_ServerOptionsSetCudaMemoryPoolByteSize(
    options: *mut ServerOptions,
    gpu_device: c_int,
    size: u64,
) -> Err {
    // SAFETY: the caller's promise.
    unsafe { add(options, ListOption::CudaMemoryPool, || Ok(format!("{gpu_device}:{size}"))) }
}

/// Sets the size of the virtual addresses of a GPU.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_ServerOptionsSetCudaVirtualAddressSize(
    options: *mut ServerOptions,
    gpu_device: c_int,
    cuda_virtual_address_size: usize,
) -> Err {
    let value = || Ok(format!("{gpu_device}:{cuda_virtual_address_size}"));
    // SAFETY: the caller's promise.
    unsafe { add(options, ListOption::CudaVirtualAddressSize, value) }
}

/// Sets the size of the cache `local`; 0 is none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_ServerOptionsSetResponseCacheByteSize(
    options: *mut ServerOptions,
    size: u64,
) -> Err {
    let set = |options: &mut ServerOptions| {
        if size > 0 {
            options.add(ListOption::CacheConfig, format!("local,size={size}"));
        }
        Ok(())
    };
    // SAFETY: the caller's promise.
    unsafe { change(options, set) }
}

/// Sets the settings of a cache, a JSON object of texts.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_ServerOptionsSetCacheConfig(
    options: *mut ServerOptions,
    cache_name: *const c_char,
    config_json: *const c_char,
) -> Err {
    let set = |options: &mut ServerOptions| {
        // SAFETY: the caller's promise.
        let (name, json) = unsafe { (text(cache_name), text(config_json)) };
        for (key, value) in Value::parse(json.as_bytes())?.members()? {
            let key = String::from_utf8_lossy(&key.decode()).into_owned();
            // Numbers as they are written.
            let value = value.as_string().unwrap_or_else(|_| String::from_utf8_lossy(value.text()).into_owned());
            options.add(ListOption::CacheConfig, format!("{name},{key}={value}"));
        }
        Ok(())
    };
    // SAFETY: the caller's promise.
    unsafe { change(options, set) }
}

/// Sets how long a stop waits for requests in progress, in seconds.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_ServerOptionsSetExitTimeout(options: *mut ServerOptions, timeout: u32) -> Err {
    let set = |options: &mut ServerOptions| {
        options.set_exit_timeout(timeout);
        Ok(())
    };
    // SAFETY: the caller's promise.
    unsafe { change(options, set) }
}

/// Sets the form of the lines of the log: 0 is Triton's, 1 has ISO 8601 times.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_ServerOptionsSetLogFormat(options: *mut ServerOptions, format: u32) -> Err {
    let set = |options: &mut ServerOptions| {
        let name = match format {
            0 => "default",
            1 => "ISO8601",
            _ => return Err(Error::invalid(format!("unknown log format '{format}'"))),
        };
        options.set("log-format", name);
        Ok(())
    };
    // SAFETY: the caller's promise.
    unsafe { change(options, set) }
}

/// Sets the share of a GPU's memory that models may use.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_ServerOptionsSetModelLoadDeviceLimit(
    options: *mut ServerOptions,
    kind: u32,
    device_id: c_int,
    fraction: f64,
) -> Err {
    let value = || {
        if kind != KIND_GPU {
            return Err(Error::invalid(format!("given device kind is not supported, got: {kind}")));
        }
        if device_id < 0 {
            return Err(Error::invalid(format!("expects device ID >= 0, got {device_id}")));
        }
        if !(0.0..=1.0).contains(&fraction) {
            let text = format!("expects limit fraction to be in range [0.0, 1.0], got {fraction}");
            return Err(Error::invalid(text));
        }
        Ok(format!("{device_id}:{fraction}"))
    };
    // SAFETY: the caller's promise.
    unsafe { add(options, ListOption::ModelLoadGpuLimit, value) }
}

/// Functions that add `<name>,<setting>=<value>`; without a name the setting is for all.
macro_rules! settings {
    ($($name:ident, $option:ident;)*) => { $(
        /// Adds a setting.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(
            options: *mut ServerOptions,
            name: *const c_char,
            setting: *const c_char,
            value: *const c_char,
        ) -> Err {
            let joined = || {
                // SAFETY: the caller's promise.
                let (name, setting, value) = unsafe { (text(name), text(setting), text(value)) };
                let comma = if name.is_empty() { "" } else { "," };
                Ok(format!("{name}{comma}{setting}={value}"))
            };
            // SAFETY: the caller's promise.
            unsafe { add(options, ListOption::$option, joined) }
        }
    )* };
}

settings! {
    TRITONSERVER_ServerOptionsSetBackendConfig, BackendConfig;
    TRITONSERVER_ServerOptionsSetHostPolicy, HostPolicy;
    TRITONSERVER_ServerOptionsSetMetricsConfig, MetricsConfig;
}
