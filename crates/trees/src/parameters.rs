//! Model parameters of the backend `fil`: strings in the configuration. Names, defaults and texts are Triton's.

use crate::Format;
use crate::ensemble::{Ensemble, unsupported};
use crate::output::OutputKind;
use tensor::{Error, Result};

/// Output with the contribution of each feature, which is not supported.
pub const SHAP_OUTPUT: &str = "treeshap_output";

/// Parameters that determine the output, and names of ignored ones for a warning.
#[derive(Clone, PartialEq, Debug)]
pub struct Parameters {
    /// `model_type`.
    pub format: Format,
    /// `is_classifier`, or its old name `output_class`: the output is a class instead of a value.
    pub is_classifier: bool,
    /// `predict_proba`: a classifier returns probabilities.
    pub predict_proba: bool,
    /// `threshold` for classes of one output.
    pub threshold: f32,
    /// `cpu_nthread`: threads of a run; `None` = the server's default.
    pub threads: Option<u32>,
    /// Parameters without effect, for a line in the log.
    pub ignored: Vec<&'static str>,
}

/// Parameters of Triton's tree engine, which have no effect here, and their syntax.
const ENGINE: [(&str, ParameterKind); 9] = [
    ("algo", ParameterKind::OneOf(&["ALGO_AUTO", "NAIVE", "TREE_REORG", "BATCH_TREE_REORG"])),
    ("storage_type", ParameterKind::OneOf(&["AUTO", "DENSE", "SPARSE", "SPARSE8"])),
    ("layout", ParameterKind::OneOf(&["depth_first", "breadth_first", "layered"])),
    ("blocks_per_sm", ParameterKind::Integer),
    ("threads_per_tree", ParameterKind::Integer),
    ("chunk_size", ParameterKind::Integer),
    ("transfer_threshold", ParameterKind::Integer),
    ("use_experimental_optimizations", ParameterKind::Boolean),
    ("xgboost_allow_unknown_field", ParameterKind::Boolean),
];

#[derive(Clone, Copy)]
enum ParameterKind {
    Boolean,
    Integer,
    OneOf(&'static [&'static str]),
}

impl Parameters {
    /// Reads the parameters; `get` returns the text of one.
    ///
    /// # Errors
    /// INVALID_ARG, with parameter, value and valid values; UNSUPPORTED for an unknown `model_type`, as in Triton.
    pub fn read<'a>(get: impl Fn(&str) -> Option<&'a str>) -> Result<Self> {
        // An empty text counts as none.
        let get = |name: &str| get(name).map(str::trim).filter(|text| !text.is_empty());
        let boolean = |name: &str| get(name).map(|text| boolean(name, text)).transpose();
        let model_type = get("model_type").unwrap_or("xgboost");
        let format = Format::from_model_type(model_type).ok_or_else(|| {
            unsupported(format!(
                "{model_type} not recognized as a valid serialization format. The parameter 'model_type' is one of \
                 xgboost, xgboost_json, xgboost_ubj, lightgbm and treelite_checkpoint"
            ))
        })?;
        let is_classifier = match (boolean("output_class")?, boolean("is_classifier")?) {
            (Some(old), _) => old,
            (None, Some(new)) => new,
            (None, None) => {
                return Err(Error::invalid(
                    "Required parameter is_classifier not found in config. Set it to \"true\" for a classifier and to \
                     \"false\" for a regressor",
                ));
            }
        };
        let threshold = match get("threshold") {
            None => 0.5,
            Some(text) => {
                let value = text.parse().ok().filter(|v: &f32| !v.is_nan());
                value.ok_or_else(|| bad("threshold", text, "a number"))?
            }
        };
        let threads = match get("cpu_nthread") {
            None => None,
            Some(text) => {
                let value: i32 = text.parse().map_err(|_| bad("cpu_nthread", text, "an integer"))?;
                u32::try_from(value).ok().filter(|n| *n > 0)
            }
        };
        let mut ignored = Vec::new();
        for (name, kind) in ENGINE {
            let Some(text) = get(name) else { continue };
            match kind {
                ParameterKind::Boolean => drop(self::boolean(name, text)?),
                ParameterKind::Integer => drop(text.parse::<i64>().map_err(|_| bad(name, text, "an integer"))?),
                ParameterKind::OneOf(names) if names.contains(&text) => {}
                ParameterKind::OneOf(names) => return Err(bad(name, text, &format!("one of {}", names.join(", ")))),
            }
            ignored.push(name);
        }
        let predict_proba = boolean("predict_proba")?.unwrap_or(false);
        Ok(Self { format, is_classifier, predict_proba, threshold, threads, ignored })
    }

    /// Kind of the output; `columns` is its configured number of values, if any.
    pub fn output_kind(&self, ensemble: &Ensemble, columns: Option<i64>) -> OutputKind {
        match (self.is_classifier, self.predict_proba) {
            (true, false) if ensemble.is_multiclass => OutputKind::LargestClass,
            (true, false) => OutputKind::Above { threshold: self.threshold },
            (true, true) if ensemble.outputs == 1 && columns != Some(1) => OutputKind::BothClasses,
            _ => OutputKind::Prediction,
        }
    }
}

