//! Parameters of a configuration. Names with a dot belong to others.

use protocol::pb::inference::ModelConfig;

/// Names and texts, for `vision::parameters::Parameters`.
pub(crate) fn texts(config: &ModelConfig) -> impl Iterator<Item = (&str, &str)> {
    let all = config.parameters.iter().map(|(name, parameter)| (&**name, &*parameter.string_value));
    all.filter(|(name, _)| !name.contains('.'))
}
