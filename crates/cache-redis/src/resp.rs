//! The protocol of Redis (RESP2) on one connection: replies come in the order of their commands.
//!
//! Redis is not trusted: a line has at most [`LINE_BYTES_MAX`], a value at most [`ENTRY_BYTES_MAX`] + 1 bytes. The
//! connection ends after a longer one, or after a reply that no command waits for.

use crate::limits::ENTRY_BYTES_MAX;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::io;
use std::task::{Context, Poll, Waker};
use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;

/// Byte limit of a status, a number, an error, or the head of a value.
const LINE_BYTES_MAX: u64 = 4096;
const END: &[u8] = b"\r\n";
const FLOOD: &str = "it sends more than was requested";

/// Redis's answer to one command.
#[derive(Debug, PartialEq)]
pub(crate) enum Reply {
    Value(Vec<u8>),
    /// A status, a number, or a value that does not exist.
    Other,
    /// An error with its text: `NOAUTH Authentication required.`
    Error(String),
}

struct Sent {
    command: Vec<u8>,
    reply: oneshot::Sender<Reply>,
}

/// Sends commands on a connection while its driver runs.
#[derive(Clone)]
pub(crate) struct Commands(UnboundedSender<Sent>);

impl Commands {
    /// `None` if the connection ends before the reply. The caller limits the number of commands in flight.
    pub(crate) async fn ask(&self, words: &[&[u8]]) -> Option<Reply> {
        let (reply, replied) = oneshot::channel();
        self.0.send(Sent { command: encode(words), reply }).ok()?;
        replied.await.ok()
    }
}

fn encode(words: &[&[u8]]) -> Vec<u8> {
    let mut command = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        command.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        command.extend_from_slice(word);
        command.extend_from_slice(END);
    }
    command
}

/// Returns a connection's commands, and its driver, which resolves with the reason when the connection ends.
pub(crate) fn open(stream: TcpStream) -> (Commands, impl Future<Output = String> + Send) {
    let (sender, commands) = unbounded_channel();
    (Commands(sender), async move {
        let Err(why) = drive(stream, commands).await;
        match why.kind() {
            io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => {
                "the connection was closed".to_owned()
            }
            _ => why.to_string(),
        }
    })
}

enum Never {}

async fn drive(stream: TcpStream, mut commands: UnboundedReceiver<Sent>) -> io::Result<Never> {
    let (reading, mut writing) = stream.into_split();
    let waiting = Mutex::new(VecDeque::new());
    let send = async {
        while let Some(Sent { command, reply }) = commands.recv().await {
            waiting.lock().push_back(reply);
            writing.write_all(&command).await?;
        }
        // Nobody can send anything more; the owner drops the driver.
        std::future::pending().await
    };
    let receive = async {
        let mut reading = BufReader::new(reading);
        loop {
            let reply = read(&mut reading).await?;
            let asked: Option<oneshot::Sender<Reply>> = waiting.lock().pop_front();
            // The sender of the command may have stopped waiting.
            _ = asked.ok_or_else(|| io::Error::other(FLOOD))?.send(reply);
        }
    };
    tokio::select! { ended = send => ended, ended = receive => ended }
}

