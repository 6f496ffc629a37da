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
    TRITONSERVER_ApiVersion
    TRITONSERVER_LogMessage
    TRITONSERVER_ResponseAllocatorNew
    TRITONSERVER_ResponseAllocatorSetBufferAttributesFunction
    TRITONSERVER_ResponseAllocatorSetQueryFunction
    TRITONSERVER_ResponseAllocatorDelete
    TRITONSERVER_MessageNewFromSerializedJson
    TRITONSERVER_MessageDelete
    TRITONSERVER_MessageSerializeToJson
    TRITONSERVER_MetricsDelete
    TRITONSERVER_MetricsFormatted
    TRITONSERVER_InferenceTraceNew
    TRITONSERVER_InferenceTraceTensorNew
    TRITONSERVER_InferenceTraceReportActivity
    TRITONSERVER_InferenceTraceDelete
    TRITONSERVER_InferenceTraceId
    TRITONSERVER_InferenceTraceParentId
    TRITONSERVER_InferenceTraceModelName
    TRITONSERVER_InferenceTraceModelVersion
    TRITONSERVER_InferenceTraceRequestId
    TRITONSERVER_InferenceTraceSpawnChildTrace
    TRITONSERVER_InferenceTraceSetContext
    TRITONSERVER_InferenceTraceContext
    TRITONSERVER_InferenceRequestNew
    TRITONSERVER_InferenceRequestDelete
    TRITONSERVER_InferenceRequestId
    TRITONSERVER_InferenceRequestSetId
    TRITONSERVER_InferenceRequestFlags
    TRITONSERVER_InferenceRequestSetFlags
    TRITONSERVER_InferenceRequestCorrelationId
    TRITONSERVER_InferenceRequestCorrelationIdString
    TRITONSERVER_InferenceRequestSetCorrelationId
    TRITONSERVER_InferenceRequestSetCorrelationIdString
    TRITONSERVER_InferenceRequestCancel
    TRITONSERVER_InferenceRequestIsCancelled
    TRITONSERVER_InferenceRequestPriority
    TRITONSERVER_InferenceRequestPriorityUInt64
    TRITONSERVER_InferenceRequestSetPriority
    TRITONSERVER_InferenceRequestSetPriorityUInt64
    TRITONSERVER_InferenceRequestTimeoutMicroseconds
    TRITONSERVER_InferenceRequestSetTimeoutMicroseconds
    TRITONSERVER_InferenceRequestAddInput
    TRITONSERVER_InferenceRequestAddRawInput
    TRITONSERVER_InferenceRequestRemoveInput
    TRITONSERVER_InferenceRequestRemoveAllInputs
    TRITONSERVER_InferenceRequestAppendInputData
    TRITONSERVER_InferenceRequestAppendInputDataWithHostPolicy
    TRITONSERVER_InferenceRequestAppendInputDataWithBufferAttributes
    TRITONSERVER_InferenceRequestRemoveAllInputData
    TRITONSERVER_InferenceRequestAddRequestedOutput
    TRITONSERVER_InferenceRequestRemoveRequestedOutput
    TRITONSERVER_InferenceRequestRemoveAllRequestedOutputs
    TRITONSERVER_InferenceRequestSetReleaseCallback
    TRITONSERVER_InferenceRequestSetResponseCallback
    TRITONSERVER_InferenceRequestSetStringParameter
    TRITONSERVER_InferenceRequestSetIntParameter
    TRITONSERVER_InferenceRequestSetBoolParameter
    TRITONSERVER_InferenceRequestSetDoubleParameter
    TRITONSERVER_InferenceResponseDelete
    TRITONSERVER_InferenceResponseError
    TRITONSERVER_InferenceResponseModel
    TRITONSERVER_InferenceResponseId
    TRITONSERVER_InferenceResponseParameterCount
    TRITONSERVER_InferenceResponseParameter
    TRITONSERVER_InferenceResponseOutputCount
    TRITONSERVER_InferenceResponseOutput
    TRITONSERVER_InferenceResponseOutputClassificationLabel
    TRITONSERVER_BufferAttributesNew
    TRITONSERVER_BufferAttributesDelete
    TRITONSERVER_BufferAttributesSetMemoryTypeId
    TRITONSERVER_BufferAttributesSetMemoryType
    TRITONSERVER_BufferAttributesSetCudaIpcHandle
    TRITONSERVER_BufferAttributesSetByteSize
    TRITONSERVER_BufferAttributesMemoryTypeId
    TRITONSERVER_BufferAttributesMemoryType
    TRITONSERVER_BufferAttributesCudaIpcHandle
    TRITONSERVER_BufferAttributesByteSize
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
    TRITONSERVER_ServerIsLive
    TRITONSERVER_ServerIsReady
    TRITONSERVER_ServerModelIsReady
    TRITONSERVER_ServerModelBatchProperties
    TRITONSERVER_ServerModelTransactionProperties
    TRITONSERVER_ServerMetadata
    TRITONSERVER_ServerModelMetadata
    TRITONSERVER_ServerModelStatistics
    TRITONSERVER_ServerModelConfig
    TRITONSERVER_ServerModelIndex
    TRITONSERVER_ServerLoadModel
    TRITONSERVER_ServerLoadModelWithParameters
    TRITONSERVER_ServerUnloadModel
    TRITONSERVER_ServerUnloadModelAndDependents
    TRITONSERVER_ServerMetrics
    TRITONSERVER_ServerInferAsync
    TRITONSERVER_MetricFamilyNew
    TRITONSERVER_MetricFamilyDelete
    TRITONSERVER_GetMetricFamilyKind
    TRITONSERVER_MetricArgsNew
    TRITONSERVER_MetricArgsSetHistogram
    TRITONSERVER_MetricArgsDelete
    TRITONSERVER_MetricNew
    TRITONSERVER_MetricNewWithArgs
    TRITONSERVER_MetricDelete
    TRITONSERVER_MetricValue
    TRITONSERVER_MetricIncrement
    TRITONSERVER_MetricSet
    TRITONSERVER_MetricObserve
    TRITONSERVER_GetMetricKind
    TRITONBACKEND_ApiVersion
    TRITONBACKEND_MemoryManagerAllocate
    TRITONBACKEND_MemoryManagerFree
    TRITONBACKEND_InputProperties
    TRITONBACKEND_InputPropertiesForHostPolicy
    TRITONBACKEND_InputBuffer
    TRITONBACKEND_InputBufferForHostPolicy
    TRITONBACKEND_InputBufferAttributes
    TRITONBACKEND_OutputBuffer
    TRITONBACKEND_OutputBufferAttributes
    TRITONBACKEND_RequestId
    TRITONBACKEND_RequestIsCancelled
    TRITONBACKEND_RequestCorrelationId
    TRITONBACKEND_InferenceRequestTimeoutMicroseconds
    TRITONBACKEND_RequestCorrelationIdString
    TRITONBACKEND_RequestFlags
    TRITONBACKEND_RequestParameterCount
    TRITONBACKEND_RequestParameter
    TRITONBACKEND_RequestInputCount
    TRITONBACKEND_RequestInputName
    TRITONBACKEND_RequestInput
    TRITONBACKEND_RequestInputByIndex
    TRITONBACKEND_RequestOutputCount
    TRITONBACKEND_RequestOutputName
    TRITONBACKEND_RequestOutputBufferProperties
    TRITONBACKEND_RequestRelease
    TRITONBACKEND_RequestTrace
    TRITONBACKEND_ResponseFactoryIsCancelled
    TRITONBACKEND_ResponseFactoryNew
    TRITONBACKEND_ResponseFactoryDelete
    TRITONBACKEND_ResponseFactorySendFlags
    TRITONBACKEND_ResponseNew
    TRITONBACKEND_ResponseNewFromFactory
    TRITONBACKEND_ResponseDelete
    TRITONBACKEND_ResponseSetStringParameter
    TRITONBACKEND_ResponseSetIntParameter
    TRITONBACKEND_ResponseSetBoolParameter
    TRITONBACKEND_ResponseSetDoubleParameter
    TRITONBACKEND_ResponseOutput
    TRITONBACKEND_ResponseSend
    TRITONBACKEND_InferenceResponseOutputByName
    TRITONBACKEND_InferenceResponseOutput
    TRITONBACKEND_StateNew
    TRITONBACKEND_StateUpdate
    TRITONBACKEND_StateBuffer
    TRITONBACKEND_StateBufferAttributes
    TRITONBACKEND_BackendAttributeAddPreferredInstanceGroup
    TRITONBACKEND_BackendAttributeSetParallelModelInstanceLoading
    TRITONBACKEND_BackendName
    TRITONBACKEND_BackendConfig
    TRITONBACKEND_BackendExecutionPolicy
    TRITONBACKEND_BackendSetExecutionPolicy
    TRITONBACKEND_BackendArtifacts
    TRITONBACKEND_BackendMemoryManager
    TRITONBACKEND_BackendState
    TRITONBACKEND_BackendSetState
    TRITONBACKEND_ModelInstanceReportStatistics
    TRITONBACKEND_ModelInstanceResponseStatisticsNew
    TRITONBACKEND_ModelInstanceResponseStatisticsDelete
    TRITONBACKEND_ModelInstanceResponseStatisticsSetModelInstance
    TRITONBACKEND_ModelInstanceResponseStatisticsSetResponseFactory
    TRITONBACKEND_ModelInstanceResponseStatisticsSetResponseStart
    TRITONBACKEND_ModelInstanceResponseStatisticsSetComputeOutputStart
    TRITONBACKEND_ModelInstanceResponseStatisticsSetResponseEnd
    TRITONBACKEND_ModelInstanceResponseStatisticsSetError
    TRITONBACKEND_ModelInstanceReportResponseStatistics
    TRITONBACKEND_ModelInstanceReportBatchStatistics
    TRITONBACKEND_ModelInstanceName
    TRITONBACKEND_ModelInstanceKind
    TRITONBACKEND_ModelInstanceDeviceId
    TRITONBACKEND_ModelInstanceHostPolicy
    TRITONBACKEND_ModelInstanceIsPassive
    TRITONBACKEND_ModelInstanceProfileCount
    TRITONBACKEND_ModelInstanceProfileName
    TRITONBACKEND_ModelInstanceSecondaryDeviceCount
    TRITONBACKEND_ModelInstanceSecondaryDeviceProperties
    TRITONBACKEND_ModelInstanceModel
    TRITONBACKEND_ModelInstanceState
    TRITONBACKEND_ModelInstanceSetState
    TRITONBACKEND_ModelInstanceReportMemoryUsage
    TRITONBACKEND_ModelName
    TRITONBACKEND_ModelVersion
    TRITONBACKEND_ModelRepository
    TRITONBACKEND_ModelConfig
    TRITONBACKEND_ModelAutoCompleteConfig
    TRITONBACKEND_ModelSetConfig
    TRITONBACKEND_ModelServer
    TRITONBACKEND_ModelBackend
    TRITONBACKEND_ModelState
    TRITONBACKEND_ModelSetState
    TRITONBACKEND_ModelReportMemoryUsage
    TRITONCACHE_ApiVersion
    TRITONCACHE_CacheEntryNew
    TRITONCACHE_CacheEntryDelete
    TRITONCACHE_CacheEntryBufferCount
    TRITONCACHE_CacheEntryAddBuffer
    TRITONCACHE_CacheEntryGetBuffer
    TRITONCACHE_CacheEntrySetBuffer
    TRITONCACHE_Copy
    TRITONREPOAGENT_ApiVersion
    TRITONREPOAGENT_ModelRepositoryLocation
    TRITONREPOAGENT_ModelRepositoryLocationAcquire
    TRITONREPOAGENT_ModelRepositoryLocationRelease
    TRITONREPOAGENT_ModelRepositoryUpdate
    TRITONREPOAGENT_ModelParameterCount
    TRITONREPOAGENT_ModelParameter
    TRITONREPOAGENT_ModelConfig
    TRITONREPOAGENT_ModelState
    TRITONREPOAGENT_ModelSetState
    TRITONREPOAGENT_State
    TRITONREPOAGENT_SetState
}

