//! Reports which of ONNX Runtime's device providers are installed, what they lack, and how to install it. Depends on
//! directories only: nothing is opened or run, so it works on any machine, with or without a GPU.
//!
//! The dependencies of a provider are read from its file, so no table of releases and CUDA versions is needed. Only
//! libraries that a provider opens by name at run time follow from its CUDA version.

use super::elf;
use super::places::{self, Places};
use std::collections::BTreeSet;
use std::fs::File;
use std::path::{Path, PathBuf};

/// Device providers, in the order of their names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProviderKind {
    /// `libonnxruntime_providers_cuda.so`.
    Cuda,
    /// `libonnxruntime_providers_tensorrt.so`.
    Tensorrt,
}

impl ProviderKind {
    /// The name in configurations.
    pub fn name(self) -> &'static str {
        match self {
            Self::Cuda => "cuda",
            Self::Tensorrt => "tensorrt",
        }
    }

    fn file(self) -> String {
        format!("libonnxruntime_providers_{}.so", self.name())
    }
}

/// The library of a few kilobytes through which every provider is opened.
const SHARED: &str = "libonnxruntime_providers_shared.so";

/// Result of a search.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// The ONNX Runtime that matches the providers, or the one used without providers.
    pub library: Option<PathBuf>,
    /// Release of `library`, such as `1.30.0`; `None` if its file has none.
    pub release: Option<String>,
    /// Directory of the providers.
    pub directory: Option<PathBuf>,
    /// The CUDA provider.
    pub cuda: Provider,
    /// The TensorRT provider.
    pub tensorrt: Provider,
}

#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Provider {
    pub kind: ProviderKind,
    pub file: Option<PathBuf>,
    /// Libraries of CUDA and TensorRT that it needs or uses; each follows its own dependencies.
    pub libraries: Vec<Needed>,
    /// Reasons why it cannot be used; empty if it is complete.
    pub problems: Vec<String>,
    /// Shell command that installs the missing libraries.
    pub command: Option<String>,
}

/// A library of CUDA or TensorRT.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Needed {
    /// Name in the dependency, for example `libcudart.so.13`.
    pub name: String,
    /// Path, if found.
    pub file: Option<PathBuf>,
    /// Opened on first use by an operator: models without such operators run without it.
    pub is_optional: bool,
}

impl Provider {
    /// Whether all dependencies are installed. Only a session shows whether a device accepts it.
    pub fn is_usable(&self) -> bool {
        self.file.is_some() && self.problems.is_empty()
    }
}

impl Report {
    /// The report on one provider.
    pub fn of(&self, kind: ProviderKind) -> &Provider {
        match kind {
            ProviderKind::Cuda => &self.cuda,
            ProviderKind::Tensorrt => &self.tensorrt,
        }
    }
}

/// Directories where providers may be.
pub(super) fn candidates(places: &Places) -> Vec<PathBuf> {
    match &places.provider_directory {
        Some(named) => vec![named.clone()],
        None => {
            let beside = places.library.as_deref().and_then(Path::parent);
            let packages = places.site_packages.iter().map(|p| p.join("onnxruntime/capi"));
            // A configured runtime is used with its own providers only.
            beside.map(Path::to_path_buf).into_iter().chain(packages.filter(|_| !places.is_named)).collect()
        }
    }
}

/// Searches the providers and their dependencies.
pub fn report(places: &Places) -> Report {
    let beside = places.library.as_deref().and_then(Path::parent);
    let candidates = candidates(places);
    let directory = candidates.iter().find(|d| d.join(ProviderKind::Cuda.file()).is_file()).cloned();
    // Provider and runtime must be of the same build, so the runtime beside the providers is preferred.
    let own = directory.as_deref().filter(|d| Some(*d) != beside).and_then(runtime_in);
    let release_of = |path: &PathBuf| elf::read(File::open(path).ok()?).ok()?.release;
    let library = match &own {
        Some(own) if !places.is_named => Some(own.clone()),
        _ => places.library.clone(),
    };
    let release = library.as_ref().and_then(release_of);
    let misfit =
        own.as_ref().and_then(release_of).zip(release.clone()).filter(|(of_provider, used)| of_provider != used);
    let misfit = misfit.map(|(of_provider, used)| {
        let both = "both have to be of one release";
        format!("it is of ONNX Runtime {of_provider}, and the library that is used is {used}: {both}")
    });
    let of = |kind| provider(kind, directory.as_deref(), &candidates, places, release.as_deref(), misfit.clone());
    let cuda = places.plugin.as_deref().map_or_else(|| of(ProviderKind::Cuda), plugged);
    Report { cuda, tensorrt: of(ProviderKind::Tensorrt), library, release, directory }
}

