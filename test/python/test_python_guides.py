"""Models as the Python backend's examples write them (guides/), served as they are and asked with tritonclient.

S-34 and B-PY-33, with B-PY-04, B-PY-10, B-PY-11, B-PY-12, B-PY-15, B-PY-16, B-PY-20, B-PY-22.
"""
import os
import queue
import shutil
import subprocess

import numpy as np
import onnx
import pytest
import tritonclient.grpc as grpc
import tritonclient.http as http
from onnx import TensorProto, helper
from tritonclient.utils import InferenceServerException

from interpreter import python_server
from server import NODE, ROOT

HERE = os.path.dirname(os.path.abspath(__file__))
A, B = np.array([1, 2, 3, 4], np.float32), np.array([0.5, 20, -3, 0], np.float32)


def write_add_sub_onnx(directory):
    def values(*names):
        return [helper.make_tensor_value_info(name, TensorProto.FLOAT, [4]) for name in names]

    nodes = [helper.make_node(op, ["INPUT0", "INPUT1"], [output]) for op, output in (("Add", "OUTPUT0"), ("Sub", "OUTPUT1"))]
    graph = helper.make_graph(nodes, "add_sub", values("INPUT0", "INPUT1"), values("OUTPUT0", "OUTPUT1"))
    os.makedirs(directory / "1")
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9)
    onnx.save(model, directory / "1" / "model.onnx")


def write(repository):
    """The models of guides/, with the two that are not Python."""
    shutil.copytree(os.path.join(HERE, "guides"), repository, ignore=shutil.ignore_patterns("README.md", "__pycache__"))
    # A version directory is needed, and git keeps no empty one.
    os.makedirs(repository / "image_pipeline" / "1")
    write_add_sub_onnx(repository / "add_sub_onnx")
    examples = repository.parent / "examples"
    subprocess.run([NODE, os.path.join(ROOT, "scripts/models/examples.mjs"), str(examples)], check=True)
    shutil.copytree(examples / "classifier", repository / "classifier")
    return repository


@pytest.fixture(scope="module")
def guides(tmp_path_factory):
    one = python_server(write(tmp_path_factory.mktemp("guides") / "models"), log=tmp_path_factory.mktemp("log") / "server.log")
    yield one
    assert one.process.poll() is None, f"the server ended by itself:\n{one.tail()}"
    assert one.stop() == 0, one.tail()


@pytest.fixture(params=[http, grpc], ids=["http", "grpc"])
def asked(request, guides):
    """`ask(model, inputs, outputs)`: outputs by name."""
    module = request.param
    client = module.InferenceServerClient(guides.http if module is http else guides.grpc)

    def ask(model, inputs, outputs):
        tensors = []
        for name, array in inputs.items():
            datatype = {"f": "FP32", "i": "INT32", "u": "UINT8", "O": "BYTES"}[array.dtype.kind]
            tensors.append(module.InferInput(name, list(array.shape), datatype))
            tensors[-1].set_data_from_numpy(array)
        answer = client.infer(model, tensors, outputs=[module.InferRequestedOutput(name) for name in outputs])
        return [answer.as_numpy(name) for name in outputs]

    yield ask
    client.close()


def check_add_sub(ask, model, a=A, b=B, **more):
    total, difference = ask(model, {**more, "INPUT0": a, "INPUT1": b}, ["OUTPUT0", "OUTPUT1"])
    assert np.array_equal(total, a + b) and total.dtype == np.float32
    assert np.array_equal(difference, a - b) and difference.dtype == np.float32


def test_b_py_33_add_sub(asked):
    check_add_sub(asked, "add_sub")


@pytest.mark.parametrize("target", ["add_sub", "add_sub_onnx"])
def test_b_py_33_a_model_that_calls_the_model_a_request_names(asked, target):
    check_add_sub(asked, "bls_sync", MODEL_NAME=np.array([target.encode()], np.object_))


def test_b_py_33_the_error_of_a_call_reaches_the_client(asked):
    with pytest.raises(InferenceServerException) as caught:
        check_add_sub(asked, "bls_sync", MODEL_NAME=np.array([b"nobody"], np.object_))
    assert "Failed to process the request(s) for model 'bls_sync_0_0', message: TritonModelException: " in str(caught.value)
    assert "nobody" in str(caught.value)


def test_b_py_33_two_calls_at_once(asked):
    check_add_sub(asked, "bls_async")


@pytest.mark.parametrize("model, times", [("bls_decoupled_sync", 1), ("bls_decoupled_async", 3)])
@pytest.mark.parametrize("n", [0, 1, 4, 50])
def test_b_py_33_the_sum_of_all_responses_of_a_decoupled_model(asked, model, times, n):
    [total] = asked(model, {"IN": np.array([n], np.int32)}, ["SUM"])
    assert total.tolist() == [times * n * n]


