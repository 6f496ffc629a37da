//! Encodes the tables of routes and calls as JSON: for the OpenAPI document, which TypeScript makes, and as
//! `routes.json` for the suite `exposed`.

use crate::access::Act;
use crate::exchange::EndpointRef;
use crate::http::method::Method;
use crate::keys::Keyring;
use crate::table::routes::{self, Documentation, Form, ROWS, RouteRow};
use crate::table::{Needs, calls, wants};
use crate::text::Text;

/// The tables as `{"routes":[…],"calls":[…]}`.
pub fn described() -> String {
    let mut text = Text::begin(b'{');
    text.key("routes").open(b'[');
    for row in &ROWS {
        route(row, &mut text);
    }
    text.close(b']').key("calls").open(b'[');
    for call in &calls::CALLS {
        text.open(b'{').key("path").string(call.path);
        facts(call.endpoint, &mut text);
        text.close(b'}');
    }
    text.close(b']').close(b'}');
    // Always UTF-8.
    text.into_string().unwrap_or_default()
}

/// Whether the current keys permit requests with this method and path without a key; false for an unknown path.
pub fn is_open(keys: &Keyring, method: &str, path: &str) -> bool {
    let method = if method == "POST" { Method::Post } else { Method::Get };
    let ask = routes::find(method, path).and_then(|route| route.ask());
    ask.is_some_and(|ask| keys.is_open(&ask))
}

fn route(row: &RouteRow, text: &mut Text) {
    text.open(b'{').key("method").string(if row.method == Method::Post { "POST" } else { "GET" });
    text.key("paths").open(b'[');
    match (row.path.split_once('['), row.path.split_once(']')) {
        (Some((before, _)), Some((_, after))) => {
            text.string(&format!("{before}{after}")).string(&row.path.replace(['[', ']'], ""))
        }
        _ => text.string(row.path),
    };
    text.close(b']');
    facts(row.endpoint, text);
    if let Some(Documentation { id, summary, request, response, form }) = row.documentation {
        text.key("documentation").open(b'{').key("id").string(id).key("summary").string(summary);
        for (key, schema) in [("request", request), ("response", response)] {
            if let Some(schema) = schema {
                text.key(key).string(schema);
            }
        }
        text.key("form").string(match form {
            Form::Json => "json",
            Form::OptionalBody => "optional-body",
            Form::Tensors => "tensors",
            Form::Events => "events",
            Form::Page => "page",
        });
        text.close(b'}');
    }
    text.close(b'}');
}

fn facts(endpoint: EndpointRef, text: &mut Text) {
    let facts = endpoint.facts();
    text.key("operation").string(facts.name);
    let Some(ask) = facts.ask(None) else { return };
    let wants = wants(&ask);
    text.key("category").string(ask.category.name());
    text.key("act").string(if ask.act == Act::Read { "read" } else { "write" });
    for (key, needs) in [("near", wants.near), ("far", wants.far)] {
        match needs {
            Needs::Nothing => text.key(key).string("nothing"),
            Needs::Flag(flag) => text.key(key).string(flag),
            Needs::SecretOr(flag) => text.key(key).string(&format!("a secret for the API, or {flag}")),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn routes_json_is_up_to_date() {
        // One line per row.
        let text = described().replace("[{", "[\n{").replace("},{", "},\n{").replace("}]", "}\n]") + "\n";
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/routes.json");
        if std::env::var_os("NEREID_UPDATE").is_some() {
            std::fs::write(path, &text).unwrap();
        }
        let written = std::fs::read_to_string(path).unwrap_or_default();
        assert_eq!(written, text, "NEREID_UPDATE=1 cargo test -p nereid-frontend writes it");
    }

    #[test]
    fn every_change_from_the_network_needs_a_flag_or_a_secret() {
        let endpoints = ROWS.iter().map(|row| row.endpoint).chain(calls::CALLS.iter().map(|call| call.endpoint));
        for ask in endpoints.filter_map(|endpoint| endpoint.facts().ask(None)) {
            let is_open = ask.act == Act::Read && !ask.is_near;
            assert_eq!(is_open, wants(&ask).far == Needs::Nothing, "{ask:?}");
        }
    }
}
