//! Options of a server, as the options of the command line of `nereid` that they become.

use std::collections::BTreeMap;

/// Options of a server that a program embeds. One that is set again replaces the earlier value, unless it is a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ServerOptions {
    values: BTreeMap<&'static str, String>,
    lists: Vec<(&'static str, String)>,
    /// Configurations are taken as they are, without what the model would add.
    pub(crate) is_strict: bool,
}

const EXIT_TIMEOUT: &str = "exit-timeout-secs";
/// Triton's default, in seconds.
const EXIT_TIMEOUT_DEFAULT: u32 = 30;

impl Default for ServerOptions {
    /// The defaults of Triton's C API, which for two options are not those of its command line.
    fn default() -> Self {
        let mut options = Self { values: BTreeMap::new(), lists: Vec::new(), is_strict: true };
        for (name, value) in [
            ("model-control-mode", "poll"),
            // The program polls.
            ("repository-poll-secs", "0"),
        ] {
            options.set(name, value);
        }
        options
    }
}

impl ServerOptions {
    /// Sets an option of the command line, named without its dashes.
    pub(crate) fn set(&mut self, name: &'static str, value: impl ToString) {
        self.values.insert(name, value.to_string());
    }

    /// Adds a value of an option that may be given several times.
    pub(crate) fn add(&mut self, name: &'static str, value: String) {
        self.lists.push((name, value));
    }

    pub(crate) fn set_exit_timeout(&mut self, seconds: u32) {
        self.set(EXIT_TIMEOUT, seconds);
    }

    /// The exit timeout, in seconds.
    pub(super) fn exit_timeout_secs(&self) -> u32 {
        self.values.get(EXIT_TIMEOUT).and_then(|text| text.parse().ok()).unwrap_or(EXIT_TIMEOUT_DEFAULT)
    }

    /// Arguments for the command line.
    pub(super) fn arguments(&self) -> Vec<String> {
        let values = self.values.iter().map(|(name, value)| (*name, value));
        let lists = self.lists.iter().map(|(name, value)| (*name, value));
        let strict = self.is_strict.then(|| "--disable-auto-complete-config".to_owned());
        values.chain(lists).map(|(name, value)| format!("--{name}={value}")).chain(strict).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_grow_and_other_options_are_replaced() {
        let mut options = ServerOptions { values: BTreeMap::new(), lists: Vec::new(), is_strict: false };
        options.set("id", "a");
        options.set("id", "b");
        options.add("model-repository", "/x".into());
        options.add("model-repository", "/y".into());
        assert_eq!(options.arguments(), ["--id=b", "--model-repository=/x", "--model-repository=/y"]);
        assert_eq!(options.exit_timeout_secs(), 30);
        options.set_exit_timeout(2);
        assert_eq!(options.exit_timeout_secs(), 2);
    }
}
