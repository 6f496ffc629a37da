//! Servers for tests, and a measurement of them.

#![allow(dead_code, reason = "each file of tests uses some of it")]

use bytes::Bytes;
use load::plan::{Plan, Prepared};
use serde_json::Value;
use std::net::{TcpListener, TcpStream};

/// A server that handles each connection with `work`, on a thread of its own; its address.
pub fn serve(work: impl Fn(TcpStream) + Send + Sync + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("binds");
    let address = listener.local_addr().expect("an address").to_string();
    let work = std::sync::Arc::new(work);
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let work = work.clone();
            std::thread::spawn(move || work(stream));
        }
    });
    address
}

/// A plan with one request of so many bytes, at most half a minute.
pub fn plan(bytes: usize) -> Plan {
    let body = Bytes::from((0..bytes).map(|i| i as u8).collect::<Vec<_>>());
    Plan { ring: vec![Prepared { body, ..Prepared::default() }], path: "/p".into(), seconds: 30.0, ..Plan::default() }
}

/// The result of a measurement.
pub fn measure(plan: Plan) -> Value {
    load::run(plan, || false, |_| {}).expect("runs").json()["result"].take()
}

/// Requests, failed ones, and the first failure.
pub fn counts(result: &Value) -> (u64, u64, &str) {
    let number = |name: &str| result[name].as_u64().expect(name);
    (number("requests"), number("errors"), result["failures"][0]["text"].as_str().unwrap_or_default())
}
