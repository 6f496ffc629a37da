//! Settings of a backend, `--backend-config=<backend>,<key>=<value>`. The library gets all of them; some are limits of
//! its process, or of its models. Parameters `nereid.host.<key>` of a model override the latter.

use backend_process::{OutputTarget, RunnerLimits, Setting, at_least, read_settings, seconds, switch};
use std::time::Duration;
use tensor::{Error, Result};

/// Prefix of keys in a model's parameters.
pub(crate) const PARAMETER_PREFIX: &str = "nereid.host.";

/// Keys that concern the process, so a model, whose configuration may come over the network, cannot set them.
const OF_PROCESS: [&str; 4] = ["memory-limit-bytes", "new-privileges", "output", "output-bytes-per-second"];

/// Keys whose limits end the process, so a model cannot set them if other models share the process.
const OF_SHARED_PROCESS: [&str; 3] = ["execute-timeout-ms", "exit-grace-seconds", "start-timeout-seconds"];

/// Time that requests of a model wait for a new process after a crash, which another model of the library may have
/// caused.
const RESTART_WAIT: Duration = Duration::from_secs(1);

/// Settings of a backend and parameters of a model.
#[derive(Debug, Clone)]
pub(crate) struct HostSettings {
    pub(crate) limits: RunnerLimits,
    pub(crate) output: OutputTarget,
    /// The process serves all models of the library.
    is_shared: bool,
}

impl Default for HostSettings {
    fn default() -> Self {
        let limits = RunnerLimits { restart_wait: RESTART_WAIT, ..RunnerLimits::default() };
        Self { limits, output: OutputTarget::Lines, is_shared: false }
    }
}

impl HostSettings {
    /// Reads the backend's settings, then the model's parameters. Unknown settings are the library's own; unknown
    /// parameters are returned, as are those that a model in a shared process cannot set.
    ///
    /// # Errors
    /// INVALID_ARG for an invalid value.
    pub(crate) fn read<'a>(
        settings: &'a [(String, String)],
        parameters: impl Iterator<Item = (&'a str, &'a str)>,
        is_shared: bool,
    ) -> Result<(Self, Vec<String>)> {
        let mut read = Self { is_shared, ..Self::default() };
        let unknown = read_settings(settings, parameters, PARAMETER_PREFIX, |setting| {
            Ok(read.apply(setting)? || setting.from_server)
        })?;
        read.limits.checked()?;
        Ok((read, unknown))
    }

    /// Reads the settings of a process that serves all models of a library: no model sets its limits.
    ///
    /// # Errors
    /// INVALID_ARG for an invalid value.
    pub(crate) fn of_shared_process(settings: &[(String, String)]) -> Result<Self> {
        Self::read(settings, std::iter::empty(), true).map(|(read, _)| read)
    }

    /// Reads a key; returns false if it is unknown.
    fn apply(&mut self, Setting { key, value, from_server }: Setting<'_>) -> Result<bool> {
        let of_process = OF_PROCESS.contains(&key) || self.is_shared && OF_SHARED_PROCESS.contains(&key);
        if of_process && !from_server {
            return Ok(false);
        }
        match key {
            "start-timeout-seconds" => {
                self.limits.start_timeout = seconds(at_least(key, value, 1, "smaller than or equal to zero.")?);
            }
            "new-privileges" => self.limits.new_privileges = switch(key, value)?,
            "output" => {
                self.output = match value {
                    "raw" => OutputTarget::Raw,
                    "lines" => OutputTarget::Lines,
                    _ => return Err(Error::invalid(format!("{key} must be 'lines' or 'raw', not '{value}'."))),
                }
            }
            // Libraries need the segments.
            "shm" => return Ok(false),
            // Names of settings of Triton's Python library, which are not about our segments.
            "shm-default-byte-size" | "shm-growth-byte-size" if from_server => return Ok(false),
            _ => return self.limits.apply(key, value),
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn owned(settings: &[(&str, &str)]) -> Vec<(String, String)> {
        settings.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()
    }

    fn read(settings: &[(&str, &str)], parameters: &[(&str, &str)]) -> Result<(HostSettings, Vec<String>)> {
        HostSettings::read(&owned(settings), parameters.iter().copied(), false)
    }

    #[test]
    fn unknown_settings_are_the_librarys_own() {
        let (settings, unknown) = read(&[("colour", "blue"), ("execute-timeout-ms", "5")], &[]).unwrap();
        assert_eq!(unknown, Vec::<String>::new());
        assert_eq!(settings.limits.execute_timeout, Some(Duration::from_millis(5)));
    }

    #[test]
    fn a_model_cannot_change_the_limits_of_the_process() {
        let (settings, unknown) = read(
            &[("memory-limit-bytes", "1000000")],
            &[("nereid.host.memory-limit-bytes", "0"), ("nereid.host.new-privileges", "on"), ("mine", "1")],
        )
        .unwrap();
        assert_eq!(settings.limits.memory_bytes_max, Some(1_000_000));
        assert_eq!(unknown, ["nereid.host.memory-limit-bytes", "nereid.host.new-privileges"]);
    }

    #[test]
    fn a_model_cannot_end_a_process_that_it_shares() {
        let settings = owned(&[("exit-grace-seconds", "7")]);
        let parameters = [
            ("nereid.host.execute-timeout-ms", "1"),
            ("nereid.host.exit-grace-seconds", "0"),
            ("nereid.host.start-timeout-seconds", "1"),
            ("nereid.host.restart", "off"),
        ];
        let of = |is_shared| HostSettings::read(&settings, parameters.into_iter(), is_shared).unwrap();
        let (shared, unknown) = of(true);
        assert_eq!((shared.limits.execute_timeout, shared.limits.exit_grace), (None, Duration::from_secs(7)));
        assert_eq!((shared.limits.start_timeout, shared.limits.restart), (Duration::from_secs(30), false));
        assert_eq!(unknown, parameters.map(|(key, _)| key)[..3]);
        let (own, unknown) = of(false);
        assert_eq!(
            (own.limits.execute_timeout, own.limits.exit_grace),
            (Some(Duration::from_millis(1)), Duration::ZERO)
        );
        assert!(unknown.is_empty());
        let process = HostSettings::of_shared_process(&settings).unwrap();
        assert_eq!((process.limits.exit_grace, process.limits.restart), (Duration::from_secs(7), true));
    }
}
