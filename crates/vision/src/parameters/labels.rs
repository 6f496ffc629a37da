//! From texts to the choice of classes.

use super::Parameters;
use crate::labels::Activation;
use tensor::Result;

/// Parameters of [`labels`].
pub const LABELS: [&str; 2] = ["activation", "top_k"];

/// Classes of an answer, unless a parameter says otherwise.
const TOP_K: usize = 5;

/// Activation and number of classes.
///
/// # Errors
/// INVALID_ARG with the parameter, what was expected and found.
pub fn labels(parameters: &Parameters<'_>) -> Result<(Activation, usize)> {
    let activations: Vec<_> = Activation::ALL.iter().map(|kind| (kind.name(), *kind)).collect();
    let activation = parameters.choice("activation", &activations)?.unwrap_or(Activation::Softmax);
    Ok((activation, parameters.number("top_k")?.unwrap_or(TOP_K)))
}
