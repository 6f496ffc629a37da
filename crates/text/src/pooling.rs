//! Pooling of token states to one row, normalisation, and the activations of scores and classes.

/// How the states of tokens become one row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pooling {
    /// The mean.
    Mean,
    /// The first token's.
    Cls,
    /// The last token's.
    LastToken,
    /// The maximum of each value.
    Max,
}

/// The function that makes scores and probabilities of logits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Activation {
    None,
    Sigmoid,
    Softmax,
}

impl Pooling {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Mean, Self::Cls, Self::LastToken, Self::Max];

    /// Name in configurations.
    pub fn name(self) -> &'static str {
        match self {
            Self::Mean => "mean",
            Self::Cls => "cls",
            Self::LastToken => "last",
            Self::Max => "max",
        }
    }

    /// Pools the states of the first `tokens` tokens, `row.len()` values each, into `row`.
    ///
    /// # Panics
    /// If `states` has fewer values.
    pub fn pool(self, states: &[f32], tokens: usize, row: &mut [f32]) {
        let width = row.len();
        let states = &states[..tokens * width];
        if states.is_empty() {
            return row.fill(0.0);
        }
        match self {
            Self::Cls => row.copy_from_slice(&states[..width]),
            Self::LastToken => row.copy_from_slice(&states[states.len() - width..]),
            Self::Mean | Self::Max => {
                row.copy_from_slice(&states[..width]);
                for state in states[width..].chunks_exact(width) {
                    // One loop for each, without a branch inside, so that it is made of vector instructions.
                    match self {
                        // Keeps NaN, unlike `f32::max`: an answer that has NaN is an error.
                        Self::Max => row.iter_mut().zip(state).for_each(|(value, of)| {
                            *value = if of > value || of.is_nan() { *of } else { *value };
                        }),
                        _ => row.iter_mut().zip(state).for_each(|(value, of)| *value += of),
                    }
                }
                if self == Self::Mean {
                    let tokens = tokens as f32;
                    row.iter_mut().for_each(|value| *value /= tokens);
                }
            }
        }
    }
}

/// Scales a row to length 1; a row of zeros stays.
pub fn normalize(row: &mut [f32]) {
    // The sum has eight parts, so that it is made of vector instructions; in `f64` no square is too large.
    let mut parts = [0f64; 8];
    for eight in row.chunks(8) {
        for (part, value) in parts.iter_mut().zip(eight) {
            *part += f64::from(*value) * f64::from(*value);
        }
    }
    // Not `max`, which would hide NaN; the least length is that of PyTorch's `normalize`.
    let length = parts.iter().sum::<f64>().sqrt();
    let length = if length < 1e-12 { 1e-12 } else { length };
    row.iter_mut().for_each(|value| *value = (f64::from(*value) / length) as f32);
}

impl Activation {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::None, Self::Sigmoid, Self::Softmax];

    /// Name in configurations.
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Sigmoid => "sigmoid",
            Self::Softmax => "softmax",
        }
    }

    /// Applies the activation to a row.
    pub fn apply(self, row: &mut [f32]) {
        match self {
            Self::None => {}
            Self::Sigmoid => row.iter_mut().for_each(|value| *value = 1.0 / (1.0 + (-*value).exp())),
            Self::Softmax => {
                let most = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
                let mut sum = 0.0;
                for value in row.iter_mut() {
                    *value = (*value - most).exp();
                    sum += *value;
                }
                row.iter_mut().for_each(|value| *value /= sum);
            }
        }
    }
}
