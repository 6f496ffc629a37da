"""
Asks a server for the answers that a framework gave in its own script: `python ask.py DIRECTORY --families=A,B --models=N --only=TEXT`, in the environment of the tests.

Of each model every size of batch is sent, over HTTP, HTTP with JSON and gRPC in turn; then WORKERS clients send at once what chance gives them, rows of any
number for some outputs or all. Each model, family and layout is told in a line of JSON on stdout. What cannot run is told with the reason, as absent.
"""
import argparse
import atexit
import concurrent.futures
import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.abspath(os.path.join(HERE, "../../.."))
sys.path.insert(0, os.path.join(ROOT, "test/python"))

import ml_dtypes  # noqa: E402
import numpy as np  # noqa: E402
import tritonclient.http as httpclient  # noqa: E402

from case import TOLERANCE  # noqa: E402
from clients import Client  # noqa: E402
from interpreter import interpreter_with  # noqa: E402
from layouts import LAYOUTS  # noqa: E402
from server import Server  # noqa: E402

#: name → the module whose interpreter makes the models, the script, and flags of the server.
FAMILIES = {
    "pytorch": ("torch", "torch_models.py"),
    "openvino": ("openvino", "openvino_models.py"),
    # Trees answer so fast that few requests would meet: their batches wait out their delay.
    "xgboost": ("xgboost", "xgboost_models.py", "--strict-batching-delay=true"),
    "lightgbm": ("lightgbm", "lightgbm_models.py", "--strict-batching-delay=true"),
    "tensorflow": ("tensorflow", "tensorflow_models.py"),
}
#: Packages that have another name than their module.
INSTALL = {"xgboost": "xgboost-cpu", "tensorflow": "tensorflow-cpu"}
WORKERS = 6
#: Requests of each worker to a model.
EACH = 8
#: A framework takes long to import on a machine that does something else.
SECONDS = 600


class Wrong(Exception):
    pass


def say(**row):
    print(json.dumps(row), flush=True)


def must(condition, text):
    if not condition:
        raise Wrong(text)


class Questions:
    """What a script asked of its framework, and got."""

    def __init__(self, path, case):
        self.batch, self.tolerance = case["batch"], case.get("tolerance")
        self.asked, self.answers = [], []
        with np.load(path) as file:
            for key in file.files:
                side, at, name, kind = key.split("|")
                to = self.asked if side == "i" else self.answers
                while len(to) <= int(at):
                    to.append({})
                to[int(at)][name] = (kind, array_of(kind, file[key]))
        groups = {}
        for at, tensors in enumerate(self.asked):
            shape = tuple((name, a.shape) for name, (_, a) in tensors.items())
            groups.setdefault(shape if self.batch else at, []).append(at)
        #: Those that can be rows of one request.
        self.groups = list(groups.values())

    def has_json(self, chosen):
        """Whether these questions and their answers can be written as JSON, which has no halves and no bytes that are no text."""
        return all(kind not in ("FP16", "BF16") and (kind != "BYTES" or is_text(a)) for at in chosen for side in (self.asked, self.answers) for kind, a in side[at].values())

    def request(self, chosen):
        """The inputs and the expected outputs of these questions as rows of one request."""
        return [{name: (kind, np.concatenate([side[at][name][1] for at in chosen]) if self.batch else a) for name, (kind, a) in side[chosen[0]].items()} for side in (self.asked, self.answers)]

    def sizes(self):
        """A request for every size of batch."""
        for rows in range(1, max(self.batch, len(self.groups) * (not self.batch)) + 1):
            group = self.groups[rows % len(self.groups)]
            yield [group[(rows + i) % len(group)] for i in range(rows if self.batch else 1)]

    def any(self, chance):
        group = chance.choice(self.groups)
        return [chance.choice(group) for _ in range(chance.randint(1, self.batch) if self.batch else 1)]


def array_of(kind, array):
    if kind == "BF16":
        return array.view(ml_dtypes.bfloat16)
    if kind == "BYTES":
        return np.array([x if isinstance(x, bytes) else x.encode() for x in array.reshape(-1).tolist()], object).reshape(array.shape)
    return array


def is_text(array):
    try:
        return all(isinstance(one.decode(), str) for one in array.reshape(-1).tolist())
    except UnicodeDecodeError:
        return False


def compare(name, kind, expected, got, tolerance, is_batch):
    must(got is not None, f"{name} is missing")
    must(got.shape == expected.shape, f"{name} has the shape {got.shape}, expected {expected.shape}")
    if kind not in TOLERANCE:
        if kind == "BYTES":
            got = array_of(kind, got)
        must(np.array_equal(got, expected), f"{name} is {got.reshape(-1)[:8].tolist()}…, expected {expected.reshape(-1)[:8].tolist()}…")
        return
    limit = tolerance or TOLERANCE[kind]
    a, b = got.astype(np.float64), expected.astype(np.float64)
    # Of a batch each row by its own size.
    largest = np.abs(b).max(axis=tuple(range(1 if is_batch else 0, b.ndim)), initial=0, keepdims=True)
    far = np.abs(a - b) - limit * largest
    worst = np.unravel_index(np.argmax(far), far.shape) if far.size else None
    must(worst is None or far[worst] <= 1e-30, f"{name}{list(map(int, worst or ()))} is {a[worst] if worst else ''}, expected {b[worst] if worst else ''}")


