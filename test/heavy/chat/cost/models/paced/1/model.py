"""Sends each of its requests a token every 20 ms, as an engine with continuous batching does: all requests get theirs in one step."""
import threading
import time

import numpy as np
import triton_python_backend_utils as pb_utils

SECONDS = 0.02


class TritonPythonModel:
    def initialize(self, _):
        self.lock = threading.Lock()
        self.running = []
        self.stopped = False
        self.thread = threading.Thread(target=self.step_until_stopped)
        self.thread.start()

    def execute(self, requests):
        for request in requests:
            most = int(pb_utils.get_input_tensor_by_name(request, "max_tokens").as_numpy()[0])
            with self.lock:
                self.running.append([request.get_response_sender(), request, most])

    def step_until_stopped(self):
        due = time.monotonic()
        while not self.stopped:
            due = max(due + SECONDS, time.monotonic())
            time.sleep(max(0, due - time.monotonic()))
            with self.lock:
                running, self.running = self.running, []
            response = pb_utils.InferenceResponse([pb_utils.Tensor("text_output", np.array([" token"], object))])
            for one in running:
                sender, request, left = one
                if left == 1 or request.is_cancelled():
                    sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
                    continue
                sender.send(response)
                one[2] -= 1
                with self.lock:
                    self.running.append(one)

    def finalize(self):
        self.stopped = True
        self.thread.join()
