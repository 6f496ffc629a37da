"""Texts to the ids of their pieces."""
import os

import numpy as np
import triton_python_backend_utils as pb_utils

from wordpiece import WordPiece


class TritonPythonModel:
    def initialize(self, args):
        directory = os.path.join(args["model_repository"], args["model_version"])
        self.tokenizer = WordPiece(os.path.join(directory, "vocab.txt"))
        pb_utils.Logger.log_info(f"{args['model_name']}: {len(self.tokenizer.pieces)} pieces")

    def execute(self, requests):
        responses = []
        for request in requests:
            texts = pb_utils.get_input_tensor_by_name(request, "text").as_numpy()
            rows = [self.tokenizer.encode(text.decode("utf-8", "replace")) for text in texts.reshape(-1)]

            # Rows of one request are padded to the longest of them.
            longest = max(len(row) for row in rows)
            input_ids = np.zeros((len(rows), longest), dtype=np.int64)
            attention_mask = np.zeros((len(rows), longest), dtype=np.int64)
            for i, row in enumerate(rows):
                input_ids[i, : len(row)] = row
                attention_mask[i, : len(row)] = 1

            responses.append(
                pb_utils.InferenceResponse(
                    output_tensors=[
                        pb_utils.Tensor("input_ids", input_ids),
                        pb_utils.Tensor("attention_mask", attention_mask),
                    ]
                )
            )
        return responses
