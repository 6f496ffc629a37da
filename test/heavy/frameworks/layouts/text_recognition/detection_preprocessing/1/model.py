"""The bytes of a picture (PPM: no package is needed to read it) to numbers around 0."""
import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        responses = []
        for request in requests:
            encoded = pb_utils.get_input_tensor_by_name(request, "detection_preprocessing_input").as_numpy().tobytes()
            kind, width, height, _, pixels = encoded.split(b" ", 4)
            if kind != b"P6":
                error = pb_utils.TritonError(f"a picture of {len(encoded)} bytes is no PPM file")
                responses.append(pb_utils.InferenceResponse(error=error))
                continue
            image = np.frombuffer(pixels, np.uint8).reshape(1, int(height), int(width), 3).astype(np.float32) / 127.5 - 1
            responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("detection_preprocessing_output", image)]))
        return responses
