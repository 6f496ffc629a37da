"""Batches of a Python model with the dynamic batcher, and requests of one without, are prefetched to its process while another one runs
(docs/decisions/027-a-request-lies-ready.md)."""
import os
import signal
import threading
import time

import numpy as np
import pytest
import tritonclient.grpc as grpcclient

from interpreter import python_server
from server import until

# OUT is twice IN; SEEN has the id of the process, how many batches were prefetched, and the largest batch.
MODEL = '''import array, fcntl, os, termios, time
import numpy as np
import triton_python_backend_utils as pb_utils

WORK_SOCKET = 3


class TritonPythonModel:
    def initialize(self, args):
        self.prefetched = self.largest = 0
        self.is_running = False

    def execute(self, requests):
        assert not self.is_running, "execute is called concurrently"
        self.is_running = True
        time.sleep(0.0002)
        unread = array.array("i", [0])
        fcntl.ioctl(WORK_SOCKET, termios.FIONREAD, unread)
        self.prefetched += unread[0] > 0
        self.largest = max(self.largest, len(requests))
        seen = np.array([[os.getpid(), self.prefetched, self.largest]])
        answers = []
        for request in requests:
            doubled = 2 * request.inputs()[0].as_numpy()
            tensors = [pb_utils.Tensor("OUT", doubled), pb_utils.Tensor("SEEN", np.repeat(seen, len(doubled), 0))]
            answers.append(pb_utils.InferenceResponse(tensors))
        self.is_running = False
        return answers
'''
CONFIG = '''backend: "python"
max_batch_size: 32
input [ { name: "IN" data_type: TYPE_INT64 dims: [ 2 ] } ]
output [ { name: "OUT" data_type: TYPE_INT64 dims: [ 2 ] }, { name: "SEEN" data_type: TYPE_INT64 dims: [ 3 ] } ]
'''
# Without the batcher each request runs alone, and several are prefetched.
MODELS = {"doubles": CONFIG + "dynamic_batching { }\n", "one_by_one": CONFIG}
CLIENTS = 6


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    models = tmp_path_factory.mktemp("batches") / "models"
    for name, config in MODELS.items():
        (models / name / "1").mkdir(parents=True)
        (models / name / "config.pbtxt").write_text(config)
        (models / name / "1" / "model.py").write_text(MODEL)
    one = python_server(models, log=tmp_path_factory.mktemp("log") / "server.log")
    yield one
    assert one.process.poll() is None, f"the server ended by itself:\n{one.tail()}"
    assert one.stop() == 0, one.tail()


class Clients:
    """Threads that send one request after another, each with rows of its own, and check each response."""

    def __init__(self, server, model, each):
        self.model = model
        self.wrong, self.failed, self.answered, self.seen = [], [], 0, None
        self.lock = threading.Lock()
        self.threads = [threading.Thread(target=self.send, args=(server, number, each)) for number in range(CLIENTS)]
        for thread in self.threads:
            thread.start()

    def send(self, server, client, each):
        with grpcclient.InferenceServerClient(f"127.0.0.1:{server.grpc_port}") as one:
            for i in range(each):
                rows = 1 + (client + i) % 3
                sent = 1000 * client + i + np.arange(2 * rows, dtype=np.int64).reshape(rows, 2)
                tensor = grpcclient.InferInput("IN", sent.shape, "INT64")
                tensor.set_data_from_numpy(sent)
                try:
                    # Some are cancelled on their way: while they wait, are prefetched or run.
                    answer = one.infer(self.model, [tensor], client_timeout=0.0005 if i % 10 == 9 else None)
                except grpcclient.InferenceServerException as error:
                    if "cannot be used at the moment" in str(error):
                        time.sleep(0.01)
                    elif "DEADLINE_EXCEEDED" not in str(error) and "CANCELLED" not in str(error):
                        self.failed.append(str(error))
                    continue
                with self.lock:
                    self.answered += 1
                    self.seen = answer.as_numpy("SEEN")[0].tolist()
                if not np.array_equal(answer.as_numpy("OUT"), 2 * sent):
                    self.wrong.append((sent.tolist(), answer.as_numpy("OUT").tolist()))

    def join(self):
        for thread in self.threads:
            thread.join()
        return self


@pytest.mark.parametrize("model", MODELS)
def test_rows_of_batches_that_lie_ready_go_back_to_their_requests(server, model):
    clients = Clients(server, model, 300).join()
    assert (clients.wrong, clients.failed) == ([], [])
    assert clients.answered >= 0.9 * 0.9 * 300 * CLIENTS
    _, prefetched, largest = clients.seen
    assert prefetched > 0 and (largest > 1) == (model == "doubles"), clients.seen


@pytest.mark.parametrize("model", MODELS)
def test_a_process_that_dies_costs_its_batch_and_the_next_one_serves_on(server, model):
    clients = Clients(server, model, 600)
    assert until(lambda: clients.answered >= 200)
    os.kill(clients.seen[0], signal.SIGKILL)
    died_at = clients.answered
    clients.join()
    assert clients.wrong == [] and clients.answered > died_at + 200
    # Prefetched requests did not run.
    costs = CLIENTS if model == "doubles" else 1
    assert len(clients.failed) <= costs and all("is not healthy" in text for text in clients.failed), clients.failed
