"""Sends IN responses with the value IN, so none for 0."""
import threading

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            in_input = pb_utils.get_input_tensor_by_name(request, "IN").as_numpy()
            thread = threading.Thread(target=self.response_thread, args=(request.get_response_sender(), in_input))
            thread.daemon = True
            thread.start()
        return None

    def response_thread(self, response_sender, in_input):
        for _ in range(in_input[0]):
            response = pb_utils.InferenceResponse(output_tensors=[pb_utils.Tensor("OUT", np.array([in_input[0]], np.int32))])
            response_sender.send(response)
        response_sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