/// `libonnxruntime.so`, with any version suffix.
fn runtime_in(directory: &Path) -> Option<PathBuf> {
    let names = std::fs::read_dir(directory).ok()?.take(4096).filter_map(|e| e.ok()?.file_name().into_string().ok());
    let found =
        names.filter(|n| n.strip_prefix("libonnxruntime.so").is_some_and(|n| n.is_empty() || n.starts_with('.')));
    Some(directory.join(found.min()?))
}

/// A plug-in that replaces the CUDA provider. Its dependencies are not checked.
fn plugged(library: &Path) -> Provider {
    let is_there = library.is_file();
    let problem = (!is_there).then(|| format!("there is no file '{}'", library.display()));
    Provider {
        kind: ProviderKind::Cuda,
        file: is_there.then(|| library.to_path_buf()),
        libraries: Vec::new(),
        problems: problem.into_iter().collect(),
        command: None,
    }
}

fn provider(
    kind: ProviderKind,
    directory: Option<&Path>,
    candidates: &[PathBuf],
    places: &Places,
    release: Option<&str>,
    misfit: Option<String>,
) -> Provider {
    let mut found = Provider { kind, file: None, libraries: Vec::new(), problems: Vec::new(), command: None };
    let name = kind.file();
    let Some(file) = directory.map(|d| d.join(&name)).filter(|f| f.is_file()) else {
        let looked: Vec<_> = candidates.iter().map(|c| format!("'{}'", c.display())).collect();
        let looked = if looked.is_empty() {
            "there is no directory to search".to_owned()
        } else {
            format!("not in {}", looked.join(", "))
        };
        found.problems.push(format!("there is no {name}: {looked}"));
        found.command = Some(of_provider(release));
        return found;
    };
    let needs = match File::open(&file).map_err(|_| "it cannot be opened").and_then(elf::read) {
        Ok(library) => library.needs,
        Err(why) => {
            found.problems.push(format!("'{}' cannot be used: {why}", file.display()));
            found.command = Some(of_provider(release));
            return found;
        }
    };
    found.problems.extend(misfit.map(|why| format!("'{}' cannot be used: {why}", file.display())));
    if !file.with_file_name(SHARED).is_file() {
        found.problems.push(format!("there is no {SHARED} beside '{}'", file.display()));
        found.command = Some(of_provider(release));
    }
    let directories = places.library_directories(directory);
    let cuda = major_of(&needs, "libcudart.so.");
    let mut search = Search { directories: &directories, cuda, seen: BTreeSet::new(), found: Vec::new() };
    for name in needs.iter().filter(|n| is_of_nvidia(n)) {
        search.add(name, false);
    }
    if kind == ProviderKind::Cuda {
        for name in opened_by_name(cuda) {
            search.add(&name, true);
        }
    }
    found.libraries = search.found;
    found.file = Some(file);
    let missing: Vec<_> = found.libraries.iter().filter(|l| l.file.is_none()).collect();
    for library in missing.iter().filter(|l| !l.is_optional) {
        found.problems.push(format!("{} is missing from the {} searched directories", library.name, directories.len()));
    }
    if !missing.is_empty() && found.command.is_none() {
        let is_tensorrt = |n: &str| n.starts_with("libnvinfer") || n.starts_with("libnvonnxparser");
        let mut packages = Vec::new();
        if missing.iter().any(|l| !is_tensorrt(&l.name)) {
            packages.extend(packages_of(cuda));
        }
        if missing.iter().any(|l| is_tensorrt(&l.name)) {
            let major = major_of(&needs, "libnvinfer.so.").unwrap_or(10);
            packages.push(format!("tensorrt-cu{}=={major}.*", cuda.unwrap_or(13)));
        }
        found.command = Some(pip(&packages));
    }
    found
}

