"""A model of the suite `peers` in Triton's Python backend: the requests of an execution run as one batch."""
import triton_python_backend_utils as pb_utils

import models


class TritonPythonModel:
    def initialize(self, args):
        self.model = models.make()

    def execute(self, requests):
        arrays = [tuple(pb_utils.get_input_tensor_by_name(request, name).as_numpy() for name in self.model.inputs) for request in requests]
        found = self.model.run([self.model.of_tensors(one) for one in arrays])
        return [pb_utils.InferenceResponse([pb_utils.Tensor(*pair) for pair in zip(self.model.outputs, outputs)]) for outputs in found]
