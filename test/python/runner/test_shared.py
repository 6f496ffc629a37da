"""Code that the backends written in Python share: B-PYB-03."""
import json
import platform
import sys

import nereid_shared
import numpy as np
import pytest
import triton_python_backend_utils as pb


def model(batch=8, **parameters):
    config = {
        "max_batch_size": batch,
        "default_model_filename": "",
        "input": [{"name": "A", "data_type": "TYPE_FP32", "dims": [-1]}],
        "output": [{"name": "B", "data_type": "TYPE_FP32", "dims": [-1]}],
        "parameters": {key: {"string_value": value} for key, value in parameters.items()},
    }
    return nereid_shared.Model({"model_config": json.dumps(config), "model_name": "m", "model_repository": "/r/m", "model_version": "3"})


def request(*rows, outputs=()):
    return pb.InferenceRequest(inputs=[pb.Tensor("A", np.array(rows, dtype=np.float32))], requested_output_names=list(outputs), model_name="m")


def test_b_pyb_03_a_configuration_is_read_with_texts_that_name_the_model():
    one = model(size="7", fast="true", path="x")
    assert (one.parameter("path"), one.parameter("none", "d"), one.number("size"), one.number("none", 5), one.flag("fast"), one.flag("none")) == ("x", "d", 7, 5, True, False)
    assert (one.file("model.txt"), one.inputs, one.outputs) == ("/r/m/3/model.txt", ["A"], {"B": np.float32})
    assert (model(fast="on").flag("fast"), model(fast="Off").flag("fast", True)) == (True, False)
    with pytest.raises(nereid_shared.LoadError, match="^parameter 'path' of model 'm' must be a whole number, not 'x'$"):
        one.number("path")
    with pytest.raises(nereid_shared.LoadError, match="^parameter 'size' of model 'm' must be at least 8, not 7$"):
        one.number("size", least=8)
    with pytest.raises(nereid_shared.LoadError, match="^failed to convert 'x' to boolean: parameter 'path' of model 'm' must be true or false$"):
        one.flag("path")


def test_b_pyb_03_requests_run_together_where_their_shapes_allow_it():
    runs = []

    def double(inputs):
        runs.append(inputs["A"].shape)
        return {"B": inputs["A"].astype(np.float64) * 2}

    def outputs(requests, of):
        return [r.output_tensors()[0].as_numpy().tolist() for r in nereid_shared.run_together(of, requests, double)]

    assert outputs([request([1, 2]), request([3, 4], [5, 6])], model()) == [[[2, 4]], [[6, 8], [10, 12]]]
    assert outputs([request([1]), request([3, 4])], model()) == [[[2]], [[6, 8]]]
    assert outputs([request(1, 2), request(3, 4)], model(0)) == [[2, 4], [6, 8]]
    assert runs == [(3, 2), (1, 1), (1, 2), (2,), (2,)]


def test_b_pyb_03_what_fails_is_the_answer_of_those_that_ran_together():
    def refuse(inputs):
        if inputs["A"].shape[1] == 2:
            raise ValueError("two")
        return {"B": inputs["A"]}

    answers = nereid_shared.run_together(model(), [request([1]), request([3, 4])], refuse)
    assert [a.has_error() for a in answers] == [False, True]
    assert answers[1].error().message() == "ValueError: two"


def test_b_pyb_03_an_output_with_another_number_of_rows_fails_the_batch():
    for made in (np.zeros((1, 1)), np.zeros((3, 1))):
        answers = nereid_shared.run_together(model(), [request([1]), request([3])], lambda _: {"B": made})  # noqa: B023
        assert [a.error().message() for a in answers] == [
            f"failed to split the output tensor 'B' in responses: expected batch size of at least 2 in model output, got {len(made)}"
        ] * 2
    assert not nereid_shared.run_together(model(0), [request(1, 2)], lambda _: {"B": np.zeros((3, 1))})[0].has_error()


