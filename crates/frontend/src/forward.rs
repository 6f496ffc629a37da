//! Header forwarding (P 1.15, P 2.6): headers whose name matches a pattern become string parameters of the inference.

use regex::{Regex, RegexBuilder};
use tensor::{Error, Result};

/// Names of request parameters, which no header may set (P 1.12.5). Case matters.
const RESERVED: [&str; 7] =
    ["sequence_id", "sequence_start", "sequence_end", "priority", "timeout", "headers", "binary_data_output"];

/// The compiled pattern of one front end.
#[derive(Debug, Default)]
pub struct HeaderForward(Option<Regex>);

impl HeaderForward {
    /// Compiles a pattern; empty = nothing is forwarded.
    ///
    /// # Errors
    /// INVALID_ARG if it is not a regular expression.
    pub fn new(pattern: &str) -> Result<Self> {
        if pattern.is_empty() {
            return Ok(Self(None));
        }
        let regex = RegexBuilder::new(pattern).case_insensitive(true).build();
        regex
            .map(|r| Self(Some(r)))
            .map_err(|e| Error::invalid(format!("invalid header forward pattern '{pattern}': {e}")))
    }

    /// Whether there is a pattern; without one, callers skip the headers.
    pub fn is_active(&self) -> bool {
        self.0.is_some()
    }

    /// Whether the header `name` is to be forwarded.
    ///
    /// # Errors
    /// INVALID_ARG if it matches but is reserved.
    pub fn wants(&self, name: &str) -> Result<bool> {
        if !self.0.as_ref().is_some_and(|r| r.is_match(name)) {
            return Ok(false);
        }
        if RESERVED.contains(&name) || name.starts_with("triton_") {
            return Err(Error::invalid(format!(
                "Header '{name}' is reserved for Triton usage and cannot be forwarded."
            )));
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_are_searched_anywhere_and_ignore_case_but_reserved_names_do_not() {
        let f = HeaderForward::new("^x-|timeout|sequence_id").unwrap();
        assert_eq!(f.wants("X-Foo"), Ok(true));
        assert_eq!(f.wants("my-timeout-header"), Ok(true));
        assert_eq!(f.wants("Timeout"), Ok(true));
        assert_eq!(f.wants("Host"), Ok(false));
        assert_eq!(
            f.wants("timeout").map_err(|e| e.message().to_owned()),
            Err("Header 'timeout' is reserved for Triton usage and cannot be forwarded.".to_owned())
        );
        assert!(HeaderForward::new("triton").unwrap().wants("triton_x").is_err());
        assert!(!HeaderForward::new("").unwrap().is_active());
        assert!(HeaderForward::new("(").is_err());
    }
}
