//! Tokenises for `test/heavy/text/test_tokens.py`: lines of JSON in, lines of JSON out.
//!
//! `tokens FOLDER`; each line has `text`, `pair` (or null), `tokens_max` and `side`, each answer `ids` and `types`, or
//! `error`.

use protocol::text::CutSide;
use serde_json::{Value, json};
use std::io::{BufRead, Write, stdin, stdout};
use std::path::PathBuf;
use text::tokenizer::{Tokenizer, Truncation};

fn main() {
    let folder = PathBuf::from(std::env::args().nth(1).expect("a folder"));
    let tokenizer = Tokenizer::open(&folder).expect("a tokenizer");
    let mut out = stdout().lock();
    for line in stdin().lock().lines() {
        let ask: Value = serde_json::from_str(&line.expect("a line")).expect("a question");
        let truncation = Truncation {
            tokens_max: ask["tokens_max"].as_u64().expect("a number") as usize,
            side: if ask["side"] == "left" { CutSide::Left } else { CutSide::Right },
            rejects: false,
        };
        let encoded = tokenizer.encode(ask["text"].as_str().expect("a text"), ask["pair"].as_str(), truncation);
        let answer = match encoded {
            Ok(tokens) => json!({ "ids": tokens.ids, "types": tokens.types }),
            Err(error) => json!({ "error": error.message() }),
        };
        writeln!(out, "{answer}").expect("an open pipe");
    }
}
