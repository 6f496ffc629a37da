//! Tokenizers of three kinds. That they equal transformers' is tested with real ones by test/heavy/text/test_tokens.py.

mod support;

use protocol::text::{CutSide, TextToken};
use serde_json::{Value, json};
use support::{Folder, byte_pairs, folder, left, to, tokens, unigram, word_piece};
use tensor::Code;
use text::tokenizer::{ADDED_TOKENS_MAX, REGEX_BYTES_MAX, REGEX_TEXT_BYTES_MAX, TEXT_BYTES_MAX, TOO_LONG};
use text::tokenizer::{Tokenizer, Truncation};
use text::{CONFIG_BYTES_MAX, TOKENIZER_BYTES_MAX};

/// Fails to open, with this class, and a text that has all of these.
fn refuses(folder: &Folder, code: Code, texts: &[&str]) {
    let error = folder.tokenizer().err().expect("an error");
    assert_eq!(error.code(), code, "{}", error.message());
    for text in texts {
        assert!(error.message().contains(text), "{text:?} in {:?}", error.message());
    }
}

fn all_kinds() -> [Tokenizer; 3] {
    [word_piece(), byte_pairs(), unigram()].map(|file| folder(&file).tokenizer().unwrap())
}

#[test]
fn truncation_and_padding_of_the_file_are_switched_off() {
    let tokenizer = folder(&word_piece()).tokenizer().unwrap();
    let encoded = tokenizer.encode("The quick foxes", None, to(128)).unwrap();
    assert_eq!(encoded, tokens(&[2, 5, 6, 8, 9, 3], &[0; 6]));
    assert_eq!(tokenizer.encode("", None, to(2)).unwrap(), tokens(&[2, 3], &[0, 0]));
}

#[test]
fn cuts_on_either_side_between_special_tokens() {
    let tokenizer = folder(&word_piece()).tokenizer().unwrap();
    let text = "the quick brown foxes";
    assert_eq!(tokenizer.encode(text, None, to(4)).unwrap().ids, [2, 5, 6, 3]);
    assert_eq!(tokenizer.encode(text, None, left(4)).unwrap().ids, [2, 8, 9, 3]);
    assert_eq!(tokenizer.encode(text, None, to(2)).unwrap().ids, [2, 3]);
    let error = tokenizer.encode(text, None, to(1)).unwrap_err();
    assert_eq!(error.message(), "a maximum of 1 tokens leaves no room: the tokenizer adds 2 special tokens");
}

#[test]
fn cuts_the_longer_text_of_a_pair_first() {
    let tokenizer = folder(&word_piece()).tokenizer().unwrap();
    let (short, long) = ("the fox", "quick brown quick brown");
    let check = |first, second, truncation, ids: &[u32], types: &[u32]| {
        assert_eq!(tokenizer.encode(first, Some(second), truncation).unwrap(), tokens(ids, types));
    };
    check(short, long, to(64), &[2, 5, 8, 3, 6, 7, 6, 7, 3], &[0, 0, 0, 0, 1, 1, 1, 1, 1]);
    check(short, long, to(8), &[2, 5, 8, 3, 6, 7, 6, 3], &[0, 0, 0, 0, 1, 1, 1, 1]);
    check(short, long, left(8), &[2, 5, 8, 3, 7, 6, 7, 3], &[0, 0, 0, 0, 1, 1, 1, 1]);
    // Neither is short: halves, of which the second text has the odd token, or the first if that was longer.
    check(short, long, to(6), &[2, 5, 3, 6, 7, 3], &[0, 0, 0, 1, 1, 1]);
    check(long, short, to(6), &[2, 6, 7, 3, 5, 3], &[0, 0, 0, 0, 1, 1]);
    check("", long, to(4), &[2, 3, 6, 3], &[0, 0, 1, 1]);
    let four = folder(&byte_pairs()).tokenizer().unwrap();
    assert_eq!(four.encode("!", Some("!"), to(64)).unwrap(), tokens(&[0, 4, 2, 2, 4, 2], &[0; 6]));
}

#[test]
fn rejects_a_text_that_is_too_long_where_that_is_asked() {
    let tokenizer = folder(&word_piece()).tokenizer().unwrap();
    let error = tokenizer.encode("the quick brown fox", None, Truncation { rejects: true, ..to(5) }).unwrap_err();
    assert_eq!(error.code(), Code::InvalidArg);
    assert!(error.message().starts_with(TOO_LONG) && error.is_too_long());
    assert!(error.message().contains(" 5 tokens, and the text has at least 6;"), "{}", error.message());
    assert!(tokenizer.encode("the quick brown fox", None, Truncation { rejects: true, ..to(6) }).is_ok());
}

