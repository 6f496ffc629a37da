//! What can happen to a request that is traced.

/// A moment in the life of a request (O 3.4).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Activity {
    RequestStart,
    QueueStart,
    ComputeStart,
    ComputeInputEnd,
    ComputeOutputStart,
    ComputeEnd,
    RequestEnd,
    HttpRecvStart,
    HttpRecvEnd,
    HttpSendStart,
    HttpSendEnd,
    GrpcWaitreadStart,
    GrpcWaitreadEnd,
    GrpcSendStart,
    GrpcSendEnd,
    InferResponseComplete,
}

impl Activity {
    /// As traces name it.
    pub fn name(self) -> &'static str {
        match self {
            Self::RequestStart => "REQUEST_START",
            Self::QueueStart => "QUEUE_START",
            Self::ComputeStart => "COMPUTE_START",
            Self::ComputeInputEnd => "COMPUTE_INPUT_END",
            Self::ComputeOutputStart => "COMPUTE_OUTPUT_START",
            Self::ComputeEnd => "COMPUTE_END",
            Self::RequestEnd => "REQUEST_END",
            Self::HttpRecvStart => "HTTP_RECV_START",
            Self::HttpRecvEnd => "HTTP_RECV_END",
            Self::HttpSendStart => "HTTP_SEND_START",
            Self::HttpSendEnd => "HTTP_SEND_END",
            Self::GrpcWaitreadStart => "GRPC_WAITREAD_START",
            Self::GrpcWaitreadEnd => "GRPC_WAITREAD_END",
            Self::GrpcSendStart => "GRPC_SEND_START",
            Self::GrpcSendEnd => "GRPC_SEND_END",
            Self::InferResponseComplete => "INFER_RESPONSE_COMPLETE",
        }
    }
}
