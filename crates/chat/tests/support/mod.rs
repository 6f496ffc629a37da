//! Facts of replies, which are the same each time.

use chat::speech::Facts;

/// Facts of a reply of the model `m` without tools and texts of `stop`.
pub fn facts(id: &str) -> Facts {
    Facts {
        id: id.to_owned(),
        created: 5,
        model: "m".to_owned(),
        parser: None,
        forced: None,
        call_bytes_max: 1000,
        fresh: || "0123456789abcdef".to_owned(),
        stop: [].into(),
        counts: true,
        max_tokens: None,
    }
}
