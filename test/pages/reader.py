"""Does what the reader of a page does: saves files, starts servers, types commands. Ports are free ones instead of the page's."""
import json
import os
import re
import shlex
import subprocess
import sys

from examples import Example
from server import NODE, ROOT, Server

SERVES = re.compile(r"^(?:npm start(?: --)?|npx nereid|nereid|tritonserver)(?= dev | --(?!help|version)|$)")
#: NEREID_PAGES_SECONDS is for pages whose models load for longer.
TIMEOUT = int(os.environ.get("NEREID_PAGES_SECONDS", "60"))


def commands(text):
    """Lines of a shell, continued ones joined."""
    return [line for line in text.replace("\\\n", " ").split("\n") if line.strip()]


class Reader:
    """One page, one directory. `examples/` is in it, as in a clone."""

    def __init__(self, directory, typescript):
        self.directory = str(directory)
        self.typescript = typescript
        self.server = None
        self.ports = {}
        self.said = ""
        self.servers = 0
        os.symlink(os.path.join(ROOT, "examples"), os.path.join(self.directory, "examples"))
        for link in ("crates", "shm"):
            os.symlink(os.path.join(ROOT, link), os.path.join(self.directory, link))
        # Where npx finds them, and a shell does not.
        tools = os.path.join(self.directory, "node_modules/.bin")
        os.makedirs(tools)
        for name, script in (("nereid", "dist/cli/main.js"), ("tritonserver", "dist/cli/main.js"), ("tsc", "node_modules/typescript/bin/tsc")):
            with open(os.path.join(tools, name), "w") as f:
                f.write(f'#!/bin/sh\nexec "{NODE}" "{ROOT}/{script}" "$@"\n')
            os.chmod(os.path.join(tools, name), 0o755)
        # As `npm install nereid nereid-client` leaves them.
        os.symlink(ROOT, os.path.join(self.directory, "node_modules/nereid"))
        os.symlink(os.path.join(ROOT, "node_modules/@types"), os.path.join(self.directory, "node_modules/@types"))
        os.symlink(os.path.join(ROOT, "client"), os.path.join(self.directory, "node_modules/nereid-client"))
        path = [tools, os.path.dirname(sys.executable), os.path.dirname(NODE), os.environ["PATH"]]
        python_path = [os.path.join(ROOT, "shm/python"), os.path.join(ROOT, "crates/backend-python/runtime"), os.path.join(ROOT, "packaging/wheel")]
        self.env = {**os.environ, "NEREID_PYTHON": sys.executable, "NEREID_MAIN": os.path.join(ROOT, "dist/cli/main.js"), "PATH": ":".join(path), "PYTHONPATH": ":".join(python_path), "PYTHONDONTWRITEBYTECODE": "1"}

    def save(self, path, text):
        path = os.path.normpath(os.path.join(self.directory, path))
        assert path.startswith(self.directory + os.sep), path
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as f:
            f.write(text)

    def serve(self, command):
        """Starts what the page starts, in place of what it started before."""
        self.stop()
        words = shlex.split(SERVES.sub("", command))
        flags, wanted = [], {"http": 8000, "grpc": 8001, "metrics": 8002}
        for word in words:
            port = re.match(r"--(http|grpc|metrics)-port=(\d+)$", word)
            if port is not None:
                wanted[port.group(1)] = int(port.group(2))
            elif not re.match(r"--(http|grpc|metrics)-address=", word):
                flags.append(word)
        named = flags[:2] if flags[:1] == ["dev"] else None
        flags = flags[2:] if named else flags
        repositories = [f for f in flags if f.startswith(("--model-repository=", "--model-store="))]
        repository = repositories[0].split("=", 1)[1] if repositories else "examples/models"
        self.servers += 1
        self.server = Server(
            repository,
            *(f for f in flags if f not in repositories[:1]),
            log=os.path.join(self.directory, f".server{self.servers}.log"),
            env=self.env,
            cwd=self.directory,
            named=named,
        )
        self.ports = {wanted[name]: getattr(self.server, f"{name}_port") for name in wanted}

    def here(self, text):
        """The page's text with the ports of this reader's server."""
        for theirs, ours in self.ports.items():
            text = re.sub(rf"\b(?:localhost|127\.0\.0\.1):{theirs}\b", f"127.0.0.1:{ours}", text)
        return text

    def there(self, text):
        """What was printed, as it would be on the page."""
        for theirs, ours in self.ports.items():
            text = re.sub(rf"\b(127\.0\.0\.1|0\.0\.0\.0):{ours}\b", lambda m: f"{'localhost' if m[1].startswith('127') else m[1]}:{theirs}", text)
        return text.replace(self.directory + "/", "")

    def run(self, command, exit_code=0, cwd=None):
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=TIMEOUT, cwd=cwd or self.directory, env=self.env
        )
        self.said = self.there(done.stdout)
        assert done.returncode == exit_code, f"ended with {done.returncode}:\n{done.stdout}{self.log()}"

    def log(self):
        return "" if self.server is None else f"\nThe log of the server:\n{self.server.tail(20)}"

    def shell(self, example):
        waiting = []
        for command in commands(example.text):
            # A server that ends by itself is a command like others.
            if SERVES.match(command) and "exit" not in example.markers:
                self.type(waiting)
                waiting = []
                self.serve(command)
            else:
                waiting.append(command)
        self.type(waiting, int(example.markers.get("exit", 0)))

    def type(self, lines, exit_code=0):
        """Lines as one script: quotes go over several of them."""
        if lines:
            # curl without a meter, and with its errors.
            text = re.sub(r"^(\s*)curl ", r"\1curl -sS ", self.here("\n".join(lines)), flags=re.M)
            self.run(["bash", "-euo", "pipefail", "-c", re.sub(r"\bnpx (?=nereid|tsc\b)", "", text)], exit_code)

    def python(self, example):
        code = self.here(example.text)
        if re.search(r"^def test_", code, re.M):
            self.save("test_example.py", code)
            self.run([sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_example.py"])
        else:
            self.run([sys.executable, "-c", code])

    def node(self, example):
        self.run([NODE, "--enable-source-maps", self.typescript(example, self.here)])

    def compare(self, example):
        expected, said = example.text.strip(), self.said.strip()
        if example.language == "json":
            try:
                assert json.loads(said) == json.loads(expected)
                return
            except ValueError:
                pass
        pattern = ".*?".join(re.escape(part) for part in re.sub(r"[ \t]+$", "", expected, flags=re.M).split("…"))
        lines = re.sub(r"[ \t]+$", "", said, flags=re.M)
        # An answer has no line feed at its end: that of the next command goes on behind it.
        whole = pattern if example.language == "json" else rf"(?:^|\n){pattern}(?:\n|$)"
        assert re.search(whole, lines, re.S), f"the page says\n{expected}\nand this was printed:\n{said}{self.log()}"

    def read(self, example: Example):
        markers = example.markers
        if "file" in markers:
            self.save(markers["file"], self.here(example.text))
        elif example.language == "sh":
            self.shell(example)
        elif example.language == "python":
            self.python(example)
        elif example.language == "ts":
            self.node(example)
        elif example.prints:
            self.compare(example)
        elif example.language == "json":
            json.loads(example.text)

    def stop(self):
        if self.server is not None:
            server, self.server = self.server, None
            assert server.stop() == 0, f"the server ended badly:\n{server.tail(20)}"
