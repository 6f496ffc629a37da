"""The sum of all responses of a decoupled model."""
import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        responses = []
        for request in requests:
            infer_request = pb_utils.InferenceRequest(
                model_name="square_int32",
                inputs=[pb_utils.get_input_tensor_by_name(request, "IN")],
                requested_output_names=["OUT"],
            )
            response_sum = 0
            for infer_response in infer_request.exec(decoupled=True):
                if infer_response.has_error():
                    raise pb_utils.TritonModelException(infer_response.error().message())
                # The last response may be empty.
                if len(infer_response.output_tensors()) > 0:
                    response_sum += pb_utils.get_output_tensor_by_name(infer_response, "OUT").as_numpy()
            responses.append(
                pb_utils.InferenceResponse(output_tensors=[pb_utils.Tensor("SUM", np.array(response_sum, np.int32).reshape(1))])
            )
        return responses
