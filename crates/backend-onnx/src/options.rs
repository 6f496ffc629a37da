//! Reads the options of sessions from a configuration and `--backend-config=onnxruntime,…` (C-16 … C-20).
//!
//! Unknown keys are ignored, as in Triton; invalid values are rejected with its texts.

use crate::ffi::{GraphLevel, INTRA_SPINNING, PoolThreads, SessionOptions};
use memory::beneath;
use protocol::pb::inference::{ModelConfig, model_config};
use std::io::ErrorKind;
use std::path::Path;
use tensor::{Error, Result};

/// Setting of `--backend-config=onnxruntime,…`: whether models whose configuration names no threads get helpers.
pub(crate) const ADAPTIVE_THREADS: &str = "adaptive-threads";

/// Maximum number of threads of a pool, shared or a model's own; the pool starts all of them when it is created.
const POOL_THREADS_MAX: i64 = 1024;

#[derive(Debug, Default, PartialEq)]
pub(crate) struct Options {
    pub(crate) session: SessionOptions,
    /// Config entries of every run.
    pub(crate) run: Vec<(String, String)>,
}

pub(crate) fn pool_threads(settings: &[(String, String)]) -> Result<PoolThreads> {
    if !global_pool(settings)? {
        return Ok(PoolThreads::default());
    }
    let count = |key| {
        let n = setting(settings, key).map(integer).transpose()?;
        Ok::<_, Error>(usize::try_from(threads(key, n, "--backend-config=onnxruntime")?).unwrap_or(0))
    };
    Ok(PoolThreads { intra: count("intra_op_thread_count")?, inter: count("inter_op_thread_count")? })
}

pub(crate) fn read(config: &ModelConfig, model_directory: &Path, settings: &[(String, String)]) -> Result<Options> {
    let mut options = Options::default();
    let session = &mut options.session;
    let parameter = |key: &str| config.parameters.get(key).map(|p| p.string_value.as_str());
    let optimization = config.optimization.as_ref();
    session.graph_level = match optimization.and_then(|o| o.graph.as_ref()).map_or(0, |g| g.level) {
        -1 => GraphLevel::Basic,
        1 => GraphLevel::Extended,
        2 => GraphLevel::Off,
        _ => GraphLevel::All,
    };
    // Accelerators of GPU instances are read when a session is loaded on a device (`accelerators`).
    if let Some(accelerator) =
        optimization.and_then(|o| o.execution_accelerators.as_ref()).and_then(|a| a.cpu_execution_accelerator.first())
    {
        return Err(Error::invalid(format!("unknown Execution Accelerator '{}' is requested", accelerator.name)));
    }
    let count = |key: &str| parameter(key).map(integer).transpose();
    let (intra, inter) = (count("intra_op_thread_count")?, count("inter_op_thread_count")?);
    session.parallel = match count("execution_mode")? {
        None | Some(0) => false,
        Some(1) => true,
        Some(n) => {
            // The spaces are those of Triton's text.
            return Err(Error::invalid(format!(
                "Invalid configuration value provided. Expected values for  execution_mode are 0 or 1 but got {n} ."
            )));
        }
    };
    // Only a model that configures counts gets its own pool: hundreds of models must not have hundreds of pools.
    let own_pool = intra.is_some() || inter.is_some() || session.parallel;
    if own_pool && !global_pool(settings)? {
        let of_model = format!("model '{}'", config.name);
        session.threads = Some((
            threads("intra_op_thread_count", intra, &of_model)?,
            threads("inter_op_thread_count", inter, &of_model)?,
        ));
    }
    session.spins = parameter(INTRA_SPINNING).map(boolean).transpose()?;
    let adapts = setting(settings, ADAPTIVE_THREADS).map(boolean).transpose()?.unwrap_or(true);
    session.has_helpers = adapts && !own_pool && !global_pool(settings)?;
    session.arena = parameter("enable_mem_arena").map(boolean).transpose()?;
    session.pattern = parameter("enable_mem_pattern").map(boolean).transpose()?;
    let allocator = "session.use_device_allocator_for_initializers";
    if let Some(value) = parameter(allocator) {
        session.entries.push((allocator.into(), value.into()));
    }
    let shrinkage = "memory.enable_memory_arena_shrinkage";
    if let Some(value) = parameter(shrinkage) {
        options.run.push((shrinkage.into(), value.into()));
    }
    for library in config.model_operations.iter().flat_map(|o| &o.op_library_filename) {
        session.op_libraries.push(library_of_repository("op library", library, model_directory)?);
    }
    Ok(options)
}