/// Whether a library is of CUDA, cuDNN or TensorRT. `libcuda.so.1` is not: it comes with the kernel module.
fn is_of_nvidia(name: &str) -> bool {
    let prefixes = ["libcu", "libnv"];
    prefixes.iter().any(|p| name.starts_with(p)) && !name.starts_with("libcuda.so") && !name.starts_with("libnvidia")
        // Unrelated libraries with the same prefix.
        && !name.starts_with("libcurl") && !name.starts_with("libcups") && !name.starts_with("libcurses")
}

/// Libraries that the CUDA provider opens on first use, by version of CUDA.
fn opened_by_name(cuda: Option<u32>) -> Vec<String> {
    let Some(cuda) = cuda else { return Vec::new() };
    // cuFFT's major version is one less than CUDA's since CUDA 11; NVRTC of CUDA 11 is libnvrtc.so.11.2.
    let nvrtc = if cuda == 11 { "libnvrtc.so.11.2".to_owned() } else { format!("libnvrtc.so.{cuda}") };
    let cudnn = if cuda == 11 { 8 } else { 9 };
    vec![nvrtc, format!("libcufft.so.{}", cuda.saturating_sub(1)), format!("libcudnn.so.{cudnn}")]
}

fn major_of(needs: &[String], prefix: &str) -> Option<u32> {
    let number = needs.iter().find_map(|n| n.strip_prefix(prefix))?;
    number.split('.').next()?.parse().ok()
}

/// pip packages with the libraries of a CUDA version; unknown versions are named like those of 13.
fn packages_of(cuda: Option<u32>) -> Vec<String> {
    match cuda {
        Some(old @ (11 | 12)) => ["cuda-runtime", "cublas", "cufft", "curand", "cuda-nvrtc", "cudnn"]
            .iter()
            .map(|p| format!("nvidia-{p}-cu{old}"))
            .collect(),
        _ => {
            let cuda = cuda.unwrap_or(13);
            let of_cuda = ["cuda-runtime", "cublas", "cuda-nvrtc"].map(|p| format!("nvidia-{p}=={cuda}.*"));
            let others = [
                format!("nvidia-cufft=={}.*", cuda - 1),
                "nvidia-curand==10.*".to_owned(),
                format!("nvidia-cudnn-cu{cuda}==9.*"),
            ];
            of_cuda.into_iter().chain(others).collect()
        }
    }
}

/// Command that installs the wheel with both providers and the CUDA libraries.
fn of_provider(release: Option<&str>) -> String {
    let exactly = release.map(|r| format!("=={r}")).unwrap_or_default();
    pip(&[format!("onnxruntime-gpu[cuda,cudnn]{exactly}")])
}

fn pip(packages: &[String]) -> String {
    // Quoted, because `*` and `[` are special in a shell.
    let quoted: Vec<_> = packages.iter().map(|p| format!("'{p}'")).collect();
    format!("pip install {}", quoted.join(" "))
}

struct Search<'a> {
    directories: &'a [PathBuf],
    /// Version of CUDA that the provider was built for.
    cuda: Option<u32>,
    seen: BTreeSet<String>,
    found: Vec<Needed>,
}

/// Maximum depth of dependencies; cuFFT has two levels.
const DEPTH_MAX: usize = 16;

impl Search<'_> {
    fn add(&mut self, name: &str, is_optional: bool) {
        self.add_at(name, is_optional, 0);
    }

    fn add_at(&mut self, name: &str, is_optional: bool, depth: usize) {
        // A name with a directory is not a library name.
        if name.contains('/') || depth > DEPTH_MAX || !self.seen.insert(name.to_owned()) {
            return;
        }
        let fits = |file: &PathBuf| file.is_file() && places::is_for_cuda(file, self.cuda);
        let file = self.directories.iter().map(|d| d.join(name)).find(fits);
        let needs =
            file.as_ref().and_then(|f| elf::read(File::open(f).ok()?).ok()).map(|l| l.needs).unwrap_or_default();
        for needed in needs.iter().filter(|n| is_of_nvidia(n)) {
            self.add_at(needed, is_optional, depth + 1);
        }
        self.found.push(Needed { name: name.to_owned(), file, is_optional });
    }
}
