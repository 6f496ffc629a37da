"""Writes the fixtures of boxes.rs and labels.rs into this folder.

Needs torch, torchvision, transformers and ultralytics (made with 2.13.0, 0.29.2, 5.19.0 and 8.3.200). Inputs are not
stored: both sides make them from the same numbers. A block of layouts.txt is a case and its boxes: x1, y1, x2, y2,
score, class.
"""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import torch
from torchvision.ops import batched_nms, nms
from transformers import DetrImageProcessor, RTDetrImageProcessor
from ultralytics.models.rtdetr.predict import RTDETRPredictor
from ultralytics.utils.nms import non_max_suppression

HERE = Path(__file__).parent


class Numbers:
    """A linear congruential generator."""

    def __init__(self, seed):
        self.state = seed

    def integer(self, below):
        self.state = (self.state * 1664525 + 1013904223) & 0xFFFFFFFF
        return (self.state >> 8) % below

    def share(self):
        return np.float32(self.integer(1 << 24)) / np.float32(1 << 24)

    def scores(self, count):
        """Most are small."""
        values = np.array([self.share() for _ in range(count)], np.float32)
        return values * values * values * values

    def spread(self, count, least, width):
        values = np.array([self.share() for _ in range(count)], np.float32)
        return values * np.float32(width) + np.float32(least)


