"""A response for each element of IN, each after its DELAY, from a thread per request; execute itself takes WAIT milliseconds."""
import json
import threading
import time

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        model_config = json.loads(args["model_config"])
        using_decoupled = pb_utils.using_decoupled_model_transaction_policy(model_config)
        if not using_decoupled:
            raise pb_utils.TritonModelException(
                f"the model `{args['model_name']}` needs a decoupled transaction policy in its configuration"
            )
        self.inflight_thread_count = 0
        self.inflight_thread_count_lck = threading.Lock()

    def execute(self, requests):
        for request in requests:
            thread = threading.Thread(
                target=self.response_thread,
                args=(
                    request.get_response_sender(),
                    pb_utils.get_input_tensor_by_name(request, "IN").as_numpy(),
                    pb_utils.get_input_tensor_by_name(request, "DELAY").as_numpy(),
                ),
            )
            thread.daemon = True
            with self.inflight_thread_count_lck:
                self.inflight_thread_count += 1
            thread.start()

        wait = pb_utils.get_input_tensor_by_name(requests[0], "WAIT").as_numpy()[0]
        time.sleep(wait / 1000)
        return None

    def response_thread(self, response_sender, in_input, delay_input):
        for idx in range(in_input.size):
            in_value = in_input[idx]
            delay_value = delay_input[idx]
            time.sleep(delay_value / 1000)
            out_output = pb_utils.Tensor("OUT", np.array([in_value], np.int32))
            idx_output = pb_utils.Tensor("IDX", np.array([idx], np.uint32))
            response_sender.send(pb_utils.InferenceResponse(output_tensors=[idx_output, out_output]))
        response_sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
        with self.inflight_thread_count_lck:
            self.inflight_thread_count -= 1

    def finalize(self):
        while True:
            with self.inflight_thread_count_lck:
                if self.inflight_thread_count == 0:
                    break
            time.sleep(0.1)
