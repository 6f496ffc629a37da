"""Turns scores into texts. The response has one dimension less than its configuration says, as in the tutorial."""
import numpy as np
import triton_python_backend_utils as pb_utils

#: The first one stands for a step without a letter.
LETTERS = "-0123456789abcdefghijklmnopqrstuvwxyz"


def texts(scores):
    """The most likely letter of each step, without repetitions."""
    found = []
    for steps in scores.argmax(axis=2):
        kept = [step for at, step in enumerate(steps) if step != 0 and (at == 0 or step != steps[at - 1])]
        found.append("".join(LETTERS[step] for step in kept))
    return np.array(found, np.object_)


class TritonPythonModel:
    def execute(self, requests):
        responses = []
        for request in requests:
            scores = pb_utils.get_input_tensor_by_name(request, "recognition_postprocessing_input").as_numpy()
            found = pb_utils.Tensor("recognition_postprocessing_output", texts(scores))
            responses.append(pb_utils.InferenceResponse([found]))
        return responses
