//! Operations that TypeScript decides: model control and settings. They are rare, so they are passed as JSON text.

use std::future::Future;
use std::pin::Pin;
use tensor::Result;

/// A control operation; argument and reply are the JSON of the table at `ControlCall` in the native contract.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum ControlOperation {
    RepositoryIndex,
    RepositoryLoad,
    RepositoryUnload,
    RepositoryPoll,
    RepositoryRegister,
    RepositoryUnregister,
    Metrics,
    TraceGet,
    TraceUpdate,
    LogGet,
    LogUpdate,
    OpenApi,
    Page,
    Console,
}

impl ControlOperation {
    /// Name in the native contract.
    pub fn name(self) -> &'static str {
        match self {
            Self::RepositoryIndex => "repository_index",
            Self::RepositoryLoad => "repository_load",
            Self::RepositoryUnload => "repository_unload",
            Self::RepositoryPoll => "repository_poll",
            Self::RepositoryRegister => "repository_register",
            Self::RepositoryUnregister => "repository_unregister",
            Self::Metrics => "metrics",
            Self::TraceGet => "trace_get",
            Self::TraceUpdate => "trace_update",
            Self::LogGet => "log_get",
            Self::LogUpdate => "log_update",
            Self::OpenApi => "openapi",
            Self::Page => "page",
            Self::Console => "console",
        }
    }
}

/// Argument of a control operation.
#[derive(Debug, Default)]
pub struct Argument {
    /// The JSON of the native contract.
    pub json: String,
    /// Files of a load, by their parameter (`file:<path>`). Not base64 in the JSON: decoding 100 MB of it blocked the
    /// JavaScript thread for 250 ms.
    pub files: Vec<(String, Vec<u8>)>,
}

impl From<String> for Argument {
    fn from(json: String) -> Self {
        Self { json, files: Vec::new() }
    }
}

impl Argument {
    /// Size, including the names of files.
    pub fn bytes(&self) -> usize {
        self.files.iter().map(|(name, contents)| name.len() + contents.len()).sum::<usize>() + self.json.len()
    }
}

/// The caller may be a reactor, which unmaps 60 MB in 3 ms.
impl Drop for Argument {
    fn drop(&mut self) {
        let (json, files) = (std::mem::take(&mut self.json), std::mem::take(&mut self.files));
        memory::reclaim::drop_later(json.capacity(), json);
        for (_, contents) in files {
            memory::reclaim::drop_later(contents.capacity(), contents);
        }
    }
}

/// Future of a response: its JSON.
pub type ControlReply = Pin<Box<dyn Future<Output = Result<String>> + Send>>;

/// Decides control operations.
pub trait Control: Send + Sync {
    /// Starts the operation, which continues if the future is dropped: a load does not end with its connection.
    fn call(&self, operation: ControlOperation, argument: Argument) -> ControlReply;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_size_of_an_argument_includes_names_and_contents_of_files() {
        let files = vec![("file:a".to_owned(), vec![0; 10]), ("file:longer".to_owned(), Vec::new())];
        assert_eq!(Argument { json: "{}".into(), files }.bytes(), 2 + 6 + 10 + 11);
    }
}
