//! Tree models (gradient boosting, random forests) of XGBoost, LightGBM and treelite, for the backend `fil`: readers of
//! their files, a common form in memory ([`Ensemble`]), and its evaluation ([`Evaluator`]).
//!
//! Pure: no files and no threads. Also has the writer of ONNX's [`protobuf`], which wraps TensorRT plans.
//!
//! Files are untrusted. No reader recurses, panics, or allocates by a size that a file announces; [`limits`] bounds
//! what is read. Errors name the problem and its position: a line, a byte offset, or a tree and a node.
//!
//! Invariant of an [`Ensemble`]: from each root, every path reaches a leaf within [`limits::DEPTH_MAX`] nodes, and
//! every feature and output that a node refers to exists.

mod binary;
mod compare;
mod document;
mod ensemble;
mod evaluate;
mod json;
mod lightgbm;
pub mod limits;
mod output;
mod parameters;
mod pieces;
pub mod protobuf;
mod treelite;
mod ubjson;
mod xgboost;
mod xgboost_binary;

pub use compare::Compare;
pub use ensemble::{Ensemble, Precision, Transform, Tree, TreeNode};
pub use evaluate::{Evaluator, ROWS_PER_BLOCK, RawFloat};
pub use output::{INPUT, OUTPUT, OutputKind};
pub use parameters::{Parameters, SHAP_OUTPUT};

use tensor::{Error, Result};

/// Format of a model file; parameter `model_type`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Format {
    /// XGBoost's own binary format, which XGBoost 3.1 and later do not write.
    XgboostBinary,
    /// XGBoost's JSON.
    XgboostJson,
    /// XGBoost's UBJSON.
    XgboostUbjson,
    /// LightGBM's text.
    Lightgbm,
    /// A checkpoint of treelite 4.
    Treelite,
}

/// `model_type`, the name in errors, and the default file name.
const FORMATS: [(Format, &str, &str, &str); 5] = [
    (Format::XgboostBinary, "xgboost", "XGBoost binary model", "xgboost.model"),
    (Format::XgboostJson, "xgboost_json", "XGBoost JSON model", "xgboost.json"),
    (Format::XgboostUbjson, "xgboost_ubj", "XGBoost UBJSON model", "xgboost.ubj"),
    (Format::Lightgbm, "lightgbm", "LightGBM model", "model.txt"),
    (Format::Treelite, "treelite_checkpoint", "treelite checkpoint", "checkpoint.tl"),
];

impl Format {
    /// The format with this `model_type`.
    pub fn from_model_type(text: &str) -> Option<Self> {
        FORMATS.iter().find(|(_, name, ..)| *name == text).map(|(format, ..)| *format)
    }

    /// Name of the model's file in a version directory.
    pub fn file_name(self) -> &'static str {
        FORMATS.iter().find(|(format, ..)| *format == self).map_or("", |(.., file)| file)
    }

    fn title(self) -> &'static str {
        FORMATS.iter().find(|(format, ..)| *format == self).map_or("", |(_, _, title, _)| title)
    }
}

/// Reads a model.
///
/// # Errors
/// INVALID_ARG for a damaged file or another format, UNSUPPORTED for a model that cannot be evaluated as by its
/// framework. The text has the position in the file and the remedy.
pub fn read(format: Format, file: &[u8]) -> Result<Ensemble> {
    if file.len() as u64 > limits::FILE_BYTES_MAX {
        let (bytes, most) = (file.len(), limits::FILE_BYTES_MAX);
        return Err(Error::invalid(format!("the file has {bytes} bytes, at most {most} are read")));
    }
    let read = match format {
        Format::XgboostBinary => xgboost_binary::read(file),
        Format::XgboostJson => xgboost::read(&mut json::Json::new(file)),
        Format::XgboostUbjson => xgboost::read(&mut ubjson::Ubjson::new(file)),
        Format::Lightgbm => lightgbm::read(file),
        Format::Treelite => treelite::read(file),
    };
    read.map_err(|e| {
        let looks = look(file).filter(|found| *found != format);
        let hint =
            looks.and_then(|found| FORMATS.iter().find(|f| f.0 == found)).map_or(String::new(), |(_, name, ..)| {
                format!(". The file begins like one of another format: set the parameter 'model_type' to \"{name}\"")
            });
        e.with_text(format!("{}: {}{hint}", format.title(), e.message()))
    })
}

/// Guesses the format from the first bytes.
fn look(file: &[u8]) -> Option<Format> {
    let rest = file.trim_ascii_start();
    match rest {
        [b'{', b'$' | b'#' | b'L' | b'i' | b'U' | b'I' | b'l', ..] => Some(Format::XgboostUbjson),
        [b'{', ..] => Some(Format::XgboostJson),
        _ if rest.starts_with(b"tree\n") || rest.starts_with(b"tree\r\n") => Some(Format::Lightgbm),
        _ if rest.starts_with(b"binf") => Some(Format::XgboostBinary),
        [3 | 4, 0, 0, 0, ..] => Some(Format::Treelite),
        _ => None,
    }
}
