//! Compares models of the frameworks with the frameworks' predictions; `make.py` writes both.
//!
//! Most are evaluated twice: as the server does, and with sums in 64 bits, whose errors are smaller.

mod support;

use std::path::{Path, PathBuf};
use support::{evaluated, sums};
use trees::{Ensemble, Format, OutputKind, Transform};

fn file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/models").join(name)
}

fn load(name: &str) -> tensor::Result<Ensemble> {
    let format = match name.rsplit_once('.').map(|(_, ending)| ending) {
        Some("json") => Format::XgboostJson,
        Some("ubj") => Format::XgboostUbjson,
        Some("model") => Format::XgboostBinary,
        Some("txt") => Format::Lightgbm,
        Some("tl") => Format::Treelite,
        _ => panic!("what is {name}?"),
    };
    trees::read(format, &std::fs::read(file(name)).expect("a model"))
}

fn predict(ensemble: &Ensemble, answer: OutputKind, row: &[f32]) -> Vec<f64> {
    let sums = sums(ensemble, row);
    if answer == OutputKind::LargestClass {
        let most = sums.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        return vec![sums.iter().position(|s| *s == most).expect("one") as f64];
    }
    let total: f64 = sums.iter().map(|s| s.exp()).sum();
    let transform = |s: &f64| match ensemble.transform {
        Transform::Identity => *s,
        Transform::Sigmoid { alpha } => 1.0 / (1.0 + (-f64::from(alpha) * s).exp()),
        Transform::Exponential => s.exp(),
        Transform::ExponentialRatio { ratio } => (-s / f64::from(ratio)).exp2(),
        Transform::SignedSquare => s * s.abs(),
        Transform::Softplus => s.exp().ln_1p(),
        Transform::Hinge => f64::from(u8::from(*s > 0.0)),
        Transform::Softmax => s.exp() / total,
    };
    sums.iter().map(transform).collect()
}

/// Rows with the framework's predictions.
fn rows(name: &str) -> Vec<(Vec<f32>, Vec<f64>)> {
    let text = std::fs::read_to_string(file(&format!("{name}.rows"))).expect("predictions");
    let line = |line: &str| {
        let (features, predictions) = line.split_once(" = ").expect("both");
        let features = features.split(' ').map(|v| v.parse().expect("a float"));
        (features.collect(), predictions.split(' ').map(|v| v.parse().expect("a double")).collect())
    };
    text.lines().map(line).collect()
}

/// Asserts that every row is predicted as by the framework, within the precision of its sums.
fn check(name: &str, answer: OutputKind, error_max: f64) {
    let ensemble = load(name).unwrap_or_else(|e| panic!("{name}: {e}"));
    let rows = rows(name.split_once('.').expect("an ending").0);
    assert!(rows.len() > 10);
    for (i, (row, expected)) in rows.into_iter().enumerate() {
        assert_eq!(row.len(), ensemble.features as usize, "{name}");
        let found = predict(&ensemble, answer, &row);
        assert_eq!(found.len(), expected.len(), "{name}");
        for (found, expected) in found.iter().zip(&expected) {
            let error = (found - expected).abs() / expected.abs().max(1.0);
            assert!(error <= error_max, "{name}, row {i}: {found}, and the framework has {expected}; {row:?}");
        }
        let as_served = evaluated(&ensemble, answer, &row);
        assert_eq!(as_served.len(), expected.len(), "{name}");
        for (found, expected) in as_served.iter().zip(&expected) {
            let error = (f64::from(*found) - expected).abs() / expected.abs().max(1.0);
            assert!(error <= 1e-6, "{name}, row {i}: the server has {found}, the framework {expected}; {row:?}");
        }
    }
}

