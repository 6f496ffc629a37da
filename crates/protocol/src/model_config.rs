//! Decodes the configuration of a model.

use crate::pb::inference::ModelConfig;
use prost::Message;
use tensor::{Error, Result};

impl ModelConfig {
    /// Decodes a configuration that TypeScript has completed. Not generic, so that the decoder of its many messages is
    /// compiled here and not again in each crate that needs it.
    ///
    /// # Errors
    /// INTERNAL if this is no message `ModelConfig`.
    pub fn parse(encoded: &bytes::Bytes) -> Result<Self> {
        let invalid = |e| Error::internal(format!("the encoded configuration of the model cannot be decoded: {e}"));
        Self::decode(encoded.clone()).map_err(invalid)
    }
}
