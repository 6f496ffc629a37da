//! Options of the backend, which are those of the server.

use std::path::PathBuf;

/// Options of the backend.
#[derive(Debug, Clone, Default)]
pub struct COptions {
    /// Absolute path of `nereid-backend-host`.
    pub program: PathBuf,
    /// Absolute path of our `libtritonserver.so`.
    pub library: PathBuf,
    /// Directory of this server for links to it, made when it is needed.
    pub links: PathBuf,
    /// The whole environment of the processes: the server's, such as keys, is not for libraries.
    pub environment: Vec<(String, String)>,
    /// Each model has a process of its own.
    pub per_model: bool,
    /// Why the programs are missing on this platform; `None` if they are there.
    pub missing: Option<String>,
}
