//! ONNX files: which operators they have, and whether what they cost follows from shapes.

use crate::cost::follows_from_shapes;
use crate::proto::GraphFacts;
use std::io::Cursor;

/// `graph { node { op_type: "Loop" attribute { g { } } } }`; behind another model, protobuf merges it with that.
const LOOP: [u8; 14] = [0x3a, 12, 0x0a, 10, 0x22, 4, b'L', b'o', b'o', b'p', 0x2a, 2, 0x32, 0];

/// Takes a file.
///
/// # Panics
/// A model with a Loop counts as one whose cost follows from shapes, or is read otherwise the second time.
pub fn onnx(data: &[u8]) -> bool {
    let judged = |data: &[u8]| {
        let model = GraphFacts::read(Cursor::new(data)).map_err(str::to_owned)?;
        Ok((follows_from_shapes(&model, false), follows_from_shapes(&model, true), model.graph.nodes.len()))
    };
    let found: Result<_, String> = judged(data);
    assert_eq!(found, judged(data), "the same file");
    match found {
        Ok((plain, strings, nodes)) => {
            // Refused only where one more node, or field, is too many.
            let with_loop = judged(&[data, &LOOP].concat());
            assert!(
                with_loop.is_err() || with_loop.is_ok_and(|(follows, ..)| follows.is_err()),
                "a Loop went unnoticed"
            );
            assert!(strings.is_err() || plain.is_ok(), "strings make nothing cheaper");
            nodes > 0
        }
        Err(_) => false,
    }
}
