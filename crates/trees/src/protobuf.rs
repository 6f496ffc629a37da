//! Writes the protobuf of ONNX files, in the order of the calls. Field numbers are those of `onnx.proto`.

use prost::encoding::{WireType, encode_key, encode_varint, uint64};

/// A number field.
pub fn number(to: &mut Vec<u8>, field: u32, value: u64) {
    uint64::encode(field, &value, to);
}

/// A field with a string or a message.
pub fn bytes(to: &mut Vec<u8>, field: u32, value: &[u8]) {
    head(to, field, value.len());
    to.extend_from_slice(value);
}

/// The key and length of a field.
fn head(to: &mut Vec<u8>, field: u32, length: usize) {
    encode_key(field, WireType::LengthDelimited, to);
    encode_varint(length as u64, to);
}

/// A ValueInfoProto: a tensor of an element type. Dimensions below 0 are variable and have no name.
pub fn value_info(name: &str, element: u64, dims: &[i64]) -> Vec<u8> {
    let mut shape = Vec::new();
    for &dim in dims {
        let mut one = Vec::new();
        if let Ok(size) = u64::try_from(dim) {
            number(&mut one, 1, size);
        }
        bytes(&mut shape, 1, &one);
    }
    let (mut of_tensor, mut kind, mut info) = (Vec::new(), Vec::new(), Vec::new());
    number(&mut of_tensor, 1, element);
    bytes(&mut of_tensor, 2, &shape);
    bytes(&mut kind, 1, &of_tensor);
    bytes(&mut info, 1, name.as_bytes());
    bytes(&mut info, 2, &kind);
    info
}

/// A ModelProto with one graph, which uses operators of these domains and versions.
pub fn model(graph: &[u8], domains: &[(&str, u64)]) -> Vec<u8> {
    let mut model = Vec::with_capacity(graph.len() + 128);
    number(&mut model, 1, 9); // ir_version
    bytes(&mut model, 2, b"nereid");
    bytes(&mut model, 7, graph);
    for (domain, version) in domains {
        let mut opset = Vec::new();
        bytes(&mut opset, 1, domain.as_bytes());
        number(&mut opset, 2, *version);
        bytes(&mut model, 8, &opset);
    }
    model
}

/// A NodeProto.
pub struct OnnxNode {
    message: Vec<u8>,
    domain: &'static str,
}

#[allow(missing_docs)]
impl OnnxNode {
    /// A node; an empty `domain` is the standard one.
    pub fn new(
        name: &str,
        domain: &'static str,
        operator: &str,
        inputs: &[impl AsRef<str>],
        outputs: &[impl AsRef<str>],
    ) -> Self {
        let mut message = Vec::new();
        inputs.iter().for_each(|name| bytes(&mut message, 1, name.as_ref().as_bytes()));
        outputs.iter().for_each(|name| bytes(&mut message, 2, name.as_ref().as_bytes()));
        bytes(&mut message, 3, name.as_bytes());
        bytes(&mut message, 4, operator.as_bytes());
        Self { message, domain }
    }

    /// The encoded message.
    pub fn finish(mut self) -> Vec<u8> {
        if !self.domain.is_empty() {
            bytes(&mut self.message, 7, self.domain.as_bytes());
        }
        self.message
    }

    /// Adds an AttributeProto of type `kind`, with the value that `value` writes.
    fn attribute(mut self, name: &str, kind: u64, value: impl FnOnce(&mut Vec<u8>)) -> Self {
        let mut attribute = Vec::new();
        bytes(&mut attribute, 1, name.as_bytes());
        value(&mut attribute);
        number(&mut attribute, 20, kind);
        bytes(&mut self.message, 5, &attribute);
        self
    }

    pub fn int(self, name: &str, value: u64) -> Self {
        self.attribute(name, 2, |to| number(to, 3, value))
    }

    pub fn text(self, name: &str, value: &str) -> Self {
        self.attribute(name, 3, |to| bytes(to, 4, value.as_bytes()))
    }
}
