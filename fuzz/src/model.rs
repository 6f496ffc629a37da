//! The model every target asks, which `protocol` keeps beside its own entry, and what the targets compare.

use protocol::InferRequest;
pub use protocol::fuzz::{NoRegions, echo, signature};
use tensor::{Data, Result};

/// Two readings of one request must be the same, tensors included.
pub fn same(a: &Result<InferRequest>, b: &Result<InferRequest>, what: &str) {
    match (a, b) {
        (Ok(a), Ok(b)) => {
            assert_eq!(format!("{a:?}"), format!("{b:?}"), "{what}");
            for (a, b) in a.inputs.iter().zip(&b.inputs) {
                assert_eq!(bytes(&a.data), bytes(&b.data), "{what}: data of {}", a.name);
            }
        }
        (a, b) => assert_eq!(a.is_ok(), b.is_ok(), "{what}: {:?}, {:?}", a.as_ref().err(), b.as_ref().err()),
    }
}

/// Without regions every tensor is bytes.
pub fn bytes(data: &Data) -> &[u8] {
    match data {
        Data::Bytes(bytes) => bytes,
        Data::Region(_) => panic!("a region out of nowhere"),
    }
}
