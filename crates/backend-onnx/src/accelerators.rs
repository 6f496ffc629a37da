//! Translates a configuration to a device session's providers and options (C-17, C-21). Pure, but for plugin paths.
//!
//! Keys and values are Triton's. Addresses are rejected: some options of the CUDA provider are pointers printed as
//! numbers, and a configuration may come over the network. Paths that the provider writes to are chosen by `cache`.

use crate::options::{boolean, integer, library_of_repository};
use crate::provider::{Appended, ProviderKind};
use protocol::pb::inference::{ModelConfig, model_optimization_policy::execution_accelerators::Accelerator};
use std::path::Path;
use tensor::{Error, Result};

/// Options of the CUDA provider that are addresses in this process: streams and callbacks.
const ADDRESSES: [&str; 6] = [
    "user_compute_stream",
    "has_user_compute_stream",
    "gpu_external_alloc",
    "gpu_external_free",
    "gpu_external_empty_cache",
    "default_memory_arena_cfg",
];

/// Options that let a provider capture CUDA graphs.
const GRAPHS_OF_CUDA: &str = "enable_cuda_graph";
const GRAPHS_OF_TENSORRT: &str = "trt_cuda_graph_enable";

/// The provider that captures CUDA graphs, if any; TensorRT before CUDA.
pub(crate) fn captures(providers: &[Appended]) -> Option<ProviderKind> {
    let asks = |p: &&Appended| {
        p.options
            .iter()
            .any(|(key, value)| [GRAPHS_OF_CUDA, GRAPHS_OF_TENSORRT].contains(&key.as_str()) && value == "1")
    };
    providers.iter().find(asks).map(|p| p.kind)
}

/// Syntax of a value of the TensorRT accelerator.
#[derive(Clone, Copy)]
enum Form {
    Boolean,
    Integer,
    Text,
    /// A path to write to: validated and ignored, because caches have their own directory.
    Written,
    /// A file name without a directory.
    Name,
    Libraries,
}

/// Parameters of the TensorRT accelerator: key, option of the provider, syntax.
const TENSORRT: [(&str, &str, Form); 29] = [
    ("max_workspace_size_bytes", "trt_max_workspace_size", Form::Integer),
    ("int8_calibration_table_name", "trt_int8_calibration_table_name", Form::Name),
    ("int8_use_native_calibration_table", "trt_int8_use_native_calibration_table", Form::Boolean),
    ("trt_max_partition_iterations", "trt_max_partition_iterations", Form::Integer),
    ("trt_min_subgraph_size", "trt_min_subgraph_size", Form::Integer),
    ("trt_dla_enable", "trt_dla_enable", Form::Boolean),
    ("trt_dla_core", "trt_dla_core", Form::Integer),
    ("trt_engine_cache_enable", "trt_engine_cache_enable", Form::Boolean),
    ("trt_engine_cache_path", "trt_engine_cache_path", Form::Written),
    ("trt_engine_cache_prefix", "trt_engine_cache_prefix", Form::Name),
    ("trt_dump_subgraphs", "trt_dump_subgraphs", Form::Boolean),
    ("trt_force_sequential_engine_build", "trt_force_sequential_engine_build", Form::Boolean),
    ("trt_context_memory_sharing_enable", "trt_context_memory_sharing_enable", Form::Boolean),
    ("trt_layer_norm_fp32_fallback", "trt_layer_norm_fp32_fallback", Form::Boolean),
    ("trt_timing_cache_enable", "trt_timing_cache_enable", Form::Boolean),
    ("trt_timing_cache_path", "trt_timing_cache_path", Form::Written),
    ("trt_force_timing_cache", "trt_force_timing_cache", Form::Boolean),
    ("trt_detailed_build_log", "trt_detailed_build_log", Form::Boolean),
    ("trt_build_heuristics_enable", "trt_build_heuristics_enable", Form::Boolean),
    ("trt_sparsity_enable", "trt_sparsity_enable", Form::Boolean),
    ("trt_builder_optimization_level", "trt_builder_optimization_level", Form::Integer),
    ("trt_auxiliary_streams", "trt_auxiliary_streams", Form::Integer),
    ("trt_tactic_sources", "trt_tactic_sources", Form::Text),
    ("trt_extra_plugin_lib_paths", "trt_extra_plugin_lib_paths", Form::Libraries),
    ("trt_profile_min_shapes", "trt_profile_min_shapes", Form::Text),
    ("trt_profile_max_shapes", "trt_profile_max_shapes", Form::Text),
    ("trt_profile_opt_shapes", "trt_profile_opt_shapes", Form::Text),
    (GRAPHS_OF_TENSORRT, GRAPHS_OF_TENSORRT, Form::Boolean),
    ("trt_ep_context_embed_mode", "trt_ep_context_embed_mode", Form::Integer),
];

