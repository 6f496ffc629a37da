//! Compares a configuration with its graph (table of checks in model-repository.md 4.1, in its order).

use crate::ffi::GraphTensor;
use crate::graph::Graph;
use crate::options::sequence_inputs;
use protocol::Signature;
use protocol::pb::inference::ModelConfig;
use protocol::pb::inference::model_config::SchedulingChoice;
use tensor::{DataType, Error, Result, Shape, ShapeDisplay};

/// # Errors
/// INVALID_ARG or INTERNAL with Triton's texts.
pub(crate) fn check(config: &ModelConfig, signature: &Signature, graph: &Graph) -> Result<()> {
    let model = &*signature.model;
    let sequence = sequence_inputs(config);
    // The signature also has the tensors of the sequence batcher, after the configured ones.
    let (configured_inputs, configured_outputs) = match config.scheduling_choice {
        Some(SchedulingChoice::SequenceBatching(_)) => (config.input.len(), config.output.len()),
        _ => (signature.inputs.len(), signature.outputs.len()),
    };
    let required = signature.inputs.iter().take(configured_inputs).filter(|i| !i.optional).count();
    let expected = required + config.batch_input.len() + sequence.len();
    if expected != graph.inputs.len() {
        return Err(Error::invalid(format!(
            "unable to load model '{model}', configuration expects {expected} inputs, model provides {}",
            graph.inputs.len()
        )));
    }
    // States are counted, not compared: the graph checks them when it runs.
    for (name, _) in sequence.into_iter().filter(|(_, is_control)| *is_control) {
        check_control(model, name, signature.max_batch_size > 0, graph)?;
    }
    let inputs: Vec<&GraphTensor> = graph.inputs.iter().chain(&graph.initializers).collect();
    for spec in signature.inputs.iter().take(configured_inputs) {
        let found = find(&inputs, &spec.name, "input")?;
        check_datatype(model, "input", spec.datatype, found)?;
        let t = &*spec.name;
        if spec.allow_ragged_batch {
            if found.shape[..] != [-1] {
                // The spaces are those of Triton's text.
                return Err(Error::invalid(format!(
                    "unable to load model '{model}', configuration expects model provides input with shape [-1]  for \
                     ragged input '{t}', model provides {}",
                    ShapeDisplay(&found.shape)
                )));
            }
            if spec.optional {
                return Err(Error::invalid(format!(
                    "unable to load model '{model}', configuration expects model provides input with shape [-1] for \
                     ragged input '{t}', which is not supported for optional input"
                )));
            }
            continue;
        }
        if spec.optional && signature.max_batch_size > 0 {
            return Err(Error::invalid(format!(
                "unable to load model '{model}', optional input '{t}' is not supported for models that support batching"
            )));
        }
        let dims = spec.reshape.as_ref().unwrap_or(&spec.dims);
        check_dims(model, t, dims, signature.max_batch_size > 0, &found.shape, Match::Wildcard)?;
    }
    for batch in &config.batch_input {
        for target in &batch.target_name {
            find(&inputs, target, "input")?;
        }
    }
    let outputs: Vec<&GraphTensor> = graph.outputs.iter().collect();
    for spec in signature.outputs.iter().take(configured_outputs) {
        let found = find(&outputs, &spec.name, "output")?;
        check_datatype(model, "output", spec.datatype, found)?;
        // Scattered outputs take their shape from an input.
        if config.batch_output.iter().any(|b| b.target_name.iter().any(|t| *spec.name == **t)) {
            continue;
        }
        let dims = spec.reshape.as_ref().unwrap_or(&spec.dims);
        check_dims(model, &spec.name, dims, signature.max_batch_size > 0, &found.shape, Match::Exact)?;
    }
    Ok(())
}

