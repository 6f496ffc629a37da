//! Server reflection over gRPC. It needs no permission: it returns the published proto files, which need no protection.

use crate::access::Category;
use crate::exchange::{Endpoint, Later};
use crate::grpc::context::{Call, GrpcContext};
use crate::grpc::reflection;
use crate::table::facts::{CallForm, Described, Facts};
use http2::StreamWriter;
use std::time::Duration;

/// A stream of questions about services and messages.
pub struct Reflection;

impl Described for Reflection {
    fn facts(&self) -> Facts {
        Facts { category: None, form: CallForm::Stream, ..Facts::read("reflection", Category::Metadata) }
    }
}

impl Endpoint for Reflection {
    fn serve<'a>(
        &'a self,
        _context: &'a GrpcContext,
        call: Call,
        respond: StreamWriter,
        _deadline: Option<Duration>,
    ) -> Later<'a, ()> {
        Box::pin(reflection::serve(call, respond))
    }
}