// These have no error to return: one line on standard error says that they were called.
macro_rules! silent {
    ($($name:ident: $type:ty = $value:expr;)*) => {
        $(
            #[unsafe(no_mangle)]
            pub extern "C" fn $name() -> $type {
                static CALLED: std::sync::Once = std::sync::Once::new();
                let line = concat!(stringify!($name), " is not provided by Nereid's backend host\n");
                CALLED.call_once(|| drop(std::io::Write::write_all(&mut std::io::stderr(), line.as_bytes())));
                $value
            }
        )*
    };
}

silent! {
    TRITONSERVER_DataTypeString: *const std::ffi::c_char = c"<unknown>".as_ptr();
    TRITONSERVER_StringToDataType: u32 = 0;
    TRITONSERVER_DataTypeByteSize: u32 = 0;
    TRITONSERVER_MemoryTypeString: *const std::ffi::c_char = c"<unknown>".as_ptr();
    TRITONSERVER_ParameterTypeString: *const std::ffi::c_char = c"<unknown>".as_ptr();
    TRITONSERVER_InstanceGroupKindString: *const std::ffi::c_char = c"<unknown>".as_ptr();
    TRITONSERVER_ParameterNew: *mut std::ffi::c_void = std::ptr::null_mut();
    TRITONSERVER_ParameterBytesNew: *mut std::ffi::c_void = std::ptr::null_mut();
    TRITONSERVER_ParameterDelete: () = ();
    TRITONSERVER_LogIsEnabled: bool = false;
    TRITONSERVER_InferenceTraceLevelString: *const std::ffi::c_char = c"<unknown>".as_ptr();
    TRITONSERVER_InferenceTraceActivityString: *const std::ffi::c_char = c"<unknown>".as_ptr();
}
