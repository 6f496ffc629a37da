"""`simple` behind LitServe: lists in JSON, as its examples do."""
import os
import sys

import litserve
import numpy
import onnxruntime


class Simple(litserve.LitAPI):
    def setup(self, device):
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        self.session = onnxruntime.InferenceSession(os.environ["BENCH_MODEL"], options)

    def decode_request(self, request):
        return numpy.array(request["input"], numpy.int32).reshape(2, -1, 16)

    def predict(self, both):
        return self.session.run(None, {"INPUT0": both[0], "INPUT1": both[1]})

    def encode_response(self, outputs):
        return {"output": numpy.concatenate(outputs).ravel().tolist()}


if __name__ == "__main__":
    litserve.LitServer(Simple(), accelerator="cpu").run(host="127.0.0.1", port=int(sys.argv[1]), generate_client_file=False, log_level="warning")