def test_b_pyb_03_a_request_whose_input_cannot_be_read_fails_alone():
    class Half(nereid_shared.Arrays):
        def read(self, tensor):
            if tensor.as_numpy()[0, 0] == 2:
                raise nereid_shared.RequestError("two", "INVALID_ARG")
            return super().read(tensor)

    one = model()
    answers = nereid_shared.run_together(one, [request([1]), request([2]), request([3])], lambda inputs: {"B": inputs["A"]}, Half(one))
    assert [a.has_error() for a in answers] == [False, True, False]
    assert (answers[1].error().message(), answers[1].error().code()) == ("two", pb.TritonError.INVALID_ARG)
    assert answers[2].output_tensors()[0].as_numpy().tolist() == [[3]]


def test_b_pyb_03_outputs_that_no_request_wants_are_not_made_tensors():
    finished = []

    class Counts(nereid_shared.Arrays):
        def finish(self, name, array):
            finished.append(name)
            return super().finish(name, array)

    one = model()
    one.outputs["C"] = np.float32
    answers = nereid_shared.run_together(one, [request([1], outputs=["B"]), request([2], outputs=["B"])], lambda inputs: {"B": inputs["A"], "C": inputs["A"]}, Counts(one))
    assert [[tensor.name() for tensor in answer.output_tensors()] for answer in answers] == [["B"], ["B"]]
    assert finished == ["B"]


def test_b_pyb_03_a_framework_that_is_missing_is_told_with_the_interpreter():
    with pytest.raises(nereid_shared.LoadError) as told:
        nereid_shared.framework("nereid_no_such_framework", "No Such Framework", model())
    assert str(told.value) == (
        f"failed to load model 'm': its backend needs No Such Framework, and {sys.executable} (Python {platform.python_version()}) has no module "
        "'nereid_no_such_framework'. Another interpreter is named by NEREID_PYTHON or by --backend-config=python,python-executable=PATH"
    )
    # The server derives the install command from the name of the module.
    assert isinstance(told.value, ModuleNotFoundError) and told.value.name == "nereid_no_such_framework"
    assert nereid_shared.framework("json", "JSON", model()) is json


def test_b_pyb_03_a_directory_with_the_name_of_a_framework_is_none(tmp_path, monkeypatch):
    (tmp_path / "nereid_only_a_directory").mkdir()
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(nereid_shared.LoadError, match="has no module 'nereid_only_a_directory'"):
        nereid_shared.framework("nereid_only_a_directory", "No Such Framework", model())


def test_b_pyb_03_controls_and_states_of_sequences_are_tensors_of_the_model():
    one = model()
    one.config["sequence_batching"] = {
        "control_input": [{"name": "START", "control": [{"kind": "CONTROL_SEQUENCE_START", "fp32_false_true": [0, 1]}]}, {"name": "ID", "control": [{"data_type": "TYPE_UINT64"}]}],
        "state": [{"input_name": "IN", "output_name": "OUT", "data_type": "TYPE_INT32", "dims": [2]}],
    }
    inputs, outputs = one.tensors()
    assert [(tensor["name"], tensor["data_type"], tensor["dims"]) for tensor in inputs] == [
        ("A", "TYPE_FP32", [-1]), ("START", "TYPE_FP32", [1]), ("ID", "TYPE_UINT64", [1]), ("IN", "TYPE_INT32", [2]),
    ]  # fmt: skip
    assert [tensor["name"] for tensor in outputs] == ["B", "OUT"]


def test_b_pyb_03_arrays_are_told_whether_the_model_runs_again_before_they_are_sent():
    again = []

    class Asks(nereid_shared.Arrays):
        def finish(self, name, array):
            again.append(self.runs_again)
            return super().finish(name, array)

    one = model()
    nereid_shared.run_together(one, [request([1]), request([1, 2]), request([3])], lambda inputs: {"B": inputs["A"]}, Asks(one))
    nereid_shared.run_together(one, [request([1]), request([2])], lambda inputs: {"B": inputs["A"]}, Asks(one))
    assert again == [True, True, False, False]
