//! Opening a version: what it reports and rejects.

mod support;

use backend::{Backend, TensorIo};
use backend_onnx::OnnxBackend;
use protocol::pb::inference::{ModelConfig, ModelParameter};
use support::*;
use tensor::{Code, DataType, Error};

fn config() -> ModelConfig {
    ModelConfig::default()
}

fn refused(version: &Version, config: &ModelConfig) -> Error {
    version.open(config).err().expect("refused")
}

#[test]
fn io_has_names_datatypes_shapes_and_optional_inputs_model_repository_4_1() {
    let version = Version::new(&onnx(
        &[node("Add", &["I", "bias"], &["O"], &[])],
        &[tensor("I", F32, &[D::S("N"), D::N(3)]), tensor("bias", F32, &[D::N(3)])],
        &[tensor("O", F32, &[D::S("N"), D::N(3)])],
        &[initializer("bias", F32, &[3], &f32s([1.0; 3]).to_vec().expect("in memory"))],
    ));
    let io = version.open(&config()).expect("opens").io().expect("a file knows");
    let tell = |t: &TensorIo| (t.name.clone(), t.datatype, t.shape.to_vec(), t.optional);
    let f = Some(DataType::Fp32);
    assert_eq!(
        io.inputs.iter().map(tell).collect::<Vec<_>>(),
        [("I".into(), f, vec![-1, 3], false), ("bias".into(), f, vec![3], true)]
    );
    assert_eq!(io.outputs.iter().map(tell).collect::<Vec<_>>(), [("O".into(), f, vec![-1, 3], false)]);
}

#[test]
fn without_the_library_only_models_fail() {
    let version = Version::new(&identity(F32, &[]));
    for library in [None, Some("/nowhere/libonnxruntime.so".into())] {
        let error = OnnxBackend::new(library).open(&version.spec(&config())).err().expect("refused");
        assert_eq!(error.code(), Code::Unavailable);
        assert!(error.message().starts_with("ONNX Runtime is not available: "), "{error}");
    }
}

#[test]
fn a_broken_file_has_the_runtime_s_text() {
    let version = Version::new(b"this is not an onnx model");
    let path = version.0.join("model.onnx");
    let text = format!("onnx runtime error 7: Load model from {} failed:Protobuf parsing failed.", path.display());
    assert_eq!(refused(&version, &config()), Error::internal(text));
}

#[test]
fn a_sequence_output_is_rejected_with_its_type() {
    // ValueInfoProto { name: "S", type { sequence_type { elem_type { tensor_type { elem_type: FLOAT shape { } } } } } }
    let sequence = [&[0x0a, 1, b'S', 0x12, 10, 0x22, 8, 0x0a, 6, 0x0a, 4, 8, 1, 0x12, 0][..]].concat();
    let version = Version::new(&onnx(
        &[node("SequenceConstruct", &["I", "I"], &["S"], &[])],
        &[tensor("I", F32, &[])],
        &[sequence],
        &[],
    ));
    let error = refused(&version, &config());
    assert_eq!(error.code(), Code::Unsupported);
    let start = "Unsupported ONNX Type 'ONNX_TYPE_SEQUENCE' for I/O 'S', expected 'ONNX_TYPE_TENSOR'.";
    assert!(error.message().starts_with(start), "{error}");
}

#[test]
fn a_missing_file_is_named() {
    let version = Version::new(b"");
    std::fs::remove_file(version.0.join("model.onnx")).expect("remove");
    let text = format!("failed to stat file {}", version.0.join("model.onnx").display());
    assert_eq!(refused(&version, &config()), Error::internal(text));
}

#[test]
fn the_file_may_have_another_name_or_be_a_directory_inside_the_version_only() {
    let version = Version::new(&identity(F32, &[]));
    let named = |name: &str| ModelConfig { default_model_filename: name.into(), ..config() };
    std::fs::rename(version.0.join("model.onnx"), version.0.join("other.onnx")).expect("rename");
    assert!(version.open(&named("other.onnx")).is_ok());
    std::fs::create_dir(version.0.join("model.onnx")).expect("directory");
    std::fs::rename(version.0.join("other.onnx"), version.0.join("model.onnx/model.onnx")).expect("rename");
    assert!(version.open(&config()).is_ok());
    for name in ["../1/model.onnx", "/etc/passwd"] {
        assert_eq!(refused(&version, &named(name)).code(), Code::InvalidArg);
    }
}

#[test]
fn parameters_are_checked_before_the_model_is_read() {
    let version = Version::new(b"junk");
    let parameters = [("execution_mode".to_owned(), ModelParameter { string_value: "7".into() })].into_iter().collect();
    let text = "Invalid configuration value provided. Expected values for  execution_mode are 0 or 1 but got 7 .";
    assert_eq!(refused(&version, &ModelConfig { parameters, ..config() }), Error::invalid(text));
}

#[test]
fn sessions_with_their_own_threads_and_other_options_run_c_19() {
    let version = Version::new(&addsub(I32, &[D::S("N"), D::N(2)]));
    let s = addsub_signature(4, DataType::Int32, &[2]);
    let parameter = |k: &str, v: &str| (k.to_owned(), ModelParameter { string_value: v.into() });
    // Shrinking needs an arena, so these two are not combined.
    for arena in [parameter("enable_mem_arena", "0"), parameter("memory.enable_memory_arena_shrinkage", "cpu:0")] {
        let parameters = [
            parameter("intra_op_thread_count", "2"),
            parameter("execution_mode", "1"),
            parameter("enable_mem_pattern", "0"),
            parameter("session.use_device_allocator_for_initializers", "1"),
            arena,
        ];
        let model = version.load(&ModelConfig { parameters: parameters.into_iter().collect(), ..config() }, s.clone());
        let r = run(&*model, vec![request(&s, 1, &[(0, &[1, 2], i32s([1, 2])), (1, &[1, 2], i32s([3, 4]))])]);
        same(&r[0], 0, &[1, 2], i32s([4, 6]));
    }
}

/// Number of threads of this process.
fn threads() -> usize {
    std::fs::read_dir("/proc/self/task").map_or(0, Iterator::count)
}

#[test]
fn loaded_models_add_no_threads() {
    let version = Version::new(&addsub(I32, &[D::S("N"), D::N(2)]));
    let s = addsub_signature(4, DataType::Int32, &[2]);
    let first = version.load(&config(), s.clone());
    let before = threads();
    let more: Vec<_> = (0..20).map(|_| version.load(&config(), s.clone())).collect();
    // Other tests of this binary start and end meanwhile; twenty pools would have at least twenty threads.
    assert!(threads() < before + 15, "{before} threads before, {} after", threads());
    drop((first, more));
}
