//! Reads the operators and connections of an ONNX file; weights are skipped without being read, however large they are.
//!
//! The file is untrusted: it may come over the network. There is no recursion (nested graphs are only noted), and
//! nodes, names and fields are limited. Files that exceed a limit or are not valid protobuf are rejected; the only
//! caller, `cost`, then treats the cost as unknown.
//!
//! Field numbers are those of `onnx.proto`.

use std::io::{BufRead, BufReader, Read, Seek};

/// Maximum number of nodes of all graphs. A larger model takes longer than an inline run may.
const NODES_MAX: usize = 4096;
/// Maximum bytes of all names together.
const NAME_BYTES_MAX: u64 = 1 << 20;
/// Maximum number of fields, including skipped ones.
const FIELDS_MAX: u32 = 1 << 20;
/// Read buffer; skipped fields are usually longer.
const BUFFER_BYTES: usize = 16 << 10;

type Name = Vec<u8>;

/// The relevant fields of a `ModelProto`.
#[derive(Debug, Default)]
pub(crate) struct GraphFacts {
    ir_version: u64,
    pub(crate) graph: Graph,
    pub(crate) functions: Vec<Function>,
}

#[derive(Debug, Default)]
pub(crate) struct Graph {
    pub(crate) nodes: Vec<GraphNode>,
    pub(crate) inputs: Vec<Name>,
    pub(crate) initializers: Vec<Name>,
}

#[derive(Debug, Default)]
pub(crate) struct Function {
    pub(crate) domain: Name,
    pub(crate) name: Name,
    pub(crate) body: Graph,
}

#[derive(Debug, Default)]
pub(crate) struct GraphNode {
    pub(crate) operator: Name,
    pub(crate) domain: Name,
    pub(crate) inputs: Vec<Name>,
    pub(crate) outputs: Vec<Name>,
    pub(crate) has_graph: bool,
}

impl GraphFacts {
    /// Reads an ONNX file.
    ///
    /// # Errors
    /// The text tells whether the file is not ONNX or which limit it exceeds.
    pub(crate) fn read(source: impl Read + Seek) -> Result<Self, &'static str> {
        let mut reader = ProtoReader {
            from: BufReader::with_capacity(BUFFER_BYTES, source),
            at: 0,
            fields: 0,
            nodes: 0,
            name_bytes: 0,
        };
        let end = reader.from.seek(std::io::SeekFrom::End(0)).map_err(|_| UNREADABLE)?;
        reader.from.rewind().map_err(|_| UNREADABLE)?;
        reader.model(end)
    }

    /// Before version 4 every initializer also had to be an input, and yet was a constant.
    pub(crate) fn can_override_initializers(&self) -> bool {
        self.ir_version >= 4
    }
}

const UNREADABLE: &str = "the file cannot be read";
const TRUNCATED: &str = "the file ends in the middle of a field";
const NOT_PROTOBUF: &str = "the file is not an ONNX graph in protobuf";

enum FieldValue {
    Varint(u64),
    /// Four or eight bytes, skipped.
    Fixed,
    /// Bytes or a message that ends at this offset; unread bytes must be skipped.
    Until(u64),
}

struct ProtoReader<R> {
    from: BufReader<R>,
    at: u64,
    fields: u32,
    nodes: usize,
    name_bytes: u64,
}

