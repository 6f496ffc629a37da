"""Decodes a picture and cuts out its middle. Reads PPM, because that needs no package."""
import numpy as np
import triton_python_backend_utils as pb_utils


def middle(encoded):
    """The largest square in the middle whose side is a multiple of 32, with values from 0 to 255."""
    kind, width, height, _, pixels = encoded.split(b" ", 4)
    if kind != b"P6":
        raise pb_utils.TritonModelException(f"{len(encoded)} bytes are not a PPM file")
    height, width = int(height), int(width)
    side = min(height, width) // 32 * 32
    top, left = (height - side) // 2, (width - side) // 2
    image = np.frombuffer(pixels, np.uint8).reshape(height, width, 3)
    return image[None, top : top + side, left : left + side].astype(np.float32)


class TritonPythonModel:
    def execute(self, requests):
        responses = []
        for request in requests:
            encoded = pb_utils.get_input_tensor_by_name(request, "detection_preprocessing_input").as_numpy().tobytes()
            image = pb_utils.Tensor("detection_preprocessing_output", middle(encoded))
            responses.append(pb_utils.InferenceResponse([image]))
        return responses
