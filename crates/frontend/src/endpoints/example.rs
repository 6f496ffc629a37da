//! A new route is a row and a file: this file, the row below and the line `mod example` are all that a route needs.

use crate::access::Category;
use crate::exchange::{Endpoint, HttpAnswer, HttpExchange};
use crate::http::body::RequestBody;
use crate::http::reply::Reply;
use crate::table::facts::Facts;
use crate::table::routes::{RouteRow, post};

/// The row, which tests have behind those of `table::routes`.
pub const ROW: RouteRow = post("/example/{model}", &Example);

/// Answers with the model of the path and the length of the body.
struct Example;

impl Endpoint for Example {
    fn facts(&self) -> &'static Facts {
        const { &Facts::read("example", Category::Inference) }
    }

    fn http<'a>(&'a self, exchange: &'a HttpExchange<'a>, body: RequestBody) -> HttpAnswer<'a> {
        HttpAnswer::Ready(Reply::json(format!(r#"{{"{}":{}}}"#, exchange.names().model, body.len())))
    }
}

#[cfg(test)]
mod tests {
    use crate::embed::{EmbedEvent, Embedded, EmbeddedRequest};
    use crate::{
        Argument, Control, ControlOperation, ControlReply, FrontendOptions, HttpOptions, ListenOptions, serve,
    };
    use bytes::Bytes;
    use engine::{Engine, EngineOptions};
    use std::io::{Read, Write};
    use std::net::TcpStream;
    use std::sync::{Arc, mpsc};

    struct NoControl;

    impl Control for NoControl {
        fn call(&self, operation: ControlOperation, _argument: Argument) -> ControlReply {
            panic!("{operation:?} is not an example");
        }
    }

    #[test]
    fn a_route_is_a_row_and_a_file_whoever_drives_it() {
        let engine = Engine::new(EngineOptions::default(), Vec::new()).unwrap();
        let http = HttpOptions { address: "127.0.0.1".into(), ..HttpOptions::default() };
        let listen = ListenOptions { http: Some(http), reactor_threads: 1, ..ListenOptions::default() };
        let options = FrontendOptions { listen, ..FrontendOptions::default() };
        let running = serve(engine.clone(), Arc::new(NoControl), options).unwrap();
        let mut io = TcpStream::connect(("127.0.0.1", running.http_port)).unwrap();
        let sent = "POST /example/m HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 3\r\n\r\nabc";
        io.write_all(sent.as_bytes()).unwrap();
        let mut received = String::new();
        io.read_to_string(&mut received).unwrap();
        assert!(received.starts_with("HTTP/1.1 200 OK\r\n") && received.ends_with(r#"{"m":3}"#), "{received}");

        let (settle, settled) = mpsc::channel();
        let settle = Arc::new(move |_, event| settle.send(event).unwrap());
        let embedded = Embedded::start(engine, Arc::new(NoControl), FrontendOptions::default(), settle).unwrap();
        let body = Some(Bytes::from_static(b"abc"));
        let request =
            EmbeddedRequest { method: "POST".into(), target: "/example/m".into(), body, ..Default::default() };
        embedded.begin(1, request);
        let EmbedEvent::Reply { status, body, .. } = settled.recv().unwrap().unwrap() else { panic!("no reply") };
        assert_eq!((status, body), (200, vec![Bytes::from_static(br#"{"m":3}"#)]));
    }
}
