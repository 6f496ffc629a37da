//! Loads models with instances on a GPU, with a driver (the mock of crates/device/tests/mock) but no device that runs
//! anything. A process searches the driver once, so each case runs one of the ignored tests in a child process.

#![cfg(target_os = "linux")]
#![allow(missing_docs)]

mod support;

use backend::{Backend, MemoryLocation, Need, Opened};
use backend_onnx::OnnxBackend;
use protocol::pb::inference::model_instance_group::Kind;
use protocol::pb::inference::{ModelConfig, ModelInstanceGroup};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use support::*;
use tensor::{Code, DataType, Error};

/// A directory for the tests of this process, with the mock driver in it.
fn root() -> &'static Path {
    static MADE: OnceLock<PathBuf> = OnceLock::new();
    MADE.get_or_init(|| {
        let root = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("device-load-{}", std::process::id()));
        std::fs::create_dir_all(root.join("memory")).expect("a directory for tests");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../device/tests/mock/libcuda.c");
        compile(&source, &root.join("libcuda.so.1"), &["-Wl,-soname,libcuda.so.1", "-lpthread"]);
        root
    })
}

fn compile(source: &Path, to: &Path, more: &[&str]) {
    let mut command = Command::new("cc");
    command.args(["-shared", "-fPIC", "-O1"]).arg(source).arg("-o").arg(to).args(more);
    assert!(command.status().expect("cc is there, as Rust needs it").success(), "{} builds", to.display());
}

/// Runs an ignored test with a driver of two devices, without variables that lead to libraries of this machine.
fn child(test: &str, variables: &[(&str, &Path)]) {
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    command.args(["--exact", test, "--ignored", "--nocapture", "--test-threads=1"]);
    for name in ["LD_LIBRARY_PATH", "VIRTUAL_ENV", "CONDA_PREFIX", "HOME"] {
        command.env_remove(name);
    }
    command.env("PATH", "/nowhere").env("NEREID_LIBCUDA", root().join("libcuda.so.1"));
    command.env("NEREID_MOCK_CUDA_DEVICES", "2").env("NEREID_MOCK_CUDA_DIR", root().join("memory"));
    command.envs(variables.iter().copied());
    let output = command.output().expect("a child starts");
    let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && text.contains("1 passed"), "{test}: {:?}\n{text}", output.status);
}

fn on_gpu(gpus: &[i32]) -> ModelConfig {
    let group = ModelInstanceGroup {
        name: "m_0".into(),
        kind: Kind::Gpu.into(),
        count: 1,
        gpus: gpus.to_vec(),
        ..Default::default()
    };
    ModelConfig { name: "m".into(), instance_group: vec![group], ..ModelConfig::default() }
}

/// The error of a load with instances on the GPU.
fn refused(library: PathBuf, settings: &[(&str, &Path)]) -> Error {
    let version = Version::new(&identity(F32, &[D::N(1)]));
    let mut spec = version.spec(&on_gpu(&[1]));
    spec.settings = settings.iter().map(|(k, v)| ((*k).to_owned(), v.to_string_lossy().into_owned())).collect();
    let signature = signature(0, vec![input("I", DataType::Fp32, &[1])], vec![output("O", DataType::Fp32, &[1])]);
    let finish = |o: Box<dyn Opened>| {
        let needs = o.needs().expect("known");
        assert!(matches!(needs[..], [Need { place: MemoryLocation::Device(1), bytes: 1.. }]), "{needs:?}");
        o.finish(&on_gpu(&[1]), signature.into())
    };
    let error = OnnxBackend::new(Some(library)).open(&spec).and_then(finish);
    let error = error.map(drop).expect_err("no GPU runs anything here");
    assert_eq!(error.code(), Code::Unavailable, "{error}");
    error
}

#[test]
fn device_instances_without_a_provider_are_rejected_with_a_hint() {
    child("inner_without_a_provider", &[]);
}

#[test]
#[ignore = "run by device_instances_without_a_provider_…"]
fn inner_without_a_provider() {
    let text = refused(library(), &[]).message().to_owned();
    assert!(
        text.starts_with(
            "ONNX Runtime's CUDA provider cannot be used: there is no libonnxruntime_providers_cuda.so: not in '"
        ),
        "{text}"
    );
    assert!(text.ends_with("'nereid gpu' shows what this machine has and how to install the rest"), "{text}");
    // Instances on the host still load.
    let version = Version::new(&identity(F32, &[D::N(1)]));
    OnnxBackend::new(Some(library())).open(&version.spec(&ModelConfig::default())).map(drop).expect("serves");
    let nowhere = Path::new("/nowhere");
    let text = OnnxBackend::new(Some(library())).open(&{
        let mut spec = version.spec(&ModelConfig::default());
        spec.settings = vec![("provider-directory".into(), nowhere.to_string_lossy().into_owned())];
        spec
    });
    assert!(text.err().is_some_and(|e| e.message().contains("there is no such directory")));
}

#[test]
fn device_plans_without_tensorrt_are_rejected_with_alternatives() {
    child("inner_plan", &[]);
}

