//! Backends that need no framework: identity.
