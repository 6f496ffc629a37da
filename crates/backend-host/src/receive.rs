//! Reads frames and descriptors from a socket, and sends bytes over one.

use frames::generated::Header;
use frames::split_request;
use rustix::io::retry_on_intr;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendFlags, recvmsg};
use std::collections::VecDeque;
use std::io::{self, IoSliceMut, Read as _};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

/// Descriptors that one message may carry.
const DESCRIPTORS_MAX: usize = 8;
/// Byte before a text that comes instead of descriptors.
const TEXT: u8 = b'E';
/// Longest such text.
const TEXT_BYTES_MAX: u64 = 1 << 20;
/// Bytes per read.
const READ_BYTES: usize = 64 << 10;

/// The receiving half of a socket.
pub(crate) struct Incoming {
    stream: UnixStream,
    /// Received bytes, of which `used` were handled.
    bytes: Vec<u8>,
    used: usize,
    filled: usize,
    descriptors: VecDeque<OwnedFd>,
}

impl Incoming {
    pub(crate) fn new(stream: UnixStream) -> Self {
        Self { stream, bytes: vec![0; READ_BYTES], used: 0, filled: 0, descriptors: VecDeque::new() }
    }

    /// The next frame.
    ///
    /// # Errors
    /// `UnexpectedEof` at the end, or that a frame is too long.
    pub(crate) fn frame(&mut self) -> io::Result<(Header, Vec<u8>)> {
        loop {
            let received = self.bytes.get(self.used..self.filled).unwrap_or_default();
            if let Some((header, body, rest)) = split_request(received).map_err(|breach| io::Error::other(breach.0))? {
                let body = body.to_vec();
                self.used = self.filled - rest.len();
                return Ok((header, body));
            }
            self.make_room();
            let (count, descriptors) = receive(&self.stream, self.bytes.get_mut(self.filled..).unwrap_or_default())?;
            if count == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            self.filled += count;
            self.descriptors.extend(descriptors);
        }
    }

    fn make_room(&mut self) {
        if self.used > 0 {
            self.bytes.copy_within(self.used..self.filled, 0);
            self.filled -= self.used;
            self.used = 0;
        }
        let length =
            self.bytes.get(..4).and_then(|head| head.first_chunk()).map_or(0, |head| u32::from_le_bytes(*head));
        let wanted = if self.filled >= 4 { length as usize + Header::BYTES } else { 0 };
        if self.filled == self.bytes.len() || wanted > self.bytes.len() {
            self.bytes.resize(wanted.max(self.filled + READ_BYTES), 0);
        } else if self.bytes.len() > 4 * READ_BYTES && wanted < READ_BYTES && self.filled < READ_BYTES {
            self.bytes.truncate(READ_BYTES);
            self.bytes.shrink_to_fit();
        }
    }

    /// A descriptor that came with the frames so far.
    pub(crate) fn descriptor(&mut self) -> Option<OwnedFd> {
        self.descriptors.pop_front()
    }

    /// A byte, which must be `number`, with one descriptor, or the text that is sent instead of all of them.
    ///
    /// # Errors
    /// The socket fails, the byte is another, a descriptor is missing, or the text is too long.
    pub(crate) fn handed(&mut self, number: u8) -> io::Result<Handed> {
        match self.byte()? {
            None => Ok(Handed::End),
            Some((TEXT, None)) => {
                let mut text = Vec::new();
                (&self.stream).take(TEXT_BYTES_MAX).read_to_end(&mut text)?;
                Ok(Handed::Text(String::from_utf8_lossy(&text).into_owned()))
            }
            Some((byte, Some(descriptor))) if byte == number => Ok(Handed::Descriptor(descriptor)),
            Some(_) => Err(io::Error::other("a descriptor of another number, or none")),
        }
    }

    fn byte(&mut self) -> io::Result<Option<(u8, Option<OwnedFd>)>> {
        let mut byte = [0];
        let (count, descriptors) = receive(&self.stream, &mut byte)?;
        let [byte] = byte;
        Ok((count > 0).then(|| (byte, descriptors.into_iter().next())))
    }
}

/// Part of a message that hands over a connection.
pub(crate) enum Handed {
    Descriptor(OwnedFd),
    /// Why there are no descriptors.
    Text(String),
    End,
}

/// Sends bytes. A closed socket raises no signal, which would end a program that does not expect it.
///
/// # Errors
/// The socket fails.
pub(crate) fn send(stream: &UnixStream, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        let sent = retry_on_intr(|| rustix::net::send(stream, bytes, SendFlags::NOSIGNAL))?;
        bytes = bytes.get(sent..).unwrap_or_default();
    }
    Ok(())
}

/// Receives bytes and the descriptors beside them.
fn receive(stream: &UnixStream, to: &mut [u8]) -> io::Result<(usize, Vec<OwnedFd>)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut part = [IoSliceMut::new(to)];
    let received = retry_on_intr(|| recvmsg(stream, &mut part, &mut control, RecvFlags::CMSG_CLOEXEC))?;
    let rights = control.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors),
        _ => None,
    });
    Ok((received.bytes, rights.flatten().collect()))
}
