"""`simple` behind mosec: raw bytes in, raw bytes out."""
import os

import numpy
import onnxruntime
from mosec import Server, Worker


class Simple(Worker):
    def __init__(self):
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        self.session = onnxruntime.InferenceSession(os.environ["BENCH_MODEL"], options)

    def deserialize(self, data):
        return numpy.frombuffer(data, numpy.int32).reshape(2, -1, 16)

    def forward(self, both):
        return self.session.run(None, {"INPUT0": both[0], "INPUT1": both[1]})

    def serialize(self, outputs):
        return b"".join(o.tobytes() for o in outputs)


if __name__ == "__main__":
    server = Server()
    server.append_worker(Simple, num=1)
    server.run()
