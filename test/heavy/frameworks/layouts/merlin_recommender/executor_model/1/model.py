"""
Asks the other models one after the other, and converts the columns to the datatypes of the next one. The steps stand
here; the project reads them from the directory `ensemble` beside this file.
"""
import numpy as np
import triton_python_backend_utils as pb_utils

#: Model, the datatypes of its inputs, the names of its outputs.
STEPS = [
    (
        "0_transformworkflowtriton",
        {"user_id": np.int64, "item_category": np.object_, "position": np.float64},
        ["user_id", "item_category", "position"],
    ),
    ("1_predictpytorchtriton", {"user_id": np.int64, "item_category": np.int64, "position": np.float32}, ["click"]),
]


class TritonPythonModel:
    def execute(self, requests):
        return [self.respond(request) for request in requests]

    def respond(self, request):
        columns = {
            name: pb_utils.get_input_tensor_by_name(request, name).as_numpy()
            for name in ("user_id", "item_category", "position")
        }
        for model, datatypes, outputs in STEPS:
            asked = pb_utils.InferenceRequest(
                model_name=model,
                requested_output_names=outputs,
                inputs=[pb_utils.Tensor(name, columns[name].astype(kind)) for name, kind in datatypes.items()],
            )
            answer = asked.exec()
            if answer.has_error():
                return pb_utils.InferenceResponse(error=pb_utils.TritonError(answer.error().message()))
            columns = {name: pb_utils.get_output_tensor_by_name(answer, name).as_numpy() for name in outputs}
        return pb_utils.InferenceResponse([pb_utils.Tensor(name, array) for name, array in columns.items()])
