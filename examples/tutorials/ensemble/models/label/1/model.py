"""The name and the probability of the likeliest type. The names are those of magika's own configuration."""

import json
from pathlib import Path

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        config = json.loads(Path(__file__).with_name("config.min.json").read_text())
        self.names = np.array(config["target_labels_space"], dtype=np.object_)

    def execute(self, requests):
        responses = []
        for request in requests:
            rows = pb_utils.get_input_tensor_by_name(request, "probabilities").as_numpy()
            types = pb_utils.Tensor("type", self.names[rows.argmax(axis=1)].reshape(-1, 1))
            scores = pb_utils.Tensor("score", rows.max(axis=1, keepdims=True))
            responses.append(pb_utils.InferenceResponse([types, scores]))
        return responses
