//! Decodes the frames that the server sends to a runner. The server is trusted more than a runner, but a frame is read
//! with the same care: a damaged one is an error and never a panic.

use super::read::{self, AnswerRef, RequestRef};
use super::reader::{Ids, ProtocolError, Reader};
use crate::generated::{
    CallId, ExecuteHead, FRAME_BYTES_MAX, Frame, Header, IsReadyResult, Question, REQUESTS_MAX, Segment,
};
use smallvec::SmallVec;

/// A batch.
#[derive(Debug, Clone, PartialEq)]
pub struct ExecuteRef<'a> {
    /// Number of the batch.
    pub batch: u64,
    /// Response blocks that the server returns.
    pub releases: Ids<'a>,
    /// Requests in the order of their responses.
    pub requests: SmallVec<[RequestRef<'a>; 1]>,
}

/// A frame of the server.
#[derive(Debug, Clone, PartialEq)]
#[allow(missing_docs)]
pub enum ToRunner<'a> {
    Load(&'a str),
    Unload,
    Execute(ExecuteRef<'a>),
    CallResponse {
        call: u64,
        answer: AnswerRef<'a>,
    },
    ControlResult(&'a str),
    Segment(Segment),
    Release(Ids<'a>),
    IsReady(u64),
    Ping(u64),
    /// A frame about devices.
    Device,
}

/// Splits the first frame off the received bytes. `None` if the frame is incomplete.
///
/// # Errors
/// If the frame is longer than any frame may be.
pub fn split_request(received: &[u8]) -> Result<Option<read::Split<'_>>, ProtocolError> {
    let Some((head, rest)) = received.split_first_chunk() else { return Ok(None) };
    let header = Header::read(head);
    if u64::from(header.length) > FRAME_BYTES_MAX {
        return Err(ProtocolError("a frame is too long"));
    }
    Ok(rest.split_at_checked(header.length as usize).map(|(body, rest)| (header, body, rest)))
}

/// Decodes a complete frame.
///
/// # Errors
/// If the frame breaks the protocol.
pub fn read_request<'a>(header: &Header, body: &'a [u8]) -> Result<ToRunner<'a>, ProtocolError> {
    let mut from = Reader::new(body);
    let frame = match Frame::from_number(header.frame.into()) {
        Some(Frame::Load) => return Ok(ToRunner::Load(from.rest()?)),
        Some(Frame::ControlResult) => return Ok(ToRunner::ControlResult(from.rest()?)),
        Some(Frame::CloseHandle) => return Ok(ToRunner::Device),
        Some(Frame::Unload) => ToRunner::Unload,
        Some(Frame::Execute) => {
            let head = ExecuteHead::read(from.head()?);
            let releases = from.ids(head.releases)?;
            if u64::from(header.count) > REQUESTS_MAX {
                return Err(ProtocolError("a batch has too many requests"));
            }
            let requests = (0..header.count).map(|_| read::request(&mut from)).collect::<Result<_, _>>()?;
            ToRunner::Execute(ExecuteRef { batch: head.batch, releases, requests })
        }
        Some(Frame::CallResponse) => {
            let call = CallId::read(from.head()?).call;
            ToRunner::CallResponse { call, answer: read::answer(&mut from)? }
        }
        Some(Frame::Segment) => ToRunner::Segment(Segment::read(from.head()?)),
        Some(Frame::Release) => ToRunner::Release(from.ids(header.count.into())?),
        Some(Frame::IsReady) => ToRunner::IsReady(Question::read(from.head()?).question),
        Some(Frame::Ping) => ToRunner::Ping(Question::read(from.head()?).question),
        _ => return Err(ProtocolError("a frame that only a runner sends, or of an unknown kind")),
    };
    from.end()?;
    Ok(frame)
}

/// IS_READY_RESULT.
pub fn is_ready_result(to: &mut Vec<u8>, about: super::InstanceId, question: u64, is_ready: bool) {
    super::write::header(to, about, Frame::IsReadyResult, IsReadyResult::BYTES, 0);
    IsReadyResult { question, is_ready: u8::from(is_ready) }.write(to);
}
