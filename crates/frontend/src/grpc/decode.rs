//! Messages of calls other than inference.

use super::status::{Status, code};
use crate::limits::MESSAGE_BYTES_ON_REACTOR_MAX;
use crate::offload;
use bytes::Bytes;
use prost::Message;

/// Reads a message; on another thread if it is long.
pub async fn read_message<T: Send + 'static>(
    message: Bytes,
    work: fn(Bytes) -> Result<T, Status>,
) -> Result<T, Status> {
    let bytes = message.len();
    offload::run_if(bytes > MESSAGE_BYTES_ON_REACTOR_MAX, bytes, move || work(message)).await?
}

/// Decodes a message, which may not be long.
pub fn decode<M: Message + Default>(message: Bytes) -> Result<M, Status> {
    let (bytes, most) = (message.len(), MESSAGE_BYTES_ON_REACTOR_MAX);
    if bytes <= most {
        return decode_long(message);
    }
    let text = format!("a request of {bytes} bytes, more than the maximum of {most} for this call");
    Err(Status::new(code::RESOURCE_EXHAUSTED, text))
}

/// Decodes a message of any length.
pub fn decode_long<M: Message + Default>(message: Bytes) -> Result<M, Status> {
    M::decode(message).map_err(|e| Status::new(code::INTERNAL, format!("failed to parse the request message: {e}")))
}
