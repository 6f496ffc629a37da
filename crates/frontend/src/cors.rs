//! Web pages that may send requests and read responses (`--http-cors-origin`). `http::cors` writes the headers.

use tensor::{Error, Result};

/// The allowed origins.
#[derive(Debug)]
pub struct Cors {
    any: bool,
    origins: Vec<String>,
}

impl Cors {
    /// Parses the option; `None` if it is empty.
    ///
    /// # Errors
    /// INVALID_ARG for an entry that is neither `*` nor an origin as browsers write it.
    pub fn new(origins: &[String]) -> Result<Option<Self>> {
        let is_origin = |text: &str| {
            let host = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"));
            let is_part = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b"-._:[]".contains(&b);
            host.is_some_and(|host| !host.is_empty() && host.bytes().all(is_part))
        };
        if let Some(wrong) = origins.iter().find(|o| *o != "*" && !is_origin(o)) {
            return Err(Error::invalid(format!(
                "'{wrong}' is not an origin: scheme://host or scheme://host:port in lower case, without a path, or * \
                 for any"
            )));
        }
        let any = origins.iter().any(|o| o == "*");
        Ok((!origins.is_empty()).then(|| Self { any, origins: origins.to_vec() }))
    }

    /// Whether pages of this origin may send requests.
    pub fn allows(&self, origin: &[u8]) -> bool {
        self.any || self.origins.iter().any(|o| o.as_bytes() == origin)
    }

    /// Whether pages of any origin may send requests.
    pub fn is_any(&self) -> bool {
        self.any
    }
}
