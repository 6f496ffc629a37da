//! Over loopback with the `h2` crate as the client, an independent implementation of the same RFCs.
#![allow(missing_docs)]

use bytes::{Bytes, BytesMut};
use h2::client::{Builder, SendRequest};
use http2::{Collect, Connection, Field, Options, Request, StreamWriter, Times};
use std::future::{Future, poll_fn};
use std::task::Poll;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{LocalSet, spawn_local};

const FIXED: &[(&str, &str)] = &[("content-type", "application/grpc"), ("grpc-status", "0")];

struct Target {
    bytes: Vec<u8>,
    at: usize,
}

impl Collect for Target {
    fn spare(&mut self) -> &mut [u8] {
        let end = (self.at + 77_777).min(self.bytes.len());
        &mut self.bytes[self.at..end]
    }

    fn filled(&mut self, n: usize) {
        self.at += n;
    }

    fn missing(&self) -> usize {
        self.bytes.len() - self.at
    }

    fn into_bytes(self: Box<Self>) -> Bytes {
        self.bytes.into()
    }
}

/// Echoes the request piece by piece, as far as the client takes it.
async fn echo(mut request: Request, mut respond: StreamWriter) {
    let path = String::from_utf8_lossy(request.head.path()).into_owned();
    let length = request.head.content_length().unwrap_or_default().to_string();
    let fields =
        [Field::Fixed(0), Field::Literal("x-path", path.as_bytes()), Field::Literal("x-length", length.as_bytes())];
    if path == "/early" {
        let _ = respond.send_head(404, &fields, true);
        return;
    }
    if respond.send_head(200, &fields, false).is_err() {
        return;
    }
    if let Some(length) = path.strip_prefix("/collect/") {
        // The first bytes into a target of their own, in parts of an odd size; then the others.
        let target = Target { bytes: vec![0; length.parse().unwrap()], at: 0 };
        request.body.collect(Box::new(target));
        match poll_fn(|cx| request.body.poll_collected(cx)).await {
            Some(Ok(collected)) => respond.send_data(collected, false).unwrap(),
            Some(Err(_)) => return,
            None => respond.send_data(Bytes::from_static(b"too short"), false).unwrap(),
        }
    }
    if path == "/wait" {
        poll_fn(|cx| respond.poll_reset(cx)).await;
        return;
    }
    if path == "/large" {
        let _ = respond.send_data(pattern(3 << 20), false);
        let _ = respond.send_trailers(&[Field::Fixed(1)]);
        return;
    }
    while let Some(piece) = poll_fn(|cx| request.body.poll_data(cx)).await {
        let Ok(mut piece) = piece else { return };
        request.body.release(piece.len());
        while !piece.is_empty() {
            let Some(room) = poll_fn(|cx| respond.poll_capacity(cx)).await else { return };
            let part = piece.split_to(room.min(piece.len()));
            if respond.send_data(part, false).is_err() {
                return;
            }
        }
    }
    let _ = respond.send_trailers(&[Field::Fixed(1), Field::Literal("x-end", b"yes")]);
}

async fn serve(io: TcpStream, options: Options, drain_after: Option<u32>) {
    let mut connection = Connection::new(io, BytesMut::new(), options);
    let mut count = 0;
    poll_fn(|cx| {
        loop {
            match connection.poll_accept(cx) {
                Poll::Ready(Some((request, respond))) => {
                    spawn_local(echo(request, respond));
                    count += 1;
                    if Some(count) == drain_after {
                        connection.drain();
                    }
                }
                Poll::Ready(None) => return Poll::Ready(()),
                Poll::Pending => return Poll::Pending,
            }
        }
    })
    .await;
}

fn options() -> Options {
    Options { fixed: FIXED, ..Options::default() }
}

fn run(work: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let work = async { tokio::time::timeout(Duration::from_secs(60), work).await.expect("too slow") };
    LocalSet::new().block_on(&runtime, work);
}

async fn socket(options: Options, drain_after: Option<u32>) -> TcpStream {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    spawn_local(async move {
        let (io, _) = listener.accept().await.unwrap();
        serve(io, options, drain_after).await;
    });
    TcpStream::connect(address).await.unwrap()
}

