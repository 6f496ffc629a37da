//! `TRITONSERVER_ServerOptions`: options of a server that a program embeds.

use super::exports::{Out, exports, objects};
use crate::embed::ServerOptions;
use crate::json;
use serde_json::Value;
use std::collections::BTreeMap;
use std::ffi::c_int;
use tensor::{Error, Result};

/// `TRITONSERVER_INSTANCEGROUPKIND_GPU`
const KIND_GPU: u32 = 2;

objects! {
    ServerOptions: "server options";
}

/// Functions that set an option of the command line to the value that they get.
macro_rules! values {
    ($($name:ident, $type:ty, $option:literal;)*) => {
        exports! { $(
            "embedding/options" fn $name(options: &mut ServerOptions, value: $type) => options.set($option, value);
        )* }
    };
}

values! {
    TRITONSERVER_ServerOptionsSetServerId, String, "id";
    TRITONSERVER_ServerOptionsSetModelConfigName, String, "model-config-name";
    TRITONSERVER_ServerOptionsSetCacheDirectory, String, "cache-directory";
    TRITONSERVER_ServerOptionsSetLogFile, String, "log-file";
    TRITONSERVER_ServerOptionsSetBackendDirectory, String, "backend-directory";
    TRITONSERVER_ServerOptionsSetRepoAgentDirectory, String, "repoagent-directory";
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

/// The name with this number.
fn named(names: &[&'static str], number: u32, what: &str) -> Result<&'static str> {
    let name = names.get(number as usize).copied();
    name.ok_or_else(|| Error::invalid(format!("unknown {what} '{number}'")))
}

exports! {
    "control" fn TRITONSERVER_ServerOptionsNew(options: Out<*mut ServerOptions>) =>
        options.give(ServerOptions::default());

    /// A server that was made with the options keeps its own.
    "control" delete TRITONSERVER_ServerOptionsDelete(ServerOptions);

    "embedding/infer" fn TRITONSERVER_ServerOptionsSetModelRepositoryPath(options: &mut ServerOptions, path: String) =>
        options.add("model-repository", path);

    /// Sets which models load when: 0 all at the start, 1 also with polls, 2 those that are named.
    "embedding/options" fn TRITONSERVER_ServerOptionsSetModelControlMode(options: &mut ServerOptions, mode: u32) =>
        options.set("model-control-mode", named(&["none", "poll", "explicit"], mode, "control mode")?);

    /// Adds a model that loads at the start.
    "embedding/options" fn TRITONSERVER_ServerOptionsSetStartupModel(options: &mut ServerOptions, model: String) =>
        options.add("load-model", model);

    /// Sets whether configurations are taken as they are.
    "embedding/infer" fn TRITONSERVER_ServerOptionsSetStrictModelConfig(options: &mut ServerOptions, strict: bool) =>
        options.is_strict = strict;

    /// Sets the rate limiter: 0 off, 1 by the count of executions.
    "embedding/options" fn TRITONSERVER_ServerOptionsSetRateLimiterMode(options: &mut ServerOptions, mode: u32) =>
        options.set("rate-limit", named(&["off", "execution_count"], mode, "rate limit mode")?);

    /// Adds a resource of the rate limiter; device -1 is each.
    "embedding/options" fn TRITONSERVER_ServerOptionsAddRateLimiterResource(
        options: &mut ServerOptions,
        resource_name: String,
        resource_count: usize,
        device: c_int,
    ) {
        let device = if device < 0 { String::new() } else { format!(":{device}") };
        options.add("rate-limit-resource", format!("{resource_name}:{resource_count}{device}"));
    }

    "embedding/options" fn TRITONSERVER_ServerOptionsSetCudaMemoryPoolByteSize(
        options: &mut ServerOptions,
        gpu_device: c_int,
        size: u64,
    ) => options.add("cuda-memory-pool-byte-size", format!("{gpu_device}:{size}"));

    "embedding/options" fn TRITONSERVER_ServerOptionsSetCudaVirtualAddressSize(
        options: &mut ServerOptions,
        gpu_device: c_int,
        size: usize,
    ) => options.add("cuda-virtual-address-size", format!("{gpu_device}:{size}"));

    /// Sets the size of the cache `local`; 0 is none.
    "embedding/options" fn TRITONSERVER_ServerOptionsSetResponseCacheByteSize(options: &mut ServerOptions, size: u64) {
        if size > 0 {
            options.add("cache-config", format!("local,size={size}"));
        }
    }

    /// Sets the settings of a cache, a JSON object of texts.
    "embedding/options" fn TRITONSERVER_ServerOptionsSetCacheConfig(
        options: &mut ServerOptions,
        cache_name: String,
        config_json: String,
    ) {
        for (key, value) in json::read::<BTreeMap<String, Value>>(&config_json)? {
            let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            options.add("cache-config", format!("{cache_name},{key}={value}"));
        }
    }

    /// Sets how long a stop waits for requests in progress, in seconds.
    "embedding/options" fn TRITONSERVER_ServerOptionsSetExitTimeout(options: &mut ServerOptions, timeout: u32) =>
        options.set_exit_timeout(timeout);

    /// Sets the form of the lines of the log: 0 is Triton's, 1 has ISO 8601 times.
    "embedding/options" fn TRITONSERVER_ServerOptionsSetLogFormat(options: &mut ServerOptions, format: u32) =>
        options.set("log-format", named(&["default", "ISO8601"], format, "log format")?);

    /// Sets the share of a GPU's memory that models may use.
    "embedding/options" fn TRITONSERVER_ServerOptionsSetModelLoadDeviceLimit(
        options: &mut ServerOptions,
        kind: u32,
        device_id: c_int,
        fraction: f64,
    ) {
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
        options.add("model-load-gpu-limit", format!("{device_id}:{fraction}"));
    }
}

/// Functions that add `<name>,<setting>=<value>`; without a name the setting is for all.
macro_rules! settings {
    ($($function:ident, $option:literal;)*) => {
        exports! { $(
            "embedding/options" fn $function(of: &mut ServerOptions, name: String, setting: String, value: String) {
                let comma = if name.is_empty() { "" } else { "," };
                of.add($option, format!("{name}{comma}{setting}={value}"));
            }
        )* }
    };
}

settings! {
    TRITONSERVER_ServerOptionsSetBackendConfig, "backend-config";
    TRITONSERVER_ServerOptionsSetHostPolicy, "host-policy";
    TRITONSERVER_ServerOptionsSetMetricsConfig, "metrics-config";
}
