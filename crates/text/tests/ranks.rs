//! Ids of OpenAI's tokenizers. The values are tiktoken's.

use protocol::text::TokenIds;
use tensor::Code;
use text::ranks::decode;
use text::tokenizer::TEXT_BYTES_MAX;

#[test]
fn ids_become_the_text_that_tiktoken_decodes() {
    let check = |of, ids: &[u32], text: &str| assert_eq!(decode(of, ids).unwrap(), text);
    check(TokenIds::Cl100kBase, &[], "");
    check(TokenIds::Cl100kBase, &[9906, 1917], "Hello world");
    check(TokenIds::O200kBase, &[13225, 2375], "Hello world");
    check(TokenIds::Cl100kBase, &[0, 100_255], "! Conveyor");
    check(TokenIds::Cl100kBase, &[100_257, 100_276], "<|endoftext|><|endofprompt|>");
    check(TokenIds::O200kBase, &[199_999, 200_018], "<|endoftext|><|endofprompt|>");
    // A character of four bytes, and its first three alone.
    check(TokenIds::Cl100kBase, &[9468, 238, 231], "🐉");
    check(TokenIds::Cl100kBase, &[9468, 238], "\u{FFFD}");
}

#[test]
fn ids_that_the_tokenizer_does_not_have_are_errors() {
    for (of, id) in [(TokenIds::Cl100kBase, 100_256), (TokenIds::O200kBase, 199_998), (TokenIds::O200kBase, u32::MAX)] {
        let error = decode(of, &[0, id]).unwrap_err();
        assert_eq!(error.code(), Code::InvalidArg);
        assert!(error.message().starts_with(&format!("token id {id} is not in {}", of.name())), "{}", error.message());
    }
    // Token 58040 of cl100k_base is 128 blanks.
    let error = decode(TokenIds::Cl100kBase, &vec![58040; TEXT_BYTES_MAX / 128 + 1]).unwrap_err();
    assert_eq!(error.message(), "the text of 8193 token ids exceeds the limit of 1048576 bytes");
}
