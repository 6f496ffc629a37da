"""Postprocessing in the shape of TensorRT-LLM's all_models/inflight_batcher_llm: the ids of all requests of a batch
become texts in one call of the tokenizer."""
import json

import numpy as np
import triton_python_backend_utils as pb_utils
from transformers import AutoTokenizer


class TritonPythonModel:
    def initialize(self, args):
        parameters = json.loads(args["model_config"])["parameters"]
        self.skips_special = parameters["skip_special_tokens"]["string_value"].lower() == "true"
        self.tokenizer = AutoTokenizer.from_pretrained(
            parameters["tokenizer_dir"]["string_value"], legacy=False, padding_side="left", trust_remote_code=True
        )

    def execute(self, requests):
        sequences, ends = [], []
        for request in requests:
            inputs = {tensor.name(): tensor.as_numpy() for tensor in request.inputs()}
            for row, lengths in zip(inputs["TOKENS_BATCH"], inputs["SEQUENCE_LENGTH"]):
                sequences.extend(beam[:length] for beam, length in zip(row, lengths))
            ends.append(len(sequences))
        texts = self.tokenizer.batch_decode(sequences, skip_special_tokens=self.skips_special)
        responses = []
        for start, end in zip([0, *ends], ends):
            values = np.array([text.encode() for text in texts[start:end]], dtype=np.object_)
            responses.append(pb_utils.InferenceResponse(output_tensors=[pb_utils.Tensor("OUTPUT", values)]))
        return responses