#[test]
fn xgboost_models_predict_as_xgboost_does() {
    for name in [
        "squared.json",
        "squared.ubj",
        "logistic.json",
        "logistic.ubj",
        "fitted.json",
        "softprob.json",
        "softprob.ubj",
        "dart.json",
        "dart.ubj",
        "forest.json",
        "categories.json",
        "categories.ubj",
        "onehot.json",
        "targets.json",
        "vector.json",
        "vector.ubj",
        "vector_logistic.json",
        "vector_before.json",
        "vector_before.ubj",
        "vector_before_logistic.json",
        "binary_logitraw.json",
        "binary_hinge.json",
        "reg_logistic.json",
        "count_poisson.json",
        "reg_gamma.json",
        "reg_tweedie.json",
        "survival_cox.json",
        "survival_aft.json",
        "reg_absoluteerror.json",
        "reg_pseudohubererror.json",
        "reg_squaredlogerror.json",
        "rank_ndcg.json",
    ] {
        check(name, OutputKind::Prediction, 1e-6);
    }
    check("softmax.json", OutputKind::LargestClass, 0.0);
}

#[test]
fn xgboost_binary_models_predict_as_xgboost_does() {
    for name in ["bin_squared.model", "bin_logistic.model", "bin_softprob.model", "bin_dart.model"] {
        check(name, OutputKind::Prediction, 1e-6);
    }
}

#[test]
fn lightgbm_models_predict_as_lightgbm_does() {
    for name in [
        "lgb_regression.txt",
        "lgb_sqrt.txt",
        "lgb_binary.txt",
        "lgb_multiclass.txt",
        "lgb_ova.txt",
        "lgb_xentropy.txt",
        "lgb_xentlambda.txt",
        "lgb_poisson.txt",
        "lgb_forest.txt",
        "lgb_dart.txt",
        "lgb_categories.txt",
        "lgb_onehot.txt",
        "lgb_zero.txt",
        "lgb_no_missing.txt",
    ] {
        // The steepness is a float here.
        check(name, OutputKind::Prediction, 1e-7);
    }
    check("lgb_regression.txt", OutputKind::Prediction, 1e-15);
}

#[test]
fn treelite_checkpoints_predict_as_treelite_does() {
    for name in ["logistic", "softprob", "categories", "forest", "doubles", "targets", "vector"] {
        check(&format!("tl_{name}.tl"), OutputKind::Prediction, 1e-6);
    }
}

#[test]
fn checkpoints_of_scikit_learn_predict_as_scikit_learn_does() {
    for name in ["classes", "binary", "extra", "regression", "targets", "boosted", "histogram"] {
        check(&format!("sk_{name}.tl"), OutputKind::Prediction, 1e-6);
    }
}

#[test]
fn json_and_ubjson_of_a_model_are_the_same_ensemble() {
    for name in ["squared", "logistic", "softprob", "dart", "categories", "vector", "vector_before"] {
        let (json, ubjson) = (load(&format!("{name}.json")), load(&format!("{name}.ubj")));
        assert!(json.is_ok() && json == ubjson, "{name}");
    }
}

#[test]
fn models_that_cannot_be_evaluated_are_rejected_with_the_reason() {
    let check = |name: &str, text: &str| {
        let error = load(name).expect_err(name);
        assert!(error.message().contains(text), "{error}");
        assert_eq!(error.code(), tensor::Code::Unsupported, "{name}");
    };
    check("linear.json", "XGBoost JSON model: the booster 'gblinear' has no trees");
    check("lgb_linear.txt", "a tree with linear models in its leaves. Train with linear_tree=false");
}

#[test]
fn a_file_of_another_format_is_identified() {
    let read = |format, name: &str| {
        let file = std::fs::read(file(name)).expect("a model");
        trees::read(format, &file).expect_err(name).message().to_owned()
    };
    let check = |format, name: &str, text: &str| {
        let found = read(format, name);
        assert!(found.ends_with(&format!("set the parameter 'model_type' to \"{text}\"")), "{found}");
    };
    check(Format::XgboostBinary, "squared.ubj", "xgboost_ubj");
    check(Format::XgboostBinary, "squared.json", "xgboost_json");
    check(Format::XgboostJson, "squared.ubj", "xgboost_ubj");
    check(Format::XgboostUbjson, "squared.json", "xgboost_json");
    check(Format::XgboostJson, "lgb_binary.txt", "lightgbm");
    check(Format::Lightgbm, "tl_forest.tl", "treelite_checkpoint");
}