fn check_control(model: &str, name: &str, batching: bool, graph: &Graph) -> Result<()> {
    let Some(found) = graph.inputs.iter().find(|t| t.name == name) else {
        return Err(Error::internal(format!(
            "configuration specified sequence control '{name}', but model does not provide that input"
        )));
    };
    let dims = found.shape.get(usize::from(batching)..).unwrap_or(&[]);
    if dims != [1] {
        return Err(Error::invalid(format!(
            "unable to load model '{model}', sequence control '{name}' in model has dims {} but dims [1] is expected",
            ShapeDisplay(dims)
        )));
    }
    Ok(())
}

fn find<'a>(tensors: &[&'a GraphTensor], name: &str, what: &str) -> Result<&'a GraphTensor> {
    tensors.iter().find(|t| t.name == name).copied().ok_or_else(|| {
        let mut names: Vec<&str> = tensors.iter().map(|t| t.name.as_str()).collect();
        names.sort_unstable();
        Error::invalid(format!("unexpected inference {what} '{name}', allowed {what}s are: {}", names.join(", ")))
    })
}

fn check_datatype(model: &str, what: &str, expected: DataType, found: &GraphTensor) -> Result<()> {
    if found.datatype == Some(expected) {
        return Ok(());
    }
    let provided = found.datatype.map_or("TYPE_INVALID", DataType::config_name);
    Err(Error::invalid(format!(
        "unable to load model '{model}', configuration expects datatype {} for {what} '{}', model provides {provided}",
        expected.config_name(),
        found.name
    )))
}

/// Which configured dimensions a -1 of the graph matches.
#[derive(Clone, Copy, PartialEq)]
enum Match {
    /// All: a configuration may be narrower than the graph.
    Wildcard,
    Exact,
}

fn check_dims(model: &str, tensor: &str, dims: &[i64], batching: bool, graph: &[i64], by: Match) -> Result<()> {
    if batching && graph.first() != Some(&-1) {
        return Err(Error::invalid(format!(
            "model '{model}', tensor '{tensor}': for the model to support batching the shape should have at least 1 \
             dimension and the first dimension must be -1; but shape expected by the model is {}",
            ShapeDisplay(graph)
        )));
    }
    if !batching && graph.is_empty() {
        // For any number of dimensions: Triton compares each with 1.
        if dims.iter().all(|&d| d == 1) {
            return Ok(());
        }
        return Err(Error::invalid(format!(
            "unable to load model '{model}', scalar tensor '{tensor}', should only provide 1 in the model \
             configuration when the model doesn't support batching. Model configuration provided: {}.",
            ShapeDisplay(dims)
        )));
    }
    let full: Shape = batching.then_some(-1).into_iter().chain(dims.iter().copied()).collect();
    let matches = |(&g, &c): (&i64, &i64)| g == c || (g == -1 && by == Match::Wildcard);
    if graph.len() == full.len() && graph.iter().zip(&full).all(matches) {
        return Ok(());
    }
    let how = if batching {
        "an initial batch dimension because max_batch_size > 0 followed by the explicit tensor shape, making complete \
         shape"
    } else {
        "shape"
    };
    Err(Error::invalid(format!(
        "model '{model}', tensor '{tensor}': the model expects {} dimensions (shape {}) but the model configuration \
         specifies {} dimensions ({how} {})",
        graph.len(),
        ShapeDisplay(graph),
        full.len(),
        ShapeDisplay(&full)
    )))
}

#[cfg(test)]
mod tests {
    use super::*;
    use protocol::{InputSpec, OutputSpec};

    fn graph(shape: &[i64]) -> Graph {
        let t =
            |n: &str| GraphTensor { name: n.into(), datatype: Some(DataType::Int32), shape: Shape::from_slice(shape) };
        Graph {
            inputs: vec![t("INPUT0"), t("INPUT1")],
            outputs: vec![t("OUTPUT0"), t("OUTPUT1")],
            initializers: vec![],
        }
    }

