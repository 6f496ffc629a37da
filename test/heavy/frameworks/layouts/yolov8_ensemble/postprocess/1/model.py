"""
Keeps the best boxes, in place of OpenCV's NMSBoxes. As in the project, the configuration says 1,000 boxes and a response
has those that were found, and their number is a scalar.
"""
import numpy as np
import triton_python_backend_utils as pb_utils

SCORE_MIN = 0.25
OVERLAP_MAX = 0.45


def detections(output):
    """The four outputs for one picture. A box is its left, its top, its width and its height."""
    rows = output[0].T
    best = rows[:, 4:].max(axis=1)
    rows, best = rows[best >= SCORE_MIN], best[best >= SCORE_MIN]
    boxes = np.concatenate([rows[:, :2] - rows[:, 2:4] / 2, rows[:, 2:4]], axis=1)
    low, high, area = boxes[:, :2], boxes[:, :2] + boxes[:, 2:], boxes[:, 2:].prod(axis=1)
    order, kept = np.argsort(-best, kind="stable"), []
    while len(order) > 0:
        first, order = order[0], order[1:]
        kept.append(first)
        sides = np.clip(np.minimum(high[first], high[order]) - np.maximum(low[first], low[order]), 0, None)
        shared = sides.prod(axis=1)
        order = order[shared / (area[first] + area[order] - shared) <= OVERLAP_MAX]
    return {
        "num_detections": np.array(len(kept), np.int32),
        "detection_boxes": boxes[kept].astype(np.float32),
        "detection_scores": best[kept].astype(np.float32),
        "detection_classes": rows[kept, 4:].argmax(axis=1).astype(np.int32),
    }


class TritonPythonModel:
    def execute(self, requests):
        responses = []
        for request in requests:
            output = pb_utils.get_input_tensor_by_name(request, "INPUT_0").as_numpy()
            tensors = [pb_utils.Tensor(name, array) for name, array in detections(output).items()]
            responses.append(pb_utils.InferenceResponse(tensors))
        return responses
