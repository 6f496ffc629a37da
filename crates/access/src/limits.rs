//! Limits of a keys file, a token and a key set.

/// Bytes of a keys file.
pub const FILE_BYTES_MAX: usize = 4 << 20;
/// Keys of a file.
pub const KEYS_MAX: usize = 4096;
/// Scopes of a key, of the anonymous caller or of a rule.
pub const SCOPES_MAX: usize = 64;
/// Patterns of a scope.
pub const MODELS_MAX: usize = 64;
/// Characters of a pattern.
pub const PATTERN_CHARS_MAX: usize = 256;
/// Characters of the name of a key or of a rule.
pub const NAME_CHARS_MAX: usize = 64;
/// Hashes of a key: the old one and the new one while clients change over.
pub const HASHES_MAX: usize = 4;
/// Bytes of a key that a client sends. A longer text is rejected without hashing.
pub const KEY_BYTES_MAX: usize = 512;
/// Bytes of a key or a token that a connection remembers. A longer one is hashed with each request.
pub const SHOWN_KEPT_BYTES_MAX: usize = 2048;
/// Fewest characters of a key that `nereid key --hash` accepts: shorter ones can be guessed.
pub const KEY_CHARS_MIN: usize = 20;
/// Bytes of a model's name that patterns match. A longer name only matches a scope without models.
pub const MODEL_BYTES_MAX: usize = 1024;
/// Largest `concurrency`.
pub const CONCURRENCY_MAX: u32 = 1_000_000;
/// Largest `requests_per_second` and `burst`.
pub const REQUESTS_MAX: f64 = 1_000_000.0;
/// Largest `bytes_per_second`.
pub const BYTES_MAX: u64 = 1_000_000_000_000;
/// Bytes of a token of an issuer. A longer token is rejected without parsing.
pub const TOKEN_BYTES_MAX: usize = 8192;
/// Verified tokens that are remembered.
pub const TOKENS_KEPT_MAX: usize = 4096;
/// Bytes of the set of an issuer's keys.
pub const TOKEN_KEYS_BYTES_MAX: usize = 256 << 10;
/// Keys of an issuer.
pub const TOKEN_KEYS_MAX: usize = 64;
/// Characters of a token's `sub` that logs show.
pub const SUBJECT_CHARS_MAX: usize = 64;
