"""Turns users and words into rows of tables, and scales numbers, in place of NVTabular."""
import numpy as np
import triton_python_backend_utils as pb_utils

USERS = 50
CATEGORIES = ["hats", "shoes", "books", "music", "games"]


def transformed(user, category, position):
    words = [word.decode() if isinstance(word, bytes) else word for word in category]
    return {
        "user_id": user % USERS,
        "item_category": np.array([CATEGORIES.index(word) for word in words], np.int64),
        "position": (position - 10) / 5,
    }


class TritonPythonModel:
    def execute(self, requests):
        responses = []
        for request in requests:
            columns = (
                pb_utils.get_input_tensor_by_name(request, name).as_numpy()
                for name in ("user_id", "item_category", "position")
            )
            tensors = [pb_utils.Tensor(name, array) for name, array in transformed(*columns).items()]
            responses.append(pb_utils.InferenceResponse(tensors))
        return responses
