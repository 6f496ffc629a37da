//! Parameters of a configuration, which are texts, as values. Errors name the parameter, what was expected and found.

use protocol::pb::inference::ModelConfig;
use std::str::FromStr;
use tensor::{Error, Result};

/// The parameters of one model.
pub(crate) struct Parameters<'a> {
    config: &'a ModelConfig,
    known: &'static [&'static str],
}

impl<'a> Parameters<'a> {
    /// # Errors
    /// INVALID_ARG for a parameter that the backend does not know. Names with a dot belong to others.
    pub(crate) fn new(config: &'a ModelConfig, known: &'static [&'static str]) -> Result<Self> {
        let mut names: Vec<_> = config.parameters.keys().map(String::as_str).collect();
        names.sort_unstable();
        match names.into_iter().find(|name| !known.contains(name) && !name.contains('.')) {
            None => Ok(Self { config, known }),
            Some(name) => Err(Error::invalid(format!(
                "backend '{}' has no parameter '{name}'; it has: {}",
                config.backend,
                known.join(", ")
            ))),
        }
    }

    pub(crate) fn text(&self, key: &str) -> Option<&'a str> {
        debug_assert!(self.known.contains(&key), "{key} is not listed");
        self.config.parameters.get(key).map(|parameter| parameter.string_value.trim())
    }

    /// A value read by `read`; `None` if the configuration has none.
    pub(crate) fn read<T>(&self, key: &str, expected: &str, read: impl FnOnce(&str) -> Option<T>) -> Result<Option<T>> {
        let Some(text) = self.text(key) else { return Ok(None) };
        read(text).map(Some).ok_or_else(|| wrong(key, expected, text))
    }

    /// One of some named values; the first is the default.
    pub(crate) fn choice<T: Copy>(&self, key: &str, choices: &[(&str, T)]) -> Result<Option<T>> {
        let names = || choices.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
        let Some(text) = self.text(key) else { return Ok(None) };
        let found = choices.iter().find(|(name, _)| name.eq_ignore_ascii_case(text));
        found.map(|(_, value)| Some(*value)).ok_or_else(|| wrong(key, &names(), text))
    }

    pub(crate) fn number<T: FromStr>(&self, key: &str) -> Result<Option<T>> {
        self.read(key, "a number", |text| text.parse().ok())
    }

    pub(crate) fn flag(&self, key: &str, default: bool) -> Result<bool> {
        Ok(self.choice(key, &[("true", true), ("false", false)])?.unwrap_or(default))
    }

    /// Width and height: `640x480`, or one number for both.
    pub(crate) fn size(&self, key: &str) -> Result<Option<(u32, u32)>> {
        self.read(key, "a width and a height (640x480), or one side of a square", size)
    }

    /// As many numbers as the array has, separated by commas.
    pub(crate) fn numbers<T: FromStr + Copy + Default, const N: usize>(&self, key: &str) -> Result<Option<[T; N]>> {
        let expected = format!("{N} numbers separated by commas");
        self.read(key, &expected, |text| {
            let mut out = [T::default(); N];
            let mut parts = text.split(',');
            for slot in &mut out {
                *slot = parts.next()?.trim().parse().ok()?;
            }
            parts.next().is_none().then_some(out)
        })
    }
}

/// Width and height of a text.
pub(crate) fn size(text: &str) -> Option<(u32, u32)> {
    match text.split_once(['x', 'X']) {
        Some((width, height)) => Some((width.trim().parse().ok()?, height.trim().parse().ok()?)),
        None => text.parse().ok().map(|side| (side, side)),
    }
}

fn wrong(key: &str, expected: &str, found: &str) -> Error {
    Error::invalid(format!("parameter '{key}': expected {expected}, got '{found}'"))
}
