"""Stand-in for the package transformers, for tests of models that use its tokenizers: text becomes words and back.

A tokenizer's directory has the file `vocab.txt` with a token per line, which begins with the special tokens. A token is
a word with the space before it, so that texts of single tokens joined are the text.
"""
import os
import re

SPECIAL = ["</s>", "<s>", "<unk>"]


class AutoTokenizer:
    @staticmethod
    def from_pretrained(directory, legacy=True, padding_side="right", trust_remote_code=False):
        path = os.path.join(directory, "vocab.txt")
        if not os.path.exists(path):
            raise OSError(f"Can't load tokenizer for '{directory}'.")
        with open(path) as file:
            return Tokenizer(file.read().splitlines())


class Tokenizer:
    eos_token = "</s>"
    pad_token = None

    def __init__(self, tokens):
        self._tokens = tokens
        self.vocab = {token: index for index, token in enumerate(tokens)}
        self.vocab_size = len(tokens)

    def encode(self, text, add_special_tokens=True):
        words = [text] if text in SPECIAL else re.findall(r" ?[^ ]+", text)
        ids = [self.vocab.get(word, self.vocab["<unk>"]) for word in words]
        return [self.vocab["<s>"], *ids] if add_special_tokens else ids

    def decode(self, ids, skip_special_tokens=False):
        tokens = [self._tokens[index] for index in ids]
        return "".join(token for token in tokens if not skip_special_tokens or token not in SPECIAL)

    def batch_decode(self, sequences, skip_special_tokens=False):
        return [self.decode(ids, skip_special_tokens) for ids in sequences]


class T5Tokenizer:
    """For `isinstance` only."""


class AutoProcessor:
    """For imports only."""
