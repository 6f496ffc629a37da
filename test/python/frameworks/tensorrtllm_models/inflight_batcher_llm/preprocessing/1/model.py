"""Preprocessing in the shape of TensorRT-LLM's all_models/inflight_batcher_llm: texts become ids, padded to the longest
of the request; lists of words become ids and the ends of the words, and are empty tensors without an input."""
import json

import numpy as np
import triton_python_backend_utils as pb_utils
from transformers import AutoTokenizer


class TritonPythonModel:
    def initialize(self, args):
        parameters = json.loads(args["model_config"])["parameters"]
        directory = parameters["tokenizer_dir"]["string_value"]
        self.adds_special = parameters["add_special_tokens"]["string_value"].lower() == "true"
        self.tokenizer = AutoTokenizer.from_pretrained(
            directory, legacy=False, padding_side="left", trust_remote_code=True
        )
        self.end_id = self.tokenizer.encode(self.tokenizer.eos_token, add_special_tokens=False)[0]

    def execute(self, requests):
        return [pb_utils.InferenceResponse(output_tensors=self._outputs(request)) for request in requests]

    def _outputs(self, request):
        queries = pb_utils.get_input_tensor_by_name(request, "QUERY").as_numpy()
        rows = [self.tokenizer.encode(row[0].decode(), add_special_tokens=self.adds_special) for row in queries]
        width = max(len(ids) for ids in rows)
        padded = [ids + [self.end_id] * (width - len(ids)) for ids in rows]
        arrays = {
            "INPUT_ID": padded,
            "REQUEST_INPUT_LEN": [[len(ids)] for ids in rows],
            "REQUEST_OUTPUT_LEN": pb_utils.get_input_tensor_by_name(request, "REQUEST_OUTPUT_LEN").as_numpy(),
            "BAD_WORDS_IDS": self._words(request, "BAD_WORDS_DICT", len(rows)),
            "STOP_WORDS_IDS": self._words(request, "STOP_WORDS_DICT", len(rows)),
            "OUT_END_ID": [[self.end_id]] * len(rows),
        }
        return [pb_utils.Tensor(name, np.array(values, dtype=np.int32)) for name, values in arrays.items()]

    def _words(self, request, name, rows):
        tensor = pb_utils.get_input_tensor_by_name(request, name)
        if tensor is None:
            return np.empty([rows, 2, 0])
        words = [[self.tokenizer.encode(word.decode(), add_special_tokens=False) for word in row if word]
                 for row in tensor.as_numpy()]
        ids = [sum(row, []) for row in words]
        ends = [list(np.cumsum([len(word) for word in row])) for row in words]
        width = max(1, *(len(row) for row in ids))
        return [[row + [0] * (width - len(row)), end + [-1] * (width - len(end))] for row, end in zip(ids, ends)]