/// A thread count for the runtime, where 0 = its default.
pub(crate) fn threads(key: &str, count: Option<i64>, of: &str) -> Result<i32> {
    let n = count.unwrap_or(0).max(0);
    if n > POOL_THREADS_MAX {
        return Err(Error::invalid(format!("{key} of {of} is {n}: at most {POOL_THREADS_MAX} is supported")));
    }
    Ok(i32::try_from(n).unwrap_or(0))
}

/// Graph inputs that the sequence batcher fills instead of clients: (name, whether it is a control).
pub(crate) fn sequence_inputs(config: &ModelConfig) -> Vec<(&str, bool)> {
    let Some(model_config::SchedulingChoice::SequenceBatching(sequence)) = &config.scheduling_choice else {
        return Vec::new();
    };
    // Counted as in Triton: one for each kind, although a tensor may have two.
    let controls = sequence.control_input.iter().flat_map(|c| c.control.iter().map(|_| (c.name.as_str(), true)));
    controls.chain(sequence.state.iter().map(|s| (s.input_name.as_str(), false))).collect()
}

pub(crate) fn setting<'a>(settings: &'a [(String, String)], key: &str) -> Option<&'a str> {
    // The last setting wins, as on the command line.
    settings.iter().rev().find(|(k, _)| k == key).map(|(_, v)| v.as_str())
}

fn global_pool(settings: &[(String, String)]) -> Result<bool> {
    Ok(setting(settings, "enable-global-threadpool").map(boolean).transpose()?.unwrap_or(false))
}

/// Parses `true`, `on`, `1` and their opposites, in any case.
pub(crate) fn boolean(text: &str) -> Result<bool> {
    match text.to_ascii_lowercase().as_str() {
        "true" | "on" | "1" => Ok(true),
        "false" | "off" | "0" => Ok(false),
        _ => Err(Error::invalid(format!("failed to convert '{text}' to boolean"))),
    }
}

/// Parses the integer at the beginning of a text.
pub(crate) fn integer(text: &str) -> Result<i64> {
    let trimmed = text.trim_start();
    let sign = usize::from(trimmed.starts_with(['-', '+']));
    let digits = trimmed.chars().skip(sign).take_while(char::is_ascii_digit).count();
    let number = trimmed.get(..sign + digits).filter(|_| digits > 0).and_then(|n| n.parse().ok());
    number.ok_or_else(|| Error::invalid(format!("failed to convert '{text}' to integral number")))
}

