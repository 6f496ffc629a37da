//! The tables of routes and calls, for the description of the API.

use napi_derive::napi;

/// `{"routes":[…],"calls":[…]}`, as in `crates/frontend/routes.json`.
#[napi]
pub fn describe_routes() -> String {
    frontend::described_routes()
}
