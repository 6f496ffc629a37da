//! Server reflection over gRPC. It needs no permission: it returns the published proto files, which need no protection.

use super::*;
use crate::grpc::reflection;

/// A stream of questions about services and messages.
pub struct Reflection;

impl Endpoint for Reflection {
    fn facts(&self) -> &'static Facts {
        const { &Facts { category: None, form: CallForm::Stream, ..Facts::read("reflection", Category::Metadata) } }
    }

    fn serve<'a>(&'a self, stream: GrpcStream<'a>) -> Later<'a, ()> {
        Box::pin(reflection::serve(stream))
    }
}
