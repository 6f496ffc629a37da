"""Sound to the energies of 80 bands, a row for each 10 ms."""
import json

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        values = {name: int(value["string_value"]) for name, value in json.loads(args["model_config"])["parameters"].items()}
        self.bins = values["num_mel_bins"]
        self.shift, self.length = (values[f"frame_{what}_in_ms"] * values["sample_rate"] // 1000 for what in ("shift", "length"))

    def features(self, sound):
        rows = np.stack([sound[at : at + self.length] for at in range(0, len(sound) - self.length + 1, self.shift)])
        powers = np.abs(np.fft.rfft(rows, axis=1))[:, 1:201] ** 2
        return np.log(powers[:, : self.bins * 2].reshape(len(rows), self.bins, 2).sum(axis=2) + 1e-3).astype(np.float32)

    def execute(self, requests):
        responses = []
        for request in requests:
            sounds, lengths = (pb_utils.get_input_tensor_by_name(request, name).as_numpy() for name in ("wav", "wav_lens"))
            rows = [self.features(sound[: length[0]]) for sound, length in zip(sounds, lengths)]
            counts = np.array([[len(row)] for row in rows], np.int32)
            speech = np.zeros((len(rows), counts.max(), self.bins), np.float32)
            for i, row in enumerate(rows):
                speech[i, : len(row)] = row
            responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("speech", speech), pb_utils.Tensor("speech_lengths", counts)]))
        return responses
