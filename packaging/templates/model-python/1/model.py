import json

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        """Runs once, before the first request: load weights here."""
        self.config = json.loads(args["model_config"])

    def execute(self, requests):
        """Runs requests that came together. Returns one response for each, in their order."""
        responses = []
        for request in requests:
            values = pb_utils.get_input_tensor_by_name(request, "INPUT0").as_numpy()
            doubled = values * np.float32(2)  # your code
            responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT0", doubled)]))
        return responses

    def finalize(self):
        """Once, after the last request."""
