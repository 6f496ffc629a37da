"""The bytes of an image file to what a network takes: decoded, resized, normalised, channels first."""
import io
import json

import numpy as np
import triton_python_backend_utils as pb_utils


def decode(data):
    """Height × width × 3 of a binary PPM, which is the one format that needs no library."""
    stream = io.BytesIO(data)
    magic, size, maximum = (stream.readline().split() for _ in range(3))
    if magic != [b"P6"] or maximum != [b"255"]:
        raise ValueError("not a binary PPM")
    width, height = map(int, size)
    return np.frombuffer(stream.read(), np.uint8).reshape(height, width, 3)


class TritonPythonModel:
    def initialize(self, args):
        output0_config = pb_utils.get_output_config_by_name(json.loads(args["model_config"]), "OUTPUT_0")
        self.output0_dtype = pb_utils.triton_string_to_numpy(output0_config["data_type"])
        self.size = output0_config["dims"][1]

    def execute(self, requests):
        mean, std = np.array([0.485, 0.456, 0.406]), np.array([0.229, 0.224, 0.225])
        responses = []
        for request in requests:
            in_0 = pb_utils.get_input_tensor_by_name(request, "INPUT_0")
            images = []
            for row in in_0.as_numpy():
                image = decode(row.tobytes())
                at = [np.arange(self.size) * length // self.size for length in image.shape[:2]]
                image = image[np.ix_(*at)] / 255
                images.append(((image - mean) / std).transpose(2, 0, 1))
            out = pb_utils.Tensor("OUTPUT_0", np.stack(images).astype(self.output0_dtype))
            responses.append(pb_utils.InferenceResponse(output_tensors=[out]))
        return responses
