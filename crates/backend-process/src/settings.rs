//! Settings of runners that all backends with runners share: `--backend-config=<backend>,<key>=<value>`.

use crate::spec::{RunnerLimits, SharedMemory};
use memory::Budget;
use parking_lot::Mutex;
use std::collections::HashSet;
use std::path::{Component, Path};
use std::time::Duration;
use tensor::{Error, Result};

/// Triton's least `shm-default-byte-size`; its text names another value.
const SEGMENT_BYTES_MIN: i64 = 1024 * 1024;
const SEGMENT_BYTES_DEFAULT: u64 = 1024 * 1024;
/// Default limit of the segments of one instance in each direction, unless the budget of all requests is smaller.
const ARENA_BYTES_MAX_DEFAULT: u64 = 2 * 1024 * 1024 * 1024;
/// More than any machine's memory, but far from overflow in offsets and sums.
const BYTES_MAX: i64 = 1 << 40;
/// A week.
const SECONDS_MAX: i64 = 7 * 24 * 3600;
const START_TIMEOUT_DEFAULT: Duration = Duration::from_secs(30);
const EXIT_GRACE_DEFAULT: Duration = Duration::from_secs(30);
const OUTPUT_BYTES_PER_SECOND_DEFAULT: u32 = 64 * 1024;

impl Default for RunnerLimits {
    fn default() -> Self {
        Self {
            shared_memory: SharedMemory::Tensors,
            device_inputs: false,
            segment_bytes: SEGMENT_BYTES_DEFAULT,
            growth_bytes: SEGMENT_BYTES_DEFAULT,
            arena_bytes_max: ARENA_BYTES_MAX_DEFAULT.min(Budget::global().limit() as u64).max(SEGMENT_BYTES_DEFAULT),
            start_timeout: START_TIMEOUT_DEFAULT,
            exit_grace: EXIT_GRACE_DEFAULT,
            execute_timeout: None,
            memory_bytes_max: None,
            restart: true,
            restart_wait: Duration::ZERO,
            new_privileges: false,
            output_bytes_per_second: OUTPUT_BYTES_PER_SECOND_DEFAULT,
        }
    }
}