@pytest.mark.parametrize("model, rows", [("nobatch_auto_complete", ()), ("batch_auto_complete", (3,))])
def test_b_py_33_a_model_that_completes_its_configuration(guides, asked, model, rows):
    a, b = (np.broadcast_to(one, (*rows, 4)).copy() for one in (A, B))
    check_add_sub(asked, model, a, b)
    config = http.InferenceServerClient(guides.http).get_model_config(model)
    assert config["max_batch_size"] == (4 if rows else 0)
    assert ("dynamic_batching" in config) == bool(rows)
    described = [(tensor["name"], tensor["data_type"], tensor["dims"]) for tensor in config["input"] + config["output"]]
    assert described == [(name, "TYPE_FP32", [4]) for name in ("INPUT0", "INPUT1", "OUTPUT0", "OUTPUT1")]


def test_b_py_33_custom_metrics(guides, asked):
    labels = 'model="custom_metrics"'

    def now():
        return guides.metrics()

    def count(metrics):
        return metrics.get(f"input_sum_count{{{labels}}}", 0)

    before = now()
    [same] = asked("custom_metrics", {"INPUT0": A}, ["OUTPUT0"])
    assert np.array_equal(same, A)
    after = now()
    # Updates do not wait for the server, so they may come behind the answer; /metrics has what came before it was asked.
    for _ in range(100):
        if count(after) == count(before) + 1 and after.get(f"last_batch{{{labels}}}") == 1:
            break
        after = now()
    assert count(after) == count(before) + 1
    assert after[f'input_sum_bucket{{{labels},le="10"}}'] == before.get(f'input_sum_bucket{{{labels},le="10"}}', 0) + 1
    assert after[f'input_sum_bucket{{{labels},le="1"}}'] == 0
    assert after[f"input_sum_sum{{{labels}}}"] == 10 * count(after)
    assert after[f"last_batch{{{labels}}}"] == 1
    latency = f'requests_process_latency_ns{{{labels},version="1"}}'
    assert after[latency] > before.get(latency, 0)
    guides.logged("Cumulative requests processing latency: ")


def ppm(width, height, colour):
    return b"P6\n%d %d\n255\n" % (width, height) + bytes(colour) * (width * height)


def test_b_py_33_preprocessing_before_a_network(asked):
    red = np.frombuffer(ppm(40, 30, (255, 0, 0)), np.uint8).reshape(1, -1)
    [image] = asked("preprocessing", {"INPUT_0": red}, ["OUTPUT_0"])
    assert image.shape == (1, 3, 32, 32)
    expected = (np.array([1, 0, 0]) - [0.485, 0.456, 0.406]) / [0.229, 0.224, 0.225]
    assert np.allclose(image[0, :, 5, 7], expected, atol=1e-6)
    [probabilities] = asked("image_pipeline", {"INPUT": red}, ["OUTPUT"])
    [alone] = asked("classifier", {"image": image}, ["probabilities"])
    assert np.allclose(probabilities, alone, atol=1e-6) and probabilities.sum() == pytest.approx(1, abs=1e-5)


def stream(server, model, inputs):
    """Responses of one request in the order they came, the final one left out."""
    found = queue.Queue()
    tensors = []
    for name, array in inputs.items():
        tensors.append(grpc.InferInput(name, list(array.shape), {"i": "INT32", "u": "UINT32"}[array.dtype.kind]))
        tensors[-1].set_data_from_numpy(array)
    responses = []
    with grpc.InferenceServerClient(server.grpc) as client:
        client.start_stream(callback=lambda result, error: found.put((result, error)))
        client.async_stream_infer(model, tensors, enable_empty_final_response=True)
        while True:
            result, error = found.get(timeout=60)
            assert error is None, error
            if result.get_response().parameters["triton_final_response"].bool_param:
                return responses
            responses.append(result)


def test_b_py_33_repeat(guides):
    values, delays = np.array([4, 2, 0, 1], np.int32), np.array([1, 2, 3, 4], np.uint32)
    found = stream(guides, "repeat_int32", {"IN": values, "DELAY": delays, "WAIT": np.array([5], np.uint32)})
    assert [int(one.as_numpy("OUT")[0]) for one in found] == values.tolist()
    assert [int(one.as_numpy("IDX")[0]) for one in found] == [0, 1, 2, 3]


@pytest.mark.parametrize("n", [0, 1, 16])
def test_b_py_33_square(guides, n):
    found = stream(guides, "square_int32", {"IN": np.array([n], np.int32)})
    assert [int(one.as_numpy("OUT")[0]) for one in found] == [n] * n
