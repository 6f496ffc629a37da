//! Settings of traces and logs.

use super::{Context, Result};
use crate::control::ControlOperation;
use crate::table::Operation;
use crate::text::Text;

/// A request that reads settings or changes them.
pub struct Settings {
    /// The model whose trace settings are meant, empty for the global ones; `None`: settings of logs.
    model: Option<String>,
    is_change: bool,
    argument: Text,
}

impl Settings {
    /// Trace settings of `model`, empty for the global ones, or log settings. `changes`: those to change, in JSON.
    pub fn new(model: Option<&str>, protocol: &str, changes: Option<&[u8]>) -> Self {
        let mut argument = Text::begin(b'{');
        if let Some(model) = model {
            argument.key("model").string(model);
        }
        argument.key("settings").raw(changes.unwrap_or(b"{}")).key("protocol").string(protocol).close(b'}');
        Self { model: model.map(str::to_owned), is_change: changes.is_some(), argument }
    }
}

/// The settings after the change, as the JSON of the native contract.
pub async fn settings(context: &Context<'_>, settings: Settings) -> Result<String> {
    let Settings { model, is_change, argument } = settings;
    let (read, change, update) = match model {
        Some(_) => (ControlOperation::TraceGet, ControlOperation::TraceUpdate, Operation::TraceUpdate),
        None => (ControlOperation::LogGet, ControlOperation::LogUpdate, Operation::LogUpdate),
    };
    let model = model.unwrap_or_default();
    // An empty name stands for all models.
    context.admit_model(&model)?;
    if is_change {
        context.admit_change(update, &model)?;
    }
    context.control(if is_change { change } else { read }, argument).await
}
