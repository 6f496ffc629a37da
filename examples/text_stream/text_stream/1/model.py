"""Goes on with a text, a word at a time: each is a response of its own, sent as soon as it is known."""
import os

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        path = os.path.join(args["model_repository"], args["model_version"], "vocab.txt")
        with open(path, encoding="utf-8") as f:
            self.words = f.read().splitlines()
        self.ids = {word: i for i, word in enumerate(self.words)}

    def execute(self, requests):
        for request in requests:
            self.generate(request)
        # Responses go through the sender.
        return None

    def generate(self, request):
        sender = request.get_response_sender()
        prompt = pb_utils.get_input_tensor_by_name(request, "text_input").as_numpy()[0].decode("utf-8")
        limit = pb_utils.get_input_tensor_by_name(request, "max_tokens")
        max_tokens = 32 if limit is None else int(limit.as_numpy()[0])

        token = self.ids.get((prompt.lower().split() or [""])[-1], self.ids["[UNK]"])
        for _ in range(max_tokens):
            # The client may have gone away.
            if sender.is_cancelled():
                break
            call = pb_utils.InferenceRequest(
                model_name="next_token",
                requested_output_names=["logits"],
                inputs=[pb_utils.Tensor("token", np.array([token], dtype=np.int64))],
            )
            answer = call.exec()
            if answer.has_error():
                error = pb_utils.TritonError(answer.error().message())
                sender.send(pb_utils.InferenceResponse(error=error), flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
                return
            logits = pb_utils.get_output_tensor_by_name(answer, "logits").as_numpy()
            token = int(logits.argmax())
            if self.words[token] == "[END]":
                break
            word = np.array([self.words[token].encode("utf-8")], dtype=np.object_)
            sender.send(pb_utils.InferenceResponse(output_tensors=[pb_utils.Tensor("text_output", word)]))
        sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
