//! The folder of a text model, as hubs have it.

use crate::pooling::{Activation, Pooling};
use crate::tokenizer::Side;
use protocol::text::{Dimensions, Role};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use tensor::{Error, Result};

/// The facts of a folder. What a configuration names by [`Overrides`] wins over files.
#[derive(Debug, Clone)]
pub struct Folder {
    /// The role.
    pub role: Role,
    /// `model.onnx`, or the file below `onnx/`.
    pub file: PathBuf,
    /// How token states become a row; only for embeddings.
    pub pooling: Pooling,
    /// Whether embeddings have length 1.
    pub normalizes: bool,
    /// Of scores and classes.
    pub activation: Activation,
    /// Maximum of tokens, special tokens included.
    pub tokens_max: u32,
    /// Names of classes, in order.
    pub labels: Vec<String>,
    /// Values of `dimensions` that a request may name.
    pub dimensions: Dimensions,
    /// The side that is cut.
    pub side: Side,
    /// Prompts by name.
    pub prompts: BTreeMap<String, String>,
    /// The prompt of requests that name none.
    pub default_prompt: Option<String>,
    /// Each guess: the parameter's name, its value, and the file and key that it is from (or why there is none).
    pub guesses: Vec<Guess>,
}

/// A fact, and where it is from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Guess {
    /// Name of the parameter that overrides it.
    pub name: &'static str,
    /// Its value, as the parameter would be written.
    pub value: String,
    /// For example "1_Pooling/config.json: pooling_mode_mean_tokens".
    pub from: String,
}

/// Model parameters (`parameters { key: … }`) that override files. The names are those of [`Guess::name`].
pub mod overrides {
    /// `embed`, `rerank` or `classify`.
    pub const ROLE: &str = "nereid.text";
    /// A name of [`Pooling`](crate::pooling::Pooling).
    pub const POOLING: &str = "pooling";
    /// `true` or `false`.
    pub const NORMALIZE: &str = "normalize";
    /// A name of [`Activation`](crate::pooling::Activation).
    pub const ACTIVATION: &str = "activation";
    /// A number of tokens.
    pub const MAX_LENGTH: &str = "max_length";
    /// `any`, or numbers with commas.
    pub const DIMENSIONS: &str = "dimensions";
    /// The file of the model, below the version's directory.
    pub const FILE: &str = "file";
    /// A name of the folder's prompts, for requests that name none.
    pub const PROMPT: &str = "prompt";
    /// Maximum of tokens in a batch.
    pub const MAX_BATCH_TOKENS: &str = "max_batch_tokens";
    /// All of them.
    pub const ALL: [&str; 9] =
        [ROLE, POOLING, NORMALIZE, ACTIVATION, MAX_LENGTH, DIMENSIONS, FILE, PROMPT, MAX_BATCH_TOKENS];
}

impl Folder {
    /// Reads a folder; `parameters` are those of the model's configuration.
    ///
    /// # Errors
    /// NOT_FOUND without a model file; INVALID_ARG for files that contradict or exceed a limit, and for overrides.
    pub fn read(folder: &Path, parameters: &BTreeMap<String, String>) -> Result<Self> {
        let _ = parameters;
        Err(Error::unsupported(format!("folder {}", folder.display())))
    }
}
