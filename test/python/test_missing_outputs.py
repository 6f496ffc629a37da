"""Models in Python that leave out an output, in ensembles: with Triton's texts, over HTTP and gRPC."""
import numpy as np
import pytest
import tritonclient.grpc as grpcclient
import tritonclient.http as httpclient
from tritonclient.utils import InferenceServerException

from interpreter import python_server
from steps import ensemble, step, tensors

# Adds OUTPUT1 only where the first value is odd.
MODEL = """import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        answers = []
        for request in requests:
            values = pb_utils.get_input_tensor_by_name(request, "INPUT0").as_numpy()
            outputs = [pb_utils.Tensor("OUTPUT0", values)]
            if values.flat[0] % 2 == 1:
                outputs.append(pb_utils.Tensor("OUTPUT1", values))
            answers.append(pb_utils.InferenceResponse(outputs))
        return answers
"""
ONE, TWO = [("OUTPUT0", "TYPE_INT32", 4)], [("OUTPUT0", "TYPE_INT32", 4), ("OUTPUT1", "TYPE_INT32", 4)]
INPUT = tensors("input", [("INPUT0", "TYPE_INT32", 4)])
SAME = {"INPUT0": "INPUT0"}
CONFIGS = {
    "partial": 'backend: "python"\nmax_batch_size: 8\n' + INPUT + tensors("output", TWO),
    "same": 'backend: "identity"\nmax_batch_size: 8\n' + INPUT + tensors("output", ONE),
    # OUTPUT1 goes to the client.
    "gives": 'platform: "ensemble"\nmax_batch_size: 8\n' + INPUT + tensors("output", TWO)
    + ensemble(step("partial", SAME, {"OUTPUT0": "OUTPUT0", "OUTPUT1": "OUTPUT1"})),
    # OUTPUT1 goes to a step that must have it.
    "needs": 'platform: "ensemble"\nmax_batch_size: 8\n' + INPUT + tensors("output", ONE)
    + ensemble(step("partial", SAME, {"OUTPUT1": "between"}), step("same", {"INPUT0": "between"}, {"OUTPUT0": "OUTPUT0"})),
}
LINE = "Composing models did not output tensor OUTPUT1"


@pytest.fixture(scope="module")
def partial(tmp_path_factory):
    root = tmp_path_factory.mktemp("partial")
    for name, config in CONFIGS.items():
        (root / name / "1").mkdir(parents=True)
        (root / name / "config.pbtxt").write_text(config)
    (root / "partial/1/model.py").write_text(MODEL)
    one = python_server(root, "--log-verbose=1", log=tmp_path_factory.mktemp("log") / "server.log")
    yield one
    assert one.process.poll() is None, f"the server ended by itself:\n{one.tail()}"
    assert one.stop() == 0, one.tail()


@pytest.fixture(params=[httpclient, grpcclient])
def ask(request, partial):
    module = request.param
    with module.InferenceServerClient(partial.http if module is httpclient else partial.grpc) as client:

        def go(model, first, asked=None):
            given = module.InferInput("INPUT0", [1, 4], "INT32")
            given.set_data_from_numpy(np.array([[first, 0, 0, 0]], np.int32))
            outputs = asked and [module.InferRequestedOutput(name) for name in asked]
            return client.infer(model, [given], outputs=outputs, request_id="mine")

        yield go


def test_an_output_that_no_step_gave_is_left_out_of_the_answer_and_named_in_the_log(partial, ask):
    before = partial.output().count(LINE)
    assert ask("gives", 1).as_numpy("OUTPUT1") is not None
    assert ask("gives", 2, ["OUTPUT0"]).as_numpy("OUTPUT1") is None
    assert partial.output().count(LINE) == before, "OUTPUT1 was there, or was not asked for"
    for asked in (None, ["OUTPUT0", "OUTPUT1"], ["OUTPUT1"]):
        result = ask("gives", 2, asked)
        assert result.as_numpy("OUTPUT1") is None
        assert (result.as_numpy("OUTPUT0") is not None) == (asked != ["OUTPUT1"])
    partial.logged(LINE)
    # Lines are written in order: the marker comes last.
    marker = f"HTTP request: 0 /v2/models/marker{before}"
    partial.get(f"/v2/models/marker{before}", check=False)
    assert partial.logged(marker).count(LINE) == before + 3, "a line for each answer without it"
    assert "did not output tensor OUTPUT0" not in partial.output()


def test_a_step_that_must_have_a_tensor_that_was_left_out_refuses_the_request(ask):
    assert ask("needs", 1).as_numpy("OUTPUT0").tolist() == [[1, 0, 0, 0]]
    with pytest.raises(InferenceServerException) as refused:
        ask("needs", 2)
    assert refused.value.status() in ("400", "StatusCode.INVALID_ARGUMENT")
    assert refused.value.message() == (
        "in ensemble 'needs', [request id: mine] expected 1 inputs but got 0 inputs for model 'same'. Got input(s) [], "
        "but missing required input(s) ['INPUT0']. Please provide all required input(s)."
    )
