// @generated from proto/, do not edit; rebuild with scripts/generate.sh

/// The configuration of one model.
#[derive(Clone, PartialEq, ::prost::Message)]
pub struct ModelConfig {
    /// Defaults to the directory name; must equal it otherwise.
    #[prost(string, tag = "1")]
    pub name: ::prost::alloc::string::String,
    /// Older alias of backend; 'ensemble' for ensembles.
    #[prost(string, tag = "2")]
    pub platform: ::prost::alloc::string::String,
    /// Backend name.
    #[prost(string, tag = "17")]
    pub backend: ::prost::alloc::string::String,
    /// Backend library file name override.
    #[prost(string, tag = "25")]
    pub runtime: ::prost::alloc::string::String,
    /// Always present after load.
    #[prost(message, optional, tag = "3")]
    pub version_policy: ::core::option::Option<ModelVersionPolicy>,
    /// 0 = no batching; >=0.
    #[prost(int32, tag = "4")]
    pub max_batch_size: i32,
    #[prost(message, repeated, tag = "5")]
    pub input: ::prost::alloc::vec::Vec<ModelInput>,
    #[prost(message, repeated, tag = "6")]
    pub output: ::prost::alloc::vec::Vec<ModelOutput>,
    #[prost(message, repeated, tag = "20")]
    pub batch_input: ::prost::alloc::vec::Vec<BatchInput>,
    #[prost(message, repeated, tag = "21")]
    pub batch_output: ::prost::alloc::vec::Vec<BatchOutput>,
    /// Always present after load except ensembles.
    #[prost(message, optional, tag = "12")]
    pub optimization: ::core::option::Option<ModelOptimizationPolicy>,
    /// Always filled after load except ensembles.
    #[prost(message, repeated, tag = "7")]
    pub instance_group: ::prost::alloc::vec::Vec<ModelInstanceGroup>,
    /// Filled by auto-complete.
    #[prost(string, tag = "8")]
    pub default_model_filename: ::prost::alloc::string::String,
    /// Compute capability -> file.
    #[prost(btree_map = "string, string", tag = "9")]
    pub cc_model_filenames: ::prost::alloc::collections::BTreeMap<
        ::prost::alloc::string::String,
        ::prost::alloc::string::String,
    >,
    /// Extra labels on this model's metrics.
    #[prost(btree_map = "string, string", tag = "10")]
    pub metric_tags: ::prost::alloc::collections::BTreeMap<
        ::prost::alloc::string::String,
        ::prost::alloc::string::String,
    >,
    /// Free-form.
    #[prost(btree_map = "string, message", tag = "14")]
    pub parameters: ::prost::alloc::collections::BTreeMap<
        ::prost::alloc::string::String,
        ModelParameter,
    >,
    /// Not for ensembles.
    #[prost(message, repeated, tag = "16")]
    pub model_warmup: ::prost::alloc::vec::Vec<ModelWarmup>,
    #[prost(message, optional, tag = "18")]
    pub model_operations: ::core::option::Option<ModelOperations>,
    #[prost(message, optional, tag = "19")]
    pub model_transaction_policy: ::core::option::Option<ModelTransactionPolicy>,
    #[prost(message, optional, tag = "23")]
    pub model_repository_agents: ::core::option::Option<ModelRepositoryAgents>,
    #[prost(message, optional, tag = "24")]
    pub response_cache: ::core::option::Option<ModelResponseCache>,
    #[prost(message, optional, tag = "26")]
    pub model_metrics: ::core::option::Option<ModelMetrics>,
    #[prost(oneof = "model_config::SchedulingChoice", tags = "11, 13, 15")]
    pub scheduling_choice: ::core::option::Option<model_config::SchedulingChoice>,
}
/// Nested message and enum types in `ModelConfig`.
pub mod model_config {
    #[derive(Clone, PartialEq, ::prost::Oneof)]
    pub enum SchedulingChoice {
        #[prost(message, tag = "11")]
        DynamicBatching(super::ModelDynamicBatching),
        #[prost(message, tag = "13")]
        SequenceBatching(super::ModelSequenceBatching),
        #[prost(message, tag = "15")]
        EnsembleScheduling(super::ModelEnsembling),
    }
}
/// What an instance must hold before it may run, and how often it gets its turn.
#[derive(Clone, PartialEq, ::prost::Message)]
pub struct ModelRateLimiter {
    /// Resources an instance must hold to execute; default none.
    #[prost(message, repeated, tag = "1")]
    pub resources: ::prost::alloc::vec::Vec<model_rate_limiter::Resource>,
    /// Scheduling weight: an instance of priority P gets 1/P of the chances of priority 1; 0 means 1.
    #[prost(uint32, tag = "2")]
    pub priority: u32,
}
/// Nested message and enum types in `ModelRateLimiter`.
pub mod model_rate_limiter {
    /// An amount of a named resource.
    #[derive(Clone, PartialEq, Eq, Hash, ::prost::Message)]
    pub struct Resource {
        /// Resource name.
        #[prost(string, tag = "1")]
        pub name: ::prost::alloc::string::String,
        /// True: one pool shared by all devices; false: one pool per device.
        #[prost(bool, tag = "2")]
        pub global: bool,
        /// Amount needed.
        #[prost(uint32, tag = "3")]
        pub count: u32,
    }
}
/// A set of equal instances of a model on one kind of device.
#[derive(Clone, PartialEq, ::prost::Message)]
pub struct ModelInstanceGroup {
    /// Default '<model>_<group index>'.
    #[prost(string, tag = "1")]
    pub name: ::prost::alloc::string::String,
    /// Resolved to CPU or GPU at load.
    #[prost(enumeration = "model_instance_group::Kind", tag = "4")]
    pub kind: i32,
    /// Instances per listed GPU, or in total on the CPU.
    #[prost(int32, tag = "2")]
    pub count: i32,
    /// Optional.
    #[prost(message, optional, tag = "6")]
    pub rate_limiter: ::core::option::Option<ModelRateLimiter>,
    /// GPU ids; empty + KIND_GPU = all usable GPUs (filled in at load).
    #[prost(int32, repeated, tag = "3")]
    pub gpus: ::prost::alloc::vec::Vec<i32>,
    /// Optional.
    #[prost(message, repeated, tag = "8")]
    pub secondary_devices: ::prost::alloc::vec::Vec<
        model_instance_group::SecondaryDevice,
    >,
    /// TensorRT optimisation-profile indices, decimal strings.
    #[prost(string, repeated, tag = "5")]
    pub profile: ::prost::alloc::vec::Vec<::prost::alloc::string::String>,
    /// True: loaded but not given requests by the scheduler.
    #[prost(bool, tag = "7")]
    pub passive: bool,
    /// Default 'cpu', 'model' or 'gpu_<id>' according to kind.
    #[prost(string, tag = "9")]
    pub host_policy: ::prost::alloc::string::String,
}
/// Nested message and enum types in `ModelInstanceGroup`.
pub mod model_instance_group {
    /// A device used besides the one the instance is on.
    #[derive(Clone, Copy, PartialEq, Eq, Hash, ::prost::Message)]
    pub struct SecondaryDevice {
        #[prost(enumeration = "secondary_device::SecondaryDeviceKind", tag = "1")]
        pub kind: i32,
        /// Number of the device.
        #[prost(int64, tag = "2")]
        pub device_id: i64,
    }
    /// Nested message and enum types in `SecondaryDevice`.
    pub mod secondary_device {
        /// Kind of a device besides the GPU.
        #[derive(
            Clone,
            Copy,
            Debug,
            PartialEq,
            Eq,
            Hash,
            PartialOrd,
            Ord,
            ::prost::Enumeration
        )]
        #[repr(i32)]
        pub enum SecondaryDeviceKind {
            KindNvdla = 0,
        }
        impl SecondaryDeviceKind {
            /// String value of the enum field names used in the ProtoBuf definition.
            ///
            /// The values are not transformed in any way and thus are considered stable
            /// (if the ProtoBuf definition does not change) and safe for programmatic use.
            pub fn as_str_name(&self) -> &'static str {
                match self {
                    Self::KindNvdla => "KIND_NVDLA",
                }
            }
            /// Creates an enum from field names used in the ProtoBuf definition.
            pub fn from_str_name(value: &str) -> ::core::option::Option<Self> {
                match value {
                    "KIND_NVDLA" => Some(Self::KindNvdla),
                    _ => None,
                }
            }
        }
    }
    /// Where the instances of a group live.
    #[derive(
        Clone,
        Copy,
        Debug,
        PartialEq,
        Eq,
        Hash,
        PartialOrd,
        Ord,
        ::prost::Enumeration
    )]
    #[repr(i32)]
    pub enum Kind {
        /// On a GPU when every listed GPU, or any when none is listed, is usable; otherwise on the CPU.
        Auto = 0,
        /// One set of instances on each listed GPU.
        Gpu = 1,
        /// Instances on the CPU; no GPUs may be listed.
        Cpu = 2,
        /// The model or its backend decides; no GPUs may be listed.
        Model = 3,
    }
    impl Kind {
        /// String value of the enum field names used in the ProtoBuf definition.
        ///
        /// The values are not transformed in any way and thus are considered stable
        /// (if the ProtoBuf definition does not change) and safe for programmatic use.
        pub fn as_str_name(&self) -> &'static str {
            match self {
                Self::Auto => "KIND_AUTO",
                Self::Gpu => "KIND_GPU",
                Self::Cpu => "KIND_CPU",
                Self::Model => "KIND_MODEL",
            }
        }
        /// Creates an enum from field names used in the ProtoBuf definition.
        pub fn from_str_name(value: &str) -> ::core::option::Option<Self> {
            match value {
                "KIND_AUTO" => Some(Self::Auto),
                "KIND_GPU" => Some(Self::Gpu),
                "KIND_CPU" => Some(Self::Cpu),
                "KIND_MODEL" => Some(Self::Model),
                _ => None,
            }
        }
    }
}
/// Shape the backend sees in place of dims.
#[derive(Clone, PartialEq, Eq, Hash, ::prost::Message)]
pub struct ModelTensorReshape {
    /// Shape the backend sees; may be empty '\[\]' for scalars when max_batch_size>0.
    #[prost(int64, repeated, tag = "1")]
    pub shape: ::prost::alloc::vec::Vec<i64>,
}
/// One input tensor.
#[derive(Clone, PartialEq, Eq, Hash, ::prost::Message)]
pub struct ModelInput {
    /// Required.
    #[prost(string, tag = "1")]
    pub name: ::prost::alloc::string::String,
    /// Required.
    #[prost(enumeration = "DataType", tag = "2")]
    pub data_type: i32,
    /// Default FORMAT_NONE.
    #[prost(enumeration = "model_input::Format", tag = "3")]
    pub format: i32,
    /// Required, each -1 or at least 1, without the batch dimension.
    #[prost(int64, repeated, tag = "4")]
    pub dims: ::prost::alloc::vec::Vec<i64>,
    /// Optional.
    #[prost(message, optional, tag = "5")]
    pub reshape: ::core::option::Option<ModelTensorReshape>,
    /// TensorRT only.
    #[prost(bool, tag = "6")]
    pub is_shape_tensor: bool,
    /// Allow batching of requests whose shapes differ.
    #[prost(bool, tag = "7")]
    pub allow_ragged_batch: bool,
    /// Input may be omitted by a request.
    #[prost(bool, tag = "8")]
    pub optional: bool,
    /// TensorRT only.
    #[prost(bool, tag = "9")]
    pub is_non_linear_format_io: bool,
}
/// Nested message and enum types in `ModelInput`.
pub mod model_input {
    /// Meaning of the dims of an image input.
    #[derive(
        Clone,
        Copy,
        Debug,
        PartialEq,
        Eq,
        Hash,
        PartialOrd,
        Ord,
        ::prost::Enumeration
    )]
    #[repr(i32)]
    pub enum Format {
        /// No particular meaning.
        None = 0,
        /// Height, width, channel: exactly three dims.
        Nhwc = 1,
        /// Channel, height, width: exactly three dims.
        Nchw = 2,
    }
    impl Format {
        /// String value of the enum field names used in the ProtoBuf definition.
        ///
        /// The values are not transformed in any way and thus are considered stable
        /// (if the ProtoBuf definition does not change) and safe for programmatic use.
        pub fn as_str_name(&self) -> &'static str {
            match self {
                Self::None => "FORMAT_NONE",
                Self::Nhwc => "FORMAT_NHWC",
                Self::Nchw => "FORMAT_NCHW",
            }
        }
        /// Creates an enum from field names used in the ProtoBuf definition.
        pub fn from_str_name(value: &str) -> ::core::option::Option<Self> {
            match value {
                "FORMAT_NONE" => Some(Self::None),
                "FORMAT_NHWC" => Some(Self::Nhwc),
                "FORMAT_NCHW" => Some(Self::Nchw),
                _ => None,
            }
        }
    }
}
/// One output tensor.
#[derive(Clone, PartialEq, Eq, Hash, ::prost::Message)]
pub struct ModelOutput {
    /// Required.
    #[prost(string, tag = "1")]
    pub name: ::prost::alloc::string::String,
    /// Required.
    #[prost(enumeration = "DataType", tag = "2")]
    pub data_type: i32,
    /// Required.
    #[prost(int64, repeated, tag = "3")]
    pub dims: ::prost::alloc::vec::Vec<i64>,
    /// Label file used by the classification extension, relative to the model directory.
    #[prost(string, tag = "4")]
    pub label_filename: ::prost::alloc::string::String,
    /// Optional (backend shape -> dims).
    #[prost(message, optional, tag = "5")]
    pub reshape: ::core::option::Option<ModelTensorReshape>,
    /// TensorRT only.
    #[prost(bool, tag = "6")]
    pub is_shape_tensor: bool,
    /// TensorRT only.
    #[prost(bool, tag = "7")]
    pub is_non_linear_format_io: bool,
}
/// An input that the backend makes from the batch itself.
#[derive(Clone, PartialEq, Eq, Hash, ::prost::Message)]
pub struct BatchInput {
    #[prost(enumeration = "batch_input::Kind", tag = "1")]
    pub kind: i32,
    /// Model inputs the backend creates.
    #[prost(string, repeated, tag = "2")]
    pub target_name: ::prost::alloc::vec::Vec<::prost::alloc::string::String>,
    /// TYPE_INT32 or TYPE_FP32.
    #[prost(enumeration = "DataType", tag = "3")]
    pub data_type: i32,
    /// Request inputs the value is derived from; exactly 1 for all present kinds.
    #[prost(string, repeated, tag = "4")]
    pub source_input: ::prost::alloc::vec::Vec<::prost::alloc::string::String>,
}
/// Nested message and enum types in `BatchInput`.
pub mod batch_input {
    /// What the value of a batch input is.
    #[derive(
        Clone,
        Copy,
        Debug,
        PartialEq,
        Eq,
        Hash,
        PartialOrd,
        Ord,
        ::prost::Enumeration
    )]
    #[repr(i32)]
    pub enum Kind {
        /// Shape \[1\]: number of elements of the source input.
        BatchElementCount = 0,
        /// Shape \[1\]: running total over the requests of the batch.
        BatchAccumulatedElementCount = 1,
        /// As above, and the first request gets shape \[2\], starting with 0.
        BatchAccumulatedElementCountWithZero = 2,
        /// The first request gets shape \[largest count\] with undefined contents, the others \[0\].
        BatchMaxElementCountAsShape = 3,
        /// \[batch, rank\]: shape of the source input for every batch item.
        BatchItemShape = 4,
        /// The values of BATCH_ITEM_SHAPE as \[batch * rank\].
        BatchItemShapeFlatten = 5,
    }
    impl Kind {
        /// String value of the enum field names used in the ProtoBuf definition.
        ///
        /// The values are not transformed in any way and thus are considered stable
        /// (if the ProtoBuf definition does not change) and safe for programmatic use.
        pub fn as_str_name(&self) -> &'static str {
            match self {
                Self::BatchElementCount => "BATCH_ELEMENT_COUNT",
                Self::BatchAccumulatedElementCount => "BATCH_ACCUMULATED_ELEMENT_COUNT",
                Self::BatchAccumulatedElementCountWithZero => {
                    "BATCH_ACCUMULATED_ELEMENT_COUNT_WITH_ZERO"
                }
                Self::BatchMaxElementCountAsShape => "BATCH_MAX_ELEMENT_COUNT_AS_SHAPE",
                Self::BatchItemShape => "BATCH_ITEM_SHAPE",
                Self::BatchItemShapeFlatten => "BATCH_ITEM_SHAPE_FLATTEN",
            }
        }
        /// Creates an enum from field names used in the ProtoBuf definition.
        pub fn from_str_name(value: &str) -> ::core::option::Option<Self> {
            match value {
                "BATCH_ELEMENT_COUNT" => Some(Self::BatchElementCount),
                "BATCH_ACCUMULATED_ELEMENT_COUNT" => {
                    Some(Self::BatchAccumulatedElementCount)
                }
                "BATCH_ACCUMULATED_ELEMENT_COUNT_WITH_ZERO" => {
                    Some(Self::BatchAccumulatedElementCountWithZero)
                }
                "BATCH_MAX_ELEMENT_COUNT_AS_SHAPE" => {
                    Some(Self::BatchMaxElementCountAsShape)
                }
                "BATCH_ITEM_SHAPE" => Some(Self::BatchItemShape),
                "BATCH_ITEM_SHAPE_FLATTEN" => Some(Self::BatchItemShapeFlatten),
                _ => None,
            }
        }
    }
}
/// An output whose division among requests follows an input.
#[derive(Clone, PartialEq, Eq, Hash, ::prost::Message)]
pub struct BatchOutput {
    /// Outputs scattered.
    #[prost(string, repeated, tag = "1")]
    pub target_name: ::prost::alloc::vec::Vec<::prost::alloc::string::String>,
    #[prost(enumeration = "batch_output::Kind", tag = "2")]
    pub kind: i32,
    /// Exactly 1.
    #[prost(string, repeated, tag = "3")]
    pub source_input: ::prost::alloc::vec::Vec<::prost::alloc::string::String>,
}
/// Nested message and enum types in `BatchOutput`.
pub mod batch_output {
    /// How a batch output is divided among requests.
    #[derive(
        Clone,
        Copy,
        Debug,
        PartialEq,
        Eq,
        Hash,
        PartialOrd,
        Ord,
        ::prost::Enumeration
    )]
    #[repr(i32)]
    pub enum Kind {
        /// The output is split as the source input is shaped.
        BatchScatterWithInputShape = 0,
    }
    impl Kind {
        /// String value of the enum field names used in the ProtoBuf definition.
        ///
        /// The values are not transformed in any way and thus are considered stable
        /// (if the ProtoBuf definition does not change) and safe for programmatic use.
        pub fn as_str_name(&self) -> &'static str {
            match self {
                Self::BatchScatterWithInputShape => "BATCH_SCATTER_WITH_INPUT_SHAPE",
            }
        }
        /// Creates an enum from field names used in the ProtoBuf definition.
        pub fn from_str_name(value: &str) -> ::core::option::Option<Self> {
            match value {
                "BATCH_SCATTER_WITH_INPUT_SHAPE" => {
                    Some(Self::BatchScatterWithInputShape)
                }
                _ => None,
            }
        }
    }
}
/// Which versions found in the repository are served.
#[derive(Clone, PartialEq, Eq, Hash, ::prost::Message)]
pub struct ModelVersionPolicy {
    #[prost(oneof = "model_version_policy::PolicyChoice", tags = "1, 2, 3")]
    pub policy_choice: ::core::option::Option<model_version_policy::PolicyChoice>,
}
/// Nested message and enum types in `ModelVersionPolicy`.
pub mod model_version_policy {
    /// The highest versions.
    #[derive(Clone, Copy, PartialEq, Eq, Hash, ::prost::Message)]
    pub struct Latest {
        /// N highest versions.
        #[prost(uint32, tag = "1")]
        pub num_versions: u32,
    }
    /// Every version.
    #[derive(Clone, Copy, PartialEq, Eq, Hash, ::prost::Message)]
    pub struct All {}
    /// Just these versions.
    #[derive(Clone, PartialEq, Eq, Hash, ::prost::Message)]
    pub struct Specific {
        /// Versions to serve.
        #[prost(int64, repeated, tag = "1")]
        pub versions: ::prost::alloc::vec::Vec<i64>,
    }
    #[derive(Clone, PartialEq, Eq, Hash, ::prost::Oneof)]
    pub enum PolicyChoice {
        /// Default policy, num_versions 1.
        #[prost(message, tag = "1")]
        Latest(Latest),
        #[prost(message, tag = "2")]
        All(All),
        #[prost(message, tag = "3")]
        Specific(Specific),
    }
}
/// Settings that change speed, never results.
#[derive(Clone, PartialEq, ::prost::Message)]
pub struct ModelOptimizationPolicy {
    #[prost(message, optional, tag = "1")]
    pub graph: ::core::option::Option<model_optimization_policy::Graph>,
    /// TensorRT only.
    #[prost(enumeration = "model_optimization_policy::ModelPriority", tag = "2")]
    pub priority: i32,
    #[prost(message, optional, tag = "3")]
    pub cuda: ::core::option::Option<model_optimization_policy::Cuda>,
    #[prost(message, optional, tag = "4")]
    pub execution_accelerators: ::core::option::Option<
        model_optimization_policy::ExecutionAccelerators,
    >,
    /// Always present after load for non-ensembles, default enable=true.
    #[prost(message, optional, tag = "5")]
    pub input_pinned_memory: ::core::option::Option<
        model_optimization_policy::PinnedMemoryBuffer,
    >,
    /// As input_pinned_memory.
    #[prost(message, optional, tag = "6")]
    pub output_pinned_memory: ::core::option::Option<
        model_optimization_policy::PinnedMemoryBuffer,
    >,
    /// 0 = gather kernel off.
    #[prost(uint32, tag = "7")]
    pub gather_kernel_buffer_threshold: u32,
    /// Prepare next batch while the instance is busy.
    #[prost(bool, tag = "8")]
    pub eager_batching: bool,
}
/// Nested message and enum types in `ModelOptimizationPolicy`.
pub mod model_optimization_policy {
    /// Graph optimisation of the framework.
    #[derive(Clone, Copy, PartialEq, Eq, Hash, ::prost::Message)]
    pub struct Graph {
        /// -1 off/basic, 0 backend default, >=1 more.
        #[prost(int32, tag = "1")]
        pub level: i32,
    }
    /// Settings for CUDA devices.
    #[derive(Clone, PartialEq, ::prost::Message)]
    pub struct Cuda {
        /// Capture CUDA graphs.
        #[prost(bool, tag = "1")]
        pub graphs: bool,
        /// Spin instead of blocking on events.
        #[prost(bool, tag = "2")]
        pub busy_wait_events: bool,
        /// Explicit graphs to capture.
        #[prost(message, repeated, tag = "3")]
        pub graph_spec: ::prost::alloc::vec::Vec<cuda::GraphSpec>,
        /// Separate copy stream for outputs.
        #[prost(bool, tag = "4")]
        pub output_copy_stream: bool,
    }
    /// Nested message and enum types in `Cuda`.
    pub mod cuda {
        /// One CUDA graph to capture at load.
        #[derive(Clone, PartialEq, ::prost::Message)]
        pub struct GraphSpec {
            /// 0 when max_batch_size is 0, else 1..max_batch_size.
            #[prost(int32, tag = "1")]
            pub batch_size: i32,
            #[prost(btree_map = "string, message", tag = "2")]
            pub input: ::prost::alloc::collections::BTreeMap<
                ::prost::alloc::string::String,
                graph_spec::Shape,
            >,
            #[prost(message, optional, tag = "3")]
            pub graph_lower_bound: ::core::option::Option<graph_spec::LowerBound>,
        }
        /// Nested message and enum types in `GraphSpec`.
        pub mod graph_spec {
            /// Dimensions of one input, without the batch dimension.
            #[derive(Clone, PartialEq, Eq, Hash, ::prost::Message)]
            pub struct Shape {
                /// Dimensions.
                #[prost(int64, repeated, tag = "1")]
                pub dim: ::prost::alloc::vec::Vec<i64>,
            }
            /// Smallest shapes the captured graph may serve.
            #[derive(Clone, PartialEq, ::prost::Message)]
            pub struct LowerBound {
                #[prost(int32, tag = "1")]
                pub batch_size: i32,
                #[prost(btree_map = "string, message", tag = "2")]
                pub input: ::prost::alloc::collections::BTreeMap<
                    ::prost::alloc::string::String,
                    Shape,
                >,
            }
        }
    }
    /// Execution providers to use, first choice first.
    #[derive(Clone, PartialEq, ::prost::Message)]
    pub struct ExecutionAccelerators {
        /// Onnxruntime: 'tensorrt', 'cuda'…; order = priority.
        #[prost(message, repeated, tag = "1")]
        pub gpu_execution_accelerator: ::prost::alloc::vec::Vec<
            execution_accelerators::Accelerator,
        >,
        /// Onnxruntime: 'openvino'.
        #[prost(message, repeated, tag = "2")]
        pub cpu_execution_accelerator: ::prost::alloc::vec::Vec<
            execution_accelerators::Accelerator,
        >,
    }
    /// Nested message and enum types in `ExecutionAccelerators`.
    pub mod execution_accelerators {
        /// One execution provider with its settings.
        #[derive(Clone, PartialEq, ::prost::Message)]
        pub struct Accelerator {
            #[prost(string, tag = "1")]
            pub name: ::prost::alloc::string::String,
            /// Accelerator-specific.
            #[prost(btree_map = "string, string", tag = "2")]
            pub parameters: ::prost::alloc::collections::BTreeMap<
                ::prost::alloc::string::String,
                ::prost::alloc::string::String,
            >,
        }
    }
    /// Whether host buffers for device copies are pinned.
    #[derive(Clone, Copy, PartialEq, Eq, Hash, ::prost::Message)]
    pub struct PinnedMemoryBuffer {
        #[prost(bool, tag = "1")]
        pub enable: bool,
    }
    /// Priority of a TensorRT model on its GPU.
    #[derive(
        Clone,
        Copy,
        Debug,
        PartialEq,
        Eq,
        Hash,
        PartialOrd,
        Ord,
        ::prost::Enumeration
    )]
    #[repr(i32)]
    pub enum ModelPriority {
        /// The framework decides.
        PriorityDefault = 0,
        PriorityMax = 1,
        PriorityMin = 2,
    }
    impl ModelPriority {
        /// String value of the enum field names used in the ProtoBuf definition.
        ///
        /// The values are not transformed in any way and thus are considered stable
        /// (if the ProtoBuf definition does not change) and safe for programmatic use.
        pub fn as_str_name(&self) -> &'static str {
            match self {
                Self::PriorityDefault => "PRIORITY_DEFAULT",
                Self::PriorityMax => "PRIORITY_MAX",
                Self::PriorityMin => "PRIORITY_MIN",
            }
        }
        /// Creates an enum from field names used in the ProtoBuf definition.
        pub fn from_str_name(value: &str) -> ::core::option::Option<Self> {
            match value {
                "PRIORITY_DEFAULT" => Some(Self::PriorityDefault),
                "PRIORITY_MAX" => Some(Self::PriorityMax),
                "PRIORITY_MIN" => Some(Self::PriorityMin),
                _ => None,
            }
        }
    }
}
/// Limits of one queue.
#[derive(Clone, Copy, PartialEq, Eq, Hash, ::prost::Message)]
pub struct ModelQueuePolicy {
    /// Default REJECT.
    #[prost(enumeration = "model_queue_policy::TimeoutAction", tag = "1")]
    pub timeout_action: i32,
    /// 0 = none.
    #[prost(uint64, tag = "2")]
    pub default_timeout_microseconds: u64,
    /// A request may shorten (never lengthen) the timeout through its 'timeout' parameter.
    #[prost(bool, tag = "3")]
    pub allow_timeout_override: bool,
    /// 0 = unlimited; overflow -> UNAVAILABLE 'Exceeds maximum queue size'.
    #[prost(uint32, tag = "4")]
    pub max_queue_size: u32,
}
/// Nested message and enum types in `ModelQueuePolicy`.
pub mod model_queue_policy {
    /// What happens to a request that waited too long.
    #[derive(
        Clone,
        Copy,
        Debug,
        PartialEq,
        Eq,
        Hash,
        PartialOrd,
        Ord,
        ::prost::Enumeration
    )]
    #[repr(i32)]
    pub enum TimeoutAction {
        /// An expired request fails.
        Reject = 0,
        /// An expired request waits until no unexpired request of its level is left.
        Delay = 1,
    }
    impl TimeoutAction {
        /// String value of the enum field names used in the ProtoBuf definition.
        ///
        /// The values are not transformed in any way and thus are considered stable
        /// (if the ProtoBuf definition does not change) and safe for programmatic use.
        pub fn as_str_name(&self) -> &'static str {
            match self {
                Self::Reject => "REJECT",
                Self::Delay => "DELAY",
            }
        }
        /// Creates an enum from field names used in the ProtoBuf definition.
        pub fn from_str_name(value: &str) -> ::core::option::Option<Self> {
            match value {
                "REJECT" => Some(Self::Reject),
                "DELAY" => Some(Self::Delay),
                _ => None,
            }
        }
    }
}
/// Batches are formed from requests of different clients.
#[derive(Clone, PartialEq, ::prost::Message)]
pub struct ModelDynamicBatching {
    /// Filled with \[max_batch_size\] at load when empty and max_batch_size>0.
    #[prost(int32, repeated, tag = "1")]
    pub preferred_batch_size: ::prost::alloc::vec::Vec<i32>,
    /// Default 0.
    #[prost(uint64, tag = "2")]
    pub max_queue_delay_microseconds: u64,
    /// Responses in request order.
    #[prost(bool, tag = "3")]
    pub preserve_ordering: bool,
    /// Levels 1..N, 1 highest; 0 = priorities off.
    #[prost(uint64, tag = "4")]
    pub priority_levels: u64,
    /// Must be 1..priority_levels when levels are on.
    #[prost(uint64, tag = "5")]
    pub default_priority_level: u64,
    #[prost(message, optional, tag = "6")]
    pub default_queue_policy: ::core::option::Option<ModelQueuePolicy>,
    /// Policy per level, where it is not the default.
    #[prost(btree_map = "uint64, message", tag = "7")]
    pub priority_queue_policy: ::prost::alloc::collections::BTreeMap<
        u64,
        ModelQueuePolicy,
    >,
}
/// Requests of one sequence reach the same instance, in order.
#[derive(Clone, PartialEq, ::prost::Message)]
pub struct ModelSequenceBatching {
    /// 0 becomes 1000000 at load.
    #[prost(uint64, tag = "1")]
    pub max_sequence_idle_microseconds: u64,
    /// Control tensors.
    #[prost(message, repeated, tag = "2")]
    pub control_input: ::prost::alloc::vec::Vec<model_sequence_batching::ControlInput>,
    /// Implicit state.
    #[prost(message, repeated, tag = "5")]
    pub state: ::prost::alloc::vec::Vec<model_sequence_batching::State>,
    /// One request is rescheduled by the backend until done.
    #[prost(bool, tag = "6")]
    pub iterative_sequence: bool,
    #[prost(oneof = "model_sequence_batching::StrategyChoice", tags = "3, 4")]
    pub strategy_choice: ::core::option::Option<model_sequence_batching::StrategyChoice>,
}
/// Nested message and enum types in `ModelSequenceBatching`.
pub mod model_sequence_batching {
    /// One meaning of a control tensor and the values that express it.
    #[derive(Clone, PartialEq, ::prost::Message)]
    pub struct Control {
        #[prost(enumeration = "control::Kind", tag = "1")]
        pub kind: i32,
        /// Exactly 2 entries \[false,true\]; exactly one of the three *_false_true lists for START/READY/END.
        #[prost(int32, repeated, tag = "2")]
        pub int32_false_true: ::prost::alloc::vec::Vec<i32>,
        /// As above.
        #[prost(float, repeated, tag = "3")]
        pub fp32_false_true: ::prost::alloc::vec::Vec<f32>,
        /// As above.
        #[prost(bool, repeated, tag = "5")]
        pub bool_false_true: ::prost::alloc::vec::Vec<bool>,
        /// CORRID only: UINT64, INT64, UINT32, INT32 or STRING.
        #[prost(enumeration = "super::DataType", tag = "4")]
        pub data_type: i32,
    }
    /// Nested message and enum types in `Control`.
    pub mod control {
        /// What a control tensor tells the model.
        #[derive(
            Clone,
            Copy,
            Debug,
            PartialEq,
            Eq,
            Hash,
            PartialOrd,
            Ord,
            ::prost::Enumeration
        )]
        #[repr(i32)]
        pub enum Kind {
            /// True for the first request of a sequence.
            ControlSequenceStart = 0,
            /// True where the slot holds a request.
            ControlSequenceReady = 1,
            /// True for the last request of a sequence.
            ControlSequenceEnd = 2,
            /// The correlation id; types of 32 bits get its low 32 bits.
            ControlSequenceCorrid = 3,
        }
        impl Kind {
            /// String value of the enum field names used in the ProtoBuf definition.
            ///
            /// The values are not transformed in any way and thus are considered stable
            /// (if the ProtoBuf definition does not change) and safe for programmatic use.
            pub fn as_str_name(&self) -> &'static str {
                match self {
                    Self::ControlSequenceStart => "CONTROL_SEQUENCE_START",
                    Self::ControlSequenceReady => "CONTROL_SEQUENCE_READY",
                    Self::ControlSequenceEnd => "CONTROL_SEQUENCE_END",
                    Self::ControlSequenceCorrid => "CONTROL_SEQUENCE_CORRID",
                }
            }
            /// Creates an enum from field names used in the ProtoBuf definition.
            pub fn from_str_name(value: &str) -> ::core::option::Option<Self> {
                match value {
                    "CONTROL_SEQUENCE_START" => Some(Self::ControlSequenceStart),
                    "CONTROL_SEQUENCE_READY" => Some(Self::ControlSequenceReady),
                    "CONTROL_SEQUENCE_END" => Some(Self::ControlSequenceEnd),
                    "CONTROL_SEQUENCE_CORRID" => Some(Self::ControlSequenceCorrid),
                    _ => None,
                }
            }
        }
    }
    /// An input the scheduler fills in.
    #[derive(Clone, PartialEq, ::prost::Message)]
    pub struct ControlInput {
        /// Model input name (not listed in 'input').
        #[prost(string, tag = "1")]
        pub name: ::prost::alloc::string::String,
        #[prost(message, repeated, tag = "2")]
        pub control: ::prost::alloc::vec::Vec<Control>,
    }
    /// What a state holds when its sequence begins.
    #[derive(Clone, PartialEq, Eq, Hash, ::prost::Message)]
    pub struct InitialState {
        #[prost(enumeration = "super::DataType", tag = "1")]
        pub data_type: i32,
        /// Dimensions without the batch dimension.
        #[prost(int64, repeated, tag = "2")]
        pub dims: ::prost::alloc::vec::Vec<i64>,
        #[prost(string, tag = "5")]
        pub name: ::prost::alloc::string::String,
        #[prost(oneof = "initial_state::StateData", tags = "3, 4")]
        pub state_data: ::core::option::Option<initial_state::StateData>,
    }
    /// Nested message and enum types in `InitialState`.
    pub mod initial_state {
        #[derive(Clone, PartialEq, Eq, Hash, ::prost::Oneof)]
        pub enum StateData {
            /// Value ignored, presence counts.
            #[prost(bool, tag = "3")]
            ZeroData(bool),
            /// File in '<model>/initial_state/'.
            #[prost(string, tag = "4")]
            DataFile(::prost::alloc::string::String),
        }
    }
    /// A tensor kept by the server between the requests of a sequence.
    #[derive(Clone, PartialEq, ::prost::Message)]
    pub struct State {
        #[prost(string, tag = "1")]
        pub input_name: ::prost::alloc::string::String,
        #[prost(string, tag = "2")]
        pub output_name: ::prost::alloc::string::String,
        #[prost(enumeration = "super::DataType", tag = "3")]
        pub data_type: i32,
        /// Dimensions without the batch dimension.
        #[prost(int64, repeated, tag = "4")]
        pub dims: ::prost::alloc::vec::Vec<i64>,
        #[prost(message, repeated, tag = "5")]
        pub initial_state: ::prost::alloc::vec::Vec<InitialState>,
        /// Default false.
        #[prost(bool, tag = "6")]
        pub use_same_buffer_for_input_output: bool,
        /// CUDA only, needs use_same_buffer_for_input_output.
        #[prost(bool, tag = "7")]
        pub use_growable_memory: bool,
    }
    /// Every sequence has a slot of its own in one instance until it ends.
    #[derive(Clone, Copy, PartialEq, ::prost::Message)]
    pub struct StrategyDirect {
        #[prost(uint64, tag = "1")]
        pub max_queue_delay_microseconds: u64,
        /// 0..1, default 0 (delay then ignored).
        #[prost(float, tag = "2")]
        pub minimum_slot_utilization: f32,
    }
    /// Batches are formed from the oldest requests of many sequences.
    #[derive(Clone, PartialEq, Eq, Hash, ::prost::Message)]
    pub struct StrategyOldest {
        #[prost(int32, tag = "1")]
        pub max_candidate_sequences: i32,
        /// Filled with \[max_batch_size\] when empty.
        #[prost(int32, repeated, tag = "2")]
        pub preferred_batch_size: ::prost::alloc::vec::Vec<i32>,
        #[prost(uint64, tag = "3")]
        pub max_queue_delay_microseconds: u64,
        #[prost(bool, tag = "4")]
        pub preserve_ordering: bool,
    }
    #[derive(Clone, PartialEq, ::prost::Oneof)]
    pub enum StrategyChoice {
        /// Default strategy when neither is set.
        #[prost(message, tag = "3")]
        Direct(StrategyDirect),
        #[prost(message, tag = "4")]
        Oldest(StrategyOldest),
    }
}
/// A graph of models served as one.
#[derive(Clone, PartialEq, ::prost::Message)]
pub struct ModelEnsembling {
    /// Required, ordered.
    #[prost(message, repeated, tag = "1")]
    pub step: ::prost::alloc::vec::Vec<model_ensembling::Step>,
    /// Beta; 0 = no limit; per-step cap on in-flight requests.
    #[prost(uint32, tag = "2")]
    pub max_inflight_requests: u32,
}
/// Nested message and enum types in `ModelEnsembling`.
pub mod model_ensembling {
    /// One model of the graph and how its tensors are connected.
    #[derive(Clone, PartialEq, ::prost::Message)]
    pub struct Step {
        #[prost(string, tag = "1")]
        pub model_name: ::prost::alloc::string::String,
        /// -1 = latest.
        #[prost(int64, tag = "2")]
        pub model_version: i64,
        /// Step input name -> ensemble tensor name.
        #[prost(btree_map = "string, string", tag = "3")]
        pub input_map: ::prost::alloc::collections::BTreeMap<
            ::prost::alloc::string::String,
            ::prost::alloc::string::String,
        >,
        /// Step output name -> ensemble tensor name.
        #[prost(btree_map = "string, string", tag = "4")]
        pub output_map: ::prost::alloc::collections::BTreeMap<
            ::prost::alloc::string::String,
            ::prost::alloc::string::String,
        >,
        /// Reserved, users must leave empty.
        #[prost(string, tag = "5")]
        pub model_namespace: ::prost::alloc::string::String,
    }
}
/// A value for the backend or the model.
#[derive(Clone, PartialEq, Eq, Hash, ::prost::Message)]
pub struct ModelParameter {
    /// The value; 'parameters: { key: "K" value: { string_value: "V" } }' in text form.
    #[prost(string, tag = "1")]
    pub string_value: ::prost::alloc::string::String,
}
/// Requests made up and run before the model counts as ready.
#[derive(Clone, PartialEq, ::prost::Message)]
pub struct ModelWarmup {
    /// Sample name.
    #[prost(string, tag = "1")]
    pub name: ::prost::alloc::string::String,
    /// >=1; must be 1 for non-batching models.
    #[prost(uint32, tag = "2")]
    pub batch_size: u32,
    /// One entry per input incl. control tensors.
    #[prost(btree_map = "string, message", tag = "3")]
    pub inputs: ::prost::alloc::collections::BTreeMap<
        ::prost::alloc::string::String,
        model_warmup::Input,
    >,
    /// 0 = once.
    #[prost(uint32, tag = "4")]
    pub count: u32,
}
/// Nested message and enum types in `ModelWarmup`.
pub mod model_warmup {
    /// Where the data of a warmup input come from.
    #[derive(Clone, PartialEq, Eq, Hash, ::prost::Message)]
    pub struct Input {
        #[prost(enumeration = "super::DataType", tag = "1")]
        pub data_type: i32,
        /// No batch dimension.
        #[prost(int64, repeated, tag = "2")]
        pub dims: ::prost::alloc::vec::Vec<i64>,
        #[prost(oneof = "input::InputDataType", tags = "3, 4, 5")]
        pub input_data_type: ::core::option::Option<input::InputDataType>,
    }
    /// Nested message and enum types in `Input`.
    pub mod input {
        #[derive(Clone, PartialEq, Eq, Hash, ::prost::Oneof)]
        pub enum InputDataType {
            /// Presence counts.
            #[prost(bool, tag = "3")]
            ZeroData(bool),
            /// Presence counts; STRING falls back to zero data.
            #[prost(bool, tag = "4")]
            RandomData(bool),
            /// File in '<model>/warmup/', raw binary.
            #[prost(string, tag = "5")]
            InputDataFile(::prost::alloc::string::String),
        }
    }
}
/// Libraries of custom operations.
#[derive(Clone, PartialEq, Eq, Hash, ::prost::Message)]
pub struct ModelOperations {
    /// Custom-op libraries.
    #[prost(string, repeated, tag = "1")]
    pub op_library_filename: ::prost::alloc::vec::Vec<::prost::alloc::string::String>,
}
/// How responses relate to requests.
#[derive(Clone, Copy, PartialEq, Eq, Hash, ::prost::Message)]
pub struct ModelTransactionPolicy {
    /// 0..n responses per request.
    #[prost(bool, tag = "1")]
    pub decoupled: bool,
}
/// Agents called while the model is loaded and unloaded.
#[derive(Clone, PartialEq, ::prost::Message)]
pub struct ModelRepositoryAgents {
    /// Invoked in order.
    #[prost(message, repeated, tag = "1")]
    pub agents: ::prost::alloc::vec::Vec<model_repository_agents::Agent>,
}
/// Nested message and enum types in `ModelRepositoryAgents`.
pub mod model_repository_agents {
    /// One agent with its settings.
    #[derive(Clone, PartialEq, ::prost::Message)]
    pub struct Agent {
        /// E.g. 'checksum'.
        #[prost(string, tag = "1")]
        pub name: ::prost::alloc::string::String,
        #[prost(btree_map = "string, string", tag = "2")]
        pub parameters: ::prost::alloc::collections::BTreeMap<
            ::prost::alloc::string::String,
            ::prost::alloc::string::String,
        >,
    }
}
/// Whether equal requests are answered from the response cache.
#[derive(Clone, Copy, PartialEq, Eq, Hash, ::prost::Message)]
pub struct ModelResponseCache {
    /// Default false.
    #[prost(bool, tag = "1")]
    pub enable: bool,
}
/// Changes to this model's metrics.
#[derive(Clone, PartialEq, ::prost::Message)]
pub struct ModelMetrics {
    #[prost(message, repeated, tag = "1")]
    pub metric_control: ::prost::alloc::vec::Vec<model_metrics::MetricControl>,
}
/// Nested message and enum types in `ModelMetrics`.
pub mod model_metrics {
    /// Change to one metric family.
    #[derive(Clone, PartialEq, ::prost::Message)]
    pub struct MetricControl {
        /// Required.
        #[prost(message, optional, tag = "1")]
        pub metric_identifier: ::core::option::Option<metric_control::MetricIdentifier>,
        #[prost(oneof = "metric_control::MetricOptions", tags = "2")]
        pub metric_options: ::core::option::Option<metric_control::MetricOptions>,
    }
    /// Nested message and enum types in `MetricControl`.
    pub mod metric_control {
        /// The family meant.
        #[derive(Clone, PartialEq, Eq, Hash, ::prost::Message)]
        pub struct MetricIdentifier {
            /// Histogram family name, required.
            #[prost(string, tag = "1")]
            pub family: ::prost::alloc::string::String,
        }
        /// Settings of a histogram.
        #[derive(Clone, PartialEq, ::prost::Message)]
        pub struct HistogramOptions {
            /// Ascending upper bounds, non-empty.
            #[prost(double, repeated, tag = "1")]
            pub buckets: ::prost::alloc::vec::Vec<f64>,
        }
        #[derive(Clone, PartialEq, ::prost::Oneof)]
        pub enum MetricOptions {
            /// Required (only option).
            #[prost(message, tag = "2")]
            HistogramOptions(HistogramOptions),
        }
    }
}
/// Element type of a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, ::prost::Enumeration)]
#[repr(i32)]
pub enum DataType {
    /// No type; never valid in a configuration.
    TypeInvalid = 0,
    TypeBool = 1,
    TypeUint8 = 2,
    TypeUint16 = 3,
    TypeUint32 = 4,
    TypeUint64 = 5,
    TypeInt8 = 6,
    TypeInt16 = 7,
    TypeInt32 = 8,
    TypeInt64 = 9,
    TypeFp16 = 10,
    TypeFp32 = 11,
    TypeFp64 = 12,
    /// BYTES in the protocol.
    TypeString = 13,
    TypeBf16 = 14,
}
impl DataType {
    /// String value of the enum field names used in the ProtoBuf definition.
    ///
    /// The values are not transformed in any way and thus are considered stable
    /// (if the ProtoBuf definition does not change) and safe for programmatic use.
    pub fn as_str_name(&self) -> &'static str {
        match self {
            Self::TypeInvalid => "TYPE_INVALID",
            Self::TypeBool => "TYPE_BOOL",
            Self::TypeUint8 => "TYPE_UINT8",
            Self::TypeUint16 => "TYPE_UINT16",
            Self::TypeUint32 => "TYPE_UINT32",
            Self::TypeUint64 => "TYPE_UINT64",
            Self::TypeInt8 => "TYPE_INT8",
            Self::TypeInt16 => "TYPE_INT16",
            Self::TypeInt32 => "TYPE_INT32",
            Self::TypeInt64 => "TYPE_INT64",
            Self::TypeFp16 => "TYPE_FP16",
            Self::TypeFp32 => "TYPE_FP32",
            Self::TypeFp64 => "TYPE_FP64",
            Self::TypeString => "TYPE_STRING",
            Self::TypeBf16 => "TYPE_BF16",
        }
    }
    /// Creates an enum from field names used in the ProtoBuf definition.
    pub fn from_str_name(value: &str) -> ::core::option::Option<Self> {
        match value {
            "TYPE_INVALID" => Some(Self::TypeInvalid),
            "TYPE_BOOL" => Some(Self::TypeBool),
            "TYPE_UINT8" => Some(Self::TypeUint8),
            "TYPE_UINT16" => Some(Self::TypeUint16),
            "TYPE_UINT32" => Some(Self::TypeUint32),
            "TYPE_UINT64" => Some(Self::TypeUint64),
            "TYPE_INT8" => Some(Self::TypeInt8),
            "TYPE_INT16" => Some(Self::TypeInt16),
            "TYPE_INT32" => Some(Self::TypeInt32),
            "TYPE_INT64" => Some(Self::TypeInt64),
            "TYPE_FP16" => Some(Self::TypeFp16),
            "TYPE_FP32" => Some(Self::TypeFp32),
            "TYPE_FP64" => Some(Self::TypeFp64),
            "TYPE_STRING" => Some(Self::TypeString),
            "TYPE_BF16" => Some(Self::TypeBf16),
            _ => None,
        }
    }
}
/// Asks for ServerLive.
#[derive(Clone, Copy, PartialEq, Eq, Hash, ::prost::Message)]
pub struct ServerLiveRequest {}
/// Answer of ServerLive.
#[derive(Clone, Copy, PartialEq, Eq, Hash, ::prost::Message)]
pub struct ServerLiveResponse {
    #[prost(bool, tag = "1")]
    pub live: bool,
}
/// Asks for ServerReady.
#[derive(Clone, Copy, PartialEq, Eq, Hash, ::prost::Message)]
pub struct ServerReadyRequest {}
/// Answer of ServerReady.
#[derive(Clone, Copy, PartialEq, Eq, Hash, ::prost::Message)]
pub struct ServerReadyResponse {
    #[prost(bool, tag = "1")]
    pub ready: bool,
}
/// Asks for ModelReady.
#[derive(Clone, PartialEq, Eq, Hash, ::prost::Message)]
pub struct ModelReadyRequest {
    #[prost(string, tag = "1")]
    pub name: ::prost::alloc::string::String,
    /// Empty = any version.
    #[prost(string, tag = "2")]
    pub version: ::prost::alloc::string::String,
}
/// Answer of ModelReady.
#[derive(Clone, Copy, PartialEq, Eq, Hash, ::prost::Message)]
pub struct ModelReadyResponse {
    #[prost(bool, tag = "1")]
    pub ready: bool,
}
/// Asks for ServerMetadata.
#[derive(Clone, Copy, PartialEq, Eq, Hash, ::prost::Message)]
pub struct ServerMetadataRequest {}
/// Answer of ServerMetadata.
#[derive(Clone, PartialEq, Eq, Hash, ::prost::Message)]
pub struct ServerMetadataResponse {
    #[prost(string, tag = "1")]
    pub name: ::prost::alloc::string::String,
    #[prost(string, tag = "2")]
    pub version: ::prost::alloc::string::String,
    /// Names of the protocol extensions offered.
    #[prost(string, repeated, tag = "3")]
    pub extensions: ::prost::alloc::vec::Vec<::prost::alloc::string::String>,
}
/// Asks for ModelMetadata.
#[derive(Clone, PartialEq, Eq, Hash, ::prost::Message)]
pub struct ModelMetadataRequest {
    #[prost(string, tag = "1")]
    pub name: ::prost::alloc::string::String,
    /// Empty = server chooses.
    #[prost(string, tag = "2")]
    pub version: ::prost::alloc::string::String,
}
/// Answer of ModelMetadata.
#[derive(Clone, PartialEq, ::prost::Message)]
pub struct ModelMetadataResponse {
    #[prost(string, tag = "1")]
    pub name: ::prost::alloc::string::String,
    #[prost(string, repeated, tag = "2")]
    pub versions: ::prost::alloc::vec::Vec<::prost::alloc::string::String>,
    /// Platform of the configuration, or its backend.
    #[prost(string, tag = "3")]
    pub platform: ::prost::alloc::string::String,
    #[prost(message, repeated, tag = "4")]
    pub inputs: ::prost::alloc::vec::Vec<model_metadata_response::TensorMetadata>,
    #[prost(message, repeated, tag = "5")]
    pub outputs: ::prost::alloc::vec::Vec<model_metadata_response::TensorMetadata>,
}
/// Nested message and enum types in `ModelMetadataResponse`.
pub mod model_metadata_response {
    /// One input or output.
    #[derive(Clone, PartialEq, Eq, Hash, ::prost::Message)]
    pub struct TensorMetadata {
        #[prost(string, tag = "1")]
        pub name: ::prost::alloc::string::String,
        #[prost(string, tag = "2")]
        pub datatype: ::prost::alloc::string::String,
        /// -1 = variable; batch -1 first.
        #[prost(int64, repeated, tag = "3")]
        pub shape: ::prost::alloc::vec::Vec<i64>,
    }
}
/// A value for a model or for the server.
#[derive(Clone, PartialEq, ::prost::Message)]
pub struct InferParameter {
    #[prost(oneof = "infer_parameter::ParameterChoice", tags = "1, 2, 3, 4, 5")]
    pub parameter_choice: ::core::option::Option<infer_parameter::ParameterChoice>,
}
/// Nested message and enum types in `InferParameter`.
pub mod infer_parameter {
    #[derive(Clone, PartialEq, ::prost::Oneof)]
    pub enum ParameterChoice {
        #[prost(bool, tag = "1")]
        BoolParam(bool),
        #[prost(int64, tag = "2")]
        Int64Param(i64),
        #[prost(string, tag = "3")]
        StringParam(::prost::alloc::string::String),
        #[prost(double, tag = "4")]
        DoubleParam(f64),
        #[prost(uint64, tag = "5")]
        Uint64Param(u64),
    }
}
/// Tensor elements as typed lists; only the list of the datatype may be used. FP16 and BF16 have none.
#[derive(Clone, PartialEq, ::prost::Message)]
pub struct InferTensorContents {
    /// BOOL.
    #[prost(bool, repeated, tag = "1")]
    pub bool_contents: ::prost::alloc::vec::Vec<bool>,
    /// INT8, INT16, INT32.
    #[prost(int32, repeated, tag = "2")]
    pub int_contents: ::prost::alloc::vec::Vec<i32>,
    /// INT64.
    #[prost(int64, repeated, tag = "3")]
    pub int64_contents: ::prost::alloc::vec::Vec<i64>,
    /// UINT8, UINT16, UINT32.
    #[prost(uint32, repeated, tag = "4")]
    pub uint_contents: ::prost::alloc::vec::Vec<u32>,
    /// UINT64.
    #[prost(uint64, repeated, tag = "5")]
    pub uint64_contents: ::prost::alloc::vec::Vec<u64>,
    /// FP32.
    #[prost(float, repeated, tag = "6")]
    pub fp32_contents: ::prost::alloc::vec::Vec<f32>,
    /// FP64.
    #[prost(double, repeated, tag = "7")]
    pub fp64_contents: ::prost::alloc::vec::Vec<f64>,
    /// BYTES, one element each, no length prefix.
    #[prost(bytes = "bytes", repeated, tag = "8")]
    pub bytes_contents: ::prost::alloc::vec::Vec<::prost::bytes::Bytes>,
}
/// One inference.
#[derive(Clone, PartialEq, ::prost::Message)]
pub struct ModelInferRequest {
    #[prost(string, tag = "1")]
    pub model_name: ::prost::alloc::string::String,
    #[prost(string, tag = "2")]
    pub model_version: ::prost::alloc::string::String,
    /// Echoed.
    #[prost(string, tag = "3")]
    pub id: ::prost::alloc::string::String,
    /// sequence_id, sequence_start, sequence_end, priority, timeout, and whatever the model understands.
    #[prost(btree_map = "string, message", tag = "4")]
    pub parameters: ::prost::alloc::collections::BTreeMap<
        ::prost::alloc::string::String,
        InferParameter,
    >,
    #[prost(message, repeated, tag = "5")]
    pub inputs: ::prost::alloc::vec::Vec<model_infer_request::InferInputTensor>,
    /// Empty = all outputs.
    #[prost(message, repeated, tag = "6")]
    pub outputs: ::prost::alloc::vec::Vec<
        model_infer_request::InferRequestedOutputTensor,
    >,
    /// Row-major little-endian contents of the inputs that are not in shared memory, in the order of 'inputs'. All inputs
    /// or none.
    #[prost(bytes = "bytes", repeated, tag = "7")]
    pub raw_input_contents: ::prost::alloc::vec::Vec<::prost::bytes::Bytes>,
}
/// Nested message and enum types in `ModelInferRequest`.
pub mod model_infer_request {
    /// One input; its data are in contents, in raw_input_contents or in shared memory.
    #[derive(Clone, PartialEq, ::prost::Message)]
    pub struct InferInputTensor {
        #[prost(string, tag = "1")]
        pub name: ::prost::alloc::string::String,
        #[prost(string, tag = "2")]
        pub datatype: ::prost::alloc::string::String,
        #[prost(int64, repeated, tag = "3")]
        pub shape: ::prost::alloc::vec::Vec<i64>,
        /// shared_memory_region / _offset / _byte_size.
        #[prost(btree_map = "string, message", tag = "4")]
        pub parameters: ::prost::alloc::collections::BTreeMap<
            ::prost::alloc::string::String,
            super::InferParameter,
        >,
        /// Only when no raw_input_contents.
        #[prost(message, optional, tag = "5")]
        pub contents: ::core::option::Option<super::InferTensorContents>,
    }
    /// One wanted output and how it is wanted.
    #[derive(Clone, PartialEq, ::prost::Message)]
    pub struct InferRequestedOutputTensor {
        #[prost(string, tag = "1")]
        pub name: ::prost::alloc::string::String,
        /// Classification (int64), shared_memory_*.
        #[prost(btree_map = "string, message", tag = "2")]
        pub parameters: ::prost::alloc::collections::BTreeMap<
            ::prost::alloc::string::String,
            super::InferParameter,
        >,
    }
}
/// The outputs of one inference.
#[derive(Clone, PartialEq, ::prost::Message)]
pub struct ModelInferResponse {
    #[prost(string, tag = "1")]
    pub model_name: ::prost::alloc::string::String,
    /// Decimal string.
    #[prost(string, tag = "2")]
    pub model_version: ::prost::alloc::string::String,
    #[prost(string, tag = "3")]
    pub id: ::prost::alloc::string::String,
    /// Model response parameters; triton_final_response in streams.
    #[prost(btree_map = "string, message", tag = "4")]
    pub parameters: ::prost::alloc::collections::BTreeMap<
        ::prost::alloc::string::String,
        InferParameter,
    >,
    #[prost(message, repeated, tag = "5")]
    pub outputs: ::prost::alloc::vec::Vec<model_infer_response::InferOutputTensor>,
    /// Exactly one entry per output, in the order of 'outputs'; empty for outputs in shared memory.
    #[prost(bytes = "bytes", repeated, tag = "6")]
    pub raw_output_contents: ::prost::alloc::vec::Vec<::prost::bytes::Bytes>,
}
/// Nested message and enum types in `ModelInferResponse`.
pub mod model_infer_response {
    /// One output; its data are in raw_output_contents or in shared memory.
    #[derive(Clone, PartialEq, ::prost::Message)]
    pub struct InferOutputTensor {
        #[prost(string, tag = "1")]
        pub name: ::prost::alloc::string::String,
        #[prost(string, tag = "2")]
        pub datatype: ::prost::alloc::string::String,
        #[prost(int64, repeated, tag = "3")]
        pub shape: ::prost::alloc::vec::Vec<i64>,
        /// Not used.
        #[prost(btree_map = "string, message", tag = "4")]
        pub parameters: ::prost::alloc::collections::BTreeMap<
            ::prost::alloc::string::String,
            super::InferParameter,
        >,
        /// Never filled.
        #[prost(message, optional, tag = "5")]
        pub contents: ::core::option::Option<super::InferTensorContents>,
    }
}
/// One response or one failure; failures do not end the stream.
#[derive(Clone, PartialEq, ::prost::Message)]
pub struct ModelStreamInferResponse {
    /// Empty = success.
    #[prost(string, tag = "1")]
    pub error_message: ::prost::alloc::string::String,
    #[prost(message, optional, tag = "2")]
    pub infer_response: ::core::option::Option<ModelInferResponse>,
}
/// Asks for ModelConfig.
#[derive(Clone, PartialEq, Eq, Hash, ::prost::Message)]
pub struct ModelConfigRequest {
    #[prost(string, tag = "1")]
    pub name: ::prost::alloc::string::String,
    /// Empty = server chooses.
    #[prost(string, tag = "2")]
    pub version: ::prost::alloc::string::String,
}
/// Answer of ModelConfig.
#[derive(Clone, PartialEq, ::prost::Message)]
pub struct ModelConfigResponse {
    /// model_config_fields.md.
    #[prost(message, optional, tag = "1")]
    pub config: ::core::option::Option<ModelConfig>,
}
/// Asks for ModelStatistics.
#[derive(Clone, PartialEq, Eq, Hash, ::prost::Message)]
pub struct ModelStatisticsRequest {
    /// Empty = all models.
    #[prost(string, tag = "1")]
    pub name: ::prost::alloc::string::String,
    /// Empty = all ready versions.
    #[prost(string, tag = "2")]
    pub version: ::prost::alloc::string::String,
}
/// How often something happened, and how long it took in all.
#[derive(Clone, Copy, PartialEq, Eq, Hash, ::prost::Message)]
pub struct StatisticDuration {
    #[prost(uint64, tag = "1")]
    pub count: u64,
    #[prost(uint64, tag = "2")]
    pub ns: u64,
}
/// Durations of the phases of requests.
#[derive(Clone, Copy, PartialEq, Eq, Hash, ::prost::Message)]
pub struct InferStatistics {
    #[prost(message, optional, tag = "1")]
    pub success: ::core::option::Option<StatisticDuration>,
    #[prost(message, optional, tag = "2")]
    pub fail: ::core::option::Option<StatisticDuration>,
    #[prost(message, optional, tag = "3")]
    pub queue: ::core::option::Option<StatisticDuration>,
    #[prost(message, optional, tag = "4")]
    pub compute_input: ::core::option::Option<StatisticDuration>,
    #[prost(message, optional, tag = "5")]
    pub compute_infer: ::core::option::Option<StatisticDuration>,
    #[prost(message, optional, tag = "6")]
    pub compute_output: ::core::option::Option<StatisticDuration>,
    #[prost(message, optional, tag = "7")]
    pub cache_hit: ::core::option::Option<StatisticDuration>,
    #[prost(message, optional, tag = "8")]
    pub cache_miss: ::core::option::Option<StatisticDuration>,
}
/// Durations of the responses of decoupled models.
#[derive(Clone, Copy, PartialEq, Eq, Hash, ::prost::Message)]
pub struct InferResponseStatistics {
    #[prost(message, optional, tag = "1")]
    pub compute_infer: ::core::option::Option<StatisticDuration>,
    #[prost(message, optional, tag = "2")]
    pub compute_output: ::core::option::Option<StatisticDuration>,
    #[prost(message, optional, tag = "3")]
    pub success: ::core::option::Option<StatisticDuration>,
    #[prost(message, optional, tag = "4")]
    pub fail: ::core::option::Option<StatisticDuration>,
    #[prost(message, optional, tag = "5")]
    pub empty_response: ::core::option::Option<StatisticDuration>,
    #[prost(message, optional, tag = "6")]
    pub cancel: ::core::option::Option<StatisticDuration>,
}
/// Durations of executions of one batch size.
#[derive(Clone, Copy, PartialEq, Eq, Hash, ::prost::Message)]
pub struct InferBatchStatistics {
    #[prost(uint64, tag = "1")]
    pub batch_size: u64,
    #[prost(message, optional, tag = "2")]
    pub compute_input: ::core::option::Option<StatisticDuration>,
    #[prost(message, optional, tag = "3")]
    pub compute_infer: ::core::option::Option<StatisticDuration>,
    #[prost(message, optional, tag = "4")]
    pub compute_output: ::core::option::Option<StatisticDuration>,
}
/// Memory a model holds.
#[derive(Clone, PartialEq, Eq, Hash, ::prost::Message)]
pub struct MemoryUsage {
    /// CPU, CPU_PINNED, GPU.
    #[prost(string, tag = "1")]
    pub r#type: ::prost::alloc::string::String,
    #[prost(int64, tag = "2")]
    pub id: i64,
    #[prost(uint64, tag = "3")]
    pub byte_size: u64,
}
/// Counters of one model version.
#[derive(Clone, PartialEq, ::prost::Message)]
pub struct ModelStatistics {
    #[prost(string, tag = "1")]
    pub name: ::prost::alloc::string::String,
    #[prost(string, tag = "2")]
    pub version: ::prost::alloc::string::String,
    /// Ms since epoch.
    #[prost(uint64, tag = "3")]
    pub last_inference: u64,
    #[prost(uint64, tag = "4")]
    pub inference_count: u64,
    #[prost(uint64, tag = "5")]
    pub execution_count: u64,
    #[prost(message, optional, tag = "6")]
    pub inference_stats: ::core::option::Option<InferStatistics>,
    #[prost(message, repeated, tag = "7")]
    pub batch_stats: ::prost::alloc::vec::Vec<InferBatchStatistics>,
    #[prost(message, repeated, tag = "8")]
    pub memory_usage: ::prost::alloc::vec::Vec<MemoryUsage>,
    /// Key = decimal response index.
    #[prost(btree_map = "string, message", tag = "9")]
    pub response_stats: ::prost::alloc::collections::BTreeMap<
        ::prost::alloc::string::String,
        InferResponseStatistics,
    >,
}
/// Answer of ModelStatistics.
#[derive(Clone, PartialEq, ::prost::Message)]
pub struct ModelStatisticsResponse {
    #[prost(message, repeated, tag = "1")]
    pub model_stats: ::prost::alloc::vec::Vec<ModelStatistics>,
}
/// A value for a load or an unload.
#[derive(Clone, PartialEq, Eq, Hash, ::prost::Message)]
pub struct ModelRepositoryParameter {
    #[prost(oneof = "model_repository_parameter::ParameterChoice", tags = "1, 2, 3, 4")]
    pub parameter_choice: ::core::option::Option<
        model_repository_parameter::ParameterChoice,
    >,
}
/// Nested message and enum types in `ModelRepositoryParameter`.
pub mod model_repository_parameter {
    #[derive(Clone, PartialEq, Eq, Hash, ::prost::Oneof)]
    pub enum ParameterChoice {
        #[prost(bool, tag = "1")]
        BoolParam(bool),
        #[prost(int64, tag = "2")]
        Int64Param(i64),
        #[prost(string, tag = "3")]
        StringParam(::prost::alloc::string::String),
        #[prost(bytes, tag = "4")]
        BytesParam(::prost::bytes::Bytes),
    }
}
/// Asks for RepositoryIndex.
#[derive(Clone, PartialEq, Eq, Hash, ::prost::Message)]
pub struct RepositoryIndexRequest {
    /// Non-empty -> UNIMPLEMENTED.
    #[prost(string, tag = "1")]
    pub repository_name: ::prost::alloc::string::String,
    #[prost(bool, tag = "2")]
    pub ready: bool,
}
/// Answer of RepositoryIndex.
#[derive(Clone, PartialEq, ::prost::Message)]
pub struct RepositoryIndexResponse {
    #[prost(message, repeated, tag = "1")]
    pub models: ::prost::alloc::vec::Vec<repository_index_response::ModelIndex>,
}
/// Nested message and enum types in `RepositoryIndexResponse`.
pub mod repository_index_response {
    /// One version of one model, or a model without versions.
    #[derive(Clone, PartialEq, Eq, Hash, ::prost::Message)]
    pub struct ModelIndex {
        #[prost(string, tag = "1")]
        pub name: ::prost::alloc::string::String,
        #[prost(string, tag = "2")]
        pub version: ::prost::alloc::string::String,
        #[prost(string, tag = "3")]
        pub state: ::prost::alloc::string::String,
        #[prost(string, tag = "4")]
        pub reason: ::prost::alloc::string::String,
    }
}
/// Asks for RepositoryModelLoad.
#[derive(Clone, PartialEq, ::prost::Message)]
pub struct RepositoryModelLoadRequest {
    /// Non-empty -> UNIMPLEMENTED.
    #[prost(string, tag = "1")]
    pub repository_name: ::prost::alloc::string::String,
    #[prost(string, tag = "2")]
    pub model_name: ::prost::alloc::string::String,
    /// 'config' string_param: configuration as JSON; 'file:<version>/<file>' bytes_param: contents of a model file.
    #[prost(btree_map = "string, message", tag = "3")]
    pub parameters: ::prost::alloc::collections::BTreeMap<
        ::prost::alloc::string::String,
        ModelRepositoryParameter,
    >,
}
/// Answer of RepositoryModelLoad.
#[derive(Clone, Copy, PartialEq, Eq, Hash, ::prost::Message)]
pub struct RepositoryModelLoadResponse {}
/// Asks for RepositoryModelUnload.
#[derive(Clone, PartialEq, ::prost::Message)]
pub struct RepositoryModelUnloadRequest {
    /// Non-empty -> UNIMPLEMENTED.
    #[prost(string, tag = "1")]
    pub repository_name: ::prost::alloc::string::String,
    #[prost(string, tag = "2")]
    pub model_name: ::prost::alloc::string::String,
    /// 'unload_dependents' bool_param; others ignored.
    #[prost(btree_map = "string, message", tag = "3")]
    pub parameters: ::prost::alloc::collections::BTreeMap<
        ::prost::alloc::string::String,
        ModelRepositoryParameter,
    >,
}
/// Answer of RepositoryModelUnload.
#[derive(Clone, Copy, PartialEq, Eq, Hash, ::prost::Message)]
pub struct RepositoryModelUnloadResponse {}
/// Asks for SystemSharedMemoryStatus.
#[derive(Clone, PartialEq, Eq, Hash, ::prost::Message)]
pub struct SystemSharedMemoryStatusRequest {
    /// Empty = all.
    #[prost(string, tag = "1")]
    pub name: ::prost::alloc::string::String,
}
/// Answer of SystemSharedMemoryStatus.
#[derive(Clone, PartialEq, ::prost::Message)]
pub struct SystemSharedMemoryStatusResponse {
    /// By region name.
    #[prost(btree_map = "string, message", tag = "1")]
    pub regions: ::prost::alloc::collections::BTreeMap<
        ::prost::alloc::string::String,
        system_shared_memory_status_response::RegionStatus,
    >,
}
/// Nested message and enum types in `SystemSharedMemoryStatusResponse`.
pub mod system_shared_memory_status_response {
    /// One registered region.
    #[derive(Clone, PartialEq, Eq, Hash, ::prost::Message)]
    pub struct RegionStatus {
        #[prost(string, tag = "1")]
        pub name: ::prost::alloc::string::String,
        #[prost(string, tag = "2")]
        pub key: ::prost::alloc::string::String,
        #[prost(uint64, tag = "3")]
        pub offset: u64,
        #[prost(uint64, tag = "4")]
        pub byte_size: u64,
    }
}
/// Asks for SystemSharedMemoryRegister.
#[derive(Clone, PartialEq, Eq, Hash, ::prost::Message)]
pub struct SystemSharedMemoryRegisterRequest {
    #[prost(string, tag = "1")]
    pub name: ::prost::alloc::string::String,
    #[prost(string, tag = "2")]
    pub key: ::prost::alloc::string::String,
    #[prost(uint64, tag = "3")]
    pub offset: u64,
    #[prost(uint64, tag = "4")]
    pub byte_size: u64,
}
/// Answer of SystemSharedMemoryRegister.
#[derive(Clone, Copy, PartialEq, Eq, Hash, ::prost::Message)]
pub struct SystemSharedMemoryRegisterResponse {}
/// Asks for SystemSharedMemoryUnregister.
#[derive(Clone, PartialEq, Eq, Hash, ::prost::Message)]
pub struct SystemSharedMemoryUnregisterRequest {
    /// Empty = all.
    #[prost(string, tag = "1")]
    pub name: ::prost::alloc::string::String,
}
/// Answer of SystemSharedMemoryUnregister.
#[derive(Clone, Copy, PartialEq, Eq, Hash, ::prost::Message)]
pub struct SystemSharedMemoryUnregisterResponse {}
/// Asks for CudaSharedMemoryStatus.
#[derive(Clone, PartialEq, Eq, Hash, ::prost::Message)]
pub struct CudaSharedMemoryStatusRequest {
    /// Empty = all.
    #[prost(string, tag = "1")]
    pub name: ::prost::alloc::string::String,
}
/// Answer of CudaSharedMemoryStatus.
#[derive(Clone, PartialEq, ::prost::Message)]
pub struct CudaSharedMemoryStatusResponse {
    /// By region name.
    #[prost(btree_map = "string, message", tag = "1")]
    pub regions: ::prost::alloc::collections::BTreeMap<
        ::prost::alloc::string::String,
        cuda_shared_memory_status_response::RegionStatus,
    >,
}
/// Nested message and enum types in `CudaSharedMemoryStatusResponse`.
pub mod cuda_shared_memory_status_response {
    /// One registered region.
    #[derive(Clone, PartialEq, Eq, Hash, ::prost::Message)]
    pub struct RegionStatus {
        #[prost(string, tag = "1")]
        pub name: ::prost::alloc::string::String,
        #[prost(uint64, tag = "2")]
        pub device_id: u64,
        #[prost(uint64, tag = "3")]
        pub byte_size: u64,
    }
}
/// Asks for CudaSharedMemoryRegister.
#[derive(Clone, PartialEq, Eq, Hash, ::prost::Message)]
pub struct CudaSharedMemoryRegisterRequest {
    #[prost(string, tag = "1")]
    pub name: ::prost::alloc::string::String,
    /// 64 raw bytes of a cudaIpcMemHandle_t.
    #[prost(bytes = "bytes", tag = "2")]
    pub raw_handle: ::prost::bytes::Bytes,
    #[prost(int64, tag = "3")]
    pub device_id: i64,
    #[prost(uint64, tag = "4")]
    pub byte_size: u64,
}
/// Answer of CudaSharedMemoryRegister.
#[derive(Clone, Copy, PartialEq, Eq, Hash, ::prost::Message)]
pub struct CudaSharedMemoryRegisterResponse {}
/// Asks for CudaSharedMemoryUnregister.
#[derive(Clone, PartialEq, Eq, Hash, ::prost::Message)]
pub struct CudaSharedMemoryUnregisterRequest {
    /// Empty = all.
    #[prost(string, tag = "1")]
    pub name: ::prost::alloc::string::String,
}
/// Answer of CudaSharedMemoryUnregister.
#[derive(Clone, Copy, PartialEq, Eq, Hash, ::prost::Message)]
pub struct CudaSharedMemoryUnregisterResponse {}
/// Asks for TraceSetting.
#[derive(Clone, PartialEq, ::prost::Message)]
pub struct TraceSettingRequest {
    /// Changes; an empty list of values clears the setting.
    #[prost(btree_map = "string, message", tag = "1")]
    pub settings: ::prost::alloc::collections::BTreeMap<
        ::prost::alloc::string::String,
        trace_setting_request::SettingValue,
    >,
    /// Empty = global.
    #[prost(string, tag = "2")]
    pub model_name: ::prost::alloc::string::String,
}
/// Nested message and enum types in `TraceSettingRequest`.
pub mod trace_setting_request {
    /// One or more values of a setting.
    #[derive(Clone, PartialEq, Eq, Hash, ::prost::Message)]
    pub struct SettingValue {
        #[prost(string, repeated, tag = "1")]
        pub value: ::prost::alloc::vec::Vec<::prost::alloc::string::String>,
    }
}
/// Answer of TraceSetting.
#[derive(Clone, PartialEq, ::prost::Message)]
pub struct TraceSettingResponse {
    /// Every current setting.
    #[prost(btree_map = "string, message", tag = "1")]
    pub settings: ::prost::alloc::collections::BTreeMap<
        ::prost::alloc::string::String,
        trace_setting_response::SettingValue,
    >,
}
/// Nested message and enum types in `TraceSettingResponse`.
pub mod trace_setting_response {
    /// One or more values of a setting.
    #[derive(Clone, PartialEq, Eq, Hash, ::prost::Message)]
    pub struct SettingValue {
        #[prost(string, repeated, tag = "1")]
        pub value: ::prost::alloc::vec::Vec<::prost::alloc::string::String>,
    }
}
/// Asks for LogSettings.
#[derive(Clone, PartialEq, ::prost::Message)]
pub struct LogSettingsRequest {
    #[prost(btree_map = "string, message", tag = "1")]
    pub settings: ::prost::alloc::collections::BTreeMap<
        ::prost::alloc::string::String,
        log_settings_request::SettingValue,
    >,
}
/// Nested message and enum types in `LogSettingsRequest`.
pub mod log_settings_request {
    /// Value of a setting.
    #[derive(Clone, PartialEq, Eq, Hash, ::prost::Message)]
    pub struct SettingValue {
        #[prost(oneof = "setting_value::ParameterChoice", tags = "1, 2, 3")]
        pub parameter_choice: ::core::option::Option<setting_value::ParameterChoice>,
    }
    /// Nested message and enum types in `SettingValue`.
    pub mod setting_value {
        #[derive(Clone, PartialEq, Eq, Hash, ::prost::Oneof)]
        pub enum ParameterChoice {
            #[prost(bool, tag = "1")]
            BoolParam(bool),
            #[prost(uint32, tag = "2")]
            Uint32Param(u32),
            #[prost(string, tag = "3")]
            StringParam(::prost::alloc::string::String),
        }
    }
}
/// Answer of LogSettings.
#[derive(Clone, PartialEq, ::prost::Message)]
pub struct LogSettingsResponse {
    /// log_file, log_format string; log_info/warning/error bool; log_verbose_level uint32.
    #[prost(btree_map = "string, message", tag = "1")]
    pub settings: ::prost::alloc::collections::BTreeMap<
        ::prost::alloc::string::String,
        log_settings_response::SettingValue,
    >,
}
/// Nested message and enum types in `LogSettingsResponse`.
pub mod log_settings_response {
    /// Value of a setting.
    #[derive(Clone, PartialEq, Eq, Hash, ::prost::Message)]
    pub struct SettingValue {
        #[prost(oneof = "setting_value::ParameterChoice", tags = "1, 2, 3")]
        pub parameter_choice: ::core::option::Option<setting_value::ParameterChoice>,
    }
    /// Nested message and enum types in `SettingValue`.
    pub mod setting_value {
        #[derive(Clone, PartialEq, Eq, Hash, ::prost::Oneof)]
        pub enum ParameterChoice {
            #[prost(bool, tag = "1")]
            BoolParam(bool),
            #[prost(uint32, tag = "2")]
            Uint32Param(u32),
            #[prost(string, tag = "3")]
            StringParam(::prost::alloc::string::String),
        }
    }
}
