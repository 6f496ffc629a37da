"""Logits to JSON: the best label, its score, and the scores of all."""
import json

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        parameters = json.loads(args["model_config"])["parameters"]
        self.labels = parameters["labels"]["string_value"].split(",")

    def execute(self, requests):
        responses = []
        for request in requests:
            logits = pb_utils.get_input_tensor_by_name(request, "logits").as_numpy()
            exponentials = np.exp(logits - logits.max(axis=1, keepdims=True))
            scores = exponentials / exponentials.sum(axis=1, keepdims=True)

            results = []
            for row in scores:
                best = int(row.argmax())
                result = {
                    "label": self.labels[best],
                    "score": round(float(row[best]), 3),
                    "scores": {label: round(float(score), 3) for label, score in zip(self.labels, row)},
                }
                results.append([json.dumps(result).encode("utf-8")])

            output = pb_utils.Tensor("result", np.array(results, dtype=np.object_))
            responses.append(pb_utils.InferenceResponse(output_tensors=[output]))
        return responses
