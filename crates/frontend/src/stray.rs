//! Clients at the wrong port. HTTP at the gRPC port and gRPC at the HTTP port get an error that names the right port.
//! TLS at a plain port and plain text at a TLS port are closed, and logged.
//!
//! Valid requests pay nothing for this: it runs once the start of a connection, or a path, is not recognised.

use crate::limits::{LINGER_TIME_MAX, READ_AHEAD_BYTES_MAX, STRAY_LINE_INTERVAL};
use crate::listen::unix_path;
use crate::origin::{Caller, Face, Origin};
use crate::socket::Io;
use parking_lot::Mutex;
use std::net::SocketAddr;
use std::sync::OnceLock;
use std::time::Instant;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

const METHODS: [&[u8]; 7] = [b"GET ", b"POST ", b"HEAD ", b"PUT ", b"DELETE ", b"OPTIONS ", b"PATCH "];

/// Addresses of HTTP and gRPC for error texts: `at port 8000`; `None` = not served.
#[derive(Debug, Default)]
pub struct Places {
    pub http: Option<String>,
    pub grpc: Option<String>,
}

pub fn place(address: &str, port: u16) -> String {
    if unix_path(address).is_some() { format!("at {address}") } else { format!("at port {port}") }
}

/// State of a server about clients at the wrong port.
#[derive(Debug, Default)]
pub struct Strays {
    /// Unset for an embedded server.
    places: OnceLock<Places>,
    /// Lines about TLS at the HTTP port or the control address, and at the gRPC port.
    lines: [Mutex<ThrottledLine>; 2],
    /// Lines about plain text at the same ports.
    plain_lines: [Mutex<ThrottledLine>; 2],
}

/// A log line that is written at most once per [`STRAY_LINE_INTERVAL`].
#[derive(Debug, Default)]
struct ThrottledLine {
    written: Option<Instant>,
    left_out: u64,
}

impl ThrottledLine {
    /// Lines left out since the last one; `None` if this one is left out as well.
    fn take(&mut self, now: Instant) -> Option<u64> {
        if self.written.is_some_and(|at| now.duration_since(at) < STRAY_LINE_INTERVAL) {
            self.left_out += 1;
            return None;
        }
        self.written = Some(now);
        Some(std::mem::take(&mut self.left_out))
    }
}

impl Strays {
    /// Sets the addresses. Called once, before anything is served.
    pub fn set_places(&self, places: Places) {
        let _ = self.places.set(places);
    }

    /// Error text for gRPC at the HTTP port; `None` without ports.
    pub fn at_http(&self) -> Option<String> {
        let place = self.places.get()?.grpc.as_deref();
        Some(format!("this is the HTTP port; gRPC is {}", place.unwrap_or("not served (--allow-grpc)")))
    }

    /// Error text for HTTP at the gRPC port.
    pub fn at_grpc(&self) -> String {
        let Some(places) = self.places.get() else { return "this is the gRPC port".to_owned() };
        format!("this is the gRPC port; HTTP is {}", places.http.as_deref().unwrap_or("not served (--allow-http)"))
    }

    /// Logs TLS at a port that serves plain text, throttled so that an attacker cannot fill the log.
    #[cold]
    pub fn note_tls(&self, caller: &Caller, is_grpc: bool) {
        // TLS cannot be enabled on a Unix socket.
        if caller.origin == Origin::Unix {
            return;
        }
        let [http, grpc] = &self.lines;
        let Some(left_out) = (if is_grpc { grpc } else { http }).lock().take(Instant::now()) else { return };
        let (port, flag) = match (is_grpc, caller.face) {
            (true, _) => ("the gRPC port", "--grpc-use-ssl"),
            (false, Face::Control) => ("the control address", "--http-use-ssl"),
            (false, _) => ("the HTTP port", "--http-use-ssl"),
        };
        let (peer, more) = (shown(caller.peer), since(left_out));
        log::warn!(
            "{peer} uses TLS at {port}, which serves plain text; its connection is closed{more}. {flag}=true serves \
             TLS there"
        );
    }

    /// Logs plain text at a port that serves TLS.
    #[cold]
    pub fn note_plain(&self, peer: Option<SocketAddr>, is_grpc: bool) {
        let [http, grpc] = &self.plain_lines;
        let (line, port) = if is_grpc { (grpc, "the gRPC port") } else { (http, "the HTTP port") };
        let Some(left_out) = line.lock().take(Instant::now()) else { return };
        let (peer, more) = (shown(peer), since(left_out));
        log::warn!(
            "{peer} uses plain text at {port}, which serves TLS; its connection is closed{more}. Clients have to use \
             TLS there: https://, or ssl=True of tritonclient"
        );
    }
}

