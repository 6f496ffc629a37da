//! Decides whether the cost of a graph follows from its input shapes alone. Only such models may run on a reactor.
//!
//! A run time may depend on values for two reasons: a nested graph runs as often as a value says (Loop, If, Scan), or a
//! tensor is as large as values say (NonZero; Range, Expand or Reshape with a computed operand). Therefore each
//! operator must be on a list, and operands that determine sizes or counts must be constants or come from shapes.
//! Everything else counts as data-dependent: operators of unknown domains, unreadable files.
//!
//! The runtime does not list the operators of a session, so [`crate::proto`] reads them from the file.

use crate::proto::{Graph, GraphFacts, GraphNode};
use std::collections::HashSet;

/// Returns, for the log, why the cost may depend on data. `has_strings`: the model has string inputs.
pub(crate) fn follows_from_shapes(model: &GraphFacts, has_strings: bool) -> Result<(), String> {
    let functions = model.functions.iter().map(|f| (domain(&f.domain), &f.name[..])).collect();
    let judge = Judge { functions, has_strings };
    judge.graph(&model.graph, model.can_override_initializers())?;
    // Operands of functions are not tracked and may depend on data.
    model.functions.iter().try_for_each(|f| judge.graph(&f.body, true))
}

struct Judge<'m> {
    /// Domain and name of the functions that the file defines.
    functions: HashSet<(&'m [u8], &'m [u8])>,
    has_strings: bool,
}

impl Judge<'_> {
    fn graph(&self, graph: &Graph, can_override: bool) -> Result<(), String> {
        // Tensors whose values do not depend on data: constants, and values computed from shapes and constants.
        let mut fixed: HashSet<&[u8]> = graph.initializers.iter().map(|n| &n[..]).collect();
        if can_override {
            graph.inputs.iter().for_each(|name| _ = fixed.remove(&name[..]));
        }
        for node in &graph.nodes {
            self.node(node, &mut fixed)?;
        }
        Ok(())
    }

    fn node<'g>(&self, node: &'g GraphNode, fixed: &mut HashSet<&'g [u8]>) -> Result<(), String> {
        let operator = String::from_utf8_lossy(&node.operator);
        // An omitted operand has an empty name.
        let is_fixed = |name: &Vec<u8>| name.is_empty() || fixed.contains(&name[..]);
        if node.has_graph {
            return Err(format!("operator '{operator}' runs a graph of its own"));
        }
        let values = if self.functions.contains(&(domain(&node.domain), &node.operator[..])) {
            Values::Any
        } else {
            let Some(rule) = rule(domain(&node.domain), &node.operator) else {
                let domain = String::from_utf8_lossy(&node.domain);
                return Err(format!(
                    "operator '{operator}' of domain '{domain}' is not one whose cost follows from shapes"
                ));
            };
            if self.has_strings && !rule.strings {
                return Err(format!("operator '{operator}' may repeat long strings"));
            }
            let steers = rule.steers.iter().find(|&&at| node.inputs.get(at).is_some_and(|name| !is_fixed(name)));
            if let Some(at) = steers {
                return Err(format!("operand {at} of operator '{operator}' is computed from data"));
            }
            rule.values
        };
        let are_fixed = match values {
            Values::Shape => true,
            Values::Computed => node.inputs.iter().all(is_fixed),
            Values::Any => false,
        };
        for name in node.outputs.iter().filter(|name| !name.is_empty()) {
            if are_fixed {
                fixed.insert(name);
            } else {
                fixed.remove(&name[..]);
            }
        }
        Ok(())
    }
}

/// Maps both names of the standard domain to one.
fn domain(name: &[u8]) -> &[u8] {
    if name == b"ai.onnx" { b"" } else { name }
}

/// Origin of the values of an operator's results.
#[derive(Clone, Copy)]
enum Values {
    /// Values of the operands.
    Computed,
    /// Shapes of the operands.
    Shape,
    /// Anything.
    Any,
}

struct Rule {
    /// Operands whose values determine the size of a result or the run time.
    steers: &'static [usize],
    values: Values,
    /// Strings of a request pass at most once, so their bytes determine the cost.
    strings: bool,
}

