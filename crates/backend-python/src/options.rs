//! Limits of a model's processes: `--backend-config=python,<key>=<value>` and the parameters `nereid.python.<key>`.
//!
//! Triton's keys are parsed with its texts (B-PY-30), as C++'s `stol` does: leading digits are enough, and a value
//! without any fails with that function's name. The last value applies; a model's parameter overrides the backend's
//! setting.

use backend_process::{OutputTarget, RunnerLimits, Setting, at_least, read_settings, seconds, stol, switch};
use std::path::{Path, PathBuf};
use tensor::{Error, Result};

/// Prefix of keys in a model's parameters.
pub(crate) const PARAMETER_PREFIX: &str = "nereid.python.";

/// Settings of the backend and parameters of a model.
#[derive(Debug, Clone)]
pub(crate) struct Options {
    pub(crate) limits: RunnerLimits,
    pub(crate) output: OutputTarget,
    /// `python-executable`: from the command line only, because a configuration may come over the network.
    pub(crate) interpreter: Option<PathBuf>,
    /// `environment-root`: locations of environments outside the repository (B-SEC-05); from the command line only.
    pub(crate) environment_roots: Vec<PathBuf>,
    /// `inline-control`: descriptor of the socket to the program that started the server and runs functions itself.
    pub(crate) inline_control: Option<i32>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            limits: RunnerLimits::default(),
            output: OutputTarget::Lines,
            interpreter: None,
            environment_roots: Vec::new(),
            inline_control: None,
        }
    }
}

impl Options {
    /// Reads the backend's settings, then the model's parameters. The second value lists unknown keys.
    ///
    /// # Errors
    /// INVALID_ARG for an invalid value.
    pub(crate) fn read<'a>(
        settings: &'a [(String, String)],
        parameters: impl Iterator<Item = (&'a str, &'a str)>,
    ) -> Result<(Self, Vec<String>)> {
        let mut options = Self::default();
        let unknown = read_settings(settings, parameters, PARAMETER_PREFIX, |Setting { key, value, from_server }| {
            Ok(from_server && options.apply_server_key(key, value)? || options.apply(key, value)?)
        })?;
        options.limits.checked()?;
        Ok((options, unknown))
    }

    /// Reads a key that only the command line may set; returns false for other keys.
    fn apply_server_key(&mut self, key: &str, value: &str) -> Result<bool> {
        match key {
            "python-executable" => self.interpreter = Some(PathBuf::from(value)),
            "environment-root" => {
                self.environment_roots = value.split(':').filter(|p| !p.is_empty()).map(PathBuf::from).collect();
            }
            "inline-control" => self.inline_control = value.parse().ok(),
            "new-privileges" => self.limits.new_privileges = switch(key, value)?,
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Reads a key; returns false if it is unknown.
    fn apply(&mut self, key: &str, value: &str) -> Result<bool> {
        if self.limits.apply(key, value)? {
            return Ok(true);
        }
        match key {
            "stub-timeout-seconds" => {
                self.limits.start_timeout = seconds(at_least(key, value, 1, "smaller than or equal to zero.")?);
            }
            "output" => {
                self.output = match value {
                    "raw" => OutputTarget::Raw,
                    "lines" => OutputTarget::Lines,
                    _ => return Err(Error::invalid(format!("{key} must be 'lines' or 'raw', not '{value}'."))),
                }
            }
            // Segments have no names here, and there are no queues or thread pools. Invalid values are still rejected.
            "shm-region-prefix-name" => {}
            "shm_message_queue_size" => drop(stol(value)?),
            "thread-pool-size" => drop(at_least(key, value, 1, "less than 1.")?),
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Allowed locations of environments: `roots` and the configured ones.
    pub(crate) fn with_roots<'a>(&'a self, roots: &'a [PathBuf]) -> impl Iterator<Item = &'a Path> {
        self.environment_roots.iter().chain(roots).map(PathBuf::as_path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn read(settings: &[(&str, &str)], parameters: &[(&str, &str)]) -> Result<(Options, Vec<String>)> {
        let settings: Vec<_> = settings.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        Options::read(&settings, parameters.iter().copied())
    }

    #[test]
    fn b_py_30_invalid_values_fail_with_the_recorded_texts() {
        let check = |key: &str, value: &str, text: &str| {
            let error = read(&[(key, value)], &[]).map(|_| ()).unwrap_err();
            assert_eq!(error, Error::invalid(text.to_owned()), "{key}={value}");
        };
        check("shm-default-byte-size", "abc", "stol");
        check("shm-default-byte-size", "1024", "shm-default-byte-size can't be smaller than 4 MiBs");
        check("shm-growth-byte-size", "0", "shm-growth-byte-size can't be smaller than or equal to zero.");
        check("shm-growth-byte-size", "-1", "shm-growth-byte-size can't be smaller than or equal to zero.");
        check("stub-timeout-seconds", "0", "stub-timeout-seconds can't be smaller than or equal to zero.");
        check("stub-timeout-seconds", "x", "stol");
        check("thread-pool-size", "0", "thread-pool-size can't be less than 1.");
        check("shm_message_queue_size", "x", "stol");
        check("shm_message_queue_size", "99999999999999999999", "stol");
        check("output", "loud", "output must be 'lines' or 'raw', not 'loud'.");
    }

    #[test]
    fn b_py_30_leading_digits_are_enough_and_unknown_keys_are_listed() {
        let (options, unknown) = read(
            &[
                ("shm-growth-byte-size", "1x"),
                ("shm-default-byte-size", "16777216"),
                ("no-such-option", "1"),
                ("default-max-batch-size", "7"),
            ],
            &[("nereid.python.nothing", "1"), ("mine", "1")],
        )
        .unwrap();
        assert_eq!(options.limits.segment_bytes, 16 << 20);
        assert_eq!(options.limits.growth_bytes, 1 << 20, "rounded up");
        assert_eq!(unknown, ["no-such-option", "nereid.python.nothing"]);
    }

    #[test]
    fn b_sec_09_a_models_limits_override_the_backends() {
        let (options, _) = read(
            &[("memory-limit-bytes", "1000000"), ("execute-timeout-ms", "5000"), ("restart", "off")],
            &[("nereid.python.memory-limit-bytes", "2000000"), ("nereid.python.execute-timeout-ms", "0")],
        )
        .unwrap();
        assert_eq!(options.limits.memory_bytes_max, Some(2_000_000));
        assert_eq!(options.limits.execute_timeout, None);
        assert!(!options.limits.restart);
    }

    #[test]
    fn b_sec_05_a_configuration_cannot_choose_programs_or_locations() {
        let (options, unknown) = read(
            &[("python-executable", "/usr/bin/python3"), ("environment-root", "/a:/b")],
            &[
                ("nereid.python.python-executable", "/tmp/evil"),
                ("nereid.python.environment-root", "/"),
                ("nereid.python.new-privileges", "on"),
            ],
        )
        .unwrap();
        assert_eq!(options.interpreter.as_deref(), Some(Path::new("/usr/bin/python3")));
        assert_eq!(options.environment_roots, [Path::new("/a"), Path::new("/b")]);
        assert_eq!((options.limits.new_privileges, unknown.len()), (false, 3));
    }

    #[test]
    fn large_numbers_do_not_overflow() {
        let (options, _) =
            read(&[("shm-max-byte-size", "9223372036854775807"), ("stub-timeout-seconds", "9223372036854775807")], &[])
                .unwrap();
        assert_eq!(options.limits.arena_bytes_max, 1 << 40);
        assert_eq!(options.limits.start_timeout, Duration::from_secs(7 * 24 * 3600));
    }
}