fn shown(peer: Option<SocketAddr>) -> String {
    peer.map_or_else(|| "a client".to_owned(), |peer| peer.ip().to_canonical().to_string())
}

fn since(left_out: u64) -> String {
    if left_out > 0 { format!(" ({left_out} more since the last such line)") } else { String::new() }
}

/// Whether a connection begins with a TLS handshake record of version 3.
pub fn is_tls(read: &[u8]) -> bool {
    read.starts_with(&[22, 3])
}

/// Whether a connection begins with the name of an HTTP method, or the received part of one.
fn is_http1(read: &[u8]) -> bool {
    let begins = |method: &&[u8]| read.iter().zip(*method).all(|(a, b)| a == b);
    !read.is_empty() && METHODS.iter().any(begins)
}

/// Ends a connection to the gRPC port that began with `read`, which is not HTTP/2.
pub async fn end_at_grpc<S: Io>(io: S, read: &[u8], strays: &Strays, caller: &Caller) {
    if is_tls(read) && !S::IS_ENCRYPTED {
        strays.note_tls(caller, true);
    } else if is_http1(read) {
        end_with(io, &http1_refusal(&strays.at_grpc())).await;
    }
}

/// Ends a connection to a TLS port that began with `read`, which is plain text. `refusal` is the response at the HTTP
/// port; `None` at the gRPC port: after a GOAWAY gRPC clients would reconnect until their deadline.
pub async fn end_at_tls<S: Io>(io: S, read: &[u8], strays: &Strays, refusal: Option<&[u8]>) {
    match refusal {
        Some(refusal) => end_with(io, refusal).await,
        None if is_http1(read) => {
            end_with(io, &http1_refusal(&format!("{}, and this port uses TLS", strays.at_grpc()))).await;
        }
        None => {}
    }
}

fn http1_refusal(text: &str) -> Vec<u8> {
    let length = text.len() + 1;
    format!(
        "HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\nContent-Length: {length}\r\nConnection: close\r\n\
         \r\n{text}\n"
    )
    .into_bytes()
}

/// Writes and closes so that the client can read the response: closing a socket with unread data resets the connection.
async fn end_with<S: Io>(mut io: S, bytes: &[u8]) {
    let work = async {
        io.write_all(bytes).await?;
        io.shutdown().await?;
        let mut rest = [0; 4096];
        let mut left = READ_AHEAD_BYTES_MAX;
        while left > 0 {
            match io.read(&mut rest).await? {
                0 => break,
                n => left = left.saturating_sub(n),
            }
        }
        std::io::Result::Ok(())
    };
    // A client that does not read it misses the error only.
    let _ = timeout(LINGER_TIME_MAX, work).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_written_once_per_interval_with_the_number_left_out() {
        let (mut line, begin) = (ThrottledLine::default(), Instant::now());
        assert_eq!(line.take(begin), Some(0));
        assert_eq!((line.take(begin), line.take(begin + STRAY_LINE_INTERVAL / 2)), (None, None));
        assert_eq!(line.take(begin + STRAY_LINE_INTERVAL), Some(2));
        assert_eq!(line.take(begin + STRAY_LINE_INTERVAL), None);
    }

    #[test]
    fn protocols_are_told_apart_by_their_first_bytes() {
        for read in [&b"GET / HTTP/1.1\r\n"[..], b"G", b"DELE", b"PATCH /v2", b"POST"] {
            assert!(is_http1(read) && !is_tls(read), "{read:?}");
        }
        for read in [&b""[..], b"PRI * HTTP/2.0", b"INVALID", b"get /", &[22, 3, 1], &[0; 9]] {
            assert!(!is_http1(read), "{read:?}");
        }
        assert!(is_tls(&[22, 3, 1, 2, 0]) && !is_tls(&[22]) && !is_tls(&[22, 4]));
    }

    #[test]
    fn error_texts_name_the_port_or_the_file_that_serves_the_protocol() {
        let strays = Strays::default();
        assert_eq!((strays.at_http(), strays.at_grpc().as_str()), (None, "this is the gRPC port"));
        strays.set_places(Places { http: None, grpc: Some(place("unix:/run/n", 0)) });
        assert_eq!(strays.at_http().unwrap(), "this is the HTTP port; gRPC is at unix:/run/n");
        assert_eq!(strays.at_grpc(), "this is the gRPC port; HTTP is not served (--allow-http)");
        assert_eq!(place("0.0.0.0", 8001), "at port 8001");
    }
}
