//! What a file of trees may bring. Files are untrusted: they may come over the network.

/// Bytes of a model file. Its trees take about as much again in memory, and twice that while ONNX Runtime reads them.
pub const FILE_BYTES_MAX: u64 = 1 << 30;
/// Trees of a model.
pub const TREES_MAX: usize = 1 << 18;
/// Nodes of all trees together, those included that a set of categories or a range of zeros adds.
pub const NODES_MAX: usize = 1 << 23;
/// Nodes between a root and a leaf. ONNX Runtime recurses once for each when it loads a model.
pub const DEPTH_MAX: u32 = 1024;
/// Features (columns) of a model.
pub const FEATURES_MAX: u32 = 1 << 20;
/// Values per row: classes, or targets of a regression.
pub const OUTPUTS_MAX: u32 = 1 << 14;
/// Bytes of a text that is kept: the name of an objective, a parameter.
pub const TEXT_BYTES_MAX: usize = 64 << 10;
/// Objects and arrays inside each other in a part of a file that is skipped.
pub const NESTING_MAX: usize = 64;