def random_boxes(seed, count, side, unit, classes, levels):
    """Corners in steps of 1 / unit; scores of `levels` levels, which has equal ones if there are few."""
    numbers = Numbers(seed)
    boxes, scores, labels = [], [], []
    for _ in range(count):
        x, y = numbers.integer(side), numbers.integer(side)
        w, h = numbers.integer(side // 4 + 1), numbers.integer(side // 4 + 1)
        boxes.append([x / unit, y / unit, (x + w) / unit, (y + h) / unit])
        scores.append((numbers.integer(levels) + 1) / (levels + 1))
        labels.append(numbers.integer(classes))
    return torch.tensor(boxes, dtype=torch.float32), torch.tensor(scores, dtype=torch.float32), torch.tensor(labels)


def kept(boxes, scores, labels, iou, per_class):
    if not per_class:
        return nms(boxes, scores, iou).tolist()
    if scores.unique().numel() == scores.numel():
        return batched_nms(boxes, scores, labels, iou).tolist()
    # The order of equal scores of different classes is not defined by batched_nms.
    every = []
    for label in labels.unique():
        of = torch.where(labels == label)[0]
        every += of[nms(boxes[of], scores[of], iou)].tolist()
    return sorted(every, key=lambda at: (-scores[at].item(), at))


def checksum(positions):
    """FNV-1a of 32 bits over positions."""
    value = 0x811C9DC5
    for position in positions:
        value = ((value ^ position) * 0x01000193) & 0xFFFFFFFF
    return value


def write_nms():
    lines = []
    cases = [
        # seed, count, side, unit, classes, levels
        (1, 1000, 4096, 8, 1, (1 << 24) - 1),
        (2, 1000, 4096, 8, 7, (1 << 24) - 1),
        (3, 600, 12, 1, 3, (1 << 24) - 1),
        (4, 600, 12, 1, 3, 20),
        (5, 900, 2048, 8, 300, 50),
        (6, 2500, 8192, 8, 40, (1 << 24) - 1),
        (7, 400, 8, 1, 1, 1),
        (8, 4500, 2048, 8, 3, (1 << 24) - 1),
    ]
    for case in cases:
        boxes, scores, labels = random_boxes(*case)
        for iou in (0.0, 0.3, 0.5, 0.7, 1.0) if case[1] < 2000 else (0.3, 0.45):
            for per_class in (0, 1):
                stay = kept(boxes, scores, labels, iou, per_class)
                head = " ".join(map(str, [*case, iou, per_class]))
                lines.append(f"{head} : {len(stay)} {checksum(stay)} {' '.join(map(str, stay[:8]))}")
    (HERE / "nms.txt").write_text("\n".join(lines) + "\n")


def back(boxes, placement):
    scale_x, scale_y, offset_x, offset_y, width, height = placement
    boxes = (boxes - torch.tensor([offset_x, offset_y] * 2)) / torch.tensor([scale_x, scale_y] * 2)
    size = torch.tensor([width, height] * 2, dtype=torch.float32)
    return torch.minimum(boxes.clamp(min=0), size)


LETTERBOX = (0.5, 0.5, 0.0, 80.0, 1280.0, 960.0)


def corners(places):
    x, y, w, h = places.unbind(-1)
    return torch.stack([x - w / 2, y - h / 2, x + w / 2, y + h / 2], -1)


def places(numbers, count):
    """Four rows: centers and sizes in pixels of 640."""
    return np.stack([numbers.spread(count, 0, 640), numbers.spread(count, 0, 640)] + [
        numbers.spread(count, 8, 120), numbers.spread(count, 8, 120)])


def select(boxes, scores, labels, threshold, iou, boxes_max, placement=LETTERBOX):
    over = scores > threshold
    boxes, scores, labels = boxes[over], scores[over], labels[over]
    stay = batched_nms(boxes, scores, labels, iou)[:boxes_max]
    return back(boxes[stay], placement), scores[stay], labels[stay]


def yolov5():
    numbers = Numbers(50)
    place = torch.tensor(places(numbers, 200)).T
    objectness = torch.tensor(numbers.spread(200, 0, 1))
    classes = torch.tensor(numbers.scores(200 * 12).reshape(200, 12))
    scores, labels = (classes * objectness[:, None]).max(1)
    return select(corners(place), scores, labels, 0.25, 0.45, 1000)


def yolov8():
    numbers = Numbers(80)
    place = torch.tensor(places(numbers, 200)).T
    classes = torch.tensor(numbers.scores(7 * 200).reshape(7, 200))
    scores, labels = classes.max(0)
    return select(corners(place), scores, labels, 0.25, 0.7, 300)


def several_labels(width, classes, iou, boxes_max):
    """Every class over the threshold makes a box."""
    found = non_max_suppression(torch.cat([torch.tensor(width), classes])[None], 0.25, iou, multi_label=True,
                                max_det=boxes_max)[0]
    return back(found[:, :4], LETTERBOX), found[:, 4], found[:, 5].int()


def yolov5_labels():
    numbers = Numbers(50)
    place = places(numbers, 200)
    objectness = torch.tensor(numbers.spread(200, 0, 1))
    classes = torch.tensor(numbers.scores(200 * 12).reshape(200, 12))
    return several_labels(place, (classes * objectness[:, None]).T, 0.45, 1000)


def yolov8_labels():
    numbers = Numbers(80)
    place = places(numbers, 200)
    return several_labels(place, torch.tensor(numbers.scores(7 * 200).reshape(7, 200)), 0.7, 300)


def rtdetr_ultralytics():
    numbers = Numbers(75)
    boxes = torch.tensor(numbers.spread(160, 0, 1).reshape(40, 4))
    scores = torch.tensor(numbers.spread(400, 0, 0.6).reshape(40, 10))
    predictor = SimpleNamespace(
        args=SimpleNamespace(conf=0.25, classes=None, max_det=300), batch=[[""]], model=SimpleNamespace(names={}))
    picture = [np.zeros((480, 640, 3), np.uint8)]
    found = RTDETRPredictor.postprocess(predictor, torch.cat([boxes, scores], 1)[None], None, picture)[0].boxes.data
    found = found[torch.sort(found[:, 4], stable=True, descending=True).indices]
    return back(found[:, :4], (1.0, 1.0, 0.0, 0.0, 640.0, 480.0)), found[:, 4], found[:, 5].int()


def transformer(seed, width, processor):
    numbers = Numbers(seed)
    logits = torch.tensor(numbers.spread(40 * width, -7, 12).reshape(40, width))
    boxes = torch.tensor(numbers.spread(160, 0, 1).reshape(40, 4))
    outputs = SimpleNamespace(logits=logits[None], pred_boxes=boxes[None])
    sizes = torch.tensor([[480, 640]])
    found = processor.post_process_object_detection(outputs, threshold=0.5, target_sizes=sizes)[0]
    order = torch.sort(found["scores"], stable=True, descending=True).indices
    placement = (1.0, 1.0, 0.0, 0.0, 640.0, 480.0)
    return back(found["boxes"][order], placement), found["scores"][order], found["labels"][order]


def center(is_face):
    numbers = Numbers(90)
    heat = torch.tensor(numbers.spread(2 * 10 * 15, 0, 1).reshape(2, 10, 15))
    scale = torch.tensor(numbers.spread(2 * 10 * 15, 0.5, 2).reshape(2, 10, 15))
    offset = torch.tensor(numbers.spread(2 * 10 * 15, 0, 1).reshape(2, 10, 15))
    peak = torch.nn.functional.max_pool2d(heat[None], 3, 1, 1)[0] == heat
    labels, rows, columns = torch.where(peak)
    pick = lambda pair: (pair[0, rows, columns], pair[1, rows, columns])
    (s0, s1), (o0, o1) = pick(scale), pick(offset)
    if is_face:
        place = [columns + o1 + 0.5, rows + o0 + 0.5, s1.exp(), s0.exp()]
    else:
        place = [columns + o0, rows + o1, s0, s1]
    boxes = corners(torch.stack(place, -1) * 4)
    scores = heat[labels, rows, columns]
    placement = (1.0, 1.0, 0.0, 0.0, 60.0, 40.0)
    if is_face:
        return select(boxes, scores, labels, 0.5, 0.3, 300, placement)
    order = torch.sort(scores, stable=True, descending=True).indices[:100]
    order = order[scores[order] > 0.3]
    return back(boxes[order], placement), scores[order], labels[order]


def write_layouts():
    lines = []
    for name, found in [
        ("yolov5", yolov5()),
        ("yolov8", yolov8()),
        ("detr", transformer(60, 11, DetrImageProcessor())),
        ("rtdetr", transformer(70, 10, RTDetrImageProcessor())),
        ("yolov5 multi_label", yolov5_labels()),
        ("yolov8 multi_label", yolov8_labels()),
        ("rtdetr_ultralytics", rtdetr_ultralytics()),
        ("centernet", center(False)),
        ("centerface", center(True)),
    ]:
        lines.append(name)
        for box, score, label in zip(*(part.tolist() for part in found)):
            lines.append(" ".join([f"{value:.9g}" for value in [*box, score]] + [str(label)]))
    (HERE / "layouts.txt").write_text("\n".join(lines) + "\n")


def write_labels():
    lines = []
    for name in ("none", "softmax", "sigmoid"):
        row = torch.tensor(Numbers(40).spread(1000, -8, 16))
        scores = {"none": row, "softmax": row.softmax(0), "sigmoid": row.sigmoid()}[name]
        top = scores.topk(7)
        lines.append(" ".join([name, *(f"{c}:{s:.9g}" for c, s in zip(top.indices.tolist(), top.values.tolist()))]))
    (HERE / "labels.txt").write_text("\n".join(lines) + "\n")


write_nms()
write_layouts()
write_labels()
