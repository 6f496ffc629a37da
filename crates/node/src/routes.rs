//! What is served over HTTP, for the description of the API.

use crate::objects as js;
use napi_derive::napi;

/// The HTTP routing table.
#[napi]
pub fn describe_routes() -> Vec<js::Route> {
    let routes = frontend::described_routes().into_iter();
    let route = |r: frontend::DescribedRoute| js::Route {
        template: r.template.to_owned(),
        methods: r.methods.into_iter().map(str::to_owned).collect(),
        category: r.category.to_owned(),
    };
    routes.map(route).collect()
}
