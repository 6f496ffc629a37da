"""Sums of all responses of several calls to a decoupled model that run side by side."""
import asyncio

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    async def execute(self, requests):
        responses = []
        for request in requests:
            in_input = pb_utils.get_input_tensor_by_name(request, "IN")
            calls = [
                pb_utils.InferenceRequest(model_name="square_int32", inputs=[in_input], requested_output_names=["OUT"])
                for _ in range(3)
            ]
            iterators = await asyncio.gather(*[call.async_exec(decoupled=True) for call in calls])
            response_sum = 0
            for infer_responses in iterators:
                for infer_response in infer_responses:
                    if infer_response.has_error():
                        raise pb_utils.TritonModelException(infer_response.error().message())
                    if len(infer_response.output_tensors()) > 0:
                        response_sum += int(pb_utils.get_output_tensor_by_name(infer_response, "OUT").as_numpy()[0])
            responses.append(
                pb_utils.InferenceResponse(output_tensors=[pb_utils.Tensor("SUM", np.array([response_sum], np.int32))])
            )
        return responses
