//! Searches providers in directories of stand-ins: libraries without code that have the dependencies of the real ones.

#![cfg(target_os = "linux")]
#![allow(missing_docs)]

use backend_onnx::provider::{Places, ProviderKind, Report, report};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

/// A directory that is removed on drop.
struct Root(PathBuf);

impl Root {
    fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let n = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("provider-{}-{n}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a directory for tests");
        Self(path)
    }

    /// A library at `path` with dependencies; `release` becomes a symbol version, as in ONNX Runtime.
    fn library(&self, path: &str, needs: &[&str], release: Option<&str>) -> PathBuf {
        let to = self.0.join(path);
        let directory = to.parent().expect("inside the root");
        std::fs::create_dir_all(directory).expect("made");
        let name = to.file_name().expect("a name").to_string_lossy().into_owned();
        let source = self.0.join("stand_in.c");
        std::fs::write(&source, "int stand_in(void) { return 0; }\n").expect("written");
        let mut command = Command::new("cc");
        command.args(["-shared", "-fPIC", "-Wl,--no-as-needed", "-nostdlib"]).arg(&source);
        command.arg("-o").arg(&to).arg(format!("-Wl,-soname,{name}"));
        // The linker needs a file for each dependency, which is not kept.
        let seen = self.0.join("seen");
        std::fs::create_dir_all(&seen).expect("made");
        for needed in needs {
            let stub = seen.join(needed);
            let mut cc = Command::new("cc");
            cc.args(["-shared", "-fPIC", "-nostdlib"]).arg(&source).arg("-o").arg(&stub);
            assert!(cc.arg(format!("-Wl,-soname,{needed}")).status().expect("cc is there, as Rust needs it").success());
            command.arg(&stub);
        }
        if let Some(release) = release {
            let script = self.0.join("versions");
            std::fs::write(&script, format!("VERS_{release} {{ global: *; }};")).expect("written");
            command.arg(format!("-Wl,--version-script={}", script.display()));
        }
        assert!(command.status().expect("cc is there").success(), "{path} builds");
        to
    }

    fn remove(&self, path: &str) {
        std::fs::remove_file(self.0.join(path)).expect("it was there");
    }
}

