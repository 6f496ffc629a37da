//! Our JSON: a strict reader that fails with the reasons and offsets clients know (P 1.14), lazy values, tensor data without nodes.
//!
//! Numbers keep their exact text: a `u64` offset above 2^53 must survive, so nothing goes through `f64` unless `f64` was asked for.
//! There is no tree. A [`Value`] is a checked span of the text that is read again where a member is wanted; bodies are dominated by
//! `data` arrays, and those are turned straight into tensor bytes by [`read_tensor`] and written from them by [`write_tensor`].
//!
//! Accepted beyond strict JSON, because clients send it: `NaN`, `Inf`, `Infinity` and their negatives, a byte order mark, a zero byte
//! as the end of the text, invalid UTF-8 inside strings. Of duplicate keys the first counts.

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

/// `data` nested this deep or deeper is refused (P-073).
pub const DATA_DEPTH_MAX: usize = 100;

/// How often a test tries: more in the nightly run.
#[cfg(test)]
fn volume(usual: u32, nightly: u32) -> u32 {
    if std::env::var_os("NEREID_NIGHTLY").is_some() { nightly } else { usual }
}

/// Random bits for tests, the same in each run.
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
