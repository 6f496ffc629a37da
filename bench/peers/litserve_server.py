"""A model behind LitServe with batches: lists in JSON, as its examples do. `litserve_server.py PORT WORKERS`."""
import sys

import litserve
import numpy

import models


class Api(litserve.LitAPI):
    def setup(self, device):
        self.model = models.make()

    def decode_request(self, request):
        return self.model.of_list(request["input"])

    def batch(self, inputs):
        return inputs

    def predict(self, batch):
        return self.model.run(batch)

    def unbatch(self, outputs):
        return outputs

    def encode_response(self, outputs):
        return {"output": numpy.concatenate(outputs).ravel().tolist()}


if __name__ == "__main__":
    api = Api(max_batch_size=32, batch_timeout=0.001)
    server = litserve.LitServer(api, accelerator="cpu", workers_per_device=int(sys.argv[2]), fast_queue=True)
    server.run(host="127.0.0.1", port=int(sys.argv[1]), generate_client_file=False, log_level="warning")
