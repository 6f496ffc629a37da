//! Limits of tree files, which are untrusted: they may come over the network.

/// Maximum bytes of a model file. While it is read, its trees need about as much memory again.
pub const FILE_BYTES_MAX: u64 = 1 << 30;
/// Maximum number of trees of a model.
pub const TREES_MAX: usize = 1 << 18;
/// Maximum number of nodes of all trees, including those added for category sets and ranges of zeros.
pub const NODES_MAX: usize = 1 << 23;
/// Maximum number of values in leaves that have several, of all trees.
pub const LEAF_VALUES_MAX: usize = 1 << 25;
/// Maximum number of nodes between a root and a leaf: the steps of each row in the worst case.
pub const DEPTH_MAX: u32 = 1024;
/// Maximum number of features (columns) of a model.
pub const FEATURES_MAX: u32 = 1 << 20;
/// Maximum number of values per row: classes, or targets of a regression.
pub const OUTPUTS_MAX: u32 = 1 << 14;
/// Maximum bytes of a stored text, such as the name of an objective or a parameter.
pub const TEXT_BYTES_MAX: usize = 64 << 10;
/// Maximum nesting depth of skipped objects and arrays.
pub const NESTING_MAX: usize = 64;
