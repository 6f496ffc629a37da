"""Texts in 40 languages: manual pages and translations of names, from packages of Debian that are not installed."""
import gettext
import gzip
import random
import re
import subprocess
from pathlib import Path

MANUALS = "cs da de el es fi fr hu id it ja mk nb nl pl pt-br ro ru sr sv tr uk vi zh".split()
NAMES = "am ar bn fa gu he hi hy ka km ko ml my ta te th ur".split()
#: Texts of a language.
TEXTS = 450
ROFF = re.compile(r"\\f[BIRP]|\\[-&]|\\\(..|\\\*?\[[^]]*\]|^[.'][A-Za-z\\]* ?", re.M)


def fetch(folder):
    """Unpacks the packages below a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    packages = [f"manpages-{language}" for language in MANUALS] + ["iso-codes"]
    subprocess.run(["apt-get", "download", "-q", *packages], cwd=folder, check=True, capture_output=True)
    for package in folder.glob("*.deb"):
        subprocess.run(["dpkg-deb", "-x", package, folder / "root"], check=True)
    return folder / "root" / "usr" / "share"


def pages(directory):
    for file in sorted(directory.glob("man*/*.gz")):
        text = ROFF.sub("", gzip.open(file, "rt", encoding="utf8", errors="ignore").read())
        yield from (part.strip() for part in re.split(r"\n\s*\n", text) if len(part.strip()) > 20)


def names(directory, chance):
    catalogs = [gettext.GNUTranslations(open(file, "rb"))._catalog for file in sorted(directory.glob("LC_MESSAGES/iso_*.mo"))]
    all_names = [name for catalog in catalogs for key, name in catalog.items() if key and isinstance(name, str)]
    chance.shuffle(all_names)
    while all_names:
        count = chance.randint(1, 12)
        yield chance.choice([", ", " ", "、", "\n", ". "]).join(all_names[:count])
        del all_names[:count]


def corpus(folder):
    """Texts by language."""
    chance = random.Random(7)
    share = fetch(folder)
    found = {directory.name: list(pages(directory)) for directory in sorted((share / "man").iterdir())}
    found |= {language: list(names(share / "locale" / language, chance)) for language in NAMES}
    for texts in found.values():
        chance.shuffle(texts)
        del texts[TEXTS:]
    return {language: texts for language, texts in found.items() if len(texts) > 20}
