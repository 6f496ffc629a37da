//! Names of all models of the repository, loaded or not.

use super::*;

/// Names of the models.
pub struct Models;

impl Endpoint for Models {
    fn facts(&self) -> &'static Facts {
        const { &Facts::read("models", Category::ModelRepository) }
    }

    fn http<'a>(&'a self, exchange: &'a HttpExchange<'a>, _body: RequestBody) -> HttpAnswer<'a> {
        later(async move {
            let mut argument = Text::begin(b'{');
            argument.key("page").string("/v2/models").close(b'}');
            exchange.operations().control(ControlOperation::Page, argument).await.map(Bytes::from)
        })
    }
}