impl RunnerLimits {
    /// Reads a key; returns false if it is unknown.
    ///
    /// # Errors
    /// INVALID_ARG for an invalid value.
    pub fn apply(&mut self, key: &str, value: &str) -> Result<bool> {
        match key {
            "shm" => {
                self.shared_memory = if switch(key, value)? { SharedMemory::Tensors } else { SharedMemory::None };
            }
            "shm-default-byte-size" => {
                self.segment_bytes = bytes_at_least(key, value, SEGMENT_BYTES_MIN, "smaller than 4 MiBs")?;
            }
            "shm-growth-byte-size" => {
                self.growth_bytes = bytes_at_least(key, value, 1, "smaller than or equal to zero.")?
            }
            "shm-max-byte-size" => {
                self.arena_bytes_max = bytes_at_least(key, value, SEGMENT_BYTES_MIN, "smaller than 1 MiB")?
            }
            "exit-grace-seconds" => self.exit_grace = seconds(at_least(key, value, 0, "smaller than zero.")?),
            "execute-timeout-ms" => {
                let ms = at_least(key, value, 0, "smaller than zero.")?.min(SECONDS_MAX as u64 * 1000);
                self.execute_timeout = (ms > 0).then(|| Duration::from_millis(ms));
            }
            "memory-limit-bytes" => {
                let bytes = bytes_at_least(key, value, 0, "smaller than zero.")?;
                self.memory_bytes_max = (bytes > 0).then_some(bytes);
            }
            "restart" => self.restart = switch(key, value)?,
            "output-bytes-per-second" => {
                let bytes = bytes_at_least(key, value, 1, "smaller than or equal to zero.")?;
                self.output_bytes_per_second = u32::try_from(bytes).unwrap_or(u32::MAX);
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Checks that the limits fit each other, and rounds.
    ///
    /// # Errors
    /// INVALID_ARG if they do not.
    pub fn checked(&mut self) -> Result<()> {
        if self.segment_bytes > self.arena_bytes_max {
            return Err(Error::invalid(format!(
                "shm-default-byte-size {} is more than shm-max-byte-size {}",
                self.segment_bytes, self.arena_bytes_max
            )));
        }
        self.growth_bytes = self.growth_bytes.max(SEGMENT_BYTES_DEFAULT);
        Ok(())
    }
}

/// A setting of a backend with runners.
#[derive(Debug, Clone, Copy)]
pub struct Setting<'a> {
    /// Without the prefix of a model's parameters.
    pub key: &'a str,
    /// Text after the `=`, or the parameter's string.
    pub value: &'a str,
    /// True on the command line; false in a configuration, which may come over the network.
    pub from_server: bool,
}

/// Passes the backend's settings to `apply`, then those parameters of a model that begin with `prefix`: the last value
/// of a key applies. `apply` returns false for an unknown key; these are returned.
///
/// # Errors
/// The first error of `apply`.
pub fn read_settings<'a>(
    settings: &'a [(String, String)],
    parameters: impl Iterator<Item = (&'a str, &'a str)>,
    prefix: &str,
    mut apply: impl FnMut(Setting<'_>) -> Result<bool>,
) -> Result<Vec<String>> {
    let mut unknown = Vec::new();
    for (key, value) in settings {
        if !apply(Setting { key, value, from_server: true })? && !COMMON_KEYS.contains(&key.as_str()) {
            unknown.push(key.clone());
        }
    }
    for (key, value) in parameters {
        let Some(own) = key.strip_prefix(prefix) else { continue };
        if !apply(Setting { key: own, value, from_server: false })? {
            unknown.push(key.to_owned());
        }
    }
    Ok(unknown)
}

/// Warns of unknown keys, once for each.
#[derive(Default)]
pub struct UnknownKeys(Mutex<HashSet<String>>);

impl UnknownKeys {
    /// `backend` as in `the Python backend`.
    pub fn warn(&self, keys: &[String], backend: &str, model: &str) {
        let mut warned = self.0.lock();
        for key in keys {
            if warned.insert(key.clone()) {
                log::warn!("'{key}' is not a setting of the {backend} backend, and has no effect (model '{model}')");
            }
        }
    }
}

/// True if a model's file is in its version's directory: a configuration from the network may not name others
/// (B-SEC-05).
pub fn is_inside(file: &str) -> bool {
    let mut parts = Path::new(file).components();
    parts.all(|c| matches!(c, Component::Normal(_) | Component::CurDir)) && !file.contains('\0')
}

/// Keys of `--backend-config` that every backend has and runners ignore.
const COMMON_KEYS: [&str; 4] =
    ["default-max-batch-size", "min-compute-capability", "auto-complete-config", "backend-directory"];

/// A number of seconds, at most a week.
pub fn seconds(n: u64) -> Duration {
    Duration::from_secs(n.min(SECONDS_MAX as u64))
}

/// Parses a number of at least `least`.
///
/// # Errors
/// INVALID_ARG: `KEY can't be OTHERWISE`.
pub fn at_least(key: &str, value: &str, least: i64, otherwise: &str) -> Result<u64> {
    let number = stol(value)?;
    if number < least {
        return Err(Error::invalid(format!("{key} can't be {otherwise}")));
    }
    Ok(number.min(BYTES_MAX).unsigned_abs())
}

/// Like `at_least` for a number of bytes, whose unit may follow: `2g`, `512MiB`.
///
/// # Errors
/// INVALID_ARG: `KEY can't be OTHERWISE`.
pub fn bytes_at_least(key: &str, value: &str, least: i64, otherwise: &str) -> Result<u64> {
    let unit = value.trim().trim_start_matches(|c: char| c == '-' || c == '+' || c.is_ascii_digit()).trim();
    let power = match unit.to_ascii_lowercase().trim_end_matches('b').trim_end_matches('i') {
        "k" => 1,
        "m" => 2,
        "g" => 3,
        "t" => 4,
        _ => 0,
    };
    let times = 1024_i64.pow(power);
    at_least(key, &stol(value)?.saturating_mul(times).to_string(), least, otherwise)
}

/// Parses like C++'s `std::stol`, whose message is its name.
///
/// # Errors
/// INVALID_ARG without leading digits.
pub fn stol(value: &str) -> Result<i64> {
    let rest = value.trim_start_matches([' ', '\t', '\n', '\r', '\x0b', '\x0c']);
    let digits = rest.strip_prefix(['-', '+']).unwrap_or(rest);
    let length = digits.bytes().take_while(u8::is_ascii_digit).count();
    let sign = rest.len() - digits.len();
    rest.get(..sign + length).and_then(|number| number.parse().ok()).ok_or_else(|| Error::invalid("stol"))
}

/// Parses `on` and `off`.
///
/// # Errors
/// INVALID_ARG for another word.
pub fn switch(key: &str, value: &str) -> Result<bool> {
    match value {
        "on" | "true" | "1" => Ok(true),
        "off" | "false" | "0" => Ok(false),
        _ => Err(Error::invalid(format!("{key} must be 'on' or 'off', not '{value}'."))),
    }
}