fn bad(name: &str, value: &str, wanted: &str) -> Error {
    Error::invalid(format!("Bad input for parameter {name}: it is \"{value}\", and has to be {wanted}"))
}

fn boolean(name: &str, text: &str) -> Result<bool> {
    match text.to_ascii_lowercase().as_str() {
        "true" | "on" | "1" => Ok(true),
        "false" | "off" | "0" => Ok(false),
        _ => Err(bad(name, text, "\"true\" or \"false\"")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(pairs: &[(&str, &'static str)]) -> Result<Parameters> {
        Parameters::read(|name| pairs.iter().find(|(n, _)| *n == name).map(|(_, value)| *value))
    }

    #[test]
    fn parameters_have_tritons_names_and_defaults() {
        let plain = read(&[("is_classifier", "false")]).expect("enough");
        assert_eq!(
            plain,
            Parameters {
                format: Format::XgboostBinary,
                is_classifier: false,
                predict_proba: false,
                threshold: 0.5,
                threads: None,
                ignored: vec![]
            }
        );
        let all = read(&[
            ("model_type", "lightgbm"),
            ("output_class", "true"),
            ("predict_proba", "true"),
            ("threshold", "0.3"),
            ("algo", "ALGO_AUTO"),
            ("storage_type", "AUTO"),
            ("blocks_per_sm", "0"),
            ("cpu_nthread", "-1"),
            ("use_experimental_optimizations", "true"),
        ]);
        let all = all.expect("as published configurations have it");
        assert!(all.is_classifier && all.predict_proba && all.threads.is_none());
        assert_eq!((all.format, all.threshold), (Format::Lightgbm, 0.3));
        assert_eq!(all.ignored, ["algo", "storage_type", "blocks_per_sm", "use_experimental_optimizations"]);
    }

    #[test]
    fn invalid_parameters_are_named_with_their_valid_values() {
        let check = |pairs: &[(&str, &'static str)], text: &str| {
            let pairs = [&[("is_classifier", "true")], pairs].concat();
            assert_eq!(read(&pairs).expect_err(text).message(), text);
        };
        check(
            &[("predict_proba", "yes")],
            "Bad input for parameter predict_proba: it is \"yes\", and has to be \"true\" or \"false\"",
        );
        check(&[("threshold", "half")], "Bad input for parameter threshold: it is \"half\", and has to be a number");
        check(
            &[("layout", "flat")],
            "Bad input for parameter layout: it is \"flat\", and has to be one of depth_first, breadth_first, layered",
        );
        check(
            &[("model_type", "catboost")],
            "catboost not recognized as a valid serialization format. The parameter 'model_type' is one of xgboost, \
             xgboost_json, xgboost_ubj, lightgbm and treelite_checkpoint",
        );
        let none = read(&[]).expect_err("is_classifier is required");
        assert!(none.message().starts_with("Required parameter is_classifier not found in config"), "{none}");
    }
}
