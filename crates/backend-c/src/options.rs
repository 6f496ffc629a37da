//! Options of the backend, which are those of the server.

use std::path::PathBuf;
use tensor::Error;

/// Options of the backend.
#[derive(Debug, Clone, Default)]
pub struct COptions {
    /// Absolute path of `nereid-backend-host`.
    pub program: PathBuf,
    /// Absolute path of our `libtritonserver.so`.
    pub library: PathBuf,
    /// Prefix of the directory for links to it, which is made when it is needed.
    pub links: PathBuf,
    /// The whole environment of the processes: the server's, such as keys, is not for libraries.
    pub environment: Vec<(String, String)>,
    /// Each model has a process of its own.
    pub per_model: bool,
    /// `<uid>:<gid>` that the processes take before they open a library of others; `None` = the server's.
    pub user: Option<String>,
    /// Why the programs are missing on this platform; `None` if they are there.
    pub missing: Option<String>,
}

impl COptions {
    /// Adds to an error about a file that a process may not read which user it has.
    pub(crate) fn explained(&self, error: Error) -> Error {
        match &self.user {
            Some(user) if error.message().contains("Permission denied") => Error::new(
                error.code(),
                format!(
                    "{} (the library runs as the user {user}: let that user read it and what it reads, or name another \
                     one with --host-user)",
                    error.message()
                ),
            ),
            _ => error,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_of_permissions_names_the_user() {
        let denied = Error::not_found("unable to load shared library: /x.so: Permission denied");
        let options = COptions { user: Some("65534:65534".into()), ..COptions::default() };
        assert!(options.explained(denied.clone()).message().contains("--host-user"));
        assert_eq!(COptions::default().explained(denied.clone()), denied);
        let other = Error::not_found("undefined symbol: f");
        assert_eq!(options.explained(other.clone()), other);
    }
}
