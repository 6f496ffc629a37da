//! Claims on what all servers of a process share, for settings that only TypeScript knows.

use crate::failure::{Result, thrown};
use crate::objects::SharedSetting;
use napi_derive::napi;
use nereid_core::process::{Claim, SharedSetting as Setting};

/// Claim of a running server on settings of the process. Ends with `release`, or with the thread that made it.
#[napi]
pub struct ProcessClaim(Option<Claim>);

#[napi]
impl ProcessClaim {
    /// Claims `settings` for a server that is about to start. Throws INVALID_ARG if a running one has others.
    #[napi(constructor)]
    pub fn new(settings: Vec<SharedSetting>) -> Result<Self> {
        let of = |SharedSetting { name, value, has, instead }| Setting { name, value, has, instead };
        let claim = Claim::new(settings.into_iter().map(of).collect());
        Ok(Self(Some(claim.map_err(|e| thrown(&e))?)))
    }

    /// Releases the claim, because the server has ended.
    #[napi]
    pub fn release(&mut self) {
        self.0 = None;
    }
}