    fn signature(batch: u32, dims: &[i64]) -> Signature {
        let input = |n: &'static str| InputSpec {
            name: n.into(),
            datatype: DataType::Int32,
            dims: Shape::from_slice(dims),
            reshape: None,
            optional: false,
            allow_ragged_batch: false,
        };
        let output = |n: &'static str| OutputSpec {
            name: n.into(),
            datatype: DataType::Int32,
            dims: Shape::from_slice(dims),
            reshape: None,
            labels: Default::default(),
        };
        Signature {
            model: "m".into(),
            version: "1".into(),
            max_batch_size: batch,
            inputs: vec![input("INPUT0"), input("INPUT1")],
            outputs: vec![output("OUTPUT0"), output("OUTPUT1")],
            decoupled: false,
        }
    }

    fn refused(signature: &Signature, graph: &Graph, text: &str) {
        assert_eq!(check(&ModelConfig::default(), signature, graph), Err(Error::invalid(text.to_owned())));
    }

    #[test]
    fn mismatches_have_triton_s_texts_model_repository_4_1() {
        let (ok, g) = (signature(8, &[16]), graph(&[-1, 16]));
        assert_eq!(check(&ModelConfig::default(), &ok, &g), Ok(()));
        let mut s = ok.clone();
        s.inputs.pop();
        refused(&s, &g, "unable to load model 'm', configuration expects 1 inputs, model provides 2");
        let mut s = ok.clone();
        s.inputs[1].name = "INPUTX".into();
        refused(&s, &g, "unexpected inference input 'INPUTX', allowed inputs are: INPUT0, INPUT1");
        let mut s = ok.clone();
        s.outputs[1].name = "OUTPUTX".into();
        refused(&s, &g, "unexpected inference output 'OUTPUTX', allowed outputs are: OUTPUT0, OUTPUT1");
        let mut s = ok.clone();
        s.outputs[1].datatype = DataType::Fp32;
        refused(
            &s,
            &g,
            "unable to load model 'm', configuration expects datatype TYPE_FP32 for output 'OUTPUT1', model provides \
             TYPE_INT32",
        );
        let mut s = ok.clone();
        s.inputs[0].allow_ragged_batch = true;
        refused(
            &s,
            &g,
            "unable to load model 'm', configuration expects model provides input with shape [-1]  for ragged input \
             'INPUT0', model provides [-1,16]",
        );
    }

    #[test]
    fn dims_are_compared_as_triton_does() {
        refused(
            &signature(8, &[8]),
            &graph(&[-1, 16]),
            "model 'm', tensor 'INPUT0': the model expects 2 dimensions (shape [-1,16]) but the model configuration \
             specifies 2 dimensions (an initial batch dimension because max_batch_size > 0 followed by the explicit \
             tensor shape, making complete shape [-1,8])",
        );
        refused(
            &signature(0, &[16]),
            &graph(&[-1, 16]),
            "model 'm', tensor 'INPUT0': the model expects 2 dimensions (shape [-1,16]) but the model configuration \
             specifies 1 dimensions (shape [16])",
        );
        refused(
            &signature(8, &[16]),
            &graph(&[1, 16]),
            "model 'm', tensor 'INPUT0': for the model to support batching the shape should have at least 1 dimension \
             and the first dimension must be -1; but shape expected by the model is [1,16]",
        );
        refused(
            &signature(0, &[2]),
            &graph(&[]),
            "unable to load model 'm', scalar tensor 'INPUT0', should only provide 1 in the model configuration when \
             the model doesn't support batching. Model configuration provided: [2].",
        );
        assert_eq!(check(&ModelConfig::default(), &signature(0, &[1]), &graph(&[])), Ok(()));
        assert_eq!(check(&ModelConfig::default(), &signature(0, &[1, 1]), &graph(&[])), Ok(()));
        // An input may be narrower than the graph, an output may not.
        let mut s = signature(8, &[-1]);
        s.inputs[0].dims = Shape::from_slice(&[5]);
        assert_eq!(check(&ModelConfig::default(), &s, &graph(&[-1, -1])), Ok(()));
        s.outputs[0].dims = Shape::from_slice(&[5]);
        assert!(check(&ModelConfig::default(), &s, &graph(&[-1, -1])).is_err());
    }
}
