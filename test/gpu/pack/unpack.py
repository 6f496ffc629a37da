#!/usr/bin/env python3
"""
`python run.py [OPTIONS]` beside the parts of a bundle: joins and checks them, unpacks them once below a directory (--into, or nereid-gpu beside this
file), and runs the rows there. All other options go to the rows; results lie in `results` beside this file unless --out says otherwise. Python alone does it.
"""
import hashlib
import json
import os
import subprocess
import sys
import tarfile

HERE = os.path.dirname(os.path.abspath(__file__))


class Joined:
    """The parts as one file that is read from its beginning to its end; each is checked when it was read."""

    def __init__(self, parts):
        self.parts = list(parts)
        self.file = None
        self.hash = None

    def read(self, size=-1):
        while self.parts or self.file:
            if self.file is None:
                self.file, self.hash = open(os.path.join(HERE, self.parts[0]["name"]), "rb"), hashlib.sha256()
            data = self.file.read(size if size > 0 else 1 << 20)
            if data:
                self.hash.update(data)
                return data
            self.file.close()
            self.file = None
            part = self.parts.pop(0)
            if self.hash.hexdigest() != part["sha256"]:
                raise SystemExit(f"{part['name']} is damaged: its SHA-256 is {self.hash.hexdigest()}, not {part['sha256']}")
        return b""


def unpack(into):
    """Unpacks the parts unless these very parts were unpacked there."""
    with open(os.path.join(HERE, "parts.json"), encoding="utf-8") as file:
        text = file.read()
    stamp = os.path.join(into, "unpacked.json")
    if os.path.exists(stamp) and open(stamp, encoding="utf-8").read() == text:
        return
    missing = [part["name"] for part in json.loads(text) if not os.path.exists(os.path.join(HERE, part["name"]))]
    if missing:
        raise SystemExit(f"{', '.join(missing)} of the bundle {'is' if len(missing) == 1 else 'are'} not beside {__file__}")
    os.makedirs(into, exist_ok=True)
    joined = Joined(json.loads(text))
    with tarfile.open(fileobj=joined, mode="r|xz") as archive:
        for member in archive:
            name = member.name.partition("/")[2]
            if name:
                member.name = name
                archive.extract(member, into, **({"filter": "tar"} if hasattr(tarfile, "tar_filter") else {}))
    while joined.read():
        pass
    with open(stamp, "w", encoding="utf-8") as out:
        out.write(text)


def main():
    words = sys.argv[1:]
    given = next((word for word in words if word.startswith("--into=")), None)
    into = os.path.abspath(given[len("--into="):]) if given else os.path.join(HERE, "nereid-gpu")
    rest = [word for word in words if word != given]
    unpack(into)
    if not any(word.startswith("--out=") for word in rest):
        rest.append(f"--out={os.path.join(HERE, 'results')}")
    return subprocess.run([sys.executable, os.path.join(into, "test/gpu/run.py"), *rest], check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
