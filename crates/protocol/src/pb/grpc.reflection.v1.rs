// @generated from proto/, do not edit; rebuild with scripts/generate.sh

/// One question.
#[derive(Clone, PartialEq, Eq, Hash, ::prost::Message)]
pub struct ServerReflectionRequest {
    /// Host the client believes to talk to; returned unchanged.
    #[prost(string, tag = "1")]
    pub host: ::prost::alloc::string::String,
    #[prost(oneof = "server_reflection_request::MessageRequest", tags = "3, 4, 5, 6, 7")]
    pub message_request: ::core::option::Option<
        server_reflection_request::MessageRequest,
    >,
}
/// Nested message and enum types in `ServerReflectionRequest`.
pub mod server_reflection_request {
    #[derive(Clone, PartialEq, Eq, Hash, ::prost::Oneof)]
    pub enum MessageRequest {
        /// The file of this name.
        #[prost(string, tag = "3")]
        FileByFilename(::prost::alloc::string::String),
        /// The file that declares this service, method, message or enum, by its full name.
        #[prost(string, tag = "4")]
        FileContainingSymbol(::prost::alloc::string::String),
        /// The file that declares this extension.
        #[prost(message, tag = "5")]
        FileContainingExtension(super::ExtensionRequest),
        /// Extension numbers of the message of this name.
        #[prost(string, tag = "6")]
        AllExtensionNumbersOfType(::prost::alloc::string::String),
        /// The services of the server; the content is ignored.
        #[prost(string, tag = "7")]
        ListServices(::prost::alloc::string::String),
    }
}
/// An extension of a message.
#[derive(Clone, PartialEq, Eq, Hash, ::prost::Message)]
pub struct ExtensionRequest {
    /// Full name of the message.
    #[prost(string, tag = "1")]
    pub containing_type: ::prost::alloc::string::String,
    /// Number of the extension.
    #[prost(int32, tag = "2")]
    pub extension_number: i32,
}
/// One answer.
#[derive(Clone, PartialEq, ::prost::Message)]
pub struct ServerReflectionResponse {
    /// As in the request.
    #[prost(string, tag = "1")]
    pub valid_host: ::prost::alloc::string::String,
    /// The request.
    #[prost(message, optional, tag = "2")]
    pub original_request: ::core::option::Option<ServerReflectionRequest>,
    #[prost(oneof = "server_reflection_response::MessageResponse", tags = "4, 5, 6, 7")]
    pub message_response: ::core::option::Option<
        server_reflection_response::MessageResponse,
    >,
}
/// Nested message and enum types in `ServerReflectionResponse`.
pub mod server_reflection_response {
    #[derive(Clone, PartialEq, ::prost::Oneof)]
    pub enum MessageResponse {
        /// For every question about a file.
        #[prost(message, tag = "4")]
        FileDescriptorResponse(super::FileDescriptorResponse),
        /// For all_extension_numbers_of_type.
        #[prost(message, tag = "5")]
        AllExtensionNumbersResponse(super::ExtensionNumberResponse),
        /// For list_services.
        #[prost(message, tag = "6")]
        ListServicesResponse(super::ListServiceResponse),
        /// When there is no such thing.
        #[prost(message, tag = "7")]
        ErrorResponse(super::ErrorResponse),
    }
}
/// A file and the files it imports.
#[derive(Clone, PartialEq, Eq, Hash, ::prost::Message)]
pub struct FileDescriptorResponse {
    /// Serialised google.protobuf.FileDescriptorProto messages.
    #[prost(bytes = "bytes", repeated, tag = "1")]
    pub file_descriptor_proto: ::prost::alloc::vec::Vec<::prost::bytes::Bytes>,
}
/// Extensions of a message.
#[derive(Clone, PartialEq, Eq, Hash, ::prost::Message)]
pub struct ExtensionNumberResponse {
    /// Full name of the message.
    #[prost(string, tag = "1")]
    pub base_type_name: ::prost::alloc::string::String,
    #[prost(int32, repeated, tag = "2")]
    pub extension_number: ::prost::alloc::vec::Vec<i32>,
}
/// Services of the server.
#[derive(Clone, PartialEq, ::prost::Message)]
pub struct ListServiceResponse {
    #[prost(message, repeated, tag = "1")]
    pub service: ::prost::alloc::vec::Vec<ServiceResponse>,
}
/// One service.
#[derive(Clone, PartialEq, Eq, Hash, ::prost::Message)]
pub struct ServiceResponse {
    /// Full name.
    #[prost(string, tag = "1")]
    pub name: ::prost::alloc::string::String,
}
/// Why there is no answer.
#[derive(Clone, PartialEq, Eq, Hash, ::prost::Message)]
pub struct ErrorResponse {
    /// gRPC status number.
    #[prost(int32, tag = "1")]
    pub error_code: i32,
    #[prost(string, tag = "2")]
    pub error_message: ::prost::alloc::string::String,
}
