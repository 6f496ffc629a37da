"""What becomes of sequences in progress when their server ends."""
import signal
import time

import numpy as np
import pytest
import steps as step_models
import tritonclient.grpc as grpcclient
import tritonclient.http as httpclient
from tritonclient.utils import InferenceServerException


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "SIGINT"])
def test_sequences_that_have_begun_go_on_while_the_server_exits(tmp_path, start, number):
    """R-51: until their END; nothing else is served meanwhile, and the server ends with 0 when the last one is over."""
    server = start(step_models.write(tmp_path / "models"), "--exit-grace-secs=0")
    with grpcclient.InferenceServerClient(server.grpc) as by_grpc, httpclient.InferenceServerClient(server.http) as by_http:
        def add(client, value, sequence, **flags):
            module = grpcclient if client is by_grpc else httpclient
            tensor = module.InferInput("INPUT", [1, 1], "INT32")
            tensor.set_data_from_numpy(np.full((1, 1), value, np.int32))
            return client.infer("simple_sequence", [tensor], sequence_id=sequence, **flags).as_numpy("OUTPUT").item()

        assert [add(by_grpc, 1, 1, sequence_start=True), add(by_http, 2, 2, sequence_start=True)] == [1, 2]
        server.signal(number)
        end = time.monotonic() + 10
        while by_http.is_server_ready():
            assert time.monotonic() < end
            time.sleep(0.01)
        with pytest.raises(InferenceServerException, match="Server is stopping"):
            add(by_http, 1, 3, sequence_start=True)
        assert [add(by_grpc, 10, 1), add(by_http, 20, 2), add(by_grpc, 100, 1, sequence_end=True)] == [11, 22, 111]
        assert server.process.poll() is None, "one is still in progress"
        assert add(by_http, 200, 2, sequence_end=True) == 222
    assert server.process.wait(20) == 0, server.tail()