/// A client, and how its connection ended.
async fn client(
    options: Options,
    builder: &Builder,
    drain_after: Option<u32>,
) -> (SendRequest<Bytes>, tokio::task::JoinHandle<Result<(), h2::Error>>) {
    let io = socket(options, drain_after).await;
    let (send, connection) = builder.handshake(io).await.unwrap();
    (send, spawn_local(connection))
}

fn pattern(n: usize) -> Bytes {
    (0..n).map(|i| (i * 31 + i / 251) as u8).collect()
}

fn request(path: &str) -> http::Request<()> {
    http::Request::post(format!("http://test{path}")).header("te", "trailers").body(()).unwrap()
}

async fn send_all(send: &mut h2::SendStream<Bytes>, mut body: Bytes, ends: bool) {
    while !body.is_empty() {
        send.reserve_capacity(body.len());
        let Some(Ok(room)) = poll_fn(|cx| send.poll_capacity(cx)).await else { panic!("no room") };
        let part = body.split_to(room.min(body.len()));
        let last = body.is_empty() && ends;
        send.send_data(part, last).unwrap();
    }
}

async fn receive_all(mut body: h2::RecvStream) -> (Bytes, Option<http::HeaderMap>) {
    let mut all = BytesMut::new();
    while let Some(piece) = body.data().await {
        let piece = piece.unwrap();
        body.flow_control().release_capacity(piece.len()).unwrap();
        all.extend_from_slice(&piece);
    }
    (all.freeze(), body.trailers().await.unwrap())
}

async fn call(client: &SendRequest<Bytes>, path: &str, body: Bytes) {
    let mut client = client.clone().ready().await.unwrap();
    let (response, mut send) = client.send_request(request(path), false).unwrap();
    let sending = async {
        send_all(&mut send, body.clone(), false).await;
        send.send_data(Bytes::new(), true).unwrap();
    };
    let receiving = async {
        let response = response.await.unwrap();
        assert_eq!((response.status().as_u16(), response.headers()["x-path"].as_bytes()), (200, path.as_bytes()));
        assert_eq!(response.headers()["content-type"], "application/grpc");
        receive_all(response.into_body()).await
    };
    let ((), (answer, trailers)) = tokio::join!(sending, receiving);
    assert!(answer == body, "{} of {} bytes", answer.len(), body.len());
    let trailers = trailers.unwrap();
    assert_eq!((trailers["grpc-status"].as_bytes(), trailers["x-end"].as_bytes()), (&b"0"[..], &b"yes"[..]));
}

#[test]
fn many_streams_at_once_with_bodies_of_every_size() {
    run(async {
        let (client, _) = client(options(), &Builder::new(), None).await;
        let sizes = [0, 1, 100, 5000, 16_384, 16_385, 100_000, 3, 70_000];
        let calls: Vec<_> = (0..600)
            .map(|n| {
                let client = client.clone();
                spawn_local(async move { call(&client, &format!("/{}", n % 7), pattern(sizes[n % sizes.len()])).await })
            })
            .collect();
        for call in calls {
            call.await.unwrap();
        }
    });
}

#[test]
fn tiny_windows_on_both_sides_lose_nothing() {
    run(async {
        let mut builder = Builder::new();
        builder.initial_window_size(100).initial_connection_window_size(65_535).max_frame_size(16_384);
        let server = Options { stream_window: 65_535, connection_window: 65_535, ..options() };
        let (client, _) = client(server, &builder, None).await;
        let calls: Vec<_> = (0..5)
            .map(|_| {
                let client = client.clone();
                spawn_local(async move { call(&client, "/tiny", pattern(200_000)).await })
            })
            .collect();
        for call in calls {
            call.await.unwrap();
        }
    });
}

#[test]
fn large_bodies_both_ways_with_large_windows_and_frames() {
    run(async {
        let mut builder = Builder::new();
        builder.initial_window_size(8 << 20).initial_connection_window_size(16 << 20).max_frame_size(1 << 20);
        let server = Options {
            stream_window: 4 << 20,
            connection_window: 8 << 20,
            frame_bytes_max: 1 << 20,
            send_buffer_bytes_max: 4 << 20,
            ..options()
        };
        let (client, _) = client(server, &builder, None).await;
        call(&client, "/a", pattern(20 << 20)).await;
        call(&client, "/b", pattern(1)).await;
    });
}

