//! Directories where libraries of CUDA and of ONNX Runtime's providers may be: those in the settings, site-packages of
//! the Python interpreters on the PATH, CUDA toolkits, system directories. No program is run to find them.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

/// Maximum number of entries read of one directory, such as pip's packages or the toolkits in /usr/local.
const ENTRIES_MAX: usize = 4096;

/// Directories to search, in order.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Places {
    /// ONNX Runtime: `--backend-config=onnxruntime,library=…`, otherwise the npm package's.
    pub library: Option<PathBuf>,
    /// Whether `library` comes from the settings.
    pub is_named: bool,
    /// `--backend-config=onnxruntime,provider-directory=…`: the only directory where providers are searched.
    pub provider_directory: Option<PathBuf>,
    /// `--backend-config=onnxruntime,provider-library=…`: a plug-in of ONNX Runtime that replaces its CUDA provider.
    pub plugin: Option<PathBuf>,
    /// Package directories of pip.
    pub site_packages: Vec<PathBuf>,
    /// Other directories with libraries of CUDA and TensorRT.
    pub libraries: Vec<PathBuf>,
}

impl Places {
    /// Places of this machine. `library` comes from npm, `settings` is the backend's, `variable` reads the environment.
    pub fn of(
        library: Option<PathBuf>,
        settings: &[(String, String)],
        variable: impl Fn(&str) -> Option<OsString>,
    ) -> Self {
        let setting = |key: &str| settings.iter().rev().find(|(k, _)| k == key).map(|(_, v)| PathBuf::from(v));
        let named = setting("library");
        let list =
            |name: &str| variable(name).map(|v| std::env::split_paths(&v).collect::<Vec<_>>()).unwrap_or_default();
        let mut site_packages = Vec::new();
        for root in ["VIRTUAL_ENV", "CONDA_PREFIX"].iter().filter_map(|name| variable(name)) {
            add(&mut site_packages, packages_below(Path::new(&root)));
        }
        for directory in list("PATH") {
            let python = directory.join("python3");
            if !python.is_file() {
                continue;
            }
            // pyenv's entry on the PATH is a script that selects one of its interpreters.
            if directory.ends_with("shims")
                && let Some(pyenv) = directory.parent()
            {
                for version in entries(&pyenv.join("versions"), |_| true) {
                    add(&mut site_packages, packages_below(&version));
                }
            }
            // In a virtual environment this is a link to the base interpreter, whose packages may be visible as well.
            for program in [Some(python.clone()), python.canonicalize().ok()].into_iter().flatten() {
                if let Some(root) = program.parent().and_then(Path::parent) {
                    add(&mut site_packages, packages_below(root));
                }
            }
        }
        if let Some(home) = variable("HOME") {
            add(&mut site_packages, packages_below(&Path::new(&home).join(".local")));
        }
        let mut libraries = list("LD_LIBRARY_PATH");
        for toolkit in entries(Path::new("/usr/local"), |name| name.to_string_lossy().starts_with("cuda")) {
            add(&mut libraries, [toolkit.join("lib64"), toolkit.join("targets/x86_64-linux/lib")]);
        }
        let system = ["/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/lib", "/usr/local/lib"];
        add(&mut libraries, system.map(PathBuf::from));
        libraries.retain(|d| d.is_dir());
        Self {
            is_named: named.is_some(),
            library: named.or(library),
            provider_directory: setting("provider-directory"),
            plugin: setting("provider-library"),
            site_packages,
            libraries,
        }
    }

    /// Directories that may have libraries of CUDA and TensorRT, for a provider in the directory `beside`.
    pub(crate) fn library_directories(&self, beside: Option<&Path>) -> Vec<PathBuf> {
        let mut found: Vec<PathBuf> = self.provider_directory.iter().cloned().collect();
        add(&mut found, beside.map(Path::to_path_buf));
        for packages in &self.site_packages {
            let of_nvidia = entries(&packages.join("nvidia"), |_| true);
            add(&mut found, of_nvidia.into_iter().map(|package| package.join("lib")));
            add(&mut found, [packages.join("tensorrt_libs")]);
        }
        add(&mut found, self.libraries.iter().cloned());
        found.retain(|d| d.is_dir());
        found
    }
}

/// Whether a library of a pip package is for this version of CUDA. cuDNN's has the same path for all versions, so the
/// name of the package decides, from its dist-info directory. Without one, the library is accepted.
pub(crate) fn is_for_cuda(file: &Path, cuda: Option<u32>) -> bool {
    let Some(cuda) = cuda else { return true };
    let of_pip = file.parent().filter(|lib| lib.ends_with("nvidia/cudnn/lib"));
    let Some(site_packages) = of_pip.and_then(|lib| lib.ancestors().nth(3)) else { return true };
    let notes = entries(site_packages, |name| {
        let name = name.to_string_lossy();
        name.starts_with("nvidia_cudnn_cu") && name.ends_with(".dist-info")
    });
    let wanted = format!("nvidia_cudnn_cu{cuda}-");
    let is_it = |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(&wanted));
    notes.is_empty() || notes.iter().any(is_it)
}

/// Appends the paths that are not in the list yet.
fn add(to: &mut Vec<PathBuf>, more: impl IntoIterator<Item = PathBuf>) {
    for path in more {
        if !to.contains(&path) {
            to.push(path);
        }
    }
}

/// Package directories of an interpreter that is installed in `root`.
fn packages_below(root: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for python in entries(&root.join("lib"), |name| name.to_string_lossy().starts_with("python3")) {
        found.extend([python.join("site-packages"), python.join("dist-packages")]);
    }
    found.retain(|d| d.is_dir());
    found
}

/// Entries of a directory in descending order of names, so that higher versions come first; none if it is unreadable.
fn entries(directory: &Path, wanted: impl Fn(&OsStr) -> bool) -> Vec<PathBuf> {
    let Ok(read) = std::fs::read_dir(directory) else { return Vec::new() };
    let all = read.take(ENTRIES_MAX).filter_map(Result::ok);
    let mut found: Vec<_> = all.filter(|e| wanted(&e.file_name())).map(|e| e.path()).collect();
    found.sort_unstable_by(|a, b| b.cmp(a));
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interpreters_of_pyenv_are_found_behind_its_shims() {
        let root = std::env::temp_dir().join(format!("nereid-places-{}", std::process::id()));
        let packages = root.join("versions/3.11.7/lib/python3.11/site-packages");
        std::fs::create_dir_all(&packages).expect("made");
        std::fs::create_dir_all(root.join("shims")).expect("made");
        std::fs::write(root.join("shims/python3"), "").expect("written");
        let path = root.join("shims").into_os_string();
        let places = Places::of(None, &[], |name| (name == "PATH").then(|| path.clone()));
        assert_eq!(places.site_packages, [packages]);
        std::fs::remove_dir_all(root).expect("removed");
    }
}
