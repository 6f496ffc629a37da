"""Models that answer text with text, asked by generate and generate_stream, over engines that keep a journal."""
import json

import numpy as np
import tritonclient.grpc as grpcclient

from server import waits_for


class Generates:
    """A loaded model. Its engine, where it has one, appends its events to the file `journal` of `directory`."""

    def __init__(self, server, name, directory):
        self.server, self.name, self.directory = server, name, directory
        self.path = f"/v2/models/{name}"

    def post(self, what, **body):
        """Status and answer."""
        status, _, answer = self.server.request("POST", f"{self.path}/{what}", json.dumps(body).encode())
        return status, json.loads(answer)

    def generate(self, **body):
        status, answer = self.post("generate", **body)
        assert status == 200, answer
        return answer

    def stream(self, **body):
        """The events of generate_stream."""
        status, _, answer = self.server.request("POST", f"{self.path}/generate_stream", json.dumps(body).encode())
        assert status == 200, answer
        lines = answer.decode().splitlines()
        return [json.loads(line[len("data: ") :]) for line in lines if line.startswith("data: ")]

    def journal(self):
        path = self.directory / "journal"
        return path.read_text().splitlines() if path.exists() else []

    def count(self, word):
        return sum(line.startswith(word) for line in self.journal())

    def waits_for(self, word, count=1):
        text = f"{count} × {word} in the engine's journal: {self.journal()}\n{self.server.tail()}"
        waits_for(lambda: self.count(word) >= count, text)

    def is_ready(self):
        return self.server.request("GET", f"{self.path}/ready")[0] == 200


def text(name, *values):
    data = np.array([value.encode() if isinstance(value, str) else value for value in values], object)
    return grpcclient.InferInput(name, [len(values)], "BYTES").set_data_from_numpy(data)


def flag(name, value):
    return grpcclient.InferInput(name, [1], "BOOL").set_data_from_numpy(np.array([value]))