async fn read(reading: &mut (impl AsyncBufRead + Unpin)) -> io::Result<Reply> {
    let line = read_line(reading).await?;
    let broken = || io::Error::other("it does not speak the protocol of Redis");
    let (kind, text) = line.split_first().ok_or_else(broken)?;
    match kind {
        b'+' | b':' => Ok(Reply::Other),
        b'-' => Ok(Reply::Error(String::from_utf8_lossy(text).into_owned())),
        b'$' if text == b"-1" => Ok(Reply::Other),
        b'$' => {
            let length =
                std::str::from_utf8(text).ok().and_then(|text| text.parse::<usize>().ok()).ok_or_else(broken)?;
            if length > ENTRY_BYTES_MAX + 1 {
                return Err(io::Error::other(FLOOD));
            }
            let mut value = Vec::new();
            // Grows with what arrives: an announced length costs nothing.
            reading.take((length + END.len()) as u64).read_to_end(&mut value).await?;
            if value.len() < length + END.len() {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            if value.split_off(length) != END { Err(broken()) } else { Ok(Reply::Value(value)) }
        }
        _ => Err(broken()),
    }
}

async fn read_line(reading: &mut (impl AsyncBufRead + Unpin)) -> io::Result<Vec<u8>> {
    let mut line = Vec::new();
    reading.take(LINE_BYTES_MAX).read_until(b'\n', &mut line).await?;
    if line.ends_with(END) {
        line.truncate(line.len() - END.len());
        return Ok(line);
    }
    let is_long = line.len() as u64 == LINE_BYTES_MAX;
    Err(if is_long { io::Error::other(FLOOD) } else { io::ErrorKind::UnexpectedEof.into() })
}

/// Reads replies from pieces of at most `piece` bytes, for the fuzz target: values, and why it stopped.
#[doc(hidden)]
pub fn replies_in(bytes: &[u8], piece: usize) -> (Vec<Option<Vec<u8>>>, String) {
    let mut reading = BufReader::with_capacity(piece, bytes);
    let mut values = Vec::new();
    loop {
        let reading = std::pin::pin!(read(&mut reading));
        match reading.poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(Ok(Reply::Value(value))) => values.push(Some(value)),
            Poll::Ready(Ok(_)) => values.push(None),
            Poll::Ready(Err(why)) => return (values, why.to_string()),
            Poll::Pending => return (values, "memory is always ready".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(sent: &[u8], expected: Result<&[Reply], &str>) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("has no threads");
        let mut left = sent;
        let mut replies = Vec::new();
        let ended = loop {
            match runtime.block_on(read(&mut left)) {
                Ok(_) if left.is_empty() && replies.len() > 8 => unreachable!("a reply without bytes"),
                Ok(reply) => replies.push(reply),
                Err(e) => break e,
            }
        };
        match expected {
            Ok(expected) => {
                assert_eq!(replies, expected, "{}", sent.escape_ascii());
                assert_eq!(ended.kind(), io::ErrorKind::UnexpectedEof);
            }
            Err(expected) => assert_eq!(ended.to_string(), expected, "{}", sent.escape_ascii()),
        }
    }

    #[test]
    fn replies_are_read_one_by_one() {
        let value = |text: &[u8]| Reply::Value(text.to_vec());
        check(b"+OK\r\n:7\r\n$-1\r\n", Ok(&[Reply::Other, Reply::Other, Reply::Other]));
        check(b"$0\r\n\r\n$4\r\na\r\nb\r\n", Ok(&[value(b""), value(b"a\r\nb")]));
        check(b"-NOAUTH Authentication required.\r\n", Ok(&[Reply::Error("NOAUTH Authentication required.".into())]));
    }

    #[test]
    fn a_reply_that_is_cut_has_no_value() {
        for sent in [&b""[..], b"+", b"+OK\r", b"$4", b"$4\r\nab", b"$2\r\nab", b"$2\r\nab\r"] {
            check(sent, Ok(&[]));
        }
    }

    #[test]
    fn other_bytes_end_the_connection() {
        let broken = Err("it does not speak the protocol of Redis");
        for sent in
            [&b"\r\n"[..], b"HTTP/1.1 400\r\n", b"*1\r\n", b"$x\r\n", b"$-2\r\n", b"$\r\n", b"$1\r\nabc", b"$\xff\r\n"]
        {
            check(sent, broken);
        }
    }

    #[test]
    fn a_longer_line_or_value_than_any_reply_has_ends_the_connection() {
        check(format!("${}\r\n", ENTRY_BYTES_MAX + 2).as_bytes(), Err(FLOOD));
        check(b"$18446744073709551615\r\n", Err(FLOOD));
        check(&[b'+'; 5000], Err(FLOOD));
    }

    #[test]
    fn a_command_is_its_words_with_their_lengths() {
        assert_eq!(encode(&[b"SET", b"k", b"\r\n"]), b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$2\r\n\r\n\r\n");
    }
}