/// Libraries of operators or plugins are code, so only files of the model repository are loaded (memory.md 5.2, R2).
pub(crate) fn library_of_repository(what: &str, name: &str, model_directory: &Path) -> Result<String> {
    let refused = |why: &str| Error::invalid(format!("unable to load {what} '{name}': {why}"));
    let path = model_directory.join(name);
    let within = beneath::contains(model_directory, &path);
    let elsewhere = |e: std::io::Error| match e.kind() {
        ErrorKind::CrossesDevices => beneath::contains(&model_directory.join(".."), &path),
        _ => Err(e),
    };
    within.or_else(elsewhere).map_err(|e| match e.kind() {
        ErrorKind::CrossesDevices => refused("it is outside the model repository"),
        _ => refused(&e.to_string()),
    })?;
    let path = beneath::usable(&path).map_err(|e| refused(&e.to_string()))?;
    Ok(path.to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use protocol::pb::inference::{ModelOptimizationPolicy, ModelParameter, model_optimization_policy as policy};

    fn config(parameters: &[(&str, &str)]) -> ModelConfig {
        let parameters = parameters
            .iter()
            .map(|(k, v)| ((*k).to_owned(), ModelParameter { string_value: (*v).to_owned() }))
            .collect();
        ModelConfig { parameters, ..ModelConfig::default() }
    }

    fn read_with(parameters: &[(&str, &str)], settings: &[(&str, &str)]) -> Result<Options> {
        let settings: Vec<_> = settings.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        read(&config(parameters), Path::new("/"), &settings)
    }

    fn refused(parameters: &[(&str, &str)], text: &str) {
        assert_eq!(read_with(parameters, &[]).err(), Some(Error::invalid(text.to_owned())));
    }

    #[test]
    fn graph_level_maps_as_in_triton_c_16() {
        for (level, expected) in [
            (0, GraphLevel::All),
            (-1, GraphLevel::Basic),
            (1, GraphLevel::Extended),
            (2, GraphLevel::Off),
            (7, GraphLevel::All),
        ] {
            let optimization = ModelOptimizationPolicy { graph: Some(policy::Graph { level }), ..Default::default() };
            let config = ModelConfig { optimization: Some(optimization), ..ModelConfig::default() };
            assert_eq!(read(&config, Path::new("/"), &[]).map(|o| o.session.graph_level), Ok(expected), "{level}");
        }
    }

    #[test]
    fn an_unknown_accelerator_is_rejected_c_17() {
        let accelerator = policy::execution_accelerators::Accelerator { name: "nope".into(), ..Default::default() };
        let accelerators =
            policy::ExecutionAccelerators { cpu_execution_accelerator: vec![accelerator], ..Default::default() };
        let optimization = ModelOptimizationPolicy { execution_accelerators: Some(accelerators), ..Default::default() };
        let config = ModelConfig { optimization: Some(optimization), ..ModelConfig::default() };
        let error = read(&config, Path::new("/"), &[]).err();
        assert_eq!(error, Some(Error::invalid("unknown Execution Accelerator 'nope' is requested")));
    }

    #[test]
    fn parameters_are_read_c_19() {
        let threads = |p: &[(&str, &str)]| read_with(p, &[]).map(|o| o.session.threads);
        assert_eq!(threads(&[]), Ok(None), "the shared pool");
        assert_eq!(threads(&[("intra_op_thread_count", "3")]), Ok(Some((3, 0))));
        assert_eq!(threads(&[("inter_op_thread_count", "2x")]), Ok(Some((0, 2))), "a leading integer is enough");
        assert_eq!(threads(&[("execution_mode", "1")]), Ok(Some((0, 0))));
        let options = read_with(
            &[
                ("enable_mem_arena", "OFF"),
                ("enable_mem_pattern", "1"),
                ("memory.enable_memory_arena_shrinkage", "cpu:0"),
                ("session.use_device_allocator_for_initializers", "1"),
                ("unknown", "x"),
            ],
            &[],
        )
        .unwrap_or_default();
        assert_eq!((options.session.arena, options.session.pattern), (Some(false), Some(true)));
        assert_eq!(options.run, [("memory.enable_memory_arena_shrinkage".to_owned(), "cpu:0".to_owned())]);
        assert_eq!(options.session.entries.len(), 1);
        refused(
            &[("execution_mode", "7")],
            "Invalid configuration value provided. Expected values for  execution_mode are 0 or 1 but got 7 .",
        );
        refused(
            &[("intra_op_thread_count", "2147483647")],
            "intra_op_thread_count of model '' is 2147483647: at most 1024 is supported",
        );
        assert_eq!(threads(&[("intra_op_thread_count", "-5"), ("inter_op_thread_count", "1024")]), Ok(Some((0, 1024))));
        refused(&[("intra_op_thread_count", "many")], "failed to convert 'many' to integral number");
        refused(&[("enable_mem_arena", "perhaps")], "failed to convert 'perhaps' to boolean");
    }

    #[test]
    fn with_the_global_pool_the_counts_of_a_model_are_ignored_c_20() {
        let settings = [("enable-global-threadpool", "1"), ("intra_op_thread_count", "5")];
        let options = read_with(&[("intra_op_thread_count", "3")], &settings).unwrap_or_default();
        assert_eq!(options.session.threads, None);
        let owned: Vec<_> = settings.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        assert_eq!(pool_threads(&owned).map(|p| (p.intra, p.inter)), Ok((5, 0)));
        assert_eq!(pool_threads(&owned[1..]).map(|p| p.intra), Ok(0), "without the switch the count means nothing");
    }
}
