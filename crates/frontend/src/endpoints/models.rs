//! Names of the models of the repository, whatever their state.

use super::later;
use crate::access::Category;
use crate::control::ControlOperation;
use crate::exchange::{Endpoint, HttpAnswer, HttpExchange};
use crate::http::body::RequestBody;
use crate::table::facts::{Described, Facts};
use crate::text::Text;
use bytes::Bytes;

/// Names of the models.
pub struct Models;

impl Described for Models {
    fn facts(&self) -> Facts {
        Facts::read("models", Category::ModelRepository)
    }
}

impl Endpoint for Models {
    fn http<'a>(&'a self, exchange: &'a HttpExchange<'a>, _body: RequestBody) -> HttpAnswer<'a> {
        later(async move {
            let mut argument = Text::begin(b'{');
            argument.key("page").string("/v2/models").close(b'}');
            exchange.operations().control(ControlOperation::Page, argument).await.map(Bytes::from)
        })
    }
}
