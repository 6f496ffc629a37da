//! The file with the model's code and its import name (B-PY-03, B-PYB-01).

use backend_process::is_inside;
use std::path::{Path, PathBuf};
use tensor::{Error, Result};

/// Default file name.
const FILE_DEFAULT: &str = "model.py";

/// Characters not allowed in names that reach a runner (B-SEC-05): Triton's list, which comes from its shell.
const FORBIDDEN: &str = ";|&$`<>()[]{}\\\"'*?~#!";

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ModelCode {
    /// Absolute path.
    pub(crate) file: PathBuf,
    /// Package of its relative imports; empty for the code of a backend.
    pub(crate) package: String,
    /// Module name without the package.
    pub(crate) module: String,
    /// Appended to the search path, in order.
    pub(crate) paths: Vec<PathBuf>,
}

impl ModelCode {
    /// The code in a version's directory; `file` as configured. `runtime` is the directory of our Python modules.
    ///
    /// # Errors
    /// INVALID_ARG for an invalid name.
    pub(crate) fn of_version(version: &Path, file: &str, runtime: &Path) -> Result<Self> {
        let file = if file.is_empty() { FILE_DEFAULT } else { file };
        let Some(stem) = file.strip_suffix(".py") else {
            return Err(Error::invalid(format!("Model name must end with '.py'. Model name is \"{file}\".")));
        };
        if !is_inside(file) {
            return Err(Error::invalid(format!("model file name '{file}' must stay inside the version directory")));
        }
        let path = version.join(file);
        // The directory of the file is a namespace package, so its parent is on the search path.
        let directory = path.parent().unwrap_or(version).to_path_buf();
        let above = directory.parent().unwrap_or(version).to_path_buf();
        let package = directory.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let module = stem.rsplit('/').next().unwrap_or(stem).to_owned();
        Ok(Self { file: path, package, module, paths: vec![directory, above, runtime.to_path_buf()] })
    }

    /// The code of a backend written in Python. Its parent directory is not searched: backends are named after
    /// packages, and `import vllm` would find the directory `vllm`. Modules shared by backends are beside our runtime
    /// (B-PYB-03).
    pub(crate) fn of_backend(directory: &Path, runtime: &Path) -> Self {
        let paths = vec![directory.to_path_buf(), runtime.to_path_buf()];
        Self { file: directory.join(FILE_DEFAULT), package: String::new(), module: "model".into(), paths }
    }

    /// Checks that the file exists. Triton starts a process that dies of it, and returns that process's name.
    ///
    /// # Errors
    /// INTERNAL naming the file.
    pub(crate) fn require(&self) -> Result<()> {
        if self.file.is_file() {
            return Ok(());
        }
        Err(Error::internal(format!("Python model file not found in '{}'", self.file.display())))
    }
}

/// The directory of a version's file, `file` as configured; `get_model_dir` returns it, also to the code of a backend.
pub(crate) fn directory_of(version: &Path, file: &str) -> PathBuf {
    let above = Path::new(file).parent().filter(|above| is_inside(file) && !above.as_os_str().is_empty());
    above.map_or_else(|| version.to_path_buf(), |above| version.join(above))
}

/// Rejects names of models that Triton starts no process for.
pub(crate) fn check_name(model: &str) -> Result<()> {
    if model.is_empty() || model.contains(|c| FORBIDDEN.contains(c)) {
        return Err(Error::invalid("Invalid stub name: contains invalid characters"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn b_py_03_a_file_is_imported_from_its_directory() {
        let check = |file: &str, package: &str, module: &str, paths: [&str; 2]| {
            assert_eq!(directory_of(Path::new("/r/m/1"), file), Path::new(paths[0]), "{file}");
            let code = ModelCode::of_version(Path::new("/r/m/1"), file, Path::new("/rt")).unwrap();
            assert_eq!((code.package.as_str(), code.module.as_str()), (package, module), "{file}");
            assert_eq!(code.paths, [Path::new(paths[0]), Path::new(paths[1]), Path::new("/rt")], "{file}");
        };
        check("", "1", "model", ["/r/m/1", "/r/m"]);
        check("other.py", "1", "other", ["/r/m/1", "/r/m"]);
        check("sub/model.py", "sub", "model", ["/r/m/1/sub", "/r/m/1"]);
        check("my.model.py", "1", "my.model", ["/r/m/1", "/r/m"]);
    }

    #[test]
    fn b_sec_05_a_file_outside_the_version_is_rejected() {
        let check = |file: &str, text: &str| {
            let error = ModelCode::of_version(Path::new("/r/m/1"), file, Path::new("/rt")).unwrap_err();
            assert_eq!(error, Error::invalid(text.to_owned()));
        };
        check("model.txt", "Model name must end with '.py'. Model name is \"model.txt\".");
        check("../model.py", "model file name '../model.py' must stay inside the version directory");
        check("/etc/x.py", "model file name '/etc/x.py' must stay inside the version directory");
        check("a/../../x.py", "model file name 'a/../../x.py' must stay inside the version directory");
    }

    /// The parent directory is not searched: a backend named `mine` would hide the package `mine`.
    #[test]
    fn b_pyb_01_the_code_of_a_backend_has_no_package() {
        let code = ModelCode::of_backend(Path::new("/b/mine"), Path::new("/rt"));
        assert_eq!(
            (code.file.as_path(), code.package.as_str(), code.module.as_str()),
            (Path::new("/b/mine/model.py"), "", "model")
        );
        assert_eq!(code.paths, ["/b/mine", "/rt"].map(Path::new));
    }

    #[test]
    fn b_sec_05_names_with_shell_characters_are_rejected() {
        for c in FORBIDDEN.chars() {
            assert_eq!(
                check_name(&format!("a{c}b")).unwrap_err().message(),
                "Invalid stub name: contains invalid characters",
                "{c}"
            );
        }
        assert_eq!(FORBIDDEN.chars().count(), 21);
        for name in ["a b", "a.b", "a-b", "a@b", "a%b", "a:b", "größe"] {
            assert!(check_name(name).is_ok(), "{name}");
        }
        assert!(check_name("").is_err());
    }
}