#[test]
#[ignore = "run by device_plans_without_tensorrt_…"]
fn inner_plan() {
    use protocol::pb::inference::{ModelInput, ModelOutput};
    let version = Version::new(b"what a plan may be");
    std::fs::rename(version.0.join("model.onnx"), version.0.join("model.plan")).expect("renamed");
    let number = 11; // TYPE_FP32
    let config = |gpus: &[i32]| ModelConfig {
        input: vec![ModelInput { name: "I".into(), data_type: number, dims: vec![4], ..Default::default() }],
        output: vec![ModelOutput { name: "O".into(), data_type: number, dims: vec![4], ..Default::default() }],
        ..if gpus.is_empty() { ModelConfig { name: "m".into(), ..ModelConfig::default() } } else { on_gpu(gpus) }
    };
    let refused = |config: &ModelConfig| {
        OnnxBackend::plans(Some(library())).open(&version.spec(config)).map(drop).expect_err("refused")
    };
    let on_cpu = refused(&config(&[]));
    assert!(
        on_cpu.message().starts_with("a TensorRT plan runs on GPUs only, and an instance is on the CPU. Other ways: "),
        "{on_cpu}"
    );
    let without = refused(&config(&[1]));
    let text = "ONNX Runtime's TensorRT provider cannot be used: there is no libonnxruntime_providers_tensorrt.so";
    assert!(
        without.message().starts_with(text) && without.message().contains(". Other ways: serve the ONNX file"),
        "{without}"
    );
    assert_eq!(without.code(), Code::Unavailable);
    // The directory of the generated model is removed.
    let left = std::fs::read_dir(std::env::temp_dir())
        .expect("readable")
        .flatten()
        .filter(|e| e.file_name().to_string_lossy().starts_with(&format!("nereid_providers_{}_", std::process::id())));
    assert_eq!(left.count(), 0);
}

/// The runtime opens providers that are not ONNX Runtime's through a directory of links, and reports what they lack.
#[test]
fn device_providers_that_are_other_libraries_are_rejected_with_the_runtime_s_error() {
    let directory = root().join("providers");
    std::fs::create_dir_all(&directory).expect("made");
    let source = root().join("empty.c");
    std::fs::write(&source, "int stand_in(void) { return 0; }\n").expect("written");
    for name in ["shared", "cuda"] {
        compile(&source, &directory.join(format!("libonnxruntime_providers_{name}.so")), &[]);
    }
    child("inner_other_libraries", &[("TEST_PROVIDERS", &directory)]);
}

#[test]
#[ignore = "run by device_providers_that_are_other_libraries_…"]
fn inner_other_libraries() {
    let directory = PathBuf::from(std::env::var_os("TEST_PROVIDERS").expect("set"));
    for _ in 0..2 {
        let text = refused(library(), &[("provider-directory", &directory)]).message().to_owned();
        assert!(
            text.starts_with(
                "unable to load the model on GPU 1: ONNX Runtime's CUDA provider cannot be used: onnx runtime error"
            ),
            "{text}"
        );
        assert!(
            text.contains("nereid_providers_") && text.contains("undefined symbol: "),
            "opened through links: {text}"
        );
    }
}

/// With the real provider and CUDA (`NEREID_TEST_PROVIDERS` and `NEREID_TEST_PACKAGES`, a virtual environment), all of
/// it is opened, and CUDA rejects the mock driver. Skipped without them: they have two gigabytes.
#[test]
fn device_provider_of_nvidia_is_appended_and_its_error_is_a_load_error() {
    let variable = |name| std::env::var_os(name).map(PathBuf::from);
    let (Some(providers), Some(packages)) = (variable("NEREID_TEST_PROVIDERS"), variable("NEREID_TEST_PACKAGES"))
    else {
        println!("not run: NEREID_TEST_PROVIDERS and NEREID_TEST_PACKAGES are not set");
        return;
    };
    child("inner_real_provider", &[("TEST_PROVIDERS", &providers), ("VIRTUAL_ENV", &packages)]);
    // The provider's files alone, with npm's runtime.
    let alone = root().join("alone");
    std::fs::create_dir_all(&alone).expect("made");
    for name in ["shared", "cuda", "tensorrt"].map(|n| format!("libonnxruntime_providers_{n}.so")) {
        std::os::unix::fs::symlink(providers.join(&name), alone.join(&name)).expect("linked");
    }
    child("inner_real_provider", &[("TEST_PROVIDERS", &alone), ("VIRTUAL_ENV", &packages)]);
}

#[test]
#[ignore = "run by device_provider_of_nvidia_…"]
fn inner_real_provider() {
    let directory = PathBuf::from(std::env::var_os("TEST_PROVIDERS").expect("set"));
    for _ in 0..2 {
        let text = refused(library(), &[("provider-directory", &directory)]).message().to_owned();
        println!("{text}");
        assert!(text.starts_with("unable to load the model on GPU 1: "), "{text}");
        assert!(text.contains("CUDA failure"), "CUDA itself refused: {text}");
    }
}
