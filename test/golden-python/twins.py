#!/usr/bin/env python3
"""Judges TypeScript twins of the Python models against the same recorded answers: same command line as replay.py.

  python twins.py --start 'my-server --model-repository={repo} {flags}'

Each model has its name, its configuration and its twin of `twins/` in place of model.py. The requests are the recorded ones: where
they hold Python code, the twin knows the text (twins/snippets.ts). `twins.json` names what is not judged, and why.
"""
import base64
import json
import os
import re
import sys

import replay as python      # noqa: E402  the replay of this directory, which prepares that of ../golden
import cases.life            # noqa: E402
import life_models           # noqa: E402
import models                # noqa: E402

HERE = os.path.dirname(os.path.abspath(__file__))
TWINS = os.path.join(HERE, "twins")
FINE = life_models.CLASS + life_models.EXEC
BY_CODE = {models.LAB: "lab", models.LAB_ASYNC: "lab", models.RAW: "raw", models.RAW_ASYNC: "raw", models.DEC: "dec", models.DEC_ASYNC: "dec", models.SEE: "see",
           models.TYPES: "types", models.ADD: "add", models.REPEAT: "repeat", models.SEQ: "seq", models.STATE: "state", models.RESCHEDULE: "resched", life_models.FACTS: "fine", FINE: "fine"}
# Longest snippet that has a twin. Longer ones are data.
TEXT_MAX = 4096
# Models whose code is their own, by name, and the repository that has them.
BY_NAME = {"life": "life", "ready": "ready", "control": "controlled"}


def read(name):
    with open(os.path.join(TWINS, name + ".ts")) as f:
        return f.read()


def snippets():
    """Ids of the cases that send a text, by the text."""
    found = {}

    def add(text, id):
        if len(text) > TEXT_MAX:
            return
        ids = found.setdefault(text, [])
        if id not in ids:
            ids.append(id)

    def walk(c, id):
        texts = []
        if c["kind"] == "parallel":
            for one in c["cases"]:
                walk(one, id)
        if c["kind"] == "http" and isinstance(c["body"], bytes):
            try:
                body = json.loads(c["body"])
            except ValueError:
                return
            if isinstance(body, dict):
                texts = [t["data"][0] for t in body.get("inputs", ()) if t.get("name") in ("CODE", "C") and t.get("data")]
                texts += [body["CODE"]] if isinstance(body.get("CODE"), str) else []
        for r in c.get("reqs", ()) if c["kind"] == "stream" else [c["req"]] if c["kind"] == "grpc" else ():
            if isinstance(r, dict) and any(t["name"] == "CODE" for t in r.get("inputs", ())):
                texts.append(r["raw_input_contents"][0][4:4 + int.from_bytes(r["raw_input_contents"][0][:4], "little")].decode())
        for i, text in enumerate(texts):
            add(text, id if i == 0 else f"{id}#{i + 1}")

    for spec in asked():
        for c in python.replay.cases_of(spec):
            walk(c, c["id"])
    return found


def asked():
    """The suites of the command line."""
    names = [value for flag, value in zip(sys.argv, sys.argv[1:]) if flag == "--suite"]
    return [s for s in python.replay.load_suites() if not names or s["name"] in names]


def relative(text):
    """Files of `twins` that a file imports, all of them."""
    text = text.decode("latin-1") if isinstance(text, bytes) else text
    names = set()
    todo = re.findall(r"from '\./(\w+)\.ts'", text)
    while todo:
        name = todo.pop()
        if name not in names:
            names.add(name)
            todo += re.findall(r"from '\./(\w+)\.ts'", read(name))
    return names


def twin(repo, name, code):
    """The text of the twin of a model's code."""
    if code in BY_CODE:
        return read(BY_CODE[code])
    # The same text in other encodings.
    if code == FINE.replace("\n", "\r\n"):
        return read("fine").replace("\n", "\r\n")
    if isinstance(code, bytes) and code.endswith(FINE.encode()):
        return code[:-len(FINE)].replace(b"#", b"//") + read("fine").encode()
    raised = re.fullmatch(r"raise ValueError\('(\w+)'\)", code) if isinstance(code, str) else None
    if raised:
        return f"import {{ ValueError }} from './show.ts'\n\nthrow new ValueError('{raised[1]}')\n"
    own = BY_NAME.get(os.path.basename(repo))
    known = own and f"  {name}:" in read(own) or own == "life" and name.startswith("auto_type_")
    if known:
        return f"import {{ models }} from './{own}.ts'\n\nexport default models['{name}']?.()\n"
    return "throw new Error('no twin of this model')\n"


def to_typescript(text):
    """A configuration, for a model in TypeScript."""
    return text.replace('backend: "python"', 'backend: "javascript"').replace('.py"', '.ts"')


INDEX = {}