/// Parameters that let the TensorRT provider write a model, which goes to the cache directory.
const DUMPS: [(&str, Form); 2] =
    [("trt_dump_ep_context_model", Form::Boolean), ("trt_ep_context_file_path", Form::Written)];

/// Maximum bytes of a value and number of values of an accelerator; profiles of a model with many inputs are long.
const VALUE_BYTES_MAX: usize = 64 << 10;
const VALUES_MAX: usize = 256;

/// The providers of a session on `device`: the configured accelerators, then always CUDA.
///
/// # Errors
/// INVALID_ARG with Triton's texts.
pub(crate) fn providers(config: &ModelConfig, model_directory: &Path, device: u32) -> Result<Vec<Appended>> {
    let listed = config.optimization.iter().filter_map(|o| o.execution_accelerators.as_ref());
    let mut providers = Vec::new();
    let mut cuda = vec![("device_id".to_owned(), device.to_string())];
    for accelerator in listed.flat_map(|a| &a.gpu_execution_accelerator) {
        let long = accelerator.parameters.values().any(|v| v.len() > VALUE_BYTES_MAX);
        if long || accelerator.parameters.len() > VALUES_MAX {
            return Err(Error::invalid(format!(
                "the parameters of Execution Accelerator '{}' are too many or too long: at most {VALUES_MAX} of \
                 {VALUE_BYTES_MAX} bytes are supported",
                accelerator.name
            )));
        }
        match accelerator.name.as_str() {
            "tensorrt" => {
                providers.push(Appended::new(ProviderKind::Tensorrt, tensorrt(accelerator, model_directory, device)?));
            }
            "cuda" => of_cuda(accelerator, &mut cuda)?,
            name => return Err(Error::invalid(format!("unknown Execution Accelerator '{name}' is requested"))),
        }
    }
    deprecated(config, &mut cuda)?;
    providers.push(Appended::new(ProviderKind::Cuda, cuda));
    Ok(providers)
}

fn tensorrt(accelerator: &Accelerator, model_directory: &Path, device: u32) -> Result<Vec<(String, String)>> {
    let mut options = vec![("device_id".to_owned(), device.to_string())];
    for (key, value) in &accelerator.parameters {
        if key == "precision_mode" {
            let switch = match value.as_str() {
                "FP32" => continue,
                "FP16" => "trt_fp16_enable",
                "BF16" => "trt_bf16_enable",
                "INT8" => "trt_int8_enable",
                _ => return Err(Error::invalid(format!("unsupported precision mode '{value}' is requested"))),
            };
            options.push((switch.into(), "1".into()));
            continue;
        }
        let known = TENSORRT.iter().find(|(k, ..)| k == key).map(|&(_, option, form)| (option, form));
        let known = known.or_else(|| DUMPS.iter().find(|(k, _)| k == key).map(|&(option, form)| (option, form)));
        let Some((option, form)) = known else {
            return Err(Error::invalid(format!(
                "unknown parameter '{key}' is provided for TensorRT Execution Accelerator"
            )));
        };
        let value = match form {
            Form::Boolean => u8::from(boolean(value)?).to_string(),
            Form::Integer => integer(value)?.to_string(),
            Form::Text => value.clone(),
            Form::Written => continue,
            Form::Name => {
                if value.contains('/') || value.contains('\0') || value.starts_with('.') {
                    return Err(Error::invalid(format!(
                        "{key} '{value}' has to be the name of a file, without a directory"
                    )));
                }
                value.clone()
            }
            Form::Libraries => {
                let paths = value.split(';').filter(|p| !p.is_empty());
                let found = paths.map(|p| library_of_repository("plugin library", p, model_directory));
                found.collect::<Result<Vec<_>>>()?.join(";")
            }
        };
        options.push((option.into(), value));
    }
    Ok(options)
}