#[test]
fn a_client_without_a_header_table_works() {
    for size in [0, 64, 4096, 65_536] {
        run(async move {
            let mut builder = Builder::new();
            builder.header_table_size(size);
            let (client, _) = client(options(), &builder, None).await;
            for n in 0..5 {
                call(&client, "/table", pattern(n)).await;
            }
        });
    }
}

#[test]
fn resets_reach_the_other_side_both_ways() {
    run(async {
        let (client, _) = client(options(), &Builder::new(), None).await;
        for n in 0..50 {
            let mut ready = client.clone().ready().await.unwrap();
            let (response, mut send) = ready.send_request(request("/wait"), false).unwrap();
            let response = response.await.unwrap();
            send.send_reset(h2::Reason::CANCEL);
            drop(response);
            call(&client, "/after", pattern(n)).await;
        }
        // Answered before the body came: the client is told to stop, with NO_ERROR.
        let mut ready = client.clone().ready().await.unwrap();
        let (response, mut send) = ready.send_request(request("/early"), false).unwrap();
        assert_eq!(response.await.unwrap().status().as_u16(), 404);
        assert_eq!(poll_fn(|cx| send.poll_reset(cx)).await.unwrap(), h2::Reason::NO_ERROR);
        call(&client, "/after", pattern(10)).await;
    });
}

#[test]
fn trailers_of_a_request_end_it_and_a_wrong_length_resets_it() {
    run(async {
        let (client, _) = client(options(), &Builder::new(), None).await;
        let mut ready = client.clone().ready().await.unwrap();
        let (response, mut send) = ready.send_request(request("/trailers"), false).unwrap();
        send.send_data(Bytes::from_static(b"body"), false).unwrap();
        send.send_trailers(http::HeaderMap::from_iter([(http::header::ETAG, "x".parse().unwrap())])).unwrap();
        assert_eq!(&receive_all(response.await.unwrap().into_body()).await.0[..], b"body");
        let mut ready = client.clone().ready().await.unwrap();
        let announced = http::Request::post("http://test/short").header("content-length", 10).body(()).unwrap();
        let (response, mut send) = ready.send_request(announced, false).unwrap();
        let mut body = response.await.unwrap().into_body();
        send.send_data(Bytes::from_static(b"body"), true).unwrap();
        let mut seen = body.data().await;
        while let Some(Ok(_)) = seen {
            seen = body.data().await;
        }
        assert_eq!(seen.unwrap().unwrap_err().reason(), Some(h2::Reason::PROTOCOL_ERROR));
    });
}

#[test]
fn draining_finishes_calls_under_way_and_closes() {
    run(async {
        let (client, ended) = client(options(), &Builder::new(), Some(3)).await;
        let calls: Vec<_> = (0..3)
            .map(|_| {
                let client = client.clone();
                spawn_local(async move { call(&client, "/leave", pattern(300_000)).await })
            })
            .collect();
        for call in calls {
            call.await.unwrap();
        }
        assert!(ended.await.unwrap().is_ok(), "an orderly end");
    });
}

#[test]
fn a_response_that_is_not_read_holds_at_most_its_window() {
    run(async {
        let mut builder = Builder::new();
        builder.initial_window_size(1 << 20).initial_connection_window_size(2 << 20);
        let (client, _) = client(options(), &builder, None).await;
        let mut ready = client.clone().ready().await.unwrap();
        let (response, _send) = ready.send_request(request("/large"), true).unwrap();
        let response = response.await.unwrap();
        // Other streams are served meanwhile.
        for n in 0..20 {
            call(&client, "/others", pattern(n * 1000)).await;
        }
        assert!(receive_all(response.into_body()).await.0 == pattern(3 << 20));
    });
}

#[test]
fn pings_are_answered() {
    run(async {
        let io = socket(options(), None).await;
        let (_send, mut connection) = Builder::new().handshake::<_, Bytes>(io).await.unwrap();
        let mut pings = connection.ping_pong().unwrap();
        spawn_local(connection);
        for _ in 0..3 {
            pings.ping(h2::Ping::opaque()).await.unwrap();
        }
    });
}

