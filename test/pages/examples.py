"""The examples of the pages: fenced blocks of docs/ and README.md, in their order, with what the page says about each.

Every block of `sh`, `python` and `ts` is run, every block behind the word "prints" is compared, every `pbtxt` and `json` is checked. A page says what
cannot be in a comment above the block, which readers do not see:

    <!-- not run: why -->    readers only look at it; `not run here but by FILE: why` where a test of its own runs it
    <!-- file: PATH -->      what the page's reader would save under this path
    <!-- exit: N -->         the command ends with this code
    <!-- fragment -->        a part of a config.pbtxt, checked inside a small model
    <!-- not valid -->       a config.pbtxt that the server refuses

`<!-- suite: NAME -->` in a tutorial names the heavy suite that runs it, because its packages are large.
"""
import os
import re
from dataclasses import dataclass

from server import ROOT

RUN = {"sh", "python", "ts"}
MARKER = re.compile(r"<!-- (not run|not valid|file|exit|fragment)(?: here but by [^:\s]+)?(?:: (.*?))? -->$")
FENCE = re.compile(r"^( *)```([\w-]*)$")


@dataclass
class Example:
    page: str
    line: int
    language: str
    text: str
    markers: dict
    """The words between this block and the one before."""
    before: str

    @property
    def prints(self):
        """Whether this is what the block before prints."""
        return self.language in ("", "text", "json") and re.search(r"\b[Pp]rint(s|ed)?\b", self.before.rsplit("\n\n", 2)[-1]) is not None

    @property
    def does(self):
        """Whether there is anything to run, to save or to compare."""
        if "not run" in self.markers:
            assert self.markers["not run"], f"{self.name}: a block that is not run says why"
            return False
        return self.language in RUN or self.language == "json" or self.prints or "file" in self.markers

    @property
    def name(self):
        return f"{self.page}:{self.line}"


def pages():
    """Those of docs/, or what NEREID_PAGES names, a directory or a page: tutorials need packages (test/heavy/tutorials.mjs)."""
    other = os.environ.get("NEREID_PAGES")
    if other is not None:
        if other.endswith(".md"):
            return [other]
        found = [f"{other}/{name}" for name in sorted(os.listdir(os.path.join(ROOT, other))) if name.endswith(".md")]
        return [page for page in found if "\n<!-- suite: " not in text_of(page)]
    docs = os.path.join(ROOT, "docs")
    found = [f"docs/{name}" for name in sorted(os.listdir(docs)) if name.endswith(".md")]
    return ["README.md", *found]


def text_of(page):
    with open(os.path.join(ROOT, page), encoding="utf-8") as f:
        return f.read()


def examples(page, text=None):
    if text is None:
        text = text_of(page)
    out, before, markers, inside = [], [], {}, None
    for number, line in enumerate(text.split("\n"), 1):
        fence = FENCE.match(line)
        if inside is not None:
            if line.strip() == "```":
                inside.text = "\n".join(each[indent:] for each in body) + "\n"
                # What a block would print that is not run is not compared either.
                if out and inside.prints and "not run" in out[-1].markers:
                    inside.markers["not run"] = out[-1].markers["not run"]
                out.append(inside)
                inside, before, markers = None, [], {}
            else:
                body.append(line)
        elif fence is not None:
            indent, body = len(fence.group(1)), []
            inside = Example(page, number, fence.group(2), "", markers, "\n".join(before).strip())
        elif (marker := MARKER.match(line.strip())) is not None:
            markers[marker.group(1)] = marker.group(2) or ""
        else:
            before.append(line)
            # A marker belongs to the block right below it.
            if line.strip():
                markers = {}
    assert inside is None, f"{page}: a block that begins in line {inside.line} has no end"
    return out
