//! The HTTP front end on the wire: raw sockets, exact statuses, headers and texts.

#![allow(clippy::disallowed_methods, reason = "tests wait for other threads and processes, and look at clocks")]

mod common;

use common::{Server, infer_binary, infer_json, post, wait_for};
use std::io::Write as _;
use std::sync::atomic::Ordering;
use std::time::Duration;

const INFER: &str = "/v2/models/id/infer";
const ANSWER: &str = "{\"model_name\":\"id\",\"model_version\":\"1\",\"outputs\":\
    [{\"name\":\"OUT\",\"datatype\":\"INT32\",\"shape\":[3],\"data\":[1,2,3]}]}";

#[test]
fn p005_p006_routes_methods_and_content_types() {
    let server = Server::start();
    let (plain, json) = ("text/plain", "application/json");
    for (request, status, content_type, body) in [
        ("GET /v2/health/live", 200, plain, ""),
        ("GET /v2/health/live?x=1&y", 200, plain, ""),
        ("GET http://golden/v2/health/ready", 200, plain, ""),
        (
            "GET /v2/health/ready/",
            404,
            json,
            r#"{"error":"Not Found: remove the slash at the end: the path is /v2/health/ready"}"#,
        ),
        ("PUT /v2/health/live", 405, json, r#"{"error":"Method Not Allowed"}"#),
        ("GET /v2", 200, json, r#"{"name":"triton","version":"2.73.0","extensions":["trace"]}"#),
        ("POST /v2", 405, json, r#"{"error":"Method Not Allowed"}"#),
        ("GET /v2/", 404, json, r#"{"error":"Not Found: remove the slash at the end: the path is /v2"}"#),
        ("GET /v2/nope/", 404, json, r#"{"error":"Not Found"}"#),
        (
            "GET /v2/models/id",
            200,
            json,
            "{\"name\":\"id\",\"versions\":[\"1\"],\"platform\":\"fake\",\
             \"inputs\":[{\"name\":\"IN\",\"datatype\":\"INT32\",\"shape\":[-1]}],\
             \"outputs\":[{\"name\":\"OUT\",\"datatype\":\"INT32\",\"shape\":[-1]}]}",
        ),
        ("GET /v2/models/id/versions/1/config", 200, json, r#"{"name":"id"}"#),
        ("GET /v2/models/nope", 404, json, r#"{"error":"Request for unknown model: 'nope' is not found"}"#),
        (
            "GET /v2/models/id/versions/7",
            404,
            json,
            r#"{"error":"Request for unknown model: 'id' version 7 is not found"}"#,
        ),
        ("GET /v2/models/i%64", 404, json, r#"{"error":"Request for unknown model: 'i%64' is not found"}"#),
        ("GET /v2/models/id/ready", 200, plain, ""),
        ("GET /v2/models/nope/ready", 400, json, r#"{"error":"Model version not ready"}"#),
        ("GET /v2/models/id/infer", 405, json, r#"{"error":"Method Not Allowed"}"#),
        ("GET /v2/models/id/generate", 405, json, r#"{"error":"Method Not Allowed"}"#),
        ("GET /v2/models/nope/stats", 400, json, r#"{"error":"requested model 'nope' is not available"}"#),
        ("GET /v2/systemsharedmemory/status", 200, json, "[]"),
        ("GET /v2/cudasharedmemory/status", 200, json, "[]"),
        (
            "GET /v2/cudasharedmemory/region/a%20b/status",
            404,
            json,
            r#"{"error":"Unable to find cuda shared memory region: 'a b'"}"#,
        ),
        (
            "POST /v2/systemsharedmemory/unregister",
            501,
            json,
            "{\"error\":\"Client shared memory is disabled. \
             Start the server with '--allow-client-shm=true' to enable.\"}",
        ),
        ("POST /v2/repository/index", 200, json, r#"[{"name":"m","version":"1","state":"READY"},{"name":"n"}]"#),
        (
            "POST /v2/repository/r/models/m/load",
            501,
            json,
            r#"{"error":"'repository_name' specification is not supported"}"#,
        ),
        ("GET /v2/logging", 200, json, r#"{"log_file":"","log_info":true,"log_verbose_level":3}"#),
        (
            "POST /v2/logging",
            500,
            json,
            r#"{"error":"failed to parse the request JSON buffer: The document is empty. at 0"}"#,
        ),
        ("GET /v2/models/id/versions/1/trace/setting", 404, json, r#"{"error":"Not Found"}"#),
    ] {
        let response = server.ask(&format!("{request} HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n"));
        assert_eq!((response.status, response.text()), (status, body), "{request}");
        assert_eq!(response.header("Content-Type"), Some(content_type), "{request}");
        let names: Vec<_> = response.headers.iter().map(|(n, _)| n.as_str()).collect();
        let expected: &[_] = match status {
            200 => &["Content-Type", "Content-Length"],
            _ => &["Content-Type", "nereid-fault", "Content-Length"],
        };
        assert_eq!(names, expected, "{request}: nothing else, no Date");
    }
}

#[test]
fn control_operations_are_passed_on_as_in_the_native_contract() {
    let server = Server::start();
    let check = |path: &str, body: &str, status: u16, expected: &str| {
        let response = server.post(path, "", body.as_bytes());
        assert_eq!((response.status, response.text()), (status, expected), "{path} {body}");
    };
    check("/v2/logging", r#"{"log_info":false}"#, 200, r#"{"settings":{"log_info":false},"protocol":"http"}"#);
    check("/v2/logging", "[]", 200, r#"{"settings":{},"protocol":"http"}"#);
    check(
        "/v2/models/m/trace/setting",
        r#"{"trace_rate":null}"#,
        200,
        r#"{"model":"m","settings":{"trace_rate":null},"protocol":"http"}"#,
    );
    check("/v2/repository/models/m/load", r#"{"parameters":{"config":"{}"}}"#, 200, "");
    // Parameters are passed on unchanged: TypeScript checks them.
    for (body, parameters) in [
        (r#"{"parameters":"x"}"#, r#"\"x\""#),
        (r#"{"parameters":[1]}"#, "[1]"),
        (r#"{"parameters":null}"#, "null"),
        ("{}", "{}"),
        ("[]", "{}"),
        ("", "{}"),
    ] {
        let told = format!(r#"{{"error":"{{\"model\":\"told\",\"parameters\":{parameters}}}"}}"#);
        check("/v2/repository/models/told/load", body, 503, &told);
    }
    // Long files are decoded and passed separately; a file that is not base64 stays in the parameters.
    let long = "QUJD".repeat(20_000);
    let body =
        format!(r#"{{"parameters":{{"config":"{{}}","file:1/m":"{long}","file:a":"-_8=","file:b":"%","file:c":7}}}}"#);
    let files = " file:1/m=60000:41 file:a=2:fb";
    let parameters = r#"{\"config\":\"{}\",\"file:b\":\"%\",\"file:c\":7}"#;
    let expected = format!(r#"{{"error":"{{\"model\":\"told\",\"parameters\":{parameters}}}{files}"}}"#);
    check("/v2/repository/models/told/load", &body, 503, &expected);
    let files: Vec<_> = (0..=1024).map(|i| format!(r#""file:{i}":"QUJDQUJD""#)).collect();
    let body = format!(r#"{{"parameters":{{"config":"{{}}",{}}}}}"#, files.join(","));
    let told = r#"{"error":"1025 file parameters, at most 1024 are taken"}"#;
    check("/v2/repository/models/told/load", &body, 400, told);
    check(
        "/v2/repository/models/m/unload",
        r#"{"parameters":{"unload_dependents":true}}"#,
        503,
        r#"{"error":"{\"model\":\"m\",\"unload_dependents\":true}"}"#,
    );
    check(
        "/v2/repository/index",
        r#"{"ready":1}"#,
        400,
        r#"{"error":"Invalid value for 'ready': expected a boolean"}"#,
    );
    check(
        "/v2/repository/models/m/load",
        "{bad",
        500,
        r#"{"error":"failed to parse the request JSON buffer: Missing a name for object member. at 1"}"#,
    );
}

#[test]
fn p1_12_infer_json_and_binary_on_one_connection() {
    let server = Server::start();
    let mut client = server.connect();
    let (head, body) = infer_binary(&[1, 2, 3]);
    let mut first_head = 0;
    for round in 0..3 {
        client.send(&post(INFER, "", infer_json(&[1, 2, 3]).as_bytes()));
        let response = client.response();
        assert_eq!((response.status, response.text()), (200, ANSWER), "round {round}");
        assert_eq!(response.header("Content-Type"), Some("application/json"));
        client.send(&post(INFER, &format!("inference-HEADER-content-length: {head}\r\n"), &body));
        let response = client.response();
        assert_eq!((response.status, response.header("Content-Type")), (200, Some("application/octet-stream")));
        let json: usize = response.header("Inference-Header-Content-Length").unwrap().parse().unwrap();
        assert_eq!(response.body[json..], body[head..]);
        first_head = json;
    }
    assert!(first_head > 0);
    // Larger than the connection's own buffer: the body is in a slab, and the response is written in parts.
    let values: Vec<i32> = (0..300_000).collect();
    let (head, body) = infer_binary(&values);
    client.send(&post(INFER, &format!("Inference-Header-Content-Length: {head}\r\n"), &body));
    let response = client.response();
    let json: usize = response.header("Inference-Header-Content-Length").unwrap().parse().unwrap();
    assert_eq!(response.body.len(), json + 1_200_000);
    assert_eq!(response.body[json..], body[head..]);
}

#[test]
fn all_errors_are_json() {
    let server = Server::start();
    let ok = infer_json(&[1]);
    for (path, headers, body, status, content_type, text) in [
        ("/v2/models/nope/infer", "", "{", 404, "application/json", "Request for unknown model: 'nope' is not found"),
        (
            "/v2/models/deco/infer",
            "",
            "{",
            501,
            "application/json",
            "HTTP end point doesn't support models with decoupled transaction policy",
        ),
        (INFER, "Content-Encoding: br\r\n", "{", 501, "application/json", "Unsupported compression type"),
        (INFER, "Content-Encoding: gzip\r\n", "", 400, "application/json", "nothing to be decompressed"),
        (
            INFER,
            "",
            "{}",
            500,
            "application/json",
            "Unable to parse 'inputs': attempt to access non-existing object member 'inputs'",
        ),
        (
            INFER,
            "Inference-Header-Content-Length: x\r\n",
            "{}",
            400,
            "application/json",
            "Unable to parse Inference-Header-Content-Length, got: x",
        ),
        ("/v2/models/fail/infer", "", &ok, 404, "application/json", "the model failed"),
    ] {
        let response = server.post(path, headers, body.as_bytes());
        assert_eq!(response.status, status, "{path}");
        assert_eq!(response.header("Content-Type"), Some(content_type), "{path} {text}");
        assert_eq!(response.text(), format!("{{\"error\":\"{text}\"}}"));
        let accept = (status == 501 && headers.contains("br")).then_some("gzip, deflate");
        assert_eq!(response.header("Accept-Encoding"), accept);
    }
}

#[test]
fn varied_requests_in_two_pieces_are_answered_like_whole_ones() {
    let server = Server::start();
    let (mut client, mut other) = (server.connect(), server.connect());
    let id = |n: usize| format!("traceparent: 00-{n:032x}-{n:016x}-01\r\nAccept: */*\r\nx-empty:\r\n");
    for (i, more) in [String::new(), id(7), id(8), "X-Tab: a\tb\r\n".into()].iter().enumerate() {
        let (json, body) = infer_binary(&(0..=i as i32).collect::<Vec<_>>());
        let request = post(INFER, &format!("Inference-Header-Content-Length: {json}\r\n{more}"), &body);
        for cut in 1..request.len() {
            client.send(&request[..cut]);
            // One reactor serves both: it has read this piece when it answers the other connection.
            other.send(b"GET /v2/health/live HTTP/1.1\r\nHost: x\r\n\r\n");
            assert_eq!(other.response().status, 200);
            client.send(&request[cut..]);
            let response = client.response();
            let form = response.header("Content-Type");
            assert_eq!((response.status, form), (200, Some("application/octet-stream")), "{more} cut at {cut}");
            let head: usize = response.header("Inference-Header-Content-Length").unwrap().parse().unwrap();
            assert_eq!(response.body[head..], body[json..], "{more} cut at {cut}");
        }
    }
}

#[test]
fn p1_1_pipelined_requests_are_answered_in_order() {
    let server = Server::start();
    let mut client = server.connect();
    let mut all = Vec::new();
    for i in 0..50 {
        all.extend(post(INFER, "", infer_json(&[i, i, i]).as_bytes()));
        all.extend_from_slice(b"GET /v2/models/nope HTTP/1.1\r\nHost: x\r\n\r\n");
    }
    client.send(&all);
    for i in 0..50 {
        let response = client.response();
        assert!(response.text().ends_with(&format!("\"data\":[{i},{i},{i}]}}]}}")), "{i}: {}", response.text());
        assert_eq!(client.response().status, 404);
    }
}

#[test]
fn p1_1_chunked_bodies_and_their_limit() {
    let server = Server::start();
    let mut client = server.connect();
    let head = format!("POST {INFER} HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n");
    let chunked = |step: usize| {
        let body = infer_json(&[1, 2, 3]).into_bytes();
        let mut out = head.clone().into_bytes();
        for chunk in body.chunks(step) {
            out.extend(format!("{:x};ext=1\r\n", chunk.len()).into_bytes());
            out.extend_from_slice(chunk);
            out.extend_from_slice(b"\r\n");
        }
        out.extend_from_slice(b"0\r\n\r\n");
        out
    };
    for step in [1, 7, 1000] {
        client.send(&chunked(step));
        assert_eq!(client.response().text(), ANSWER, "chunks of {step}");
    }
    let mut all = head.into_bytes();
    all.extend(b"1\r\n \r\n".repeat(65_600));
    let _ = client.io.write_all(&all);
    let response = client.response();
    assert_eq!(
        (response.status, response.text(), response.header("Content-Type"), response.header("Connection")),
        (
            400,
            "{\"error\":\"Chunked request body exceeds maximum of 65536 non-empty chunks. \
             Send fewer or larger HTTP chunks.\"}",
            Some("application/json"),
            Some("close")
        )
    );
    assert!(client.is_closed());
}

#[test]
fn p1_1_any_expect_header_is_answered_before_the_body() {
    let server = Server::start();
    for expect in ["100-continue", "something"] {
        let mut client = server.connect();
        let body = infer_json(&[1, 2, 3]);
        client.send(
            format!("POST {INFER} HTTP/1.1\r\nHost: x\r\nExpect: {expect}\r\nContent-Length: {}\r\n\r\n", body.len())
                .as_bytes(),
        );
        assert_eq!(client.response().status, 100, "{expect}");
        client.send(body.as_bytes());
        assert_eq!(client.response().text(), ANSWER);
    }
}

#[test]
fn p1_1_connections_stay_or_close_as_asked() {
    let server = Server::start();
    for (request, header, closes) in [
        ("GET /v2 HTTP/1.1\r\nHost: x\r\n\r\n", None, false),
        ("GET /v2 HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", Some("close"), true),
        ("GET /v2 HTTP/1.0\r\n\r\n", Some("close"), true),
        ("GET /v2 HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", Some("keep-alive"), false),
        ("POST /v2 HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello", None, false),
        ("POST /v2 HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999\r\n\r\nhello", Some("close"), true),
        ("GET / HTTP/1.1\nHost: x\n\n", Some("close"), true),
        ("POST /v2 HTTP/1.1\r\nHost: x\r\nContent-Length: -5\r\n\r\n", Some("close"), true),
    ] {
        let mut client = server.connect();
        client.send(request.as_bytes());
        let response = client.response();
        assert_eq!(response.header("Connection"), header, "{request:?}");
        if closes {
            client.io.shutdown(std::net::Shutdown::Write).unwrap();
            assert!(client.is_closed(), "{request:?}");
        } else {
            client.send(b"GET /v2/health/live HTTP/1.1\r\nHost: x\r\n\r\n");
            assert_eq!(client.response().status, 200, "{request:?}");
        }
    }
}

#[test]
fn p1_1_head_has_no_body_and_long_heads_pass() {
    let server = Server::start();
    let mut client = server.connect();
    client.send(b"HEAD /v2/health/live HTTP/1.1\r\nHost: x\r\n\r\n");
    client.send(b"GET /v2/health/live HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    let mut text = String::new();
    std::io::Read::read_to_string(&mut client.io, &mut text).unwrap();
    assert!(text.starts_with("HTTP/1.1 405 ") && !text.contains("error") && text.contains("HTTP/1.1 200 OK"), "{text}");
    let many: String = (0..90).map(|i| format!("X-{i}: 1\r\n")).collect();
    let long = "a".repeat(7000);
    assert_eq!(
        server.ask(&format!("GET /v2/health/live HTTP/1.1\r\nHost: x\r\n{many}X-Long: {long}\r\n\r\n")).status,
        200
    );
}

// P-010, S-41
#[test]
fn p1_1_a_client_that_disconnects_cancels_its_inference() {
    let server = Server::start();
    let mut client = server.connect();
    client.send(&post("/v2/models/slow/infer", "", infer_json(&[1]).as_bytes()));
    server.probe.wait_started(1);
    assert_eq!(server.running.as_ref().unwrap().inflight(), 1);
    drop(client);
    server.probe.wait_stopped(1);
    wait_for("the request to be gone", || server.running.as_ref().unwrap().inflight() == 0);
}

#[test]
fn p1_15_restricted_apis_come_before_methods() {
    let server = Server::with(|_, http, _| {
        http.restrictions = vec![frontend::Restriction {
            apis: vec!["model-config".into(), "inference".into()],
            key: "Secret".into(),
            value: "sesame".into(),
        }];
    });
    for (method, path, headers, status) in [
        ("GET", "/v2/models/id/config", "", 403),
        ("GET", "/v2/models/id/config", "secret: sesame\r\n", 200),
        ("GET", "/v2/models/id/config", "SECRET: sesame\r\n", 200),
        ("GET", "/v2/models/id/config", "secret: Sesame\r\n", 403),
        ("GET", "/v2/models/nope/config", "secret: sesame\r\n", 404),
        ("POST", "/v2/models/id/config", "", 403),
        ("POST", "/v2/models/id/config", "secret: sesame\r\n", 405),
        ("POST", "/v2/models/id/generate", "", 403),
        ("GET", "/v2/models/id", "", 200),
    ] {
        let response = server.ask(&format!("{method} {path} HTTP/1.1\r\nHost: x\r\n{headers}\r\n"));
        assert_eq!(response.status, status, "{method} {path} {headers}");
        if status == 403 {
            assert_eq!(response.text(), r#"{"error":"This API is restricted, expecting header 'Secret'"}"#);
            assert_eq!(response.header("Content-Type"), Some("application/json"));
        }
    }
}

#[test]
fn web_pages_of_listed_origins_may_ask_and_pages_of_others_change_nothing() {
    let server = Server::with(|_, http, _| http.cors_origins = vec!["https://a.example".into()]);
    let ask = |line: &str, headers: &str| server.ask(&format!("{line} HTTP/1.1\r\nHost: x\r\n{headers}\r\n"));
    let (listed, other) = ("Origin: https://a.example\r\n", "Origin: https://b.example\r\n");
    let preflight = "Access-Control-Request-Method: POST\r\nAccess-Control-Request-Headers: authorization\r\n";
    for (line, headers, status, origin) in [
        ("OPTIONS /v2/models/id/infer", format!("{listed}{preflight}"), 200, Some("https://a.example")),
        ("OPTIONS /v2/models/id/infer", format!("{other}{preflight}"), 405, None),
        ("OPTIONS /v2/nowhere", format!("{listed}{preflight}"), 404, Some("https://a.example")),
        ("GET /v2/models/nope", listed.to_owned(), 404, Some("https://a.example")),
        ("GET /v2", listed.to_owned(), 200, Some("https://a.example")),
        ("GET /v2", other.to_owned(), 200, None),
        ("GET /v2", String::new(), 200, None),
        ("POST /v2/logging", format!("{other}Content-Length: 0\r\n"), 403, None),
    ] {
        let response = ask(line, &headers);
        assert_eq!(response.status, status, "{line} {headers}");
        assert_eq!(response.header("access-control-allow-origin"), origin, "{line} {headers}");
        assert_eq!(response.header("vary"), Some("Origin"), "{line} {headers}");
    }
    let response = ask("OPTIONS /v2", &format!("{listed}{preflight}"));
    assert_eq!(response.header("access-control-allow-headers"), Some("authorization"));
    assert_eq!(response.header("access-control-allow-credentials"), Some("true"));
    let any = Server::with(|_, http, _| http.cors_origins = vec!["*".into()]);
    for (line, status) in [("OPTIONS /v2/models/id/infer", 200), ("GET /v2", 200), ("GET /v2/nowhere", 404)] {
        let response = any.ask(&format!("{line} HTTP/1.1\r\nHost: x\r\n{other}{preflight}\r\n"));
        let allowed = (response.header("access-control-allow-origin"), response.header("vary"));
        assert_eq!((response.status, allowed), (status, (Some("*"), None)), "{line}");
    }
    // Without the option there are no CORS headers, and pages still change nothing.
    let off = Server::start();
    let response = off.ask(&format!("OPTIONS /v2 HTTP/1.1\r\nHost: x\r\n{listed}{preflight}\r\n"));
    assert_eq!((response.status, response.header("vary")), (405, None));
    let change = format!("POST /v2/logging HTTP/1.1\r\nHost: x\r\n{listed}Content-Length: 2\r\n\r\n{{}}");
    assert_eq!(off.ask(&change).status, 403);
}

#[test]
fn p1_15_headers_are_forwarded_with_their_capitals() {
    let server = Server::with(|_, http, _| http.header_forward_pattern = "^x-|timeout".into());
    let body = infer_json(&[1]);
    let ask = |headers: &str| server.post(INFER, headers, body.as_bytes());
    let response = ask("X-Foo: bar\r\nOther: 1\r\nTimeout: 5\r\n");
    assert!(response.text().contains(r#""parameters":{"X-Foo":"bar","Timeout":"5"}"#), "{}", response.text());
    let response = ask("timeout: 5\r\n");
    assert_eq!(response.status, 400);
    assert_eq!(
        response.text(),
        r#"{"error":"Header 'timeout' is reserved for Triton usage and cannot be forwarded."}"#
    );
}

#[test]
fn p1_12_8_compression_both_ways() {
    use flate2::{Compression, read::GzDecoder, read::ZlibDecoder, write::GzEncoder};
    use std::io::Read;
    let server = Server::with(|engine, _, _| engine.http_input_bytes_max = 2000);
    let mut packer = GzEncoder::new(Vec::new(), Compression::default());
    packer.write_all(infer_json(&[1, 2, 3]).as_bytes()).unwrap();
    let packed = packer.finish().unwrap();
    for accept in ["gzip", "deflate", "deflate;q=0.5, gzip;q=0.9", "identity"] {
        let headers = format!("Content-Encoding: gzip\r\nAccept-Encoding: {accept}\r\n");
        let response = server.post(INFER, &headers, &packed);
        let mut text = String::new();
        match response.header("Content-Encoding") {
            Some("gzip") => GzDecoder::new(&response.body[..]).read_to_string(&mut text).unwrap(),
            Some("deflate") => ZlibDecoder::new(&response.body[..]).read_to_string(&mut text).unwrap(),
            _ => (&response.body[..]).read_to_string(&mut text).unwrap(),
        };
        assert_eq!(text, ANSWER, "{accept}");
        assert_eq!(response.header("Content-Encoding").is_some(), accept != "identity");
    }
    let error = server.post(INFER, "Accept-Encoding: gzip\r\n", b"{}");
    assert_eq!((error.status, error.header("Content-Encoding")), (500, None), "errors are never packed");
    let mut bomb = GzEncoder::new(Vec::new(), Compression::default());
    bomb.write_all(&[b' '; 5000]).unwrap();
    let response = server.post(INFER, "Content-Encoding: gzip\r\n", &bomb.finish().unwrap());
    assert_eq!(
        (response.status, response.text()),
        (
            400,
            "{\"error\":\"Decompressed data size exceeds the maximum allowed value of 2000 bytes. \
             Use --http-max-input-size to increase the limit.\"}"
        )
    );
}

#[test]
fn p1_12_9_size_limits() {
    let server = Server::with(|engine, _, _| engine.http_input_bytes_max = 2000);
    let exact = |n: usize| format!("{{\"x\":\"{}\"}}", "a".repeat(n - 8));
    assert_eq!(server.post("/v2/logging", "", exact(2000).as_bytes()).status, 200);
    for path in ["/v2/logging", "/v2/repository/models/m/load", "/v2/models/id/generate", INFER] {
        let response = server.post(path, "", exact(2001).as_bytes());
        assert_eq!(
            (response.status, response.text()),
            (
                400,
                "{\"error\":\"request JSON size of 2001 bytes exceeds the maximum allowed input size of 2000 bytes. \
                 Use --http-max-input-size to increase the limit.\"}"
            ),
            "{path}"
        );
    }
    let response = server.ask(&format!("POST {INFER} HTTP/1.1\r\nHost: x\r\nContent-Length: 2147483648\r\n\r\n"));
    assert_eq!(
        (response.status, response.text()),
        (
            400,
            "{\"error\":\"Unable to parse Content-Length, value is out of range [ -2147483648, 2147483647 ], \
             got: 2147483648\"}"
        )
    );
}

// P-106, P-107, P-113, P-114
#[test]
fn p115_o23_generate_reports_the_load_of_its_model_on_request() {
    let server = Server::start();
    let load = |path: &str, format: &str, body: &[u8]| {
        let headers =
            if format.is_empty() { String::new() } else { format!("Endpoint-Load-Metrics-Format: {format}\r\n") };
        let response = server.post(&format!("/v2/models/{path}"), &headers, body);
        (response.status, response.header("endpoint-load-metrics").map(str::to_owned))
    };
    let body = br#"{"IN":[1]}"#;
    let json = Some(r#"JSON {"named_metrics":{"kv_cache_utilization":0.25,"max_token_capacity":128}}"#.to_owned());
    let text = "TEXT named_metrics.kv_cache_utilization=0.250000, named_metrics.max_token_capacity=128".to_owned();
    assert_eq!(load("id/generate", "json", body), (200, json.clone()));
    assert_eq!(load("id/versions/1/generate", "text", body), (200, Some(text)));
    assert_eq!(load("many/generate", "json", body), (200, json.clone()));
    assert_eq!(load("many/generate_stream", "json", body), (200, json.clone()));
    // A failed inference has a load report, a rejected request has none.
    assert_eq!(load("fail/generate", "json", body), (400, json.clone()));
    assert_eq!(load("id/generate", "json", b"{"), (500, None));
    assert_eq!(load("nobody/generate", "json", body).1, None);
    assert_eq!(load("id/generate", "", body), (200, None));
    assert_eq!(load("id/generate", "xml", body), (200, None));
    // A model without a cache of this kind.
    assert_eq!(load("deco/generate", "json", body), (200, None));
    common::client(async {
        let io = tokio::net::TcpStream::connect(("127.0.0.1", server.http)).await.unwrap();
        let (mut send, connection) = h2::client::handshake(io).await.unwrap();
        tokio::task::spawn_local(async move { drop(connection.await) });
        let request = http::Request::post("http://x/v2/models/id/generate");
        let request = request.header("endpoint-load-metrics-format", "json").body(()).unwrap();
        let (response, mut sending) = send.send_request(request, false).unwrap();
        sending.send_data(bytes::Bytes::from_static(body), true).unwrap();
        let response = response.await.unwrap();
        let found = response.headers().get("endpoint-load-metrics").and_then(|value| value.to_str().ok());
        assert_eq!(found, json.as_deref());
    });
}

#[test]
fn infer_reports_the_load_of_the_server_on_request() {
    let server = Server::start();
    let infer = br#"{"inputs":[{"name":"IN","shape":[1],"datatype":"INT32","data":[1]}]}"#;
    let load = |path: &str, format: &str, body: &[u8]| {
        let headers =
            if format.is_empty() { String::new() } else { format!("endpoint-load-metrics-format: {format}\r\n") };
        let response = server.post(&format!("/v2/models/{path}/infer"), &headers, body);
        (response.status, response.header("endpoint-load-metrics").map(str::to_owned))
    };
    assert_eq!(load("id", "", infer), (200, None));
    assert_eq!(load("id", "xml", infer), (200, None));
    let (status, json) = load("id", "json", infer);
    let json = json.unwrap();
    let names = ["application_utilization", "rps_fractional", "eps"];
    assert_eq!(status, 200);
    assert!(json.starts_with(r#"JSON {"application_utilization":"#), "{json}");
    assert!(names.iter().all(|name| json.contains(&format!("\"{name}\":"))), "{json}");
    // Errors have a load report as well: load balancers need it from failing servers too.
    let (status, text) = load("nobody", "text", infer);
    assert_eq!(status, 404);
    assert!(text.as_deref().is_some_and(|text| text.starts_with("TEXT application_utilization=")), "{text:?}");
    common::client(async {
        let io = tokio::net::TcpStream::connect(("127.0.0.1", server.http)).await.unwrap();
        let (mut send, connection) = h2::client::handshake(io).await.unwrap();
        tokio::task::spawn_local(async move { drop(connection.await) });
        let request = http::Request::post("http://x/v2/models/id/infer").header("endpoint-load-metrics-format", "json");
        let (response, mut sending) = send.send_request(request.body(()).unwrap(), false).unwrap();
        sending.send_data(bytes::Bytes::from_static(infer), true).unwrap();
        let response = response.await.unwrap();
        let found = response.headers().get("endpoint-load-metrics").and_then(|value| value.to_str().ok());
        assert!(found.is_some_and(|found| found.starts_with("JSON {")), "{found:?}");
    });
}

#[test]
fn p1_13_generate_is_chunked_and_generate_stream_is_events() {
    let server = Server::start();
    let body = br#"{"IN":[1,2],"x":5}"#;
    let json = r#"{"OUT":[1,2],"model_name":"id","model_version":"1","x":5}"#;
    let response = server.post("/v2/models/id/generate", "", body);
    assert_eq!((response.status, response.text()), (200, json));
    assert_eq!(response.header("Content-Type"), Some("application/json"));
    assert_eq!(response.header("Transfer-Encoding"), Some("chunked"));
    assert_eq!(response.header("Content-Length"), None);
    let response = server.post("/v2/models/id/generate_stream", "", body);
    assert_eq!((response.status, response.text()), (200, format!("data: {json}\n\n").as_str()));
    assert_eq!(response.header("Content-Type"), Some("text/event-stream; charset=utf-8"));
    let response = server.post("/v2/models/fail/generate_stream", "", body);
    assert_eq!((response.status, response.text()), (400, "data: {\"error\":\"the model failed\"}\n\n"));
    let response = server.post("/v2/models/id/generate", "Content-Encoding: gzip\r\n", body);
    assert_eq!(
        (response.status, response.text()),
        (400, r#"{"error":"Unsupported content-encoding, only 'identity' is supported."}"#)
    );
}

#[test]
fn http2_with_prior_knowledge_on_the_http_port() {
    let server = Server::start();
    common::client(async {
        let io = tokio::net::TcpStream::connect(("127.0.0.1", server.http)).await.unwrap();
        let (mut send, connection) = h2::client::handshake(io).await.unwrap();
        tokio::task::spawn_local(async move { drop(connection.await) });
        let request = http::Request::post(format!("http://x{INFER}")).body(()).unwrap();
        let (response, mut body) = send.send_request(request, false).unwrap();
        body.send_data(infer_json(&[1, 2, 3]).into(), true).unwrap();
        let response = response.await.unwrap();
        assert_eq!(
            (response.status().as_u16(), &response.headers()["content-type"]),
            (200, &"application/json".parse().unwrap())
        );
        let chunk: bytes::Bytes = response.into_body().data().await.unwrap().unwrap();
        assert_eq!(chunk, ANSWER);
    });
}

#[test]
fn p014_p015_health_has_a_body_for_clients_that_accept_json() {
    let server = Server::start();
    let mut client = server.connect();
    for (accept, has_body) in [
        ("application/json", true),
        ("text/html, Application/JSON;q=0.9", true),
        ("*/*", false),
        ("application/*", false),
        ("application/jsonl", false),
        ("", false),
    ] {
        for (what, body) in [("live", r#"{"live":true}"#), ("ready", r#"{"ready":true}"#)] {
            client.send(format!("GET /v2/health/{what} HTTP/1.1\r\nHost: x\r\nAccept: {accept}\r\n\r\n").as_bytes());
            let response = client.response();
            let expected = if has_body { ("application/json", body) } else { ("text/plain", "") };
            assert_eq!(
                (response.status, response.header("Content-Type"), response.text()),
                (200, Some(expected.0), expected.1),
                "{accept}"
            );
        }
    }
    server.engine.set_server_state(engine::ServerState::Exiting);
    client.send(b"GET /v2/health/ready HTTP/1.1\r\nHost: x\r\nAccept: application/json\r\n\r\n");
    let response = client.response();
    assert_eq!((response.status, response.text()), (400, r#"{"ready":false}"#));
}

#[test]
fn a_leaving_server_is_not_ready_and_serves_all_connections_until_it_rejects() {
    let mut server = Server::start();
    let mut idle = server.connect();
    idle.send(b"GET /v2/health/live HTTP/1.1\r\nHost: x\r\n\r\n");
    assert_eq!(idle.response().status, 200);
    let mut busy = server.connect();
    busy.send(&post("/v2/models/slow/infer", "", infer_json(&[1]).as_bytes()));
    server.probe.wait_started(1);
    let running = server.running.take().unwrap();
    server.engine.set_server_state(engine::ServerState::Leaving);
    assert!(running.leave(), "somebody is connected");
    for path in ["live", "ready"] {
        let response = server.get(&format!("/v2/health/{path}"));
        assert_eq!((response.status, response.text()), (400, ""));
        assert_eq!(response.header("Connection"), Some("close"));
    }
    let response = server.get("/v2/models/id/ready");
    assert_eq!((response.status, response.text()), (400, r#"{"error":"Model version not ready"}"#));
    idle.send(&post(INFER, "", infer_json(&[1]).as_bytes()));
    for response in [idle.response(), server.post(INFER, "", infer_json(&[1, 2, 3]).as_bytes())] {
        assert_eq!((response.status, response.header("Connection")), (200, Some("close")), "{}", response.text());
    }
    assert_eq!(server.get("/v2/models/id/config").status, 200);
    let mut idle = server.connect();
    server.engine.set_server_state(engine::ServerState::Exiting);
    running.refuse();
    idle.send(&post(INFER, "", infer_json(&[1]).as_bytes()));
    let generate = server.post("/v2/models/id/generate", "", b"{}");
    for response in [idle.response(), generate] {
        assert_eq!((response.status, response.text()), (503, r#"{"error":"Server exiting"}"#));
        assert_eq!(response.header("Connection"), Some("close"));
    }
    running.stop_accepting();
    wait_for("the port to close", || std::net::TcpStream::connect(("127.0.0.1", server.http)).is_err());
    wait_for("only the running request to be left", || running.inflight() == 1);
    server.probe.open();
    assert_eq!(busy.response().status, 200);
    running.close(Duration::from_secs(5));
    assert_eq!(server.probe.stopped.load(Ordering::SeqCst), 0);
}

#[test]
fn a_server_that_hands_over_closes_its_port_and_answers_open_connections() {
    let mut server = Server::start();
    let mut idle = server.connect();
    idle.send(b"GET /v2/health/live HTTP/1.1\r\nHost: x\r\n\r\n");
    assert_eq!(idle.response().header("Connection"), None);
    let running = server.running.take().unwrap();
    running.hand_over();
    wait_for("the port to close", || std::net::TcpStream::connect(("127.0.0.1", server.http)).is_err());
    idle.send(&post(INFER, "", infer_json(&[1, 2, 3]).as_bytes()));
    let response = idle.response();
    assert_eq!((response.status, response.text(), response.header("Connection")), (200, ANSWER, Some("close")));
    wait_for("the connection to go", || running.connections() == 0);
    running.stop_accepting();
    running.close(Duration::from_secs(5));
}

#[test]
fn a_blocked_reactor_does_not_answer_the_pulse() {
    let server = Server::start();
    let running = server.running.as_ref().unwrap();
    let answered = (0..20).filter(|_| {
        std::thread::sleep(Duration::from_millis(50));
        running.pulse()
    });
    // On a busy machine an answer may be late.
    assert!(answered.count() > 10, "a reactor that has nothing to do answers every pulse");
    let mut client = server.connect();
    client.send(&post("/v2/repository/models/x/load", "", br#"{"parameters":{"a":"hold the reactor"}}"#));
    wait_for("the reactor to be held up", || {
        std::thread::sleep(Duration::from_millis(50));
        !running.pulse()
    });
    // The missed pulse is answered late, later ones in time.
    wait_for("the reactor to go on", || {
        std::thread::sleep(Duration::from_millis(50));
        running.pulse()
    });
    client.response();
}

#[test]
fn a_server_without_connections_need_not_wait_before_it_closes_the_port() {
    let server = Server::start();
    assert!(!server.running.as_ref().unwrap().leave());
}

#[test]
fn health_is_a_status_without_a_body() {
    let server = Server::start();
    for (state, live, ready) in
        [(engine::ServerState::Initializing, false, false), (engine::ServerState::Ready, true, true)]
    {
        server.engine.set_server_state(state);
        for (path, good) in [("live", live), ("ready", ready)] {
            let response = server.get(&format!("/v2/health/{path}"));
            assert_eq!((response.status, response.text()), (if good { 200 } else { 400 }, ""), "{state:?} {path}");
        }
    }
}

/// Bytes in a body that a server with wrong framing would parse as a request.
const SMUGGLED: &[u8] = b"GET /v2/models/smuggled HTTP/1.1\r\nHost: x\r\n\r\n";

/// Sends `request` and expects a single response with `status`, then the end of the connection.
#[track_caller]
fn one_answer_then_closed(server: &Server, request: &[u8], status: u16, text: &str) {
    let mut client = server.connect();
    let mut io = client.io.try_clone().unwrap();
    let sent = request.to_vec();
    let writer = std::thread::spawn(move || {
        let _ = io.write_all(&sent);
        io
    });
    let response = client.response();
    assert_eq!((response.status, response.header("Connection")), (status, Some("close")), "{}", response.text());
    assert!(response.text().contains(text), "{}", response.text());
    let _ = writer.join().unwrap().shutdown(std::net::Shutdown::Write);
    let mut rest = Vec::new();
    let _ = std::io::Read::read_to_end(&mut client.io, &mut rest);
    assert_eq!(String::from_utf8_lossy(&rest), "", "a second answer");
}

/// A chunked request whose second chunk exceeds `bytes_max` and contains a request.
fn passes_limit(method: &str, path: &str, bytes_max: usize) -> Vec<u8> {
    let mut all = format!("{method} {path} HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n").into_bytes();
    all.extend(format!("{bytes_max:x}\r\n").into_bytes());
    all.extend(std::iter::repeat_n(b' ', bytes_max));
    all.extend_from_slice(b"\r\n");
    // A decoder that restarts after the size line would read a last chunk, and then a request.
    let chunk = [b"0\r\n\r\n", SMUGGLED].concat();
    all.extend(format!("{:x}\r\n", chunk.len()).into_bytes());
    all.extend(chunk);
    all.extend_from_slice(b"\r\n0\r\n\r\n");
    all
}

#[test]
fn a_chunked_body_beyond_its_limit_gets_one_response_and_is_not_parsed_as_a_request() {
    let server = Server::with(|engine, _, _| engine.http_input_bytes_max = 3_000_000);
    let mib = 1024 * 1024;
    one_answer_then_closed(&server, &passes_limit("GET", "/v2/health/live", mib), 400, "must not have a body");
    for path in ["/v2/repository/index", "/v2/logging", "/v2/models/id/generate"] {
        one_answer_then_closed(
            &server,
            &passes_limit("POST", path, 3_000_000),
            400,
            "exceeds the maximum allowed input",
        );
    }
    // A body that is discarded is decoded in the same way.
    for (method, path, status) in [("PUT", "/v2", 405), ("HEAD", "/v2/health/live", 405), ("POST", "/nope", 404)] {
        let mut client = server.connect();
        let _ = client.io.write_all(&passes_limit(method, path, mib));
        let mut text = String::new();
        let _ = client.io.shutdown(std::net::Shutdown::Write);
        let _ = std::io::Read::read_to_string(&mut client.io, &mut text);
        assert!(text.starts_with(&format!("HTTP/1.1 {status} ")) && text.contains("Connection: close"), "{text}");
        assert_eq!((text.matches("HTTP/1.1").count(), text.contains("smuggled")), (1, false), "{text}");
    }
    // The announced size alone exceeds the limit of an inference, 2 GiB.
    let mut huge =
        format!("POST {INFER} HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n80000000\r\n").into_bytes();
    huge.extend([b"0\r\n\r\n", SMUGGLED].concat());
    one_answer_then_closed(&server, &huge, 400, "Unable to parse Content-Length, value is out of range");
}

#[test]
fn a_framing_error_gets_one_response_and_ends_the_connection() {
    let server = Server::start();
    let chunked = format!("POST {INFER} HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n");
    for (body, text) in [
        ("3\rx\r\nabc\r\n0\r\n\r\n", "malformed chunk line"),
        ("3;a=\rb\r\nabc\r\n0\r\n\r\n", "malformed chunk line"),
        ("3\nabc\r\n0\r\n\r\n", "malformed chunk line"),
        ("3\r\nabcd\r\n0\r\n\r\n", "malformed chunk"),
        ("-3\r\nabc\r\n0\r\n\r\n", "malformed chunk size"),
        ("0x3\r\nabc\r\n0\r\n\r\n", "malformed chunk size"),
        ("0\r\nA: b\rC: d\r\n\r\n", "malformed chunk line"),
    ] {
        let all = [chunked.as_bytes(), body.as_bytes(), SMUGGLED].concat();
        one_answer_then_closed(&server, &all, 400, text);
    }
    for (head, text) in [
        ("POST /v2 HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n", "differing Content-Length"),
        ("POST /v2 HTTP/1.1\r\nHost: x\r\nContent-Length: 5, 6\r\n\r\n", "Unable to parse Content-Length, got: 5, 6"),
        ("POST /v2 HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip, chunked\r\n\r\n", "unsupported Transfer-Encoding"),
        ("POST /v2 HTTP/1.1\r\nHost: x\r\nTransfer-Encoding : chunked\r\n\r\n", "malformed header name"),
        ("POST /v2 HTTP/1.1\r\nHost: x\r\n Transfer-Encoding: chunked\r\n\r\n", "malformed header name"),
        ("POST /v2 HTTP/1.1\r\nHost: x\r\nA: b\nTransfer-Encoding: chunked\r\n\r\n", "bare line feed"),
        ("POST /v2 HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n", "unsupported Transfer-Encoding"),
        ("GET /v2/health/live HTTP/1.1\r\n\r\n", "missing Host header field"),
        ("GET /v2/health/live HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n", "more than one Host header field"),
        ("GET /v2/health/live HTTP/1.1\r\nHost: a/b\r\n\r\n", "invalid Host header field: 'a/b'"),
        ("GET http://u@h/v2/health/live HTTP/1.1\r\nHost: h\r\n\r\n", "malformed request target"),
    ] {
        one_answer_then_closed(&server, &[head.as_bytes(), SMUGGLED].concat(), 400, text);
    }
    for (target, status) in [
        ("http://h/v2/health/live", 200),
        ("HTTP://h:80/v2/health/live?x", 200),
        ("http://h?/v2/health/live", 404),
        ("http://h", 404),
    ] {
        assert_eq!(server.get(target).status, status, "{target}");
    }
}

#[test]
fn chunked_overrides_a_length_and_the_connection_ends() {
    let server = Server::start();
    let body = infer_json(&[1, 2, 3]);
    for (first, second) in
        [("Content-Length: 3", "Transfer-Encoding: chunked"), ("Transfer-Encoding: chunked", "Content-Length: 99999")]
    {
        let head = format!("POST {INFER} HTTP/1.1\r\nHost: x\r\n{first}\r\n{second}\r\n\r\n");
        let all = [format!("{head}{:x}\r\n{body}\r\n0\r\n\r\n", body.len()).as_bytes(), SMUGGLED].concat();
        one_answer_then_closed(&server, &all, 200, ANSWER);
    }
}

#[test]
fn a_body_for_a_rejected_operation_is_never_parsed_as_a_request() {
    let server = Server::start();
    let length = SMUGGLED.len();
    for (head, status, closes) in [
        (format!("POST /nope HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n\r\n"), 404, false),
        (format!("PUT /v2 HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n\r\n"), 405, false),
        (format!("GET /v2/health/live HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n\r\n"), 200, false),
        // The client got no `100 Continue`, and may or may not send the body.
        (
            format!("POST /nope HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: {length}\r\n\r\n"),
            404,
            true,
        ),
        ("POST /nope HTTP/1.1\r\nHost: x\r\nContent-Length: 1048577\r\n\r\n".into(), 404, true),
        (format!("GET /v2 HTTP/1.0\r\nContent-Length: {length}\r\n\r\n"), 200, true),
    ] {
        let mut client = server.connect();
        client.send(&[head.as_bytes(), SMUGGLED].concat());
        let response = client.response();
        assert_eq!((response.status, response.header("Connection")), (status, closes.then_some("close")), "{head:?}");
        if !closes {
            client.send(b"\r\nGET /v2/models/id/ready HTTP/1.1\r\nHost: x\r\n\r\n");
            assert_eq!(client.response().status, 200, "the next answer is the next request's: {head:?}");
        }
        client.io.shutdown(std::net::Shutdown::Write).unwrap();
        assert!(client.is_closed(), "{head:?}");
    }
}

#[test]
fn a_client_that_sends_a_rejected_body_to_its_end_can_read_the_error() {
    let server = Server::with(|engine, _, _| engine.http_input_bytes_max = 2000);
    let mut client = server.connect();
    client.send(b"POST /v2/logging HTTP/1.1\r\nHost: x\r\nContent-Length: 16777216\r\n\r\n");
    client.send(&vec![b' '; 16 << 20]);
    let response = client.response();
    assert_eq!((response.status, response.header("Connection")), (400, Some("close")));
    client.io.shutdown(std::net::Shutdown::Write).unwrap();
    assert!(client.is_closed());
}

/// Sends a head without its body. Returns status, `Connection` header and body of the response.
fn answer_without_body(server: &Server, head: &str) -> (u16, Option<String>, String) {
    let mut client = server.connect();
    client.io.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    client.send(head.as_bytes());
    let response = client.response();
    (response.status, response.header("Connection").map(str::to_owned), response.text().to_owned())
}

/// The check of the head before the body is read finds no error.
#[test]
fn a_packed_body_in_chunks_is_read_and_unpacked() {
    use flate2::{Compression, write::GzEncoder};
    let server = Server::start();
    let mut packer = GzEncoder::new(Vec::new(), Compression::fast());
    packer.write_all(infer_json(&[1]).as_bytes()).unwrap();
    let packed = packer.finish().unwrap();
    let mut client = server.connect();
    let head = "Host: x\r\nContent-Encoding: gzip\r\nTransfer-Encoding: chunked";
    client.send(format!("POST {INFER} HTTP/1.1\r\n{head}\r\n\r\n{:x}\r\n", packed.len()).as_bytes());
    client.send(&[&packed[..], b"\r\n0\r\n\r\n"].concat());
    let response = client.response();
    assert_eq!(response.status, 200, "{}", response.text());
}

#[test]
fn a_request_with_a_wrong_head_is_answered_before_its_body_arrives() {
    let server = Server::start();
    let unknown = "Request for unknown model: 'nope' is not found";
    let close = Some("close".to_owned());
    for (target, headers, status, closes, text) in [
        // Two gigabytes for a model that does not exist.
        ("/v2/models/nope/infer", "Content-Length: 2000000000", 404, true, unknown),
        ("/v2/models/nope/infer", "Transfer-Encoding: chunked", 404, true, unknown),
        ("/v2/models/nope/infer", "Expect: 100-continue\r\nContent-Length: 5", 404, true, unknown),
        ("/v2/models/nope/generate", "Content-Length: 60000000", 404, true, unknown),
        ("/v2/models/nope/generate_stream", "Content-Length: 60000000", 404, true, unknown),
        (INFER, "Content-Length: 2000000000\r\nContent-Encoding: br", 501, true, "Unsupported compression type"),
        ("/v2/models/id/generate", "Content-Length: 60000000\r\nContent-Encoding: gzip", 400, true, "only 'identity'"),
        // A small rest of the body is read after the response.
        ("/nope", "Content-Length: 1000000", 404, false, "Not Found"),
        ("/nope", "Content-Length: 2000000", 404, true, "Not Found"),
        ("/nope", "Transfer-Encoding: chunked", 404, true, "Not Found"),
    ] {
        let head = format!("POST {target} HTTP/1.1\r\nHost: x\r\n{headers}\r\n\r\n");
        let (found, connection, said) = answer_without_body(&server, &head);
        assert_eq!((found, connection), (status, close.clone().filter(|_| closes)), "{head}");
        assert!(said.contains(text), "{head}: {said}");
    }
    // The rest of the body follows the response, and then a request.
    let mut client = server.connect();
    client.send(b"POST /nope HTTP/1.1\r\nHost: x\r\nContent-Length: 300000\r\n\r\nbegun");
    assert_eq!(client.response().status, 404);
    client.send(&vec![b' '; 299_995]);
    client.send(b"GET /v2/models/id/ready HTTP/1.1\r\nHost: x\r\n\r\n");
    assert_eq!(client.response().status, 200);
    // A chunked body that was received completely needs no further bytes.
    client.send(
        b"POST /v2/models/nope/infer HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
    );
    assert_eq!(client.response().status, 404);
    client.send(b"GET /v2/models/id/ready HTTP/1.1\r\nHost: x\r\n\r\n");
    assert_eq!(client.response().status, 200);
}

#[test]
fn over_http2_too_a_request_with_a_wrong_head_is_answered_before_its_body_arrives() {
    let server = Server::start();
    common::client(async {
        let io = tokio::net::TcpStream::connect(("127.0.0.1", server.http)).await.unwrap();
        let (mut client, connection) = h2::client::handshake(io).await.unwrap();
        let driver = tokio::spawn(connection);
        for length in [None, Some("2000000000")] {
            let mut request = http::Request::post("http://x/v2/models/nope/infer");
            if let Some(length) = length {
                request = request.header("content-length", length);
            }
            let (response, _body) = client.send_request(request.body(()).unwrap(), false).unwrap();
            let response = tokio::time::timeout(Duration::from_secs(10), response).await.expect("an answer").unwrap();
            assert_eq!(response.status(), 404, "{length:?}");
        }
        driver.abort();
    });
}

#[test]
fn idle_connections_and_incomplete_heads_are_closed_for_new_ones_busy_ones_not() {
    let server = Server::with_room(16);
    let mut busy = server.connect();
    busy.send(&post("/v2/models/slow/infer", "", infer_json(&[1]).as_bytes()));
    server.probe.wait_started(1);
    let mut pooled = server.connect();
    pooled.send(b"GET /v2/health/live HTTP/1.1\r\nHost: x\r\n\r\n");
    assert_eq!(pooled.response().status, 200);
    let mut silent = Vec::new();
    for i in 0..200 {
        let mut client = server.connect();
        if i % 2 == 0 {
            client.send(b"GET /v2/health/live HTTP/1.1\r\nHo");
        }
        silent.push(client);
        if i % 50 == 0 {
            assert_eq!(server.get("/v2/health/live").status, 200, "after {i}");
        }
    }
    assert_eq!(server.get("/v2/health/ready").status, 200);
    common::client(async {
        let mut grpc = common::Grpc::connect(&server).await;
        let request = protocol::pb::inference::ServerLiveRequest {};
        let live = grpc.unary::<protocol::pb::inference::ServerLiveResponse>("ServerLive", &request).await;
        assert!(live.unwrap().live, "the other front end has its share");
    });
    let running = server.running.as_ref().unwrap();
    assert!(running.connections() <= 17, "{} connections", running.connections());
    // Connections without a request are closed first, the oldest before the others.
    pooled.send(b"GET /v2/health/live HTTP/1.1\r\nHost: x\r\n\r\n");
    assert_eq!(pooled.response().status, 200, "the connection of a client that was answered before");
    silent[0].io.set_nonblocking(false).unwrap();
    assert!(silent[0].is_closed(), "the oldest that waited");
    let newest = silent.last_mut().unwrap();
    newest.send(b"GET /v2/health/live HTTP/1.1\r\nHost: x\r\n\r\n");
    assert_eq!(newest.response().status, 200);
    server.probe.open();
    assert_eq!(busy.response().status, 200, "an inference is no idle connection");
    let gauge = |name: &str| running.gauges().iter().find(|g| g.0 == name).unwrap().2;
    assert_eq!(gauge("nereid_connections_max"), 16);
    assert!(gauge("nereid_connections_closed_idle") > 150);
}
