"""Two calls at once: the sum of one model and the difference of another."""
import asyncio

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    async def execute(self, requests):
        responses = []
        for request in requests:
            in_0 = pb_utils.get_input_tensor_by_name(request, "INPUT0")
            in_1 = pb_utils.get_input_tensor_by_name(request, "INPUT1")

            inference_response_awaits = []
            for model_name, output in (("add_sub", "OUTPUT0"), ("add_sub_onnx", "OUTPUT1")):
                infer_request = pb_utils.InferenceRequest(
                    model_name=model_name, requested_output_names=[output], inputs=[in_0, in_1]
                )
                inference_response_awaits.append(infer_request.async_exec())
            inference_responses = await asyncio.gather(*inference_response_awaits)

            for infer_response in inference_responses:
                if infer_response.has_error():
                    raise pb_utils.TritonModelException(infer_response.error().message())
            first = pb_utils.get_output_tensor_by_name(inference_responses[0], "OUTPUT0")
            second = pb_utils.get_output_tensor_by_name(inference_responses[1], "OUTPUT1")
            responses.append(pb_utils.InferenceResponse(output_tensors=[first, second]))
        return responses