#[test]
fn the_last_frame_is_read_however_much_the_client_still_sends() {
    run(async {
        let mut io = socket(options(), None).await;
        let mut hello = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
        hello.extend_from_slice(&[0, 0, 0, 4, 0, 0, 0, 0, 0]);
        // DATA of no stream, then many more bytes.
        hello.extend_from_slice(&[0, 0, 1, 0, 0, 0, 0, 0, 1, b'x']);
        hello.resize(600_000, 0);
        io.write_all(&hello).await.unwrap();
        io.shutdown().await.unwrap();
        let mut all = Vec::new();
        io.read_to_end(&mut all).await.unwrap();
        let text = String::from_utf8_lossy(&all);
        assert!(text.ends_with("DATA of a stream that is not open"), "{text:?}");
    });
}

/// A client that sends `hello`, then only reads: returns the last bytes it got, and after how long.
async fn silent(hello: &[u8], options: Options) -> (String, Duration) {
    let mut io = socket(options, None).await;
    io.write_all(hello).await.unwrap();
    let start = std::time::Instant::now();
    let mut all = Vec::new();
    let _ = io.read_to_end(&mut all).await;
    (String::from_utf8_lossy(&all).into_owned(), start.elapsed())
}

fn impatient() -> Options {
    let short = Duration::from_millis(200);
    let times = Times {
        handshake: short,
        acknowledgement: 3 * short,
        head: short,
        body: short,
        send: short,
        linger: short,
        ..Times::default()
    };
    Options { times, ..options() }
}

/// Preface, SETTINGS and their acknowledgement, then `frames`: type, flags, stream, payload.
fn hello(frames: &[(u8, u8, u8, &[u8])]) -> Vec<u8> {
    let mut all = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    for (kind, flags, stream, payload) in [&[(4, 0, 0, &[][..]), (4, 1, 0, &[])], frames].concat() {
        let [.., a, b, c] = (payload.len() as u32).to_be_bytes();
        all.extend_from_slice(&[a, b, c, kind, flags, 0, 0, 0, stream]);
        all.extend_from_slice(payload);
    }
    all
}

#[test]
fn clients_that_exceed_a_timeout_are_closed_over_a_socket_too() {
    // `:method: POST`, `:scheme: http`, `:path: /…`
    let post = |path: &str| [&[0x83, 0x86, 0x04, path.len() as u8], path.as_bytes()].concat();
    let (body, large) = (post("/body"), post("/large"));
    let zero = [0, 4, 0, 0, 0, 0];
    let cases = [
        (Vec::new(), "no preface and SETTINGS in time"),
        (b"PRI * HTTP/2".to_vec(), "no preface and SETTINGS in time"),
        (hello(&[])[..33].to_vec(), "SETTINGS were not acknowledged in time"),
        (hello(&[(1, 0, 1, &[0x83])]), "an incomplete frame or header block, without the rest in time"),
        (hello(&[(1, 4, 1, &body), (0, 0, 1, &[1, 2, 3])]), "an incomplete body, without more data in time"),
        (
            [hello(&[(1, 4, 1, &body)]), vec![0, 1, 0, 0, 0, 0, 0, 0, 1, 7]].concat(),
            "an incomplete DATA frame, without the rest in time",
        ),
        (hello(&[(4, 0, 0, &zero), (1, 5, 1, &large)]), "no room for a response in time"),
    ];
    for (bytes, expected) in cases {
        run(async move {
            let (last, time) = silent(&bytes, impatient()).await;
            assert!(last.ends_with(expected), "{last:?} instead of {expected:?}");
            assert!(time >= Duration::from_millis(190) && time < Duration::from_secs(5), "{expected}: {time:?}");
        });
    }
}

#[test]
fn a_client_that_does_not_read_is_closed_and_one_that_is_idle_is_not() {
    run(async {
        let io = socket(impatient(), None).await;
        socket2::SockRef::from(&io).set_recv_buffer_size(4096).unwrap();
        let (read, mut write) = io.into_split();
        let window = 0x7fff_0000u32.to_be_bytes();
        let [a, b, c, d] = window;
        let settings = [0, 4, a, b, c, d];
        let large = [&[0x83, 0x86, 0x04, 6][..], b"/large"].concat();
        write.write_all(&hello(&[(4, 0, 0, &settings), (8, 0, 0, &window)])).await.unwrap();
        // The socket buffers must be full: a few megabytes.
        for n in 0..8 {
            write.write_all(&hello(&[(1, 5, 2 * n + 1, &large)])[42..]).await.unwrap();
        }
        let mut one = [0];
        let closed = tokio::time::timeout(Duration::from_secs(10), async {
            while write.write_all(&hello(&[(6, 1, 0, &[0; 8])])[42..]).await.is_ok() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        });
        closed.await.expect("closed although nothing was read");
        drop((read, write));
        let mut io = socket(impatient(), None).await;
        io.write_all(&hello(&[])).await.unwrap();
        let idle = async { while io.read(&mut one).await.unwrap() > 0 {} };
        assert!(tokio::time::timeout(Duration::from_secs(2), idle).await.is_err(), "an idle connection stays");
    });
}

