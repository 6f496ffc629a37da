//! Selects the interpreter of a model (backends-python.md 14.4).
//!
//! An explicit choice is used or rejected, never skipped: an active virtual environment without numpy is an error, not
//! a reason to use another Python. Only the two names on PATH are tried in turn.

use crate::probe::{Interpreter, Prober};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tensor::{Error, Result};

/// Names an interpreter for all models.
pub const INTERPRETER_VARIABLE: &str = "NEREID_PYTHON";

/// Environment variables of a process.
pub(crate) type Variables = Vec<(OsString, OsString)>;

pub(crate) fn value<'a>(environment: &'a Variables, name: &str) -> Option<&'a OsStr> {
    environment.iter().find(|(n, _)| n == name).map(|(_, v)| v.as_os_str()).filter(|v| !v.is_empty())
}

/// Candidates for the interpreter.
#[derive(Debug, PartialEq, Eq)]
enum Choice {
    /// An explicit choice, and its origin.
    Chosen(PathBuf, String),
    /// Programs on PATH, in order.
    Found(Vec<PathBuf>),
}

/// Finds the interpreter of a model without its own environment.
///
/// # Errors
/// INTERNAL: none can be used; the text lists what was tried and what to do.
pub(crate) fn find(
    prober: &Prober,
    configured: Option<&Path>,
    environment: &Variables,
    timeout: Duration,
) -> Result<Interpreter> {
    let none = |why: String| Err(Error::internal(format!("Python backend: no usable interpreter: {why}")));
    match choose(configured, environment) {
        Choice::Chosen(program, by) => {
            prober.probe(&program, environment, timeout).or_else(|why| none(format!("{why} (chosen by {by})")))
        }
        Choice::Found(programs) if programs.is_empty() => none(format!(
            "there is no python3 on PATH; install one, or name one with \
             --backend-config=python,python-executable=PATH or {INTERPRETER_VARIABLE}"
        )),
        Choice::Found(programs) => {
            let mut reasons = Vec::new();
            for program in &programs {
                match prober.probe(program, environment, timeout) {
                    // A program on PATH may be a script that finds the interpreter each time, as with pyenv.
                    Ok(Interpreter { executable, version, numpy, .. }) => {
                        return Ok(Interpreter { program: executable.clone(), executable, version, numpy });
                    }
                    Err(why) => reasons.push(why),
                }
            }
            none(reasons.join("; "))
        }
    }
}

fn choose(configured: Option<&Path>, environment: &Variables) -> Choice {
    if let Some(program) = configured {
        return Choice::Chosen(
            named(program.as_os_str(), environment),
            "--backend-config=python,python-executable".into(),
        );
    }
    if let Some(program) = value(environment, INTERPRETER_VARIABLE) {
        return Choice::Chosen(named(program, environment), INTERPRETER_VARIABLE.into());
    }
    for variable in ["VIRTUAL_ENV", "CONDA_PREFIX"] {
        let Some(root) = value(environment, variable) else { continue };
        let program = Path::new(root).join("bin/python");
        if program.is_file() {
            return Choice::Chosen(program, variable.into());
        }
    }
    Choice::Found(["python3", "python"].iter().filter_map(|name| on_path(OsStr::new(name), environment)).collect())
}

/// Resolves a name without a slash on PATH, as a shell does.
fn named(program: &OsStr, environment: &Variables) -> PathBuf {
    if program.as_bytes().contains(&b'/') {
        return PathBuf::from(program);
    }
    on_path(program, environment).unwrap_or_else(|| PathBuf::from(program))
}

fn on_path(name: &OsStr, environment: &Variables) -> Option<PathBuf> {
    let path = value(environment, "PATH")?;
    // An empty or relative entry is the working directory, which is never intended.
    std::env::split_paths(path).filter(|d| d.is_absolute()).map(|d| d.join(name)).find(|p| is_program(p))
}

fn is_program(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    std::fs::metadata(path).is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    fn program(path: &Path) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "#!/bin/sh\n").unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    #[test]
    fn b_pyr_05_interpreters_are_tried_in_order() {
        let root = std::env::temp_dir().join(format!("nereid-search-{}", std::process::id()));
        let at = |p: &str| root.join(p);
        for p in ["path/python", "path/python3", "venv/bin/python", "conda/bin/python", "own/python3.12"] {
            program(&at(p));
        }
        let variables = |pairs: &[(&str, &str)]| -> Variables {
            let mut all: Variables = vec![("PATH".into(), at("path").into_os_string())];
            all.extend(pairs.iter().map(|(n, v)| ((*n).into(), at(v).into_os_string())));
            all
        };
        let chosen = |p: &str, by: &str| Choice::Chosen(at(p), by.into());
        let all = [("VIRTUAL_ENV", "venv"), ("CONDA_PREFIX", "conda"), ("NEREID_PYTHON", "own/python3.12")];

        let configured = at("elsewhere/python");
        let option = "--backend-config=python,python-executable";
        assert_eq!(choose(Some(&configured), &variables(&all)), chosen("elsewhere/python", option));
        assert_eq!(choose(Some(Path::new("python3")), &variables(&[])), chosen("path/python3", option));
        assert_eq!(choose(None, &variables(&all)), chosen("own/python3.12", "NEREID_PYTHON"));
        assert_eq!(choose(None, &variables(&all[..2])), chosen("venv/bin/python", "VIRTUAL_ENV"));
        assert_eq!(choose(None, &variables(&all[1..2])), chosen("conda/bin/python", "CONDA_PREFIX"));
        assert_eq!(choose(None, &variables(&[])), Choice::Found(vec![at("path/python3"), at("path/python")]));
        assert_eq!(choose(None, &vec![("PATH".into(), "relative:".into())]), Choice::Found(Vec::new()));
        fs::remove_dir_all(root).unwrap();
    }

    #[test]
    fn b_pyr_05_without_any_python_the_error_names_the_remedy() {
        let error = find(&Prober::default(), None, &Vec::new(), Duration::ZERO).unwrap_err();
        assert!(
            error.message().starts_with("Python backend: no usable interpreter: there is no python3 on PATH"),
            "{error:?}"
        );
    }
}