def ask(client, model, questions, chosen, json_body=False, wanted=None):
    """One request, and whether its answer is the framework's."""
    inputs, outputs = questions.request(chosen)
    outputs = {name: row for name, row in outputs.items() if wanted is None or name in wanted}
    explicit = None if wanted is None and not json_body else [client.output(name, binary=not json_body) for name in outputs]
    result = client.infer(model, {name: a for name, (_, a) in inputs.items()}, outputs=explicit, binary=not json_body)
    told = {tensor["name"]: tensor["datatype"] for tensor in client.response(result)["outputs"]}
    must(set(told) == set(outputs), f"the outputs are {sorted(told)}, expected {sorted(outputs)}")
    for name, (kind, expected) in outputs.items():
        must(told[name] == kind, f"{name} has the datatype {told[name]}, expected {kind}")
        compare(name, kind, expected, result.as_numpy(name), questions.tolerance, questions.batch > 0)


def asked_at_once(server, model, questions, seed):
    """Requests of several clients at once, each with rows of its own. How many there were."""

    def work(at):
        chance = random.Random(f"{seed} {at}")
        client = Client("grpc" if at % 2 else "http", server.grpc if at % 2 else server.http)
        try:
            for _ in range(EACH):
                names = list(questions.answers[0])
                wanted = chance.sample(names, chance.randint(1, len(names))) if chance.random() < 0.3 else None
                ask(client, model, questions, questions.any(chance), wanted=wanted)
        finally:
            client.raw.close()
        return EACH

    with concurrent.futures.ThreadPoolExecutor(WORKERS) as pool:
        return sum(pool.map(work, range(WORKERS)))


class Place:
    """A server over a repository that a script writes, in explicit mode; started again if it ends."""

    def __init__(self, root, python, flags=(), env=None):
        self.root, self.env = root, env
        self.flags = ["--model-control-mode=explicit", f"--backend-config=python,python-executable={python}", *flags]
        self.server = None
        self.starts = 0

    def running(self):
        if self.server is None or self.server.process.poll() is not None:
            self.starts += 1
            self.server = Server(os.path.join(self.root, "models"), *self.flags, log=os.path.join(self.root, f"server{self.starts}.log"), env=self.env)
            # However this script ends.
            atexit.register(self.server.stop)
        return self.server

    def stop(self):
        """The exit code of the server. One that was never wanted ended well."""
        return 0 if self.server is None else self.server.stop()

    def try_model(self, case, also=()):
        """Loads a model, asks it, and unloads it. Returns what was counted. @raises Wrong"""
        name = case["name"]
        must("error" not in case, f"its script: {case.get('error')}")
        server = self.running()
        http = Client("http", server.http)
        http.raw = httpclient.InferenceServerClient(server.http, network_timeout=SECONDS, connection_timeout=SECONDS)
        grpc = Client("grpc", server.grpc)
        loaded = []
        try:
            for one in (*also, name):
                http.raw.load_model(one)
                loaded.append(one)
            questions = Questions(os.path.join(self.root, "questions", f"{name}.npz"), case)
            sizes = list(questions.sizes())
            for at, chosen in enumerate(sizes):
                is_json = at % 3 == 2 and questions.has_json(chosen)
                ask(grpc if at % 3 == 1 else http, name, questions, chosen, json_body=is_json)
            before = statistics(http, name)
            at_once = asked_at_once(server, name, questions, name)
            after = statistics(http, name)
            return {"sizes": len(sizes), "requests": len(sizes) + at_once, "at_once": at_once, "runs": after - before}
        except Exception as error:
            ended = server.process.poll()
            raise Wrong(f"{error if isinstance(error, Wrong) else f'{type(error).__name__}: {error}'}{'' if ended is None else f'; the server ended with {ended}'}") from error
        finally:
            for one in reversed(loaded):
                with contextlib.suppress(Exception):
                    http.raw.unload_model(one)
            http.raw.close()
            grpc.raw.close()

    def try_text(self, case):
        """The same of a model that answers a prompt with text."""
        server = self.running()
        name = case["name"]
        with open(os.path.join(self.root, "questions", f"{name}.json")) as read:
            questions = json.load(read)
        status, _, body = server.request("POST", f"/v2/repository/models/{name}/load", b"{}")
        must(status == 200, f"its load: {body.decode()}")

        def one(question):
            body = {"text_input": question["text_input"], "parameters": {"max_tokens": question["steps"], "temperature": 0}}
            status, _, answer = server.request("POST", f"/v2/models/{name}/generate", json.dumps(body).encode())
            must(status == 200, answer.decode())
            must(json.loads(answer)["text_output"] == question["text_output"], f"text_output is {json.loads(answer)['text_output']!r}, expected {question['text_output']!r}")

        asked = questions * EACH
        with concurrent.futures.ThreadPoolExecutor(WORKERS) as pool:
            list(pool.map(one, asked))
        return {"requests": len(asked)}


