//! Keys files, and the permissions of a key. The first line is the key of a client and, behind a blank, a model's name;
//! the rest is the file.

use ::access::{Access, Act, Ask, Clock, Keys, LastShown, Of, Verb};

struct Still;

impl Clock for Still {
    fn ns(&self) -> u64 {
        0
    }
    fn unix_secs(&self) -> u64 {
        1_800_000_000
    }
}

/// Reads the file, and asks.
///
/// # Panics
/// If a text is accepted and then rejected, if a key may change what it may not read, or if a place of a quota is lost.
pub fn keys_file(data: &[u8]) -> bool {
    let (line, text) = data.split_at(data.iter().position(|&b| b == b'\n').map_or(0, |at| at + 1));
    let line = line.trim_ascii_end();
    let (key, model) = line.split_at(line.iter().position(|&b| b == b' ').unwrap_or(line.len()));
    let keys = match Keys::parse(text, None) {
        Ok(keys) => keys,
        Err(error) => {
            // The message is never empty, and does not repeat the file at length.
            assert!(!error.reason.is_empty() && error.to_string().chars().count() < 1024);
            return false;
        }
    };
    let access = Access::new(keys, None);
    access.replace(text).expect("what was read is read again");
    let model = String::from_utf8_lossy(model.trim_ascii_start()).into_owned();
    let header = |name: &str| (name == "x-api-key" && !key.is_empty()).then_some(key);
    let last = LastShown::default();
    for verb in Verb::ALL {
        for of in [Of::Server, Of::Model(&model), Of::Message] {
            let ask = |act| access.admit(&Ask { verb, act, of }, header, &last, &Still);
            let changes = ask(Act::Write).is_ok();
            let reads = ask(Act::Read);
            // A quota of rates may be used up in between; one of concurrency has its place back.
            let is_used_up = matches!(reads, Err(::access::AuthError::Exhausted { .. }));
            assert!(!changes || reads.is_ok() || is_used_up, "{verb} may be changed and not read");
            if let Ok(admitted) = &reads {
                let _ = access.check(admitted, &Ask { verb, act: Act::Read, of: Of::Model(&model) }, &Still);
            }
        }
    }
    assert!(access.counts().iter().all(|(.., in_flight, _)| *in_flight == 0));
    true
}
