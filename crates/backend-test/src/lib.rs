//! Backends that need no framework, for trying a server out and testing it: `identity`.

mod config;
mod identity;

pub use identity::IdentityBackend;
