//! JSON: a strict reader with the error reasons and offsets that clients know (P 1.14), lazy values, tensor data.
//!
//! Numbers keep their exact text, because a `u64` offset above 2^53 must survive: only callers that want an `f64`
//! convert to it. There is no tree. A [`Value`] is a checked span of the text that is parsed again on access. Bodies
//! mostly consist of `data` arrays, which [`read_tensor`] converts directly to tensor contents and [`write_tensor`]
//! prints.
//!
//! Accepted beyond strict JSON, because clients send it: `NaN`, `Inf`, `Infinity` and their negatives, a byte order
//! mark, a zero byte as the end of the text, invalid UTF-8 inside strings. The first of duplicate keys counts.

mod cursor;
mod digits;
mod print_float;
mod print_integer;
mod printer;
mod read_float;
mod read_integer;
mod runs;
mod tensor_data;
mod value;
mod write;

pub(crate) use cursor::special;
pub use cursor::{Cursor, Number, Reason, SyntaxError, Text};
pub(crate) use printer::Printer;
pub(crate) use tensor_data::{fill, skip_array};
pub use tensor_data::{read_bytes_tensor, read_tensor, write_tensor};
pub(crate) use value::name_of;
pub use value::{Elements, Members, Value};
pub use write::{error_json, escape_into, write_f64, write_string};

/// Nesting of `data` from which on it is rejected (P-073).
pub const DATA_DEPTH_MAX: usize = 100;

/// Number of tries of a test: more in the nightly run.
#[cfg(test)]
fn volume(usual: u32, nightly: u32) -> u32 {
    if std::env::var_os("NEREID_NIGHTLY").is_some() { nightly } else { usual }
}

/// Pseudo-random bits for tests, the same in each run.
#[cfg(test)]
pub(crate) fn random_bits(seed: u64) -> impl FnMut() -> u64 {
    let mut state = seed;
    move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    }
}
