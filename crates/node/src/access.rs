//! Keys of a server, and keys files for commands.

use crate::core::NativeCore;
use crate::failure::{Result, thrown};
use crate::json::Json;
use napi_derive::napi;
use options::IssuerOptions;
use tensor::Error;

/// Reads a keys file as a server does; throws its first mistake and where it is.
#[napi]
pub fn check_keys(text: String) -> Result<()> {
    access::Keys::parse(text.as_bytes(), None).map(drop).map_err(|e| thrown(&Error::invalid(e.to_string())))
}

#[napi]
impl NativeCore {
    /// Requires a key of this file for requests on both ports. The file is read again when it changes. Call it before
    /// `bind`. Throws INVALID_ARG with the file, the line, the field and the mistake.
    #[napi]
    pub fn open_keys(
        &self,
        file: String,
        #[napi(ts_arg_type = "IssuerOptions | null")] issuer: Json<Option<IssuerOptions>>,
    ) -> Result<()> {
        self.server.open_keys(file.as_ref(), issuer.0).map_err(|e| thrown(&e))
    }

    /// True if HTTP requests with this method and path need a key at present. A name in braces stands for a model that
    /// only scopes for any model include.
    #[napi]
    pub fn needs_key(&self, method: String, path: String) -> bool {
        self.server.keys().is_some_and(|ring| !frontend::is_open_to_all(&ring, &method, &path))
    }

    /// Replaces the keys of the issuer, a JWK set; returns the number of keys that can verify tokens. Throws
    /// INVALID_ARG for anything else; the previous keys stay.
    #[napi]
    pub fn set_issuer_keys(&self, text: String) -> Result<u32> {
        let Some(ring) = self.server.keys() else { return Ok(0) };
        let count = ring.replace_issuer_keys(text.as_bytes()).map_err(|why| thrown(&Error::invalid(why)))?;
        Ok(u32::try_from(count).unwrap_or(u32::MAX))
    }

    /// True if a token named an unknown key of the issuer since the last call.
    #[napi]
    pub fn misses_issuer_key(&self) -> bool {
        self.server.keys().is_some_and(|ring| ring.access().take_misses_key())
    }
}
