//! Models whose cost follows from the shapes of their inputs may run on a reactor. ONNX Runtime loads every graph here.

mod support;

use backend::Backend;
use backend_onnx::ForestBackend;
use protocol::pb::inference::{ModelConfig, ModelParameter};
use support::*;
use tensor::DataType;

type Tensor = (&'static str, DataType, i64);

const X: Tensor = ("X", DataType::Fp32, F32);
const N: Tensor = ("N", DataType::Int64, I64);
const S: Tensor = ("S", DataType::Bytes, STR);

fn i64s(values: &[i64]) -> Vec<u8> {
    values.iter().flat_map(|v| v.to_le_bytes()).collect()
}

/// Whether the cost of a graph from `inputs` to Y, all of one dimension, may depend on data.
fn depends(nodes: &[Vec<u8>], inputs: &[Tensor], y: (DataType, i64), more: &[Vec<u8>]) -> bool {
    let constants = [
        initializer("zero", I64, &[1], &i64s(&[0])),
        initializer("two", I64, &[1], &i64s(&[2])),
        initializer("all", I64, &[1], &i64s(&[-1])),
        initializer("one", F32, &[], &1f32.to_le_bytes()),
        initializer("many", I64, &[], &i64s(&[1000])),
        initializer("yes", BOOL, &[], &[1]),
    ];
    let declared: Vec<_> = inputs.iter().map(|&(name, _, element)| tensor(name, element, &[D::S(name)])).collect();
    let file = onnx(nodes, &declared, &[tensor("Y", y.1, &[D::S("y")])], &[&constants[..], more].concat());
    let signature = signature(
        0,
        inputs.iter().map(|&(name, datatype, _)| input(name, datatype, &[-1])).collect(),
        vec![output("Y", y.0, &[-1])],
    );
    Version::new(&file).load(&ModelConfig::default(), signature).capabilities().cost_may_depend_on_data
}

const FLOATS: (DataType, i64) = (DataType::Fp32, F32);
const INTEGERS: (DataType, i64) = (DataType::Int64, I64);
const STRINGS: (DataType, i64) = (DataType::Bytes, STR);

fn n(operator: &str, inputs: &[&str], output: &str) -> Vec<u8> {
    node(operator, inputs, &[output], &[])
}

#[test]
fn operators_with_constant_operands_follow_from_shapes() {
    let follows =
        |nodes: &[Vec<u8>], y| assert!(!depends(nodes, &[X], y, &[]), "{:?}", String::from_utf8_lossy(&nodes.concat()));
    follows(&[n("Add", &["X", "one"], "a"), n("Relu", &["a"], "Y")], FLOATS);
    follows(&[n("Tile", &["X", "two"], "Y")], FLOATS);
    follows(&[n("Slice", &["X", "zero", "two"], "Y")], FLOATS);
    follows(&[n("Reshape", &["X", "all"], "Y")], FLOATS);
    follows(&[node("TopK", &["X", "two"], &["Y", "i"], &[])], FLOATS);
}

#[test]
fn values_computed_from_a_shape_are_known_with_the_shape() {
    let twice = [n("Shape", &["X"], "s"), n("Mul", &["s", "two"], "t"), n("ConstantOfShape", &["t"], "Y")];
    assert!(!depends(&twice, &[X], FLOATS, &[]));
    let counted = [
        n("Shape", &["X"], "s"),
        n("ConstantOfShape", &["s"], "c"),
        n("NonZero", &["c"], "i"),
        n("Reshape", &["i", "all"], "Y"),
    ];
    assert!(!depends(&counted, &[X], INTEGERS, &[]));
}

#[test]
fn operands_computed_from_data_may_determine_the_size_of_a_result() {
    let may = |nodes: &[Vec<u8>]| {
        assert!(depends(nodes, &[X, N], FLOATS, &[]), "{:?}", String::from_utf8_lossy(&nodes.concat()))
    };
    for operator in ["Tile", "Expand", "Reshape"] {
        may(&[n(operator, &["X", "N"], "Y")]);
    }
    may(&[node("TopK", &["X", "N"], &["Y", "i"], &[])]);
    may(&[n("Slice", &["X", "zero", "N"], "Y")]);
    may(&[n("Pad", &["X", "N"], "Y")]);
    may(&[n("ConstantOfShape", &["N"], "c"), n("Add", &["c", "X"], "Y")]);
    may(&[n("Add", &["N", "two"], "m"), n("Expand", &["one", "m"], "e"), n("Mul", &["e", "X"], "Y")]);
    // The number of elements depends on data.
    may(&[
        n("NonZero", &["X"], "i"),
        n("Reshape", &["i", "all"], "j"),
        n("Gather", &["X", "j"], "g"),
        n("Gather", &["g", "N"], "Y"),
    ]);
    may(&[n("Unique", &["X"], "u"), n("Gather", &["u", "N"], "Y")]);
}

#[test]
fn nested_graphs_count_as_dependent() {
    let body = graph(
        &[n("Identity", &["go"], "again"), n("Mul", &["x", "x"], "x2")],
        &[tensor("i", I64, &[]), tensor("go", BOOL, &[]), tensor("x", F32, &[D::S("X")])],
        &[tensor("again", BOOL, &[]), tensor("x2", F32, &[D::S("X")])],
        &[],
    );
    // Even with a constant count, because the rule does not check it.
    assert!(depends(&[loop_node("many", "yes", "X", "Y", &body)], &[X], FLOATS, &[]));
}

#[test]
fn operators_that_may_repeat_strings_count_as_dependent() {
    assert!(!depends(&[n("Identity", &["S"], "Y")], &[S], STRINGS, &[]));
    let cast = |to| node("Cast", &["S"], &["Y"], &[("to", to)]);
    assert!(!depends(&[cast(F32)], &[S], FLOATS, &[]));
    // An index may repeat the longest string.
    assert!(depends(&[n("Gather", &["S", "N"], "Y")], &[S, N], STRINGS, &[]));
}

#[test]
fn an_initializer_that_requests_may_override_is_not_constant() {
    let shape = || initializer("N", I64, &[1], &i64s(&[-1]));
    let nodes = [n("Reshape", &["X", "N"], "Y")];
    // As an input with a default value, the request may override it.
    let file = |declared: &[Vec<u8>]| onnx(&nodes, declared, &[tensor("Y", F32, &[D::S("y")])], &[shape()]);
    let x = tensor("X", F32, &[D::S("X")]);
    let depends = |file: &[u8]| {
        let signature = signature(0, vec![input("X", DataType::Fp32, &[-1])], vec![output("Y", DataType::Fp32, &[-1])]);
        Version::new(file).load(&ModelConfig::default(), signature).capabilities().cost_may_depend_on_data
    };
    assert!(!depends(&file(std::slice::from_ref(&x))));
    assert!(depends(&file(&[x, tensor("N", I64, &[D::N(1)])])));
}

/// A node of another domain, and the model field that imports the domain.
fn of_domain(operator: &str, domain: &str) -> (Vec<u8>, Vec<u8>) {
    let node = [n(operator, &["X"], "Y"), text(7, domain.as_bytes())].concat();
    (node, text(8, &[text(1, domain.as_bytes()), vec![2 << 3, 1]].concat()))
}

/// A field with few bytes.
fn text(field: u8, bytes: &[u8]) -> Vec<u8> {
    let key = if field < 16 { vec![field << 3 | 2] } else { vec![field << 3 | 0x82, field >> 4] };
    [key, vec![u8::try_from(bytes.len()).expect("short")], bytes.to_vec()].concat()
}

fn loaded_depends(node: Vec<u8>, more: &[Vec<u8>]) -> bool {
    let mut file = onnx(&[node], &[tensor("X", F32, &[D::S("n")])], &[tensor("Y", F32, &[D::S("y")])], &[]);
    more.iter().for_each(|field| file.extend_from_slice(field));
    let signature = signature(0, vec![input("X", DataType::Fp32, &[-1])], vec![output("Y", DataType::Fp32, &[-1])]);
    Version::new(&file).load(&ModelConfig::default(), signature).capabilities().cost_may_depend_on_data
}

#[test]
fn unknown_operators_count_as_dependent() {
    let check = |operator, domain, expected| {
        let (node, import) = of_domain(operator, domain);
        assert_eq!(loaded_depends(node, &[import]), expected, "{operator} of '{domain}'");
    };
    check("Gelu", "com.microsoft", false);
    // `Inverse` needs a matrix.
    let (node, import) = of_domain("Inverse", "com.microsoft");
    let matrix = |name| tensor(name, F32, &[D::S("a"), D::S("b")]);
    let mut file = onnx(&[node], &[matrix("X")], &[matrix("Y")], &[]);
    file.extend_from_slice(&import);
    let square: &[i64] = &[-1, -1];
    let signature = signature(0, vec![input("X", DataType::Fp32, square)], vec![output("Y", DataType::Fp32, square)]);
    assert!(Version::new(&file).load(&ModelConfig::default(), signature).capabilities().cost_may_depend_on_data);
    // The remainder of floats takes time in proportion to the quotient.
    assert!(depends(&[support::node("Mod", &["X", "one"], &["Y"], &[("fmod", 1)])], &[X], FLOATS, &[]));
}

#[test]
fn the_bodies_of_functions_are_checked() {
    let function = |nodes: &[Vec<u8>]| {
        let mut body =
            [text(1, b"F"), text(10, b"d"), text(4, b"x"), text(5, b"y"), text(9, &[0x0a, 0, 16, 17])].concat();
        nodes.iter().for_each(|node| body.extend_from_slice(&text(7, node)));
        text(25, &body)
    };
    let (node, import) = of_domain("F", "d");
    assert!(!loaded_depends(node.clone(), &[import.clone(), function(&[n("Relu", &["x"], "y")])]));
    let is_nonzero = support::node("Cast", &["x"], &["c"], &[("to", BOOL)]);
    assert!(loaded_depends(node, &[import, function(&[is_nonzero, n("Compress", &["x", "c"], "y")])]));
}

/// Whether the cost of a tree with this many comparisons one after the other, each beside a leaf, may depend on data.
fn tree_depends(comparisons: usize) -> bool {
    let nodes = || 0..2 * comparisons + 1;
    // Comparisons have even numbers. The last node is a leaf, as are the odd ones.
    let children = |first: usize| -> Vec<i64> {
        let is_leaf = |i: usize| i % 2 == 1 || i == 2 * comparisons;
        nodes().map(|i| if is_leaf(i) { -1 } else { (i + first) as i64 }).collect()
    };
    let (left, right, zeros) = (children(1), children(2), vec![0; nodes().count()]);
    let file = format!(
        r#"{{"learner": {{"objective": {{"name": "reg:squarederror"}},
            "learner_model_param": {{"base_score": "0", "num_class": "0", "num_feature": "1"}},
            "gradient_booster": {{"name": "gbtree", "model": {{"tree_info": [0], "trees": [{{
                "left_children": {left:?}, "right_children": {right:?}, "split_indices": {zeros:?},
                "split_conditions": {zeros:?}, "default_left": {zeros:?}}}]}}}}}}}}"#
    );
    let version = Version::new(file.as_bytes());
    let parameter = |key: &str, value: &str| (key.to_owned(), ModelParameter { string_value: value.to_owned() });
    let config = ModelConfig {
        max_batch_size: 8,
        default_model_filename: "model.onnx".to_owned(),
        parameters: [parameter("model_type", "xgboost_json"), parameter("is_classifier", "false")].into(),
        ..ModelConfig::default()
    };
    let f32s = DataType::Fp32;
    let signature = signature(8, vec![input("input__0", f32s, &[1])], vec![output("output__0", f32s, &[1])]);
    let opened = ForestBackend.open(&version.spec(&config)).expect("opens");
    opened.finish(&config, signature.into()).expect("matches").capabilities().cost_may_depend_on_data
}

#[test]
fn the_cost_of_trees_follows_from_shapes_unless_comparisons_of_rows_differ_much() {
    assert!(!tree_depends(1));
    assert!(!tree_depends(64));
    // At most 1,000 times as long as a row that takes the first leaf.
    assert!(tree_depends(1000));
}