#[test]
fn an_early_answer_reaches_a_client_that_sends_all_before_it_reads() {
    run(async {
        // More than the stream's window: the client depends on window updates for a body that is dropped.
        let (client, _) = client(options(), &Builder::new(), None).await;
        for _ in 0..5 {
            let mut ready = client.clone().ready().await.unwrap();
            let (response, mut send) = ready.send_request(request("/early"), false).unwrap();
            send_all(&mut send, pattern(5 << 20), true).await;
            assert_eq!(response.await.unwrap().status().as_u16(), 404);
        }
        call(&client, "/after", pattern(10)).await;
    });
}

#[test]
fn collected_bodies_are_unchanged_for_any_frame_size_and_neighbours() {
    for frame in [16_384, 20_000, 1 << 20] {
        run(async move {
            let mut builder = Builder::new();
            builder.initial_window_size(8 << 20).initial_connection_window_size(16 << 20).max_frame_size(frame);
            let server =
                Options { stream_window: 1 << 20, frame_bytes_max: frame, send_buffer_bytes_max: 8 << 20, ..options() };
            let (client, _) = client(server, &builder, None).await;
            call(&client, "/collect/5000000", pattern(5_000_000)).await;
            call(&client, "/collect/100000", pattern(3_000_000)).await;
            call(&client, "/collect/0", pattern(100_000)).await;
            let sizes = [1, 4095, 16_384, 16_385, 300_000, 1_000_000, 70_000];
            let calls: Vec<_> = (0..60)
                .map(|n| {
                    let (client, size) = (client.clone(), sizes[n % sizes.len()]);
                    let path =
                        if n % 5 == 4 { "/echo".into() } else { format!("/collect/{}", size - size / 7 * (n % 2)) };
                    spawn_local(async move { call(&client, &path, pattern(size)).await })
                })
                .collect();
            for call in calls {
                call.await.unwrap();
            }
        });
    }
}

#[test]
fn collecting_an_ended_or_reset_body_returns_so() {
    run(async {
        let (client, _) = client(options(), &Builder::new(), None).await;
        let mut ready = client.clone().ready().await.unwrap();
        let (response, mut send) = ready.send_request(request("/collect/300000"), false).unwrap();
        send_all(&mut send, pattern(200_000), true).await;
        assert_eq!(&receive_all(response.await.unwrap().into_body()).await.0[..], b"too short");
        let (_response, mut send) = ready.send_request(request("/collect/300000"), false).unwrap();
        send_all(&mut send, pattern(200_000), false).await;
        send.send_reset(h2::Reason::CANCEL);
        call(&client, "/after", pattern(10)).await;
    });
}

#[test]
fn a_client_of_another_protocol_is_returned_with_nothing_written() {
    run(async {
        for parts in
            [&[&b"GET / HTTP/1.1\r\n\r\n"[..]][..], &[b"PR", b"OPFIND / HTTP/1.1\r\n\r\n"], &[b"\x16\x03\x01\x02\x00"]]
        {
            let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
            let mut client = tokio::net::TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
            let (io, _) = listener.accept().await.unwrap();
            let mut connection = http2::Connection::new(io, bytes::BytesMut::new(), impatient());
            for part in parts {
                client.write_all(part).await.unwrap();
                // Read before the next part comes, unless that is the last.
                let turn = std::future::poll_fn(|cx| connection.poll_accept(cx));
                let accepted = tokio::time::timeout(Duration::from_millis(100), turn).await;
                assert!(!matches!(accepted, Ok(Some(_))), "{parts:?}");
            }
            let (mut io, read) = connection.into_stray().expect("a stray");
            assert_eq!(read, parts.concat());
            io.write_all(b"first").await.unwrap();
            drop(io);
            let mut answer = Vec::new();
            client.read_to_end(&mut answer).await.unwrap();
            assert_eq!(answer, b"first");
        }
    });
}
