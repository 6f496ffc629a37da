//! TensorRT plans (`model.plan`), run by ONNX Runtime's TensorRT provider: wraps a plan in an ONNX model of one node
//! (`EPContext`), generated from the configuration. The plan itself is not read; TensorRT's runtime checks its version.
//!
//! Equal configurations generate equal bytes. The provider needs the model in a file with the plan beside it, so a
//! directory of links has both while the session is loaded.

use crate::ffi::GraphTensor;
use crate::graph::Graph;
use protocol::pb::inference::{ModelConfig, ModelTensorReshape};
use tensor::{Code, DataType, Error, Result, Shape};
use trees::protobuf::{OnnxNode, bytes, model, value_info};

/// File names of the plan and of the generated model.
pub(crate) const PLAN_LINK: &str = "model.plan";
pub(crate) const WRAPPER: &str = "model.onnx";

/// Alternatives for a plan that cannot run here.
pub(crate) const OTHER_WAYS: &str = "Other ways: serve the ONNX file that the plan was made from (backend \
    \"onnxruntime\", with the accelerator \"tensorrt\" if it is wanted), or run the plan from a model.py with the \
    package 'tensorrt'";

/// The graph of the generated model: the configured tensors.
///
/// # Errors
/// The configuration has something that wrapped plans do not support.
pub(crate) fn graph(config: &ModelConfig) -> Result<Graph> {
    let unsupported = |what: String| Error::new(Code::Unsupported, format!("{what}. {OTHER_WAYS}"));
    if config.input.is_empty() || config.output.is_empty() {
        return Err(Error::invalid(format!(
            "model '{}' must specify its inputs and outputs: they are not read from a TensorRT plan",
            config.name
        )));
    }
    let profile = config.instance_group.iter().flat_map(|g| &g.profile).find(|p| p.as_str() != "0");
    if let Some(profile) = profile {
        return Err(unsupported(format!(
            "optimization profile '{profile}' of a TensorRT plan is not supported, only '0'"
        )));
    }
    let batching = config.max_batch_size > 0;
    let tensor = |name: &str, number: i32, dims: &[i64], reshape: Option<&ModelTensorReshape>, is_shape: bool| {
        if is_shape {
            return Err(unsupported(format!("shape tensor '{name}' of a TensorRT plan is not supported")));
        }
        let datatype = DataType::from_number(number).filter(|d| *d != DataType::Bytes);
        let datatype =
            datatype.ok_or_else(|| Error::invalid(format!("a TensorRT plan has no tensor of the type of '{name}'")))?;
        let dims = reshape.map_or(dims, |r| &r.shape);
        let shape: Shape = batching.then_some(-1).into_iter().chain(dims.iter().copied()).collect();
        Ok(GraphTensor { name: name.to_owned(), datatype: Some(datatype), shape })
    };
    let inputs = config.input.iter();
    let inputs = inputs.map(|i| tensor(&i.name, i.data_type, &i.dims, i.reshape.as_ref(), i.is_shape_tensor));
    let outputs = config.output.iter();
    let outputs = outputs.map(|o| tensor(&o.name, o.data_type, &o.dims, o.reshape.as_ref(), o.is_shape_tensor));
    Ok(Graph {
        inputs: inputs.collect::<Result<_>>()?,
        outputs: outputs.collect::<Result<_>>()?,
        initializers: Vec::new(),
    })
}

/// An ONNX model with one node that refers to the plan beside it.
pub(crate) fn wrapper(graph: &Graph) -> Vec<u8> {
    let names = |tensors: &[GraphTensor]| tensors.iter().map(|t| t.name.clone()).collect::<Vec<_>>();
    let (inputs, outputs) = (names(&graph.inputs), names(&graph.outputs));
    let node = OnnxNode::new("plan", "com.microsoft", "EPContext", &inputs, &outputs)
        .int("embed_mode", 0)
        .int("main_context", 1)
        .text("ep_cache_context", PLAN_LINK)
        .text("source", "TensorrtExecutionProvider");
    let mut inner = Vec::new();
    bytes(&mut inner, 1, &node.finish());
    bytes(&mut inner, 2, b"plan");
    for (field, tensors) in [(11, &graph.inputs), (12, &graph.outputs)] {
        for t in tensors {
            let element = t.datatype.map_or(0, crate::ffi::element_code);
            bytes(&mut inner, field, &value_info(&t.name, element, &t.shape));
        }
    }
    model(&inner, &[("", 17), ("com.microsoft", 1)])
}

#[cfg(test)]
mod tests {
    use super::*;
    use protocol::pb::inference::{ModelInput, ModelInstanceGroup, ModelOutput};

    /// Numbers of `inference.DataType`.
    const INT32: i32 = 8;
    const FP16: i32 = 10;
    const FP32: i32 = 11;
    const STRING: i32 = 13;

    fn config() -> ModelConfig {
        let dims = |dims: &[i64]| dims.to_vec();
        ModelConfig {
            name: "m".into(),
            max_batch_size: 8,
            input: vec![
                ModelInput { name: "images".into(), data_type: FP16, dims: dims(&[3, 224, -1]), ..Default::default() },
                ModelInput {
                    name: "scale".into(),
                    data_type: INT32,
                    dims: dims(&[1]),
                    reshape: Some(ModelTensorReshape { shape: vec![] }),
                    ..Default::default()
                },
            ],
            output: vec![ModelOutput {
                name: "scores".into(),
                data_type: FP32,
                dims: dims(&[1000]),
                ..Default::default()
            }],
            ..ModelConfig::default()
        }
    }

    /// The expected file was checked with the `onnx` package when it was made.
    #[test]
    fn device_plans_are_wrapped_in_the_same_bytes_each_time() {
        let made = wrapper(&graph(&config()).expect("can be wrapped"));
        if let Some(to) = std::env::var_os("NEREID_WRITE_PLAN_WRAPPER") {
            std::fs::write(to, &made).expect("written");
        }
        let kept: &[u8] = include_bytes!("../tests/plan/wrapper.onnx");
        assert!(made == kept, "the generated model is not tests/plan/wrapper.onnx, byte for byte");
        let without_batch = ModelConfig { max_batch_size: 0, ..config() };
        let graph = graph(&without_batch).expect("can be wrapped");
        assert_eq!(graph.inputs.iter().map(|t| t.shape.to_vec()).collect::<Vec<_>>(), [vec![3, 224, -1], vec![]]);
    }

    #[test]
    fn device_plans_that_cannot_be_wrapped_are_rejected_with_alternatives() {
        let check = |change: &dyn Fn(&mut ModelConfig), text: &str| {
            let mut changed = config();
            change(&mut changed);
            let error = graph(&changed).map(drop).expect_err(text);
            assert!(error.message().contains(text), "{error}");
        };
        check(&|c| c.input.clear(), "model 'm' must specify its inputs and outputs");
        check(&|c| c.output.clear(), "model 'm' must specify its inputs and outputs");
        check(
            &|c| c.input[0].is_shape_tensor = true,
            "shape tensor 'images' of a TensorRT plan is not supported. Other ways: ",
        );
        check(&|c| c.output[0].data_type = STRING, "a TensorRT plan has no tensor of the type of 'scores'");
        let group = ModelInstanceGroup { profile: vec!["0".into(), "2".into()], ..Default::default() };
        check(
            &|c| c.instance_group = vec![group.clone()],
            "optimization profile '2' of a TensorRT plan is not supported, only '0'. Other ways: ",
        );
    }
}
