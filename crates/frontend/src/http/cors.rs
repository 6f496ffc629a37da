//! The CORS protocol of the Fetch standard: headers for web pages.
//!
//! A page of a listed origin may send credentials (certificates); with `*`, no page may. Not here: permissions
//! (`gate`), which CORS does not cover. `service::complete` alone adds the headers that every reply has, also to the
//! reply to a preflight.

use super::reply::{PLAIN, Reply};
use crate::cors::Cors;
use crate::limits::CORS_HEADERS_BYTES_MAX;

/// Time for which a browser may cache the response to a preflight.
const MAX_AGE_SECONDS: &str = "600";
/// Header fields that pages may read besides those that they may always read.
const EXPOSED: &str = "Inference-Header-Content-Length, Content-Encoding, Retry-After, WWW-Authenticate, \
     endpoint-load-metrics, nereid-fault, nereid-why";

impl Cors {
    /// The response to a preflight, before [`add`](Self::add); `None` if the request is not one, or its origin is not
    /// allowed.
    pub fn preflight<'a>(&self, header: impl Fn(&str) -> Option<&'a [u8]>) -> Option<Reply> {
        header("origin").filter(|origin| self.allows(origin))?;
        header("access-control-request-method")?;
        let mut reply = Reply::empty(PLAIN);
        reply.add("access-control-allow-methods", "GET, POST");
        // A list: `*` would not include Authorization.
        let is_list = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~, ".contains(&b);
        let list = header("access-control-request-headers");
        if let Some(list) = list.filter(|l| l.len() <= CORS_HEADERS_BYTES_MAX && l.iter().copied().all(is_list)) {
            reply.add("access-control-allow-headers", String::from_utf8_lossy(list).into_owned());
        }
        reply.add("access-control-max-age", MAX_AGE_SECONDS);
        Some(reply)
    }

    /// Adds the headers that let pages of `origin` read a reply.
    pub fn add(&self, origin: Option<&[u8]>, reply: &mut Reply) {
        if !self.is_any() {
            // Also without an origin: a cache in between must not pass that response to a page.
            reply.vary("Origin");
        }
        let Some(origin) = origin.filter(|origin| self.allows(origin)) else { return };
        if self.is_any() {
            reply.add("access-control-allow-origin", "*");
        } else {
            reply.add("access-control-allow-origin", String::from_utf8_lossy(origin).into_owned());
            reply.add("access-control-allow-credentials", "true");
        }
        reply.add("access-control-expose-headers", EXPOSED);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cors(origins: &[&str]) -> Cors {
        Cors::new(&origins.iter().map(|o| (*o).to_owned()).collect::<Vec<_>>()).unwrap().unwrap()
    }

    fn fields(reply: &Reply) -> Vec<String> {
        reply.extra.iter().flat_map(|extra| extra.iter()).map(|(name, value)| format!("{name}: {value}")).collect()
    }

    #[test]
    fn pages_of_listed_origins_may_read_and_send_credentials_and_others_may_not() {
        let some = cors(&["https://a.example", "http://localhost:5173"]);
        let answered = |origin: Option<&[u8]>| {
            let mut reply = Reply::empty(PLAIN);
            some.add(origin, &mut reply);
            fields(&reply)
        };
        assert_eq!(answered(None), ["vary: Origin"]);
        for foreign in
            ["https://b.example", "https://a.example:444", "http://a.example", "https://a.example.evil", "null", ""]
        {
            assert_eq!(answered(Some(foreign.as_bytes())), ["vary: Origin"], "{foreign}");
        }
        let exposed = format!("access-control-expose-headers: {EXPOSED}");
        assert_eq!(
            answered(Some(b"http://localhost:5173")),
            [
                "vary: Origin",
                "access-control-allow-origin: http://localhost:5173",
                "access-control-allow-credentials: true",
                &exposed
            ]
        );
        let mut reply = Reply::empty(PLAIN);
        cors(&["*"]).add(Some(b"https://anything"), &mut reply);
        assert_eq!(fields(&reply), ["access-control-allow-origin: *", &exposed]);
    }

    #[test]
    fn a_preflight_is_answered_with_the_headers_it_asks_for_as_long_as_they_are_few() {
        let any = cors(&["*"]);
        let ask = |headers: &'static [u8]| {
            any.preflight(move |name| match name {
                "origin" => Some(&b"https://a.example"[..]),
                "access-control-request-method" => Some(b"POST"),
                "access-control-request-headers" => Some(headers),
                _ => None,
            })
        };
        let allowed = |headers| {
            let all = fields(&ask(headers).unwrap());
            all.into_iter().find(|f| f.starts_with("access-control-allow-headers"))
        };
        assert_eq!(
            allowed(b"authorization, inference-header-content-length").unwrap(),
            "access-control-allow-headers: authorization, inference-header-content-length"
        );
        for odd in [&b"a\tb"[..], b"\xff", &[b'a'; CORS_HEADERS_BYTES_MAX + 1]] {
            assert_eq!(allowed(odd), None);
        }
        // No preflight: no method is asked for, or no origin is named.
        assert!(any.preflight(|name| (name == "origin").then_some(&b"https://a.example"[..])).is_none());
        assert!(any.preflight(|name| (name == "access-control-request-method").then_some(&b"POST"[..])).is_none());
        let listed = cors(&["https://b.example"]);
        assert!(listed.preflight(|_| Some(&b"https://a.example"[..])).is_none());
    }

    #[test]
    fn an_invalid_origin_is_rejected() {
        for wrong in ["https://a.example/", "a.example", "https://A.example", "https://", "null", "", "https://a b"] {
            let refused = Cors::new(&[wrong.to_owned()]).unwrap_err();
            assert!(refused.message().starts_with(&format!("'{wrong}' is not an origin")), "{}", refused.message());
        }
        assert!(Cors::new(&[]).unwrap().is_none());
    }
}
