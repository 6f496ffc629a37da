//! The messages of `proto/`, generated. For rare calls; [`crate::grpc`] reads and writes `ModelInfer` instead, so that
//! its tensors are not copied.

#![allow(missing_docs, clippy::all, rustdoc::all)]

/// Package `inference`: the service and the model configuration.
pub mod inference {
    include!("inference.rs");
}

/// Package `grpc.health.v1`.
pub mod health {
    include!("grpc.health.v1.rs");
}

/// Package `grpc.reflection.v1`. The messages of v1alpha are the same on the wire.
pub mod reflection {
    include!("grpc.reflection.v1.rs");
}

/// Package `grpc.reflection.v1alpha`.
pub mod reflection_v1alpha {
    include!("grpc.reflection.v1alpha.rs");
}

/// A serialised `google.protobuf.FileDescriptorSet` of every file of `proto/`, importers after what they import.
pub const FILE_DESCRIPTOR_SET: &[u8] = include_bytes!("descriptors.bin");
