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

/// What is made of scores and classes.
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
    pub fn pool(self, states: &[f32], tokens: usize, row: &mut [f32]) {
        let _ = (states, tokens, row);
    }
}

/// Scales a row to length 1; a row of zeros stays.
pub fn normalize(row: &mut [f32]) {
    let _ = row;
}

impl Activation {
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
        let _ = row;
    }
}
