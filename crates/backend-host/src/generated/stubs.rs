//! Generated from shm/include by scripts/generate-triton-stubs.mjs: not to be edited.
//!
//! Functions of Triton's C API that this host does not have. They take no arguments: in the C ABI of x86-64 and arm64
//! the caller passes and removes them, and a function that reads none can be called with any.

#![allow(unsafe_code)] // exported names

use crate::abi::{Err, missing};

macro_rules! failing {
    ($($name:ident)*) => {
        $(
            #[unsafe(no_mangle)]
            pub extern "C" fn $name() -> Err {
                missing(stringify!($name))
            }
        )*
    };
}

failing! {
    TRITONSERVER_MetricsDelete
    TRITONSERVER_MetricsFormatted
    TRITONSERVER_InferenceTraceNew
    TRITONSERVER_InferenceTraceTensorNew
    TRITONSERVER_InferenceTraceSetContext
    TRITONSERVER_InferenceRequestAddRawInput
    TRITONSERVER_InferenceResponseOutputClassificationLabel
    TRITONSERVER_ServerOptionsNew
    TRITONSERVER_ServerOptionsDelete
    TRITONSERVER_ServerOptionsSetServerId
    TRITONSERVER_ServerOptionsSetModelRepositoryPath
    TRITONSERVER_ServerOptionsSetModelControlMode
    TRITONSERVER_ServerOptionsSetStartupModel
    TRITONSERVER_ServerOptionsSetStrictModelConfig
    TRITONSERVER_ServerOptionsSetModelConfigName
    TRITONSERVER_ServerOptionsSetRateLimiterMode
    TRITONSERVER_ServerOptionsAddRateLimiterResource
    TRITONSERVER_ServerOptionsSetPinnedMemoryPoolByteSize
    TRITONSERVER_ServerOptionsSetCudaMemoryPoolByteSize
    TRITONSERVER_ServerOptionsSetCudaVirtualAddressSize
    TRITONSERVER_ServerOptionsSetResponseCacheByteSize
    TRITONSERVER_ServerOptionsSetCacheConfig
    TRITONSERVER_ServerOptionsSetCacheDirectory
    TRITONSERVER_ServerOptionsSetMinSupportedComputeCapability
    TRITONSERVER_ServerOptionsSetExitOnError
    TRITONSERVER_ServerOptionsSetStrictReadiness
    TRITONSERVER_ServerOptionsSetExitTimeout
    TRITONSERVER_ServerOptionsSetBufferManagerThreadCount
    TRITONSERVER_ServerOptionsSetModelLoadThreadCount
    TRITONSERVER_ServerOptionsSetModelLoadRetryCount
    TRITONSERVER_ServerOptionsSetModelNamespacing
    TRITONSERVER_ServerOptionsSetEnablePeerAccess
    TRITONSERVER_ServerOptionsSetLogFile
    TRITONSERVER_ServerOptionsSetLogInfo
    TRITONSERVER_ServerOptionsSetLogWarn
    TRITONSERVER_ServerOptionsSetLogError
    TRITONSERVER_ServerOptionsSetLogFormat
    TRITONSERVER_ServerOptionsSetLogVerbose
    TRITONSERVER_ServerOptionsSetMetrics
    TRITONSERVER_ServerOptionsSetGpuMetrics
    TRITONSERVER_ServerOptionsSetCpuMetrics
    TRITONSERVER_ServerOptionsSetMetricsInterval
    TRITONSERVER_ServerOptionsSetBackendDirectory
    TRITONSERVER_ServerOptionsSetRepoAgentDirectory
    TRITONSERVER_ServerOptionsSetModelLoadDeviceLimit
    TRITONSERVER_ServerOptionsSetBackendConfig
    TRITONSERVER_ServerOptionsSetHostPolicy
    TRITONSERVER_ServerOptionsSetMetricsConfig
    TRITONSERVER_ServerNew
    TRITONSERVER_ServerDelete
    TRITONSERVER_ServerStop
    TRITONSERVER_ServerSetExitTimeout
    TRITONSERVER_ServerRegisterModelRepository
    TRITONSERVER_ServerUnregisterModelRepository
    TRITONSERVER_ServerPollModelRepository
    TRITONSERVER_ServerIsReady
    TRITONSERVER_ServerMetadata
    TRITONSERVER_ServerModelMetadata
    TRITONSERVER_ServerModelStatistics
    TRITONSERVER_ServerModelConfig
    TRITONSERVER_ServerModelIndex
    TRITONSERVER_ServerMetrics
}