/// The rule of an operator; `None` if its cost may depend on data for any operands.
///
/// Omitted on purpose: nested graphs, sequences, optionals, strings; trees of `ai.onnx.ml`, whose paths depend on data;
/// RoiAlign, MaxRoiPool, GridSample, which sample by region size; Mod, which divides floats by subtraction.
fn rule(domain: &[u8], operator: &[u8]) -> Option<Rule> {
    let (mut steers, mut values, mut strings): (&[usize], _, _) = (&[], Values::Computed, false);
    match (domain, operator) {
        (b"", b"Identity" | b"Cast" | b"Flatten" | b"Transpose") => strings = true,
        (b"", b"Reshape" | b"Squeeze" | b"Unsqueeze") => (steers, strings) = (&[1], true),
        (b"", b"Shape" | b"Size") => (values, strings) = (Values::Shape, true),
        (b"", b"RandomNormal" | b"RandomNormalLike" | b"RandomUniform" | b"RandomUniformLike" | b"Bernoulli") => {
            values = Values::Any;
        }
        // Arithmetic and comparisons. Strings cannot be added; comparing them takes no longer than reading them.
        (
            b"",
            b"Abs" | b"Acos" | b"Acosh" | b"Add" | b"And" | b"Asin" | b"Asinh" | b"Atan" | b"Atanh" | b"BitShift"
            | b"BitwiseAnd" | b"BitwiseNot" | b"BitwiseOr" | b"BitwiseXor" | b"CastLike" | b"Ceil" | b"Celu" | b"Clip"
            | b"Cos" | b"Cosh" | b"Div" | b"Elu" | b"Erf" | b"Exp" | b"Floor" | b"Gelu" | b"Greater"
            | b"GreaterOrEqual" | b"HardSigmoid" | b"HardSwish" | b"IsInf" | b"IsNaN" | b"LeakyRelu" | b"Less"
            | b"LessOrEqual" | b"Log" | b"Max" | b"Mean" | b"Min" | b"Mish" | b"Mul" | b"Neg" | b"Not" | b"Or"
            | b"PRelu" | b"Pow" | b"Reciprocal" | b"Relu" | b"Round" | b"Selu" | b"Shrink" | b"Sigmoid" | b"Sign"
            | b"Sin" | b"Sinh" | b"Softplus" | b"Softsign" | b"Sqrt" | b"Sub" | b"Sum" | b"Swish" | b"Tan" | b"Tanh"
            | b"ThresholdedRelu" | b"Xor",
        ) => strings = true,
        // Layers.
        (
            b"",
            b"AveragePool"
            | b"BatchNormalization"
            | b"Conv"
            | b"ConvInteger"
            | b"ConvTranspose"
            | b"Dropout"
            | b"Gemm"
            | b"GlobalAveragePool"
            | b"GlobalLpPool"
            | b"GlobalMaxPool"
            | b"GroupNormalization"
            | b"Hardmax"
            | b"InstanceNormalization"
            | b"LRN"
            | b"LayerNormalization"
            | b"LogSoftmax"
            | b"LpNormalization"
            | b"LpPool"
            | b"MatMul"
            | b"MatMulInteger"
            | b"MaxPool"
            | b"MeanVarianceNormalization"
            | b"QLinearConv"
            | b"QLinearMatMul"
            | b"RMSNormalization"
            | b"RotaryEmbedding"
            | b"Softmax"
            | b"Einsum"
            | b"Det"
            | b"NegativeLogLikelihoodLoss"
            | b"SoftmaxCrossEntropyLoss",
        ) => {}
        // Operand 4 has the number of steps of each sequence.
        (b"", b"LSTM" | b"GRU" | b"RNN") => steers = &[4],
        (b"", b"QuantizeLinear" | b"DequantizeLinear" | b"DynamicQuantizeLinear") => {}
        // Data movement. An index may repeat an element, which is acceptable for numbers, not for strings.
        (
            b"",
            b"Concat" | b"Constant" | b"DepthToSpace" | b"EyeLike" | b"Equal" | b"Gather" | b"GatherElements"
            | b"GatherND" | b"ReverseSequence" | b"Scatter" | b"ScatterElements" | b"ScatterND" | b"SpaceToDepth"
            | b"Trilu" | b"Where" | b"ArgMax" | b"ArgMin",
        ) => {}
        (
            b"",
            b"ReduceL1" | b"ReduceL2" | b"ReduceLogSum" | b"ReduceLogSumExp" | b"ReduceMax" | b"ReduceMean"
            | b"ReduceMin" | b"ReduceProd" | b"ReduceSum" | b"ReduceSumSquare" | b"CumSum" | b"CumProd",
        ) => steers = &[1],
        // Operand 1 determines the size of the result.
        (b"", b"Expand" | b"Split" | b"TopK" | b"OneHot" | b"Upsample" | b"AffineGrid" | b"CenterCropPad") => {
            steers = &[1]
        }
        (b"", b"Tile" | b"Col2Im" | b"DFT") => steers = &[1, 2],
        (b"", b"Slice") => steers = &[1, 2, 3, 4],
        (b"", b"Pad" | b"Resize") => steers = &[1, 2, 3],
        (b"", b"STFT") => steers = &[1, 3],
        (b"", b"MaxUnpool") => steers = &[2],
        (b"", b"ConstantOfShape" | b"HannWindow" | b"HammingWindow" | b"BlackmanWindow") => steers = &[0],
        (b"", b"Range") => steers = &[0, 1, 2],
        // Exporters use these to count; on a shape, the result is known.
        (b"", b"NonZero" | b"Unique") => steers = &[0],
        (b"", b"Compress") => steers = &[1],
        (
            b"com.microsoft",
            b"BiasAdd"
            | b"BiasGelu"
            | b"BiasSoftmax"
            | b"BiasSplitGelu"
            | b"DequantizeLinear"
            | b"DynamicQuantizeMatMul"
            | b"EmbedLayerNormalization"
            | b"FastGelu"
            | b"FusedConv"
            | b"FusedGemm"
            | b"FusedMatMul"
            | b"FusedMatMulActivation"
            | b"Gelu"
            | b"MatMulIntegerToFloat"
            | b"MatMulNBits"
            | b"QAttention"
            | b"QGemm"
            | b"QLinearAdd"
            | b"QLinearAveragePool"
            | b"QLinearConcat"
            | b"QLinearGlobalAveragePool"
            | b"QLinearLeakyRelu"
            | b"QLinearMul"
            | b"QLinearReduceMean"
            | b"QLinearSigmoid"
            | b"QLinearSoftmax"
            | b"QuantizeLinear"
            | b"QuickGelu"
            | b"SimplifiedLayerNormalization"
            | b"SkipLayerNormalization"
            | b"SkipSimplifiedLayerNormalization",
        ) => {}
        (
            b"ai.onnx.ml",
            b"ArrayFeatureExtractor"
            | b"Binarizer"
            | b"FeatureVectorizer"
            | b"Imputer"
            | b"LinearClassifier"
            | b"LinearRegressor"
            | b"Normalizer"
            | b"SVMClassifier"
            | b"SVMRegressor"
            | b"Scaler",
        ) => {}
        _ => return None,
    }
    Some(Rule { steers, values, strings })
}
