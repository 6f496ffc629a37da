//! Settings of the backend, `--backend-config=javascript,<key>=<value>`, and parameters `nereid.javascript.<key>` of a
//! model, which override them.

use backend_process::{RunnerLimits, Setting, at_least, read_settings, seconds};
use tensor::{Error, Result};

/// Prefix of keys in a model's parameters.
pub(crate) const PARAMETER_PREFIX: &str = "nereid.javascript.";

/// Settings of the backend and parameters of a model.
#[derive(Debug, Clone, Default)]
pub(crate) struct JavaScriptSettings {
    pub(crate) limits: RunnerLimits,
    /// Runs each instance in a process of its own.
    pub(crate) isolated: bool,
}

impl JavaScriptSettings {
    /// Reads the backend's settings, then the model's parameters. The second value lists unknown keys.
    ///
    /// # Errors
    /// INVALID_ARG for an invalid value.
    pub(crate) fn read<'a>(
        settings: &'a [(String, String)],
        parameters: impl Iterator<Item = (&'a str, &'a str)>,
    ) -> Result<(Self, Vec<String>)> {
        let mut options = Self::default();
        let unknown = read_settings(settings, parameters, PARAMETER_PREFIX, |setting| options.apply(setting))?;
        options.limits.checked()?;
        Ok((options, unknown))
    }

    /// Reads a key; returns false if it is unknown.
    fn apply(&mut self, Setting { key, value, .. }: Setting<'_>) -> Result<bool> {
        match key {
            // The setting protects the server, so a model cannot take it back.
            "isolation" => match value {
                "process" => self.isolated = true,
                "thread" => {}
                _ => return Err(Error::invalid(format!("{key} must be 'thread' or 'process', not '{value}'."))),
            },
            "start-timeout-seconds" => {
                self.limits.start_timeout = seconds(at_least(key, value, 1, "smaller than or equal to zero.")?);
            }
            "new-privileges" | "shm" => return Ok(false),
            _ => return self.limits.apply(key, value),
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn read(settings: &[(&str, &str)], parameters: &[(&str, &str)]) -> Result<(JavaScriptSettings, Vec<String>)> {
        let settings: Vec<_> = settings.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        JavaScriptSettings::read(&settings, parameters.iter().copied())
    }

    #[test]
    fn a_models_parameters_override_the_settings() {
        let (options, unknown) = read(
            &[("execute-timeout-ms", "5000"), ("memory-limit-bytes", "1000000"), ("nothing", "1")],
            &[("nereid.javascript.execute-timeout-ms", "20"), ("mine", "1"), ("nereid.javascript.shm", "off")],
        )
        .unwrap();
        assert_eq!(options.limits.execute_timeout, Some(Duration::from_millis(20)));
        assert_eq!(options.limits.memory_bytes_max, Some(1_000_000));
        assert_eq!(unknown, ["nothing", "nereid.javascript.shm"]);
    }

    #[test]
    fn a_model_cannot_leave_the_isolation_that_the_server_asks_for() {
        let isolation = |settings: &[_], parameters: &[_]| read(settings, parameters).unwrap().0.isolated;
        let (server, model) = (("isolation", "process"), ("nereid.javascript.isolation", "thread"));
        assert!(isolation(&[server], &[model]));
        assert!(!isolation(&[], &[model]));
        assert!(isolation(&[("isolation", "thread")], &[("nereid.javascript.isolation", "process")]));
        let error = read(&[("isolation", "none")], &[]).unwrap_err();
        assert_eq!(error, Error::invalid("isolation must be 'thread' or 'process', not 'none'.".to_owned()));
    }
}