#[test]
fn takes_from_other_files_what_transformers_takes() {
    let cased = folder(&word_piece()).json(
        "tokenizer_config.json",
        &json!({
            "tokenizer_class": "BertTokenizer", "do_lower_case": false, "truncation_side": "left", "pad_token": "[SEP]"
        }),
    );
    let tokenizer = cased.tokenizer().unwrap();
    assert_eq!(tokenizer.encode("The the", None, to(9)).unwrap().ids, [2, 1, 5, 3]);
    // In the vocabulary, but no special token of tokenizer.json.
    assert_eq!(tokenizer.encode("[MASK]", None, to(9)).unwrap().ids, [2, 4, 3]);
    assert_eq!((tokenizer.truncation_side(), tokenizer.padding_id()), (CutSide::Left, 3));
    let plain = folder(&word_piece()).tokenizer().unwrap();
    assert_eq!(plain.truncation_side(), CutSide::Right);
    assert_ne!(plain.encode("[MASK]", None, to(9)).unwrap().ids, [2, 4, 3]);
    let more = folder(&word_piece()).json(
        "tokenizer_config.json",
        &json!({
            "added_tokens_decoder": { "900": { "content": "<new>", "special": false } }
        }),
    );
    assert_eq!(more.tokenizer().unwrap().encode("<new> fox", None, to(9)).unwrap().ids.len(), 4);
    let spaced = folder(&byte_pairs()).json("config.json", &json!({ "model_type": "roberta" }));
    let spaced = spaced.json("tokenizer_config.json", &json!({ "add_prefix_space": true }));
    let (spaced, plain) = (spaced.tokenizer().unwrap(), folder(&byte_pairs()).tokenizer().unwrap());
    let ids = |tokenizer: &Tokenizer, text| tokenizer.encode(text, None, to(9)).unwrap().ids;
    assert_eq!(ids(&spaced, "the"), ids(&plain, " the"));
    assert_ne!(ids(&plain, "the"), ids(&plain, " the"));
    let lowers = folder(&byte_pairs()).json("sentence_bert_config.json", &json!({ "do_lower_case": true }));
    assert_eq!(ids(&lowers.tokenizer().unwrap(), "HER"), ids(&plain, "her"));
}

/// Text of several kinds without an end.
fn noise(seed: u64, bytes: usize) -> String {
    const PARTS: [&str; 24] = [
        "the",
        " ",
        "  ",
        "\n",
        "quick",
        "aaaaaaaaa",
        "中文",
        "文",
        " the",
        "12345",
        ".",
        "'s",
        "é",
        "e\u{301}\u{327}",
        "👩‍👩‍👧",
        "<mask>",
        " <mask> ",
        "[SEP]",
        "\t \n",
        "мир",
        "foxes",
        "!",
        "   \u{3000}",
        "</s>",
    ];
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut text = String::new();
    // One part again and again makes long runs.
    let mut again = 0;
    let mut part = "";
    while text.len() < bytes {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        if again == 0 {
            part = PARTS[state as usize % PARTS.len()];
            again = if state >> 32 & 63 == 0 { 1 + (state >> 40 & 1023) } else { 1 };
        }
        again -= 1;
        text.push_str(part);
    }
    text
}

#[test]
fn a_part_of_a_long_text_has_the_tokens_of_the_whole() {
    for (kind, tokenizer) in all_kinds().iter().enumerate() {
        for seed in 0..15 {
            let text = noise(seed, 20_000);
            let whole = tokenizer.encode(&text, None, to(1 << 20)).unwrap().ids;
            let inner = &whole[1..whole.len() - 1];
            for room in [0, 1, 14, 100, 700].map(|room: usize| room.min(inner.len())) {
                let right = tokenizer.encode(&text, None, to(room + 2)).unwrap().ids;
                assert_eq!(right[1..right.len() - 1], inner[..room], "kind {kind}, seed {seed}, {room} tokens");
                let left = tokenizer.encode(&text, None, left(room + 2)).unwrap().ids;
                assert_eq!(
                    left[1..left.len() - 1],
                    inner[inner.len() - room..],
                    "kind {kind}, seed {seed}, {room} left"
                );
            }
        }
    }
}

#[test]
fn a_pair_of_long_texts_is_cut_as_the_whole() {
    for tokenizer in all_kinds() {
        let (long, longer) = (noise(1, 9_000), noise(2, 30_000));
        for most in [64, 65] {
            for (first, second) in [(&long, &longer), (&longer, &long)] {
                let ids = tokenizer.encode(first, Some(second), to(most)).unwrap().ids;
                assert_eq!(ids.len(), most);
                // The parts of both texts that were cut have the same lengths as those of the whole.
                let whole = |text: &String| tokenizer.encode(text, None, to(1 << 20)).unwrap().ids;
                let (one, other) = (whole(first), whole(second));
                let room = most - (tokenizer.encode("", Some(""), to(9)).unwrap().ids.len());
                let of_first = if one.len() > other.len() { room - room / 2 } else { room / 2 };
                assert_eq!(ids[1..=of_first], one[1..=of_first]);
                let of_second = room - of_first;
                assert_eq!(ids[most - 1 - of_second..most - 1], other[1..=of_second]);
            }
        }
    }
}

