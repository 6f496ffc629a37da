"""In the place of Triton's own utils.py: the same names, over processes of this server instead of Triton in the tests' process."""
import os
import shlex
import socket
import subprocess
import threading
import time
from pathlib import Path

import openai
import requests

#: How the server is started: the program and the flags that every test needs.
COMMAND = shlex.split(os.environ["NEREID_TEST_CHAT_COMMAND"])
START_SECONDS = int(os.environ.get("NEREID_TEST_CHAT_START_SECONDS", "60"))
#: Modules that stand in for Triton's are for the tests alone, and the server warns of variables that it does not know.
ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith("NEREID_TEST_CHAT_")} | {"PYTHONPATH": os.environ["NEREID_TEST_CHAT_LIBRARY"]}
#: Names of tokenizers on Hugging Face, which the tests use for their templates: folders of ours.
TOKENIZERS = {"gpt2": "no_template", "meta-llama/Meta-Llama-3.1-8B-Instruct": "chat"}
#: Flags of Triton's front end that this server does not need: it always has the ports of KServe, and takes the form of requests from a model's tensors.
NOT_NEEDED = {"--enable-kserve-frontends": 1, "--backend": 2}


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def tokenizer_of(name):
    return str(Path(os.environ["NEREID_TEST_CHAT_TOKENIZERS"]) / TOKENIZERS.get(name, name))


def flags_of(words):
    """Flags of this server for those of Triton's front end."""
    words = list(words)
    for flag, count in NOT_NEEDED.items():
        if flag in words:
            del words[words.index(flag) : words.index(flag) + count]
    if "--tokenizer" in words:
        place = words.index("--tokenizer") + 1
        words[place] = tokenizer_of(words[place])
    return words


class OpenAIServer:
    """A server with flags of Triton's front end, from `with` to its end. What it writes to either output is in the error if it ends by itself."""

    API_KEY = "any"

    def __init__(self, cli_args, *, env_dict=None):
        self.port = free_port()
        others = [f"--{name}-port={free_port()}" for name in ("http", "grpc", "metrics")]
        self.proc = subprocess.Popen(
            [*COMMAND, *others, f"--openai-port={self.port}", *flags_of(cli_args)],
            env={**ENVIRONMENT, **(env_dict or {})},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.lines = []
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()
        self._wait()

    def _read(self):
        for line in self.proc.stdout:
            self.lines.append(line)

    def _wait(self):
        end = time.monotonic() + START_SECONDS
        while True:
            try:
                if requests.get(self.url_for("health", "ready"), timeout=5).status_code == 200:
                    return
            except requests.ConnectionError:
                pass
            if self.proc.poll() is not None:
                self.reader.join(5)
                raise RuntimeError(f"the server ended with {self.proc.returncode}:\n{''.join(self.lines)}")
            if time.monotonic() > end:
                self.stop()
                raise RuntimeError(f"the server was not ready after {START_SECONDS} s:\n{''.join(self.lines[-40:])}")
            time.sleep(0.05)

    def stop(self):
        if self.proc.poll() is None:
            self.proc.terminate()
            try:
                self.proc.wait(30)
            except subprocess.TimeoutExpired:
                self.proc.kill()
                self.proc.wait(5)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()

    @property
    def url_root(self):
        return f"http://127.0.0.1:{self.port}"

    def url_for(self, *parts):
        return "/".join([self.url_root, *parts])

    def get_client(self):
        return openai.OpenAI(base_url=self.url_for("v1"), api_key=self.API_KEY)

    def get_async_client(self):
        return openai.AsyncOpenAI(base_url=self.url_for("v1"), api_key=self.API_KEY)


class Described:
    """What Triton's tests start first. Here the process starts with the application, whose flags it needs."""

    def __init__(self, flags):
        self.flags = flags
        self.started = []

    def stop(self):
        for server in self.started:
            server.stop()


def setup_server(model_repository, model_control_mode=None, load_models=None):
    flags = ["--model-repository", model_repository]
    if model_control_mode is not None:
        flags += ["--model-control-mode", model_control_mode]
    return Described([*flags, *(word for name in load_models or [] for word in ("--load-model", name))])


def setup_fastapi_app(tokenizer, server, backend, default_max_tokens=16, tool_call_parser=None, max_tool_call_parse_bytes=None):
    given = {
        "tokenizer": tokenizer,
        "backend": backend,
        "default-max-tokens": default_max_tokens,
        "tool-call-parser": tool_call_parser,
        "max-tool-call-parse-bytes": max_tool_call_parse_bytes,
    }
    flags = [word for name, value in given.items() if value for word in (f"--{name}", str(value))]
    started = OpenAIServer([*server.flags, *flags])
    server.started.append(started)
    return started
