"""Words to numbers, those of the longest text of a request; shorter ones are filled with 0."""
import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        self.vocabulary = 100

    def execute(self, requests):
        responses = []
        for request in requests:
            texts = [text.decode("UTF-8") for text in pb_utils.get_input_tensor_by_name(request, "TEXT").as_numpy().tolist()]
            rows = [[1 + sum(word.encode()) % (self.vocabulary - 1) for word in text.split()] for text in texts]
            length = max(map(len, rows))
            ids = np.array([row + [0] * (length - len(row)) for row in rows], np.int64)
            tensors = [pb_utils.Tensor("input_ids", ids), pb_utils.Tensor("attention_mask", (ids > 0).astype(np.int64))]
            responses.append(pb_utils.InferenceResponse(tensors))
        return responses
