"""Ids of users and words become rows of tables, and numbers are normalized."""
import numpy as np
import triton_python_backend_utils as pb_utils

CATEGORIES = {b"shoes": 1, b"books": 2, b"music": 3, b"games": 4}


class TritonPythonModel:
    def execute(self, requests):
        responses = []
        for request in requests:
            user, category, position = (pb_utils.get_input_tensor_by_name(request, name).as_numpy() for name in ("user_id", "item_category", "position"))
            ids = np.array([[CATEGORIES.get(word, 0)] for word in category.reshape(-1)], np.int64)
            tensors = [pb_utils.Tensor("user_id", user % 50), pb_utils.Tensor("item_category", ids), pb_utils.Tensor("position", ((position - 10) / 5).astype(np.float32))]
            responses.append(pb_utils.InferenceResponse(tensors))
        return responses