#[test]
fn pieces_have_their_places() {
    let tokenizer = folder(&word_piece()).tokenizer().unwrap();
    let piece = |id, text: &str, place| TextToken { id, text: text.into(), is_special: false, place: Some(place) };
    let special = |id, text: &str| TextToken { id, text: text.into(), is_special: true, place: None };
    let inner = [piece(5, "Thé", (0, 3)), piece(8, "fox", (4, 7)), piece(9, "es", (7, 9))];
    assert_eq!(tokenizer.pieces("Thé foxes", false).unwrap(), inner);
    let [one, two, three] = inner;
    let all = [special(2, "[CLS]"), one, two, three, special(3, "[SEP]")];
    assert_eq!(tokenizer.pieces("Thé foxes", true).unwrap(), all);
}

#[test]
fn takes_ids_of_its_own() {
    let tokenizer = folder(&word_piece()).tokenizer().unwrap();
    let whole = tokens(&[2, 5, 8, 3], &[0; 4]);
    assert_eq!(tokenizer.own_ids(&[2, 5, 8, 3], false, to(9)).unwrap(), whole);
    assert_eq!(tokenizer.own_ids(&[2, 5, 8, 3], true, to(9)).unwrap(), whole);
    assert_eq!(tokenizer.own_ids(&[5, 8], true, to(9)).unwrap(), whole);
    assert_eq!(tokenizer.own_ids(&[2, 5, 8], true, to(9)).unwrap(), whole);
    assert_eq!(tokenizer.own_ids(&[2, 5, 8, 3], false, to(3)).unwrap(), tokens(&[2, 5, 3], &[0; 3]));
    assert_eq!(tokenizer.own_ids(&[5, 8], true, left(3)).unwrap(), tokens(&[2, 8, 3], &[0; 3]));
    for ids in [&[5, 8][..], &[2, 5, 8], &[5, 8, 3], &[], &[2], &[3, 2]] {
        let error = tokenizer.own_ids(ids, false, to(9)).unwrap_err();
        assert_eq!(error.code(), Code::InvalidArg);
        for line in ["nereid.alias", "tokens=cl100k_base", "--text-alias=NAME=MODEL,tokens=cl100k_base"] {
            assert!(error.message().contains(line), "{}", error.message());
        }
    }
    let error = tokenizer.own_ids(&[5, 1000], true, to(9)).unwrap_err();
    assert_eq!(error.message(), "token id 1000 is not in the vocabulary of the model");
    let many = vec![5; TEXT_BYTES_MAX / 4 + 1];
    assert!(tokenizer.own_ids(&many, true, to(9)).unwrap_err().message().contains("the limit is 262144"));
    // A tokenizer that adds nothing knows no undeclared ids.
    let mut bare = word_piece();
    bare["post_processor"] = Value::Null;
    let bare = folder(&bare).tokenizer().unwrap();
    assert!(bare.own_ids(&[2, 5, 3], false, to(9)).is_err());
    assert_eq!(bare.own_ids(&[5, 8], true, to(9)).unwrap().ids, [5, 8]);
    assert_eq!(bare.encode("fox", Some("the"), to(9)).unwrap(), tokens(&[8, 5], &[0, 1]));
}

#[test]
fn a_text_above_the_limit_is_an_error_with_both_numbers() {
    let tokenizer = folder(&word_piece()).tokenizer().unwrap();
    let text = "fox ".repeat(TEXT_BYTES_MAX / 4);
    assert_eq!(tokenizer.encode(&text, None, to(5)).unwrap().ids, [2, 8, 8, 8, 3]);
    let text = format!("{text}!");
    for error in [
        tokenizer.encode(&text, None, to(5)).unwrap_err(),
        tokenizer.encode("fox", Some(&text), to(5)).unwrap_err(),
        tokenizer.pieces(&text, true).unwrap_err(),
    ] {
        assert_eq!(error.code(), Code::InvalidArg);
        assert_eq!(error.message(), "a text has 1048577 bytes, the limit is 1048576");
    }
}

