//! Folders of text models. The first line is a text; then come files, each behind its name and a byte 0xFF.

use protocol::text::CutSide;
use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use text_model::folder::Folder;
use text_model::tokenizer::{Tokenizer, Truncation};

/// A directory of this thread.
struct Place(PathBuf);

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

thread_local! {
    static PLACE: Place = {
        let name = format!("nereid-fuzz-text-{}-{:?}", std::process::id(), std::thread::current().id());
        let place = Place(std::env::temp_dir().join(name));
        fs::create_dir_all(place.0.join("1_Pooling")).expect("a directory");
        place
    };
}

/// Files that a folder may have.
const FILES: [&str; 8] = [
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "config.json",
    "modules.json",
    "sentence_bert_config.json",
    "1_Pooling/config.json",
    "config_sentence_transformers.json",
];

/// Reads the folder, and tokenises the text.
///
/// # Panics
/// If a part of a text has other tokens than the whole, if places lie outside the text, or if a text that was tokenised
/// is rejected as token ids.
pub fn text(data: &[u8]) -> bool {
    let (line, rest) = data.split_at(data.iter().position(|&b| b == b'\n').unwrap_or(data.len()));
    let text = String::from_utf8_lossy(line);
    let mut parts = rest.get(1..).unwrap_or_default().split(|&b| b == 0xFF);
    PLACE.with(|place| {
        for name in FILES {
            let _ = fs::remove_file(place.0.join(name));
        }
        fs::write(place.0.join("model.onnx"), b"").expect("a file");
        while let (Some(name), Some(bytes)) = (parts.next(), parts.next()) {
            if let Some(name) = FILES.iter().find(|known| known.as_bytes() == name) {
                fs::write(place.0.join(name), bytes).expect("a file");
            }
        }
        let folder = Folder::read(&place.0, &BTreeMap::new());
        folder.is_ok() && Tokenizer::open(&place.0).is_ok_and(|tokenizer| encodes(&tokenizer, &text))
    })
}

fn encodes(tokenizer: &Tokenizer, text: &str) -> bool {
    let to = |tokens_max, side| Truncation { tokens_max, side, rejects: false };
    let Ok(whole) = tokenizer.encode(text, None, to(1 << 24, CutSide::Right)) else { return false };
    let special = tokenizer.encode("", None, to(1 << 24, CutSide::Right)).map_or(0, |empty| empty.ids.len());
    for (room, side) in [(3, CutSide::Right), (3, CutSide::Left), (50, CutSide::Right), (50, CutSide::Left)] {
        let Ok(part) = tokenizer.encode(text, None, to(room + special, side)) else { continue };
        assert_eq!(part.ids.len(), part.types.len());
        // Special tokens of an empty text may be those of a normalizer that adds text.
        if whole.ids.len() >= special {
            assert_eq!(part.ids.len(), (room + special).min(whole.ids.len()), "{room} tokens of {}", whole.ids.len());
        }
    }
    let _ = tokenizer.encode(text, Some("a pair"), to(9, CutSide::Left));
    if let Ok(pieces) = tokenizer.pieces(text, true) {
        let characters = text.chars().count() as u32;
        assert!(pieces.iter().filter_map(|piece| piece.place).all(|(from, to)| from <= to && to <= characters));
    }
    let _ = tokenizer.own_ids(&whole.ids, true, to(9, CutSide::Right));
    true
}
