//! Pages for people: the console, the documentation of the API and the home page, which are one program. `/` is JSON
//! for clients that do not ask for HTML.

use super::*;
use crate::encoding::{Encoding, compress};
use crate::limits::{PAGE_BYTES_UNCOMPRESSED_MAX, PAGE_COMPRESSION};

/// Pages load nothing from other servers, run no inline code, and are shown in no other page.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; \
     connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

const HTML: &str = "text/html; charset=utf-8";

/// The server and its models.
pub struct Home;

impl Endpoint for Home {
    fn facts(&self) -> &'static Facts {
        const { &Facts { has_page: true, ..Facts::read("page", Category::ModelRepository) } }
    }

    fn http<'a>(&'a self, exchange: &'a HttpExchange<'a>, _body: RequestBody) -> HttpAnswer<'a> {
        let is_html = exchange.head.accepts(b"text/html");
        HttpAnswer::Later(Box::pin(async move {
            // A cache must not pass names of models to clients without permission.
            let mut reply = page(exchange, is_html, if is_html { HTML } else { JSON }, "no-store").await;
            reply.vary("accept");
            reply
        }))
    }
}

/// A file that is the same on every server.
pub struct StaticPage {
    pub content_type: &'static str,
}

impl StaticPage {
    pub const PAGE: Self = Self { content_type: HTML };
    pub const SCRIPT: Self = Self { content_type: "text/javascript; charset=utf-8" };
    pub const STYLE: Self = Self { content_type: "text/css; charset=utf-8" };
}

impl Endpoint for StaticPage {
    fn facts(&self) -> &'static Facts {
        const { &Facts::page() }
    }

    fn http<'a>(&'a self, exchange: &'a HttpExchange<'a>, _body: RequestBody) -> HttpAnswer<'a> {
        HttpAnswer::Later(Box::pin(page(exchange, self.content_type == HTML, self.content_type, "no-cache")))
    }
}

async fn page(exchange: &HttpExchange<'_>, is_html: bool, content_type: &'static str, cache: &'static str) -> Reply {
    let head = exchange.head;
    let path = String::from_utf8_lossy(head.path());
    let host = head.headers.get("host").and_then(|host| std::str::from_utf8(host).ok());
    // Over HTTP/2 the host is part of the target, not a header field.
    let mut argument = Text::begin(b'{');
    argument.key("page").string(&path).key("html").boolean(is_html);
    argument.key("host").string(host.unwrap_or_default()).close(b'}');
    let page = exchange.operations().control(ControlOperation::Page, argument).await;
    let encoding = head.headers.get("accept-encoding").map_or(Encoding::Identity, Encoding::negotiate);
    let mut reply = match page {
        Ok(text) => packed(text.into(), encoding).await,
        Err(error) => Reply::failed(&error),
    };
    if reply.status == 200 {
        reply.content_type = content_type;
        reply.vary("accept-encoding");
    }
    reply.add("content-security-policy", POLICY);
    reply.add("x-content-type-options", "nosniff");
    reply.add("referrer-policy", "no-referrer");
    reply.add("cache-control", cache);
    reply
}

/// The reply of a text, compressed on another thread.
async fn packed(text: Bytes, encoding: Encoding) -> Reply {
    let is_long = encoding != Encoding::Identity && text.len() >= PAGE_BYTES_UNCOMPRESSED_MAX;
    let encoding = if is_long { encoding } else { Encoding::Identity };
    let whole = text.clone();
    let work = move || compress(std::iter::once(&text[..]), encoding, PAGE_COMPRESSION);
    match offload::run_if(is_long, 0, work).await.and_then(|packed| packed) {
        Ok(Some(packed)) => Reply { content_encoding: Some(encoding.name()), ..Reply::json(packed) },
        Ok(None) => Reply::json(whole),
        Err(error) => Reply::error(JSON, &error),
    }
}