#[test]
fn damaged_files_are_errors_that_name_the_file() {
    refuses(&Folder::new(), Code::NotFound, &["tokenizer.json is missing", "save_pretrained"]);
    refuses(&Folder::new().text("tokenizer.json", "{\"version\": "), Code::InvalidArg, &["tokenizer.json: EOF"]);
    refuses(&Folder::new().text("tokenizer.json", &"[".repeat(5000)), Code::InvalidArg, &["tokenizer.json: "]);
    refuses(&Folder::new().text("tokenizer.json/x", ""), Code::InvalidArg, &["tokenizer.json is not a file"]);
    let broken = folder(&word_piece()).text("tokenizer_config.json", "{");
    refuses(&broken, Code::InvalidArg, &["tokenizer_config.json: EOF"]);
    let large = folder(&word_piece()).text("tokenizer_config.json", &" ".repeat(CONFIG_BYTES_MAX as usize + 1));
    refuses(&large, Code::InvalidArg, &["tokenizer_config.json has 4194305 bytes, the limit for this file is 4194304"]);
    let mut file = word_piece();
    file["post_processor"]["single"] =
        json!([{ "Sequence": { "id": "A", "type_id": 0 } }, { "Sequence": { "id": "A", "type_id": 0 } }]);
    refuses(&folder(&file), Code::InvalidArg, &["the post-processor does not have each text once and in order"]);
}

#[test]
fn a_file_of_100_mb_is_refused_before_it_is_read() {
    let folder = Folder::new();
    let file = std::fs::File::create(folder.path().join("tokenizer.json")).unwrap();
    file.set_len(100 << 20).unwrap();
    let limit = format!("tokenizer.json has {} bytes, the limit for this file is {TOKENIZER_BYTES_MAX}", 100 << 20);
    refuses(&folder, Code::InvalidArg, &[&limit]);
}

#[test]
fn too_many_added_tokens_are_refused() {
    let mut file = word_piece();
    let token = |at: usize| {
        json!({
            "id": 1000 + at, "content": format!("<extra_{at}>"), "single_word": false, "lstrip": false,
            "rstrip": false, "normalized": false, "special": false
        })
    };
    let mut with = |tokens: usize| {
        file["added_tokens"] = (0..tokens).map(token).collect();
        folder(&file)
    };
    refuses(&with(100_000), Code::InvalidArg, &["tokenizer.json: 100000 added tokens, the limit is 16384"]);
    let most = with(ADDED_TOKENS_MAX).tokenizer().unwrap();
    assert_eq!(most.encode("<extra_7>", None, to(9)).unwrap().ids.len(), 3);
}

fn split_by(regex: &str) -> Folder {
    let mut file = word_piece();
    file["pre_tokenizer"] =
        json!({ "type": "Split", "pattern": { "Regex": regex }, "behavior": "Isolated", "invert": false });
    folder(&file)
}

#[test]
fn a_regular_expression_that_takes_too_long_fails_its_request() {
    let tokenizer = split_by(r"(?:a|aa)+(?=c)|b").tokenizer().unwrap();
    let bomb = format!("{}b", "a".repeat(64));
    let error = tokenizer.encode(&bomb, None, to(9)).unwrap_err();
    assert_eq!(error.code(), Code::InvalidArg);
    assert!(error.message().contains("backtracking"), "{}", error.message());
    assert!(tokenizer.pieces(&bomb, true).is_err());
    assert_eq!(tokenizer.encode("b", None, to(9)).unwrap().ids.len(), 3);
    let long = "b".repeat(REGEX_TEXT_BYTES_MAX + 1);
    let error = tokenizer.encode(&long, None, to(9)).unwrap_err();
    assert!(error.message().contains("65536 bytes at most"), "{}", error.message());

    refuses(&split_by(&"a".repeat(REGEX_BYTES_MAX + 1)), Code::InvalidArg, &["4097 bytes, the limit is 4096"]);
    refuses(&split_by(&"(".repeat(2000)), Code::InvalidArg, &["tokenizer.json: "]);
    refuses(&split_by(r"((\w{1000}){1000}){1000}"), Code::InvalidArg, &["tokenizer.json: "]);
    let mut file = word_piece();
    file["normalizer"] = json!({ "type": "Sequence", "normalizers": [
        { "type": "Replace", "pattern": { "Regex": "(a+)+(?!b)" }, "content": "" }
    ] });
    refuses(&folder(&file), Code::InvalidArg, &["of a normalizer uses lookaround or backreferences"]);
}

#[test]
fn no_thread_is_started() {
    let threads = || std::fs::read_dir("/proc/self/task").map(|all| all.count()).unwrap_or(0);
    let tokenizer = folder(&byte_pairs()).tokenizer().unwrap();
    let before = threads();
    for seed in 0..500 {
        tokenizer.encode(&noise(seed, 300), None, to(64)).unwrap();
    }
    // Other tests of this process may have ended.
    assert!(threads() <= before.max(std::thread::available_parallelism().map_or(1, usize::from) + 2));
    assert!(!tokenizers::parallelism::has_parallelism_been_used());
}
