"""What our backends written in Python share: B-PYB-03."""
import json
import os
import sys

import numpy as np
import pytest
import triton_python_backend_utils as pb

sys.path.append(os.path.join(os.path.dirname(__file__), "../../../crates/backend-python/backends"))
import nereid_shared  # noqa: E402


def model(batch=8, **parameters):
    config = {
        "max_batch_size": batch,
        "default_model_filename": "",
        "input": [{"name": "A", "data_type": "TYPE_FP32", "dims": [-1]}],
        "output": [{"name": "B", "data_type": "TYPE_FP32", "dims": [-1]}],
        "parameters": {key: {"string_value": value} for key, value in parameters.items()},
    }
    return nereid_shared.Model({"model_config": json.dumps(config), "model_name": "m", "model_repository": "/r/m", "model_version": "3"})


def request(*rows):
    return pb.InferenceRequest(inputs=[pb.Tensor("A", np.array(rows, dtype=np.float32))], requested_output_names=[], model_name="m")


def test_b_pyb_03_a_configuration_is_read_with_texts_that_name_the_model():
    one = model(size="7", fast="true", path="x")
    assert (one.parameter("path"), one.parameter("none", "d"), one.number("size"), one.number("none", 5), one.flag("fast"), one.flag("none")) == ("x", "d", 7, 5, True, False)
    assert (one.file("model.txt"), one.inputs, one.outputs) == ("/r/m/3/model.txt", ["A"], {"B": np.float32})
    with pytest.raises(pb.TritonModelException, match="parameter 'path' of model 'm' must be a whole number, not 'x'"):
        one.number("path")
    with pytest.raises(pb.TritonModelException, match="parameter 'path' of model 'm' must be true or false, not 'x'"):
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
