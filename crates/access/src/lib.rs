//! Access control: keys and tokens, their scopes and quotas.
//!
//! Pure: no socket, no file, no clock, no thread. The caller passes the text of the keys file, the headers of a request
//! and the time, and receives a [`QuotaHold`] that it keeps until the response is written, or an [`AuthError`] to send.
//! Logs and errors never contain a credential: keys are found by their hashes, and errors contain their names.
//!
//! Invariant: a [`Keys`] is complete and checked. A file with an error makes none, so a server keeps its current keys.

mod bucket;
mod file;
mod jwt;
mod keys;
pub mod limits;
mod meter;
mod scope;
mod time;
mod token;

pub use bucket::{Bucket, Rate};
pub use file::FileError;
pub use keys::{Access, Admitted, Ask, AuthError, Clock, Keys, Principal};
pub use meter::{AccessResult, Meter, Part, Quota, QuotaHold, RESULTS};
pub use options::IssuerOptions;
pub use scope::{Act, Of, Scopes, Verb};
pub use token::{HEADERS, Hash, LastShown, presented};
