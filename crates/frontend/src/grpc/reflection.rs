//! Server reflection, v1 and v1alpha (the same on the wire), which tools such as grpcurl use before they call. The
//! index of the compiled proto descriptors is built at the first request.

use super::message::frame;
use super::reply;
use super::status::{Status, code};
use crate::exchange::GrpcStream;
use bytes::Bytes;
use prost::Message;
use protocol::pb::FILE_DESCRIPTOR_SET;
use protocol::pb::reflection::server_reflection_request::MessageRequest as Question;
use protocol::pb::reflection::server_reflection_response::MessageResponse as Answer;
use protocol::pb::reflection::{
    ErrorResponse, ExtensionNumberResponse, FileDescriptorResponse, ListServiceResponse, ServerReflectionRequest,
    ServerReflectionResponse, ServiceResponse,
};
use std::collections::HashMap;
use std::future::poll_fn;
use std::sync::LazyLock;

const NOT_FOUND: i32 = 5;

/// The fields of google.protobuf.FileDescriptorSet and its parts that the index needs. Others are skipped.
#[derive(Clone, PartialEq, Message)]
struct FileSet {
    #[prost(bytes = "bytes", repeated, tag = "1")]
    files: Vec<Bytes>,
}

#[derive(Clone, PartialEq, Message)]
struct File {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    package: String,
    #[prost(string, repeated, tag = "3")]
    dependencies: Vec<String>,
    #[prost(message, repeated, tag = "4")]
    messages: Vec<MessageType>,
    #[prost(message, repeated, tag = "5")]
    enums: Vec<Named>,
    #[prost(message, repeated, tag = "6")]
    services: Vec<Service>,
}

#[derive(Clone, PartialEq, Message)]
struct MessageType {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(message, repeated, tag = "3")]
    nested: Vec<MessageType>,
    #[prost(message, repeated, tag = "4")]
    enums: Vec<Named>,
}

#[derive(Clone, PartialEq, Message)]
struct Service {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(message, repeated, tag = "2")]
    methods: Vec<Named>,
}

#[derive(Clone, PartialEq, Message)]
struct Named {
    #[prost(string, tag = "1")]
    name: String,
}

#[derive(Default)]
struct Index {
    /// Descriptor and direct imports by file name.
    files: HashMap<String, (Bytes, Vec<String>)>,
    /// File name by full symbol name.
    symbols: HashMap<String, String>,
    messages: Vec<String>,
    services: Vec<String>,
}