impl<R: Read + Seek> ProtoReader<R> {
    fn model(&mut self, end: u64) -> Result<GraphFacts, &'static str> {
        let mut model = GraphFacts::default();
        while let Some((field, value)) = self.field(end)? {
            match (field, value) {
                (1, FieldValue::Varint(version)) => model.ir_version = version,
                // Repeated messages are merged, as in protobuf.
                (7, FieldValue::Until(end)) => self.graph(end, &mut model.graph)?,
                (25, FieldValue::Until(end)) => {
                    let function = self.function(end)?;
                    model.functions.push(function);
                }
                (_, value) => self.skip(value)?,
            }
        }
        Ok(model)
    }

    fn graph(&mut self, end: u64, graph: &mut Graph) -> Result<(), &'static str> {
        while let Some((field, value)) = self.field(end)? {
            match (field, value) {
                (1, FieldValue::Until(end)) => self.node(end, &mut graph.nodes)?,
                // 8 is TensorProto's name, 1 is ValueInfoProto's.
                (5, FieldValue::Until(end)) => self.named(end, 8, &mut graph.initializers)?,
                (11, FieldValue::Until(end)) => self.named(end, 1, &mut graph.inputs)?,
                (_, value) => self.skip(value)?,
            }
        }
        Ok(())
    }

    fn function(&mut self, end: u64) -> Result<Function, &'static str> {
        let mut function = Function::default();
        while let Some((field, value)) = self.field(end)? {
            match (field, value) {
                (1, FieldValue::Until(end)) => function.name = self.name(end)?,
                (4, FieldValue::Until(end)) => {
                    let name = self.name(end)?;
                    function.body.inputs.push(name);
                }
                (7, FieldValue::Until(end)) => self.node(end, &mut function.body.nodes)?,
                (10, FieldValue::Until(end)) => function.domain = self.name(end)?,
                (_, value) => self.skip(value)?,
            }
        }
        Ok(function)
    }

    fn node(&mut self, end: u64, nodes: &mut Vec<GraphNode>) -> Result<(), &'static str> {
        self.nodes += 1;
        if self.nodes > NODES_MAX {
            return Err("the graph has too many nodes");
        }
        let mut node = GraphNode::default();
        while let Some((field, value)) = self.field(end)? {
            match (field, value) {
                (1, FieldValue::Until(end)) => {
                    let name = self.name(end)?;
                    node.inputs.push(name);
                }
                (2, FieldValue::Until(end)) => {
                    let name = self.name(end)?;
                    node.outputs.push(name);
                }
                (4, FieldValue::Until(end)) => node.operator = self.name(end)?,
                (5, FieldValue::Until(end)) => node.has_graph |= self.is_graph(end)?,
                (7, FieldValue::Until(end)) => node.domain = self.name(end)?,
                (_, value) => self.skip(value)?,
            }
        }
        nodes.push(node);
        Ok(())
    }

    fn is_graph(&mut self, end: u64) -> Result<bool, &'static str> {
        let mut is_graph = false;
        while let Some((field, value)) = self.field(end)? {
            is_graph |= field == 6 || field == 11;
            self.skip(value)?;
        }
        Ok(is_graph)
    }

    /// Reads a message's name, which is in `name_field`.
    fn named(&mut self, end: u64, name_field: u64, names: &mut Vec<Name>) -> Result<(), &'static str> {
        let mut name = Name::new();
        while let Some((field, value)) = self.field(end)? {
            match value {
                FieldValue::Until(end) if field == name_field => name = self.name(end)?,
                value => self.skip(value)?,
            }
        }
        names.push(name);
        Ok(())
    }

    /// The next field of the message that ends at `end`; `None` at the end.
    fn field(&mut self, end: u64) -> Result<Option<(u64, FieldValue)>, &'static str> {
        if self.at >= end {
            return if self.at == end { Ok(None) } else { Err(TRUNCATED) };
        }
        self.fields += 1;
        if self.fields > FIELDS_MAX {
            return Err("the file has too many fields");
        }
        let key = self.varint()?;
        let value = match key & 7 {
            0 => FieldValue::Varint(self.varint()?),
            wire @ (1 | 5) => {
                self.skip_to(self.at + if wire == 1 { 8 } else { 4 })?;
                FieldValue::Fixed
            }
            2 => {
                let length = self.varint()?;
                FieldValue::Until(self.at.checked_add(length).ok_or(TRUNCATED)?)
            }
            _ => return Err(NOT_PROTOBUF),
        };
        let until = if let FieldValue::Until(until) = value { until } else { self.at };
        if key >> 3 == 0 || until > end {
            return Err(if until > end { TRUNCATED } else { NOT_PROTOBUF });
        }
        Ok(Some((key >> 3, value)))
    }

    fn varint(&mut self) -> Result<u64, &'static str> {
        let mut value = 0;
        for shift in (0..70).step_by(7) {
            let byte = self.from.fill_buf().map_err(|_| UNREADABLE)?.first().copied().ok_or(TRUNCATED)?;
            self.from.consume(1);
            self.at += 1;
            value |= u64::from(byte & 0x7f).checked_shl(shift).unwrap_or(0);
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(NOT_PROTOBUF)
    }

    fn name(&mut self, end: u64) -> Result<Name, &'static str> {
        let length = end - self.at;
        self.name_bytes = self.name_bytes.saturating_add(length);
        if self.name_bytes > NAME_BYTES_MAX {
            return Err("the names in the file are too long");
        }
        let mut name = vec![0; length as usize];
        self.from.read_exact(&mut name).map_err(|_| TRUNCATED)?;
        self.at = end;
        Ok(name)
    }

    fn skip(&mut self, value: FieldValue) -> Result<(), &'static str> {
        if let FieldValue::Until(end) = value { self.skip_to(end) } else { Ok(()) }
    }

    fn skip_to(&mut self, end: u64) -> Result<(), &'static str> {
        let by = end.checked_sub(self.at).and_then(|n| i64::try_from(n).ok()).ok_or(TRUNCATED)?;
        self.from.seek_relative(by).map_err(|_| UNREADABLE)?;
        self.at = end;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Cursor;

    fn varint(mut n: u64) -> Vec<u8> {
        let mut out = Vec::new();
        while n >= 0x80 {
            out.push(n as u8 | 0x80);
            n >>= 7;
        }
        out.push(n as u8);
        out
    }

    fn message(field: u64, parts: &[&[u8]]) -> Vec<u8> {
        let body = parts.concat();
        [varint(field << 3 | 2), varint(body.len() as u64), body].concat()
    }

    fn read(bytes: &[u8]) -> Result<GraphFacts, &'static str> {
        GraphFacts::read(Cursor::new(bytes))
    }

    #[test]
    fn nodes_names_and_functions_are_read_and_weights_are_skipped() {
        let weights = vec![0xff; 100_000];
        let node = message(1, &[&message(1, &[b"a"]), &message(2, &[b"b"]), &message(4, &[b"Relu"])]);
        let initializer = message(5, &[&message(9, &[&weights]), &message(8, &[b"w"])]);
        let graph = message(7, &[&node, &initializer, &message(11, &[&message(1, &[b"a"])])]);
        let function =
            message(25, &[&message(1, &[b"F"]), &message(10, &[b"d"]), &message(7, &[&message(4, &[b"Exp"])])]);
        let model = read(&[vec![8, 9], graph.clone(), function].concat()).expect("reads");
        assert!(model.can_override_initializers());
        let node = &model.graph.nodes[0];
        assert_eq!(
            (&node.operator[..], &node.inputs[0][..], &node.outputs[0][..]),
            (&b"Relu"[..], &b"a"[..], &b"b"[..])
        );
        assert_eq!(
            (&model.graph.initializers[..], &model.graph.inputs[..]),
            (&[b"w".to_vec()][..], &[b"a".to_vec()][..])
        );
        assert_eq!((&model.functions[0].name[..], model.functions[0].body.nodes.len()), (&b"F"[..], 1));
        // Two graphs are merged, as in protobuf.
        assert_eq!(read(&[graph.clone(), graph].concat()).map(|m| m.graph.nodes.len()), Ok(2));
    }

    #[test]
    fn graphs_in_attributes_are_noted_at_any_position() {
        for field in [6, 11] {
            let inner = message(5, &[&message(1, &[b"body"]), &message(field, &[&message(2, &[b"g"])])]);
            let model = read(&message(7, &[&message(1, &[&message(4, &[b"If"]), &inner])])).expect("reads");
            assert!(model.graph.nodes[0].has_graph);
        }
        let tensor = message(5, &[&message(1, &[b"value"]), &message(5, &[&[8, 1]])]);
        let model = read(&message(7, &[&message(1, &[&tensor])])).expect("reads");
        assert!(!model.graph.nodes[0].has_graph);
    }

    #[test]
    fn invalid_files_and_files_beyond_a_limit_are_rejected() {
        assert_eq!(read(b"ORTM and so on").err(), Some(NOT_PROTOBUF), "the runtime's own format");
        assert_eq!(read(&[0x3a, 0x80, 0x80, 0x01, 1]).err(), Some(TRUNCATED));
        assert_eq!(read(&[0x3a, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1]).err(), Some(TRUNCATED));
        assert_eq!(read(&[0xff; 11]).err(), Some(NOT_PROTOBUF), "a number of eleven bytes");
        assert_eq!(read(&[0x3a, 2, 0x0a, 1]).err(), Some(TRUNCATED), "a node longer than its graph");
        assert_eq!(read(&[0x39, 1]).err(), Some(TRUNCATED), "half a number");
        let nodes = vec![[0x0a, 0]; NODES_MAX + 1].concat();
        assert_eq!(read(&message(7, &[&nodes])).err(), Some("the graph has too many nodes"));
        let long = message(7, &[&message(1, &[&message(4, &[&vec![b'x'; NAME_BYTES_MAX as usize + 1]])])]);
        assert_eq!(read(&long).err(), Some("the names in the file are too long"));
        let fields = [8, 0].repeat(FIELDS_MAX as usize + 1);
        assert_eq!(read(&fields).err(), Some("the file has too many fields"));
    }
}
