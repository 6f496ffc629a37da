//! `--name=value` arguments. The caller is our own script, so a mistake is answered with the name and nothing cleverer.

use std::collections::HashMap;

pub type Failure = Box<dyn std::error::Error>;

pub struct Arguments(HashMap<String, String>);

impl Arguments {
    pub fn new(words: impl Iterator<Item = String>) -> Result<Self, Failure> {
        let mut map = HashMap::new();
        for word in words {
            let (name, value) = word
                .strip_prefix("--")
                .and_then(|w| w.split_once('='))
                .ok_or_else(|| format!("expected --name=value, got '{word}'"))?;
            map.insert(name.to_owned(), value.to_owned());
        }
        Ok(Self(map))
    }

    pub fn text(&self, name: &str) -> Result<&str, Failure> {
        self.0.get(name).map(String::as_str).ok_or_else(|| format!("--{name} is missing").into())
    }

    pub fn optional(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    pub fn number<T: std::str::FromStr>(&self, name: &str, default: T) -> Result<T, Failure> {
        match self.0.get(name) {
            None => Ok(default),
            Some(v) => v.parse().map_err(|_| format!("--{name}: '{v}' is not a number").into()),
        }
    }

    /// The bytes of the file named by an argument.
    pub fn file(&self, name: &str) -> Result<bytes::Bytes, Failure> {
        let path = self.text(name)?;
        Ok(std::fs::read(path).map_err(|e| format!("--{name}={path}: {e}"))?.into())
    }
}