impl Index {
    fn get() -> &'static Self {
        static INDEX: LazyLock<Index> = LazyLock::new(|| Index::build(&Bytes::from_static(FILE_DESCRIPTOR_SET)));
        &INDEX
    }

    fn build(set: &Bytes) -> Self {
        let mut index = Self::default();
        // The descriptors are part of the server and tested; an unreadable one would be skipped.
        for raw in FileSet::decode(set.clone()).unwrap_or_default().files {
            let Ok(file) = File::decode(raw.clone()) else { continue };
            let scope = if file.package.is_empty() { String::new() } else { format!("{}.", file.package) };
            for message in &file.messages {
                index.message(&scope, message, &file.name);
            }
            for e in &file.enums {
                index.symbols.insert(format!("{scope}{}", e.name), file.name.clone());
            }
            for service in &file.services {
                let name = format!("{scope}{}", service.name);
                for method in &service.methods {
                    index.symbols.insert(format!("{name}.{}", method.name), file.name.clone());
                }
                index.symbols.insert(name.clone(), file.name.clone());
                index.services.push(name);
            }
            index.files.insert(file.name, (raw, file.dependencies));
        }
        index
    }

    fn message(&mut self, scope: &str, message: &MessageType, file: &str) {
        let name = format!("{scope}{}", message.name);
        let inner = format!("{name}.");
        for nested in &message.nested {
            self.message(&inner, nested, file);
        }
        for e in &message.enums {
            self.symbols.insert(format!("{inner}{}", e.name), file.to_owned());
        }
        self.symbols.insert(name.clone(), file.to_owned());
        self.messages.push(name);
    }

    /// A file and all its imports, the file first.
    fn with_imports(&self, name: &str) -> Option<Vec<Bytes>> {
        let mut wanted = vec![name];
        let mut found = Vec::new();
        let mut at = 0;
        while let Some(name) = wanted.get(at).copied() {
            let (raw, dependencies) = self.files.get(name)?;
            found.push(raw.clone());
            for d in dependencies {
                if !wanted.contains(&d.as_str()) {
                    wanted.push(d);
                }
            }
            at += 1;
        }
        Some(found)
    }

    fn answer(&self, request: ServerReflectionRequest) -> ServerReflectionResponse {
        let missing = |what: &str| {
            Answer::ErrorResponse(ErrorResponse {
                error_code: NOT_FOUND,
                error_message: tensor::Error::not_found(format!("{what} not found")).message().to_owned(),
            })
        };
        let file = |name: Option<&str>, what: &str| {
            name.and_then(|n| self.with_imports(n)).map_or_else(
                || missing(what),
                |f| Answer::FileDescriptorResponse(FileDescriptorResponse { file_descriptor_proto: f }),
            )
        };
        let answer = match &request.message_request {
            Some(Question::FileByFilename(name)) => file(Some(name), name),
            Some(Question::FileContainingSymbol(symbol)) => file(self.symbols.get(symbol).map(String::as_str), symbol),
            Some(Question::FileContainingExtension(extension)) => missing(&extension.containing_type),
            Some(Question::AllExtensionNumbersOfType(name)) if self.messages.contains(name) => {
                Answer::AllExtensionNumbersResponse(ExtensionNumberResponse {
                    base_type_name: name.clone(),
                    extension_number: Vec::new(),
                })
            }
            Some(Question::AllExtensionNumbersOfType(name)) => missing(name),
            Some(Question::ListServices(_)) => Answer::ListServicesResponse(ListServiceResponse {
                service: self.services.iter().map(|name| ServiceResponse { name: name.clone() }).collect(),
            }),
            None => missing("an empty request"),
        };
        ServerReflectionResponse {
            valid_host: request.host.clone(),
            original_request: Some(request),
            message_response: Some(answer),
        }
    }
}

/// Serves one stream of reflection requests.
pub async fn serve(GrpcStream { mut call, mut respond, .. }: GrpcStream<'_>) {
    if reply::begin(&mut respond, call.response_encoding).is_err() {
        return;
    }
    let status = loop {
        match poll_fn(|cx| call.messages.poll_next(cx)).await {
            Ok(Some(message)) => match ServerReflectionRequest::decode(message) {
                Ok(request) => {
                    if respond.send_data(frame(&Index::get().answer(request)), false).is_err() {
                        return;
                    }
                }
                Err(e) => break Status::new(code::INTERNAL, format!("failed to parse the request message: {e}")),
            },
            Ok(None) => break Status::ok(),
            Err(status) => break status,
        }
    };
    reply::end(&mut respond, &status);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(question: Question) -> Answer {
        let request = ServerReflectionRequest { host: String::new(), message_request: Some(question) };
        Index::get().answer(request).message_response.unwrap()
    }

    #[test]
    fn every_service_can_be_found_with_all_its_imports() {
        let Answer::ListServicesResponse(list) = ask(Question::ListServices(String::new())) else { panic!() };
        let names: Vec<_> = list.service.iter().map(|s| s.name.as_str()).collect();
        for service in ["inference.GRPCInferenceService", "grpc.health.v1.Health"] {
            assert!(names.contains(&service), "{names:?}");
        }
        for symbol in [
            "inference.GRPCInferenceService",
            "inference.GRPCInferenceService.ModelInfer",
            "inference.ModelInferRequest.InferInputTensor",
            "inference.DataType",
        ] {
            let Answer::FileDescriptorResponse(files) = ask(Question::FileContainingSymbol(symbol.into())) else {
                panic!("{symbol}")
            };
            assert!(!files.file_descriptor_proto.is_empty());
        }
        let unknown = ask(Question::FileContainingSymbol("nope".into()));
        assert!(matches!(unknown, Answer::ErrorResponse(e) if e.error_code == NOT_FOUND));
    }
}