class Repo(models.Repo):
    def model(self, name, config=None, code=None, versions=(1,), files=None):
        by_version = code if isinstance(code, dict) else {v: code for v in versions}
        more, own = {}, {}
        for path, data in (files or {}).items():
            if path.endswith(".py") and data in BY_CODE:
                own[path[:-3] + ".ts"] = twin(self.root, name, data)
            elif not path.endswith(".py"):
                more[path] = data
        for v, c in by_version.items():
            if c is not None:
                own[f"{v}/model.ts"] = twin(self.root, name, c)
        for path, text in own.items():
            more[path] = text
            for other in relative(text):
                more[f"{os.path.dirname(path)}/{other}.ts"] = read(other)
            if "snippets" in relative(text):
                more[f"{os.path.dirname(path)}/snippets.json"] = json.dumps(INDEX)
            if "control" in relative(text):
                more[f"{os.path.dirname(path)}/files.ts"] = read("files")
        super().model(name, config and to_typescript(config), None, versions, more)


def build(out):
    INDEX.update(snippets())
    models.Repo = life_models.Repo = Repo
    for name in {spec["repo"] for spec in asked()}:
        getattr(life_models if name in BY_NAME else models, name + "_repo")(os.path.join(out, name))


# What differs between the languages, and is not judged: the frames of a stack, the words that pb_utils puts before the server's error,
# and how an instance is named that ended.
PYTHON_STACK = re.compile(r"(?:\\+n|\n){2}At:(?:(?:\\+n|\n)  (?:(?!\\+n|\n|\\*\").)*)*(?:\\+n|\n)?")
STACK = re.compile(r"(?:(?:\\+n|\n)    at (?:(?!\\+n|\n|\\*\"|;| \(\{repo\}/[^)]*: ).)*)+")
# A failed load names the line.
LINE = re.compile(r" \(\{repo\}/\S+\.ts:\d+: .*?\)(?=;\n|$)")
WRAPPER = re.compile(r"(?:Failed to [a-z ]+|Error when creating \w+): Failed to process the request for model '\w+', message: ")
# Names of the classes of exceptions of a load.
CLASS = re.compile(r"(?<=Internal: )(?:ValueError|TritonModelException): ")
ENDED = re.compile(r"Stub process (?='\w+' is not healthy)")


def plain(x):
    """An answer without what differs between the languages."""
    if isinstance(x, dict):
        if x.get("backend") == "javascript":
            x = dict(x, backend="python", default_model_filename=str(x.get("default_model_filename", "")).replace(".ts", ".py"))
        if x.get("platform") == "javascript":
            x = dict(x, platform="python")
        return {k: plain(v) for k, v in x.items()}
    if isinstance(x, list):
        return [plain(v) for v in x]
    if isinstance(x, str):
        return ENDED.sub("Instance ", WRAPPER.sub("", CLASS.sub("", LINE.sub("", STACK.sub("", PYTHON_STACK.sub("", x))))))
    return x


def changed(ctx, m, a, b):
    """Changes the answer of a model, or takes its export away."""
    path = f"{ctx.repo}/{m}/1/model.ts"
    with open(path) as f:
        text = f.read()
    to = "export const other = fine()" if "class" in a else "export default fine({ execute: answer('changed') })"
    with open(path, "w") as f:
        f.write(re.sub(r"export default .*", to, text))
    st = os.stat(path)
    os.utime(path, (st.st_atime, st.st_mtime + 2))


def code_of(ctx, m):
    """The lines of a model in twins/life.ts, with the name of the file that its `finalize` writes."""
    found = re.search(rf"^  {m}:.*?(?=^  \w+:|^}})", read("life"), re.S | re.M)
    return found[0].replace("finalized(ctx)", "'/finalized'") if found else ""


def sent_config():
    """The configuration of a load request."""
    tensor = lambda name: [{"name": name, "data_type": "TYPE_STRING", "dims": [1]}]
    return json.dumps({"backend": "javascript", "input": tensor("CODE"), "output": tensor("OUT")})


# What the cases of the suite life do to files and send, for the twins.
cases.life.source = code_of
cases.life.change = changed
cases.life.upload = lambda: json.dumps({"parameters": {"config": sent_config(), "file:1/model.ts": base64.b64encode(read("fine").encode()).decode()}}).encode()
cases.life.up_grpc = lambda name: {"model_name": name, "parameters": {"config": {"string_param": sent_config()}, "file:1/model.ts": {"bytes_param": read("fine").encode()}}}

_diff, _cmp_text = python.lib.diff, python.lib.cmp_text
python.lib.diff = lambda a, b, path="": _diff(plain(a), plain(b), path)
python.lib.cmp_text = lambda c, a, b, path: _cmp_text(c, plain(a), plain(b), path)
python.replay.models.build = build

if __name__ == "__main__":
    python.replay.main()
