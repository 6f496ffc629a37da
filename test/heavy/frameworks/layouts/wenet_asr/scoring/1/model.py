"""The most likely signs of each row, blanks and repetitions left out."""
import json

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        self.blank = int(json.loads(args["model_config"])["parameters"]["blank_id"]["string_value"])

    def execute(self, requests):
        responses = []
        for request in requests:
            lengths, best = (pb_utils.get_input_tensor_by_name(request, name).as_numpy() for name in ("encoder_out_lens", "batch_log_probs_idx"))
            texts = []
            for count, row in zip(lengths[:, 0], best[:, :, 0]):
                signs = [sign for at, sign in enumerate(row[:count]) if sign != self.blank and (at == 0 or sign != row[at - 1])]
                texts.append(["".join(chr(0x4E00 + int(sign)) for sign in signs)])
            responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT0", np.array(texts, np.object_))]))
        return responses
