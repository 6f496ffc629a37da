"""Adds exports of torchvision and ultralytics with random weights to a model repository, if both are installed.

Usage: exports.py REPOSITORY
"""
import os
import shutil
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent


def calibrate(network, inputs):
    """Random weights let signals fade; the statistics of one batch keep their size."""
    import torch

    layers = [layer for layer in network.modules() if isinstance(layer, torch.nn.BatchNorm2d)]
    for layer in layers:
        layer.momentum = 1.0
        layer.train()
    with torch.no_grad():
        network(inputs)
    for layer in layers:
        layer.eval()


def photographs(side):
    import torch
    from make import source

    pictures = [source(name).resize((side, side)) for name in ("astronaut.png", "coffee.png", "chelsea.png")]
    return torch.stack([torch.from_numpy(np.asarray(one) / np.float32(255)).permute(2, 0, 1) for one in pictures])


def classifier():
    """Ten classes whose scores differ between pictures."""
    import torch
    from torchvision.models import resnet18

    network = resnet18(weights=None, num_classes=10).eval()
    torch.nn.init.normal_(network.fc.weight, std=0.2)
    return network


def detector():
    import torch
    from torchvision.models.detection import ssdlite320_mobilenet_v3_large

    settings = {"weights": None, "weights_backbone": None, "num_classes": 4, "score_thresh": 0.5}
    network = ssdlite320_mobilenet_v3_large(**settings).eval()
    for layer in network.head.classification_head.module_list:
        torch.nn.init.normal_(layer[-1].weight, std=0.05)
    return network


def resnet(to):
    import torch

    network = classifier()
    torch.save(network.state_dict(), to / "weights.pt")
    names = {"input_names": ["x"], "output_names": ["y"], "dynamic_axes": {"x": {0: "n"}, "y": {0: "n"}}}
    torch.onnx.export(network, (torch.zeros(1, 3, 224, 224),), to / "model.onnx", dynamo=False, **names)


def ssd(to):
    """The export of a detection network has no rows, which the backends have."""
    import torch

    network = detector()
    calibrate(network, list(photographs(320)))
    torch.save(network.state_dict(), to / "weights.pt")

    class Row(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.network = network

        def forward(self, x):
            [found] = self.network([x[0]])
            return tuple(found[name][None] for name in ("boxes", "labels", "scores"))

    names = {"input_names": ["x"], "output_names": ["boxes", "labels", "scores"]}
    axes = {"x": {2: "h", 3: "w"}, "boxes": {1: "n"}, "labels": {1: "n"}, "scores": {1: "n"}}
    picture = torch.rand(1, 3, 480, 640)
    torch.onnx.export(Row().eval(), (picture,), to / "model.onnx", dynamo=False, dynamic_axes=axes, **names)


def yolo(to):
    import torch
    from ultralytics import YOLO

    network = YOLO("yolov8n.yaml")
    calibrate(network.model.eval(), photographs(640))
    for branch in network.model.model[-1].cv3:
        torch.nn.init.normal_(branch[-1].weight, std=0.1)
        torch.nn.init.constant_(branch[-1].bias, -8.0)
    file = network.export(format="onnx", imgsz=640, simplify=False)
    os.replace(file, to / "model.onnx")


def write(to):
    import torch

    torch.manual_seed(5)
    for make in (resnet, ssd, yolo):
        directory = to / f"{make.__name__}_network" / "1"
        directory.mkdir(parents=True, exist_ok=True)
        make(directory)
    shutil.copytree(HERE / "exports", to, dirs_exist_ok=True)
    for model in (HERE / "exports").iterdir():
        (to / model.name / "1").mkdir(exist_ok=True)


if __name__ == "__main__":
    # Nothing is downloaded or installed.
    os.environ.update(YOLO_OFFLINE="true", YOLO_AUTOINSTALL="false")
    absent = [name for name in ("torch", "torchvision", "ultralytics") if find_spec(name) is None]
    if absent:
        print(f"absent: {', '.join(absent)}")
    else:
        os.chdir(sys.argv[1])
        write(Path(sys.argv[1]))
