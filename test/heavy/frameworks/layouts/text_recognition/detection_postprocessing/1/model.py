"""Cuts the three most likely places out of a picture. The response has a row for each place, the request has one row."""
import numpy as np
import triton_python_backend_utils as pb_utils

PLACES = 3
HEIGHT, WIDTH = 32, 100
#: Pixels of the picture for each score.
STEP = 4


def places(scores, geometry, image):
    """Grey pictures of the places, with values from -1 to 1."""
    grey = image[0].mean(axis=2)
    cuts = []
    for at in np.argsort(-scores.reshape(-1), kind="stable")[:PLACES]:
        row, column = divmod(int(at), scores.shape[2])
        moved = int(abs(geometry[0, row, column, 0]) * STEP)
        rows = np.arange(row * STEP, row * STEP + HEIGHT) % grey.shape[0]
        columns = np.arange(column * STEP + moved, column * STEP + moved + WIDTH) % grey.shape[1]
        cuts.append(grey[rows][:, columns][None])
    return ((np.stack(cuts) / 255 - 0.5) * 2).astype(np.float32)


class TritonPythonModel:
    def execute(self, requests):
        responses = []
        for request in requests:
            inputs = [
                pb_utils.get_input_tensor_by_name(request, f"detection_postprocessing_input_{i}").as_numpy()
                for i in (1, 2, 3)
            ]
            cuts = pb_utils.Tensor("detection_postprocessing_output", places(*inputs))
            responses.append(pb_utils.InferenceResponse([cuts]))
        return responses
