"""
Lists likely texts of each row and asks the model `decoder` for the best one, once for all requests of a batch. As in the
project, a response has one dimension less than its configuration says.

The list is the most likely path and that path with the second choice of one step, in place of the project's beam search.
"""
import json

import numpy as np
import triton_python_backend_utils as pb_utils

BLANK = 0


def load_vocabulary(path):
    with open(path, encoding="utf-8") as read:
        return [line.split()[0] for line in read]


def hypotheses(scores, signs, beam):
    """At most `beam` pairs of score and signs, the most likely first, of one row."""
    path, total = signs[:, 0], scores[:, 0].sum()
    found = [(total, path)]
    for step in range(len(path)):
        other = path.copy()
        other[step] = signs[step, 1]
        found.append((total - scores[step, 0] + scores[step, 1], other))
    found.sort(key=lambda pair: -pair[0])
    return [(score, without_repetitions(path)) for score, path in found[:beam]]


def without_repetitions(path):
    return [int(sign) for at, sign in enumerate(path) if sign != BLANK and (at == 0 or sign != path[at - 1])]


def decoder_inputs(rows, beam, end):
    """The inputs of `decoder` for rows of encoder_out, its length, scores and signs. Texts begin and end with `end`."""
    found = [hypotheses(scores[:count], signs[:count], beam) for _, count, scores, signs in rows]
    # A row with fewer texts than the beam has impossible ones.
    found = [pairs + [(-np.inf, [0])] * (beam - len(pairs)) for pairs in found]
    longest = max(len(signs) for pairs in found for _, signs in pairs) + 2
    steps = max(len(encoded) for encoded, *_ in rows)
    shape = (len(rows), beam)
    inputs = {
        "encoder_out": np.zeros((len(rows), steps, rows[0][0].shape[1]), np.float32),
        "encoder_out_lens": np.array([[count] for _, count, *_ in rows], np.int32),
        "hyps_pad_sos_eos": np.full((*shape, longest), end, np.int64),
        "hyps_lens_sos": np.ones(shape, np.int32),
        "r_hyps_pad_sos_eos": np.full((*shape, longest), end, np.int64),
        "ctc_score": np.zeros(shape, np.float32),
    }
    for i, ((encoded, *_), pairs) in enumerate(zip(rows, found)):
        inputs["encoder_out"][i, : len(encoded)] = encoded
        for j, (score, signs) in enumerate(pairs):
            inputs["hyps_pad_sos_eos"][i, j, 1 : 1 + len(signs)] = signs
            inputs["r_hyps_pad_sos_eos"][i, j, 1 : 1 + len(signs)] = signs[::-1]
            inputs["hyps_lens_sos"][i, j] = len(signs) + 1
            inputs["ctc_score"][i, j] = score
    return inputs


def texts(inputs, best, vocabulary):
    """The text of each row, of those in `decoder_inputs`."""
    found = []
    for signs, lengths, at in zip(inputs["hyps_pad_sos_eos"], inputs["hyps_lens_sos"], best):
        found.append("".join(vocabulary[sign] for sign in signs[at, 1 : lengths[at]]))
    return found


class TritonPythonModel:
    def initialize(self, args):
        config = json.loads(args["model_config"])
        self.vocabulary = load_vocabulary(config["parameters"]["vocabulary"]["string_value"])
        self.beam = pb_utils.get_input_config_by_name(config, "batch_log_probs")["dims"][-1]

    def execute(self, requests):
        names = ("encoder_out", "encoder_out_lens", "batch_log_probs", "batch_log_probs_idx")
        rows, counts = [], []
        for request in requests:
            arrays = [pb_utils.get_input_tensor_by_name(request, name).as_numpy() for name in names]
            rows += zip(*arrays)
            counts.append(len(arrays[0]))
        inputs = decoder_inputs(rows, self.beam, len(self.vocabulary) - 1)
        asked = pb_utils.InferenceRequest(
            model_name="decoder",
            requested_output_names=["best_index"],
            inputs=[pb_utils.Tensor(name, array) for name, array in inputs.items()],
        )
        answer = asked.exec()
        if answer.has_error():
            raise pb_utils.TritonModelException(answer.error().message())
        best = pb_utils.get_output_tensor_by_name(answer, "best_index").as_numpy()
        found = texts(inputs, best[:, 0], self.vocabulary)
        responses = []
        for count in counts:
            own, found = found[:count], found[count:]
            output = pb_utils.Tensor("OUTPUT0", np.array(own, np.object_))
            responses.append(pb_utils.InferenceResponse([output]))
        return responses