fn of_cuda(accelerator: &Accelerator, options: &mut Vec<(String, String)>) -> Result<()> {
    for (key, value) in &accelerator.parameters {
        if ADDRESSES.contains(&key.as_str()) {
            return Err(Error::invalid(format!(
                "parameter '{key}' of the CUDA Execution Accelerator is an address in the memory of the server: a \
                 configuration cannot set it"
            )));
        }
        let value = match key.as_str() {
            // The instance group decides.
            "device_id" => continue,
            GRAPHS_OF_CUDA | "do_copy_in_default_stream" | "use_ep_level_unified_stream" => {
                u8::from(boolean(value)?).to_string()
            }
            _ => value.clone(),
        };
        options.push((key.clone(), value));
    }
    Ok(())
}

/// Four model parameters that are older than accelerators. As in Triton, a model with any parameter at all gets them,
/// with their defaults where unset, and they override the accelerator's.
fn deprecated(config: &ModelConfig, options: &mut Vec<(String, String)>) -> Result<()> {
    if config.parameters.is_empty() {
        return Ok(());
    }
    let parameter = |key: &str| config.parameters.get(key).map(|p| p.string_value.as_str());
    let search = match parameter("cudnn_conv_algo_search").map(integer).transpose()?.unwrap_or(0) {
        0 => "EXHAUSTIVE",
        1 => "HEURISTIC",
        2 => "DEFAULT",
        n => return Err(Error::invalid(format!("unsupported cudnn_conv_algo_search value '{n}' is requested"))),
    };
    let extend = match parameter("arena_extend_strategy").map(integer).transpose()?.unwrap_or(0) {
        0 => "kNextPowerOfTwo",
        1 => "kSameAsRequested",
        n => return Err(Error::invalid(format!("unsupported arena_extend_strategy value '{n}' is requested"))),
    };
    let limit = match parameter("gpu_mem_limit") {
        Some(text) => unsigned(text)?,
        None => u64::MAX,
    };
    let copy = parameter("do_copy_in_default_stream").map(integer).transpose()?.unwrap_or(1) != 0;
    for (key, value) in [
        ("cudnn_conv_algo_search", search.to_owned()),
        ("gpu_mem_limit", limit.to_string()),
        ("arena_extend_strategy", extend.to_owned()),
        ("do_copy_in_default_stream", u8::from(copy).to_string()),
    ] {
        options.retain(|(k, _)| k != key);
        options.push((key.to_owned(), value));
    }
    Ok(())
}

