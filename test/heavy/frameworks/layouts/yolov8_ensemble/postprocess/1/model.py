"""The best boxes, without those that lie over a better one; rows of a request that have fewer are filled with 0."""
import json

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        values = json.loads(args["model_config"])["parameters"]
        self.score, self.overlap = (float(values[name]["string_value"]) for name in ("score_threshold", "nms_threshold"))

    def best(self, boxes, scores):
        order, kept = list(np.argsort(-scores, kind="stable")), []
        corners = np.concatenate([boxes[:, :2] - boxes[:, 2:] / 2, boxes[:, :2] + boxes[:, 2:] / 2], axis=1)
        while order and len(kept) < 20:
            first = order.pop(0)
            if scores[first] < self.score:
                break
            kept.append(first)
            low = np.maximum(corners[first, :2], corners[order, :2])
            high = np.minimum(corners[first, 2:], corners[order, 2:])
            shared = np.clip(high - low, 0, None).prod(axis=1)
            whole = boxes[first, 2:].prod() + boxes[order, 2:].prod(axis=1) - shared
            order = [at for at, share in zip(order, shared / whole) if share < self.overlap]
        return kept

    def execute(self, requests):
        responses = []
        for request in requests:
            rows = pb_utils.get_input_tensor_by_name(request, "INPUT_0").as_numpy().transpose(0, 2, 1)
            kept = [self.best(row[:, :4], row[:, 4:].max(axis=1)) for row in rows]
            most = max(map(len, kept))
            boxes, scores, classes = np.zeros((len(rows), most, 4), np.float32), np.zeros((len(rows), most), np.float32), np.zeros((len(rows), most), np.int32)
            for i, (row, places) in enumerate(zip(rows, kept)):
                boxes[i, : len(places)], scores[i, : len(places)] = row[places, :4], row[places, 4:].max(axis=1)
                classes[i, : len(places)] = row[places, 4:].argmax(axis=1)
            counts = np.array(list(map(len, kept)), np.int32)
            named = {"num_detections": counts, "detection_boxes": boxes, "detection_scores": scores, "detection_classes": classes}
            responses.append(pb_utils.InferenceResponse([pb_utils.Tensor(name, array) for name, array in named.items()]))
        return responses
