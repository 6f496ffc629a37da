"""Words into pieces of a vocabulary, as BERT does: the longest piece first, `##` in front of those inside a word."""
import re
import unicodedata

WORD = re.compile(r"\w+|[^\w\s]")


class WordPiece:
    def __init__(self, path):
        with open(path, encoding="utf-8") as f:
            self.pieces = f.read().splitlines()
        self.ids = {piece: i for i, piece in enumerate(self.pieces)}

    def encode(self, text, length_max=128):
        """Ids of a text between those of [CLS] and [SEP], at most `length_max` in all."""
        text = unicodedata.normalize("NFKC", text).lower()
        ids = [i for word in WORD.findall(text) for i in self._word(word)]
        return [self.ids["[CLS]"], *ids[: length_max - 2], self.ids["[SEP]"]]

    def _word(self, word):
        found = []
        while word:
            prefix = "##" if found else ""
            for end in range(len(word), 0, -1):
                piece = self.ids.get(prefix + word[:end])
                if piece is not None:
                    break
            else:
                return [self.ids["[UNK]"]]
            found.append(piece)
            word = word[end:]
        return found
