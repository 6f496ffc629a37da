//! The processes of libraries: which one serves a model, and how it is started.

use crate::links::Links;
use crate::settings::HostSettings;
use backend_process::{Command, HostedLibrary, guard_with};
use options::{LibraryProcess, LibrarySpec};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use tensor::{Error, Name, Result};

/// Processes of libraries: each takes some 5 MB before it loads anything.
const HOSTS_MAX: usize = 256;

/// Processes that serve all models of a library, by its path and the name of its backend.
#[derive(Default)]
pub(crate) struct Hosts(Mutex<HashMap<(PathBuf, String), HostedLibrary>>, Links);

impl Hosts {
    /// The process that serves all models of a library. It stays until the server ends, as the library does in Triton.
    ///
    /// # Errors
    /// Too many processes, or no directory for links.
    pub(crate) fn shared(
        &self,
        options: &LibraryProcess,
        library: &LibrarySpec,
        settings: &HostSettings,
    ) -> Result<HostedLibrary> {
        let mut hosts = self.0.lock();
        let key = (library.path.clone(), library.backend.clone());
        if let Some(host) = hosts.get(&key) {
            return Ok(host.clone());
        }
        if hosts.len() >= HOSTS_MAX {
            return Err(Error::new(
                tensor::Code::ResourceExhausted,
                format!("{HOSTS_MAX} libraries of backends are loaded already, each in a process"),
            ));
        }
        let host = self.own(options, library, settings)?;
        hosts.insert(key, host.clone());
        Ok(host)
    }

    /// A process for a library.
    ///
    /// # Errors
    /// No directory for links.
    pub(crate) fn own(
        &self,
        options: &LibraryProcess,
        library: &LibrarySpec,
        settings: &HostSettings,
    ) -> Result<HostedLibrary> {
        let mut environment: Vec<(OsString, OsString)> =
            options.environment.iter().map(|(name, value)| (name.into(), value.into())).collect();
        let mut ours = options.library.clone().into_os_string();
        if let Some(name) = &library.needs {
            let directory = self.1.directory(&options.links, name, &options.library).map_err(|e| {
                Error::internal(format!(
                    "the library of backend '{}' needs '{name}', but no link of that name could be made in '{}*': {e}",
                    library.backend,
                    options.links.display()
                ))
            })?;
            first_in_path(&mut environment, &directory);
            // By its bare name: only then the loader takes it for the one that the library needs.
            ours = name.into();
        }
        let mut arguments = vec![ours];
        arguments.extend(options.user.as_ref().map(|user| format!("--user={user}").into()));
        let command = Command { program: options.program.clone(), arguments, environment };
        guard_with(Command {
            program: options.program.clone(),
            arguments: vec!["--guardian".into()],
            environment: Vec::new(),
        });
        let name = Name::from(library.backend.as_str());
        Ok(HostedLibrary::new(name, command, settings.limits.clone(), settings.output))
    }

    /// Asks all processes to finalize and to end.
    pub(crate) fn close(&self) {
        let hosts: Vec<_> = self.0.lock().drain().map(|(_, host)| host).collect();
        hosts.iter().for_each(HostedLibrary::close);
    }
}

/// True if all models of a library have one process. A model that brings the library, or the one that divides its
/// batches, has a process of its own, which ends with it.
pub(crate) fn is_shared(options: &LibraryProcess, library: &LibrarySpec) -> bool {
    let is_installed = |path: &PathBuf| path.starts_with(&library.backend_directory);
    !options.per_model && is_installed(&library.path) && library.strategy.iter().all(is_installed)
}

/// Puts a directory before the others of `LD_LIBRARY_PATH`.
fn first_in_path(environment: &mut Vec<(OsString, OsString)>, directory: &Path) {
    let mut path = directory.as_os_str().to_owned();
    if let Some((_, before)) = environment.iter().find(|(name, _)| name == "LD_LIBRARY_PATH") {
        path.push(":");
        path.push(before);
    }
    environment.retain(|(name, _)| name != "LD_LIBRARY_PATH");
    environment.push(("LD_LIBRARY_PATH".into(), path));
}

/// Adds to an error about a file that a process may not read which user it has.
pub(crate) fn explained(host: &LibraryProcess, error: Error) -> Error {
    match &host.user {
        Some(user) if error.message().contains("Permission denied") => error.with_text(format!(
            "{} (the library runs as the user {user}: let that user read it and what it reads, or name another one \
             with --host-user)",
            error.message()
        )),
        _ => error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_of_permissions_names_the_user() {
        let denied = Error::not_found("unable to load shared library: /x.so: Permission denied");
        let host = LibraryProcess { user: Some("65534:65534".into()), ..LibraryProcess::default() };
        assert!(explained(&host, denied.clone()).message().contains("--host-user"));
        assert_eq!(explained(&LibraryProcess::default(), denied.clone()), denied);
        let other = Error::not_found("undefined symbol: f");
        assert_eq!(explained(&host, other.clone()), other);
    }

    #[test]
    fn a_model_that_brings_code_has_a_process_of_its_own() {
        let of = |path: &str, strategy: Option<&str>| LibrarySpec {
            path: path.into(),
            strategy: strategy.map(PathBuf::from),
            backend_directory: "/backends".into(),
            ..LibrarySpec::default()
        };
        let options = LibraryProcess::default();
        assert!(is_shared(&options, &of("/backends/b/libtriton_b.so", None)));
        assert!(is_shared(&options, &of("/backends/b/libtriton_b.so", Some("/backends/b/batchstrategy.so"))));
        assert!(!is_shared(&options, &of("/backends/b/libtriton_b.so", Some("/models/m/batchstrategy.so"))));
        assert!(!is_shared(&options, &of("/models/m/libtriton_b.so", None)));
        let per_model = LibraryProcess { per_model: true, ..options };
        assert!(!is_shared(&per_model, &of("/backends/b/libtriton_b.so", None)));
    }

    #[test]
    fn the_directory_of_the_link_is_searched_first() {
        let path = |variables: &[(&str, &str)]| {
            let mut environment: Vec<_> = variables.iter().map(|(k, v)| (k.into(), v.into())).collect();
            first_in_path(&mut environment, Path::new("/links"));
            environment.pop().unwrap()
        };
        let expected = |value: &str| (OsString::from("LD_LIBRARY_PATH"), OsString::from(value));
        assert_eq!(path(&[("A", "b")]), expected("/links"));
        assert_eq!(path(&[("LD_LIBRARY_PATH", "/x:/y"), ("A", "b")]), expected("/links:/x:/y"));
    }
}
