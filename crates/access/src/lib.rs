//! Who may do what, and how much of it: keys and tokens, their scopes, their quotas.
//!
//! Pure: no socket, no file, no clock, no thread. The caller passes the text of the keys file, the headers of a request and the time,
//! and gets a [`Hold`] that it keeps until the answer is written, or a [`Refusal`] to answer with. Nothing here prints, keeps or repeats what
//! a client showed: keys are known by their hashes, and errors name the key by its name.
//!
//! Invariant: a [`Keys`] is complete and checked. One that cannot be read is never made, so a server goes on with the one it has.

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
pub use jwt::Issuer;
pub use keys::{Access, Admitted, Ask, Clock, Keys, Principal, Refusal};
pub use meter::{Hold, Meter, Outcome, Part, Quota, RESULTS};
pub use scope::{Act, Of, Scopes, Verb};
pub use token::{HEADERS, Hash, LastShown, presented};
