//! The file of sentence-transformers about its transformer.

use crate::files;
use serde::Deserialize;
use std::path::Path;
use tensor::Result;

/// `sentence_bert_config.json`, which older folders name by another model.
#[derive(Deserialize)]
pub(crate) struct OfSentences {
    pub(crate) max_seq_length: Option<u32>,
    #[serde(default)]
    pub(crate) do_lower_case: bool,
}

impl OfSentences {
    /// The file and its name.
    pub(crate) fn read(folder: &Path) -> Result<Option<(String, Self)>> {
        for model in ["bert", "roberta", "distilbert", "camembert", "albert", "xlm-roberta", "xlnet"] {
            let name = format!("sentence_{model}_config.json");
            if let Some(of) = files::json(folder, &name)? {
                return Ok(Some((name, of)));
            }
        }
        Ok(None)
    }
}
