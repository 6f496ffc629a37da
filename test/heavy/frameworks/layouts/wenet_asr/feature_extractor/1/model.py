"""Turns sound into the energies of bands, a row for each step in time, in place of the package kaldifeat."""
import json

import numpy as np
import triton_python_backend_utils as pb_utils


def features(sound, bins, shift, length):
    """Energies of one sound: a row for every `shift` samples, of `length` samples each."""
    rows = np.stack([sound[at : at + length] for at in range(0, len(sound) - length + 1, shift)]) * (1 << 15)
    powers = np.abs(np.fft.rfft(rows, axis=1))[:, 1 : 1 + bins * 2] ** 2
    return np.log(powers.reshape(len(rows), bins, 2).sum(axis=2) + 1e-3).astype(np.float32)


class TritonPythonModel:
    def initialize(self, args):
        parameters = json.loads(args["model_config"])["parameters"]
        values = {name: int(value["string_value"]) for name, value in parameters.items()}
        self.bins = values["num_mel_bins"]
        self.shift, self.length = (
            values[name] * values["sample_rate"] // 1000 for name in ("frame_shift_in_ms", "frame_length_in_ms")
        )

    def execute(self, requests):
        responses = []
        for request in requests:
            sounds, lengths = (
                pb_utils.get_input_tensor_by_name(request, name).as_numpy() for name in ("wav", "wav_lens")
            )
            rows = [
                features(sound[: length[0]], self.bins, self.shift, self.length)
                for sound, length in zip(sounds, lengths)
            ]
            # As long as the whole sound, of which `wav_lens` may be a part.
            longest = (sounds.shape[1] - self.length) // self.shift + 1
            speech = np.zeros((len(rows), longest, self.bins), np.float32)
            for to, row in zip(speech, rows):
                to[: len(row)] = row
            counts = np.array([[len(row)] for row in rows], np.int32)
            tensors = [pb_utils.Tensor("speech", speech), pb_utils.Tensor("speech_lengths", counts)]
            responses.append(pb_utils.InferenceResponse(tensors))
        return responses