fn unsigned(text: &str) -> Result<u64> {
    let digits = text.trim_start().bytes().take_while(u8::is_ascii_digit).count();
    let number = text.trim_start().get(..digits).and_then(|n| n.parse().ok());
    number.ok_or_else(|| Error::invalid(format!("failed to convert '{text}' to integral number")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use protocol::pb::inference::{ModelOptimizationPolicy, ModelParameter, model_optimization_policy as policy};

    /// Each accelerator is `name key=value key=value`.
    fn config(accelerators: &[&str], parameters: &[(&str, &str)]) -> ModelConfig {
        let read = |text: &&str| {
            let mut words = text.split(' ');
            let name = words.next().unwrap_or_default().to_owned();
            let pairs = words.map(|w| w.split_once('=').expect("key=value"));
            Accelerator { name, parameters: pairs.map(|(k, v)| (k.to_owned(), v.to_owned())).collect() }
        };
        let gpu_execution_accelerator = accelerators.iter().map(read).collect();
        let accelerators = policy::ExecutionAccelerators { gpu_execution_accelerator, ..Default::default() };
        ModelConfig {
            optimization: Some(ModelOptimizationPolicy {
                execution_accelerators: Some(accelerators),
                ..Default::default()
            }),
            parameters: parameters
                .iter()
                .map(|(k, v)| ((*k).to_owned(), ModelParameter { string_value: (*v).to_owned() }))
                .collect(),
            ..ModelConfig::default()
        }
    }

    /// Prints `tensorrt a=1 b=2 | cuda c=3`.
    fn printed(accelerators: &[&str], parameters: &[(&str, &str)]) -> Result<String> {
        let providers = providers(&config(accelerators, parameters), Path::new("/usr/lib"), 1)?;
        let print = |p: &Appended| {
            let options: Vec<_> = p.options.iter().map(|(k, v)| format!(" {k}={v}")).collect();
            format!("{}{}", p.kind.name(), options.concat())
        };
        Ok(providers.iter().map(print).collect::<Vec<_>>().join(" | "))
    }

    #[test]
    fn device_providers_are_in_configured_order_with_cuda_last_c_17() {
        let check = |accelerators: &[&str], expected: &str| {
            assert_eq!(printed(accelerators, &[]).as_deref(), Ok(expected), "{accelerators:?}");
        };
        check(&[], "cuda device_id=1");
        check(&["tensorrt"], "tensorrt device_id=1 | cuda device_id=1");
        check(&["cuda", "tensorrt"], "tensorrt device_id=1 | cuda device_id=1");
        check(
            &["cuda cudnn_conv_use_max_workspace=0 use_tf32=1"],
            "cuda device_id=1 cudnn_conv_use_max_workspace=0 use_tf32=1",
        );
        check(
            &["cuda do_copy_in_default_stream=OFF use_ep_level_unified_stream=true device_id=7"],
            "cuda device_id=1 do_copy_in_default_stream=0 use_ep_level_unified_stream=1",
        );
    }

    #[test]
    fn device_providers_that_capture_graphs_are_detected() {
        let check = |accelerators: &[&str], expected: Option<ProviderKind>| {
            let providers = providers(&config(accelerators, &[]), Path::new("/usr/lib"), 1).expect("reads");
            assert_eq!(captures(&providers), expected, "{accelerators:?}");
        };
        check(&["cuda", "tensorrt"], None);
        check(&["cuda enable_cuda_graph=false", "tensorrt trt_cuda_graph_enable=0"], None);
        check(&["cuda enable_cuda_graph=true"], Some(ProviderKind::Cuda));
        check(&["tensorrt trt_cuda_graph_enable=ON"], Some(ProviderKind::Tensorrt));
        check(&["cuda enable_cuda_graph=1", "tensorrt trt_cuda_graph_enable=1"], Some(ProviderKind::Tensorrt));
    }

    #[test]
    fn device_options_of_tensorrt_are_triton_s_parameters_c_17() {
        let check = |parameters: &str, expected: &str| {
            let expected = format!("tensorrt device_id=1{expected} | cuda device_id=1");
            assert_eq!(printed(&[&format!("tensorrt {parameters}")], &[]), Ok(expected), "{parameters}");
        };
        check("precision_mode=FP32", "");
        check("precision_mode=FP16", " trt_fp16_enable=1");
        check("precision_mode=BF16", " trt_bf16_enable=1");
        check("precision_mode=INT8", " trt_int8_enable=1");
        check("max_workspace_size_bytes=1073741824", " trt_max_workspace_size=1073741824");
        check("int8_calibration_table_name=calib.flatbuffers", " trt_int8_calibration_table_name=calib.flatbuffers");
        check("int8_use_native_calibration_table=on", " trt_int8_use_native_calibration_table=1");
        check("trt_builder_optimization_level=3levels", " trt_builder_optimization_level=3");
        check("trt_profile_min_shapes=x:1x3", " trt_profile_min_shapes=x:1x3");
        // Paths that the provider writes to are ignored.
        check("trt_engine_cache_enable=1 trt_engine_cache_path=/etc", " trt_engine_cache_enable=1");
        check("trt_dump_ep_context_model=0 trt_ep_context_file_path=/etc/passwd", " trt_dump_ep_context_model=0");
        for (key, option, form) in TENSORRT {
            let given = match form {
                Form::Boolean => "true",
                Form::Integer => "1",
                Form::Text | Form::Name => "x",
                Form::Written | Form::Libraries => continue,
            };
            let expected = if matches!(form, Form::Boolean) { "1" } else { given };
            check(&format!("{key}={given}"), &format!(" {option}={expected}"));
        }
    }

    #[test]
    fn device_options_with_invalid_values_are_rejected_c_17() {
        let check = |accelerator: &str, text: &str| {
            assert_eq!(printed(&[accelerator], &[]), Err(Error::invalid(text.to_owned())), "{accelerator}");
        };
        check("openvino", "unknown Execution Accelerator 'openvino' is requested");
        check("tensorrt precision_mode=FP4", "unsupported precision mode 'FP4' is requested");
        check(
            "tensorrt precision=FP16",
            "unknown parameter 'precision' is provided for TensorRT Execution Accelerator",
        );
        check(
            "tensorrt trt_fp16_enable=1",
            "unknown parameter 'trt_fp16_enable' is provided for TensorRT Execution Accelerator",
        );
        check("tensorrt trt_dla_enable=maybe", "failed to convert 'maybe' to boolean");
        check("tensorrt trt_dla_core=first", "failed to convert 'first' to integral number");
        check(
            "tensorrt trt_engine_cache_prefix=../x",
            "trt_engine_cache_prefix '../x' has to be the name of a file, without a directory",
        );
        check("cuda enable_cuda_graph=maybe", "failed to convert 'maybe' to boolean");
        check("cuda do_copy_in_default_stream=2", "failed to convert '2' to boolean");
        for key in ADDRESSES {
            let refused = printed(&[&format!("cuda {key}=4096")], &[]).expect_err("refused");
            assert!(
                refused.message().ends_with("an address in the memory of the server: a configuration cannot set it"),
                "{key}"
            );
        }
        let plugin = printed(&["tensorrt trt_extra_plugin_lib_paths=/etc/passwd"], &[]).expect_err("refused");
        assert!(plugin.message().starts_with("unable to load plugin library '/etc/passwd': "), "{plugin}");
        let long = "x".repeat(VALUE_BYTES_MAX + 1);
        assert!(printed(&[&format!("tensorrt trt_tactic_sources={long}")], &[]).is_err());
    }

    #[test]
    fn device_options_of_deprecated_parameters_override_the_accelerator_c_21() {
        let defaults = "cudnn_conv_algo_search=EXHAUSTIVE gpu_mem_limit=18446744073709551615 \
                        arena_extend_strategy=kNextPowerOfTwo do_copy_in_default_stream=1";
        let check = |accelerator: &str, parameters: &[(&str, &str)], expected: &str| {
            assert_eq!(printed(&[accelerator], parameters), Ok(expected.to_owned()), "{parameters:?}");
        };
        check("cuda gpu_mem_limit=5", &[], "cuda device_id=1 gpu_mem_limit=5");
        check("cuda gpu_mem_limit=5 use_tf32=0", &[("other", "x")], &format!("cuda device_id=1 use_tf32=0 {defaults}"));
        let all = [
            ("cudnn_conv_algo_search", "2"),
            ("gpu_mem_limit", "1073741824"),
            ("arena_extend_strategy", "1"),
            ("do_copy_in_default_stream", "0"),
        ];
        let set = "cuda device_id=1 cudnn_conv_algo_search=DEFAULT gpu_mem_limit=1073741824 \
                   arena_extend_strategy=kSameAsRequested do_copy_in_default_stream=0";
        check("cuda", &all, set);
        let refused =
            |key: &str, value: &str| printed(&["cuda"], &[(key, value)]).expect_err("refused").message().to_owned();
        assert_eq!(refused("cudnn_conv_algo_search", "3"), "unsupported cudnn_conv_algo_search value '3' is requested");
        assert_eq!(refused("arena_extend_strategy", "-1"), "unsupported arena_extend_strategy value '-1' is requested");
        assert_eq!(refused("gpu_mem_limit", "all"), "failed to convert 'all' to integral number");
    }
}
