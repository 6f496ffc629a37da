//! Names of models and regions in gRPC messages, for log lines.

use super::json_line::JsonLine;
use crate::limits::LOG_NAME_BYTES_MAX;
use crate::table::Operation;
use prost::encoding::{decode_key, decode_varint, skip_field};

/// Writes the names in the message of a call that can be read. The numbers are those of protobuf fields.
pub fn put_names(operation: Operation, message: &[u8], line: &mut JsonLine<'_>) {
    let names: &[(&str, u32)] = match operation {
        Operation::ModelReady | Operation::ModelMetadata | Operation::ModelConfig | Operation::ModelStatistics => {
            &[("model", 1), ("version", 2)]
        }
        Operation::Load | Operation::Unload | Operation::TraceSettings => &[("model", 2)],
        Operation::SystemRegionStatus
        | Operation::SystemRegionRegister
        | Operation::SystemRegionUnregister
        | Operation::CudaRegionStatus
        | Operation::CudaRegionRegister
        | Operation::CudaRegionUnregister => &[("region", 1)],
        _ => &[],
    };
    for (key, number) in names {
        let name = text(message, *number);
        if !name.is_empty() {
            line.text(key, name, LOG_NAME_BYTES_MAX);
        }
    }
}

/// The text field of this number; empty if there is none. The last occurrence counts, as protobuf demands.
fn text(mut message: &[u8], number: u32) -> &[u8] {
    let mut found: &[u8] = b"";
    while let Ok((tag, wire_type)) = decode_key(&mut message) {
        let from = message;
        if skip_field(wire_type, tag, &mut message, Default::default()).is_err() {
            break;
        }
        if tag == number {
            found = from.get(..from.len() - message.len()).unwrap_or_default();
            let _ = decode_varint(&mut found);
        }
    }
    found
}