/// Truncated files and files with a changed byte are rejected or read as valid ensembles; nothing panics.
#[test]
fn damaged_files_are_rejected_or_valid() {
    let files = [
        ("squared.json", Format::XgboostJson),
        ("categories.ubj", Format::XgboostUbjson),
        ("bin_dart.model", Format::XgboostBinary),
        ("lgb_categories.txt", Format::Lightgbm),
        ("tl_categories.tl", Format::Treelite),
        ("sk_classes.tl", Format::Treelite),
        ("vector.ubj", Format::XgboostUbjson),
    ];
    for (name, format) in files {
        let whole = std::fs::read(file(name)).expect("a model");
        let whole_ensemble = trees::read(format, &whole).expect(name);
        for end in (0..whole.len()).step_by(211) {
            let read = trees::read(format, &whole[..end]);
            assert!(read.is_err() || read == Ok(whole_ensemble.clone()), "{name}, cut at {end}");
        }
        for at in (0..whole.len()).step_by(157) {
            for value in [0, b'9', 0xff] {
                let mut changed = whole.clone();
                changed[at] = value;
                if let Ok(ensemble) = trees::read(format, &changed) {
                    // Every index is valid.
                    sums(&ensemble, &vec![0.5; ensemble.features as usize]);
                }
            }
        }
    }
}

#[test]
fn nodes_of_lightgbm_with_invalid_references_are_rejected() {
    let lines = |changes: &[(&str, &'static str)]| {
        let mut lines = vec![
            ("num_leaves", "3"),
            ("num_cat", "2"),
            ("split_feature", "0 1"),
            ("threshold", "0 1"),
            ("decision_type", "1 1"),
            ("left_child", "1 -1"),
            ("right_child", "-2 -3"),
            ("leaf_value", "1 2 3"),
            ("cat_boundaries", "0 1 2"),
            ("cat_threshold", "6 9"),
        ];
        for (key, value) in &mut lines {
            *value = changes.iter().find(|change| change.0 == *key).map_or(*value, |change| change.1);
        }
        let tree: String = lines.iter().map(|(key, value)| format!("{key}={value}\n")).collect();
        let head = "tree\nnum_class=1\nmax_feature_idx=1\nobjective=regression\n\nTree=0\n";
        trees::read(Format::Lightgbm, format!("{head}{tree}\nend of trees\n").as_bytes())
    };
    assert_eq!(lines(&[]).map(|e| e.trees.len()), Ok(1));
    let refused = |changes: &[(&str, &'static str)], text: &str| {
        let error = lines(changes).expect_err(text);
        assert!(error.message().contains(text), "{error}");
    };
    let check = |key, value, text: &str| refused(&[(key, value)], text);
    check("left_child", "1 -9223372036854775808", "-9223372036854775808 is named as a child");
    check("left_child", "0 -1", "line 6: tree 0: node 0 is the child of two nodes");
    check("right_child", "-2 -4", "node 5 is named as a child, and the tree has 5 nodes");
    check("threshold", "0 7", "its set of categories, 7, does not exist");
    let shared = [("threshold", "0 0"), ("cat_boundaries", "0 2 2")];
    refused(&shared, "its categories also belong to another node");
    check("split_feature", "0 2", "a tree uses feature 2, but the model declares 2");
    check("num_leaves", "4", "line 6: 'leaf_value' has 3 items, not 4");
    check("leaf_value", "1 2 x", "line 6: 'leaf_value' has 'x', which is not a number that fits");
}

#[test]
fn outputs_have_the_sizes_that_the_configuration_names() {
    let logistic = load("logistic.json").expect("a model");
    let softprob = load("softprob.json").expect("a model");
    let above = OutputKind::Above { threshold: 0.5 };
    let columns = [OutputKind::Prediction, above, OutputKind::BothClasses].map(|a| a.columns(&logistic));
    assert_eq!(columns, [1, 1, 2]);
    assert_eq!([OutputKind::Prediction, OutputKind::LargestClass].map(|a| a.columns(&softprob)), [3, 1]);
}
