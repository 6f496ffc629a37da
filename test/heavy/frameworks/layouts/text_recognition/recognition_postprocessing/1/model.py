"""The most likely letter of each step; what repeats is one letter, and the first class is none."""
import numpy as np
import triton_python_backend_utils as pb_utils

LETTERS = "-0123456789abcdefghijklmnopqrstuvwxyz"


class TritonPythonModel:
    def execute(self, requests):
        responses = []
        for request in requests:
            scores = pb_utils.get_input_tensor_by_name(request, "recognition_postprocessing_input").as_numpy()
            texts = []
            for steps in scores.argmax(axis=2):
                kept = [step for at, step in enumerate(steps) if step != 0 and (at == 0 or step != steps[at - 1])]
                texts.append("".join(LETTERS[step] for step in kept))
            responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("recognition_postprocessing_output", np.array(texts, np.object_))]))
        return responses
