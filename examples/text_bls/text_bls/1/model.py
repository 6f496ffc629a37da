"""Text to JSON in one model: it calls the classifier itself."""
import json
import os

import numpy as np
import triton_python_backend_utils as pb_utils

from wordpiece import WordPiece


class TritonPythonModel:
    def initialize(self, args):
        directory = os.path.join(args["model_repository"], args["model_version"])
        self.tokenizer = WordPiece(os.path.join(directory, "vocab.txt"))
        parameters = json.loads(args["model_config"])["parameters"]
        self.labels = parameters["labels"]["string_value"].split(",")

    def execute(self, requests):
        responses = []
        for request in requests:
            texts = pb_utils.get_input_tensor_by_name(request, "text").as_numpy()
            input_ids, attention_mask = self.tokenize(texts.reshape(-1))

            infer_request = pb_utils.InferenceRequest(
                model_name="classifier",
                requested_output_names=["logits"],
                inputs=[
                    pb_utils.Tensor("input_ids", input_ids),
                    pb_utils.Tensor("attention_mask", attention_mask),
                ],
            )
            infer_response = infer_request.exec()
            if infer_response.has_error():
                error = pb_utils.TritonError(infer_response.error().message())
                responses.append(pb_utils.InferenceResponse(output_tensors=[], error=error))
                continue

            logits = pb_utils.get_output_tensor_by_name(infer_response, "logits").as_numpy()
            results = np.array([[self.describe(row)] for row in logits], dtype=np.object_)
            responses.append(pb_utils.InferenceResponse(output_tensors=[pb_utils.Tensor("result", results)]))
        return responses

    def tokenize(self, texts):
        rows = [self.tokenizer.encode(text.decode("utf-8", "replace")) for text in texts]
        longest = max(len(row) for row in rows)
        input_ids = np.array([row + [0] * (longest - len(row)) for row in rows], dtype=np.int64)
        attention_mask = np.array([[1] * len(row) + [0] * (longest - len(row)) for row in rows], dtype=np.int64)
        return input_ids, attention_mask

    def describe(self, logits):
        exponentials = np.exp(logits - logits.max())
        scores = exponentials / exponentials.sum()
        best = int(scores.argmax())
        result = {
            "label": self.labels[best],
            "score": round(float(scores[best]), 3),
            "scores": {label: round(float(score), 3) for label, score in zip(self.labels, scores)},
        }
        return json.dumps(result).encode("utf-8")

    def finalize(self):
        print("text_bls: done")