impl Drop for Root {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

const CUDA: &[&str] = &["libcublasLt.so.13", "libcublas.so.13", "libcurand.so.10", "libcudart.so.13", "libcuda.so.1"];
const TENSORRT: &[&str] = &["libcublas.so.13", "libnvinfer.so.10", "libnvonnxparser.so.10", "libcudart.so.13"];
const PACKAGES: &str = "venv/lib/python3.11/site-packages";

/// A machine with npm's library without providers, and a virtual environment with the wheel and CUDA.
fn machine(release: &str) -> (Root, Places) {
    let root = Root::new();
    let library = root.library("npm/libonnxruntime.so.1", &[], Some("1.30.0"));
    let capi = format!("{PACKAGES}/onnxruntime/capi");
    root.library(&format!("{capi}/libonnxruntime.so.{release}"), &[], Some(release));
    root.library(&format!("{capi}/libonnxruntime_providers_shared.so"), &[], None);
    root.library(&format!("{capi}/libonnxruntime_providers_cuda.so"), CUDA, None);
    root.library(&format!("{capi}/libonnxruntime_providers_tensorrt.so"), TENSORRT, None);
    let cuda = ["libcudart.so.13", "libcublasLt.so.13", "libnvrtc.so.13", "libcufft.so.12"];
    for name in cuda {
        root.library(&format!("{PACKAGES}/nvidia/cu13/lib/{name}"), &[], None);
    }
    root.library(&format!("{PACKAGES}/nvidia/cu13/lib/libcublas.so.13"), &["libcublasLt.so.13"], None);
    root.library(&format!("{PACKAGES}/nvidia/cu13/lib/libcurand.so.10"), &["libcudart.so.13"], None);
    root.library(&format!("{PACKAGES}/nvidia/cudnn/lib/libcudnn.so.9"), &[], None);
    let places = places(&root, Some(library), &[]);
    (root, places)
}

/// Places of a machine that has only a virtual environment; libraries of the actual system are left out.
fn places(root: &Root, library: Option<PathBuf>, settings: &[(&str, &Path)]) -> Places {
    let settings: Vec<_> = settings.iter().map(|(k, v)| ((*k).to_owned(), v.to_string_lossy().into_owned())).collect();
    let venv = root.0.join("venv");
    let mut places =
        Places::of(library, &settings, |name| (name == "VIRTUAL_ENV").then(|| venv.clone().into_os_string()));
    places.libraries.clear();
    places
}

fn names(report: &Report, kind: ProviderKind, is_there: bool) -> Vec<&str> {
    let all = report.of(kind).libraries.iter().filter(|l| l.file.is_some() == is_there);
    all.map(|l| l.name.as_str()).collect()
}

#[test]
fn device_provider_of_pip_is_found_with_its_runtime_and_cuda() {
    let (root, places) = machine("1.30.0");
    let found = report(&places);
    let capi = root.0.join(PACKAGES).join("onnxruntime/capi");
    assert_eq!(
        found.library,
        Some(capi.join("libonnxruntime.so.1.30.0")),
        "providers are used with the runtime they came with"
    );
    assert_eq!((found.release.as_deref(), found.directory.as_deref()), (Some("1.30.0"), Some(&*capi)));
    assert!(found.cuda.is_usable(), "{found:?}");
    assert_eq!(found.cuda.command, None);
    // Each follows its dependencies, so they can be opened in order. The driver's library is not included.
    let cuda = [
        "libcublasLt.so.13",
        "libcublas.so.13",
        "libcudart.so.13",
        "libcurand.so.10",
        "libnvrtc.so.13",
        "libcufft.so.12",
        "libcudnn.so.9",
    ];
    assert_eq!(names(&found, ProviderKind::Cuda, true), cuda);
    assert!(names(&found, ProviderKind::Cuda, false).is_empty());
    assert_eq!(found.tensorrt.problems.len(), 2, "{found:?}");
    assert_eq!(names(&found, ProviderKind::Tensorrt, false), ["libnvinfer.so.10", "libnvonnxparser.so.10"]);
    assert_eq!(found.tensorrt.command.as_deref(), Some("pip install 'tensorrt-cu13==10.*'"));
    root.library(&format!("{PACKAGES}/tensorrt_libs/libnvinfer.so.10"), &[], None);
    root.library(&format!("{PACKAGES}/tensorrt_libs/libnvonnxparser.so.10"), &["libnvinfer.so.10"], None);
    assert!(report(&places).tensorrt.is_usable());
}

#[test]
fn device_provider_report_names_each_missing_library_and_the_command_to_install_it() {
    let check = |gone: &str, problem: &str, command: &str| {
        let (root, places) = machine("1.30.0");
        root.remove(&format!("{PACKAGES}/{gone}"));
        let found = report(&places);
        assert_eq!(found.cuda.problems.len(), 1, "{gone}: {found:?}");
        assert!(found.cuda.problems[0].contains(problem), "{gone}: {found:?}");
        assert_eq!(found.cuda.command.as_deref(), Some(command), "{gone}");
        assert!(!found.cuda.is_usable());
    };
    let whole = "pip install 'onnxruntime-gpu[cuda,cudnn]==1.30.0'";
    let libraries = "pip install 'nvidia-cuda-runtime==13.*' 'nvidia-cublas==13.*' 'nvidia-cuda-nvrtc==13.*' \
                     'nvidia-cufft==12.*' 'nvidia-curand==10.*' 'nvidia-cudnn-cu13==9.*'";
    check(
        "onnxruntime/capi/libonnxruntime_providers_cuda.so",
        "there is no libonnxruntime_providers_cuda.so: not in '",
        whole,
    );
    check(
        "onnxruntime/capi/libonnxruntime_providers_shared.so",
        "there is no libonnxruntime_providers_shared.so beside '",
        whole,
    );
    for name in ["libcudart.so.13", "libcublas.so.13", "libcublasLt.so.13", "libcurand.so.10"] {
        check(&format!("nvidia/cu13/lib/{name}"), &format!("{name} is missing"), libraries);
    }
    // A missing library that only some operators need is reported, and not a problem.
    let (root, places) = machine("1.30.0");
    root.remove(&format!("{PACKAGES}/nvidia/cudnn/lib/libcudnn.so.9"));
    let found = report(&places);
    assert!(found.cuda.is_usable());
    assert_eq!(
        (names(&found, ProviderKind::Cuda, false), found.cuda.command.as_deref()),
        (vec!["libcudnn.so.9"], Some(libraries))
    );
    // cuDNN for CUDA 12 has the same name in the same directory.
    let (root, places) = machine("1.30.0");
    let note = |cuda: u32| root.0.join(PACKAGES).join(format!("nvidia_cudnn_cu{cuda}-9.1.0.dist-info"));
    std::fs::create_dir_all(note(12)).expect("made");
    assert_eq!(names(&report(&places), ProviderKind::Cuda, false), ["libcudnn.so.9"]);
    std::fs::create_dir_all(note(13)).expect("made");
    assert_eq!(names(&report(&places), ProviderKind::Cuda, false), [""; 0], "whichever was installed last");
    let garbage = root.0.join(PACKAGES).join("onnxruntime/capi/libonnxruntime_providers_cuda.so");
    std::fs::write(garbage, "no library").expect("written");
    assert!(report(&places).cuda.problems[0].ends_with("cannot be used: its tables point outside of the file"));
}

#[test]
fn device_provider_is_searched_where_the_settings_say() {
    let (root, before) = machine("1.30.0");
    let npm = before.library.clone().expect("npm's");
    // The directory of npm's library precedes pip's packages.
    root.library("npm/libonnxruntime_providers_shared.so", &[], None);
    root.library("npm/libonnxruntime_providers_cuda.so", CUDA, None);
    let found = report(&before);
    assert_eq!((found.library.as_ref(), found.directory.as_deref()), (Some(&npm), npm.parent()));
    assert!(found.cuda.is_usable());
    assert!(found.tensorrt.problems[0].contains("libonnxruntime_providers_tensorrt.so"));
    // A directory with providers only is used with npm's library.
    root.library("cut/libonnxruntime_providers_shared.so", &[], None);
    root.library("cut/libonnxruntime_providers_cuda.so", CUDA, None);
    let cut = root.0.join("cut");
    let found = report(&places(&root, Some(npm.clone()), &[("provider-directory", &cut)]));
    assert_eq!((found.library.as_ref(), found.directory.as_ref()), (Some(&npm), Some(&cut)));
    assert!(found.cuda.is_usable(), "{found:?}");
    // An older runtime, for CUDA 12, is used with its own providers only.
    let older = root.library("old/libonnxruntime.so.1.24.1", &[], Some("1.24.1"));
    let found = report(&places(&root, Some(npm.clone()), &[("library", &older)]));
    assert_eq!((found.library.as_ref(), found.release.as_deref()), (Some(&older), Some("1.24.1")));
    assert_eq!(found.cuda.command.as_deref(), Some("pip install 'onnxruntime-gpu[cuda,cudnn]==1.24.1'"));
    root.library("old/libonnxruntime_providers_shared.so", &[], None);
    root.library("old/libonnxruntime_providers_cuda.so", &["libcudart.so.12", "libcublas.so.12"], None);
    let found = report(&places(&root, Some(npm), &[("library", &older)]));
    assert_eq!(
        names(&found, ProviderKind::Cuda, false),
        ["libcudart.so.12", "libcublas.so.12", "libnvrtc.so.12", "libcufft.so.11"]
    );
    assert!(found.cuda.command.is_some_and(|c| c.contains("'nvidia-cudnn-cu12'")));
}

#[test]
fn device_provider_of_another_release_than_the_configured_runtime_is_rejected() {
    let (root, before) = machine("1.31.1");
    assert_eq!(report(&before).release.as_deref(), Some("1.31.1"), "as a whole it is used");
    let npm = before.library.expect("npm's");
    let capi = root.0.join(PACKAGES).join("onnxruntime/capi");
    let found = report(&places(&root, None, &[("library", &npm), ("provider-directory", &capi)]));
    assert_eq!(found.library, Some(npm));
    let text = "it is of ONNX Runtime 1.31.1, and the library that is used is 1.30.0: both have to be of one release";
    assert!(found.cuda.problems[0].ends_with(text), "{found:?}");
}

#[test]
fn device_provider_report_without_providers_names_the_command_to_install_them() {
    let root = Root::new();
    let found = report(&places(&root, None, &[]));
    assert_eq!((found.library, found.release), (None, None));
    assert_eq!(found.cuda.problems, ["there is no libonnxruntime_providers_cuda.so: there is no directory to search"]);
    assert_eq!(found.cuda.command.as_deref(), Some("pip install 'onnxruntime-gpu[cuda,cudnn]'"));
    // On the actual machine, whatever is installed, nothing panics.
    let all = Places::of(None, &[], |name| std::env::var_os(name));
    let _ = report(&all);
}
