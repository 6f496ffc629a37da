//! ONNX Runtime behind the backend trait.
