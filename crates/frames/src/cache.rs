//! Messages between the server and the process of a response cache, over a stream socket. For both sides.
//!
//! | message | layout |
//! |---|---|
//! | request | operation (u8), number (u64), bytes of the key (u32) and of the contents (u64), key, contents |
//! | answer | number (u64) of its request, status (u8), bytes of the contents (u64), contents |
//!
//! Little-endian. The first request configures the cache; its contents are the settings as JSON. Operations with equal
//! keys run in their order. When the server closes the socket, the process finalizes the cache and ends.
//!
//! Whatever the other side sends, a read allocates at most in proportion to what came.

use std::io::{self, Read};

/// Longest key in bytes.
pub const KEY_BYTES_MAX: u32 = 4096;
/// Longest contents in bytes.
pub const CONTENTS_BYTES_MAX: u64 = 1 << 30;

/// Kind of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum CacheOperation {
    Configure = 0,
    LookUp = 1,
    Insert = 2,
}

/// End of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CacheStatus {
    /// The contents of an answer to `LookUp` are what was found.
    Done = 0,
    /// There is no entry with this key.
    NotFound = 1,
    /// There is an entry with this key already.
    Exists = 2,
    /// The contents are the text of the error.
    Failed = 3,
}

/// A request of the server.
#[derive(Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct CacheRequest {
    pub operation: CacheOperation,
    /// Number that the answer repeats.
    pub id: u64,
    pub key: Vec<u8>,
    pub contents: Vec<u8>,
}

/// An answer of the process.
#[derive(Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct CacheAnswer {
    pub id: u64,
    pub status: CacheStatus,
    pub contents: Vec<u8>,
}

/// Encodes a request.
pub fn write_request(operation: CacheOperation, id: u64, key: &str, contents: &[u8]) -> Vec<u8> {
    let mut bytes = vec![operation as u8];
    bytes.extend_from_slice(&id.to_le_bytes());
    bytes.extend_from_slice(&(key.len() as u32).to_le_bytes());
    bytes.extend_from_slice(&(contents.len() as u64).to_le_bytes());
    bytes.extend_from_slice(key.as_bytes());
    bytes.extend_from_slice(contents);
    bytes
}

/// Reads the next request; `None` at the end of the stream.
///
/// # Errors
/// Errors of the stream, an end inside a request, an unknown operation, and lengths above the limits.
pub fn read_request(from: &mut impl Read) -> io::Result<Option<CacheRequest>> {
    let mut operation = [0];
    if from.read(&mut operation)? == 0 {
        return Ok(None);
    }
    let operation = match operation {
        [0] => CacheOperation::Configure,
        [1] => CacheOperation::LookUp,
        [2] => CacheOperation::Insert,
        _ => return Err(io::ErrorKind::InvalidData.into()),
    };
    let id = u64::from_le_bytes(array(from)?);
    let key_bytes = u32::from_le_bytes(array(from)?);
    let contents_bytes = u64::from_le_bytes(array(from)?);
    let key = part(from, key_bytes.into(), KEY_BYTES_MAX.into())?;
    let contents = part(from, contents_bytes, CONTENTS_BYTES_MAX)?;
    Ok(Some(CacheRequest { operation, id, key, contents }))
}

/// Encodes an answer.
pub fn write_answer(id: u64, status: CacheStatus, contents: &[u8]) -> Vec<u8> {
    let mut bytes = id.to_le_bytes().to_vec();
    bytes.push(status as u8);
    bytes.extend_from_slice(&(contents.len() as u64).to_le_bytes());
    bytes.extend_from_slice(contents);
    bytes
}

/// Reads the next answer.
///
/// # Errors
/// Errors of the stream, its end, an unknown status, and contents above the limit.
pub fn read_answer(from: &mut impl Read) -> io::Result<CacheAnswer> {
    let id = u64::from_le_bytes(array(from)?);
    let status = match array(from)? {
        [0] => CacheStatus::Done,
        [1] => CacheStatus::NotFound,
        [2] => CacheStatus::Exists,
        [3] => CacheStatus::Failed,
        _ => return Err(io::ErrorKind::InvalidData.into()),
    };
    let bytes = u64::from_le_bytes(array(from)?);
    Ok(CacheAnswer { id, status, contents: part(from, bytes, CONTENTS_BYTES_MAX)? })
}

fn array<const N: usize>(from: &mut impl Read) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    from.read_exact(&mut bytes)?;
    Ok(bytes)
}

/// Reads so many bytes. The memory grows with what comes.
fn part(from: &mut impl Read, bytes: u64, most: u64) -> io::Result<Vec<u8>> {
    if bytes > most {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut all = Vec::new();
    if from.take(bytes).read_to_end(&mut all)? as u64 != bytes {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_read_as_they_were_written() {
        let mut sent = write_request(CacheOperation::Configure, 0, "", b"{}");
        sent.extend(write_request(CacheOperation::Insert, 7, "key", &[1; 70_000]));
        let from = &mut &sent[..];
        let first = read_request(from).unwrap().unwrap();
        assert_eq!((first.operation, &first.contents[..]), (CacheOperation::Configure, &b"{}"[..]));
        let second = read_request(from).unwrap().unwrap();
        assert_eq!((second.id, &second.key[..], second.contents.len()), (7, &b"key"[..], 70_000));
        assert_eq!(read_request(from).unwrap(), None);

        let answers =
            [write_answer(7, CacheStatus::Exists, b""), write_answer(8, CacheStatus::Done, b"found")].concat();
        let from = &mut &answers[..];
        assert_eq!(read_answer(from).unwrap().status, CacheStatus::Exists);
        assert_eq!(read_answer(from).unwrap().contents, b"found");
        assert_eq!(read_answer(from).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    }

    #[test]
    fn lengths_above_the_limits_and_unknown_numbers_are_refused() {
        let kind = |result: io::Result<()>| result.unwrap_err().kind();
        let mut long = write_request(CacheOperation::LookUp, 1, "k", b"");
        long[9..13].copy_from_slice(&(KEY_BYTES_MAX + 1).to_le_bytes());
        assert_eq!(kind(read_request(&mut &long[..]).map(drop)), io::ErrorKind::InvalidData);
        let mut long = write_answer(1, CacheStatus::Done, b"");
        long[9..17].copy_from_slice(&(CONTENTS_BYTES_MAX + 1).to_le_bytes());
        assert_eq!(kind(read_answer(&mut &long[..]).map(drop)), io::ErrorKind::InvalidData);
        // A length that is allowed and never comes costs no memory.
        long[9..17].copy_from_slice(&CONTENTS_BYTES_MAX.to_le_bytes());
        assert_eq!(kind(read_answer(&mut &long[..]).map(drop)), io::ErrorKind::UnexpectedEof);
        assert_eq!(kind(read_request(&mut &[3; 30][..]).map(drop)), io::ErrorKind::InvalidData);
        assert_eq!(kind(read_answer(&mut &[4; 30][..]).map(drop)), io::ErrorKind::InvalidData);
    }
}
