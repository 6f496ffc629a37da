//! The activities of a traced request.

use std::borrow::Cow;

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
    /// Start of an activity that a backend reports, as all that begin with `Custom` (O-48).
    CustomStart,
    CustomEnd,
    /// An activity without a duration.
    CustomSingle,
    /// Start of the activity with this number, inside the one with the previous number.
    CustomNestedStart(u16),
    CustomNestedEnd(u16),
}

impl Activity {
    /// Name in traces.
    pub fn name(self) -> Cow<'static, str> {
        Cow::Borrowed(match self {
            Self::CustomNestedStart(number) => return Cow::Owned(format!("CUSTOM_ACTIVITY{number}_START")),
            Self::CustomNestedEnd(number) => return Cow::Owned(format!("CUSTOM_ACTIVITY{number}_END")),
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
            Self::CustomStart => "CUSTOM_ACTIVITY_START",
            Self::CustomEnd => "CUSTOM_ACTIVITY_END",
            Self::CustomSingle => "CUSTOM_SINGLE_ACTIVITY",
        })
    }
}