def statistics(http, name):
    return sum(model["execution_count"] for model in http.raw.get_inference_statistics(name)["model_stats"])


def absent(module, script):
    """Why models of a framework cannot be tried here, and else the interpreter and the version."""
    if not os.path.exists(os.path.join(HERE, script)):
        return "no script makes its models yet", None
    found = interpreter_with(module)
    if found is None:
        return f"no interpreter has {module} and numpy: pip install {INSTALL.get(module, module)} numpy, and name its Python with --python=PATH", None
    return None, found


def script(python, file, *args):
    """@raises Wrong with the end of what it said."""
    done = subprocess.run([python, "-W", "ignore", os.path.join(HERE, file), *map(str, args)], capture_output=True, text=True, env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"})
    with open(os.path.join(args[0], "script.log"), "w") as to:
        to.write(done.stdout + done.stderr)
    must(done.returncode == 0, f"{file} ended with {done.returncode}: {done.stderr.strip().splitlines()[-1:]}")


def fresh(root):
    shutil.rmtree(root, ignore_errors=True)
    os.makedirs(os.path.join(root, "models"))
    return root


def run_family(directory, name, models, only):
    module, file, *flags = FAMILIES[name]
    reason, found = absent(module, file)
    if reason is not None:
        return say(family=name, absent=reason)
    python, version = found
    root = fresh(os.path.join(directory, name))
    at = time.monotonic()
    try:
        script(python, file, root, models, *([only] if only else []))
    except Wrong as error:
        return say(family=name, version=version, models=models, kinds=0, passed=0, failures=[{"model": file, "error": str(error)}], requests=0, at_once=0, runs=0, seconds=round(time.monotonic() - at))
    with open(os.path.join(root, "cases.json")) as made:
        cases = json.load(made)["cases"]
    place = Place(root, python, flags)
    total = {"sizes": 0, "requests": 0, "at_once": 0, "runs": 0}
    failures, told_apart = [], 0
    for case in cases:
        from_ = time.monotonic()
        try:
            counted = place.try_model(case)
            for key, value in counted.items():
                total[key] += value
            told_apart += case["batch"] > 0 and not case["coarse"]
            say(model=case["name"], of=name, seconds=round(time.monotonic() - from_, 1), **counted)
        except Wrong as error:
            failures.append({"model": case["name"], "error": str(error)})
            say(model=case["name"], of=name, seconds=round(time.monotonic() - from_, 1), error=str(error))
    of_models = len(failures)
    if place.stop() != 0:
        failures.append({"model": "the server", "error": f"ended with {place.server.process.returncode}"})
    if total["runs"] >= total["at_once"]:
        failures.append({"model": "batches", "error": f"{total['at_once']} requests at once were {total['runs']} runs: none ran together"})
    say(
        family=name, version=version, models=len(cases), kinds=len({case["kind"] for case in cases}), passed=len(cases) - of_models,
        told_apart=told_apart, failures=failures, **total, seconds=round(time.monotonic() - at),
    )  # fmt: skip


def run_layout(directory, name):
    after, module, parts, _ = LAYOUTS[name]
    row = {"layout": name, "after": after, "module": module, "parts": parts}
    reason, found = absent(module, "layouts.py")
    if reason is not None:
        return say(**row, absent=reason)
    python, version = found
    root = fresh(os.path.join(directory, name))
    at = time.monotonic()
    # Groups of KIND_GPU, as published, are served without a GPU.
    place = Place(root, python, ["--gpu-fallback=cpu"], {"PYTHONPATH": os.path.join(ROOT, "test/python/frameworks/vllm_stand_in")} if name.startswith("vllm") else None)
    counted, failures = {}, []
    try:
        script(python, "layouts.py", root, name)
        with open(os.path.join(root, "cases.json")) as made:
            case = json.load(made)["cases"][0]
        counted = place.try_text(case) if name.startswith("vllm") else place.try_model(case, also=parts[:-1])
    except Wrong as error:
        failures.append({"model": parts[-1], "error": str(error)})
    if place.stop() != 0:
        failures.append({"model": "the server", "error": f"ended with {place.server.process.returncode}"})
    say(**row, **({} if module == "numpy" else {"version": version}), passed=int(not failures), failures=failures, **counted, seconds=round(time.monotonic() - at))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("directory")
    parser.add_argument("--families", default=",".join([*FAMILIES, "layouts"]))
    parser.add_argument("--models", type=int, default=50)
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    os.makedirs(options.directory, exist_ok=True)
    # A SIGTERM stops the server, too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    families = options.families.split(",")
    unknown = [name for name in families if name not in FAMILIES and name != "layouts"]
    if unknown:
        sys.exit(f"no family {', '.join(unknown)}: there are {', '.join(FAMILIES)} and layouts")
    for name in families:
        if name != "layouts":
            run_family(options.directory, name, options.models, options.only)
            continue
        for layout in LAYOUTS:
            if options.only in layout:
                run_layout(options.directory, layout)


if __name__ == "__main__":
    main()
